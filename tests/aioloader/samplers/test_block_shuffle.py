"""Tests of the shuffle over blocks: every index once, computed by position, mixed over a window and no further."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.foundation.types import IntArray
from aioloader.samplers import BlockShuffleSampler
from aioloader.samplers.basic import order_fingerprint
from tests.cases import with_cases

SIZES = st.lists(st.integers(0, 30), max_size=40)


def order(sampler: BlockShuffleSampler, seed: int = 3, epoch: int = 1) -> IntArray:
    return sampler.indices(seed, epoch, 0, len(sampler))


@given(SIZES, st.integers(1, 20), st.integers(0, 1 << 63), st.integers(0, 99))
def test_every_index_comes_once(sizes: list[int], window: int, seed: int, epoch: int) -> None:
    found = order(BlockShuffleSampler(sizes, window), seed, epoch)
    assert sorted(found.tolist()) == list(range(sum(sizes)))


@given(SIZES, st.integers(1, 20), st.data())
def test_any_stretch_is_a_part_of_the_order(sizes: list[int], window: int, data: st.DataObject) -> None:
    sampler = BlockShuffleSampler(sizes, window)
    start = data.draw(st.integers(0, len(sampler)))
    stop = data.draw(st.integers(start, len(sampler)))
    np.testing.assert_array_equal(sampler.indices(3, 1, start, stop), order(sampler)[start:stop])


def test_the_order_depends_on_seed_and_epoch() -> None:
    sampler = BlockShuffleSampler([10] * 40, 8)
    found = {tuple(order(sampler, seed, epoch)) for seed in range(3) for epoch in range(3)}
    assert len(found) == 9
    again = copy.copy(pickle.loads(pickle.dumps(sampler)))
    np.testing.assert_array_equal(order(again), order(sampler))


def test_the_order_stays_the_same_in_later_versions() -> None:
    found = order(BlockShuffleSampler([3, 1, 4, 2, 5], 2)).tolist()
    assert found == [8, 9, 7, 4, 5, 6, 3, 11, 10, 12, 13, 14, 1, 0, 2]


def test_a_stretch_has_samples_of_a_window_of_blocks() -> None:
    sizes, window = np.full(200, 50), 16
    blocks = order(BlockShuffleSampler(sizes, window)) // 50
    for start in range(50 * window, len(blocks) - 50 * window, 50):
        here = np.unique(blocks[start : start + 50])
        assert 10 <= len(here) <= window + 1
    for block in range(200):
        places = np.flatnonzero(blocks == block)
        assert places[-1] - places[0] <= (window + 1) * 50


@given(SIZES, st.integers(1, 20), st.integers(0, 99))
def test_an_epoch_begins_with_one_block_and_needs_few_more_soon(
    sizes: list[int], window: int, epoch: int
) -> None:
    blocks = np.repeat(np.arange(len(sizes)), sizes)[order(BlockShuffleSampler(sizes, window), 3, epoch)]
    new = np.unique(blocks, return_index=True)[1]
    new.sort()
    if len(sizes) > window:
        assert len({*blocks[: sizes[int(blocks[0])]].tolist()}) == 1
        # Block number k of the order is needed once the samples of about two thirds of those before it have come.
        behind = np.cumsum(np.array(sizes)[blocks[new]])
        assert (new[1:] >= behind[:-1] * 0.5 - window).all()


@given(SIZES, st.integers(1, 20), st.integers(0, 99), st.data())
def test_the_beginning_depends_on_known_blocks_only(
    sizes: list[int], window: int, epoch: int, data: st.DataObject
) -> None:
    firsts = np.arange(len(sizes)) * 1000 + 5000
    whole = BlockShuffleSampler(sizes, window, firsts=firsts)
    known = np.zeros(len(sizes), bool)
    known[whole.block_order(3, epoch)[: data.draw(st.integers(0, len(sizes)))]] = True
    part = BlockShuffleSampler(np.where(known, sizes, 0), window, firsts=firsts)
    count = part.positions_of(3, epoch, known)
    np.testing.assert_array_equal(part.indices(3, epoch, 0, count), whole.indices(3, epoch, 0, count))
    if known.all():
        assert count == len(whole)
    elif len(sizes) > window:
        # As many as the samples of the known blocks that are not spread over further places.
        assert count >= np.array(sizes)[known].sum() - 30 * window


def test_samples_of_a_block_are_spread_evenly() -> None:
    blocks = order(BlockShuffleSampler(np.full(100, 64), 16)) // 64
    for start in range(1280, 5120, 640):
        counts = np.unique(blocks[start : start + 64], return_counts=True)[1]
        assert counts.max() <= 8
    # Neighbours are of one block about once in 16 times.
    assert 0.04 < (blocks[1:] == blocks[:-1]).mean() < 0.09


def test_every_row_can_come_at_every_place_of_its_window() -> None:
    sampler = BlockShuffleSampler([4] * 6, 3)
    firsts = [order(sampler, 0, epoch)[0] for epoch in range(600)]
    counts = np.bincount(firsts, minlength=24)
    assert counts.min() > 5
    assert counts.max() < 60


@with_cases("window", [5, 6, 100])
def test_few_blocks_are_shuffled_fully(window: int) -> None:
    sampler = BlockShuffleSampler([10] * 5, window)
    other = BlockShuffleSampler([50], 1)
    np.testing.assert_array_equal(order(sampler), order(other))


def test_blocks_of_a_group_stay_in_order() -> None:
    groups = np.repeat(np.arange(12), 5)
    blocks = order(BlockShuffleSampler(np.ones(60, np.int64), 1, groups=groups))
    assert sorted(blocks.tolist()) == list(range(60))
    for group in range(12):
        places = np.flatnonzero(blocks // 5 == group)
        np.testing.assert_array_equal(places, np.arange(places[0], places[0] + 5))
        np.testing.assert_array_equal(blocks[places], np.arange(5 * group, 5 * group + 5))
    assert blocks[::5].tolist() != sorted(blocks[::5].tolist())


def test_places_are_looked_up() -> None:
    places = np.random.default_rng(0).permutation(60)
    found = order(BlockShuffleSampler([10] * 6, 2, indices=places))
    np.testing.assert_array_equal(found, places[order(BlockShuffleSampler([10] * 6, 2))])


def test_other_blocks_have_another_fingerprint() -> None:
    plain = BlockShuffleSampler([10] * 6, 2)
    assert order_fingerprint(plain) == order_fingerprint(BlockShuffleSampler([10] * 6, 2, seed=5))
    others = [
        BlockShuffleSampler([10] * 6, 3),
        BlockShuffleSampler([20] * 3, 2),
        BlockShuffleSampler([10] * 6, 2, groups=np.array([0, 0, 1, 2, 3, 4])),
        BlockShuffleSampler([10] * 6, 2, indices=np.arange(60)[::-1]),
    ]
    assert len({order_fingerprint(sampler) for sampler in (plain, *others)}) == 5


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        BlockShuffleSampler([3, -1], 2)
    with pytest.raises(ValueError, match="window must be at least 1"):
        BlockShuffleSampler([3], 0)
    with pytest.raises(ValueError, match="a group for each block"):
        BlockShuffleSampler([3], 1, groups=np.arange(2))
    with pytest.raises(ValueError, match="an index for each row"):
        BlockShuffleSampler([3], 1, indices=np.arange(2))
    with pytest.raises(ValueError, match="not within"):
        BlockShuffleSampler([3], 1).indices(0, 0, 0, 4)
