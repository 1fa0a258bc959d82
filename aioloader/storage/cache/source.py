"""Byte sources behind a cache: bytes in the cache are copied, the others are read from the source and added."""

from __future__ import annotations

import logging
import os
import threading
import time
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from aioloader.abc import ByteSource
from aioloader.foundation.types import Array, IntArray, ReadPlan, SpanKind, Spans
from aioloader.metrics import StorageStats
from aioloader.storage.cache.base import Cache, PlacedSpans
from aioloader.storage.layout import plan_apart
from aioloader.storage.local.source import sample_status
from aioloader.storage.records import TRUSTED_SPAN_BYTES, wrong_length
from aioloader.storage.urls import redact_url

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.foundation.threads import Threads
    from aioloader.storage.local.mapped import Failures
    from aioloader.storage.local.source import LocalByteSource


def file_key(name: str, version: str) -> int:
    """Return a number of 63 bits that replaces the offset in a cache of many whole files under one name."""
    text = f"{name}\0{version}".encode("utf-8", "surrogateescape")
    return int.from_bytes(blake2b(text, digest_size=8).digest()) >> 1


@dataclass(frozen=True)
class Missing:
    """Items of a plan that are not in the cache.

    Attributes:
        items: int64 (m,), places in the batch of the items that have bytes and must be read.
        reads: int64 (k, 4), the plan's reads that contain them, and those without any bytes.
        start: int64 (n,), the plan's, -1 for items that need not be read.
        groups: (numbers within `items`, name in the cache, version, int64 offsets) of items with one name.
    """

    items: IntArray
    reads: IntArray
    start: IntArray
    groups: list[tuple[IntArray, str, str, IntArray]]


