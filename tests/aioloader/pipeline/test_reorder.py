"""Tests of reorder: results are released by number, for every order of arrival."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.pipeline.epoch_runner import Reorder, ReorderError


@given(st.permutations(range(8)))
def test_any_order_of_arrival_leaves_in_order(order):
    reorder, left = Reorder(8), []
    for number in order:
        reorder.push(number, f"item {number}")
        while (item := reorder.pop()) is not None:
            left.append(item)
    assert left == [f"item {number}" for number in range(8)]
    assert len(reorder) == 0


def test_a_number_that_comes_twice_is_refused():
    reorder = Reorder(4)
    reorder.push(1, "a")
    with pytest.raises(ReorderError, match="twice") as caught:
        reorder.push(1, "b")
    assert (caught.value.number, caught.value.expected) == (1, 0)


def test_a_number_that_has_left_is_refused():
    reorder = Reorder(4)
    reorder.push(0, "a")
    reorder.pop()
    with pytest.raises(ReorderError, match="twice"):
        reorder.push(0, "a")


def test_a_number_beyond_the_window_is_refused():
    with pytest.raises(ReorderError, match="window"):
        Reorder(4).push(4, "a")
