"""Tests of the pure parts of a cache: its journal, admission and eviction, and look-ups of spans."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.storage.cache.disk_quota import Evictable, admit, choose_evicted
from aioloader.storage.cache.object_cache import ENTRY, LINE_NBYTES, Entries, format_lines, parse_lines

numbers = st.integers(0, 2**62)
spans = st.lists(
    st.tuples(numbers, st.integers(1, 2**40), st.integers(0, 2**40), st.integers(0, 2**32 - 1)), max_size=20
)
EVERYTHING = 2**62


def _lines(rows: list[tuple[int, int, int, int]]) -> bytes:
    table = np.array([row[:3] for row in rows], np.int64).reshape(-1, 3)
    return format_lines(table[:, 0], table[:, 1], table[:, 2], np.array([row[3] for row in rows], np.uint32))


def _rows(text: bytes, data_nbytes: int = EVERYTHING) -> tuple[list[tuple[int, ...]], list[int]]:
    lines, places = parse_lines(text, data_nbytes)
    return [tuple(line)[:4] for line in lines.tolist()], places.tolist()


@given(spans, st.integers(0, LINE_NBYTES - 1))
def test_a_journal_gives_back_its_lines_and_no_part_of_one(
    rows: list[tuple[int, int, int, int]], more: int
) -> None:
    text = _lines(rows)
    assert len(text) == len(rows) * LINE_NBYTES
    assert _rows(text + _lines([(1, 2, 3, 4)])[:more]) == (rows, list(range(len(rows))))


@given(spans.filter(bool), st.data())
def test_a_damaged_line_is_passed_over(rows: list[tuple[int, int, int, int]], data: st.DataObject) -> None:
    text = bytearray(_lines(rows))
    place = data.draw(st.integers(0, len(text) - 1))
    text[place] ^= 1 << data.draw(st.integers(0, 7))
    hurt = place // LINE_NBYTES
    assert _rows(bytes(text)) == (rows[:hurt] + rows[hurt + 1 :], [n for n in range(len(rows)) if n != hurt])


@given(st.binary(max_size=200), st.integers(0, 2**62))
def test_any_bytes_are_lines_or_none(text: bytes, data_nbytes: int) -> None:
    lines, places = parse_lines(text, data_nbytes)
    assert len(lines) == len(places)
    assert parse_lines(bytes(320), data_nbytes)[1].tolist() == []


@given(spans, st.integers(0, 2**41))
def test_lines_with_a_place_beyond_the_end_are_ignored(
    rows: list[tuple[int, int, int, int]], data_nbytes: int
) -> None:
    found, _ = _rows(_lines(rows), data_nbytes)
    assert found == [row for row in rows if row[2] + row[1] <= data_nbytes]


@given(st.lists(st.integers(0, 100), max_size=30), st.integers(-10, 1000))
def test_spans_that_fit_are_admitted_and_no_more(sizes: list[int], free: int) -> None:
    taken = admit(np.array(sizes, np.int64), free)
    used = sum(size for size, yes in zip(sizes, taken.tolist(), strict=True) if yes)
    assert used <= max(0, free)
    left = [size for size, yes in zip(sizes, taken.tolist(), strict=True) if not yes]
    assert free <= 0 or all(size > free - used for size in left)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 50)), max_size=20, unique_by=id),
    st.integers(-5, 400),
)
def test_the_least_recently_used_is_evicted_first_and_no_more_than_needed(
    table: list[tuple[int, int, int]], needed: int
) -> None:
    segments = [Evictable(f"{n:03}", *row) for n, row in enumerate(table)]
    by_name = {one.name: one for one in segments}
    gone = choose_evicted(segments, needed)
    kept = by_name.keys() - gone
    assert all(
        (by_name[g].used, by_name[g].made) <= (by_name[k].used, by_name[k].made) for g in gone for k in kept
    )
    gained = [by_name[name].nbytes for name in gone]
    assert sum(gained[:-1]) < needed or not gone
    assert not kept or sum(gained) >= needed


@pytest.mark.parametrize("at_once", [1, 7, 5000])
def test_entries_are_those_of_a_dictionary(at_once: int) -> None:
    random = np.random.RandomState(at_once)
    entries, longest = Entries(), {}
    for _ in range(3000 // at_once + 1):
        new = np.zeros(at_once, ENTRY)
        new["offset"] = random.randint(0, 4000, at_once)
        new["length"] = random.randint(1, 5, at_once)
        new["place"] = random.randint(0, 1 << 40, at_once)
        entries.add(new)
        for offset, length, place in zip(
            *(new[name].tolist() for name in ("offset", "length", "place")), strict=True
        ):
            if length >= longest.get(offset, (0, 0))[0]:
                longest[offset] = length, place
    offset = random.randint(0, 4100, 3000).astype(np.int64)
    length = random.randint(0, 6, 3000).astype(np.int64)
    rows = entries.find(offset, length)
    for o, n, row in zip(offset.tolist(), length.tolist(), rows.tolist(), strict=True):
        held, place = longest.get(o, (0, 0))
        if 0 < n <= held:
            assert (entries.table["length"][row], entries.table["place"][row]) == (held, place)
        else:
            assert row == -1
    entries.remove(rows[rows >= 0])
    again = entries.find(offset, length)
    assert not np.isin(again[again >= 0], rows).any()  # an older entry may be found, a removed one is not
