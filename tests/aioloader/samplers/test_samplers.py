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
    SequentialSampler(10),
    SequentialSampler(0),
    SequentialSampler(5, start=3),
    RandomSampler(100, seed=4),
    RandomSampler(40_000, seed=4),  # several blocks
    FilterSampler(_is_odd, list(range(20))),
    IntervalSampler(13, 3),
    IntervalSampler(13, 3, rollover=False),
]


@with_cases("sampler", COMPUTED)
def test_a_stretch_is_what_iteration_gives_there(sampler: Any) -> None:
    assert isinstance(sampler, Sampler)
    assert isinstance(sampler, abc.PositionalSampler)
    given, whole = list(sampler), sampler.indices(7, 3, 0, len(sampler))
    assert len(given) == len(sampler)
    assert all(type(index) is int for index in given)
    assert whole.dtype == np.int64
    for start, stop in [(0, 0), (len(sampler) // 3, len(sampler) // 2), (len(sampler), len(sampler))]:
        assert np.array_equal(sampler.indices(7, 3, start, stop), whole[start:stop])
    if not isinstance(sampler, RandomSampler):
        assert given == whole.tolist()
    with pytest.raises(ValueError, match=r"got|are not within"):
        sampler.indices(0, 0, 0, len(sampler) + 1)
    copy = pickle.loads(pickle.dumps(sampler))
    assert np.array_equal(copy.indices(7, 3, 0, len(copy)), whole)


def test_sequential_begins_at_its_start() -> None:
    assert list(SequentialSampler(4, start=5)) == [5, 6, 7, 8]


def test_random_gives_every_index_once_in_a_new_order_each_pass_that_a_seed_repeats() -> None:
    sampler, other = RandomSampler(50, seed=1), RandomSampler(50, seed=1)
    passes = [list(sampler) for _ in range(3)]
    assert all(sorted(order) == list(range(50)) for order in passes)
    assert passes[0] != passes[1] != passes[2]
    assert [list(other) for _ in range(3)] == passes
    assert list(RandomSampler(50, seed=2)) != passes[0]


def test_random_without_a_seed_differs_from_run_to_run() -> None:
    assert list(RandomSampler(50)) != list(RandomSampler(50))


def test_passes_that_run_at_the_same_time_are_different_epochs() -> None:
    sampler = RandomSampler(50, seed=1)
    one, other = iter(sampler), iter(sampler)

    assert list(other) == RandomSampler(50).indices(1, 1, 0, 50).tolist()
    assert list(one) == RandomSampler(50).indices(1, 0, 0, 50).tolist()


def test_filter_keeps_what_satisfies_the_condition() -> None:
    assert list(FilterSampler(_is_odd, [1, 2, 3, 5, 8])) == [0, 2, 3]


@given(length=st.integers(1, 60), data=st.data())
def test_interval_follows_gluons_definition(length: int, data: st.DataObject) -> None:
    interval = data.draw(st.integers(1, length))
    sweeps = [list(range(sweep, length, interval)) for sweep in range(interval)]
    assert list(IntervalSampler(length, interval)) == sum(sweeps, [])
    assert list(IntervalSampler(length, interval, rollover=False)) == sweeps[0]


def test_an_interval_longer_than_the_set_is_refused() -> None:
    with pytest.raises(AssertionError, match="Interval 4 must be smaller than or equal to length 3"):
        IntervalSampler(3, 4)


@with_cases(
    "make",
    [
        lambda: SequentialSampler(-1),
        lambda: RandomSampler(-1),
        lambda: RandomSampler(3, seed=-1),
        lambda: IntervalSampler(3, 0),
        lambda: BatchSampler([1], 0),
    ],
)
def test_bad_numbers_are_refused(make: Any) -> None:
    with pytest.raises(ValueError, match="got"):
        make()


@with_cases(
    ("last_batch", "expected"),
    [
        ("keep", [[[0, 1, 2], [3, 4, 5], [6]]] * 3),
        ("discard", [[[0, 1, 2], [3, 4, 5]]] * 3),
        ("rollover", [[[0, 1, 2], [3, 4, 5]], [[6, 0, 1], [2, 3, 4]], [[5, 6, 0], [1, 2, 3], [4, 5, 6]]]),
    ],
)
def test_batches_of_seven_in_threes(last_batch: str, expected: list[list[list[int]]]) -> None:
    batches = BatchSampler(SequentialSampler(7), 3, last_batch)
    for one_pass in expected:
        assert len(batches) == len(one_pass)
        assert list(batches) == one_pass
    if last_batch == "keep":  # which is the default
        assert list(BatchSampler(SequentialSampler(7), 3)) == expected[0]


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
    count=st.integers(1, 30),
    size=st.integers(1, 8),
    last_batch=st.sampled_from(["keep", "discard", "rollover"]),
)
def test_batches_have_their_length_and_rollover_loses_and_repeats_nothing(
    count: int, size: int, last_batch: str
) -> None:
    batches = BatchSampler(SequentialSampler(count), size, last_batch)
    given_out = []
    for _ in range(5):
        expected, made = len(batches), list(batches)
        assert len(made) == expected
        given_out += sum(made, [])
    if last_batch == "rollover":
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
