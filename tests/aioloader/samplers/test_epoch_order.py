"""Tests of the epoch order: a bijection, computed in any stretch, uniform, and stable in all releases."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioloader.samplers import epoch_order
from aioloader.samplers.epoch_order import ORDER_VERSION, mix, permute, permute_each
from tests.cases import with_cases

SORTED_BELOW = 2**16
EDGES = [1, 2, 3, 255, SORTED_BELOW - 1, SORTED_BELOW, SORTED_BELOW + 1, 2**17 - 1, 2**17, 2**17 + 1, 200_000]


@with_cases("n", EDGES)
def test_every_item_comes_exactly_once(n: int) -> None:
    order = permute(3, 5, n, 0, n)

    assert order.dtype == np.int64
    assert np.array_equal(np.sort(order), np.arange(n))


def test_no_items_have_an_empty_order() -> None:
    assert permute(0, 0, 0, 0, 0).shape == (0,)


@settings(max_examples=30)
@given(
    n=st.one_of(st.integers(1, 3000), st.integers(SORTED_BELOW, SORTED_BELOW + 3000)),
    seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 2**64 - 1),
    data=st.data(),
)
def test_a_stretch_does_not_depend_on_where_blocks_begin(
    n: int, seed: int, epoch: int, data: st.DataObject
) -> None:
    whole = permute(seed, epoch, n, 0, n)
    cuts = sorted(data.draw(st.lists(st.integers(0, n), max_size=4)))

    parts = [permute(seed, epoch, n, low, high) for low, high in zip([0, *cuts], [*cuts, n], strict=True)]

    assert np.array_equal(np.concatenate(parts), whole)
    assert np.array_equal(np.sort(whole), np.arange(n))


@with_cases("n", [1000, 100_000])
def test_seeds_and_epochs_have_orders_of_their_own(n: int) -> None:
    orders = [permute(seed, epoch, n, 0, n) for seed in (0, 1, 2**63) for epoch in (0, 1, 2)]

    for place, one in enumerate(orders):
        for other in orders[:place]:
            # Two random orders agree in one place on average.
            assert np.count_nonzero(one == other) < 10


@with_cases("n", [2**32, 2**47 + 1, 2**48, 2**62])
def test_huge_sets_are_ordered_in_constant_memory(n: int) -> None:
    order = permute(1, 2, n, n - 5000, n)

    assert len(np.unique(order)) == 5000
    assert order.min() >= 0
    assert order.max() < n
    assert np.array_equal(permute(1, 2, n, n - 10, n), order[-10:])


def test_callers_cannot_alter_an_order_that_is_kept() -> None:
    first = permute(0, 0, 100, 0, 100)
    kept = first.copy()
    first[:] = 0

    assert np.array_equal(permute(0, 0, 100, 0, 100), kept)


@with_cases(
    "arguments",
    [
        (0, 0, 10, -1, 5),
        (0, 0, 10, 6, 5),
        (0, 0, 10, 0, 11),
        (0, 0, 2**63, 0, 1),
        (-1, 0, 10, 0, 1),
        (0, 2**64, 10, 0, 1),
    ],
)
def test_arguments_out_of_range_are_refused(arguments: tuple[int, int, int, int, int]) -> None:
    with pytest.raises(ValueError, match=r"got (start|seed)="):
        permute(*arguments)


def test_all_orders_of_four_are_equally_frequent() -> None:
    counts: dict[tuple[int, ...], int] = {}
    for epoch in range(4800):
        order = tuple(permute(11, epoch, 4, 0, 4).tolist())
        counts[order] = counts.get(order, 0) + 1

    assert len(counts) == 24
    chi_square = sum((count - 200) ** 2 / 200 for count in counts.values())
    assert chi_square < 49.7  # 23 degrees of freedom, p = 0.001


@with_cases("n", [2**16, 2**16 + 1, 100_003])
def test_the_cipher_spreads_every_stretch_evenly(n: int) -> None:
    cells = 16
    table = np.zeros((cells, cells))
    for epoch in range(8):
        order = permute(5, epoch, n, 0, n)
        table += np.histogram2d(np.arange(n), order, bins=cells, range=[[0, n], [0, n]])[0]

    expected = 8 * n / cells**2
    chi_square = float(((table - expected) ** 2 / expected).sum())
    # (cells - 1)**2 = 225 degrees of freedom; both tails at p = 0.001.
    assert 162 < chi_square < 294


def test_a_block_costs_little_per_position() -> None:
    n = 1_281_167
    permute(0, 0, n, 0, 16_384)
    best = min(_seconds(n, epoch) for epoch in range(5))

    assert best / 16_384 < 1e-6  # measured: 0.06 us; the limit only detects a loss of vectorisation


def _seconds(n: int, epoch: int) -> float:
    start = time.thread_time()
    permute(0, epoch, n, 0, 16_384)
    return time.thread_time() - start


# Made by this code when the rule was fixed. If one of these changes, saved positions lose their meaning:
# then ORDER_VERSION has to change too.
GOLDEN = {
    (0, 0, 10, 0): [8, 7, 4, 2, 6, 5, 9, 0, 1, 3],
    (0, 1, 10, 0): [7, 3, 8, 1, 0, 4, 9, 5, 6, 2],
    (1, 0, 10, 0): [4, 0, 5, 6, 2, 7, 8, 3, 9, 1],
    (7, 3, 65535, 65527): [17885, 8691, 20592, 61826, 56578, 26946, 59306, 24170],
    (2**64 - 1, 2**64 - 1, 1000, 0): [668, 942, 214, 553, 261, 612],
    (0, 0, 65536, 0): [1374, 27186, 19351, 40277, 12675, 33051, 3179, 58053],
    (1, 0, 65537, 65529): [15714, 6698, 19158, 25642, 43956, 49653, 3893, 34549],
    (42, 7, 1281167, 1281159): [322577, 255868, 407638, 97851, 798827, 592329, 1115221, 1141089],
    (2**64 - 1, 2**64 - 1, 2**31 - 1, 123456789): [1423812794, 888133860, 1081157136, 145447729, 1529737561],
    (5, 6, 2**48, 2**47): [94269483456570, 246202454700398, 5079309479231, 265181090150883, 82559610877740],
    (5, 6, 2**62, 2**62 - 4): [3746132202327125587, 592929551695632967, 44569626283352766],
}


@with_cases(("seed", "epoch", "n", "start"), GOLDEN)
def test_orders_never_change(seed: int, epoch: int, n: int, start: int) -> None:
    expected = GOLDEN[seed, epoch, n, start]

    assert ORDER_VERSION == 2
    assert permute(seed, epoch, n, start, start + len(expected)).tolist() == expected


@with_cases("spread", [3, 1 << 16, 1 << 18])
def test_words_that_differ_in_their_last_bits_only_are_sorted_by_them(monkeypatch, spread):
    words = np.random.default_rng(0).integers(0, spread, 500, dtype=np.uint64) + np.uint64(1 << 60)
    monkeypatch.setattr(epoch_order.Rng, "words", lambda self, n: words)
    epoch_order._sorted_words.cache_clear()
    try:
        assert permute(1, 2, 500, 0, 500).tolist() == np.argsort(words, kind="stable").tolist()
    finally:
        epoch_order._sorted_words.cache_clear()


# -- many small orders at once -----------------------------------------------------------------------------------------


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(1, 70)), min_size=1, max_size=20))
def test_each_of_many_orders_has_every_item_once(orders: list[tuple[int, int]]) -> None:
    keys = np.concatenate([np.full(size, key, np.uint64) for key, size in orders])
    sizes = np.concatenate([np.full(size, size, np.int64) for _, size in orders])
    places = np.concatenate([np.arange(size) for _, size in orders])
    found = permute_each(keys, sizes, places)
    start = 0
    for _, size in orders:
        assert np.array_equal(np.sort(found[start : start + size]), np.arange(size))
        start += size


@with_cases("size", [2, 3, 4, 5])
def test_small_orders_are_all_equally_frequent(size: int) -> None:
    count = 40_000
    keys = np.repeat(mix(np.arange(count, dtype=np.uint64)), size)
    places = np.tile(np.arange(size), count)
    orders = permute_each(keys, np.full(len(keys), size, np.int64), places).reshape(count, size)
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == np.prod(np.arange(1, size + 1))
    assert_even(counts)


@with_cases("size", [7, 31, 33, 64])
def test_two_places_of_a_small_order_have_any_two_items(size: int) -> None:
    count = 60_000
    keys = np.repeat(mix(np.arange(count, dtype=np.uint64)), 2)
    places = np.tile([0, size - 1], count)
    pairs = permute_each(keys, np.full(2 * count, size, np.int64), places).reshape(-1, 2)
    table = np.bincount(pairs[:, 0] * size + pairs[:, 1], minlength=size * size).reshape(size, size)
    assert not table.diagonal().any()
    assert_even(table[~np.eye(size, dtype=bool)])


def assert_even(counts: np.ndarray) -> None:
    """Check counts with chi-square; a correct order fails at most once in ten thousand keys."""
    expected = counts.sum() / counts.size
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    freedom = counts.size - 1
    assert chi_square < freedom + 4 * np.sqrt(2 * freedom) + 8


@with_cases("n", [40_000, 100_000, 131_072])
def test_the_place_of_an_item_is_independent_of_its_next_place(n: int) -> None:
    places = []
    for epoch in (0, 1, 2, 256):
        place = np.empty(n, np.int64)
        place[permute(5, epoch, n, 0, n)] = np.arange(n)
        places.append(place)
    for one, other in ((0, 1), (1, 2), (0, 3)):
        for shift in (0, 1):  # the item itself, and its neighbour in the dataset
            later = np.roll(places[other], shift)
            assert_even(np.bincount(places[one] * 20 // n * 20 + later * 20 // n, minlength=400))
            # A repeated row: the distance of an item to its neighbour in the order, both times.
            distance = (later - places[one]) % n
            assert_even(np.bincount(distance * 200 // n, minlength=200))


def test_a_place_of_the_order_has_any_item_over_the_epochs() -> None:
    for n, places in ((50, (0, 1, 49)), (1000, (0, 999)), (70_000, (0, 69_999))):
        # All places of an epoch follow one another, because a small order is kept.
        items = [
            [int(permute(1, epoch, n, place, place + 1)[0]) for place in places] for epoch in range(1000)
        ]
        for column in np.array(items).T:
            assert_even(np.bincount(column * 50 // n, minlength=50))


def test_large_orders_of_one_each() -> None:
    sizes = np.array([2**40, 2**52, 1_000_003], np.int64)
    found = permute_each(np.array([1, 2, 3], np.uint64), sizes, sizes - 1)
    assert (found >= 0).all()
    assert (found < sizes).all()
