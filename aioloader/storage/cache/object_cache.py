"""Cached spans of one version of one object: a folder of segments, and the place of each span in them.

Every process writes to its own segment and reads the segments of all. Reading needs no lock: a segment only grows,
bytes that its journal lists never change, and a deleted file stays readable to a process that has it open.

Look-up of spans by offset and length, many at a time. Pure.

Most entries are in arrays sorted by offset; those added since are in a dictionary, which is merged into the arrays when
it has grown. So a million entries take 60 MB, and a batch is looked up by a binary search.

Segment of a cache: a file of bytes, its journal, and their writer. Only one process writes to a segment.

Bytes are appended first and their lines after them. The journal is locked as long as a process writes to the segment,
so that a segment without a writer is recognized, truncated to its last valid line, and continued.

A line of the journal is the place of one span in the file of bytes. It has a fixed size and ends with a check of
itself. A line that was cut short, never written (zeros), or damaged is therefore recognized, and costs only its own
span. A line is written after the bytes that it describes, so the journal of a writer that was killed describes nothing
that was not written; the bytes have a checksum all the same, because a machine that loses power may keep the line and
lose the bytes.

| field | type | meaning |
| --- | --- | --- |
| offset, length | i8 | the span in the object |
| place | i8 | offset of its bytes in the data file |
| crc | u4 | CRC-32 of the bytes |
| check | u4 | of the fields before; odd, so that zeros are never a valid line |
"""

from __future__ import annotations

import os
import threading
import time
import zlib
from typing import TYPE_CHECKING

import numpy as np

from aioloader.foundation.descriptors import try_lock
from aioloader.storage.cache.disk_quota import DATA, LINES, DiskQuota, delete_segment
from aioloader.storage.local.descriptors import Descriptors, read_into
from aioloader.storage.local.kernel_aio import KernelAioReader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import Array, IntArray
    from aioloader.storage.cache.base import PlacedSpans


ENTRY = np.dtype(
    [
        ("offset", "<i8"),
        ("length", "<i8"),  # -1: removed
        ("place", "<i8"),
        ("segment", "<i4"),
        ("line", "<i4"),
        ("crc", "<u4"),
        ("checked", "?"),
    ]
)
"""Offset and length of the span; place of its bytes in segment `segment`, and its line `line` in the journal; the
checksum of its bytes, and whether the bytes were checked."""

_FEW = 1024


class Entries:
    """Table of spans. Of several at one offset the longest counts, of equal ones the last. Not safe against threads.

    A span that turns out to be too short is read again with more bytes; the longer span then serves both lengths.

    Attributes:
        table: one row for each entry, dtype `ENTRY`; more rows than entries.
    """

    def __init__(self) -> None:
        self.table = np.zeros(_FEW, ENTRY)
        self._count = 0
        self._offsets = np.empty(0, np.int64)  # ascending
        self._rows = np.empty(0, np.int64)
        self._recent: dict[int, int] = {}

    def add(self, entries: Array) -> None:
        """Add entries (dtype `ENTRY`)."""
        first, count = self._count, self._count + len(entries)
        if count > len(self.table):
            grown = np.zeros(max(count, 2 * len(self.table)), ENTRY)
            grown[:first] = self.table[:first]
            self.table = grown
        self.table[first:count] = entries
        self._count = count
        if len(entries) > _FEW:
            self._merge(np.arange(first, count))
            return
        length, recent = self.table["length"], self._recent
        for row, (offset, nbytes) in enumerate(
            zip(entries["offset"].tolist(), entries["length"].tolist(), strict=True), first
        ):
            older = recent.get(offset)
            if older is None or nbytes >= length[older]:
                recent[offset] = row
        if len(recent) > _FEW + len(self._rows) // 4:
            self._merge(np.empty(0, np.int64))

    def _merge(self, more: IntArray) -> None:
        recent = np.fromiter(self._recent.values(), np.int64, len(self._recent))
        rows = np.concatenate((self._rows, recent, more))
        rows = rows[self.table["length"][rows] >= 0]
        # By offset, then by length, then by age.
        rows = rows[np.lexsort((rows, self.table["length"][rows], self.table["offset"][rows]))]
        offsets = self.table["offset"][rows]
        last = np.ones(len(rows), bool)
        last[:-1] = offsets[1:] != offsets[:-1]
        self._offsets, self._rows = offsets[last], rows[last]
        self._recent = {}

    def find(self, offset: IntArray, length: IntArray) -> IntArray:
        """Return the row in `table` of an entry that contains each span, int64 (n,); -1 where there is none."""
        held = self.table["length"]
        rows = np.full(len(offset), -1, np.int64)
        if len(self._offsets) and len(offset):
            at = np.minimum(np.searchsorted(self._offsets, offset), len(self._offsets) - 1)
            rows = np.where(self._offsets[at] == offset, self._rows[at], -1)
        if self._recent:
            get = self._recent.get
            newer = np.array([get(key, -1) for key in offset.tolist()], np.int64)
            better = (newer >= 0) & ((rows < 0) | (held[newer] >= held[rows]))
            rows = np.where(better, newer, rows)
        return np.where((rows >= 0) & (held[rows] >= length) & (length > 0), rows, -1)

    def remove(self, rows: IntArray) -> None:
        """Remove entries by their rows."""
        self.table["length"][rows] = -1

    def remove_segment(self, segment: int) -> None:
        """Remove all entries of a segment."""
        live = self.table[: self._count]
        live["length"][live["segment"] == segment] = -1


