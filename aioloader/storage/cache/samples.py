"""Samples that are kept for later epochs: one file that all processes of a host use.

    header    what the file is, the most bytes it may have, where the next sample goes
    table     a row for each item: which item it was, where its sample is, a checksum
    samples   one behind the other

A sample is written first, then its row, last the row's state, so that a reader finds a whole sample or none, whenever a
process is killed. Nothing is evicted and no row is written twice: once the limit is reached, what is kept stays. It is
reached when less is left than a sample has on average: a larger one is left out, and others follow. A row that turns
out to be wrong is discarded, and its sample made again in each epoch.

The file is a memory file, which other processes open by its descriptor in ``/proc`` and which ends with the last of
them, or a named one. Header and table are read and written by calls, not through a map: a file that somebody cuts, or a
full disk, is then a short answer or an error, not a signal that kills the process. A named file may also be cut while
its samples are read: only worker processes, which are replaced, map those, and all others copy them. What was cut off
reads as zeros once the file grows again, so a sample ends with a word that is not zero. A memory file cannot be cut.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import mmap
import os
import pickle
import struct
import sys
import threading
import time
import weakref
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aioloader.errors import SampleCacheWarning
from aioloader.foundation.checksum import checksum
from aioloader.foundation.descriptors import keep_size, try_lock_byte, unlock_byte
from aioloader.foundation.forks import ForkGuard
from aioloader.foundation.stacks import warn_caller

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioloader.foundation.types import Array, IntArray

LAYOUT = "samples-1"
"""Name and version of the layout; the first part of the names of files in a folder."""

# Header: magic and token; whether samples are added; a number that changes when a row is discarded; the room.
_MAGIC = b"aioloader kept samples\0\1"
_TOKEN = struct.Struct("<24s16s")
_FULL, _FULL_PLACE = struct.Struct("<q"), 40
_DISCARDS_PLACE = 48
_ROOM_PLACE = 56
_TABLE_START = 4096
_ROW = struct.Struct("<QqqII")
_STATE = struct.Struct("<I")
_STATE_PLACE = 28
_ROWS = np.dtype(
    [("identity", "<u8"), ("offset", "<i8"), ("nbytes", "<i8"), ("checksum", "<u4"), ("state", "<u4")]
)
_EMPTY, _KEPT, _DISCARDED = range(3)
_NO_ROW = _ROW.pack(0, 0, 0, 0, _DISCARDED)
_OPEN, _LIMIT, _FAILED, _SOME_LEFT_OUT = range(4)
_ALIGN = 64
# The file grows by so much at a time, which costs no memory before it is written.
_GROWTH = 64 << 20
# The end of a sample: number of its buffers, bytes of its pickle, shape of its image, and a word that is not zero.
_FRAME = struct.Struct("<IIIIII")
_WHOLE = 0x656C6F68
_ALONE = None
_LENGTH = struct.Struct("<Q")
# Bytes of the file that are locked: one for changes of the header, one by all who use the file, one for each item in
# the making. Locks are those of an open file: threads exclude one another, and a process that ends holds none.
_HEADER_LOCK, _USE_LOCK, _ITEM_LOCKS = 0, 1, 1 << 40
# A process that is stopped keeps its locks: after this time another does without the lock, and what it was for, and no
# process waits again.
_PATIENCE_S = 30.0
_MOST_PARTS = 1000  # that the system takes in one call
_NO_MEMORY = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM, errno.ETIMEDOUT}


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGN) * _ALIGN


# -- samples as bytes --------------------------------------------------------------------------------------------------


def framed(sample: Any) -> list[Any]:
    """Return a sample as buffers that are to be written one behind the other.

    An image that is a sample, or its first element, is not pickled: it is found in less time then.

    Raises:
        Exception: it cannot be pickled.
    """
    arrays: list[pickle.PickleBuffer] = []
    alone = type(sample) is not tuple
    image: Any = sample if alone else sample[0] if sample else None
    shape = (0, 0, 0)
    if is_image(image):
        shape = image.shape
        arrays.append(pickle.PickleBuffer(image))
        sample = _ALONE if alone else sample[1:]
    _Pickler(pickled := io.BytesIO(), protocol=5, buffer_callback=arrays.append).dump(sample)
    head = pickled.getvalue()
    bodies = [each.raw() for each in arrays]
    parts: list[Any] = []
    for body in bodies:
        parts.append(body)
        if padding := _aligned(body.nbytes) - body.nbytes:
            parts.append(bytes(padding))
    end = head + b"".join(_LENGTH.pack(body.nbytes) for body in bodies)
    end += bytes(_aligned(len(end) + _FRAME.size) - len(end) - _FRAME.size)
    parts.append(end + _FRAME.pack(len(bodies), len(head), *shape, _WHOLE))
    return parts


def is_image(value: Any) -> bool:
    """Return True for what images are once decoded: uint8 (height, width, channels), contiguous, not empty."""
    if type(value) is not np.ndarray or value.dtype != np.uint8 or value.ndim != 3:
        return False
    return bool(value.size and value.flags.c_contiguous)


class _Pickler(pickle.Pickler):
    """Pickler of arrays as buffers, with their axes in the order that they have in memory.

    Sums of floats depend on this order. Without it arrays that are not contiguous would be pickled with copies.
    """

    def reducer_override(self, value: Any) -> Any:
        if type(value) is not np.ndarray or not value.size or value.dtype.hasobject or value.flags.forc:
            return NotImplemented
        order = sorted(range(value.ndim), key=lambda axis: -abs(value.strides[axis]))
        return np.transpose, (np.ascontiguousarray(value.transpose(order)), np.argsort(order).tolist())


def unframed(frame: memoryview, *, own: bool) -> Any:
    """Return a sample from the bytes of `framed`; its image is a view of them.

    Args:
        frame: the bytes.
        own: the other arrays are copies, which may be written to; else they are views, read-only if the bytes are.

    Raises:
        ValueError: the bytes are not whole.
        Exception: it cannot be unpickled.
    """
    count, nbytes, *shape, whole = _FRAME.unpack_from(frame, len(frame) - _FRAME.size)
    if whole != _WHOLE:
        raise ValueError("its end is missing")
    # The lengths of the bodies are behind the pickle, whose place follows from them: found from the end.
    size = _aligned(nbytes + count * _LENGTH.size + _FRAME.size)
    head = len(frame) - size
    lengths = struct.unpack_from(f"<{count}Q", frame, head + nbytes)
    image, place, first = None, 0, 0
    if shape[0]:
        image, first = np.ndarray(shape, np.uint8, frame), 1
        place = _aligned(image.nbytes)
    bodies: list[Any] = []
    for length in lengths[first:]:
        body = frame[place : place + length]
        bodies.append(bytearray(body) if own else body)
        place += _aligned(length)
    sample = pickle.loads(frame[head : head + nbytes], buffers=bodies)
    if image is None:
        return sample
    return image if sample is _ALONE else (image, *sample)


def checksum_of(data: Any, item: int, identity: int, name: str) -> int:
    """Return a checksum of a sample's bytes and of whose they are; never 0."""
    whose = struct.pack("<QQQI", item, identity, len(data), checksum(data)) + name.encode()
    return zlib.crc32(whose) or 1


