"""Local files as a byte source: positional reads of a whole batch in one thread hop, straight into its
memory.

Record files stay open and are read by spans, neighbours merged; whole files (image folders) are opened, read
and closed. What fails is always one item: its error is reported, the others are read all the same.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from aioloader.errors import SpanTooShortError
from aioloader.foundation.types import ReadPlan
from aioloader.storage.layout import Read, lay_out, lay_out_apart
from aioloader.storage.local.descriptors import Descriptors, read_into
from aioloader.storage.local.direct import DirectReads
from aioloader.storage.local.kernel_aio import KernelAioReader
from aioloader.storage.local.read_latency import ReadLatency
from aioloader.storage.local.residency import Residency
from aioloader.storage.local.run_in_threads import run_in_threads
from aioloader.storage.local.whole_files import WholeFiles, announce
from aioloader.storage.records import cut_short, doubtful, no_place, record_extent, unlike
from recordio.errors import ShortReadError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aioloader.foundation.threads import Threads
    from aioloader.foundation.types import IntArray, Spans

__all__ = ("LocalByteSource",)

# To copy so many bytes from memory takes less time than a thread to answer.
_READ_HERE = 1 << 19
_OPEN_FILES = 64
# On a slow file system: parts that a batch is read in at the same time.
_PARTS = 16
_PAGE = 4096
_PROBED_NBYTES = 1 << 18

Failures = list[tuple[int, BaseException]]
T = TypeVar("T")


class LocalByteSource:
    """Bytes of local files; implements `ByteSource` and `BlockingByteSource`.

    May be used by several tasks and threads at once. Can be pickled; the copy opens its files anew.

    Args:
        paths: the files; `Spans.file` counts them.
        whole_files: spans are whole files (length -1), not records.
        threads: most calls that read at a time; further ones wait. Where reads turn out to be slow there are more.
        watch: ask the system how much of a record file is in memory, and read accordingly. That takes microseconds for
            each megabyte that is: too long for who reads a few records only.
        direct: read records past the page cache, where the file system can.
    """

    def __init__(
        self,
        paths: Sequence[str],
        *,
        whole_files: bool,
        threads: int = 4,
        watch: bool = True,
        direct: bool = False,
    ) -> None:
        self.paths = paths
        self.whole_files = whole_files
        self.direct = direct
        self._limit = threads
        self._watch = watch
        self._descriptors = Descriptors(_OPEN_FILES)
        self._gather = KernelAioReader()
        self._direct_reads = DirectReads(self._gather) if direct else None
        self._residencies: dict[int, Residency] = {}
        self._threads: Threads | None = None
        self._many: Threads | None = None
        self._files = WholeFiles(paths)
        self._waits = self._files.waits if whole_files else ReadLatency()
        self._closed = False

    def __reduce__(self) -> tuple[Any, ...]:
        return _remake, (self.paths, self.whole_files, self._limit, self._watch, self.direct)

    def __del__(self) -> None:
        # The threads end by themselves: they hold no reference to this object while they are idle.
        if hasattr(self, "_closed"):
            self.close()

    def close(self) -> None:
        """Close files and threads; may be called twice."""
        self._closed = True
        for threads in (self._threads, self._many):
            if threads is not None:
                threads.close()
        self._threads = self._many = None
        if self._direct_reads is not None:
            self._direct_reads.close()
        self._gather.close()
        self._descriptors.close()

    # -- planning
    # --------------------------------------------------------------------------------------------------

    async def plan(self, spans: Spans) -> ReadPlan:
        """See `ByteSource.plan`. Leaves the event loop's thread only if a file has to be asked for a size."""
        if self.whole_files and self._files.size_waits.slow:
            length = spans.length.copy()
            failures: Failures = []
            parts = [(spans.file, places, length, failures) for places in _split(np.arange(len(spans)))]
            await self._side_by_side(self._files.find_sizes, parts)
            return self._laid_out(spans, length, sorted(failures, key=_place))
        if self._asks_files(spans):
            return await self.aside(self.plan_blocking, spans)
        return self.plan_blocking(spans)

    async def extents(self, spans: Spans) -> tuple[IntArray, Failures]:
        """Bytes of each item, and the failures of items that cannot be read. Leaves the loop's thread as `plan`."""
        if self._asks_files(spans):
            return await self.aside(self._extents, spans)
        return self._extents(spans)

    def _asks_files(self, spans: Spans) -> bool:
        return self.whole_files or bool(doubtful(spans.length).any())

    def _extents(self, spans: Spans) -> tuple[IntArray, Failures]:
        length = spans.length.copy()
        failures: Failures = []
        if self.whole_files:
            self._files.find_sizes(spans.file, np.arange(len(spans)), length, failures)
        else:
            self._check_spans(spans, length, failures)
        failures.sort(key=_place)
        return length, failures

    def plan_blocking(self, spans: Spans) -> ReadPlan:
        """See `BlockingByteSource.plan_blocking`."""
        return self._laid_out(spans, *self._extents(spans))

    def _laid_out(self, spans: Spans, length: IntArray, failures: Failures) -> ReadPlan:
        if not failures and self._is_cached(spans.file):
            nbytes, start, reads = lay_out_apart(spans.file, spans.offset, length)
            return ReadPlan(nbytes, start, length, reads)
        gap = self._waits.gap_bytes(float(length.mean()) if len(length) else 0.0)
        if not failures:
            nbytes, start, reads = lay_out(spans.file, spans.offset, length, max_gap_bytes=gap)
            return ReadPlan(nbytes, start, length, reads)
        fine = np.ones(len(length), bool)
        fine[[place for place, _ in failures]] = False
        start = np.full(len(length), -1, np.int64)
        nbytes, start[fine], reads = lay_out(
            spans.file[fine], spans.offset[fine], length[fine], max_gap_bytes=gap
        )
        length[~fine] = 0
        return ReadPlan(nbytes, start, length, reads, failures)

    def _check_spans(self, spans: Spans, length: IntArray, failures: Failures) -> None:
        bad = (spans.offset < 0) | (length <= 0)
        for place in np.flatnonzero(bad).tolist():
            path, offset = self.paths[int(spans.file[place])], int(spans.offset[place])
            failures.append((place, no_place(path, offset, int(length[place]))))
        for place in np.flatnonzero(doubtful(length) & ~bad).tolist():
            number, offset = int(spans.file[place]), int(spans.offset[place])
            try:
                length[place] = self._extent(number, offset, int(length[place]))
            except (OSError, ValueError, EOFError) as error:
                failures.append((place, error))

    def _extent(self, number: int, offset: int, guess: int) -> int:
        path = self.paths[number]
        with self._descriptors.borrow(number, path) as fd:
            return record_extent(fd, path, offset, guess)

    # -- reading
    # ---------------------------------------------------------------------------------------------------

    async def read(self, plan: ReadPlan, out: memoryview) -> Failures:
        """See `ByteSource.read`; one thread hop, or none for little that is in memory."""
        if self._read_cached(plan, out):
            return []
        if self._closed or not self._waits.slow or len(plan.reads) < 2:
            return await self.aside(self.read_blocking, plan, out)
        parts = [(plan, reads, out) for reads in _split(plan.reads)]
        found = await self._side_by_side(self._read_part, parts)
        return await self.aside(self._checked, plan, out, [failure for part in found for failure in part])

    def _is_cached(self, files: IntArray) -> bool:
        """Whether all items lie in one file that was in memory when the system was last asked."""
        if self.whole_files or self.direct or not len(files) or (files != files[0]).any():
            return False
        residency = self._residencies.get(int(files[0]))
        return residency is not None and residency.complete

    def _read_cached(self, plan: ReadPlan, out: memoryview) -> bool:
        """Read what is in memory, here and without waiting; False if that is not all, or something is to be asked."""
        reads = plan.reads
        gather = self._gather
        if not gather.available or not gather.reads_without_waiting or not 0 < plan.nbytes <= _READ_HERE:
            return False
        if not self._is_cached(reads[:, 0]):
            return False
        number = int(reads[0, 0])
        if self._residencies[number].due or not self._descriptors.holds(number):
            return False
        with self._descriptors.borrow(number, self.paths[number]) as fd:
            got = gather.read(fd, reads[:, 1], reads[:, 2], out, reads[:, 3], wait=False)
        return bool((got == reads[:, 2]).all()) and not unlike(out, plan.start, plan.length)

    def read_blocking(self, plan: ReadPlan, out: memoryview) -> Failures:
        """See `BlockingByteSource.read_blocking`."""
        if self._closed:
            raise RuntimeError("the byte source is closed")
        return self._checked(plan, out, self._read_part(plan, plan.reads, out))

    def _read_part(self, plan: ReadPlan, reads: IntArray, out: memoryview) -> Failures:
        """Some of the reads of a plan."""
        failures: Failures = []
        if self.whole_files:
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
        if not self.whole_files:
            self._report_unlike(plan, out, failures)
        return sorted(failures, key=_place)

    def _read_one(self, plan: ReadPlan, read: Read, out: memoryview, failures: Failures) -> None:
        try:
            got = self._read_span(read, out)
        except OSError as error:
            self._read_apart(plan, read, out, error, failures)
        else:
            if got < read[2]:
                self._report_missing(plan, read, got, failures)

    def _read_spans(self, reads: IntArray, plan: ReadPlan, out: memoryview, failures: Failures) -> None:
        """All spans of one file."""
        if not len(reads):
            return
        number = int(reads[0, 0])
        if self._direct_reads is not None:
            path, (offset, nbytes, place) = self.paths[number], reads[:, 1:].T
            got = self._direct_reads.read(number, path, offset, nbytes, out, place)
            reads = reads[got != nbytes]
            if not len(reads):
                return
        try:
            with self._descriptors.borrow(number, self.paths[number]) as fd:
                self._announce(number, fd, reads)
                begin, count, total = perf_counter(), len(reads), int(reads[:, 2].sum())
                if len(reads) > 1 and self._gather.available:
                    got = self._gather.read(fd, reads[:, 1], reads[:, 2], out, reads[:, 3])
                    # What was not read, or not to its end, is asked for in the ordinary way, which tells why.
                    reads = reads[got != reads[:, 2]]
                for read in _each(reads):
                    self._read_one(plan, read, out, failures)
                self._waits.read(perf_counter() - begin, count, total)
        except OSError as error:  # the file cannot be opened
            failures += [(item, error) for read in _each(reads) for item in _items_of(plan, read)]

    def _announce(self, number: int, fd: int, reads: IntArray) -> None:
        """Have the system fetch from the disk all at once what is then waited for one after the other."""
        if not self._watch:
            return
        residency = self._residencies.setdefault(number, Residency())
        if residency.due:
            residency.look([fd])
            if not residency.complete:
                self._probe(fd, int(reads[0, 1]))
        # Where the system does not tell what is in memory: reads that were slow waited for something.
        if len(reads) > 1 and not residency.complete and (residency.known or self._waits.ever):
            for offset, nbytes in reads[:, 1:3].tolist():
                announce(fd, offset, nbytes)

    def _probe(self, fd: int, offset: int) -> None:
        """Measure how long the file system waits before it reads, and how fast it then is."""
        scratch = memoryview(bytearray(_PROBED_NBYTES))
        begin = perf_counter()
        read_into(fd, scratch[:_PAGE], offset)
        first = perf_counter()
        rest = read_into(fd, scratch[_PAGE:], offset + _PAGE)
        self._waits.probed(first - begin, perf_counter() - first, rest)

    def _read_span(self, read: Read, out: memoryview) -> int:
        number, offset, nbytes, place = read
        with self._descriptors.borrow(number, self.paths[number]) as fd:
            return read_into(fd, out[place : place + nbytes], offset)

    def _read_apart(
        self, plan: ReadPlan, read: Read, out: memoryview, error: OSError, failures: Failures
    ) -> None:
        """After a read failed: its items one by one, because the others may be readable."""
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
                    failures.append((item, cut_short(self.paths[number], alone[1], length, got)))

    def _report_missing(self, plan: ReadPlan, read: Read, got: int, failures: Failures) -> None:
        number, offset, _, place = read
        path = self.paths[number]
        for item in _items_of(plan, read):
            begin = int(plan.start[item]) - place
            length = int(plan.length[item])
            held = max(0, got - begin)
            if held >= length:
                continue
            if self.whole_files:
                message = f"{path} shrank from {length} to {held} bytes while it was read"
                lost: Exception = ShortReadError(message, path=path, offset=0, expected=length, found=held)
            else:
                lost = cut_short(path, offset + begin, length, held)
            failures.append((item, lost))

    def _report_unlike(self, plan: ReadPlan, out: memoryview, failures: Failures) -> None:
        failed = {item for item, _ in failures}
        for item in unlike(out, plan.start, plan.length):
            if item in failed:
                continue
            start, planned = int(plan.start[item]), int(plan.length[item])
            number, offset, _, place = next(
                read for read in _each(plan.reads) if read[3] <= start < read[3] + read[2]
            )
            offset += start - place
            try:
                needed = self._extent(number, offset, planned)
                if needed <= planned:  # nobody knows better
                    continue
                error: Exception = SpanTooShortError(self.paths[number], offset, planned, needed)
            except (OSError, ValueError, EOFError) as own:
                error = own
            failures.append((item, error))

    async def aside(self, fn: Callable[..., T], *args: Any) -> T:
        """Run a function in a thread of the source; on cancellation it is waited for."""
        if self._closed:
            raise RuntimeError("the byte source is closed")
        if self._threads is None:
            from aioloader.foundation.threads import Threads  # brings anyio, which blocking use does not need

            self._threads = Threads(self._limit, "aioloader-read")
        return await self._threads.run(fn, *args)

    async def _side_by_side(self, fn: Callable[..., T], parts: list[tuple[Any, ...]]) -> list[T]:
        if self._closed:
            raise RuntimeError("the byte source is closed")
        if self._many is None:
            from aioloader.foundation.threads import Threads

            self._many = Threads(_PARTS, "aioloader-reads")
        return await run_in_threads(self._many, fn, parts)


def _remake(
    paths: Sequence[str], whole_files: bool, threads: int, watch: bool, direct: bool
) -> LocalByteSource:
    return LocalByteSource(paths, whole_files=whole_files, threads=threads, watch=watch, direct=direct)


def _split(rows: IntArray) -> list[IntArray]:
    """As many parts of neighbours as are read at the same time."""
    return np.array_split(rows, min(_PARTS, max(1, len(rows))))


def _place(failure: tuple[int, BaseException]) -> int:
    return failure[0]


def _each(reads: IntArray) -> Iterator[Read]:
    return map(tuple, reads.tolist())


def _items_of(plan: ReadPlan, read: Read) -> list[int]:
    """Places in the batch of the items that a read covers."""
    place, end = read[3], read[3] + max(read[2], 1)
    items: list[int] = np.flatnonzero((plan.start >= place) & (plan.start < end)).tolist()
    return items