class Lookup:
    """Look-up of items. Blocking; used from any thread.

    Args:
        cache: of the bytes.
        name: of a set of whole files; "" for spans of files.
        identify: for spans: returns name and version of a file by its number; None if they are not known.
        kind: of the spans.
        keys: for whole files: returns the `file_key` of each by its number, int64 (n,); -1 for files that cannot be
            cached.
    """

    def __init__(
        self,
        cache: Cache,
        name: str,
        *,
        identify: Callable[[int], tuple[str, str] | None],
        kind: SpanKind,
        keys: Callable[[IntArray], IntArray] | None = None,
    ) -> None:
        self._cache = cache
        self._name = name
        self._identify = identify
        self._kind = kind
        self._keys = keys
        self._lock = threading.Lock()
        self._hits = self._lookups = 0

    @property
    def hit_rate(self) -> float | None:
        """Return the share of the items that were in the cache; None before the first look-up."""
        return self._hits / self._lookups if self._lookups else None

    def find(self, plan: ReadPlan, out: memoryview) -> Missing | None:
        """Copy the items that are in the cache to their places; return the others, None if nothing must be read."""
        reads: IntArray = plan.reads
        if not len(reads):
            return None
        reads = reads[np.argsort(reads[:, 3], kind="stable")]
        items = np.flatnonzero((plan.start >= 0) & (plan.length > 0))
        owner = np.searchsorted(reads[:, 3], plan.start[items], side="right") - 1
        here = np.zeros(len(items), bool)
        groups = self._groups(reads[owner], plan.start[items])
        for chosen, name, version, offset in groups:
            some = items[chosen]
            spans = PlacedSpans(offset, plan.length[some], plan.start[some])
            here[chosen] = self._cache.read(name, version, spans, out)
        if self._kind is SpanKind.RECORD and here.any():
            # If a record is longer than its span, the source has to find that out.
            held = np.flatnonzero(here)
            here[held[wrong_length(out, plan.start[items[held]], plan.length[items[held]])]] = False
        with self._lock:
            self._lookups += len(items)
            self._hits += int(here.sum())
        needed = np.ones(len(reads), bool)
        needed[owner] = False
        needed[owner[~here]] = True
        if not needed.any():
            return None
        start = plan.start.copy()
        start[items[here]] = -1
        left = np.cumsum(~here) - 1  # number of an item among those that are missing
        missing = [
            (left[chosen[~here[chosen]]], name, version, offset[~here[chosen]])
            for chosen, name, version, offset in groups
        ]
        return Missing(items[~here], reads[needed], start, missing)

    def held(self, spans: Spans) -> IntArray:
        """Return the bytes of the longest record span in the cache at each offset, int64 (n,); 0 for none."""
        length = np.zeros(len(spans), np.int64)
        for chosen, name, version in self._by_file(spans.file):
            length[chosen] = self._cache.held(name, version, spans.offset[chosen])
        return length

    def _by_file(self, file: IntArray) -> list[tuple[IntArray, str, str]]:
        """Return groups of items of one file: numbers of the items, name and version of the file."""
        known = ((number, self._identify(number)) for number in np.unique(file).tolist())
        return [
            (np.flatnonzero(file == number), *identity) for number, identity in known if identity is not None
        ]

    def _groups(self, reads: IntArray, start: IntArray) -> list[tuple[IntArray, str, str, IntArray]]:
        """Return groups of items that are looked up together, see `Missing`; `reads` are those of each item."""
        if not len(start):
            return []
        if self._keys is not None:
            keys = self._keys(reads[:, 0])
            chosen = np.flatnonzero(keys >= 0)
            return [(chosen, self._name, "", keys[chosen])]
        offset = reads[:, 1] + start - reads[:, 3]
        return [
            (chosen, name, version, offset[chosen]) for chosen, name, version in self._by_file(reads[:, 0])
        ]

    def keep(self, plan: ReadPlan, missing: Missing, failed: Sequence[int], out: memoryview) -> None:
        """Write the items that were read to the cache.

        Args:
            plan, missing: of `find`.
            failed: places in the batch of items that could not be read.
            out: the bytes.
        """
        fine = ~np.isin(missing.items, np.asarray(failed, np.int64))
        for chosen, name, version, offset in missing.groups:
            kept = fine[chosen]
            some = missing.items[chosen[kept]]
            if len(some):
                spans = PlacedSpans(offset[kept], plan.length[some], plan.start[some])
                self._cache.write(name, version, spans, out)


_logger = logging.getLogger(__name__)
_VERSION_CHECK_S = 5.0
_THREADS = 4
T = TypeVar("T")


class _CachedSource(ByteSource):
    """Byte source behind a cache.

    Args:
        source: reads what the cache lacks; closed with this one.
        cache: closed with this one.
        kind: of the spans.
        lookup: of items in the cache.
        apart: the source's plans have one read for each item, in their order.
    """

    fetches = True

    def __init__(
        self, source: ByteSource, cache: Cache, kind: SpanKind, lookup: Lookup, *, apart: bool
    ) -> None:
        self.paths = source.paths
        self.samples_ahead = source.samples_ahead
        self._inner = source
        self._cache = cache
        self._kind = kind
        self._lookup = lookup
        self._apart = apart

    def set_timeout(self, seconds: float) -> None:
        self._inner.set_timeout(seconds)

    def stats(self) -> StorageStats:
        """Return the statistics so far."""
        return replace(self._inner.stats() or StorageStats(), hit_rate=self._lookup.hit_rate)

    def close(self) -> None:
        self._inner.close()
        self._cache.close()

    async def _run_in_thread(self, fn: Callable[..., T], *args: Any) -> T:
        """Run a function in a thread. On cancellation it returns when the function has ended."""
        raise NotImplementedError

    def plan_blocking(self, spans: Spans) -> ReadPlan:
        large = _large(spans, self._kind)
        if not large.any():
            return self._inner.plan_blocking(spans)
        known = _KnownLengths(spans, large, self._lookup.held(spans))
        return known.plan(None if known.rest is None else self._inner.plan_blocking(known.rest))

    async def read(self, plan: ReadPlan, out: memoryview) -> Failures:
        """Read; the cache is read and written in a thread.

        Raises:
            RemoteReadError: see `aioloader.storage.remote.RemoteByteSource.read`.
        """
        missing = await self._run_in_thread(self._lookup.find, plan, out)
        if missing is None:
            return []
        part, items = self._missing(plan, missing)
        failures = [(int(items[place]), error) for place, error in await self._inner.read(part, out)]
        await self._run_in_thread(self._lookup.keep, plan, missing, [place for place, _ in failures], out)
        return failures

    def read_blocking(self, plan: ReadPlan, out: memoryview) -> Failures:
        missing = self._lookup.find(plan, out)
        if missing is None:
            return []
        part, items = self._missing(plan, missing)
        failures = [(int(items[place]), error) for place, error in self._inner.read_blocking(part, out)]
        self._lookup.keep(plan, missing, [place for place, _ in failures], out)
        return failures

    def _missing(self, plan: ReadPlan, missing: Missing) -> tuple[ReadPlan, IntArray]:
        """Return the source's plan for what the cache lacks, and its items' places in the batch."""
        items = np.flatnonzero(missing.start >= 0)
        reads = plan.reads[items] if self._apart else missing.reads
        return ReadPlan(plan.nbytes, plan.start[items], plan.length[items], reads), items


