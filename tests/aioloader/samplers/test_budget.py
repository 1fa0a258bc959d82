"""Tests of `BudgetBatchSampler`: its batches depend on seed and epoch alone, and ranks share them."""

from __future__ import annotations

import pickle
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader import abc
from aioloader.errors import BudgetError
from aioloader.samplers import BudgetBatchSampler
from tests.cases import with_cases

COSTS = st.lists(st.integers(0, 30), max_size=50)
SOME = np.random.default_rng(0).integers(1, 100, 500)


def lists(batches: Any) -> list[list[int]]:
    return [batch.indices.tolist() for batch in batches]


@given(
    costs=COSTS,
    seed=st.integers(0, 3),
    epoch=st.integers(0, 3),
    shuffle=st.booleans(),
    start=st.integers(0, 10),
    world=st.integers(1, 4),
    drop_last=st.booleans(),
)
def test_ranks_deal_out_the_batches_of_one_process(
    costs: Any, seed: int, epoch: int, shuffle: bool, start: int, world: int, drop_last: bool
) -> None:
    def sampler(shard: Any, drop: bool) -> BudgetBatchSampler:
        options: Any = {"lookahead": 4, "shuffle": shuffle, "drop_last": drop}
        return BudgetBatchSampler(np.array(costs, np.int32), 40, shard=shard, **options)

    every = lists(sampler(None, False).batches(seed, epoch))
    assert sorted(index for batch in every for index in batch) == list(range(len(costs)))
    whole = every[:-1] if drop_last else every
    ranks = [list(sampler((rank, world), drop_last).batches(seed, epoch, start)) for rank in range(world)]

    left = max(0, len(whole) - start)
    steps = left // world if drop_last else -(-left // world)
    assert [len(rank) for rank in ranks] == [steps] * world
    for rank, made in enumerate(ranks):
        assert sampler((rank, world), drop_last).count(seed, epoch, start) == steps
        for step, batch in enumerate(made):
            place = start + step * world + rank
            assert batch.indices.dtype == np.int64
            assert batch.indices.tolist() == whole[place % len(whole)]
            assert batch.padded == (0 if place < len(whole) else len(batch.indices))
            assert batch.consumed == min(start + (step + 1) * world, len(whole))


def test_a_batch_costs_no_more_than_the_budget_and_has_no_more_indices_than_allowed() -> None:
    for batch in BudgetBatchSampler(SOME, 300):
        assert SOME[batch].sum() <= 300
    assert max(len(batch) for batch in BudgetBatchSampler(SOME, 10_000, max_items=5)) == 5


def test_iterated_alone_it_counts_its_epochs() -> None:
    sampler = BudgetBatchSampler(SOME, 300, seed=7)
    assert isinstance(sampler, abc.ComputedBatchSampler)
    lengths, epochs = [], []
    for _ in range(2):
        lengths.append(len(sampler))
        epochs.append(list(sampler))
    assert epochs == [lists(sampler.batches(7, epoch)) for epoch in range(2)]
    assert epochs[0] != epochs[1]
    assert lengths == [len(epoch) for epoch in epochs]
    assert all(type(index) is int for batch in epochs[0] for index in batch)
    again = pickle.loads(pickle.dumps(BudgetBatchSampler(SOME, 300, seed=7)))
    assert list(again) == epochs[0]


def test_without_shuffle_the_order_is_that_of_the_dataset() -> None:
    sampler = BudgetBatchSampler(SOME, 300, shuffle=False)
    epochs = [list(sampler) for _ in range(2)]
    assert epochs[0] == epochs[1]
    firsts = [batch[0] for batch in epochs[0]]
    assert firsts == sorted(firsts)


def test_orders_differ_with_everything_that_they_depend_on() -> None:
    variants: list[Any] = [
        {},
        {"budget": 301},
        {"lookahead": 5},
        {"shuffle": False},
        {"drop_last": True},
        {"max_items": 3},
        {"costs": SOME + 1},
    ]
    made = [BudgetBatchSampler(**{"costs": SOME, "budget": 300, **each}) for each in variants]
    assert len({sampler.description() for sampler in made}) == len(variants)
    shards = [BudgetBatchSampler(SOME, 300, shard=(rank, 2), seed=rank) for rank in range(2)]
    assert {sampler.description() for sampler in shards} == {made[0].description()}


def test_the_environment_names_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    found = BudgetBatchSampler(SOME, 300, shard="auto")
    assert lists(found.batches(0, 0)) == lists(BudgetBatchSampler(SOME, 300, shard=(1, 3)).batches(0, 0))


def test_the_first_batch_needs_only_the_first_window() -> None:
    sampler = BudgetBatchSampler(np.full(3_000_000, 10), 1000)
    assert [len(batch.indices) for batch in islice(sampler.batches(0, 0), 3)] == [100, 100, 100]


def test_an_item_over_the_budget_is_named() -> None:
    with pytest.raises(
        BudgetError, match=r"item 2 costs 1,001, and the budget of a batch is 1,000"
    ) as caught:
        BudgetBatchSampler([1, 2, 1001], 1000)
    assert caught.value.item == 2
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.item, again.cost, again.budget) == (2, 1001, 1000)
    with pytest.raises(BudgetError, match="item 0 costs -1"):
        BudgetBatchSampler([-1], 1000)


@with_cases(
    ("costs", "options", "error", "text"),
    [
        ([0.5], {}, TypeError, "whole numbers, got dtype float64"),
        ([[1]], {}, ValueError, "one axis"),
        ([1], {"budget": 0}, ValueError, "budget must be at least 1"),
        ([1], {"lookahead": 0}, ValueError, "lookahead must be at least 1"),
        ([1], {"max_items": 0}, ValueError, "max_items must be at least 1"),
        ([1], {"seed": -1}, ValueError, "seed must be in"),
        ([1], {"shard": (2, 2)}, ValueError, "shard must be"),
        ([1], {"shard": 3}, TypeError, "shard must be"),
    ],
)
def test_wrong_arguments_are_refused(costs: Any, options: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        BudgetBatchSampler(costs, **{"budget": 10, **options})
