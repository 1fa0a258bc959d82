"""Byte sources behind a cache: bytes in the cache are copied, the others are read from the source and added."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from aioloader.foundation.types import Array, IntArray, ReadPlan, SpanKind, Spans
from aioloader.metrics import StorageStats
from aioloader.storage.cache.lookup import Lookup, file_key
from aioloader.storage.layout import fetch_with, plan_apart
from aioloader.storage.local.source import sample_status
from aioloader.storage.records import TRUSTED_SPAN_BYTES
from aioloader.storage.urls import redact_url

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioloader.abc import ObjectByteSource
    from aioloader.foundation.threads import Threads
    from aioloader.storage.cache.base import Cache
    from aioloader.storage.local.mapped import Failures
    from aioloader.storage.local.source import LocalByteSource

_logger = logging.getLogger(__name__)
_VERSION_CHECK_S = 5.0
_THREADS = 4
T = TypeVar("T")


class CachedByteSource:
    """Local files behind a cache, for slow file systems; implements `BlockingByteSource` and `FetchingByteSource`.

    A record file is checked for changes every few seconds; an image file when it is first planned.

    Args:
        source: reads the files; closed with this one.
        cache: closed with this one.
        name: of the files in the cache, the same for all sources that read the same files.
    """

    def __init__(self, source: LocalByteSource, cache: Cache, name: str) -> None:
        self.paths = source.paths
        self._source = source
        self._cache = cache
        self._versions: dict[int, tuple[float, str]] = {}
        if source.kind is SpanKind.FILE:
            self._nbytes = np.full(len(source.paths), -1, np.int64)
            self._keys = np.zeros(len(source.paths), np.int64)
        whole = source.kind is SpanKind.FILE
        name, keys = (os.path.abspath(name), self._keys_of) if whole else ("", None)
        self._lookup = Lookup(cache, name, identify=self._identify, kind=source.kind, keys=keys)

    def stats(self) -> StorageStats:
        """Return the statistics so far."""
        return StorageStats(hit_rate=self._lookup.hit_rate)

    def close(self) -> None:
        self._source.close()
        self._cache.close()

    async def plan(self, spans: Spans) -> ReadPlan:
        if self._source.kind is SpanKind.FILE:
            must_read = bool((self._nbytes[spans.file] < 0).any())
        elif not (must_read := bool(_large(spans, self._source.kind).any())):
            return await self._source.plan(spans)
        return (
            await self._source.run_in_thread(self.plan_blocking, spans)
            if must_read
            else self.plan_blocking(spans)
        )

    def plan_blocking(self, spans: Spans) -> ReadPlan:
        if self._source.kind is not SpanKind.FILE:
            return self._plan_records(spans)
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

    def _plan_records(self, spans: Spans) -> ReadPlan:
        large = _large(spans, self._source.kind)
        if not large.any():
            return self._source.plan_blocking(spans)
        known = _KnownLengths(spans, large, self._lookup.held(spans))
        return known.plan(None if known.rest is None else self._source.plan_blocking(known.rest))

    async def read(self, plan: ReadPlan, out: memoryview) -> Failures:
        """Read with one thread hop for items in the cache."""
        missing = await self._source.run_in_thread(self._lookup.find, plan, out)
        if missing is None:
            return []
        failures = await self._source.read(replace(plan, reads=missing.reads, start=missing.start), out)
        failed = [place for place, _ in failures]
        await self._source.run_in_thread(self._lookup.keep, plan, missing, failed, out)
        return failures

    def read_blocking(self, plan: ReadPlan, out: memoryview) -> Failures:
        missing = self._lookup.find(plan, out)
        if missing is None:
            return []
        failures = self._source.read_blocking(replace(plan, reads=missing.reads, start=missing.start), out)
        self._lookup.keep(plan, missing, [place for place, _ in failures], out)
        return failures

    def fetch(self, spans: Spans) -> tuple[ReadPlan, memoryview]:
        return fetch_with(self.plan_blocking, self.read_blocking, spans)

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


class CachedObjectSource:
    """Objects behind a cache; implements `FetchingByteSource` over a source of objects.

    Args:
        source: reads the objects; closed with this one.
        cache: closed with this one.
        name: of the set of objects in the cache.

    Attributes:
        samples_ahead: see `aioloader.abc.NetworkByteSource`.
    """

    _closed = True  # until it is completely made

    def __init__(self, source: ObjectByteSource, cache: Cache, name: str) -> None:
        self.paths = source.paths
        self.samples_ahead = source.samples_ahead
        self._source = source
        self._cache = cache
        self._threads: Threads | None = None
        self._closed = False
        self._warned = False
        name, keys = (name, self._keys_of) if source.kind is SpanKind.FILE else ("", None)
        self._lookup = Lookup(cache, name, identify=self._identify, kind=source.kind, keys=keys)

    def __del__(self) -> None:
        if not self._closed:
            self.close()

    @property
    def timeout(self) -> float:
        """Return the seconds that one call may take; the loader sets it."""
        return self._source.timeout

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        self._source.timeout = seconds

    def stats(self) -> StorageStats:
        """Return the statistics so far."""
        return replace(self._source.stats(), hit_rate=self._lookup.hit_rate)

    def close(self) -> None:
        self._closed = True
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.close()
        self._source.close()
        self._cache.close()

    async def plan(self, spans: Spans) -> ReadPlan:
        large = _large(spans, self._source.kind)
        if not large.any():
            return await self._source.plan(spans)
        known = _KnownLengths(spans, large, await self._run_in_thread(self._lookup.held, spans))
        return known.plan(None if known.rest is None else await self._source.plan(known.rest))

    async def read(self, plan: ReadPlan, out: memoryview) -> Failures:
        """Read; the cache is read and written in a thread.

        Raises:
            RemoteReadError: see `aioloader.storage.remote.RemoteByteSource.read`.
        """
        missing = await self._run_in_thread(self._lookup.find, plan, out)
        if missing is None:
            return []
        # The source's plans have one read for each item, in their order.
        items = np.flatnonzero(missing.start >= 0)
        part = ReadPlan(plan.nbytes, plan.start[items], plan.length[items], plan.reads[items])
        failures = [(int(items[place]), error) for place, error in await self._source.read(part, out)]
        await self._run_in_thread(self._lookup.keep, plan, missing, [place for place, _ in failures], out)
        return failures

    def fetch(self, spans: Spans) -> tuple[ReadPlan, memoryview]:
        blocking = self._source.blocking
        return fetch_with(partial(blocking, self.plan), partial(blocking, self.read), spans)

    def _keys_of(self, numbers: IntArray) -> IntArray:
        known = map(self._identify, numbers.tolist())
        return np.array([-1 if one is None else file_key(*one) for one in known], np.int64)

    def _identify(self, number: int) -> tuple[str, str] | None:
        known = self._source.identity(number)
        if known is None and not self._warned:  # every object that is read has been described
            self._warned = True
            _logger.warning(
                "%s is not cached: the server sends neither an ETag nor a date with it, so that a replaced object "
                "would not be noticed",
                redact_url(self.paths[number]),
            )
        return known

    async def _run_in_thread(self, fn: Callable[..., T], *args: Any) -> T:
        """Run a function in a thread. On cancellation it returns when the function has ended."""
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
