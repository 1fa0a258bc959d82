"""Byte source of local files: reads a whole batch by position in one thread hop, directly into its memory.

Record files stay open and are read by spans, neighbours merged; whole files (image folders) are opened, read and
closed. A failure concerns one item only: its error is reported, and the other items are read.

Reads that bypass the page cache (O_DIRECT), for data much larger than memory, which would evict other pages.

The system requires offset, length and memory in whole blocks. So each range is widened to blocks, all of them are read
into aligned memory at once, and the requested bytes are copied from there. Ranges that the file system refuses are read
in the ordinary way.

Reader of files that are one sample each: it gets their sizes, opens, reads and closes them.

On a slow file system each of these steps waits. So the source splits a batch into parts that run concurrently, and
several files are opened and read ahead before the first of them is read.
"""

from __future__ import annotations

import errno
import logging
import mmap
import os
from collections import deque
from functools import partial
from operator import itemgetter
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from aioloader.errors import SpanTooShortError, single
from aioloader.foundation.types import IntArray, ReadPlan, SpanKind, Spans
from aioloader.storage.layout import Read, lay_out, plan_apart
from aioloader.storage.local.descriptors import Descriptors, check_regular, open_regular_file, read_into
from aioloader.storage.local.kernel_aio import KernelAioReader
from aioloader.storage.local.mapped import (
    Failures,
    FileCopies,
    MappedByteSource,
    ReadLatency,
    RecordSource,
    Residency,
    read_ahead,
)
from aioloader.storage.records import (
    check_spans,
    cut_short,
    doubtful,
    exact_shortage,
    record_extent,
    wrong_length,
)
from recordio.errors import ShortReadError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from io import FileIO

    from aioloader.abc import Decoder, SlabMemory
    from aioloader.foundation.threads import Threads


_logger = logging.getLogger(__name__)

BLOCK = 4096
"""Bytes; a multiple of the logical block of every common disk."""

_FLAG = getattr(os, "O_DIRECT", 0)
_AT_ONCE_NBYTES = 32 << 20
_OPEN_DIRECT = 64


