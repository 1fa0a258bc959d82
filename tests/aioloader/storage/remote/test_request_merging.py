"""Tests of request plans: they cover all wanted bytes, in few pieces of bounded size."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from aioloader.storage.remote.source import plan_requests, scatter

FILES = [np.random.RandomState(seed).bytes(3000) for seed in range(3)]

items = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2900), st.integers(0, 100)), max_size=12)


def _columns(rows: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    table = np.array(rows, np.int64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2]


@settings(max_examples=40)
@given(items, st.integers(0, 500), st.integers(40, 1000))
def test_scattered_bytes_are_those_of_the_items(
    rows: list[tuple[int, int, int]], gap: int, most: int
) -> None:
    file, offset, length = _columns(rows)
    start = np.cumsum(length) - length
    out = bytearray(int(length.sum()))
    pieces = plan_requests(file, offset, length, max_gap_bytes=gap, most_bytes=most)
    for piece in pieces:
        assert 0 < piece.length <= most
        data = memoryview(FILES[piece.file])[piece.offset : piece.offset + piece.length]
        scatter(
            piece, data, memoryview(out), offset=offset.tolist(), length=length.tolist(), start=start.tolist()
        )
    expected = b"".join(FILES[f][o : o + n] for f, o, n in rows)
    assert bytes(out) == expected


@settings(max_examples=40)
@given(items, st.integers(0, 500))
def test_neighbours_share_a_request(rows: list[tuple[int, int, int]], gap: int) -> None:
    file, offset, length = _columns(rows)
    pieces = plan_requests(file, offset, length, max_gap_bytes=gap)
    for one, other in itertools.pairwise(pieces):
        assert (one.file, one.offset) < (other.file, other.offset)
        if one.file == other.file:
            assert other.offset - (one.offset + one.length) > gap
    named = [item for piece in pieces for item in piece.items]
    assert sorted(named) == np.flatnonzero(length).tolist()


def test_a_large_item_is_cut_into_equal_requests() -> None:
    file, offset, length = _columns([(0, 100, 2500), (0, 2600, 10)])
    pieces = plan_requests(file, offset, length, max_gap_bytes=0, most_bytes=1000)
    assert [(piece.offset, piece.length) for piece in pieces] == [
        (100, 834),
        (934, 834),
        (1768, 832),
        (2600, 10),
    ]
    assert [piece.items for piece in pieces] == [[0], [0], [0], [1]]
