"""Tests of the read planner."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordio import plan_reads
from tests.cases import with_cases

RANGES = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 60)), max_size=20)


@given(RANGES, st.integers(0, 40), st.integers(1, 200))
@settings(max_examples=2 * settings().max_examples)
def test_every_range_is_inside_its_span(ranges, gap, most):
    offsets, lengths = [r[0] for r in ranges], [r[1] for r in ranges]
    plan = plan_reads(offsets, lengths, max_gap_bytes=gap, max_span_bytes=most)
    for number, (offset, length) in enumerate(ranges):
        begin, size = plan.spans[plan.span_of[number]]
        assert begin + plan.start_of[number] == offset
        assert plan.start_of[number] + length <= size
    for begin, size in plan.spans:
        assert size <= max(most, max(lengths))
        assert any(begin == offset for offset in offsets)
    assert plan.spans == sorted(plan.spans, key=lambda span: span[0])


def test_neighbours_are_merged_and_distant_ranges_are_not():
    plan = plan_reads([1000, 0, 12], [10, 10, 10], max_gap_bytes=2)
    assert plan.spans == [(0, 22), (1000, 10)]
    assert plan.span_of.tolist() == [1, 0, 0]
    assert plan.start_of.tolist() == [0, 0, 12]


def test_repeats_cost_one_read():
    assert plan_reads([8, 8, 8], [4, 4, 4]).spans == [(8, 4)]


@with_cases(("offsets", "lengths"), [([1], [1, 2]), ([-1], [1]), ([1], [-1])])
def test_nonsense_is_refused(offsets, lengths):
    with pytest.raises(ValueError, match="must"):
        plan_reads(offsets, lengths)