class CachedByteSource(_CachedSource):
    """Local files behind a cache, for slow file systems.

    A record file is checked for changes every few seconds; an image file when it is first planned.

    Args:
        source: reads the files; closed with this one.
        cache: closed with this one.
        name: of the files in the cache, the same for all sources that read the same files.
    """

    blocks = True

    def __init__(self, source: LocalByteSource, cache: Cache, name: str) -> None:
        self._source = source
        self._versions: dict[int, tuple[float, str]] = {}
        whole = source.kind is SpanKind.FILE
        if whole:
            self._nbytes = np.full(len(source.paths), -1, np.int64)
            self._keys = np.zeros(len(source.paths), np.int64)
        name, keys = (os.path.abspath(name), self._keys_of) if whole else ("", None)
        lookup = Lookup(cache, name, identify=self._identify, kind=source.kind, keys=keys)
        super().__init__(source, cache, source.kind, lookup, apart=False)

    def identity(self, number: int) -> tuple[str, str] | None:
        return self._inner.identity(number)

    async def plan(self, spans: Spans) -> ReadPlan:
        if self._kind is SpanKind.FILE:
            must_read = bool((self._nbytes[spans.file] < 0).any())
        elif not (must_read := bool(_large(spans, self._kind).any())):
            return await self._source.plan(spans)
        return (
            await self._run_in_thread(self.plan_blocking, spans) if must_read else self.plan_blocking(spans)
        )

    def plan_blocking(self, spans: Spans) -> ReadPlan:
        if self._kind is not SpanKind.FILE:
            return super().plan_blocking(spans)
        failures: Failures = []
        for place in np.flatnonzero(self._nbytes[spans.file] < 0).tolist():
            number = int(spans.file[place])
            path = self.paths[number]
            try:
                status = sample_status(path)
            except OSError as error:
                failures.append((place, error))
            else:
                self._keys[number] = file_key(os.path.abspath(path), _version(status))
                self._nbytes[number] = status.st_size
        plan = plan_apart(spans, self._nbytes[spans.file], failures)
        return replace(plan, reads=plan.reads[plan.start >= 0])

    async def _run_in_thread(self, fn: Callable[..., T], *args: Any) -> T:
        return await self._source.run_in_thread(fn, *args)

    def _keys_of(self, numbers: IntArray) -> IntArray:
        return self._keys[numbers]

    def _identify(self, number: int) -> tuple[str, str] | None:
        """Return name and version of a record file; None if its status cannot be read."""
        now = time.monotonic()
        checked, version = self._versions.get(number, (now - _VERSION_CHECK_S, ""))
        if now - checked >= _VERSION_CHECK_S:
            try:
                version = _version(os.stat(self.paths[number]))
            except OSError:
                return None
            self._versions[number] = now, version
        return os.path.abspath(self.paths[number]), version