_MOST_BUFFERS = 512  # in one call; Linux takes 1,024
LINE = np.dtype(
    [("offset", "<i8"), ("length", "<i8"), ("place", "<i8"), ("crc", "<u4"), ("check", "<u4")], align=False
)
LINE_NBYTES = LINE.itemsize

# Odd constants of 64 bits: the fractional parts of the square roots of 2, 3, 5 and 7.
_FACTORS = np.array(
    [0x6A09E667F3BCC909, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1], np.uint64
)
_LENGTH_TURN = np.uint64(29)


def _check(lines: Array) -> Array:
    """Compute the checks, uint32 (n,), odd."""
    mixed = lines["offset"].astype(np.uint64) * _FACTORS[0]
    for name, factor in zip(("length", "place", "crc"), _FACTORS[1:], strict=True):
        mixed ^= mixed >> _LENGTH_TURN
        mixed = (mixed + lines[name].astype(np.uint64)) * factor
    mixed ^= mixed >> np.uint64(32)
    check: Array = mixed.astype(np.uint32) | np.uint32(1)
    return check


def format_lines(offset: IntArray, length: IntArray, place: IntArray, crc: Array) -> bytes:
    """Return the lines of some spans, one after the other.

    Args:
        offset, length, place: int64 (n,), see above.
        crc: uint32 (n,).
    """
    lines = np.empty(len(offset), LINE)
    lines["offset"], lines["length"], lines["place"], lines["crc"] = offset, length, place, crc
    lines["check"] = _check(lines)
    return lines.tobytes()


