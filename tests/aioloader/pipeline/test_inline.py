"""Tests of in-memory data: every batch equals the result of plain indexing, for every sampler."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader import ArrayDataset, DataLoader
from tests.cases import with_cases
from tests.executors import pool

X = np.arange(60, dtype=np.int16).reshape(20, 3)
Y = np.arange(20) * 10
# For batches of three rows and more the C library does not keep the memory.
WIDE = np.repeat(X, 8192, axis=1)


@given(
    st.lists(st.integers(-20, 19), max_size=50),
    st.integers(1, 12),
    st.sampled_from(["keep", "discard", "rollover"]),
    st.sampled_from([X, WIDE]),
)
def test_a_batch_is_what_indexing_gives(indices, batch_size, last_batch, data):
    loader = DataLoader(ArrayDataset(data, Y), batch_size, sampler=indices, last_batch=last_batch)
    rest = []
    for _ in range(3):
        got = [(images, labels) for images, labels in loader]
        wanted = rest + indices if last_batch == "rollover" else indices
        count = len(wanted) // batch_size * batch_size
        rest = wanted[count:]
        if last_batch == "keep":
            count = len(wanted)
        assert [place for _, labels in got for place in labels.tolist()] == Y[wanted[:count]].tolist()
        assert all(np.array_equal(images, data[labels // 10]) for images, labels in got)


@pytest.mark.parametrize("bad", [20, -21, 10**12])
def test_an_index_outside_is_refused(bad):
    loader = DataLoader(ArrayDataset(X, Y), 4, sampler=[1, 2, 3, 4, 5, bad, 6, 7])
    batches = iter(loader)
    assert next(batches)[1].tolist() == [10, 20, 30, 40]
    with pytest.raises(IndexError, match=str(bad)):
        next(batches)
    assert list(batches) == []  # the batch is not made again


def test_an_index_outside_of_items_that_are_made_is_refused_once():
    loader = DataLoader(ArrayDataset(X, Y).transform_first(np.copy), 2, sampler=[1, 99, 2, 3], num_workers=0)
    batches = iter(loader)
    with pytest.raises(IndexError, match="99"):
        next(batches)
    assert [labels.tolist() for _, labels in batches] == [[20, 30]]


def test_a_sampler_whose_block_holds_other_numbers_too():
    class Strange:
        block = np.array([99, 3, 4, 5, 99], np.int64)

        def __len__(self):
            return 3

        def __iter__(self):
            return iter(self.indices(0, 0, 0, 3))

        def indices(self, seed, epoch, start, stop):
            return self.block[1:4][start:stop]

    loader = DataLoader(ArrayDataset(X, Y), 2, sampler=Strange())
    assert [labels.tolist() for _, labels in loader] == [[30, 40], [50]]


def test_a_part_of_the_data_is_gathered_from_the_whole():
    loader = DataLoader(ArrayDataset(X, Y).take(7), 3, shuffle=True)
    assert sorted(label for _, labels in loader for label in labels) == Y[:7].tolist()


@pytest.mark.parametrize(("data", "passes"), [(X, 200), (WIDE, 5)], ids=["small", "large"])
def test_kept_batches_are_the_callers(data, passes):
    loader = DataLoader(ArrayDataset(data, Y), 4, memory_limit=1 << 20)
    kept = [batch for _ in range(passes) for batch in loader]
    for place, (images, labels) in enumerate(kept):
        first = place % 5 * 4
        assert labels.tolist() == Y[first : first + 4].tolist()
        assert np.array_equal(images, data[first : first + 4])


@pytest.mark.parametrize(("data", "leased"), [(X, False), (WIDE, True)], ids=["small", "large"])
def test_large_batches_lie_in_the_loaders_memory(data, leased):
    with DataLoader(ArrayDataset(data), 4) as loader:
        kept = next(iter(loader))
        assert (loader.stats().memory_bytes >= kept.nbytes) is leased


@with_cases(
    "array",
    [
        np.arange(12, dtype=">i4"),
        np.arange(12, dtype=">f4").reshape(6, 2),
        np.array(["ab", "c", "", "abcd"]),
        np.array([b"ab\0", b"c", b"", b"abcd"]),
        np.arange(24, dtype=np.int16).reshape(6, 4)[:, ::2],
        np.asfortranarray(np.arange(24.0).reshape(6, 4)),
        np.zeros((4, 0)),
        np.array([("a", 1), ("b", 2)], dtype=[("name", "U1"), ("n", "<i4")]),
    ],
    ids=lambda array: str(array.dtype),
)
def test_a_batch_is_the_same_with_and_without_a_stage_before_it(array):
    plain = list(DataLoader(ArrayDataset(array), 4))
    staged = list(DataLoader(ArrayDataset(array).transform(lambda x: x), 4, num_workers=0))
    assert len(plain) == len(staged)
    for one, other in zip(plain, staged, strict=True):
        assert type(one) is type(other)
        assert [getattr(each, "dtype", None) for each in (one, other)] == [getattr(other, "dtype", None)] * 2
        assert np.array_equal(one, other)


def test_an_index_from_the_end_is_the_same_item_with_the_same_draws(executor):
    def jittered(x, rng):
        return x + rng.integers(0, 1000)

    def batches(order):
        dataset = ArrayDataset(X).transform(jittered)
        with DataLoader(dataset, batch_sampler=order, **pool(executor, 2)) as loader:
            return [batch.tolist() for batch in loader]

    assert batches([[0, -1], [-20, -7]]) == batches([[0, 19], [0, 13]])
