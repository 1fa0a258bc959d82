"""Local record files in the page cache: nothing is read, worker processes find the records in memory maps.

Rule (docs/design.md, "The path of a sample"): only records that are in the page cache are mapped, so that workers
do not wait for a disk: all records while all of a file is there, and else the large ones of which at least 7/8 is.
Their missing pages are announced to the system; a worker that comes before they do waits for them. The loader's
process holds the descriptors and workers inherit them; a worker maps a file when it first needs it. A record is found
by its offset. As with spans that are read, the length that an index implies may be too small: the record's
own header has the real one.

Reading a map behind the end of its file kills the process (SIGBUS), so the file's size is checked each time.
"""

from __future__ import annotations

import mmap
import os
import time
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

import aioloader.abc
from aioloader.abc import ByteSource
from aioloader.foundation.descriptors import above_streams, sent_descriptors
from aioloader.foundation.types import Array, IntArray, ReadPlan, SpanKind, Spans
from aioloader.storage.local.descriptors import open_regular
from aioloader.storage.local.page_cache import Residency, resident
from aioloader.storage.records import cut_short, doubtful, exact_shortage, record_extent
from recordio._framing import HEAD_SIZE, MAGIC, MAX_PAYLOAD, unpack_head

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Failures = list[tuple[int, BaseException]]
T = TypeVar("T")

_MOST_FILES = 16
# A shorter record is read in the time that it takes to find out whether it is in memory.
_LEAST_CHECKED_NBYTES = 64 << 10


class FileMaps(aioloader.abc.FileMaps):
    """Record files that are read through memory maps. A pickled copy is for a process that inherited the descriptors.

    Args:
        paths: the files, for errors.
        fds: their descriptors.
        sizes: bytes of each that are mapped.
        kind: of the spans, `RECORD` or `EXACT`.
    """

    fds: tuple[int, ...] = ()

    def __init__(
        self, paths: Sequence[str], fds: Sequence[int], sizes: Sequence[int], kind: SpanKind
    ) -> None:
        self.kind = kind
        self.paths = tuple(paths)
        self.fds = tuple(fds)
        self.sizes = tuple(sizes)
        self._maps: dict[int, mmap.mmap] = {}
        self._views: dict[int, memoryview] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return _received_maps, (self.paths, self.fds, self.sizes, self.kind)

    @classmethod
    def open(cls, paths: Sequence[str], kind: SpanKind) -> FileMaps:
        """Open files that other processes will map.

        Args:
            paths: the files.
            kind: of the spans, `RECORD` or `EXACT`.

        Raises:
            OSError: a file cannot be opened or mapped; an empty one cannot.
        """
        fds: list[int] = []
        sizes: list[int] = []
        try:
            for path in paths:
                fds.append(above_streams(open_regular(path)))
                sizes.append(os.fstat(fds[-1]).st_size)
                try:
                    mmap.mmap(fds[-1], sizes[-1], prot=mmap.PROT_READ).close()
                except ValueError as error:
                    raise OSError(f"{path}: {error}") from error
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise
        return cls(paths, fds, sizes, kind)

    def close(self) -> None:
        """Close the descriptors; a map stays as long as a view of it is in use."""
        fds, self.fds = self.fds, ()
        for fd in fds:
            os.close(fd)

    def _map(self, file: int) -> mmap.mmap:
        mapped = self._maps.get(file)
        if mapped is None:
            try:
                mapped = mmap.mmap(self.fds[file], self.sizes[file], prot=mmap.PROT_READ)
            except ValueError:
                mapped = self._map_rest(file)
            self._maps[file] = mapped
            self._views[file] = memoryview(mapped)
        return mapped

    def _map_rest(self, file: int) -> mmap.mmap:
        """Map a file that was truncated after it was opened: the items before the cut can still be read."""
        try:
            return mmap.mmap(self.fds[file], 0, prot=mmap.PROT_READ)
        except ValueError as error:
            raise OSError(f"{self.paths[file]}: {error}") from error

    def _held(self, file: int) -> int:
        """Return the bytes of a mapped file that can be read: a map does not grow with its file again."""
        return min(os.fstat(self.fds[file]).st_size, len(self._map(file)))

    def record(self, file: int, offset: int, length: int) -> memoryview:
        """Return the bytes of a record (with its framing) or of another item, read-only.

        Args:
            file: number of the file.
            offset: where the record begins.
            length: bytes of the record according to the index.

        Raises:
            OSError: the file cannot be read.
            ShortReadError: the file ends inside the item, which is not a record.
            TruncatedRecordError: the file ends inside the record.
            CorruptRecordError: the record has another length and is damaged.
        """
        held = self._held(file)
        exact = self.kind is SpanKind.EXACT
        if offset + length > held:
            shortage = exact_shortage if exact else cut_short
            raise shortage(self.paths[file], offset, length, held - offset)
        view = self._views[file]
        if not exact and length >= HEAD_SIZE:
            magic, word = unpack_head(view, offset)
            # A record in one part has the flag 0, so that the word is its length.
            if magic == MAGIC and (word > MAX_PAYLOAD or (word + 11) & -4 != length):
                length = max(length, self._extent(file, offset, length))
        return view[offset : offset + length]

    def _extent(self, file: int, offset: int, length: int) -> int:
        extent = record_extent(self.fds[file], self.paths[file], offset, length)
        held = self._held(file)
        if offset + extent > held:
            raise cut_short(self.paths[file], offset, extent, held - offset)
        return extent

    def whole(self, file: int, end: IntArray) -> mmap.mmap | None:
        """Return the map of a file, or None if the file no longer reaches as far as `end`, int64 (n,)."""
        return self._map(file) if int(end.max(initial=0)) <= self._held(file) else None


