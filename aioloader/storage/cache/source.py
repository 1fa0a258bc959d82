"""Local files behind a cache: for file systems that are slow, such as those of a network.

What is in the cache is copied from there, the rest is read from the files as ever and put into it. Whether a record
file is still the same is asked every few seconds; whether an image file is, when it is first planned.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader._types import ReadPlan
from aioloader.metrics import StorageStats
from aioloader.storage.layout import lay_out_apart
from aioloader.storage.local import sample_status
from aioloader.storage.records import outgrown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader._types import IntArray, Spans
    from aioloader.storage.cache import Cache
    from aioloader.storage.local import Failures, LocalByteSource

__all__ = ("CachedByteSource", "file_key")

_LOOK_S = 5.0


def file_key(path: str, version: str) -> int:
    """What stands for the offset of a whole file in a cache that holds many files under one name: 63 bits."""
    text = f"{path}\0{version}".encode("utf-8", "surrogateescape")
    return int.from_bytes(blake2b(text, digest_size=8).digest()) >> 1


class CachedByteSource:
    """Implements `ByteSource` and `BlockingByteSource` over another one. Can be pickled if the cache can.

    Args:
        source: reads the files; closed with this one.
        cache: closed with this one.
        name: what the files are called in the cache: all that read the same files call them so.
    """

    def __init__(self, source: LocalByteSource, cache: Cache, name: str) -> None:
        self._source = source
        self._cache = cache
        self._name = os.path.abspath(name)
        self._lock = threading.Lock()
        self._versions: dict[int, tuple[float, str]] = {}
        self._hits = self._asked = 0
        if source.whole_files:
            self._nbytes = np.full(len(source.paths), -1, np.int64)
            self._keys = np.zeros(len(source.paths), np.int64)

    @property
    def paths(self) -> Sequence[str]:
        """The files."""
        return self._source.paths

    @property
    def whole_files(self) -> bool:
        """Whether spans are whole files."""
        return self._source.whole_files

    def stats(self) -> StorageStats:
        """What was done so far."""
        return StorageStats(hit_rate=self._hits / self._asked if self._asked else None)

    def close(self) -> None:
        """Close files, threads and the cache; may be called twice."""
        self._source.close()
        self._cache.close()

    # -- planning ------------------------------------------------------------------------------------------------------

    async def plan(self, spans: Spans) -> ReadPlan:
        """See `ByteSource.plan`."""
        if not self.whole_files:
            return await self._source.plan(spans)
        if (self._nbytes[spans.file] < 0).any():
            return await self._source.aside(self.plan_blocking, spans)
        return self.plan_blocking(spans)

    def plan_blocking(self, spans: Spans) -> ReadPlan:
        """See `BlockingByteSource.plan_blocking`."""
        if not self.whole_files:
            return self._source.plan_blocking(spans)
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

    # -- reading -------------------------------------------------------------------------------------------------------

    async def read(self, plan: ReadPlan, out: memoryview) -> Failures:
        """See `ByteSource.read`; one thread hop."""
        return await self._source.aside(self.read_blocking, plan, out)

    def read_blocking(self, plan: ReadPlan, out: memoryview) -> Failures:
        """See `BlockingByteSource.read_blocking`."""
        reads: IntArray = plan.reads
        if not len(reads):
            return []
        reads = reads[np.argsort(reads[:, 3], kind="stable")]
        items = np.flatnonzero((plan.start >= 0) & (plan.length > 0))
        owner = np.searchsorted(reads[:, 3], plan.start[items], side="right") - 1
        versions = self._versions_of(reads, owner, items)
        here = self._look_up(plan, reads, owner, items, versions, out)
        self._count(len(items), int(here.sum()))
        if here.all() and len(items) == int(np.count_nonzero(plan.start >= 0)):
            return []
        wanted = np.ones(len(reads), bool)  # those without bytes are read too: the files may be missing
        wanted[owner] = False
        wanted[owner[~here]] = True
        start = plan.start.copy()
        start[items[here]] = -1
        failures = self._source.read_blocking(replace(plan, reads=reads[wanted], start=start), out)
        new = ~here & ~np.isin(items, [place for place, _ in failures])
        self._keep(plan, reads, owner[new], items[new], versions, out)
        return failures

    def _look_up(
        self,
        plan: ReadPlan,
        reads: IntArray,
        owner: IntArray,
        items: IntArray,
        versions: dict[int, str],
        out: memoryview,
    ) -> Any:
        """Copy what the cache has; bool (m,) for the m items."""
        here = np.zeros(len(items), bool)
        for chosen, version, offset in self._groups(plan, reads, owner, items, versions):
            some = items[chosen]
            here[chosen] = self._cache.read(
                self._name, version, offset, plan.length[some], out, plan.start[some]
            )
        if not self.whole_files and here.any():
            # A record that is longer than its span is for the files to tell.
            held = items[here]
            longer = outgrown(out, plan.start[held], plan.length[held])
            here[np.flatnonzero(here)[longer]] = False
        return here

    def _keep(
        self,
        plan: ReadPlan,
        reads: IntArray,
        owner: IntArray,
        items: IntArray,
        versions: dict[int, str],
        out: memoryview,
    ) -> None:
        for chosen, version, offset in self._groups(plan, reads, owner, items, versions):
            some = items[chosen]
            self._cache.write(self._name, version, offset, plan.length[some], out, plan.start[some])

    def _groups(
        self, plan: ReadPlan, reads: IntArray, owner: IntArray, items: IntArray, versions: dict[int, str]
    ) -> list[tuple[Any, str, IntArray]]:
        """Items that are looked up together: which, the version, and what they are found by."""
        file = reads[owner, 0]
        if self.whole_files:
            return [(np.arange(len(items)), "", self._keys[file])] if len(items) else []
        offset = reads[owner, 1] + plan.start[items] - reads[owner, 3]
        groups = []
        for number in np.unique(file).tolist():
            if number in versions:
                chosen = np.flatnonzero(file == number)
                groups.append((chosen, versions[number], offset[chosen]))
        return groups

    def _versions_of(self, reads: IntArray, owner: IntArray, items: IntArray) -> dict[int, str]:
        """The versions of record files; without those that cannot be asked."""
        found: dict[int, str] = {}
        if self.whole_files:
            return found
        now = time.monotonic()
        for number in np.unique(reads[owner, 0]).tolist():
            looked, version = self._versions.get(number, (-_LOOK_S, ""))
            if now - looked >= _LOOK_S:
                try:
                    version = _version(os.stat(self.paths[number]))
                except OSError:
                    continue
                if len(self.paths) > 1:
                    version += f" {os.path.abspath(self.paths[number])}"
                self._versions[number] = now, version
            found[number] = version
        return found

    def _count(self, asked: int, hits: int) -> None:
        with self._lock:
            self._asked += asked
            self._hits += hits


def _version(status: os.stat_result) -> str:
    return f"{status.st_size}-{status.st_mtime_ns}"
