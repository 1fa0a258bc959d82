"""Tests of the choice of combinations for the quick run."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.combinations import combinations


def quick(cases):
    return [case.values for case in cases if not any(mark.name == "slow" for mark in case.marks)]


@given(lengths=st.lists(st.integers(1, 4), min_size=1, max_size=4), together=st.integers(1, 3))
def test_every_combination_occurs_and_the_quick_ones_have_all_values_together(lengths, together):
    lists = [list(range(length)) for length in lengths]
    cases = combinations(*lists, together=together)
    assert [case.values for case in cases] == list(itertools.product(*lists))
    chosen = quick(cases)
    for which in itertools.combinations(range(len(lists)), min(together, len(lists))):
        found = {tuple(values[place] for place in which) for values in chosen}
        assert found == set(itertools.product(*(lists[place] for place in which)))


def test_no_more_combinations_are_quick_than_a_parameter_has_values():
    cases = combinations("abc", [1, 2], [True, False, None, 7])
    assert len(cases) == 24
    assert len(quick(cases)) == 4


def test_cases_have_the_names_and_marks_of_their_values():
    torch = pytest.param("t", marks=pytest.mark.torch)
    cases = combinations({"first": len, "second": max}, ["a", torch], together=2)
    assert [case.id for case in cases] == ["first-a", "first-t", "second-a", "second-t"]
    assert [case.values for case in cases][1] == (len, "t")
    assert [[mark.name for mark in case.marks] for case in cases] == [[], ["torch"], [], ["torch"]]
