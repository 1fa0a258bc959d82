"""Tests of views of datasets: Gluon's semantics and messages."""

import pickle
from collections import namedtuple
from typing import Any

import numpy as np
import pytest

import aioloader
from aioloader.datasets import ArrayDataset, Dataset, SimpleDataset
from aioloader.datasets.stage import Stage
from aioloader.rng import Rng
from aioloader.samplers import BatchSampler, RandomSampler, Sampler, SequentialSampler
from aioloader.transforms import Cast
from tests.cases import with_cases

Pair = namedtuple("Pair", ["image", "label"])


def double(x: Any) -> Any:
    return x * 2


def draw(x: Any, *, rng: Rng) -> Any:
    return x, rng.random()


def add(a: Any, b: Any) -> Any:
    return a + b


def noisy(a: Any, b: Any, rng: Rng) -> Any:
    return a, b, rng.random()


def is_even(x: Any) -> bool:
    return x % 2 == 0


class Backwards(Sampler):
    def __iter__(self) -> Any:
        return iter([2, 1, -3])

    def __len__(self) -> int:
        return 3


def numbers(count: int) -> Dataset:
    return SimpleDataset(list(range(count)))


def test_the_base_class_asks_for_both_methods() -> None:
    with pytest.raises(NotImplementedError):
        len(Dataset())
    with pytest.raises(NotImplementedError):
        Dataset()[0]


@with_cases(
    ("samples", "fn", "expected"),
    [
        ([1, 2], double, [2, 4]),
        ([(1, 2), (3, 4)], add, [3, 7]),
        ([(1,)], double, [2]),
        ([[1, 2]], double, [[1, 2, 1, 2]]),
        ([Pair(1, 2)], add, [3]),
    ],
)
def test_a_transform_takes_the_elements_of_a_tuple_as_arguments(samples: Any, fn: Any, expected: Any) -> None:
    assert list(SimpleDataset(samples).transform(fn)) == expected


@with_cases(
    ("samples", "expected"),
    [
        ([1, 2], [2, 4]),
        ([(1, 2, 3)], [(2, 2, 3)]),
        ([(1,)], [2]),
        ([[1, 2]], [[1, 2, 1, 2]]),
        ([Pair(1, 2)], [Pair(2, 2)]),
    ],
)
def test_transform_first_leaves_the_other_elements_alone(samples: Any, expected: Any) -> None:
    transformed = list(SimpleDataset(samples).transform_first(double))

    assert transformed == expected
    assert type(transformed[0]) is type(expected[0])


def test_a_transform_is_applied_whenever_a_sample_is_taken_or_once() -> None:
    calls = []

    def watch(x: int) -> int:
        calls.append(x)
        return x

    lazy = numbers(2).transform(watch)
    assert calls == []
    assert (lazy[0], lazy[0], calls) == (0, 0, [0, 0])

    eager = numbers(2).transform(watch, lazy=False)
    assert isinstance(eager, SimpleDataset)
    assert calls == [0, 0, 0, 1]
    assert (list(eager), calls) == ([0, 1], [0, 0, 0, 1])


@with_cases(
    ("samples", "fn", "first"),
    [([1], draw, False), ([1], draw, True), ([(1, 2)], draw, True), ([(1, 2)], noisy, False)],
)
def test_a_parameter_named_rng_is_given_the_draws(samples: Any, fn: Any, first: bool) -> None:
    stage = Stage(fn, first=first)

    assert stage.apply(samples[0], Rng(1)) == stage.apply(samples[0], Rng(1))
    assert stage.apply(samples[0], Rng(1)) != stage.apply(samples[0], Rng(2))
    view = SimpleDataset(samples)
    view = view.transform_first(fn) if first else view.transform(fn)
    assert view[0] != view[0]


def test_a_stage_knows_its_transform() -> None:
    assert (Stage(double, first=True).name, Stage(double, first=True).native) == ("double", False)
    assert (Stage(Cast("float32"), first=True).name, Stage(Cast("float32"), first=True).native) == (
        "Cast",
        True,
    )
    with pytest.raises(TypeError, match="callable"):
        Stage(3, first=True)  # type: ignore[arg-type]


def test_a_native_stage_writes_to_the_given_place() -> None:
    out = np.empty((2, 2), np.float32)

    image, label = Stage(Cast("float32"), first=True).apply((np.ones((2, 2), np.uint8), 5), Rng(0), out)

    assert image is out
    assert out.tolist() == [[1, 1], [1, 1]]
    assert label == 5


