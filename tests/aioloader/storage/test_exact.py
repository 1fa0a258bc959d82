"""Tests of spans of a known length: exactly these bytes, and an error of the span where the file ends before it."""

from __future__ import annotations

import asyncio
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.foundation.types import SpanKind, Spans
from aioloader.storage import LocalByteSource
from aioloader.storage.cache import MemoryCache
from aioloader.storage.cache.source import CachedByteSource
from aioloader.storage.local import mapped
from aioloader.storage.local.mapped import FileMaps, MappedByteSource
from recordio.errors import ShortReadError
from tests.aioloader.storage.reading import fetch, spans

MAGIC = bytes.fromhex("0a23d7ce")
contents = st.lists(st.one_of(st.binary(max_size=40), st.just(MAGIC + bytes(8)))).map(b"".join)


def source_of(*paths: Any) -> LocalByteSource:
    return LocalByteSource([str(path) for path in paths], kind=SpanKind.EXACT)


def within(data: bytes, draw: Any) -> list[tuple[int, int, int]]:
    """Draw spans inside of a file."""
    found = []
    for _ in range(draw(st.integers(1, 8))):
        offset = draw(st.integers(0, len(data)))
        found.append((0, offset, draw(st.integers(0, len(data) - offset))))
    return found


@given(data=contents, draw=st.data())
def test_spans_anywhere_are_read_exactly(tmp_path_factory: Any, data: bytes, draw: Any) -> None:
    """Also where the bytes look like the header of a record, and where spans overlap, repeat or are empty."""
    path = tmp_path_factory.mktemp("exact") / "a.toy"
    path.write_bytes(data)
    wanted = within(data, draw.draw)
    expected = [data[offset : offset + length] for _, offset, length in wanted]
    source = source_of(path)
    assert fetch(source, spans(*wanted)) == (expected, {})
    cached = CachedByteSource(source_of(path), MemoryCache(1 << 20), str(path))
    for _ in range(2):
        plan, out = cached.fetch(spans(*wanted))
        got = [bytes(out[s : s + n]) for s, n in zip(plan.start.tolist(), plan.length.tolist(), strict=True)]
        assert got == expected
    read = [place for place, (_, _, length) in enumerate(wanted) if length]
    distinct = len({wanted[place] for place in read})
    if read and distinct == len(read):
        assert cached.stats().hit_rate == 0.5
    source.close()
    cached.close()
    if data:
        maps = FileMaps.open([str(path)], SpanKind.EXACT)
        copy = pickle.loads(pickle.dumps(maps))
        for each in (maps, copy):
            assert [bytes(each.record(*span)) for span in wanted] == expected
        maps.close()


@pytest.mark.parametrize(
    ("offset", "length", "found"),
    [(199_000, 5000, 1000), (200_000, 100, 0), (10**15, 100, 0), (199_999, 2, 1), (0, 200_001, 200_000)],
    ids=["cut", "at-the-end", "far", "one-byte", "whole"],
)
def test_a_span_behind_the_end_is_one_items_error(
    path: str, content: bytes, offset: int, length: int, found: int
) -> None:
    items, failures = fetch(source_of(path), spans((0, 198_900, 1000), (0, offset, length), (0, 8, 16)))
    assert items == [content[198_900:199_900], None, content[8:24]]
    maps = FileMaps.open([path], SpanKind.EXACT)
    with pytest.raises(ShortReadError) as caught:
        maps.record(0, offset, length)
    maps.close()
    for error in (failures[1], caught.value, pickle.loads(pickle.dumps(caught.value))):
        assert isinstance(error, ShortReadError)
        assert (error.path, error.offset, error.expected, error.found) == (path, offset, length, found)
        assert "after its index had been read" in str(error)


def test_a_large_span_is_read_without_looking_for_a_record(tmp_path: Path) -> None:
    path = tmp_path / "large.toy"
    path.write_bytes(MAGIC)
    os.truncate(path, 9 << 20)
    wanted = spans((0, 0, 9 << 20), (0, 4, (9 << 20) - 4))
    plan = asyncio.run(source_of(path).plan(wanted))
    assert plan.length.tolist() == [9 << 20, (9 << 20) - 4]
    assert not plan.failures
    items, failures = fetch(source_of(path), wanted)
    assert not failures
    assert items == [MAGIC + bytes((9 << 20) - 4), bytes((9 << 20) - 4)]