# -- files -------------------------------------------------------------------------------------------------------------


class OpenFile:
    """An open file, which is closed with this object: kept samples have no other end.

    Args:
        fd: its descriptor.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.guard = ForkGuard()
        weakref.finalize(self, os.close, fd).atexit = False

    def again(self) -> OpenFile:
        """Return the same file opened again, with separate locks; its name may be that of another file now."""
        return OpenFile(_open(f"/proc/self/fd/{self.fd}"))


def _open(path: str, flags: int = 0, mode: int = 0o600) -> int:
    return os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK | flags, mode)


class _PerThread(threading.local):
    opened: OpenFile | None = None


@contextlib.contextmanager
def _locked(fd: int, place: int) -> Iterator[bool]:
    """Lock one byte of a file, which need not be there; the value is False if another one keeps the lock too long."""
    deadline, wait = time.monotonic() + _PATIENCE_S, 0.0002
    while not (got := try_lock_byte(fd, place)) and time.monotonic() < deadline:
        time.sleep(wait)  # to wait without an end is the only other way
        wait = min(2 * wait, 0.02)
    try:
        yield got
    finally:
        if got:
            unlock_byte(fd, place)


class _Room(NamedTuple):
    """Room as in a header, with a checksum: a sample written over another would not be noticed."""

    items: int
    limit: int
    end: int
    kept: int

    @classmethod
    def of(cls, fd: int) -> _Room | None:
        """Return what is in a file's header; None if it is damaged."""
        data = b""
        with contextlib.suppress(OSError):  # a bad disk
            data = os.pread(fd, 36, _ROOM_PLACE)
        if len(data) < 36 or zlib.crc32(data[:32]) != int.from_bytes(data[32:], "little"):
            return None
        return cls(*struct.unpack("<qqqq", data[:32]))

    def write(self, fd: int) -> None:
        data = struct.pack("<qqqq", *self)
        os.pwrite(fd, data + zlib.crc32(data).to_bytes(4, "little"), _ROOM_PLACE)