def test_filter_gives_the_whole_sample_to_its_condition() -> None:
    pairs = SimpleDataset([(1, 2), (3, 3), (4, 5)])

    assert list(pairs.filter(lambda pair: pair[0] != pair[1])) == [(1, 2), (4, 5)]


def test_shards_are_contiguous_and_the_first_ones_longer() -> None:
    assert [list(numbers(10).shard(3, index)) for index in range(3)] == [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert [list(numbers(2).shard(3, index)) for index in range(3)] == [[0], [1], []]


@with_cases(
    ("arguments", "message"),
    [
        ((3, 3), "the shard index must be from 0 to 2, got 3"),
        ((0, -1), "num_shards must be at least 1, got 0"),
        ((3, -1), "the shard index must be from 0 to 2, got -1"),
    ],
)
def test_bad_shards_are_refused_in_gluons_words(arguments: tuple[int, int], message: str) -> None:
    with pytest.raises(AssertionError, match=f"^{message}$"):
        numbers(10).shard(*arguments)
    with pytest.raises(ValueError, match=message):
        numbers(10).shard(*arguments)


@with_cases(("count", "expected"), [(None, 5), (9, 5), (5, 5), (2, 2), (0, 0)])
def test_take_gives_the_first_samples(count: int | None, expected: int) -> None:
    assert list(numbers(5).take(count)) == list(range(expected))
    with pytest.raises(ValueError, match="-1"):
        numbers(5).take(-1)


def test_sample_draws_the_indices_once() -> None:
    view = numbers(20).sample(RandomSampler(20))

    assert list(view) == list(view)
    assert sorted(view) == list(range(20))
    assert list(numbers(5).sample(Backwards())) == [2, 1, 2]


@with_cases(
    "indices",
    [
        [3, 1, -1],
        (3, 1, 4),
        np.array([3, 1, -1]),
        [np.int64(3), np.int32(1), 4],
    ],
)
def test_sample_takes_indices(indices: Any) -> None:
    assert list(numbers(5).sample(range(4, 0, -2))) == [4, 2]
    assert list(numbers(5).sample([])) == []
    view = numbers(5).sample(indices)
    assert list(view) == [3, 1, 4]
    with aioloader.DataLoader(view, 3, num_workers=0) as loader:
        assert next(iter(loader)).tolist() == [3, 1, 4]


@with_cases(
    ("indices", "error", "message"),
    [
        ([1, 5], IndexError, r"sample\(\) got index 5, but the dataset has 5 samples"),
        (np.array([2**64 - 1], np.uint64), IndexError, "got index 18446744073709551615"),
        ([-6], IndexError, "got index -6"),
        ([1.0], TypeError, r"whole numbers in one list or an array of one axis, got \[1.0\]"),
        ([[1, 2]], TypeError, "whole numbers in one list"),
        ([[1, 2], [3]], TypeError, "whole numbers in one list"),
        (["1"], TypeError, "whole numbers in one list"),
        ([True, False], TypeError, r"got booleans: pass numpy.flatnonzero\(mask\)"),
        ("12", TypeError, r"a list or an array of indices, or a sampler, got str"),
        (3, TypeError, "got int"),
        (iter([1]), TypeError, "got list_iterator"),
    ],
)
def test_sample_refuses_other_indices(indices: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        numbers(5).sample(indices)


def test_sample_wants_a_sampler_whose_indices_exist() -> None:
    with pytest.raises(IndexError, match="index 5, but the dataset has 5"):
        numbers(5).sample(SequentialSampler(6))
    with pytest.raises(TypeError):
        numbers(5).sample(BatchSampler(SequentialSampler(4), 2))


def test_views_of_views_compose() -> None:
    view = numbers(20).filter(is_even).transform(double).shard(2, 1).take(3).transform(draw)

    assert [sample[0] for sample in view] == [20, 24, 28]
    assert len(pickle.loads(pickle.dumps(view))) == len(view) == 3
    assert view[-1][0] == 28
    with pytest.raises(IndexError):
        view[3]


def test_one_array_gives_elements_and_several_give_tuples() -> None:
    assert list(ArrayDataset([1, 2])) == [1, 2]
    assert list(ArrayDataset([1, 2], "ab", np.arange(2))) == [(1, "a", 0), (2, "b", 1)]
    assert ArrayDataset([1, 2])[-1] == 2


def test_arrays_of_unequal_length_are_refused_in_gluons_words() -> None:
    with pytest.raises(AssertionError, match="ArrayDataset needs at least one array, list or dataset"):
        ArrayDataset()
    with pytest.raises(
        AssertionError,
        match="must have the same length: the first has 3 elements, but argument 2 has 4",
    ):
        ArrayDataset([1, 2, 3], [1, 2, 3, 4])
