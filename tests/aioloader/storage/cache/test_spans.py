"""Tests of caches: they return the stored bytes, regardless of damage to their files."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aioloader.storage.cache import Cache, MemoryCache, SpanCache
from aioloader.storage.cache.base import PlacedSpans

NAME, VERSION = "https://example.org/train.rec?signature=secret", '"etag"'


class Content:
    """Object of random bytes in spans of various lengths."""

    def __init__(self, count: int = 60, seed: int = 0, longest: int = 3000) -> None:
        self.length = np.random.RandomState(seed).randint(1, longest, count).astype(np.int64)
        self.offset = np.cumsum(self.length) - self.length
        self.data = np.random.RandomState(seed + 1).bytes(int(self.length.sum()))

    def put(self, cache: Cache, items: Any = slice(None), name: str = NAME, version: str = VERSION) -> None:
        offset, length = self.offset[items], self.length[items]
        cache.write(name, version, PlacedSpans(offset, length, offset), memoryview(self.data))

    def get(
        self, cache: Cache, items: Any = slice(None), name: str = NAME, version: str = VERSION
    ) -> list[int]:
        """Return the numbers of the cached spans; fail if one has other bytes."""
        numbers = np.arange(len(self.offset))[items]
        offset, length = self.offset[items], self.length[items]
        place = np.cumsum(length + 7) - length
        out = memoryview(bytearray(int((length + 7).sum()) + 7))
        here = cache.read(name, version, PlacedSpans(offset, length, place), out)
        for number, found, begin in zip(numbers.tolist(), here.tolist(), place.tolist(), strict=True):
            if found:
                start, nbytes = int(self.offset[number]), int(self.length[number])
                assert out[begin : begin + nbytes] == self.data[start : start + nbytes]
        return numbers[here].tolist()  # type: ignore[no-any-return]


def nbytes_of(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def files(directory: Path, suffix: str) -> list[Path]:
    return sorted(directory.rglob(f"*{suffix}"))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def open_disk(directory: Path) -> Iterator[Callable[..., SpanCache]]:
    caches = []

    def make(limit: int = 1 << 30) -> SpanCache:
        caches.append(SpanCache(directory, limit))
        return caches[-1]

    yield make
    for cache in caches:
        cache.close()


@pytest.fixture(params=["disk", "memory"])
def open_any(request: pytest.FixtureRequest, open_disk: Callable[..., SpanCache]) -> Callable[..., Cache]:
    return open_disk if request.param == "disk" else MemoryCache


ALL = list(range(60))


# --- both kinds ---


def test_written_spans_are_read(open_any: Callable[..., Cache]) -> None:
    cache, content = open_any(1 << 30), Content()
    assert content.get(cache) == []
    content.put(cache, slice(0, 20))
    content.put(cache, slice(10, 30))
    assert content.get(cache) == ALL[:30]
    assert content.get(cache, np.array([40, 29, 3, 3, 50])) == [29, 3, 3]
    counts = cache.counts()
    assert (counts.written, counts.hits, counts.misses) == (30, 33, 92)
    assert counts.written_nbytes == content.length[:30].sum()


def test_versions_and_names_are_kept_apart(open_any: Callable[..., Cache]) -> None:
    cache, content, other = open_any(1 << 30), Content(), Content(seed=9)
    content.put(cache)
    assert content.get(cache, version="another") == []
    assert content.get(cache, name="another") == []
    other.put(cache, name="another")
    assert content.get(cache) == other.get(cache, name="another") == ALL


def test_a_longer_span_serves_a_shorter_one_and_not_vice_versa(
    open_any: Callable[..., Cache],
) -> None:
    cache, data = open_any(1 << 30), bytes(range(200))

    def one_span(nbytes: int) -> PlacedSpans:
        return PlacedSpans(np.array([5]), np.array([nbytes]), np.array([0]))

    def put(nbytes: int) -> None:
        cache.write(NAME, VERSION, one_span(nbytes), memoryview(data))

    def get(nbytes: int) -> bool:
        out = memoryview(bytearray(200))
        (here,) = cache.read(NAME, VERSION, one_span(nbytes), out).tolist()
        assert not here or out[:nbytes] == data[:nbytes]
        return bool(here)

    put(10)
    assert [get(nbytes) for nbytes in (10, 4, 11)] == [True, True, False]
    put(100)
    put(10)
    assert [get(nbytes) for nbytes in (10, 100, 101)] == [True, True, False]


def test_the_length_of_a_cached_span_is_known(open_any: Callable[..., Cache]) -> None:
    cache, content = open_any(1 << 30), Content()
    assert cache.held(NAME, VERSION, content.offset).tolist() == [0] * 60
    content.put(cache, slice(0, 40, 2))
    expected = [int(n) if i < 40 and i % 2 == 0 else 0 for i, n in enumerate(content.length)]
    assert cache.held(NAME, VERSION, content.offset).tolist() == expected
    assert cache.held(NAME, VERSION, content.offset[:1] - 1).tolist() == [0]
    assert cache.held(NAME, "another", content.offset).tolist() == [0] * 60


def test_a_full_cache_keeps_what_it_has(open_any: Callable[..., Cache]) -> None:
    content = Content(longest=3000)
    limit = int(content.length.sum()) // 2
    cache = open_any(limit)
    order = random.Random(3).sample(ALL, 60)
    for epoch in range(3):
        hits = []
        for start in range(0, 60, 6):
            items = np.array(order[start : start + 6])
            found = content.get(cache, items)
            hits += found
            content.put(cache, np.setdiff1d(items, found))
            assert cache.taken_nbytes <= limit
        if epoch == 0:
            assert hits == []
        else:  # at least what fits, less the journal: later requests evict nothing
            held = int(content.length[hits].sum())
            assert held > 0.8 * limit
        random.Random(epoch).shuffle(order)
    assert cache.counts().refused > 0


def test_spans_without_bytes_are_ignored(open_any: Callable[..., Cache]) -> None:
    cache = open_any(1 << 20)
    none = PlacedSpans(np.array([0, 5]), np.array([0, 0]), np.array([0, 0]))
    cache.write(NAME, VERSION, none, memoryview(b""))
    assert cache.read(NAME, VERSION, none, memoryview(bytearray(1))).tolist() == [False, False]
    empty = none.take(np.empty(0, np.int64))
    assert cache.read(NAME, VERSION, empty, memoryview(bytearray(0))).tolist() == []


def test_closing_twice_does_nothing(open_any: Callable[..., Cache], leftovers: object) -> None:
    cache, content = open_any(1 << 30), Content()
    content.put(cache)
    cache.close()
    cache.close()
    assert content.get(cache) == (ALL if isinstance(cache, MemoryCache) else [])


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_is_more_than_nothing(open_any: Callable[..., Cache], limit: int) -> None:
    with pytest.raises(ValueError, match="more than 0 bytes"):
        open_any(limit)


# --- the directory ---


def test_the_next_process_finds_the_written_spans(
    open_disk: Callable[..., SpanCache], directory: Path
) -> None:
    content = Content()
    first = open_disk()
    content.put(first, slice(0, 30))
    first.close()
    second = open_disk()
    assert content.get(second) == ALL[:30]
    content.put(second)
    second.close()
    assert len(files(directory, ".data")) == 1  # a segment that is not full is continued
    assert content.get(open_disk()) == ALL
    label = next(directory.rglob("in-use")).read_text()
    assert label == "https://example.org/train.rec\n"  # and no signature


def test_concurrent_caches_find_spans_that_the_other_writes(
    open_disk: Callable[..., SpanCache], directory: Path
) -> None:
    content, one, two = Content(), open_disk(), open_disk()
    content.put(one, slice(0, 30))
    content.put(two, slice(30, 60))
    for cache in (one, two):
        for cached in cache._objects.values():
            assert cached is not None
            cached._refreshed = 0.0  # as if a second had passed
        assert content.get(cache) == ALL
    assert len(files(directory, ".data")) == 2


def test_segments_are_begun_again_when_they_are_full(
    open_disk: Callable[..., SpanCache], directory: Path
) -> None:
    content = Content()
    cache = open_disk(200_000)
    for start in range(0, 60, 10):
        content.put(cache, slice(start, start + 10))
    assert len(files(directory, ".data")) > 5
    assert content.get(cache) == ALL
    cache.close()
    assert content.get(open_disk(200_000)) == ALL


@pytest.mark.parametrize(
    "what", ["a byte", "zeros", "the end of the data", "half a line", "lines", "a journal"]
)
def test_damage_is_a_miss_and_is_mended(
    open_disk: Callable[..., SpanCache], directory: Path, what: str
) -> None:
    content = Content()
    cache = open_disk()
    content.put(cache)
    cache.close()
    (data,), (lines,) = files(directory, ".data"), files(directory, ".lines")
    place = int(content.offset[7])
    if what == "a byte":
        with data.open("r+b") as file:
            file.seek(place)
            file.write(bytes([content.data[place] ^ 1]))
    elif what == "zeros":
        with data.open("r+b") as file:
            file.seek(place)
            file.write(bytes(int(content.length[7])))
    elif what == "the end of the data":
        os.truncate(data, place)
    elif what == "half a line":
        os.truncate(lines, 50 * 32 + 5)
    elif what == "lines":
        with lines.open("r+b") as file:
            file.seek(7 * 32)
            file.write(os.urandom(64))
    else:
        lines.unlink()
    cache = open_disk()
    found = content.get(cache)
    expected = {
        "a byte": {*ALL} - {7},
        "zeros": {*ALL} - {7},
        "the end of the data": {*ALL[:7]},
        "half a line": {*ALL[:50]},
        "lines": {*ALL} - {7, 8},
        "a journal": set(),
    }[what]
    assert set(found) == expected
    assert cache.counts().damaged == (what in ("a byte", "zeros"))
    content.put(cache)
    assert content.get(cache) == ALL
    cache.close()
    again = open_disk()
    assert content.get(again) == ALL
    assert again.counts().damaged == 0


def test_damage_behind_the_requested_part_is_noticed(
    open_disk: Callable[..., SpanCache], directory: Path
) -> None:
    cache, data = open_disk(), bytes(1000)
    zero = np.array([0])
    cache.write(NAME, VERSION, PlacedSpans(zero, np.array([1000]), zero), memoryview(data))
    cache.close()
    with files(directory, ".data")[0].open("r+b") as file:
        file.seek(900)
        file.write(b"x")
    out = memoryview(bytearray(1000))
    assert not open_disk().read(NAME, VERSION, PlacedSpans(zero, np.array([10]), zero), out).any()


def test_an_unused_object_is_evicted_for_another(
    open_disk: Callable[..., SpanCache], directory: Path
) -> None:
    content = Content()
    limit = int(content.length.sum() * 1.2)
    old = open_disk(limit)
    content.put(old, name="old")
    other = Content(seed=5)
    new = open_disk(limit)
    other.put(new, slice(0, 50), name="new")
    assert content.get(old, name="old") == ALL  # in use: it stays
    assert len(other.get(new, name="new")) < 30
    old.close()
    new._full_until = 0.0
    other.put(new, name="new")
    assert other.get(new, name="new") == ALL
    assert nbytes_of(directory) <= limit
    assert new.counts().evicted_nbytes > 0
    assert new.taken_nbytes == nbytes_of(directory)


def test_an_unused_older_version_is_deleted(open_disk: Callable[..., SpanCache], directory: Path) -> None:
    content = Content()
    cache = open_disk()
    content.put(cache, version="1")
    cache.close()
    before = nbytes_of(directory)
    cache = open_disk()
    content.put(cache, slice(0, 1), version="2")
    assert nbytes_of(directory) < before - 50_000
    assert content.get(cache, version="2") == [0]
    assert cache.taken_nbytes == nbytes_of(directory)


def test_a_lower_limit_is_kept_from_the_next_opening_on(
    open_disk: Callable[..., SpanCache], directory: Path
) -> None:
    content = Content()
    cache = open_disk(100_000)
    content.put(cache)
    cache.close()
    assert nbytes_of(directory) > 20_000
    open_disk(20_000)
    assert nbytes_of(directory) <= 20_000


def test_files_of_others_are_left_alone(open_disk: Callable[..., SpanCache], directory: Path) -> None:
    directory.mkdir()
    (directory / "thesis.txt").write_text("precious")
    content = Content()
    cache = open_disk(10_000)
    content.put(cache, name="a")
    cache.close()
    content.put(open_disk(10_000), name="b")
    assert (directory / "thesis.txt").read_text() == "precious"


def test_files_that_are_deleted_under_it_are_misses(
    open_disk: Callable[..., SpanCache], directory: Path
) -> None:
    content = Content()
    cache = open_disk()
    content.put(cache)
    cache.close()
    cache = open_disk()
    assert content.get(cache, slice(0, 0)) == []
    for path in files(directory, ".data"):
        path.unlink()
    assert content.get(cache) == []
    content.put(cache)
    assert content.get(cache) == ALL
    # A segment that is being written to, too.
    for path in files(directory, ".data") + files(directory, ".lines"):
        path.unlink()
    more = Content(seed=4)
    more.put(cache, name=NAME + "more")
    content.put(cache, slice(0, 5))
    assert more.get(cache, name=NAME + "more") == ALL


def test_a_full_disk_is_counted_and_not_raised(
    open_disk: Callable[..., SpanCache], directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    resource = pytest.importorskip("resource")
    content, cache = Content(), open_disk()
    content.put(cache, slice(0, 10))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    import signal

    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:  # no file may grow beyond this: writing ends in the middle, as on a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(content.offset[25]) + 3, hard))
        content.put(cache)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    assert "nothing more is written" in caplog.text
    assert content.get(cache) == ALL[:10]
    content.put(cache)
    counts = cache.counts()
    assert (counts.written, counts.refused) == (10, 120)
    assert cache.taken_nbytes == nbytes_of(directory)
    cache.close()
    again = open_disk()
    content.put(again)
    assert content.get(again) == ALL


def test_a_disk_is_not_filled_to_its_end(
    open_disk: Callable[..., SpanCache], monkeypatch: pytest.MonkeyPatch
) -> None:
    content, cache = Content(), open_disk()
    monkeypatch.setattr("aioloader.storage.cache.disk_quota._SPARE_NBYTES", 1 << 60)
    monkeypatch.setattr("aioloader.storage.cache.disk_quota._SPARE_SHARE", 1)
    content.put(cache)
    assert content.get(cache) == []
    assert cache.counts().refused == 60


def test_a_directory_that_cannot_be_used_is_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        SpanCache(tmp_path / "file", 1000)


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become another user"
)
def test_a_directory_that_becomes_another_users_is_read_all_the_same(
    open_disk: Callable[..., SpanCache], directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioloader.storage.cache.object_cache._TOUCH_S", -1.0)
    content, cache = Content(), open_disk()
    content.put(cache)
    assert content.get(cache) == list(range(60))  # its files are open now
    os.seteuid(65534)
    try:
        assert content.get(cache) == list(range(60))
        cache.close()
    finally:
        os.seteuid(0)
    assert content.get(open_disk()) == list(range(60))


def test_a_fork_writes_to_files_of_its_own(open_disk: Callable[..., SpanCache], directory: Path) -> None:
    content, cache = Content(), open_disk()
    content.put(cache, slice(0, 20))
    child = os.fork()
    if child == 0:
        try:
            content.put(cache, slice(20, 40))
            found = content.get(cache)
            cache.close()
            os._exit(0 if {*found} >= {*ALL[:40]} else 1)  # and the parent's writes meanwhile
        finally:
            os._exit(2)
    content.put(cache, slice(40, 60))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(files(directory, ".data")) == 2
    cache.close()
    assert content.get(open_disk()) == ALL
