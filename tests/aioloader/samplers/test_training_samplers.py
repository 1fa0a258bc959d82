"""Tests of training samplers: the promised counts, in every stretch, epoch and shard."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aioloader
from aioloader.samplers import (
    ClassBalancedSampler,
    FilterSampler,
    MixingSampler,
    PKSampler,
    RandomSampler,
    Sampler,
    WeightedRandomSampler,
)
from aioloader.samplers.training import largest_remainders
from tests.cases import with_cases

LABELS = np.random.default_rng(0).choice(7, 500, p=[0.5, 0.2, 0.1, 0.1, 0.05, 0.03, 0.02])
SAMPLERS = [
    pytest.param(RandomSampler(1000, 4, shuffle_window=64), id="window"),
    pytest.param(RandomSampler(5, 4, shuffle_window=1000), id="window-larger-than-set"),
    pytest.param(WeightedRandomSampler(np.arange(300), 9000, seed=4), id="weighted"),
    pytest.param(WeightedRandomSampler(np.arange(300), 200, replacement=False, seed=4), id="drawn-out"),
    pytest.param(ClassBalancedSampler(LABELS, seed=4), id="balanced"),
    pytest.param(PKSampler(LABELS, 3, 4, seed=4), id="pk"),
    pytest.param(PKSampler(LABELS, 7, 30, 5, seed=4), id="pk-more-than-there-are"),
    pytest.param(MixingSampler([50, 200, 3], [2, 1, 0.5], 4000, seed=4), id="mixing"),
]


def whole(sampler: Any, seed: int = 7, epoch: int = 3) -> Any:
    return sampler.indices(seed, epoch, 0, len(sampler))


@with_cases("sampler", SAMPLERS)
def test_any_stretch_is_that_of_the_whole(sampler: Any) -> None:
    every = whole(sampler)
    assert every.dtype == np.int64
    assert every.shape == (len(sampler),)
    rng = np.random.default_rng(1)
    for start, stop in np.sort(rng.integers(0, len(sampler) + 1, (20, 2)), axis=1).tolist():
        assert np.array_equal(sampler.indices(7, 3, start, stop), every[start:stop])
    with pytest.raises(ValueError, match="are not within"):
        sampler.indices(0, 0, 0, len(sampler) + 1)


@with_cases("sampler", SAMPLERS)
def test_epochs_and_seeds_differ_and_can_be_repeated(sampler: Any) -> None:
    assert isinstance(sampler, Sampler)
    copy = pickle.loads(pickle.dumps(sampler))
    assert np.array_equal(whole(copy), whole(sampler))
    if len(sampler) > 5:
        assert not np.array_equal(whole(sampler), whole(sampler, epoch=4))
        assert not np.array_equal(whole(sampler), whole(sampler, seed=8))
    one, other = pickle.loads(pickle.dumps(copy)), pickle.loads(pickle.dumps(copy))
    first, second = list(one), list(one)
    assert [list(other), list(other)] == [first, second]
    assert all(type(index) is int for index in first)


# -- windows -----------------------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(st.integers(0, 3000), st.integers(16, 700), st.integers(0, 5))
def test_windows_give_every_index_once(length: int, window: int, epoch: int) -> None:
    order = RandomSampler(length, shuffle_window=window).indices(1, epoch, 0, length)
    assert np.array_equal(np.sort(order), np.arange(length))


@with_cases(
    ("length", "window", "most"),
    [
        *((5000, *case) for case in ((31, 32), (100, 19), (240, 19), (255, 19), (256, 19), (1023, 19))),
        (16_013, 1600, 18),
    ],
)
def test_a_window_reads_as_few_stretches_as_is_said(length: int, window: int, most: int) -> None:
    sampler = RandomSampler(length, shuffle_window=window)
    for epoch in range(10):
        order = sampler.indices(3, epoch, 0, length)
        for begin in range(0, length, window):
            part = np.sort(order[begin : begin + window])
            assert 1 + np.count_nonzero(np.diff(part) > 1) <= most
            assert len(part) < 17 or not np.array_equal(order[begin : begin + window], part)


def test_neighbours_of_a_window_come_from_one_chunk_as_often_as_is_said() -> None:
    length = 64_000
    order = RandomSampler(length, shuffle_window=3200).indices(1, 0, 0, length)
    near = np.count_nonzero(np.abs(np.diff(order)) < 200) / length
    assert abs(near - 1 / 16) < 0.01
    # A chunk may be anywhere: its place and its number are independent.
    assert abs(np.corrcoef(order, np.arange(length))[0, 1]) < 0.2


def test_a_window_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match="shuffle_window must be at least 16, got 15"):
        RandomSampler(100, shuffle_window=15)


# -- weights -----------------------------------------------------------------------------------------------------------


def chi_square(counts: Any, expected: Any) -> float:
    return float(((counts - expected) ** 2 / expected).sum())


def test_indices_come_as_often_as_their_weights_say() -> None:
    weights = np.array([0.0, 1, 2, 3, 0, 4, 10, 0])
    drawn = whole(WeightedRandomSampler(weights, 40_000))
    counts = np.bincount(drawn, minlength=8)
    assert counts[weights == 0].sum() == 0
    chosen = weights > 0
    assert chi_square(counts[chosen], weights[chosen] / 20 * 40_000) < 18.5  # 4 degrees of freedom, p = 0.001


def test_without_replacement_nothing_comes_twice_and_weight_comes_first() -> None:
    weights = np.r_[np.full(100, 9.0), np.full(100, 1.0), np.zeros(10)]
    sampler = WeightedRandomSampler(weights, 200, replacement=False)
    order = whole(sampler)
    assert np.array_equal(np.sort(order), np.arange(200))
    first = [np.count_nonzero(sampler.indices(3, epoch, 0, 20) < 100) for epoch in range(200)]
    assert abs(np.mean(first) - 18) < 0.5


@with_cases(
    ("arguments", "said"),
    [
        (([-1.0, 2],), "weights must be"),
        (([np.nan, 2],), "weights must be"),
        (([[1.0, 2]],), "weights must be"),
        (([0, 0],), "at least one"),
        (([],), "at least one"),
        (([1, 2], -1), "num_samples"),
        (([1, 0], 2, False), "fewer than num_samples=2"),
    ],
)
def test_weights_that_are_none(arguments: tuple[Any, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        WeightedRandomSampler(*arguments)


# -- classes -----------------------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=60), st.integers(0, 300), st.integers(0, 3))
def test_classes_come_in_turn_and_each_gives_all_before_it_repeats(
    labels: list[int], count: int, epoch: int
) -> None:
    table = np.array(labels)
    drawn = ClassBalancedSampler(table, count).indices(5, epoch, 0, count)
    classes = len(set(labels))
    for begin in range(0, count, classes):
        part = table[drawn[begin : begin + classes]]
        assert len(set(part.tolist())) == len(part)
    for label in set(labels):
        of_class = drawn[table[drawn] == label]
        size = labels.count(label)
        for begin in range(0, len(of_class), size):
            part = of_class[begin : begin + size]
            assert len(set(part.tolist())) == len(part)


def test_labels_may_be_text_and_a_dataset_may_tell_them() -> None:
    names = np.array(["cat", "dog", "cat", "cat"])
    assert sorted(whole(ClassBalancedSampler(names, 2)).tolist())[1:] in ([1], [2], [3])
    dataset = aioloader.ArrayDataset(np.zeros((4, 2)), [3, 1, 3, 3])
    views = (dataset, dataset.transform_first(abs), dataset.take(4))
    assert len({tuple(whole(ClassBalancedSampler(each)).tolist()) for each in views}) == 1


@with_cases("bad", [5, "cats", aioloader.SimpleDataset([1, 2]), aioloader.ArrayDataset([1, 2])])
def test_datasets_without_labels(bad: Any) -> None:
    with pytest.raises(TypeError, match="label"):
        ClassBalancedSampler(bad)


def test_labels_of_another_shape() -> None:
    for bad in ([], np.zeros((2, 2))):
        with pytest.raises(ValueError, match="shape"):
            ClassBalancedSampler(bad)


# -- identities --------------------------------------------------------------------------------------------------------


@settings(max_examples=30)
@given(st.data())
def test_batches_have_p_identities_of_k_images(data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=12))
    p = data.draw(st.integers(1, len(counts)))
    k = data.draw(st.integers(1, 6))
    labels = np.repeat(np.arange(len(counts)), counts)
    sampler = PKSampler(labels, p, k, 8)
    drawn = sampler.indices(data.draw(st.integers(0, 9)), 0, 0, len(sampler)).reshape(8, p, k)
    for batch in drawn:
        identities = labels[batch]
        assert (identities == identities[:, :1]).all()
        assert len(set(identities[:, 0].tolist())) == p
        for row, identity in zip(batch, identities[:, 0], strict=True):
            assert len(set(row.tolist())) == min(k, counts[identity])


def test_every_image_and_identity_comes_equally_often() -> None:
    labels = np.repeat(np.arange(10), 12)
    sampler = PKSampler(labels, 5, 4, 6000)
    counts = np.bincount(whole(sampler), minlength=120)
    assert (np.bincount(labels, counts) == 12_000).all()
    assert counts.min() == counts.max() == 1000


def test_how_many_batches() -> None:
    assert len(PKSampler(LABELS, 3, 4)) == 500 // 12 * 12
    assert len(PKSampler([0, 1], 2, 4)) == 8
    assert len(PKSampler([0, 1], 2, 4, 0)) == 0


@with_cases(("p", "k", "batches"), [(0, 1, 1), (8, 1, 1), (1, 0, 1), (1, 1, -1)])
def test_numbers_that_cannot_be(p: int, k: int, batches: int) -> None:
    with pytest.raises(ValueError, match="got"):
        PKSampler(LABELS, p, k, batches)


# -- mixing ------------------------------------------------------------------------------------------------------------


def test_sets_come_as_the_ratios_say_and_give_all_before_they_repeat() -> None:
    sampler = MixingSampler([range(300), 40, 2], [6, 3, 1], 10_000)
    drawn = whole(sampler)
    ends = np.array([300, 340, 342])
    which = np.searchsorted(ends, drawn, side="right")
    for begin in range(0, 10_000, 1000):
        assert np.bincount(which[begin : begin + 1000]).tolist() == [600, 300, 100]
    for number, size in enumerate((300, 40, 2)):
        counts = np.bincount(drawn[which == number] - (ends[number] - size), minlength=size)
        assert counts.max() - counts.min() <= 1


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=9).filter(any), st.integers(1, 2000))
def test_shares_add_up(shares: list[float], total: int) -> None:
    quotas = largest_remainders(np.array(shares), total)
    assert quotas.sum() == total
    assert np.abs(quotas - np.array(shares) / sum(shares) * total).max() <= 1 + 1e-6


@with_cases(
    ("sets", "ratios"),
    [([], []), ([1], [1, 2]), ([1, 2], [-1, 2]), ([1, 2], [0, 0]), ([0, 2], [1, 1]), ([1, 2], [1, 5000])],
)
def test_what_cannot_be_mixed(sets: list[int], ratios: list[float]) -> None:
    with pytest.raises(ValueError, match=r"ratio|share"):
        MixingSampler(sets, ratios)


@with_cases(
    ("make", "said"),
    [
        (lambda: PKSampler(LABELS, 2.0, 4), "p must be a whole number, got 2.0"),
        (lambda: PKSampler(LABELS, 2, "4"), "k must be a whole number, got '4'"),
        (lambda: PKSampler(LABELS, 2, 4, 1.5), "num_batches must be a whole number"),
        (lambda: ClassBalancedSampler(LABELS, 3.5), "num_samples must be a whole number"),
        (lambda: WeightedRandomSampler([1, 2], 1.0), "num_samples must be a whole number"),
        (lambda: MixingSampler([1, 2], [1, 1], 2.5), "num_samples must be a whole number"),
        (lambda: RandomSampler(100, shuffle_window=32.0), "shuffle_window must be a whole number"),
    ],
)
def test_numbers_that_are_not_whole_are_refused_at_once(make: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        make()


# -- states ------------------------------------------------------------------------------------------------------------


@with_cases(
    ("one", "other"),
    [
        (RandomSampler(100), RandomSampler(100, shuffle_window=32)),
        (RandomSampler(100, shuffle_window=16), RandomSampler(100, shuffle_window=32)),
        (WeightedRandomSampler(np.arange(1, 101)), WeightedRandomSampler(np.ones(100))),
        (WeightedRandomSampler(np.ones(100), 90), WeightedRandomSampler(np.ones(100), 90, replacement=False)),
        (ClassBalancedSampler(LABELS), ClassBalancedSampler(LABELS[::-1].copy())),
        (PKSampler(LABELS, 3, 4), PKSampler(LABELS, 4, 3)),
        (MixingSampler([50, 50], [1, 1]), MixingSampler([50, 50], [2, 1])),
        (MixingSampler([50, 50], [1, 1]), MixingSampler([50, 50], [1, 1], 200)),
        (
            FilterSampler(lambda item: item != 500, range(1000)),
            FilterSampler(lambda item: item != 501, range(1000)),
        ),
    ],
)
def test_a_state_of_a_sampler_with_other_numbers_is_refused(one: Any, other: Any) -> None:
    def made(sampler: Any) -> Any:
        return aioloader.DataLoader[Any](
            aioloader.ArrayDataset(np.arange(1000)), 5, sampler=sampler, num_workers=0
        )

    state = made(one).state_dict()
    made(one).load_state_dict(state)
    with pytest.raises(aioloader.ResumeError, match="its sampler produces another order") as caught:
        made(other).load_state_dict(state)
    assert caught.value.field == "order"
