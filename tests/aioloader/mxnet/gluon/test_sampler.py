"""Tests of samplers: MXNet's orders, from numpy's generator."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.mxnet import gluon
from tests.cases import with_cases


def test_a_seed_of_numpy_gives_mxnets_order():
    np.random.seed(0)
    sampler = gluon.data.RandomSampler(10)
    # Results of MXNet 1.9.1.
    assert list(sampler) == [2, 8, 4, 9, 1, 6, 7, 3, 0, 5]
    assert list(sampler) == [3, 5, 1, 2, 9, 8, 0, 6, 7, 4]
    assert isinstance(next(iter(sampler)), np.integer)


def test_batches():
    sequential = gluon.data.SequentialSampler(10, start=4)
    assert list(sequential) == list(range(4, 14))
    keep = gluon.data.BatchSampler(sequential, 3, "keep")
    assert sum(keep, []) == list(range(4, 14))
    discard = gluon.data.BatchSampler(sequential, 3, "discard")
    assert sum(discard, []) == list(range(4, 13))
    assert (len(keep), len(discard), len(sequential), len(gluon.data.RandomSampler(9))) == (4, 3, 10, 9)


def test_a_bad_last_batch_is_refused_at_once():
    with pytest.raises(
        ValueError, match="last_batch must be one of 'keep', 'discard', or 'rollover', but got zz"
    ):
        gluon.data.BatchSampler(gluon.data.SequentialSampler(4), 2, "zz")


@with_cases("module", [gluon.data, gluon.contrib.data, gluon.contrib.data.sampler])
def test_intervals(module):
    assert list(module.IntervalSampler(10, interval=3)) == [0, 3, 6, 9, 1, 4, 7, 2, 5, 8]
    single = module.IntervalSampler(10, interval=3, rollover=False)
    assert list(single) == [0, 3, 6, 9]
    assert len(single) == 4
    with pytest.raises(AssertionError, match="Interval 6 must be smaller than or equal to length 5"):
        module.IntervalSampler(5, 6)


def test_filtered():
    dataset = gluon.data.SimpleDataset(list(range(20)))
    sampler = gluon.data.FilterSampler(lambda x: x % 3 == 0, dataset)
    assert list(sampler) == [0, 3, 6, 9, 12, 15, 18]
    assert len(sampler) == 7


class Lazy:
    """Custom sampler that draws its order when it is iterated."""

    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return iter(np.random.permutation(self.n).tolist())

    def __len__(self):
        return self.n


KINDS = {
    "sequential": gluon.data.SequentialSampler,
    "random": gluon.data.RandomSampler,
    "interval": lambda n: gluon.data.IntervalSampler(n, min(n, 3)),
    "callers": Lazy,
}


@given(
    st.sampled_from(sorted(KINDS)),
    st.integers(1, 40),
    st.integers(1, 9),
    st.sampled_from(["keep", "discard", "rollover"]),
    st.booleans(),
)
def test_the_loaders_batches_are_those_of_iterating(kind, length, size, last_batch, at_once):
    one = gluon.data.BatchSampler(KINDS[kind](length), size, last_batch)
    other = gluon.data.BatchSampler(KINDS[kind](length), size, last_batch)
    for seed in range(4):
        assert len(one) == len(other)
        np.random.seed(seed)
        expected = [list(map(int, batch)) for batch in one]
        np.random.seed(seed)
        found = [list(map(int, batch)) for batch in other.batches(at_once)]
        assert found == expected


def test_a_sampler_without_an_end_can_be_left():
    class Endless:
        def __iter__(self):
            while True:
                yield 1

        def __len__(self):
            return 5

    batches = gluon.data.BatchSampler(Endless(), 2).batches(at_once=True)
    assert [next(batches) for _ in range(3)] == [[1, 1]] * 3


def test_a_batch_sampler_that_overrides_its_order_keeps_it():
    class Backwards(gluon.data.BatchSampler):
        def __iter__(self):
            return reversed(list(super().__iter__()))

    batches = Backwards(gluon.data.SequentialSampler(5), 2)
    assert list(batches.batches(at_once=True)) == [[4], [2, 3], [0, 1]]
