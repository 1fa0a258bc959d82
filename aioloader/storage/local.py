"""Local files as a byte source: positional reads of a whole batch in one thread hop, straight into its
memory.

Record files stay open and are read by spans, neighbours merged; whole files (image folders) are opened, read
and closed. What fails is always one item: its error is reported, the others are read all the same.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from aioloader._types import ReadPlan
from aioloader.errors import SpanTooShortError
from aioloader.storage.descriptors import Descriptors, check_regular, open_regular, read_into
from aioloader.storage.gather import Gather
from aioloader.storage.layout import Read, lay_out, lay_out_apart
from aioloader.storage.records import cut_short, no_place, record_extent, unlike
from aioloader.storage.residency import Residency
from recordio._framing import HEAD_SIZE
from recordio.errors import ShortReadError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aioloader._threads import Threads
    from aioloader._types import IntArray, Spans

__all__ = ("LocalByteSource",)

_MAX_GAP_BYTES = 16 * 1024
# To copy so many bytes from memory takes less time than a thread to answer.
_READ_HERE = 1 << 19
_OPEN_FILES = 64
# A span that an index gives is a guess. Above this size, and where no record fits, the record's own heads are
# asked first, so that an index with few lines does not make us read everything between them.
_TRUSTED_SPAN_BYTES = 8 << 20
_MAX_FILE_BYTES = 1 << 30

Failures = list[tuple[int, BaseException]]
T = TypeVar("T")


class LocalByteSource:
    """Bytes of local files; implements `ByteSource` and `BlockingByteSource`.

    May be used by several tasks and threads at once. Can be pickled; the copy opens its files anew.

    Args:
        paths: the files; `Spans.file` counts them.
        whole_files: spans are whole files (length -1), not records.
        threads: most calls that read at a time; further ones wait.
        watch: ask the system how much of a record file is in memory, and read accordingly. That takes microseconds for
            each megabyte that is: too long for who reads a few records only.
    """

    def __init__(
        self, paths: Sequence[str], *, whole_files: bool, threads: int = 4, watch: bool = True
    ) -> None:
        self.paths = paths
        self.whole_files = whole_files
        self._limit = threads
        self._watch = watch
        self._descriptors = Descriptors(_OPEN_FILES)
        self._gather = Gather()
        self._residencies: dict[int, Residency] = {}
        self._threads: Threads | None = None
        self._closed = False

    def __reduce__(self) -> tuple[Any, ...]:
        return _remake, (self.paths, self.whole_files, self._limit, self._watch)

    def __del__(self) -> None:
        # The threads end by themselves: they hold no reference to this object while they are idle.
        if hasattr(self, "_closed"):
            self.close()

    def close(self) -> None:
        """Close files and threads; may be called twice."""
        self._closed = True
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.close()
        self._gather.close()
        self._descriptors.close()

    # -- planning
    # --------------------------------------------------------------------------------------------------

    async def plan(self, spans: Spans) -> ReadPlan:
        """See `ByteSource.plan`. Leaves the event loop's thread only if a file has to be asked for a size."""
        if self._asks_files(spans):
            return await self.aside(self.plan_blocking, spans)
        return self.plan_blocking(spans)

    async def extents(self, spans: Spans) -> tuple[IntArray, Failures]:
        """Bytes of each item, and the failures of items that cannot be read. Leaves the loop's thread as `plan`."""
        if self._asks_files(spans):
            return await self.aside(self._extents, spans)
        return self._extents(spans)

    def _asks_files(self, spans: Spans) -> bool:
        return self.whole_files or bool(_doubtful(spans.length).any())

    def _extents(self, spans: Spans) -> tuple[IntArray, Failures]:
        length = spans.length.copy()
        failures: Failures = []
        if self.whole_files:
            self._find_sizes(spans, length, failures)
        else:
            self._check_spans(spans, length, failures)
        failures.sort(key=lambda failure: failure[0])
        return length, failures

    def plan_blocking(self, spans: Spans) -> ReadPlan:
        """See `BlockingByteSource.plan_blocking`."""
        length, failures = self._extents(spans)
        if not failures and self._is_cached(spans.file):
            nbytes, start, reads = lay_out_apart(spans.file, spans.offset, length)
            return ReadPlan(nbytes, start, length, reads)
        if not failures:
            nbytes, start, reads = lay_out(spans.file, spans.offset, length, max_gap_bytes=_MAX_GAP_BYTES)
            return ReadPlan(nbytes, start, length, reads)
        fine = np.ones(len(length), bool)
        fine[[place for place, _ in failures]] = False
        start = np.full(len(length), -1, np.int64)
        nbytes, start[fine], reads = lay_out(
            spans.file[fine], spans.offset[fine], length[fine], max_gap_bytes=_MAX_GAP_BYTES
        )
        length[~fine] = 0
        return ReadPlan(nbytes, start, length, reads, failures)

    def _find_sizes(self, spans: Spans, length: IntArray, failures: Failures) -> None:
        for place, number in enumerate(spans.file.tolist()):
            path = self.paths[number]
            try:
                status = os.stat(path)
                check_regular(status, path)
                if status.st_size > _MAX_FILE_BYTES:
                    raise OSError(errno.EFBIG, f"{status.st_size} bytes are too many for one sample", path)
                length[place] = status.st_size
            except OSError as error:
                failures.append((place, error))

    def _check_spans(self, spans: Spans, length: IntArray, failures: Failures) -> None:
        bad = (spans.offset < 0) | (length <= 0)
        for place in np.flatnonzero(bad).tolist():
            path, offset = self.paths[int(spans.file[place])], int(spans.offset[place])
            failures.append((place, no_place(path, offset, int(length[place]))))
        for place in np.flatnonzero(_doubtful(length) & ~bad).tolist():
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
        return await self.aside(self.read_blocking, plan, out)

    def _is_cached(self, files: IntArray) -> bool:
        """Whether all items lie in one file that was in memory when the system was last asked."""
        if self.whole_files or not len(files) or (files != files[0]).any():
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
        failures: Failures = []
        if self.whole_files:
            for read in _each(plan.reads):
                self._read_one(self._read_whole, plan, read, out, failures)
        else:
            files = plan.reads[:, 0]
            for reads in np.split(plan.reads, np.flatnonzero(files[1:] != files[:-1]) + 1):
                self._read_spans(reads, plan, out, failures)
            self._report_unlike(plan, out, failures)
        failures.sort(key=lambda failure: failure[0])
        return failures

    def _read_one(
        self,
        read_one: Callable[[Read, memoryview], int],
        plan: ReadPlan,
        read: Read,
        out: memoryview,
        failures: Failures,
    ) -> None:
        try:
            got = read_one(read, out)
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
        try:
            with self._descriptors.borrow(number, self.paths[number]) as fd:
                self._announce(number, fd, reads)
                if len(reads) > 1 and self._gather.available:
                    got = self._gather.read(fd, reads[:, 1], reads[:, 2], out, reads[:, 3])
                    # What was not read, or not to its end, is asked for in the ordinary way, which tells why.
                    reads = reads[got != reads[:, 2]]
                for read in _each(reads):
                    self._read_one(self._read_span, plan, read, out, failures)
        except OSError as error:  # the file cannot be opened
            failures += [(item, error) for read in _each(reads) for item in _items_of(plan, read)]

    def _announce(self, number: int, fd: int, reads: IntArray) -> None:
        """Have the system fetch from the disk all at once what is then waited for one after the other."""
        if not self._watch:
            return
        residency = self._residencies.setdefault(number, Residency())
        if residency.due:
            residency.look([fd])
        if len(reads) > 1 and residency.known and not residency.complete:
            for offset, nbytes in reads[:, 1:3].tolist():
                os.posix_fadvise(fd, offset, nbytes, os.POSIX_FADV_WILLNEED)

    def _read_span(self, read: Read, out: memoryview) -> int:
        number, offset, nbytes, place = read
        with self._descriptors.borrow(number, self.paths[number]) as fd:
            return read_into(fd, out[place : place + nbytes], offset)

    def _read_whole(self, read: Read, out: memoryview) -> int:
        number, _, nbytes, place = read
        fd = open_regular(self.paths[number])
        try:
            # A file that has grown since it was planned is read as far as planned.
            return read_into(fd, out[place : place + nbytes], 0)
        finally:
            os.close(fd)

    def _read_apart(
        self, plan: ReadPlan, read: Read, out: memoryview, error: OSError, failures: Failures
    ) -> None:
        """After a read failed: its items one by one, because the others may be readable."""
        number, offset, _, place = read
        items = _items_of(plan, read)
        if len(items) == 1 or self.whole_files:
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
            from aioloader._threads import Threads  # brings anyio, which blocking use does not need

            self._threads = Threads(self._limit, "aioloader-read")
        return await self._threads.run(fn, *args)


def _remake(paths: Sequence[str], whole_files: bool, threads: int, watch: bool) -> LocalByteSource:
    return LocalByteSource(paths, whole_files=whole_files, threads=threads, watch=watch)


def _each(reads: IntArray) -> Iterator[Read]:
    return map(tuple, reads.tolist())


def _items_of(plan: ReadPlan, read: Read) -> list[int]:
    """Places in the batch of the items that a read covers."""
    place, end = read[3], read[3] + max(read[2], 1)
    items: list[int] = np.flatnonzero((plan.start >= place) & (plan.start < end)).tolist()
    return items


def _doubtful(length: IntArray) -> Any:
    """Which lengths are no length of a record, or too great to be read without asking."""
    return (length > _TRUSTED_SPAN_BYTES) | (length < HEAD_SIZE)
