"""Tests of samplers: Gluon's indices, any stretch of them, and their number as the length."""

import pickle
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader import abc
from aioloader.samplers import (
    BatchSampler,
    FilterSampler,
    IntervalSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
)
from aioloader.samplers.basic import order_fingerprint
from tests.cases import with_cases


def _is_odd(value: int) -> bool:
    return value % 2 == 1


COMPUTED = [
    pytest.param(SequentialSampler(10), id="sequential"),
    pytest.param(SequentialSampler(0), id="empty"),
    pytest.param(SequentialSampler(5, start=3), id="sequential-from-3"),
    pytest.param(RandomSampler(100, seed=4), id="random"),
    pytest.param(RandomSampler(40_000, seed=4), id="random-several-blocks"),
    pytest.param(FilterSampler(_is_odd, list(range(20))), id="filter"),
    pytest.param(IntervalSampler(13, 3), id="interval"),
    pytest.param(IntervalSampler(13, 3, rollover=False), id="interval-one-sweep"),
]


@with_cases("sampler", COMPUTED)
def test_length_is_the_number_of_indices(sampler: Any) -> None:
    assert len(list(sampler)) == len(sampler)
    assert isinstance(sampler, Sampler)
    assert isinstance(sampler, abc.PositionalSampler)


@with_cases("sampler", COMPUTED)
def test_indices_are_python_integers(sampler: Any) -> None:
    assert all(type(index) is int for index in sampler)


