"""Cached spans of one version of one object: a folder of segments, and the place of each span in them.

Every process writes to its own segment and reads the segments of all. Reading needs no lock: a segment only grows,
bytes that its journal lists never change, and a deleted file stays readable to a process that has it open.
"""

from __future__ import annotations

import os
import threading
import time
import zlib
from typing import TYPE_CHECKING

import numpy as np

from aioloader.storage.cache.disk_quota import DATA, LINES, DiskQuota
from aioloader.storage.cache.entries import ENTRY, Entries
from aioloader.storage.cache.segment import LINE_NBYTES, SegmentWriter, parse_lines
from aioloader.storage.local.descriptors import Descriptors, read_into
from aioloader.storage.local.kernel_aio import KernelAioReader

if TYPE_CHECKING:
    from aioloader.foundation.types import Array, IntArray
    from aioloader.storage.cache.base import PlacedSpans

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