def test_a_file_that_is_truncated_while_it_is_open_loses_only_what_is_cut(path: str, content: bytes) -> None:
    wanted = spans((0, 0, 100), (0, 1000, 100), (0, 1050, 100), (0, 5000, 10))
    source = source_of(path)
    maps = FileMaps.open([path], SpanKind.EXACT)
    assert not fetch(source, wanted)[1]
    assert bytes(maps.record(0, 5000, 10)) == content[5000:5010]
    os.truncate(path, 1100)
    items, failures = fetch(source, wanted)
    assert items == [content[:100], content[1000:1100], None, None]
    assert [(place, failures[place].found) for place in failures] == [(2, 50), (3, 0)]  # type: ignore[attr-defined]
    assert bytes(maps.record(0, 1000, 100)) == content[1000:1100]
    for offset in (1050, 5000):
        with pytest.raises(ShortReadError):
            maps.record(0, offset, 100)
    assert maps.whole(0, np.array([1100])) is not None
    assert maps.whole(0, np.array([1101])) is None
    maps.close()
    source.close()


def test_a_file_that_is_replaced_stays_the_one_that_was_opened(
    path: str, content: bytes, tmp_path: Path
) -> None:
    source = source_of(path)
    maps = FileMaps.open([path], SpanKind.EXACT)
    assert not fetch(source, spans((0, 0, 10)))[1]
    other = tmp_path / "other"
    other.write_bytes(b"x" * 200_000)
    os.replace(other, path)
    assert fetch(source, spans((0, 0, 100))) == ([content[:100]], {})
    assert bytes(maps.record(0, 0, 100)) == content[:100]
    source.close()
    maps.close()
    assert fetch(source_of(path), spans((0, 0, 100))) == ([b"x" * 100], {})


def test_a_cache_keeps_the_versions_of_a_file_apart(
    path: str, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    from aioloader.storage.cache import source as cached

    monkeypatch.setattr(cached, "_VERSION_CHECK_S", 0.0)
    cache = MemoryCache(1 << 20)
    wanted = spans((0, 0, 100), (0, 0, 50), (0, 50, 50))

    def read() -> list[bytes]:
        source = CachedByteSource(source_of(path), cache, path)
        plan, out = source.fetch(wanted)
        source._source.close()
        return [bytes(out[s : s + n]) for s, n in zip(plan.start.tolist(), plan.length.tolist(), strict=True)]

    for _ in range(2):
        assert read() == [content[:100], content[:50], content[50:100]]
    Path(path).write_bytes(b"y" * 300)
    assert read() == [b"y" * 100, b"y" * 50, b"y" * 50]


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="files are mapped on Linux only")
def test_a_mapped_source_plans_spans_as_they_are(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans that would be doubtful as records are mapped without reading a header."""

    def check(self: Any, fds: Any) -> None:
        self.complete = self.known = True
        self.next_check = float("inf")

    monkeypatch.setattr(mapped.Residency, "check", check)
    source = MappedByteSource.over(source_of(path))
    assert source is not None
    plan = asyncio.run(source.plan(spans((0, 3, 1), (0, 0, 200_000), (0, 7, 0))))
    assert (plan.nbytes, plan.mapped.tolist(), plan.length.tolist()) == (0, [0, 1, 2], [1, 200_000, 0])
    assert not plan.failures
    source.close()


def test_a_pickled_source_reads_the_same_way(path: str, content: bytes) -> None:
    source = pickle.loads(pickle.dumps(source_of(path)))
    assert source.kind is SpanKind.EXACT
    assert fetch(source, spans((0, 1, 2))) == ([content[1:3]], {})


def test_an_empty_batch_needs_no_file() -> None:
    source = source_of("none")
    empty = np.empty(0, np.int64)
    assert fetch(source, Spans(empty, empty, empty)) == ([], {})
