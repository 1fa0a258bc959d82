"""Byte sources behind a cache: what is there is copied, the rest is read from the source as ever and put into it."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from aioloader.foundation.types import ReadPlan, Spans
from aioloader.metrics import StorageStats
from aioloader.storage.cache.lookup import Lookup, file_key
from aioloader.storage.layout import lay_out_apart
from aioloader.storage.local.whole_files import sample_status
from aioloader.storage.records import TRUSTED_SPAN_BYTES
from aioloader.storage.urls import redact_url

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.foundation.threads import Threads
    from aioloader.foundation.types import IntArray
    from aioloader.storage.cache import Cache
    from aioloader.storage.local.source import Failures, LocalByteSource

__all__ = ("CachedByteSource", "CachedObjectSource")

_logger = logging.getLogger(__name__)
_LOOK_S = 5.0
_THREADS = 4
T = TypeVar("T")


class CachedByteSource:
    """Local files behind a cache, for slow file systems; implements `ByteSource` and `BlockingByteSource`.

    Whether a record file is still the same is asked every few seconds; whether an image file is, when it is first
    planned.

    Args:
        source: reads the files; closed with this one.
        cache: closed with this one.
        name: what the files are called in the cache: all that read the same files call them so.
    """

    def __init__(self, source: LocalByteSource, cache: Cache, name: str) -> None:
        self._source = source
        self._cache = cache
        self._versions: dict[int, tuple[float, str]] = {}
        if source.whole_files:
            self._nbytes = np.full(len(source.paths), -1, np.int64)
            self._keys = np.zeros(len(source.paths), np.int64)
            self._lookup = Lookup(cache, os.path.abspath(name), keys=self._keys_of)
        else:
            self._lookup = Lookup(cache, "", identify=self._identify)

    @property
    def paths(self) -> Sequence[str]:
        """The files."""
        return self._source.paths

    def stats(self) -> StorageStats:
        """What was done so far."""
        return StorageStats(hit_rate=self._lookup.hit_rate)

    def close(self) -> None:
        """Close files, threads and the cache; may be called twice."""
        self._source.close()
        self._cache.close()

    async def plan(self, spans: Spans) -> ReadPlan:
        """See `ByteSource.plan`."""
        if not self._source.whole_files:
            if _large(spans).any():
                return await self._source.aside(self.plan_blocking, spans)
            return await self._source.plan(spans)
        if (self._nbytes[spans.file] < 0).any():
            return await self._source.aside(self.plan_blocking, spans)
        return self.plan_blocking(spans)

    def plan_blocking(self, spans: Spans) -> ReadPlan:
        """See `BlockingByteSource.plan_blocking`."""
        if not self._source.whole_files:
            return self._plan_records(spans)
        failures: Failures = []
        fine = np.ones(len(spans), bool)
        for place in np.flatnonzero(self._nbytes[spans.file] < 0).tolist():
            number = int(spans.file[place])
            path = self.paths[number]
            try:
                status = sample_status(path)
            except OSError as error:
                failures.append((place, error))
                fine[place] = False
            else:
                self._keys[number] = file_key(os.path.abspath(path), _version(status))
                self._nbytes[number] = status.st_size
        length = np.where(fine, self._nbytes[spans.file], 0)
        start = np.full(len(length), -1, np.int64)
        nbytes, start[fine], reads = lay_out_apart(spans.file[fine], spans.offset[fine], length[fine])
        return ReadPlan(nbytes, start, length, reads, failures)

    def _plan_records(self, spans: Spans) -> ReadPlan:
        large = _large(spans)
        if not large.any():
            return self._source.plan_blocking(spans)
        told = _Told(spans, large, self._lookup.held(spans))
        return told.plan(None if told.rest is None else self._source.plan_blocking(told.rest))

    async def read(self, plan: ReadPlan, out: memoryview) -> Failures:
        """See `ByteSource.read`; one thread hop for what is in the cache."""
        missing = await self._source.aside(self._lookup.find, plan, out)
        if missing is None:
            return []
        failures = await self._source.read(replace(plan, reads=missing.reads, start=missing.start), out)
        failed = [place for place, _ in failures]
        await self._source.aside(self._lookup.keep, plan, missing, failed, out)
        return failures

    def read_blocking(self, plan: ReadPlan, out: memoryview) -> Failures:
        """See `BlockingByteSource.read_blocking`."""
        missing = self._lookup.find(plan, out)
        if missing is None:
            return []
        failures = self._source.read_blocking(replace(plan, reads=missing.reads, start=missing.start), out)
        self._lookup.keep(plan, missing, [place for place, _ in failures], out)
        return failures

    def _keys_of(self, numbers: IntArray) -> IntArray:
        return self._keys[numbers]

    def _identify(self, number: int) -> tuple[str, str] | None:
        """Name and version of a record file; None if it cannot be asked."""
        now = time.monotonic()
        looked, version = self._versions.get(number, (now - _LOOK_S, ""))
        if now - looked >= _LOOK_S:
            try:
                version = _version(os.stat(self.paths[number]))
            except OSError:
                return None
            self._versions[number] = now, version
        return os.path.abspath(self.paths[number]), version


class CachedObjectSource:
    """Objects behind a cache; implements `ByteSource` over a source of objects.

    Args:
        source: reads the objects (`aioloader.storage.remote.RemoteByteSource`); closed with this one.
        cache: closed with this one.
        name: what the objects of a set are called together in the cache.

    Attributes:
        samples_ahead: see the source.
    """

    def __init__(self, source: Any, cache: Cache, name: str) -> None:
        self._source = source
        self._cache = cache
        self.samples_ahead: int = source.samples_ahead
        self._threads: Threads | None = None
        self._closed = False
        self._warned = False
        if source.whole_files:
            self._lookup = Lookup(cache, name, keys=self._keys_of)
        else:
            self._lookup = Lookup(cache, "", identify=self._identify)

    def __del__(self) -> None:
        if hasattr(self, "_closed"):
            self.close()

    @property
    def paths(self) -> Sequence[str]:
        """The URLs."""
        urls: Sequence[str] = self._source.paths
        return urls

    @property
    def timeout(self) -> float:
        """Seconds that one call may take; the loader sets it."""
        seconds: float = self._source.timeout
        return seconds

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        self._source.timeout = seconds

    def stats(self) -> StorageStats:
        """What was done so far."""
        stats: StorageStats = self._source.stats()
        return replace(stats, hit_rate=self._lookup.hit_rate)

    def close(self) -> None:
        """Close connections, threads and the cache; may be called twice."""
        self._closed = True
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.close()
        self._source.close()
        self._cache.close()

    async def plan(self, spans: Spans) -> ReadPlan:
        """See `ByteSource.plan`."""
        large = np.zeros(len(spans), bool) if self._source.whole_files else _large(spans)
        if not large.any():
            plan: ReadPlan = await self._source.plan(spans)
            return plan
        told = _Told(spans, large, await self._aside(self._lookup.held, spans))
        return told.plan(None if told.rest is None else await self._source.plan(told.rest))

    async def read(self, plan: ReadPlan, out: memoryview) -> Failures:
        """See `ByteSource.read`. The cache is read and written in a thread.

        Raises:
            RemoteReadError: see `RemoteByteSource.read`.
        """
        missing = await self._aside(self._lookup.find, plan, out)
        if missing is None:
            return []
        # The source's plans have one read for each item, in their order.
        items = np.flatnonzero(missing.start >= 0)
        part = ReadPlan(plan.nbytes, plan.start[items], plan.length[items], plan.reads[items])
        failures = [(int(items[place]), error) for place, error in await self._source.read(part, out)]
        await self._aside(self._lookup.keep, plan, missing, [place for place, _ in failures], out)
        return failures

    def fetch(self, spans: Spans) -> tuple[ReadPlan, memoryview]:
        """Plan and read at once, blocking: for a single item here and now.

        Raises:
            Exception: the first item that could not be read, raised as its own error.
        """
        plan: ReadPlan = self._source.blocking(self.plan, spans)
        data = memoryview(bytearray(plan.nbytes))
        for _, error in plan.failures or self._source.blocking(self.read, plan, data):
            raise error
        return plan, data

    def _keys_of(self, numbers: IntArray) -> IntArray:
        known = map(self._identify, numbers.tolist())
        return np.array([-1 if one is None else file_key(*one) for one in known], np.int64)

    def _identify(self, number: int) -> tuple[str, str] | None:
        known: tuple[str, str] | None = self._source.identity(number)
        if known is None and not self._warned:  # whatever is read has been described
            self._warned = True
            _logger.warning(
                "%s is not kept in the cache: the server sends neither an ETag nor a date with it, so that a "
                "replaced one would not be noticed",
                redact_url(self.paths[number]),
            )
        return known

    async def _aside(self, fn: Callable[..., T], *args: Any) -> T:
        """Run a function in a thread of the source; on cancellation it is waited for."""
        if self._closed:
            raise RuntimeError("the byte source is closed")
        if self._threads is None:
            from aioloader.foundation.threads import Threads

            self._threads = Threads(_THREADS, "aioloader-cache")
        return await self._threads.run(fn, *args)


def _large(spans: Spans) -> Any:
    """Which spans are so large that a source asks the records' own heads how long they are: bool (n,)."""
    return spans.length > TRUSTED_SPAN_BYTES


