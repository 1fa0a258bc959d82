"""Tests of first fit in a window: every item once, within the budget, nearly in order, and batches that are full."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.errors import BudgetError
from aioloader.samplers.batches import FirstFit, first_fit
from tests.cases import with_cases

COSTS = st.lists(st.integers(0, 20), max_size=60)


@given(
    costs=COSTS,
    budget=st.integers(20, 80),
    lookahead=st.integers(1, 10),
    most=st.none() | st.integers(1, 4),
)
def test_every_item_comes_once_within_the_budget(
    costs: list[int], budget: int, lookahead: int, most: int | None
) -> None:
    batches = list(first_fit(enumerate(costs), budget, lookahead=lookahead, max_items=most))

    assert sorted(item for batch in batches for item, _ in batch) == list(range(len(costs)))
    for batch in batches:
        assert batch == sorted(batch)
        assert all(cost == costs[item] for item, cost in batch)
        assert sum(cost for _, cost in batch) <= budget
        assert most is None or len(batch) <= most


@given(costs=COSTS, budget=st.integers(20, 80), lookahead=st.integers(1, 10))
def test_a_batch_begins_with_the_oldest_item(costs: list[int], budget: int, lookahead: int) -> None:
    left = set(range(len(costs)))
    for batch in first_fit(enumerate(costs), budget, lookahead=lookahead):
        assert batch[0][0] == min(left)
        left -= {item for item, _ in batch}


def test_the_rest_is_filled_by_the_best_of_the_window() -> None:
    costs = [5, 4, 7, 1, 2, 3, 1, 3]
    fit: FirstFit[int] = FirstFit(12, lookahead=8)
    for item, cost in enumerate(costs):
        fit.add(item, cost)
    assert fit.full
    assert fit.take() == [(0, 5), (1, 4), (5, 3)]  # of two that fit best the older one
    assert fit.take() == [(2, 7), (3, 1), (4, 2), (6, 1)]
    assert not fit.full
    assert len(fit) == 1
    assert fit.take() == [(7, 3)]
    assert fit.take() == []


def test_the_window_grows_where_it_would_not_fill_two_batches() -> None:
    def count(fit: FirstFit[int], cost: int) -> int:
        while not fit.full:
            fit.add(0, cost)
        return len(fit)

    assert count(FirstFit(100, lookahead=4), 60) == 4
    assert count(FirstFit(100, lookahead=4), 10) == 20
    assert count(FirstFit(100, lookahead=4), 0) == 256
    assert count(FirstFit(100, lookahead=4, max_items=3), 10) == 7


@with_cases(("budget", "lookahead"), [(4096, 64), (8192, 64), (16384, 32), (65536, 64)])
def test_batches_of_photographs_are_full(budget: int, lookahead: int) -> None:
    rng = np.random.default_rng(0)
    # Tokens of photographs of many sizes, as a processor limits them.
    costs = np.clip(np.exp(rng.normal(6.4, 0.6, 20_000)), 4, 4000).astype(int).tolist()
    batches = list(first_fit(enumerate(costs), budget, lookahead=lookahead))
    fill = [sum(cost for _, cost in batch) / budget for batch in batches[: -2 * lookahead]]
    assert np.mean(fill) > 0.98


@pytest.mark.parametrize(
    ("cost", "text"), [(11, "costs 11, and the budget of a batch is 10: raise"), (-1, "must not be negative")]
)
def test_an_item_that_can_be_in_no_batch_is_refused(cost: int, text: str) -> None:
    fit: FirstFit[str] = FirstFit(10)
    with pytest.raises(BudgetError, match=text) as caught:
        fit.add("item", cost)
    assert (caught.value.cost, caught.value.budget) == (cost, 10)
    assert len(fit) == 0


@with_cases("options", [{"budget": 0}, {"lookahead": 0}, {"max_items": 0}])
def test_numbers_below_one_are_refused(options: Any) -> None:
    with pytest.raises(ValueError, match="must be at least 1"):
        FirstFit(**{"budget": 1, **options})
