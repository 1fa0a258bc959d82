"""Which items each batch of a pass has: against a plain walk through them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aioloader.mxnet.image._turns import HANDLES, Turns


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
    handle=st.sampled_from(HANDLES),
)
def test_turns_are_those_of_a_walk(count: int, start: int, carried: int, size: int, handle: str) -> None:
    order, start = list(range(100, 100 + count)), min(start, count)
    kept = list(range(min(carried, size - 1))) if handle == "roll_over" else []
    turns = Turns(order, start, kept, size, handle)
    expected = _walked(order, start, kept, size, handle)
    assert list(turns) == expected
    assert len(turns) == len(expected)
    given_out = kept + order[start:]
    assert turns.left() == (given_out[len(expected) * size :] if handle == "roll_over" else [])
    for number, batch in enumerate(expected):
        short = (number + 1) * size - len(given_out)
        assert turns.pad(number) == max(0, short)
        assert turns.kept_in(number) == len([item for item in batch if item < 100])
        for place in range(size):
            behind, rest = turns.behind(number, place)
            assert rest + order[behind:] == given_out[number * size + place + 1 :]


def test_an_empty_pass_has_no_batches() -> None:
    for handle in HANDLES:
        assert list(Turns([], 0, [], 4, handle)) == []
