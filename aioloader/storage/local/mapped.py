"""Local record files in the page cache: nothing is read, worker processes find the records in memory maps.

Rule (docs/design.md, "The path of a sample"): only records that are in the page cache are mapped, so that workers
do not wait for a disk: all of a batch of whose pages at least 7/8 are there, and else the large ones of which 7/8 is.
Their missing pages are announced to the system; a worker that comes before they do waits for them. The loader's
process holds the descriptors and workers inherit them; a worker maps a file when it first needs it. A record is found
by its offset. As with spans that are read, the length that an index implies may be too small: the record's
own header has the real one.

Reading a map behind the end of its file kills the process (SIGBUS), so the file's size is checked each time. Between
the check and the read the file may still be cut, which a loader survives if it is a worker that dies. So the loader's
own thread uses no map: where records need no work, it copies files to slab memory, and takes the records from there.

Slow disks and network file systems are recognized by the measured waiting time. Where reads wait for long, several of
them are made at the same time, and a gap between two records is read along if that takes no longer than another read
would wait.

Source: cachestat(2), Linux 6.5, and linux/mman.h for its structures.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

import aioloader.abc
from aioloader.abc import ByteSource
from aioloader.foundation.descriptors import above_streams, sent_descriptors
from aioloader.foundation.types import Array, IntArray, ItemLocation, ReadPlan, SpanKind, Spans
from aioloader.storage.local.descriptors import open_regular, open_regular_file
from aioloader.storage.records import cut_short, doubtful, exact_shortage, record_extent, wrong_length
from recordio._framing import HEAD_SIZE, MAGIC, MAX_PAYLOAD, unpack_head

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from io import FileIO

    from aioloader.abc import Decoder, SlabMemory
    from aioloader.foundation.types import Slab


_CACHESTAT = 451  # the same on all architectures
_CHECK_S = 1.0
# A check of a large file takes a while: this share of the time, at most.
_CHECK_SHARE = 1 / 50
_fadvise = getattr(os, "posix_fadvise", None)  # not on every POSIX

LEAST_GAP_BYTES = 16 << 10
_SMALL_GAP_BYTES = 64 << 10
_MOST_GAP_BYTES = 1 << 20
_SLOW_READ_S = 5e-4
# A page in memory, or on a fast disk, is read in less time; such a read says nothing about the disk.
_WAITED_S = 2e-4
_MEMORY = 1 / 4
_COPIED_BYTES_PER_S = 1e9


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _Pages(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")
    )


def cached_pages(fd: int, offset: int = 0, nbytes: int = 0) -> int | None:
    """Return the number of pages of a file that are in memory; None where the system does not report it.

    Args:
        fd: the file.
        offset: where to begin.
        nbytes: how far to count, in bytes; 0: to the end of the file.
    """
    if sys.platform != "linux" or sys.maxsize < 2**32:
        return None
    pages = _Pages()
    part = _Range(offset, nbytes)
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    done = call(
        ctypes.c_long(_CACHESTAT),
        ctypes.c_uint(fd),
        ctypes.byref(part),
        ctypes.byref(pages),
        ctypes.c_uint(0),
    )
    return None if done < 0 else int(pages.cached)


def resident(fd: int, offset: int, nbytes: int) -> bool:
    """Return whether a range of a file, at least one byte long, is in memory, at least 7/8 of its pages.

    Missing pages are announced to the system, which reads them without a wait here.
    """
    pages = (offset + nbytes - 1) // mmap.PAGESIZE - offset // mmap.PAGESIZE + 1
    cached = cached_pages(fd, offset, nbytes)
    if cached is None or cached * 8 < pages * 7:
        return False
    if cached < pages:
        read_ahead(fd, offset, nbytes)
    return True


def missing_pages(fd: int) -> IntArray:
    """Return the numbers of the pages of a file that are not in memory, ascending; blocking.

    The file is mapped for the query, but not read. To whom `cached_pages` reports nothing, the kernel reports all pages
    as being there.

    Raises:
        OSError, ValueError: it cannot be mapped.
    """
    with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as mapped:
        states = np.ones(-(-len(mapped) // mmap.PAGESIZE), np.uint8)
        start = np.frombuffer(mapped, np.uint8).ctypes.data
        ctypes.CDLL(None).mincore(
            ctypes.c_void_p(start), ctypes.c_size_t(len(mapped)), ctypes.c_void_p(states.ctypes.data)
        )
    return np.flatnonzero(states & 1 == 0)


def read_ahead(fd: int, offset: int, nbytes: int) -> None:
    """Make the system read a range of a file from the disk into the page cache, without waiting for it."""
    if _fadvise is not None:
        _fadvise(fd, offset, nbytes, os.POSIX_FADV_WILLNEED)


class Residency:
    """Record of what of some files is in the page cache, as of about a second ago.

    Args:
        lists: list missing pages, for `missing_of`.

    Attributes:
        complete: all of them are there; False also where the system does not report it.
        known: the system reports it.
        next_check: time of `time.monotonic` from which `check` is to be called again.
    """

    def __init__(self, lists: bool = False) -> None:
        self.next_check = 0.0
        self.complete = False
        self.known = False
        self._lists = lists
        # Number of the first page of each file, counted through all of them, and of the missing pages.
        self._first: IntArray = np.zeros(1, np.int64)
        self._missing: IntArray | None = None

    def check(self, fds: Sequence[int]) -> None:
        """Query the system about the files. Takes microseconds for each megabyte in memory; from any thread."""
        begin = time.monotonic()
        self.next_check = begin + _CHECK_S  # other threads need not check meanwhile
        cached = [cached_pages(fd) for fd in fds]
        sizes = [os.fstat(fd).st_size for fd in fds]
        self.known = None not in cached
        self.complete = all(
            pages is not None and pages >= -(-size // mmap.PAGESIZE)
            for pages, size in zip(cached, sizes, strict=True)
        )
        self._missing = None
        if self._lists and self.known and not self.complete:
            with suppress(OSError, ValueError):  # a file that is empty by now
                first = np.cumsum([0, *(-(-size // mmap.PAGESIZE) for size in sizes)])
                missing = [start + missing_pages(fd) for start, fd in zip(first.tolist(), fds, strict=False)]
                self._first, self._missing = first, np.concatenate(missing)
        end = time.monotonic()
        self.next_check = end + max(_CHECK_S, (end - begin) / _CHECK_SHARE)

    def missing_of(self, spans: Spans) -> IntArray | None:
        """Return the places of the records with missing pages; None if that is not known, or many pages are missing."""
        if self._missing is None:
            return None
        start = self._first[spans.file]
        low = start + spans.offset // mmap.PAGESIZE
        high = start + (spans.offset + spans.length - 1) // mmap.PAGESIZE
        count = np.searchsorted(self._missing, high, "right") - np.searchsorted(self._missing, low)
        return np.flatnonzero(count) if 8 * count.sum() <= (high - low + 1).sum() else None


class ReadLatency:
    """Moving averages of how long local reads wait. Updated from several threads; a lost update does no harm. Pure.

    Attributes:
        read_s: average seconds that a read waited in the latest calls; 0 before the first.
        ever: reads were slow at some time.
    """

    def __init__(self) -> None:
        self.read_s = 0.0
        self.ever = False
        self._gap = 0.0

    def add(self, seconds: float, count: int, nbytes: int) -> None:
        """Add reads that one thread made one after the other.

        Args:
            seconds: for all of them.
            count: number of reads.
            nbytes: bytes of all; the time of copying them does not count as waiting.
        """
        if count:
            each = max(1e-9, seconds - nbytes / _COPIED_BYTES_PER_S) / count
            self.read_s += (each - self.read_s) * _MEMORY if self.read_s else each
            self.ever = self.ever or self.slow

    @property
    def slow(self) -> bool:
        """Return whether a read waits for half a millisecond or more, or did so a moment ago."""
        return self.read_s > _SLOW_READ_S

    def add_probe(self, first_s: float, rest_s: float, rest_nbytes: int) -> None:
        """Add a read of a range without `read_ahead`.

        Args:
            first_s: seconds for its first page.
            rest_s: seconds for the rest.
            rest_nbytes: bytes of the rest.
        """
        if first_s < _WAITED_S or not rest_nbytes:
            return
        gap = min(_MOST_GAP_BYTES, first_s * rest_nbytes / max(rest_s, 1e-9))
        self._gap += (gap - self._gap) * _MEMORY if self._gap else gap

    def gap_bytes(self, mean_nbytes: float) -> int:
        """Return the longest gap that is read along instead of making a second read, bytes.

        Args:
            mean_nbytes: of the items to read: a gap as long as an item doubles the bytes that are read, at worst.
        """
        return int(max(LEAST_GAP_BYTES, min(self._gap, max(_SMALL_GAP_BYTES, mean_nbytes))))


Failures = list[tuple[int, BaseException]]
T = TypeVar("T")

_MOST_FILES = 16
# Of `memory_limit`, for copies of files.
_COPIED_SHARE = 8
# Filling new slab memory takes 0.64 ms a megabyte, and the loop is held as long.
_PIECE_NBYTES = 1 << 20
# On average; copies of longer records cost more than they save in the first epoch.
_MOST_COPIED_NBYTES = 2 << 10
_ALIGNMENT = 64
_TICK_NS = 20_000_000
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


class FileCopies:
    """Copies of small records in slab memory. All methods may be called from any thread.

    A piece is copied with each batch, and only what is in the page cache, so that no batch waits for the rest or for a
    disk; until all is there the files are read. A change of a file, by its size or the time of the change, ends the use
    of the copies for good, and so does a lack of memory for batches.

    Args:
        memory: takes the copies.
        paths: the files.

    Raises:
        OSError: a file cannot be opened.
    """

    def __init__(self, memory: SlabMemory, paths: Sequence[str]) -> None:
        self._memory = memory
        self._lock = threading.RLock()
        self._slab: Slab | None = None
        self._missing: deque[tuple[int, int, int, int]] = deque()
        self._stamps: list[tuple[int, int]] = []
        self._files: list[FileIO] = []
        try:
            self._files += map(open_regular_file, paths)
        except BaseException:
            self.close()
            raise

    @classmethod
    def of(cls, memory: SlabMemory, paths: Sequence[str]) -> FileCopies | None:
        """Return an object without copies yet; None if the files are not to be copied: too many bytes, or files."""
        if not (hasattr(os, "preadv") and hasattr(os, "RWF_NOWAIT") and 0 < len(paths) <= _MOST_FILES):
            return None
        with suppress(OSError):  # reading the file raises the error
            if sum(map(os.path.getsize, paths)) <= memory.limit // _COPIED_SHARE:
                return cls(memory, paths)
        return None

    def close(self) -> None:
        """End the use of the copies, and free their memory; may be called twice."""
        with self._lock:
            slab, self._slab = self._slab, None
            files, self._files = self._files, []
            for file in files:
                file.close()
            if slab is not None:
                self._memory.reclaim = None
                self._memory.free(slab)

    def payloads(self, decoder: Decoder[bytes], spans: Spans) -> list[bytes] | None:
        """Return the payloads of some records; None if they are to be read; see `ByteSource.copied`."""
        with self._lock:
            if not self._files or not self._ready(spans):
                return None
            beyond = spans.offset + spans.length - self._sizes[spans.file]
            if np.minimum.reduce(spans.offset, initial=0) < 0 or np.maximum.reduce(beyond, initial=0) > 0:
                return None
            memory, start = self._memory.memory, self._starts[spans.file] + spans.offset
            made: list[Any] = decoder.many(memory, start, spans.length)
            rest = [] if all(made) else [place for place, payload in enumerate(made) if payload is None]
            if not rest:
                return made
            # Empty, in several parts, or damaged: then it is read, so that it is named, or read with its real length.
            view = memoryview(memory).toreadonly()
            if wrong_length(view, start[rest], spans.length[rest]):
                return None
            with suppress(Exception):
                for place, low, nbytes in zip(
                    rest, start[rest].tolist(), spans.length[rest].tolist(), strict=True
                ):
                    made[place] = decoder(view[low : low + nbytes], None, ItemLocation())
                return made
            return None

    def _ready(self, spans: Spans) -> bool:
        """Return whether all is copied, and still what the files contain; else copy the next piece."""
        try:
            status = [os.fstat(file.fileno()) for file in self._files]
            stamps = [(each.st_size, each.st_ctime_ns) for each in status]
            if self._slab is None:
                return self._begin(spans, stamps)
            if stamps != self._stamps:
                self.close()
            elif self._missing:
                self._copy_piece()
        except OSError:  # this file system has no reads that do not wait, or the file is gone
            self.close()
        return bool(self._files) and not self._missing

    def _begin(self, spans: Spans, stamps: list[tuple[int, int]]) -> bool:
        # A later change has another time only if this one is not of the present tick of the system's clock.
        if time.time_ns() - max(changed for _, changed in stamps) < _TICK_NS:
            return False
        sizes = [size for size, _ in stamps]
        starts = np.cumsum([0, *(-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes)])
        slab = None
        if len(spans) and spans.length.mean() <= _MOST_COPIED_NBYTES:
            slab = self._memory.allocate(int(starts[-1]), lasting=True)
        if slab is None:
            self.close()
            return False
        self._stamps, self._sizes, self._starts = stamps, np.array(sizes), starts[:-1] + slab.offset
        self._missing = deque(
            (file.fileno(), offset, int(start) + offset, min(_PIECE_NBYTES, size - offset))
            for file, size, start in zip(self._files, sizes, self._starts, strict=True)
            for offset in range(0, size, _PIECE_NBYTES)
        )
        self._memory.reclaim = self.close
        self._slab = slab  # last: if this is interrupted, it begins again
        return False

    def _copy_piece(self) -> None:
        """Copy the next piece, or the part of it that is in the page cache."""
        fd, offset, place, nbytes = self._missing[0]
        with memoryview(self._memory.memory) as memory, memory[place : place + nbytes] as out:
            try:
                got = os.preadv(fd, [out], offset, os.RWF_NOWAIT)
            except BlockingIOError:
                self._missing.rotate(-1)
                return
        if got == nbytes:
            self._missing.popleft()
        else:
            self._missing[0] = fd, offset + got, place + got, nbytes - got


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
        self._residency = Residency(lists=True)
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
        missing = self._residency.missing_of(spans)
        if missing is not None:
            if len(missing):
                await self._source.run_in_thread(self._announce, spans, missing)
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

    def _announce(self, spans: Spans, places: IntArray) -> None:
        fds = self.maps.fds
        for file, offset, nbytes in zip(
            *(part[places].tolist() for part in (spans.file, spans.offset, spans.length)), strict=True
        ):
            read_ahead(fds[file], offset, nbytes)

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
