"""What a cache holds of one version of one object: a folder of segments, and where in them each span lies.

Every process writes to a segment of its own and reads those of all. Reading needs no lock: a segment only grows, what
its journal names is never changed, and a file that is deleted meanwhile stays readable to whoever has it open.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.storage.cache.disk_quota import DATA, IN_USE, LINES, lock_within, open_file
from aioloader.storage.cache.entries import ENTRY, Entries
from aioloader.storage.cache.journal import LINE_NBYTES, parse_lines
from aioloader.storage.cache.segment import SegmentWriter
from aioloader.storage.local.descriptors import Descriptors, read_into
from aioloader.storage.local.kernel_aio import KernelAioReader

if TYPE_CHECKING:
    from aioloader.foundation.types import Array, IntArray
    from aioloader.storage.cache.disk_quota import DiskQuota

__all__ = ("ObjectCache",)

_OPEN_FILES = 64
_REFRESH_S = 1.0
_TOUCH_S = 60.0
_CHECK_AT = LINE_NBYTES - 4
_PATIENCE_S = 1.0


class ObjectCache:
    """The spans of one version of one object. Safe against other threads and processes.

    Args:
        folder: where they are; made where it is missing.
        label: what stands in the folder for people who look into it.
        room: what keeps the directory within its limit.
        segment_nbytes: a segment that has so many bytes is not continued.

    Raises:
        OSError: the folder cannot be used.
    """

    def __init__(self, folder: str, label: str, room: DiskQuota, segment_nbytes: int) -> None:
        self._folder = folder
        self._room = room
        self._segment_nbytes = segment_nbytes
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._entries = Entries()
        self._stems: list[str] = []
        self._seen: dict[str, tuple[int, int]] = {}  # stem: its number, lines of its journal that were read
        self._writer: SegmentWriter | None = None
        self._descriptors = Descriptors(_OPEN_FILES)
        self._gather = KernelAioReader()
        self._in_use = self._open(label.encode()[:200])
        self._touched = time.monotonic()
        self._refreshed = 0.0
        self._refresh()

    def _open(self, label: bytes) -> int:
        """A descriptor by which everybody sees that the shelf is in use."""
        deadline = time.monotonic() + 10 * _PATIENCE_S
        path = os.path.join(self._folder, IN_USE)
        while True:
            os.makedirs(self._folder, exist_ok=True)
            try:
                fd = open_file(path)
            except FileNotFoundError:  # it is being deleted
                continue
            try:
                # The lock may be that of a file which was deleted while it was waited for.
                if lock_within(fd, fcntl.LOCK_SH, _PATIENCE_S) and os.fstat(fd).st_nlink:
                    if os.fstat(fd).st_size == 0 and self._room.take(np.array([len(label)])).all():
                        os.pwrite(fd, label, 0)
                    os.utime(fd)
                    return fd
                if time.monotonic() > deadline:
                    raise TimeoutError(f"another process keeps {path} locked")
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)

    def close(self) -> None:
        """Close all files; may be called twice."""
        with self._writing:
            writer, self._writer = self._writer, None
            if writer is not None:
                writer.close()
        self._gather.close()
        self._descriptors.close()
        if self._in_use >= 0:
            self._stamp()
            os.close(self._in_use)
            self._in_use = -1

    # -- what there is ---------------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        """Read what was added to the journals since; the lock is held, or nobody else knows the shelf."""
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
            # The size is asked for after the lines were read: those name nothing that came later.
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
        """Row of each span or -1, and what stands in those rows."""
        with self._lock:
            rows = self._entries.find(offset, length)
            if (rows < 0).any() and time.monotonic() - self._refreshed > _REFRESH_S:
                self._refresh()
                rows = self._entries.find(offset, length)
            return rows, self._entries.table[rows]

    def held(self, offset: IntArray) -> IntArray:
        """Bytes of the longest span from each offset on, int64 (n,); 0 where there is none."""
        rows, found = self._find(offset, np.ones(len(offset), np.int64))
        return np.where(rows >= 0, found["length"], 0)

    # -- reading ---------------------------------------------------------------------------------------------------

    def read(self, offset: IntArray, length: IntArray, out: memoryview, place: IntArray) -> tuple[Any, int]:
        """Copy what there is of some spans.

        Args:
            offset, length: int64 (n,), the spans.
            out: writable bytes.
            place: int64 (n,), where in `out` each goes.

        Returns:
            bool (n,), those that were copied (the places of the others may have been written to); and how many spans
            are damaged.
        """
        self._touch()
        rows, found = self._find(offset, length)
        here = rows >= 0
        for segment in np.unique(found["segment"][here]).tolist():
            chosen = np.flatnonzero(here & (found["segment"] == segment))
            chosen = chosen[np.argsort(found["place"][chosen])]
            here[chosen] = self._read_segment(
                segment, found[chosen], rows[chosen], length[chosen], out, place[chosen]
            )
        return here, int(((rows >= 0) & ~here).sum())

    def _read_segment(
        self, segment: int, found: Array, rows: IntArray, length: IntArray, out: memoryview, place: IntArray
    ) -> Any:
        fine = np.zeros(len(rows), bool)
        stem = self._stems[segment]
        try:
            with self._descriptors.borrow(segment, stem + DATA) as fd:
                got = np.full(len(rows), -1, np.int64)
                if self._gather.available and len(rows) > 1:
                    got = self._gather.read(fd, found["place"], length, out, place)
                for item in np.flatnonzero(got != length).tolist():
                    begin = int(place[item])
                    got[item] = read_into(
                        fd, out[begin : begin + int(length[item])], int(found["place"][item])
                    )
                fine[:] = got == length
                for item in np.flatnonzero(fine & ~found["checked"]).tolist():
                    begin = int(place[item])
                    fine[item] = _is_sound(fd, found[item], out[begin : begin + int(length[item])])
        except FileNotFoundError:  # given up by another process
            with self._lock:
                self._entries.remove_segment(segment)
            return fine
        except OSError:
            return fine
        with self._lock:
            self._entries.table["checked"][rows[fine]] = True
            self._entries.remove(rows[~fine])
        for line in found["line"][~fine].tolist():
            _strike_out(stem, line)
        return fine

    def _touch(self) -> None:
        now = time.monotonic()
        if now - self._touched > _TOUCH_S and self._in_use >= 0:
            self._touched = now
            self._stamp()

    def _stamp(self) -> None:
        """Note that the shelf was used now."""
        try:
            os.utime(self._in_use)
        except OSError:
            pass  # the directory cannot be written to any more; what is there is read all the same

    # -- writing ---------------------------------------------------------------------------------------------------

    def write(
        self, offset: IntArray, length: IntArray, data: memoryview, place: IntArray
    ) -> tuple[int, int, int]:
        """Take spans in, as far as there is room.

        Args:
            offset, length: int64 (n,), the spans.
            data: bytes.
            place: int64 (n,), where in `data` each begins.

        Returns:
            the spans that were written, their bytes, and the spans for which there was no room.

        Raises:
            OSError: they cannot be written, as on a full disk; what was written before is sound.
        """
        with self._writing:
            with self._lock:
                new = (self._entries.find(offset, length) < 0) & (length > 0)
            _, first = np.unique(offset, return_index=True)
            new &= np.isin(np.arange(len(offset)), first)
            items = np.flatnonzero(new)
            if not len(items) or self._in_use < 0:
                return 0, 0, 0
            sizes = length[items] + LINE_NBYTES
            may = self._room.take(sizes)
            chosen = items[may]
            done = 0
            try:
                while done < len(chosen):
                    done += self._append(offset, length, data, place, chosen[done:])
            except OSError:
                self._room.give_back(int(sizes[may][done:].sum()))
                raise
            return len(chosen), int(length[chosen].sum()), int((~may).sum())

    def _append(
        self, offset: IntArray, length: IntArray, data: memoryview, place: IntArray, items: IntArray
    ) -> int:
        """Write some of the items to one segment; gives how many."""
        writer = self._ready_writer()
        room = self._segment_nbytes - writer.nbytes
        items = items[: max(1, int(np.searchsorted(np.cumsum(length[items]), room, side="right")))]
        pieces = [
            data[start : start + nbytes]
            for start, nbytes in zip(place[items].tolist(), length[items].tolist(), strict=True)
        ]
        crc = np.array([zlib.crc32(piece) for piece in pieces], np.uint32)
        where, line = writer.append(offset[items], pieces, crc)
        entries = np.zeros(len(items), ENTRY)
        entries["offset"], entries["length"], entries["place"] = offset[items], length[items], where
        entries["crc"], entries["checked"] = crc, True
        entries["line"] = np.arange(line, line + len(items))
        with self._lock:
            number = self._number_of(writer.stem)
            self._seen[writer.stem] = number, writer.lines
            entries["segment"] = number
            self._entries.add(entries)
        return len(items)

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
        """The writer of a segment that is not full and that nobody writes to."""
        try:
            if os.stat(stem + DATA).st_size >= self._segment_nbytes // 2:
                return None
            writer = SegmentWriter(stem, fresh=False)
        except OSError:
            return None
        with self._lock:
            self._read_journal(stem)  # what its last writer added since
        return writer


def _entries(lines: Array, segment: int, numbers: IntArray) -> Array:
    entries = np.zeros(len(lines), ENTRY)
    for name in ("offset", "length", "place", "crc"):
        entries[name] = lines[name]
    entries["segment"], entries["line"] = segment, numbers
    return entries


def _is_sound(fd: int, entry: Any, data: memoryview) -> bool:
    """Whether the bytes of an entry have its checksum; `data` is the beginning of them."""
    if len(data) < int(entry["length"]):
        whole = bytearray(int(entry["length"]))
        if read_into(fd, memoryview(whole), int(entry["place"])) < len(whole):
            return False
        data = memoryview(whole)
    return zlib.crc32(data) == int(entry["crc"])


def _strike_out(stem: str, line: int) -> None:
    """Make a line of a journal unsound for good."""
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