def _received_maps(
    paths: Sequence[str], fds: Sequence[int], sizes: Sequence[int], kind: SpanKind
) -> FileMaps:
    """Return a copy for this process, which has its own numbers of the descriptors."""
    return FileMaps(paths, [sent_descriptors.here(fd) for fd in fds], sizes, kind)


class RecordSource(ByteSource):
    """A byte source of local record files, or files of items of a known length, that reads what is not in memory.

    Attributes:
        kind: of the spans, `RECORD` or `EXACT`.
    """

    kind: SpanKind

    def extents(self, spans: Spans) -> tuple[IntArray, Failures]:
        """Return the lengths of records by their headers, and the records whose length could not be found."""
        raise NotImplementedError

    async def run_in_thread(self, fn: Callable[..., T], *args: Any) -> T:
        """Run a function in one of the source's threads."""
        raise NotImplementedError


class _PartialReads(NamedTuple):
    """The inner source's plan for some items of a batch, and their places in the batch, int64 (m,)."""

    plan: ReadPlan
    places: IntArray


class MappedByteSource(ByteSource):
    """Byte source for an executor that can map files. Records that are not in memory are read by the inner source.

    Args:
        source: reads the files; closed with this one.
        maps: the same files.

    Attributes:
        paths: of the files.
        maps: passed to the executor.
    """

    def __init__(self, source: RecordSource, maps: FileMaps) -> None:
        self.paths = source.paths
        self.maps: FileMaps = maps
        self._source = source
        self._residency = Residency()
        self._closed = False

    @classmethod
    def over(cls, source: RecordSource) -> MappedByteSource | None:
        """Return a source with maps, or None if the files are not to be mapped.

        That is so for files that cannot be mapped, and more than 16 files.
        """
        if not 0 < len(source.paths) <= _MOST_FILES:
            return None
        try:
            return cls(source, FileMaps.open(source.paths, source.kind))
        except OSError:
            return None  # reading the file raises the error

    async def plan(self, spans: Spans) -> ReadPlan:
        if not self._closed and time.monotonic() >= self._residency.next_check:
            await self._source.run_in_thread(self._residency.check, self.maps.fds)
        if self._residency.complete:
            return await self._plan_mapped(spans)
        if not self._residency.known or spans.length.sum() < _LEAST_CHECKED_NBYTES * len(spans):
            return await self._source.plan(spans)
        in_memory = await self._source.run_in_thread(self._in_memory, spans)
        if in_memory.all():
            return await self._plan_mapped(spans)
        if not in_memory.any():
            return await self._source.plan(spans)
        return await self._plan_mixed(spans, in_memory)

    def _usual(self, spans: Spans) -> Array:
        """Return bool (n,): False for a record whose length has to be read before it is mapped."""
        if self.maps.kind is SpanKind.EXACT:
            return np.ones(len(spans), bool)
        flags: Array = (spans.offset >= 0) & ~doubtful(spans.length)
        return flags

    def _in_memory(self, spans: Spans) -> Array:
        """Return a flag for each record: True if it is in memory and its span is usual. Blocking."""
        usual = self._usual(spans)
        fds = self.maps.fds
        for place in np.flatnonzero(usual).tolist():
            fd, offset, length = fds[spans.file[place]], int(spans.offset[place]), int(spans.length[place])
            usual[place] = resident(fd, offset, length)
        return usual

    async def _plan_mixed(self, spans: Spans, in_memory: Array) -> ReadPlan:
        """Map the records that are in memory, at least one, and read the others, at least one."""
        mapped, rest = np.flatnonzero(in_memory), np.flatnonzero(~in_memory)
        reads = await self._source.plan(Spans(spans.file[rest], spans.offset[rest], spans.length[rest]))
        start, length = np.full(len(spans), -1, np.int64), spans.length.copy()
        start[rest], length[rest] = reads.start, reads.length
        return ReadPlan(
            reads.nbytes,
            start,
            length,
            _PartialReads(reads, rest),
            [(int(rest[place]), error) for place, error in reads.failures],
            mapped=mapped,
        )

    async def _plan_mapped(self, spans: Spans) -> ReadPlan:
        length = spans.length
        failures: Failures = []
        if not self._usual(spans).all():
            length, failures = await self._source.run_in_thread(self._source.extents, spans)
        n = len(length)
        return ReadPlan(0, np.full(n, -1, np.int64), length, (), failures, mapped=np.arange(n))

    async def read(self, plan: ReadPlan, out: memoryview) -> Failures:
        if not plan.nbytes:
            return []
        if not len(plan.mapped):
            return await self._source.read(plan, out)
        part: _PartialReads = plan.reads
        failures = await self._source.read(part.plan, out)
        return [(int(part.places[place]), error) for place, error in failures]

    def close(self) -> None:
        self._closed = True
        self._residency.complete = False
        self._source.close()
        self.maps.close()