class _Told:
    """Large records of which the cache knows how long they are: their heads need not be asked for.

    Args:
        spans: of a batch.
        large: bool (n,), see `_large`.
        held: int64 (n,), bytes that the cache has from each offset on.

    Attributes:
        rest: the spans that the source has to plan; None if there are none.
    """

    def __init__(self, spans: Spans, large: Any, held: IntArray) -> None:
        self._spans = spans
        known = large & (held > 0)
        self._length = np.where(known, held, spans.length)
        self._left = np.flatnonzero(~known)
        left = self._left
        self.rest = Spans(spans.file[left], spans.offset[left], spans.length[left]) if len(left) else None

    def plan(self, rest: ReadPlan | None) -> ReadPlan:
        """The plan of the batch, from that of the `rest`: a read for each item, in their order."""
        length, failures = self._length, []
        if rest is not None:
            length[self._left] = rest.length
            failures = [(int(self._left[place]), error) for place, error in rest.failures]
        failed = [place for place, _ in failures]
        length[failed] = 0
        nbytes, start, reads = lay_out_apart(self._spans.file, self._spans.offset, length)
        start[failed] = -1
        return ReadPlan(nbytes, start, length, reads, failures)


def _version(status: os.stat_result) -> str:
    return f"{status.st_size}-{status.st_mtime_ns}"