def parse_lines(data: bytes, data_nbytes: int) -> tuple[Array, Array]:
    """Return the valid lines of a part of a journal.

    Args:
        data: the part, from the beginning of a line; an incomplete line at its end is ignored.
        data_nbytes: bytes of the data file; a line with a place beyond is not valid.

    Returns:
        the lines (dtype `LINE`), and the number of each within the part, int64.
    """
    lines = np.frombuffer(data, LINE, len(data) // LINE_NBYTES)
    valid = lines["check"] == _check(lines)
    valid &= (lines["length"] > 0) & (lines["place"] >= 0)
    # Compared so that no sum can overflow.
    valid &= lines["place"] <= data_nbytes - np.minimum(lines["length"], data_nbytes)
    valid &= lines["length"] <= data_nbytes
    numbers = np.flatnonzero(valid)
    return lines[numbers], numbers


class SegmentWriter:
    """Writer that appends to a segment. Not safe against other threads.

    Args:
        stem: path without suffix.
        new: make the segment; False: continue an existing one.

    Attributes:
        stem: as above.
        lines: lines of the journal.
        nbytes: bytes of the data.

    Raises:
        OSError: a file cannot be made, opened or locked; BlockingIOError if another process writes to the segment.
    """

    def __init__(self, stem: str, *, new: bool) -> None:
        self.stem = stem
        flags = os.O_RDWR | (os.O_CREAT | os.O_EXCL if new else 0)
        self._lines = os.open(stem + LINES, flags, 0o666)
        self._data = -1
        self.nbytes = -1  # not known before the files are open
        try:
            if not try_lock(self._lines):
                raise BlockingIOError(f"{stem} is being written to")
            self._data = os.open(stem + DATA, flags, 0o666)
            self.lines, self.nbytes = self._truncate()
        except BaseException:
            self.close()
            raise

    @classmethod
    def make(cls, folder: str) -> SegmentWriter:
        """Make a segment in a folder. Names sort by age."""
        while True:
            name = f"{time.time_ns():016x}-{os.getpid()}"
            try:
                return cls(os.path.join(folder, name), new=True)
            except FileExistsError:
                continue

    def _truncate(self) -> tuple[int, int]:
        size = os.fstat(self._lines).st_size
        valid, numbers = parse_lines(os.pread(self._lines, size, 0), os.fstat(self._data).st_size)
        lines = size // LINE_NBYTES
        nbytes = int((valid["place"] + valid["length"]).max()) if len(valid) else 0
        os.ftruncate(self._lines, lines * LINE_NBYTES)
        # A line with a place beyond the end would become valid when the file has grown.
        for line in np.setdiff1d(np.arange(lines), numbers).tolist():
            os.pwrite(self._lines, bytes(LINE_NBYTES), line * LINE_NBYTES)
        os.ftruncate(self._data, nbytes)
        return lines, nbytes

    @property
    def deleted(self) -> bool:
        """Return whether another process has deleted the files."""
        return os.fstat(self._data).st_nlink == 0

    def append(self, offset: IntArray, pieces: Sequence[memoryview]) -> tuple[Array, IntArray]:
        """Append spans and their lines.

        Args:
            offset: int64 (n,), of the spans in the object.
            pieces: their bytes.

        Returns:
            the lines (dtype `LINE`), and the number of each in the journal, int64.

        Raises:
            OSError: nothing was written, for example because the disk is full.
        """
        length = np.array([len(piece) for piece in pieces], np.int64)
        place = self.nbytes + np.cumsum(length) - length
        crc = np.array([zlib.crc32(piece) for piece in pieces], np.uint32)
        text = format_lines(offset, length, place, crc)
        first = self.lines
        try:
            _write_all(self._data, pieces, self.nbytes)
            _write_all(self._lines, [memoryview(text)], first * LINE_NBYTES)
        except OSError:
            # So that every line has its bytes; without that, a reader would notice by the checksum.
            os.ftruncate(self._lines, first * LINE_NBYTES)
            os.ftruncate(self._data, self.nbytes)
            raise
        self.lines += len(pieces)
        self.nbytes += int(length.sum())
        return np.frombuffer(text, LINE), np.arange(first, self.lines)

    def close(self) -> None:
        """Close the files; delete them if nothing was written. May be called twice."""
        if self._data >= 0 and self.nbytes == 0:
            delete_segment(self.stem)
        for fd in (self._lines, self._data):
            if fd >= 0:
                os.close(fd)
        self._lines = self._data = -1


def _write_all(fd: int, pieces: Sequence[memoryview], offset: int) -> None:
    left = list(pieces)
    while left:
        written = os.pwritev(fd, left[:_MOST_BUFFERS], offset)
        offset += written
        done = 0
        while done < len(left) and written >= len(left[done]):
            written -= len(left[done])
            done += 1
        del left[:done]
        if written:
            left[0] = left[0][written:]


_OPEN_FILES = 64
_REFRESH_S = 1.0
_TOUCH_S = 60.0
_CHECK_AT = LINE_NBYTES - 4


class ObjectCache:
    """Cached spans of one version of one object. Safe against other threads and processes.

    Args:
        folder: of the segments; made if it is missing.
        label: text written to the folder, for people who look into it.
        quota: of the cache's directory.
        segment_nbytes: a segment of this size is not continued.

    Raises:
        OSError: the folder cannot be used.
    """

    def __init__(self, folder: str, label: str, quota: DiskQuota, segment_nbytes: int) -> None:
        self._folder = folder
        self._quota = quota
        self._segment_nbytes = segment_nbytes
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._entries = Entries()
        self._stems: list[str] = []
        self._seen: dict[
            str, tuple[int, int]
        ] = {}  # stem: number of the segment, lines of its journal that were read
        self._writer: SegmentWriter | None = None
        self._descriptors = Descriptors(_OPEN_FILES)
        self._kernel_aio = KernelAioReader()
        self._in_use = quota.open_object(folder, label.encode()[:200])
        self._touched = time.monotonic()
        self._refreshed = 0.0
        self._refresh()

    def close(self) -> None:
        """Close all files; may be called twice."""
        with self._writing:
            writer, self._writer = self._writer, None
            if writer is not None:
                writer.close()
        self._kernel_aio.close()
        self._descriptors.close()
        if self._in_use >= 0:
            self._update_time()
            os.close(self._in_use)
            self._in_use = -1

    # -- looking up ------------------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        """Read new lines of the journals; the lock is held, or no other thread has the object yet."""
        self._refreshed = time.monotonic()
        mine = self._writer.stem if self._writer is not None else None
        try:
            names = sorted(name for name in os.listdir(self._folder) if name.endswith(LINES))
        except OSError:
            return
        for name in names:
            stem = os.path.join(self._folder, name.removesuffix(LINES))
            if stem != mine:
                self._read_journal(stem)

    def _read_journal(self, stem: str) -> None:
        number, seen = self._seen.get(stem, (-1, 0))
        try:
            if os.stat(stem + LINES).st_size < (seen + 1) * LINE_NBYTES:
                return
            with open(stem + LINES, "rb") as file:
                file.seek(seen * LINE_NBYTES)
                text = file.read()
            # The size is read after the lines: the bytes of all these lines had been written by then.
            lines, numbers = parse_lines(text, os.stat(stem + DATA).st_size)
        except OSError:
            return
        if number < 0:
            number = self._number_of(stem)
        self._seen[stem] = number, seen + len(text) // LINE_NBYTES
        self._entries.add(_entries(lines, number, seen + numbers))

    def _number_of(self, stem: str) -> int:
        if stem not in self._seen:
            self._seen[stem] = len(self._stems), 0
            self._stems.append(stem)
        return self._seen[stem][0]

    def _find(self, offset: IntArray, length: IntArray) -> tuple[IntArray, Array]:
        """Return the row of each span or -1, and the contents of these rows."""
        with self._lock:
            rows = self._entries.find(offset, length)
            if (rows < 0).any() and time.monotonic() - self._refreshed > _REFRESH_S:
                self._refresh()
                rows = self._entries.find(offset, length)
            return rows, self._entries.table[rows]

    def held(self, offset: IntArray) -> IntArray:
        """Return the bytes of the longest span that begins at each offset, int64 (n,); 0 for none."""
        rows, found = self._find(offset, np.ones(len(offset), np.int64))
        return np.where(rows >= 0, found["length"], 0)

    # -- reading ---------------------------------------------------------------------------------------------------

    def read(self, spans: PlacedSpans, out: memoryview) -> tuple[Array, int]:
        """Copy the spans that are in the cache.

        Args:
            spans: in the object, and where to copy them to.
            out: writable bytes.

        Returns:
            bool (n,), the spans that were copied (the places of the others may have been written to); and the number
            of damaged spans.
        """
        now = time.monotonic()
        if now - self._touched > _TOUCH_S and self._in_use >= 0:
            self._touched = now
            self._update_time()
        rows, found = self._find(spans.offset, spans.length)
        here = rows >= 0
        for segment in np.unique(found["segment"][here]).tolist():
            chosen = np.flatnonzero(here & (found["segment"] == segment))
            chosen = chosen[np.argsort(found["place"][chosen])]
            here[chosen] = self._read_segment(rows[chosen], found[chosen], spans.take(chosen), out)
        return here, int(((rows >= 0) & ~here).sum())

    def _read_segment(self, rows: IntArray, found: Array, spans: PlacedSpans, out: memoryview) -> Array:
        """Copy spans of one segment; return those whose bytes are right, bool (n,)."""
        _, length, place = spans
        fine = np.zeros(len(rows), bool)
        segment = int(found["segment"][0])
        stem = self._stems[segment]
        try:
            with self._descriptors.borrow(segment, stem + DATA) as fd:
                got = np.full(len(rows), -1, np.int64)
                if self._kernel_aio.available and len(rows) > 1:
                    reads = np.stack((found["segment"], found["place"], length, place), axis=1)
                    got = self._kernel_aio.read(fd, reads, out)
                for item in np.flatnonzero(got != length).tolist():
                    begin = int(place[item])
                    got[item] = read_into(
                        fd, out[begin : begin + int(length[item])], int(found["place"][item])
                    )
                fine[:] = got == length
                for item in np.flatnonzero(fine & ~found["checked"]).tolist():
                    begin = int(place[item])
                    fine[item] = _is_valid(fd, found[item], out[begin : begin + int(length[item])])
        except FileNotFoundError:  # evicted by another process
            with self._lock:
                self._entries.remove_segment(segment)
            return fine
        except OSError:
            return fine
        with self._lock:
            self._entries.table["checked"][rows[fine]] = True
            self._entries.remove(rows[~fine])
        for line in found["line"][~fine].tolist():
            _invalidate_line(stem, line)
        return fine

    def _update_time(self) -> None:
        """Record that the object was used now."""
        try:
            os.utime(self._in_use)
        except OSError:
            pass  # the directory can no longer be written to; reading still works

    # -- writing ---------------------------------------------------------------------------------------------------

    def write(self, spans: PlacedSpans, data: memoryview) -> tuple[int, int, int]:
        """Add the spans that are missing, while there is space.

        Args:
            spans: in the object, and where their bytes are.
            data: bytes.

        Returns:
            the number of spans that were written, their bytes, and the number of spans for which there was no space.

        Raises:
            OSError: a span cannot be written, for example because the disk is full; earlier ones are valid.
        """
        offset, length, _ = spans
        with self._writing:
            with self._lock:
                new = (self._entries.find(offset, length) < 0) & (length > 0)
            _, first = np.unique(offset, return_index=True)
            new &= np.isin(np.arange(len(offset)), first)
            items = np.flatnonzero(new)
            if not len(items) or self._in_use < 0:
                return 0, 0, 0
            sizes = length[items] + LINE_NBYTES
            may = self._quota.take(sizes)
            chosen = items[may]
            done = 0
            try:
                while done < len(chosen):
                    done += self._append(spans.take(chosen[done:]), data)
            except OSError:
                self._quota.release(int(sizes[may][done:].sum()))
                raise
            return len(chosen), int(length[chosen].sum()), int((~may).sum())

    def _append(self, spans: PlacedSpans, data: memoryview) -> int:
        """Write the first spans to one segment, as many as it takes; return their number."""
        writer = self._ready_writer()
        space = self._segment_nbytes - writer.nbytes
        count = max(1, int(np.searchsorted(np.cumsum(spans.length), space, side="right")))
        offset, length, place = (column[:count] for column in spans)
        pieces = [
            data[start : start + nbytes]
            for start, nbytes in zip(place.tolist(), length.tolist(), strict=True)
        ]
        lines, numbers = writer.append(offset, pieces)
        with self._lock:
            number = self._number_of(writer.stem)
            self._seen[writer.stem] = number, writer.lines
            entries = _entries(lines, number, numbers)
            entries["checked"] = True
            self._entries.add(entries)
        return len(pieces)

    def _ready_writer(self) -> SegmentWriter:
        writer = self._writer
        if writer is not None and writer.nbytes < self._segment_nbytes and not writer.deleted:
            return writer
        if writer is not None:
            self._writer = None
            writer.close()
        with self._lock:
            self._refresh()
            stems = list(self._stems)
        for stem in stems:
            self._writer = self._continued(stem)
            if self._writer is not None:
                return self._writer
        self._writer = SegmentWriter.make(self._folder)
        return self._writer

    def _continued(self, stem: str) -> SegmentWriter | None:
        """Return a writer of an existing segment; None if it is half full or another process writes to it."""
        try:
            if os.stat(stem + DATA).st_size >= self._segment_nbytes // 2:
                return None
            writer = SegmentWriter(stem, new=False)
        except OSError:
            return None
        with self._lock:
            self._read_journal(stem)  # lines that its last writer added since
        return writer


def _entries(lines: Array, segment: int, numbers: IntArray) -> Array:
    entries = np.zeros(len(lines), ENTRY)
    for name in ("offset", "length", "place", "crc"):
        entries[name] = lines[name]
    entries["segment"], entries["line"] = segment, numbers
    return entries


def _is_valid(fd: int, entry: Array, data: memoryview) -> bool:
    """Return whether the bytes of an entry have its checksum; `data` is the beginning of them."""
    if len(data) < int(entry["length"]):
        whole = bytearray(int(entry["length"]))
        if read_into(fd, memoryview(whole), int(entry["place"])) < len(whole):
            return False
        data = memoryview(whole)
    return zlib.crc32(data) == int(entry["crc"])


def _invalidate_line(stem: str, line: int) -> None:
    """Make a line of a journal permanently invalid."""
    try:
        fd = os.open(stem + LINES, os.O_WRONLY)
    except OSError:
        return
    try:
        os.pwrite(fd, bytes(4), line * LINE_NBYTES + _CHECK_AT)
    except OSError:
        pass
    finally:
        os.close(fd)