@with_cases("sampler", COMPUTED)
def test_a_stretch_is_what_iteration_gives_there(sampler: Any) -> None:
    whole = sampler.indices(7, 3, 0, len(sampler))

    assert whole.dtype == np.int64
    for start, stop in [(0, 0), (len(sampler) // 3, len(sampler) // 2), (len(sampler), len(sampler))]:
        assert np.array_equal(sampler.indices(7, 3, start, stop), whole[start:stop])
    if not isinstance(sampler, RandomSampler):
        assert list(sampler) == whole.tolist()


@with_cases("sampler", COMPUTED)
def test_a_stretch_outside_of_the_epoch_is_refused(sampler: Any) -> None:
    with pytest.raises(ValueError, match=r"got|are not within"):
        sampler.indices(0, 0, 0, len(sampler) + 1)


@with_cases("sampler", COMPUTED)
def test_samplers_can_be_pickled(sampler: Any) -> None:
    copy = pickle.loads(pickle.dumps(sampler))

    assert np.array_equal(copy.indices(1, 2, 0, len(copy)), sampler.indices(1, 2, 0, len(sampler)))


def test_sequential_begins_at_its_start() -> None:
    assert list(SequentialSampler(4, start=5)) == [5, 6, 7, 8]


def test_random_gives_every_index_once_and_a_new_order_each_pass() -> None:
    sampler = RandomSampler(50, seed=1)
    passes = [list(sampler) for _ in range(3)]

    assert all(sorted(order) == list(range(50)) for order in passes)
    assert passes[0] != passes[1] != passes[2]


def test_random_with_a_seed_can_be_repeated() -> None:
    one, other = RandomSampler(50, seed=1), RandomSampler(50, seed=1)

    assert [list(one), list(one)] == [list(other), list(other)]
    assert list(RandomSampler(50, seed=2)) != list(RandomSampler(50, seed=1))


def test_random_without_a_seed_differs_from_run_to_run() -> None:
    assert list(RandomSampler(50)) != list(RandomSampler(50))


def test_passes_that_run_at_the_same_time_are_different_epochs() -> None:
    sampler = RandomSampler(50, seed=1)
    one, other = iter(sampler), iter(sampler)

    assert list(other) == RandomSampler(50).indices(1, 1, 0, 50).tolist()
    assert list(one) == RandomSampler(50).indices(1, 0, 0, 50).tolist()


def test_filter_keeps_what_satisfies_the_condition() -> None:
    assert list(FilterSampler(_is_odd, [1, 2, 3, 5, 8])) == [0, 2, 3]


@pytest.mark.parametrize(
    ("rollover", "expected"),
    [(True, [0, 3, 6, 9, 12, 1, 4, 7, 10, 2, 5, 8, 11]), (False, [0, 3, 6, 9, 12])],
    ids=["rollover", "one-sweep"],
)
def test_interval_gives_gluons_order(rollover: bool, expected: list[int]) -> None:
    assert list(IntervalSampler(13, 3, rollover=rollover)) == expected


@given(length=st.integers(1, 60), data=st.data())
def test_interval_follows_its_definition(length: int, data: st.DataObject) -> None:
    interval = data.draw(st.integers(1, length))
    expected = [index for sweep in range(interval) for index in range(sweep, length, interval)]

    assert list(IntervalSampler(length, interval)) == expected


def test_an_interval_longer_than_the_set_is_refused() -> None:
    with pytest.raises(AssertionError, match="Interval 4 must be smaller than or equal to length 3"):
        IntervalSampler(3, 4)


@pytest.mark.parametrize(
    "make",
    [
        lambda: SequentialSampler(-1),
        lambda: RandomSampler(-1),
        lambda: RandomSampler(3, seed=-1),
        lambda: IntervalSampler(3, 0),
        lambda: BatchSampler([1], 0),
    ],
    ids=["sequential", "random", "seed", "interval", "batch"],
)
def test_bad_numbers_are_refused(make: Any) -> None:
    with pytest.raises(ValueError, match="got"):
        make()


@pytest.mark.parametrize(
    ("last_batch", "expected"),
    [
        ("keep", [[[0, 1, 2], [3, 4, 5], [6]]] * 3),
        ("discard", [[[0, 1, 2], [3, 4, 5]]] * 3),
        (
            "rollover",
            [
                [[0, 1, 2], [3, 4, 5]],
                [[6, 0, 1], [2, 3, 4]],
                [[5, 6, 0], [1, 2, 3], [4, 5, 6]],
            ],
        ),
    ],
)
def test_batches_of_seven_in_threes(last_batch: str, expected: list[list[list[int]]]) -> None:
    batches = BatchSampler(SequentialSampler(7), 3, last_batch)

    for one_pass in expected:
        assert len(batches) == len(one_pass)
        assert list(batches) == one_pass


def test_keep_is_the_default() -> None:
    assert list(BatchSampler(SequentialSampler(3), 2)) == [[0, 1], [2]]


def test_a_pass_that_is_left_early_carries_nothing_over() -> None:
    batches = BatchSampler(SequentialSampler(7), 3, "rollover")
    list(batches)
    next(iter(batches))

    assert list(islice(batches, 1)) == [[0, 1, 2]]


def test_a_bad_last_batch_is_refused_at_once() -> None:
    with pytest.raises(
        ValueError, match="last_batch must be one of 'keep', 'discard', or 'rollover', but got zz"
    ):
        BatchSampler(SequentialSampler(6), 3, "zz")


@given(
    count=st.integers(0, 30),
    size=st.integers(1, 8),
    last_batch=st.sampled_from(["keep", "discard", "rollover"]),
)
def test_batches_have_their_length_in_every_pass(count: int, size: int, last_batch: str) -> None:
    batches = BatchSampler(SequentialSampler(count), size, last_batch)

    for _ in range(4):
        expected = len(batches)
        assert len(list(batches)) == expected


@given(count=st.integers(1, 30), size=st.integers(1, 8))
def test_rollover_loses_and_repeats_nothing(count: int, size: int) -> None:
    batches = BatchSampler(SequentialSampler(count), size, "rollover")
    given_out = [index for _ in range(5) for batch in batches for index in batch]

    assert given_out == [place % count for place in range(len(given_out))]
    assert 5 * count - len(given_out) < size


def test_a_carried_rest_survives_pickling() -> None:
    batches = BatchSampler(SequentialSampler(7), 3, "rollover")
    list(batches)

    assert next(iter(pickle.loads(pickle.dumps(batches)))) == [6, 0, 1]


def test_the_base_class_asks_for_both_methods() -> None:
    with pytest.raises(NotImplementedError):
        iter(Sampler())
    with pytest.raises(NotImplementedError):
        len(Sampler())


class _Backwards(RandomSampler):
    def indices(self, seed, epoch, start, stop):
        return super().indices(seed, epoch, start, stop)[::-1].copy()


def test_samplers_are_distinguished():
    fingerprints = [
        order_fingerprint(sampler)
        for sampler in (
            SequentialSampler(10),
            SequentialSampler(11),
            SequentialSampler(10, 1),
            RandomSampler(10),
            RandomSampler(11),
            RandomSampler(1000, shuffle_window=100),
            RandomSampler(1000, shuffle_window=200),
            RandomSampler(1000),
            _Backwards(10),  # its indices do not identify it
            IntervalSampler(10, 3),
            IntervalSampler(10, 2),
        )
    ]
    assert len(set(fingerprints)) == len(fingerprints)
    assert order_fingerprint(RandomSampler(10, seed=3)) == order_fingerprint(RandomSampler(10))
