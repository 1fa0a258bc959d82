"""Which items each batch of a pass has: against a plain walk through them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aioloader.mxnet.io.schedule import LAST_BATCH, ListSchedule


def _walked(order: list[int], start: int, kept: list[int], size: int, handle: str) -> list[list[int]]:
    rows = kept + order[start:]
    batches = [rows[at : at + size] for at in range(0, len(rows), size)]
    if batches and len(batches[-1]) < size:
        last = batches.pop()
        if handle == "pad":
            batches.append((last + order * size)[:size])
    return batches


@given(
    count=st.integers(1, 23),
    start=st.integers(0, 23),
    carried=st.integers(0, 5),
    size=st.integers(1, 9),
    handle=st.sampled_from(list(LAST_BATCH)),
)
def test_batches_are_those_of_a_walk(count: int, start: int, carried: int, size: int, handle: str) -> None:
    order, start = list(range(100, 100 + count)), min(start, count)
    kept = list(range(min(carried, size - 1))) if handle == "roll_over" else []
    schedule = ListSchedule(size, handle)
    schedule.begin(order, start, kept)
    expected = _walked(order, start, kept, size, handle)
    assert list(schedule) == expected
    assert len(schedule) == len(expected)
    given_out = kept + order[start:]
    assert schedule.left() == (given_out[len(expected) * size :] if handle == "roll_over" else [])
    for number, batch in enumerate(expected):
        short = (number + 1) * size - len(given_out)
        assert schedule.pad(number) == max(0, short)
        assert schedule.kept_in(number) == len([item for item in batch if item < 100])
        for place in range(size):
            behind, rest = schedule.behind(number, place)
            assert rest + order[behind:] == given_out[number * size + place + 1 :]


def test_an_empty_pass_has_no_batches() -> None:
    for handle in LAST_BATCH:
        schedule = ListSchedule(4, handle)
        assert list(schedule) == []
        schedule.begin([], 0, [])
        assert list(schedule) == []