class SampleFile:
    """Kept samples of the items of a set. All methods may be called from any thread; a pickled copy opens it again.

    A pickled copy that can no longer open the file keeps nothing, and warns of that.

    Args:
        path: of the file, for messages.
        opened: the file.
        checked: samples are checked when this process first reads them, and copied, except in worker processes.
        maps: samples may be read through a map of the file.
    """

    def __init__(self, path: str, opened: OpenFile, *, checked: bool, maps: bool) -> None:
        self._use(path, opened, checked=checked, maps=maps)

    def _use(self, path: str, opened: OpenFile, *, checked: bool, maps: bool) -> None:
        self.path = path
        self._file = opened
        self._fd = opened.fd
        self._checks = checked
        self._maps = maps
        self._thread = _PerThread()
        self._warned: set[str] = set()
        room = _Room.of(self._fd)
        self.items = 0 if room is None else room.items
        self._samples_start = _samples_start(self.items)
        self._data = memoryview(b"")
        # The CRC-32 of the row of each sample that was checked.
        self._seen = np.zeros(self.items if checked else 0, np.uint32)
        # Rows that are known to be kept, and the number of discards then.
        self._known, self._discards = np.zeros(self.items, bool), b""
        # Samples that this process does not add: they are larger than the room that is left, or none are added.
        self._left_out = np.zeros(self.items, bool)
        # The number of discards, and of samples that were not kept any more then.
        self._lost = bytes(8), 0
        if checked:  # in use, so that no other process deletes the file
            try_lock_byte(self._fd, _USE_LOCK, shared=True)

    def __getstate__(self) -> dict[str, Any]:
        return {
            "path": self.path,
            "fd": f"/proc/{os.getpid()}/fd/{self._fd}",
            "token": os.pread(self._fd, _TOKEN.size, 0),
            "checked": self._checks,
            "pid": os.getpid(),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        checked, reason = state["checked"], "it is another file now"
        maps = not checked or state["pid"] != os.getpid()
        # The descriptor is that of another file on another host, or once its process has ended.
        for path in ([state["path"]] if checked else []) + [state["fd"]]:
            try:
                opened = OpenFile(_open(path))
                if os.pread(opened.fd, _TOKEN.size, 0) == state["token"]:
                    self._use(state["path"], opened, checked=checked, maps=maps)
                    return
            except OSError as error:
                reason = str(error)
        self._nothing(state["path"], reason)

    def _nothing(self, path: str, reason: str) -> None:
        """Keep nothing: a file without bytes answers everything that way."""
        self._use(path, OpenFile(_open(os.devnull)), checked=True, maps=False)
        self.warn(f"{path}: no samples are kept: {reason}")

    @classmethod
    def none(cls, path: str, reason: str) -> SampleFile:
        """Return a file that keeps nothing, and warn of the reason."""
        found = cls.__new__(cls)
        found._nothing(path, reason)
        return found

    def _own_fd(self) -> int:
        """Return the descriptor of this thread, whose locks are its own; a fork shares those of its parent."""
        found = self._thread.opened
        if found is None or found.guard.forked:
            found = self._thread.opened = self._file.again()
        return found.fd

    @classmethod
    def in_memory(cls, opened: OpenFile, *, items: int, limit: int) -> SampleFile:
        """Return the samples in a memory file; whoever opens it first makes it empty ones.

        Args:
            opened: as `new_memory_file` returns it.
            items: number of items.
            limit: most bytes of the file.
        """
        path = "memory"
        again = opened.again()
        with _locked(again.fd, _HEADER_LOCK) as locked:
            if not locked:
                return cls.none(path, "another process keeps the memory locked")
            if not os.fstat(again.fd).st_size:
                if _samples_start(items) > limit:
                    return cls.none(path, _too_small(items, limit))
                try:
                    _begin(again.fd, items, limit)
                except OSError as error:
                    return cls.none(path, str(error))
                keep_size(again.fd)
        return cls(path, opened, checked=False, maps=True)

    @classmethod
    def in_folder(
        cls, folder: str, *, name: str, version: str, identities: IntArray, limit: int
    ) -> SampleFile:
        """Return the file of a set in a folder; an empty one if there is none, or it cannot be used.

        Files of other versions of the same set that no process uses are deleted. Without room on the disk nothing is
        kept.

        Args:
            folder: made if it is missing.
            name: of the set, at most 64 characters.
            version: of its files and of what makes the samples.
            identities: uint64 (items,), see `find`.
            limit: most bytes of the file; that of an existing one becomes this one.

        Raises:
            OSError: the folder cannot be written to, or the file belongs to another user.
        """
        key = hashlib.sha256(version.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        start = f"{LAYOUT}-{name}-"
        path = os.path.join(folder, f"{start}{key}")
        if _samples_start(len(identities)) > limit:
            return cls.none(path, _too_small(len(identities), limit))
        try:
            os.makedirs(folder, exist_ok=True)
            lock = OpenFile(_open(os.path.join(folder, f"{LAYOUT}.lock"), os.O_CREAT))
            with _locked(lock.fd, _HEADER_LOCK) as locked:
                if not locked:
                    raise TimeoutError(errno.ETIMEDOUT, "another process keeps the folder locked", folder)
                for other in os.listdir(folder):
                    if other.startswith(start) and other != os.path.basename(path):
                        _delete_unused(os.path.join(folder, other))
                opened = _usable(path, identities)
                if opened is None:
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(path)
                    opened = OpenFile(_open(path, os.O_CREAT | os.O_EXCL))
                    try:
                        _begin(opened.fd, len(identities), limit)
                    except OSError:
                        os.unlink(path)
                        raise
                found = cls(path, opened, checked=True, maps=False)
            fd = found._own_fd()
            with _locked(fd, _HEADER_LOCK) as locked:
                room = _Room.of(fd)
                if locked and room is not None:
                    room._replace(limit=limit).write(fd)
                    os.pwrite(fd, _FULL.pack(_OPEN), _FULL_PLACE)  # what was in the way may be gone
        except OSError as error:
            if error.errno in _NO_MEMORY:
                return cls.none(path, str(error))
            raise
        return found

    # -- reading -----------------------------------------------------------------------------------------------------

    def _read(self, nbytes: int, place: int) -> bytes:
        """Return bytes of the header or the table; fewer than asked for if they cannot be read."""
        try:
            return os.pread(self._fd, nbytes, place)
        except OSError as error:
            self.warn(f"{self.path}: kept samples cannot be read: {error}")
            return b""

    def _row(self, item: int) -> bytes:
        if item >= self.items:
            return _NO_ROW
        found = self._read(_ROW.size, _TABLE_START + item * _ROW.size)
        return found if len(found) == _ROW.size else _NO_ROW

    def kept(self, items: IntArray, identities: IntArray) -> Array:
        """Return which items are kept, bool (n,); what is found to be wrong later is discarded then.

        Args:
            items, identities: see `find`; those of an item are always the same.
        """
        if not self.items:
            return np.zeros(len(items), bool)
        discards = self._read(8, _DISCARDS_PLACE)
        if discards != self._discards:
            self._discards = discards
            self._known[:] = False
        found: Array = self._known[items]
        for place in np.flatnonzero(~found).tolist():
            of, *_, state = _ROW.unpack(self._row(int(items[place])))
            found[place] = state == _KEPT and of == int(identities[place])
        self._known[items[found]] = True
        return found

    def find(self, item: int, identity: int, *, own: bool = False, own_image: bool = False) -> Any:
        """Return the sample of an item, its arrays as read-only views; `MISSING` if it is not kept.

        Args:
            item: its number.
            identity: 64 bits that are others where the item's data are others.
            own: its arrays are the caller's, but for an image that is the sample or its first element.
            own_image: that image is the caller's, too.
        """
        row = self._row(item)
        of, offset, nbytes, expected, state = _ROW.unpack(row)
        if state != _KEPT or of != identity:
            return MISSING
        frame, reason = None, "it is not in the file"
        try:
            frame = self._frame(offset, nbytes, own_image)
        except OSError as error:
            reason = str(error)
        if frame is not None:
            mark = zlib.crc32(row) if self._checks else 0
            if mark and self._seen[item] != mark:
                if checksum_of(frame, item, identity, os.path.basename(self.path)) == expected:
                    self._seen[item] = mark
                else:
                    frame, reason = None, "its checksum is wrong"
        if frame is not None:
            try:
                return unframed(frame, own=own)
            except Exception as error:  # also of an object whose class is another one now
                reason = f"{type(error).__name__}: {error}"
        if self._row(item) != row:  # it was being written, or discarded
            return self.find(item, identity, own=own, own_image=own_image)
        self.discard(item)
        self.warn(
            f"{self.path}: kept samples are damaged, and made again in each epoch until the file is deleted: "
            f"item {item}: {reason}"
        )
        return MISSING

    def _frame(self, offset: int, nbytes: int, own: bool) -> memoryview | None:
        """Return the bytes of a sample; None if they are not in the file."""
        end, data = offset + nbytes, self._data
        if not self._samples_start <= offset < end or nbytes % _ALIGN or offset % _ALIGN:
            return None
        if self._checks or end > len(data):  # a memory file cannot be cut
            size = os.fstat(self._fd).st_size
            if end > size:
                return None
        if own or not self._maps:
            copy = np.empty(nbytes, np.uint8).data
            return copy if os.preadv(self._fd, [copy], offset) == nbytes else None
        if end > len(data):
            # Maps that are replaced live as long as views of them.
            data = self._data = memoryview(mmap.mmap(self._fd, size, prot=mmap.PROT_READ))
        return data[offset:end]

    def discard(self, item: int) -> None:
        """Discard a kept sample: it is made again in each epoch from now on."""
        with contextlib.suppress(OSError):  # the file was cut, and the disk is full
            os.pwrite(self._fd, _STATE.pack(_DISCARDED), _TABLE_START + item * _ROW.size + _STATE_PLACE)
            os.pwrite(self._fd, os.urandom(8), _DISCARDS_PLACE)

    def warn(self, text: str) -> None:
        """Issue a `SampleCacheWarning` the first time that this process has this reason."""
        reason = text.partition(": item ")[0]
        if reason not in self._warned:
            self._warned.add(reason)
            warn_caller(text, SampleCacheWarning)

    # -- writing -----------------------------------------------------------------------------------------------------

    @property
    def fills(self) -> bool:
        """Return True if samples are still added."""
        return self._full() in (_OPEN, _SOME_LEFT_OUT)

    @property
    def full(self) -> bool:
        """Return True if a sample did not fit, or none are added any more."""
        return self._full() != _OPEN

    @property
    def failed(self) -> bool:
        """Return True if no samples are added since one could not be written."""
        return self._full() == _FAILED

    def _full(self) -> int:
        return int.from_bytes(self._read(_FULL.size, _FULL_PLACE) or b"\xff", "little")

    def adds(self, item: int) -> bool:
        """Return True if the sample of an item that is not kept is still added."""
        if item >= self.items or self._left_out[item]:
            return False
        if not self.fills:
            self._left_out[:] = True  # this process does not ask again
            return False
        return bool(_ROW.unpack(self._row(item))[-1] == _EMPTY)

    def get(
        self,
        item: int,
        identity: int,
        make: Callable[[], Any],
        *,
        own: bool = False,
        own_image: bool = False,
    ) -> Any:
        """Return the sample of an item, which is made and kept if it is not there.

        A process that is making it already is waited for.

        Args:
            item, identity, own, own_image: see `find`.
            make: makes the sample.

        Raises:
            Exception: what `make` raises; nothing is kept then.
        """
        found = self.find(item, identity, own=own, own_image=own_image)
        if found is not MISSING:
            return found
        if not self.adds(item):
            return make()
        with _locked(self._own_fd(), _ITEM_LOCKS + item) as claimed:
            if not claimed:
                self.discard(item)
                self.warn(
                    f"{self.path}: a process that is making a sample does not go on; it is made again: item {item}"
                )
                return make()
            found = self.find(item, identity, own=own, own_image=own_image)
            if found is MISSING:
                found = make()
                if self.adds(item):
                    self._add(item, identity, found)
        return found

    def _add(self, item: int, identity: int, sample: Any) -> None:
        try:
            parts = framed(sample)
        except Exception as error:
            self._stop(f"samples cannot be kept: {type(error).__name__}: {error}")
            return
        if len(parts) > _MOST_PARTS:
            parts = [b"".join(parts)]
        nbytes = sum(memoryview(part).nbytes for part in parts)
        fd = self._own_fd()
        try:
            offset = self._take(fd, item, nbytes)
            if offset is None:
                return
            if os.pwritev(fd, parts, offset) != nbytes:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            found = (
                checksum_of(b"".join(parts), item, identity, os.path.basename(self.path))
                if self._checks
                else 0
            )
            place = _TABLE_START + item * _ROW.size
            os.pwrite(fd, _ROW.pack(identity, offset, nbytes, found, _EMPTY)[:_STATE_PLACE], place)
            os.pwrite(fd, _STATE.pack(_KEPT), place + _STATE_PLACE)
            with self._header(fd) as room:
                if room is not None:
                    room._replace(kept=room.kept + 1).write(fd)
        except OSError as error:
            self._stop(f"no more samples are kept: {error}")

    def _stop(self, reason: str) -> None:
        with contextlib.suppress(OSError):
            os.pwrite(self._fd, _FULL.pack(_FAILED), _FULL_PLACE)
        self.warn(f"{self.path}: {reason}")

    @contextlib.contextmanager
    def _header(self, fd: int) -> Iterator[_Room | None]:
        """Lock the header; the value is the room, or None if samples cannot be kept any more."""
        with _locked(fd, _HEADER_LOCK) as locked:
            room = _Room.of(fd) if locked else None
            if not locked:
                self._stop("no more samples are kept: a process that changes the file does not go on")
            elif room is None or room.items != self.items or os.fstat(fd).st_size < room.end:
                self._stop("no more samples are kept: the file was damaged or cut")
                room = None
            yield room

    def _take(self, fd: int, item: int, nbytes: int) -> int | None:
        """Take room for a sample; return its offset, or None where there is too little."""
        with self._header(fd) as room:
            if room is None or not self.fills:
                return None
            end, size = room.end + nbytes, os.fstat(fd).st_size
            if end > room.limit:
                self._left_out[item] = True
                full = (room.limit - room.end) * room.kept < room.end - self._samples_start
                os.pwrite(fd, _FULL.pack(_LIMIT if full else _SOME_LEFT_OUT), _FULL_PLACE)
                return None
            if end > size:
                try:
                    os.ftruncate(fd, max(end, min(room.limit, size + _GROWTH)))
                except OSError:  # near a limit of the system
                    os.ftruncate(fd, end)
            room._replace(end=end).write(fd)
            return room.end

    # -- figures -----------------------------------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """Return the bytes that are taken, the table included."""
        room = _Room.of(self._fd)
        return 0 if room is None else room.end

    @property
    def count(self) -> int:
        """Return the number of samples that are kept."""
        room, discards = _Room.of(self._fd), self._read(8, _DISCARDS_PLACE)
        if room is None:
            return 0
        if discards != self._lost[0]:
            data = self._read(self.items * _ROW.size, _TABLE_START)
            rows = np.frombuffer(data[: len(data) // _ROW.size * _ROW.size], _ROWS)
            self._lost = discards, room.kept - int(np.count_nonzero(rows["state"] == _KEPT))
        return min(room.kept - self._lost[1], self.items)


class _Missing:
    """The kind of `MISSING`."""


MISSING = _Missing()
"""Result of `SampleFile.find` for an item that is not kept."""


def new_memory_file() -> OpenFile:
    """Return a new memory file.

    Raises:
        NotImplementedError: this is not Linux.
    """
    if sys.platform != "linux":
        raise NotImplementedError("cache_samples() needs Linux: memory files, and locks of an open file")
    return OpenFile(os.memfd_create("aioloader-samples", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))


def _samples_start(items: int) -> int:
    return _aligned(_TABLE_START + items * _ROW.size)


def _too_small(items: int, limit: int) -> str:
    return f"limit={limit} bytes is less than the {_samples_start(items)} of the table of {items} items"


def _begin(fd: int, items: int, limit: int) -> None:
    """Write the header of an empty file; the room of its table is taken now, so that the table is never half there."""
    start = _samples_start(items)
    os.posix_fallocate(fd, 0, start)
    _Room(items, limit, start, 0).write(fd)
    os.pwrite(fd, _TOKEN.pack(_MAGIC, os.urandom(16)), 0)


def _usable(path: str, identities: IntArray) -> OpenFile | None:
    """Return a file of samples of a set; None if it is damaged or missing, or most of its items have changed.

    Raises:
        PermissionError: it belongs to another user, who could make this process run any code by it.
    """
    try:
        found = OpenFile(_open(path, os.O_NOFOLLOW))
        status = os.fstat(found.fd)
    except FileNotFoundError:
        return None
    if status.st_uid != os.geteuid():
        raise PermissionError(
            errno.EPERM, "the kept samples belong to another user: choose another folder", path
        )
    magic, _ = _TOKEN.unpack(os.pread(found.fd, _TOKEN.size, 0).ljust(_TOKEN.size, b"\0"))
    room = _Room.of(found.fd)
    if magic != _MAGIC or room is None or room.items != len(identities):
        return None
    start = _samples_start(room.items)
    if not start <= room.end <= status.st_size:
        return None
    rows = np.frombuffer(os.pread(found.fd, room.items * _ROW.size, _TABLE_START), _ROWS)
    lost = (rows["state"] == _DISCARDED) | ((rows["state"] == _KEPT) & (rows["identity"] != identities))
    if np.count_nonzero(lost) * 10 > len(rows) and try_lock_byte(found.fd, _USE_LOCK):
        return None  # and unlocked, because the file is closed
    return found


def _delete_unused(path: str) -> None:
    with contextlib.suppress(OSError):
        opened = OpenFile(_open(path))
        if try_lock_byte(opened.fd, _USE_LOCK):
            os.unlink(path)