class CachedObjectSource(_CachedSource):
    """Objects behind a cache.

    Args:
        source: reads the objects, with one read for each item in their order; closed with this one.
        cache: closed with this one.
        name: of the set of objects in the cache.
        kind: of the spans.
    """

    _closed = True  # until it is completely made

    def __init__(self, source: ByteSource, cache: Cache, name: str, kind: SpanKind) -> None:
        name, keys = (name, self._keys_of) if kind is SpanKind.FILE else ("", None)
        lookup = Lookup(cache, name, identify=self._identify, kind=kind, keys=keys)
        super().__init__(source, cache, kind, lookup, apart=True)
        self._threads: Threads | None = None
        self._closed = False
        self._warned = False

    def __del__(self) -> None:
        if not self._closed:
            self.close()

    def close(self) -> None:
        self._closed = True
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.close()
        super().close()

    async def plan(self, spans: Spans) -> ReadPlan:
        large = _large(spans, self._kind)
        if not large.any():
            return await self._inner.plan(spans)
        known = _KnownLengths(spans, large, await self._run_in_thread(self._lookup.held, spans))
        return known.plan(None if known.rest is None else await self._inner.plan(known.rest))

    def _keys_of(self, numbers: IntArray) -> IntArray:
        known = map(self._identify, numbers.tolist())
        return np.array([-1 if one is None else file_key(*one) for one in known], np.int64)

    def _identify(self, number: int) -> tuple[str, str] | None:
        known = self._inner.identity(number)
        if known is None and not self._warned:  # every object that is read has been described
            self._warned = True
            _logger.warning(
                "%s is not cached: the server sends neither an ETag nor a date with it, so that a replaced object "
                "would not be noticed",
                redact_url(self.paths[number]),
            )
        return known

    async def _run_in_thread(self, fn: Callable[..., T], *args: Any) -> T:
        if self._closed:
            raise RuntimeError("the byte source is closed")
        if self._threads is None:
            from aioloader.foundation.threads import Threads

            self._threads = Threads(_THREADS, "aioloader-cache")
        return await self._threads.run(fn, *args)


def _large(spans: Spans, kind: SpanKind) -> Array:
    """Mark spans so large that a source reads the length from the records' own headers: bool (n,)."""
    flags: Array = spans.length > TRUSTED_SPAN_BYTES
    return flags if kind is SpanKind.RECORD else np.zeros(len(spans), bool)


class _KnownLengths:
    """Lengths of large records that are in the cache: their headers need not be read.

    Args:
        spans: of a batch.
        large: bool (n,), see `_large`.
        held: int64 (n,), bytes in the cache from each offset on.

    Attributes:
        rest: the spans that the source has to plan; None if there are none.
    """

    def __init__(self, spans: Spans, large: Array, held: IntArray) -> None:
        self._spans = spans
        known = large & (held > 0)
        self._length = np.where(known, held, spans.length)
        left = self._left = np.flatnonzero(~known)
        self.rest = Spans(spans.file[left], spans.offset[left], spans.length[left]) if len(left) else None

    def plan(self, rest: ReadPlan | None) -> ReadPlan:
        """Return the plan of the batch from that of the `rest`: a read for each item, in their order."""
        failures: Failures = []
        if rest is not None:
            self._length[self._left] = rest.length
            failures = [(int(self._left[place]), error) for place, error in rest.failures]
        return plan_apart(self._spans, self._length, failures)


def _version(status: os.stat_result) -> str:
    return f"{status.st_size}-{status.st_mtime_ns}"