class DirectReads:
    """Reader of files that bypasses the page cache; used from any thread.

    Args:
        reader: reads many ranges at once.
    """

    def __init__(self, reader: KernelAioReader) -> None:
        self._reader = reader
        self._descriptors = Descriptors(_OPEN_DIRECT, flags=_FLAG)
        self._idle: deque[mmap.mmap] = deque()
        self._refused = not _FLAG

    def close(self) -> None:
        """Close the files; may be called twice."""
        self._descriptors.close()
        self._idle.clear()

    def read(self, path: str, reads: IntArray, out: memoryview) -> IntArray:
        """Read ranges of a file.

        Args:
            path: of the file.
            reads: int64 (n, 4), columns as in `aioloader.storage.layout.Read`; all of the same file.
            out: writable bytes.

        Returns:
            int64 (n,), bytes read of each; fewer than requested where a read was refused or the file ends.
        """
        got = np.full(len(reads), -1, np.int64)
        if self._refused or not self._reader.available or not len(reads):
            return got
        try:
            with self._descriptors.borrow(int(reads[0, 0]), path) as fd:
                for part in _parts(reads[:, 2]):
                    got[part] = self._read_part(fd, reads[part], out)
        except OSError as error:
            # The ordinary read reports other errors, such as a missing file.
            if error.errno == errno.EINVAL:
                self._refused = True
                _logger.warning(
                    "%s: this file system has no direct reads; the loader uses ordinary reads", path
                )
        return got

    def _read_part(self, fd: int, reads: IntArray, out: memoryview) -> IntArray:
        _, offset, nbytes, place = reads.T
        begin = offset & -BLOCK
        size = -(-(offset + nbytes) // BLOCK) * BLOCK - begin
        where = np.cumsum(size) - size
        scratch = self._borrow(int(size.sum()))
        try:
            with memoryview(scratch) as memory:
                read = self._reader.read(fd, np.stack((reads[:, 0], begin, size, where), axis=1), memory)
                got: IntArray = np.clip(read - (offset - begin), -1, nbytes)
                first = where + offset - begin
                for at, held, to in zip(first.tolist(), got.tolist(), place.tolist(), strict=True):
                    if held > 0:
                        out[to : to + held] = memory[at : at + held]
        finally:
            self._idle.append(scratch)
        return got

    def _borrow(self, nbytes: int) -> mmap.mmap:
        """Return memory of at least `nbytes` bytes that begins at a page."""
        try:
            scratch = self._idle.pop()
        except IndexError:
            scratch = None
        return scratch if scratch is not None and len(scratch) >= nbytes else mmap.mmap(-1, max(nbytes, 1))


def _parts(nbytes: IntArray) -> Iterator[slice]:
    """Iterate over slices of at most 32 MiB, or of one range that is larger."""
    ends = np.cumsum(nbytes)
    low = 0
    while low < len(nbytes):
        done = int(ends[low - 1]) if low else 0
        high = max(low + 1, int(np.searchsorted(ends, done + _AT_ONCE_NBYTES, side="right")))
        yield slice(low, high)
        low = high


_MAX_FILE_BYTES = 1 << 30
_OPEN_AHEAD = 8


class WholeFiles:
    """Blocking reader of whole files; used from several threads at once.

    Args:
        paths: the files.

    Attributes:
        latency: of reads.
        size_latency: of queries for a size.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self.latency, self.size_latency = ReadLatency(), ReadLatency()

    def find_sizes(
        self, file: IntArray, places: IntArray, length: IntArray, failures: list[tuple[int, BaseException]]
    ) -> None:
        """Query the sizes of some items.

        Args:
            file: int64 (n,), number of each item's file.
            places: int64 (m,), numbers of the items to query.
            length: int64 (n,), receives the sizes.
            failures: receives (place, error) of items that cannot be read.
        """
        begin = perf_counter()
        for place, number in zip(places.tolist(), file[places].tolist(), strict=True):
            try:
                length[place] = sample_status(self._paths[number]).st_size
            except OSError as error:
                failures.append((place, error))
        self.size_latency.add(perf_counter() - begin, len(places), 0)

    def read(self, reads: IntArray, out: memoryview) -> Iterator[tuple[Read, int | OSError]]:
        """Read files.

        Args:
            reads: int64 (n, 4), see `aioloader.storage.layout.Read`; of a file that has grown, the planned bytes are
                read.
            out: memory.

        Yields:
            each read, and the number of its bytes or its error.
        """
        for low in range(0, len(reads), _OPEN_AHEAD):
            yield from self._read(list(map(tuple, reads[low : low + _OPEN_AHEAD].tolist())), out)

    def _read(self, reads: list[Read], out: memoryview) -> Iterator[tuple[Read, int | OSError]]:
        begin = perf_counter()
        ahead: dict[int, FileIO] = {}
        try:
            if self.latency.slow:
                self._open_ahead(reads, ahead)
            for read in reads:
                number, _, nbytes, place = read
                try:
                    with (
                        ahead.pop(place) if place in ahead else open_regular_file(self._paths[number]) as file
                    ):
                        held = read_into(file.fileno(), out[place : place + nbytes], 0)
                except OSError as error:
                    yield read, error
                else:
                    yield read, held
        finally:
            for file in ahead.values():
                file.close()
        self.latency.add(perf_counter() - begin, len(reads), sum(nbytes for _, _, nbytes, _ in reads))

    def _open_ahead(self, reads: list[Read], opened: dict[int, FileIO]) -> None:
        for number, _, nbytes, place in reads:
            try:
                opened[place] = open_regular_file(self._paths[number])
            except OSError:
                continue  # the read reports it
            read_ahead(opened[place].fileno(), 0, nbytes)


def sample_status(path: str) -> os.stat_result:
    """Return the status of a file that is one sample.

    Raises:
        OSError: the file cannot be queried, is not a regular file, or is too large.
    """
    status = os.stat(path)
    check_regular(status, path)
    if status.st_size > _MAX_FILE_BYTES:
        raise OSError(errno.EFBIG, f"{status.st_size} bytes are too many for one sample", path)
    return status


# Copying this many bytes from memory takes less time than a hop to a thread.
_READ_HERE = 1 << 19
_OPEN_FILES = 64
# On a slow file system: parts of a batch that are read at the same time.
_PARTS = 16
_PAGE = 4096
_PROBED_NBYTES = 1 << 18

T = TypeVar("T")


class LocalByteSource(RecordSource):
    """Byte source of local files.

    May be used by several tasks and threads at once. Can be pickled; the copy opens the files again.

    Args:
        paths: the files; `Spans.file` counts them.
        kind: of the spans.
        threads: most calls that read at a time; further ones wait. Slow reads use more threads.
        watch: check how much of a record file is in memory, and read accordingly. That takes microseconds for each
            megabyte in memory: too long for reading only a few records.
        direct: bypass the page cache when reading records, if the file system supports it.
    """

    fetches = blocks = True
    _closed = True  # until it is completely made

    def __init__(
        self,
        paths: Sequence[str],
        *,
        kind: SpanKind,
        threads: int = 4,
        watch: bool = True,
        direct: bool = False,
    ) -> None:
        self.paths = paths
        self.kind = kind
        self.direct = direct
        self._thread_count = threads
        self._watch = watch
        self._descriptors = Descriptors(_OPEN_FILES)
        self._kernel_aio = KernelAioReader()
        self._direct_reads = DirectReads(self._kernel_aio) if direct else None
        self._residencies: dict[int, Residency] = {}
        self._copies: FileCopies | None = None
        self._threads: Threads | None = None
        self._part_threads: Threads | None = None
        self._files = WholeFiles(paths)
        self._latency = self._files.latency if kind is SpanKind.FILE else ReadLatency()
        self._closed = False

    def __reduce__(self) -> tuple[Any, ...]:
        make = partial(
            LocalByteSource,
            kind=self.kind,
            threads=self._thread_count,
            watch=self._watch,
            direct=self.direct,
        )
        return make, (self.paths,)

    def __del__(self) -> None:
        # The threads end by themselves: they hold no reference to this object while they are idle.
        if not self._closed:
            self.close()

    def close(self) -> None:
        self._closed = True
        for threads in (self._threads, self._part_threads):
            if threads is not None:
                threads.close()
        self._threads = self._part_threads = None
        if self._direct_reads is not None:
            self._direct_reads.close()
        if self._copies is not None:
            self._copies.close()
        self._kernel_aio.close()
        self._descriptors.close()

    def ranges(self) -> LocalByteSource:
        return LocalByteSource(self.paths, kind=SpanKind.EXACT, watch=False)

    def mapped(self) -> MappedByteSource | None:
        """Return a source that maps the same files and closes this one; None for whole files and direct reads too."""
        return None if self.kind is SpanKind.FILE or self.direct else MappedByteSource.over(self)

    def copied(
        self, memory: SlabMemory, decoder: Decoder[bytes]
    ) -> Callable[[Spans], list[bytes] | None] | None:
        if self.kind is not SpanKind.RECORD or self.direct:
            return None
        self._copies = FileCopies.of(memory, self.paths)
        return None if self._copies is None else partial(self._copies.payloads, decoder)

    # -- planning ------------------------------------------------------------------------------------------------------

    async def plan(self, spans: Spans) -> ReadPlan:
        """Return the plan; uses a thread only if sizes of files or headers of records have to be read."""
        if self.kind is SpanKind.FILE and self._files.size_latency.slow:
            length = spans.length.copy()
            failures: Failures = []
            parts = [(spans.file, places, length, failures) for places in _split(np.arange(len(spans)))]
            await self._run_parts(self._files.find_sizes, parts)
            return self._laid_out(spans, length, sorted(failures, key=itemgetter(0)))
        if self.kind is SpanKind.FILE or (self.kind is SpanKind.RECORD and doubtful(spans.length).any()):
            return await self.run_in_thread(self.plan_blocking, spans)
        return self.plan_blocking(spans)

    def extents(self, spans: Spans) -> tuple[IntArray, Failures]:
        """Return the bytes of each item, and the failures of items that cannot be read. Blocking."""
        length = spans.length.copy()
        failures: Failures = []
        if self.kind is SpanKind.FILE:
            self._files.find_sizes(spans.file, np.arange(len(spans)), length, failures)
        elif self.kind is SpanKind.RECORD:
            for place, number, offset, guess in check_spans(spans, self.paths, failures):
                try:
                    length[place] = self._extent(number, offset, guess)
                except (OSError, ValueError, EOFError) as error:
                    failures.append((place, error))
        failures.sort(key=itemgetter(0))
        return length, failures

    def plan_blocking(self, spans: Spans) -> ReadPlan:
        return self._laid_out(spans, *self.extents(spans))

    def _laid_out(self, spans: Spans, length: IntArray, failures: Failures) -> ReadPlan:
        if not failures and self._is_cached(spans.file):
            return plan_apart(spans, length)
        gap = self._latency.gap_bytes(float(length.mean()) if len(length) else 0.0)
        failed = [place for place, _ in failures]
        fine: Any = np.delete(np.arange(len(length)), failed) if failed else slice(None)
        start = np.full(len(length), -1, np.int64)
        nbytes, start[fine], reads = lay_out(
            spans.file[fine], spans.offset[fine], length[fine], max_gap_bytes=gap
        )
        if failed:
            length[failed] = 0
        return ReadPlan(nbytes, start, length, reads, failures)

    def _extent(self, number: int, offset: int, guess: int) -> int:
        path = self.paths[number]
        with self._descriptors.borrow(number, path) as fd:
            return record_extent(fd, path, offset, guess)

    # -- reading -------------------------------------------------------------------------------------------------------

    async def read(self, plan: ReadPlan, out: memoryview) -> Failures:
        """Read with one thread hop, or with none for a few bytes that are in memory."""
        if self._read_cached(plan, out):
            return []
        if self._closed or not self._latency.slow or len(plan.reads) < 2:
            return await self.run_in_thread(self.read_blocking, plan, out)
        parts = [(plan, reads, out) for reads in _split(plan.reads)]
        found = await self._run_parts(self._read_part, parts)
        return await self.run_in_thread(
            self._checked, plan, out, [failure for part in found for failure in part]
        )

    def _is_cached(self, files: IntArray) -> bool:
        """Return whether all items are in one file that was in memory at the last check."""
        if self.kind is SpanKind.FILE or self.direct or not len(files) or (files != files[0]).any():
            return False
        residency = self._residencies.get(int(files[0]))
        return residency is not None and residency.complete

    def _read_cached(self, plan: ReadPlan, out: memoryview) -> bool:
        """Read from memory, in this thread and without waiting; False if that is not possible for every item."""
        reads = plan.reads
        kernel_aio = self._kernel_aio
        if (
            not kernel_aio.available
            or not kernel_aio.reads_without_waiting
            or not 0 < plan.nbytes <= _READ_HERE
        ):
            return False
        if not self._is_cached(reads[:, 0]):
            return False
        number = int(reads[0, 0])
        if monotonic() >= self._residencies[number].next_check or not self._descriptors.holds(number):
            return False
        with self._descriptors.borrow(number, self.paths[number]) as fd:
            got = kernel_aio.read(fd, reads, out, wait=False)
        if not (got == reads[:, 2]).all():
            return False
        return self.kind is not SpanKind.RECORD or not wrong_length(out, plan.start, plan.length)

    def read_blocking(self, plan: ReadPlan, out: memoryview) -> Failures:
        if self._closed:
            raise RuntimeError("the byte source is closed")
        return self._checked(plan, out, self._read_part(plan, plan.reads, out))

    def _read_part(self, plan: ReadPlan, reads: IntArray, out: memoryview) -> Failures:
        """Make some of the reads of a plan."""
        failures: Failures = []
        if self.kind is SpanKind.FILE:
            for read, got in self._files.read(reads, out):
                if isinstance(got, OSError):
                    failures += [(item, got) for item in _items_of(plan, read)]
                elif got < read[2]:
                    self._report_missing(plan, read, got, failures)
        else:
            files = reads[:, 0]
            for part in np.split(reads, np.flatnonzero(files[1:] != files[:-1]) + 1):
                self._read_spans(part, plan, out, failures)
        return failures

    def _checked(self, plan: ReadPlan, out: memoryview, failures: Failures) -> Failures:
        if self.kind is SpanKind.RECORD:
            self._report_wrong_lengths(plan, out, failures)
        return sorted(failures, key=itemgetter(0))

    def _read_one(self, plan: ReadPlan, read: Read, out: memoryview, failures: Failures) -> None:
        try:
            got = self._read_span(read, out)
        except OSError as error:
            self._read_apart(plan, read, out, error, failures)
        else:
            if got < read[2]:
                self._report_missing(plan, read, got, failures)

    def _read_spans(self, reads: IntArray, plan: ReadPlan, out: memoryview, failures: Failures) -> None:
        """Make reads of one file."""
        if not len(reads):
            return
        number = int(reads[0, 0])
        if self._direct_reads is not None:
            got = self._direct_reads.read(self.paths[number], reads, out)
            reads = reads[got != reads[:, 2]]
            if not len(reads):
                return
        try:
            with self._descriptors.borrow(number, self.paths[number]) as fd:
                residency = self._residency(number, fd, reads)
                begin, count, total = perf_counter(), len(reads), int(reads[:, 2].sum())
                several = len(reads) > 1 and self._kernel_aio.available
                if residency is not None and residency.known and not residency.complete and several:
                    # Ranges in memory need no announcement.
                    reads = self._read_together(fd, reads, out, wait=False)
                self._read_ahead(residency, fd, reads)
                if several:
                    # Incomplete reads are made again in the ordinary way, which reports the error.
                    reads = self._read_together(fd, reads, out)
                for read in _each(reads):
                    self._read_one(plan, read, out, failures)
                self._latency.add(perf_counter() - begin, count, total)
        except OSError as error:  # the file cannot be opened
            failures += [(item, error) for read in _each(reads) for item in _items_of(plan, read)]

    def _read_together(self, fd: int, reads: IntArray, out: memoryview, *, wait: bool = True) -> IntArray:
        """Make reads with one system call; return those that were not completed. See `KernelAioReader.read`."""
        if not len(reads) or not (wait or self._kernel_aio.reads_without_waiting):
            return reads
        rest: IntArray = reads[self._kernel_aio.read(fd, reads, out, wait=wait) != reads[:, 2]]
        return rest

    def _residency(self, number: int, fd: int, reads: IntArray) -> Residency | None:
        """Return how much of a file is in memory, checked now and then; None if that is not watched."""
        if not self._watch:
            return None
        residency = self._residencies.setdefault(number, Residency())
        if monotonic() >= residency.next_check:
            residency.check([fd])
            if not residency.complete:
                self._probe(fd, int(reads[0, 1]))
        return residency

    def _read_ahead(self, residency: Residency | None, fd: int, reads: IntArray) -> None:
        """Make the system read all ranges from the disk at once, before this thread waits for one after the other."""
        # Where the system does not report the pages in memory, slow reads show that they waited for a disk.
        if residency is None or residency.complete or not (residency.known or self._latency.ever):
            return
        if len(reads) > 1:
            for offset, nbytes in reads[:, 1:3].tolist():
                read_ahead(fd, offset, nbytes)

    def _probe(self, fd: int, offset: int) -> None:
        """Measure how long the file system waits before it reads, and how fast it reads then."""
        scratch = memoryview(bytearray(_PROBED_NBYTES))
        begin = perf_counter()
        read_into(fd, scratch[:_PAGE], offset)
        first = perf_counter()
        rest = read_into(fd, scratch[_PAGE:], offset + _PAGE)
        self._latency.add_probe(first - begin, perf_counter() - first, rest)

    def _read_span(self, read: Read, out: memoryview) -> int:
        number, offset, nbytes, place = read
        with self._descriptors.borrow(number, self.paths[number]) as fd:
            return read_into(fd, out[place : place + nbytes], offset)

    def _read_apart(
        self, plan: ReadPlan, read: Read, out: memoryview, error: OSError, failures: Failures
    ) -> None:
        """Read the items of a failed read one by one, because some may be readable."""
        number, offset, _, place = read
        items = _items_of(plan, read)
        if len(items) == 1:
            failures += [(item, error) for item in items]
            return
        for item in items:
            start, length = int(plan.start[item]), int(plan.length[item])
            alone = (number, offset + start - place, length, start)
            try:
                got = self._read_span(alone, out)
            except OSError as own:
                failures.append((item, own))
            else:
                if got < length:
                    failures.append((item, self._shortage(number, alone[1], length, got)))

    def _report_missing(self, plan: ReadPlan, read: Read, got: int, failures: Failures) -> None:
        number, offset, _, place = read
        for item in _items_of(plan, read):
            begin = int(plan.start[item]) - place
            length = int(plan.length[item])
            held = max(0, got - begin)
            if held < length:
                failures.append((item, self._shortage(number, offset + begin, length, held)))

    def _shortage(self, number: int, offset: int, needed: int, held: int) -> Exception:
        """Return the error for an item of which the file has only some bytes.

        Args:
            number: of the file.
            offset: where the item begins.
            needed: bytes of the item.
            held: bytes of it that the file has.
        """
        path = self.paths[number]
        if self.kind is SpanKind.RECORD:
            return cut_short(path, offset, needed, held)
        if self.kind is SpanKind.FILE:
            message = f"{path} shrank from {needed} to {held} bytes while it was read"
            return ShortReadError(message, path=path, offset=0, expected=needed, found=held)
        return exact_shortage(path, offset, needed, held)

    def _report_wrong_lengths(self, plan: ReadPlan, out: memoryview, failures: Failures) -> None:
        failed = {item for item, _ in failures}
        for item in wrong_length(out, plan.start, plan.length):
            if item in failed:
                continue
            start, planned = int(plan.start[item]), int(plan.length[item])
            number, offset, _, place = next(
                read for read in _each(plan.reads) if read[3] <= start < read[3] + read[2]
            )
            offset += start - place
            try:
                needed = self._extent(number, offset, planned)
                if needed <= planned:  # the header is no better than the index
                    continue
                error: Exception = SpanTooShortError(self.paths[number], offset, planned, needed)
            except (OSError, ValueError, EOFError) as own:
                error = own
            failures.append((item, error))

    async def run_in_thread(self, fn: Callable[..., T], *args: Any) -> T:
        """Run a function in a thread of the source. On cancellation it returns when the function has ended."""
        if self._closed:
            raise RuntimeError("the byte source is closed")
        if self._threads is None:
            # Imports anyio, which blocking use does not need.
            from aioloader.foundation.threads import Threads

            self._threads = Threads(self._thread_count, "aioloader-read")
        return await self._threads.run(fn, *args)

    async def _run_parts(self, fn: Callable[..., T], parts: list[tuple[Any, ...]]) -> list[T]:
        """Run `fn(*part)` for every part concurrently; return the results in order. Cancelled like `run_in_thread`."""
        if self._closed:
            raise RuntimeError("the byte source is closed")
        import anyio

        from aioloader.foundation.threads import Threads

        threads = self._part_threads = self._part_threads or Threads(_PARTS, "aioloader-reads")
        results: dict[int, T] = {}

        async def run(number: int, part: tuple[Any, ...]) -> None:
            results[number] = await threads.run(fn, *part)

        try:
            async with anyio.create_task_group() as tasks:
                for number, part in enumerate(parts):
                    tasks.start_soon(run, number, part)
        except BaseExceptionGroup as group:
            raise single(group) from None
        return [results[number] for number in range(len(parts))]


def _split(rows: IntArray) -> list[IntArray]:
    """Split rows into the parts that are read at the same time, neighbours together."""
    return np.array_split(rows, min(_PARTS, max(1, len(rows))))


def _each(reads: IntArray) -> Iterator[Read]:
    return map(tuple, reads.tolist())


def _items_of(plan: ReadPlan, read: Read) -> list[int]:
    """Return the places in the batch of the items that a read covers."""
    place, end = read[3], read[3] + max(read[2], 1)
    items: list[int] = np.flatnonzero((plan.start >= place) & (plan.start < end)).tolist()
    return items
