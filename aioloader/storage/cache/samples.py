"""Samples that are kept for later epochs: one file that all processes of a host map.

    header    what the file is, the most bytes it may have, where the next sample goes
    table     a row for each item: which item it was, where its sample is, a checksum
    samples   one behind the other

A sample is written first and its row last, so that a reader finds a whole sample or none, whenever a process is killed.
Nothing is evicted and no row is written twice: once the limit is reached, what is kept stays. A row that turns out to
be wrong is discarded, and its sample made again in each epoch.

The file is a memory file, which other processes open by its descriptor in ``/proc`` and which ends with the last of
them, or a named one. Bytes are written by `os.pwritev`, not through the map: a full disk is then an error, not a
signal. What is read through the map is checked against the size of the file each time, since somebody may cut it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import mmap
import os
import pickle
import struct
import threading
import weakref
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.errors import SampleCacheWarning
from aioloader.foundation.caller import warn_caller
from aioloader.foundation.forks import ForkGuard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioloader.foundation.types import Array, IntArray

LAYOUT = "samples-1"
"""Name and version of the layout; the first part of the names of files in a folder."""

_MAGIC = b"aioloader kept samples\0\1"
_HEADER = np.dtype([("magic", "S24"), ("items", "<i8"), ("limit", "<i8"), ("end", "<i8"), ("full", "<i8")])
_ROW = np.dtype(
    [("identity", "<u8"), ("offset", "<i8"), ("nbytes", "<i8"), ("checksum", "<u4"), ("state", "<u4")]
)
_TABLE_START = 4096
_EMPTY, _KEPT, _DISCARDED = range(3)
_OPEN, _LIMIT, _FAILED = range(3)
_ALIGN = 64
# The file grows by so much at a time, which costs no memory before it is written.
_GROWTH = 64 << 20
_FRAME = struct.Struct("<IIIII")
_ALONE = None
_LENGTH = struct.Struct("<Q")
_BLOCK = 512
# Bytes of the file that are locked: the header for all changes of it, and one for each item in the making.
_LOCK = struct.Struct("hhqqi4x")
_FIRST_ITEM_LOCK = 1 << 40
# Linux: locks of an open file, so that threads exclude one another, and a process that ends holds none.
_SET_LOCK = getattr(fcntl, "F_OFD_SETLKW", None)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGN) * _ALIGN


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
    if type(image) is np.ndarray and image.dtype == np.uint8 and image.ndim == 3 and image.size:
        shape = image.shape
        arrays.append(pickle.PickleBuffer(np.ascontiguousarray(image).data))
        sample = _ALONE if alone else sample[1:]
    head = pickle.dumps(_contiguous(sample), protocol=5, buffer_callback=arrays.append)
    bodies = [each.raw() for each in arrays]
    start = _FRAME.pack(len(bodies), len(head), *shape)
    start += b"".join(_LENGTH.pack(body.nbytes) for body in bodies) + head
    parts: list[Any] = [start + bytes(_aligned(len(start)) - len(start))]
    for body in bodies:
        parts.append(body)
        if padding := _aligned(body.nbytes) - body.nbytes:
            parts.append(bytes(padding))
    return parts


def _contiguous(sample: Any) -> Any:
    """Return a sample whose own arrays are contiguous: others would be pickled with copies that are not aligned."""
    if isinstance(sample, np.ndarray) and sample.ndim and not sample.dtype.hasobject:
        return np.ascontiguousarray(sample)
    return tuple(map(_contiguous, sample)) if type(sample) is tuple else sample


def unframed(frame: memoryview) -> Any:
    """Return a sample from the bytes of `framed`, its arrays as views of them, read-only if the bytes are."""
    count, nbytes, *shape = _FRAME.unpack_from(frame)
    start = _FRAME.size + count * _LENGTH.size
    place = _aligned(start + nbytes)
    image, first = None, 0
    if shape[0]:
        image, first = np.ndarray(shape, np.uint8, frame, place), 1
        place += _aligned(image.nbytes)
    bodies = []
    for number in range(first, count):
        (length,) = _LENGTH.unpack_from(frame, _FRAME.size + number * _LENGTH.size)
        bodies.append(frame[place : place + length])
        place += _aligned(length)
    sample = pickle.loads(frame[start : start + nbytes], buffers=bodies)
    if image is None:
        return sample
    return image if sample is _ALONE else (image, *sample)


def checksum(data: Any, item: int, identity: int) -> int:
    """Return a checksum of a sample's bytes and of whose they are; never 0.

    It is the CRC-32 of the sums of the words at each place of 4 KiB blocks, which takes a tenth of that of the bytes.
    """
    words = np.frombuffer(data, np.uint64)  # of whole multiples of 64 bytes
    blocks = len(words) // _BLOCK
    sums = words[: blocks * _BLOCK].reshape(blocks, _BLOCK).sum(axis=0, dtype=np.uint64)
    found = zlib.crc32(words[blocks * _BLOCK :].tobytes(), zlib.crc32(sums.tobytes()))
    return zlib.crc32(struct.pack("<QQQ", item, identity, len(words)), found) or 1


class OpenFile:
    """An open file, which is closed with this object: kept samples have no other end.

    Args:
        fd: its descriptor.
    """

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.guard = ForkGuard()
        weakref.finalize(self, os.close, fd).atexit = False


class _PerThread(threading.local):
    opened: OpenFile | None = None


class SampleFile:
    """Kept samples of the items of a set. All methods may be called from any thread; a pickled copy opens it again.

    Args:
        path: of the file.
        owner: the open memory file, which lives as long as this object; None for a file with a name.
        checked: samples are checked when this process first reads them.
    """

    def __init__(self, path: str, owner: OpenFile | None = None, *, checked: bool) -> None:
        self.path = path
        self._owner = owner
        self._checks = checked
        self._thread = _PerThread()
        self._warned: set[str] = set()
        opened = self._opened()
        head = np.frombuffer(os.pread(opened.fd, _HEADER.itemsize, 0).ljust(_HEADER.itemsize, b"\0"), _HEADER)
        items = int(head["items"][0])
        table = mmap.mmap(opened.fd, _TABLE_START + items * _ROW.itemsize)
        self._head = np.frombuffer(table, _HEADER, 1)
        self._full, self._end = self._head["full"], self._head["end"]
        self._rows = np.frombuffer(table, _ROW, items, _TABLE_START)
        self._state, self._identity = self._rows["state"], self._rows["identity"]
        self._data = memoryview(b"")
        self._seen = np.zeros(items if self._checks else 0, np.uint32)
        self._held = opened
        if self._checks:  # in use, so that no other process deletes the file
            fcntl.flock(opened.fd, fcntl.LOCK_SH)

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "checked": self._checks}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["path"], checked=state["checked"])  # type: ignore[misc]

    def _opened(self) -> OpenFile:
        found = self._thread.opened
        if found is None or found.guard.forked:  # a fork shares the locks of its parent
            found = self._thread.opened = OpenFile(os.open(self.path, os.O_RDWR | os.O_CLOEXEC))
        return found

    @classmethod
    def in_memory(cls, path: str, owner: OpenFile | None, *, items: int, limit: int) -> SampleFile:
        """Return the samples in a memory file; whoever opens it first makes it empty ones.

        Args:
            path, owner: as `new_memory_file` returns them.
            items: number of items.
            limit: most bytes of the file.

        Raises:
            OSError: there is not enough memory for the table, or the process that made the file has ended.
        """
        with open(path, "r+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not os.fstat(file.fileno()).st_size:
                _begin(file.fileno(), items, limit)
        return cls(path, owner, checked=False)

    @classmethod
    def in_folder(
        cls, folder: str, *, name: str, version: str, identities: IntArray, limit: int
    ) -> SampleFile:
        """Return the file of a set in a folder; an empty one if there is none, or it cannot be used.

        Files of other versions of the same set that no process uses are deleted.

        Args:
            folder: made if it is missing.
            name: of the set, at most 64 characters.
            version: of its files and of what makes the samples.
            identities: uint64 (items,), see `find`.
            limit: most bytes of the file; that of an existing one becomes this one.

        Raises:
            OSError: the folder cannot be written to, or the file belongs to another user.
        """
        os.makedirs(folder, exist_ok=True)
        key = hashlib.sha256(version.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        start = f"{LAYOUT}-{name}-"
        path = os.path.join(folder, f"{start}{key}")
        with open(os.path.join(folder, f"{LAYOUT}.lock"), "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for other in os.listdir(folder):
                if other.startswith(start) and other != os.path.basename(path):
                    _delete_unused(os.path.join(folder, other))
            if not _usable(path, identities):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
                with open(path, "xb", opener=lambda where, flags: os.open(where, flags, 0o600)) as file:
                    _begin(file.fileno(), len(identities), limit)
            found = cls(path, checked=True)
            with found._locked(0):
                found._head["limit"] = limit
                found._full[0] = _OPEN  # what was in the way may be gone
        return found

    @contextlib.contextmanager
    def _locked(self, place: int) -> Iterator[None]:
        """Lock one byte of the file, which need not be there; where there are no such locks, nothing."""
        fd = self._opened().fd
        if _SET_LOCK is None:
            yield
            return
        fcntl.fcntl(fd, _SET_LOCK, _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, place, 1, 0))
        try:
            yield
        finally:
            fcntl.fcntl(fd, _SET_LOCK, _LOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, place, 1, 0))

    # -- reading -----------------------------------------------------------------------------------------------------

    def kept(self, items: IntArray, identities: IntArray) -> Array:
        """Return which items are kept, bool (n,); what is found to be wrong later is discarded then."""
        found: Array = (self._state[items] == _KEPT) & (self._identity[items] == identities)
        return found

    def find(self, item: int, identity: int) -> Any:
        """Return the sample of an item, its arrays as read-only views; `MISSING` if it is not kept.

        Args:
            item: its number.
            identity: 64 bits that are others where the item's data are others.
        """
        of, offset, nbytes, expected, state = self._rows[item].item()
        if state != _KEPT or of != identity:
            return MISSING
        end = offset + nbytes
        size = os.fstat(self._held.fd).st_size
        if not _TABLE_START <= offset < end <= size or nbytes % _ALIGN or offset % _ALIGN:
            return self._wrong(item)
        data = self._data
        if end > len(data):
            # Maps that are replaced live as long as views of them.
            data = self._data = memoryview(mmap.mmap(self._held.fd, size, prot=mmap.PROT_READ))
        frame = data[offset:end]
        if self._checks and self._seen[item] != expected:
            if checksum(frame, item, identity) != expected:
                return self._wrong(item)
            self._seen[item] = expected
        return unframed(frame)

    def _wrong(self, item: int) -> Any:
        self.discard(item)
        self.warn(
            f"{self.path}: the kept sample of item {item} is damaged; it is made again in each epoch until the file is "
            "deleted"
        )
        return MISSING

    def discard(self, item: int) -> None:
        """Discard a kept sample: it is made again from now on."""
        self._state[item] = _DISCARDED

    def warn(self, text: str) -> None:
        """Issue a `SampleCacheWarning` the first time that this process has this reason."""
        reason = text.rpartition(":")[0] or text
        if reason not in self._warned:
            self._warned.add(reason)
            warn_caller(text, SampleCacheWarning)

    # -- writing -----------------------------------------------------------------------------------------------------

    @property
    def fills(self) -> bool:
        """Return True if samples are still added."""
        return bool(self._full[0] == _OPEN)

    def adds(self, item: int) -> bool:
        """Return True if the sample of an item that is not kept is still added."""
        return self.fills and bool(self._state[item] == _EMPTY)

    def get(self, item: int, identity: int, make: Callable[[], Any]) -> tuple[Any, bool]:
        """Return the sample of an item, which is made and kept if it is not there, and whether it was made.

        A process that is making it already is waited for.

        Args:
            item, identity: see `find`.
            make: makes the sample.

        Raises:
            Exception: what `make` raises; nothing is kept then.
        """
        found = self.find(item, identity)
        if found is not MISSING:
            return found, False
        if not self.adds(item):
            return make(), True
        with self._locked(_FIRST_ITEM_LOCK + item):
            found = self.find(item, identity)
            if found is not MISSING:
                return found, False
            sample = make()
            if self._state[item] == _EMPTY:
                self._add(item, identity, sample)
        return sample, True

    def _add(self, item: int, identity: int, sample: Any) -> None:
        try:
            parts = framed(sample)
        except Exception as error:
            self._stop(f"samples cannot be kept: {type(error).__name__}: {error}")
            return
        nbytes = sum(memoryview(part).nbytes for part in parts)
        try:
            offset = self._take(nbytes)
            if offset is None:
                return
            if os.pwritev(self._opened().fd, parts, offset) != nbytes:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            self._stop(f"no more samples are kept: {error}")
            return
        row = self._rows[item]
        row["identity"], row["offset"], row["nbytes"] = identity, offset, nbytes
        if self._checks:
            row["checksum"] = checksum(b"".join(parts), item, identity)
        row["state"] = _KEPT

    def _stop(self, reason: str) -> None:
        self._full[0] = _FAILED
        self.warn(f"{self.path}: {reason}")

    def _take(self, nbytes: int) -> int | None:
        """Take room for a sample; return its offset, or None where the limit is reached."""
        with self._locked(0):
            offset = int(self._end[0])
            limit = int(self._head["limit"][0])
            end = offset + nbytes
            if end > limit or not self.fills:
                self._full[0] = max(_LIMIT, self._full[0])
                return None
            fd = self._opened().fd
            size = os.fstat(fd).st_size
            if end > size:
                try:
                    os.ftruncate(fd, max(end, min(limit, size + _GROWTH)))
                except OSError:  # near a limit of the system
                    os.ftruncate(fd, end)
            self._end[0] = end
            return offset

    # -- figures -----------------------------------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """Return the bytes that are taken, the table included."""
        return int(self._end[0])

    @property
    def items(self) -> int:
        """Return the number of items, kept or not."""
        return len(self._rows)

    @property
    def count(self) -> int:
        """Return the number of samples that are kept."""
        return int(np.count_nonzero(self._state == _KEPT))


class _Missing:
    """The kind of `MISSING`."""


MISSING = _Missing()
"""What `SampleFile.find` returns for an item that is not kept."""


def new_memory_file() -> tuple[str, OpenFile]:
    """Return the name by which all processes of this host can open a new memory file, and the file, which keeps it."""
    fd = os.memfd_create("aioloader-samples", os.MFD_CLOEXEC)
    return f"/proc/{os.getpid()}/fd/{fd}", OpenFile(fd)


def _begin(fd: int, items: int, limit: int) -> None:
    """Write the header of an empty file; the room of its table is taken now, so that the map never lacks a page."""
    start = _aligned(_TABLE_START + items * _ROW.itemsize)
    os.posix_fallocate(fd, 0, start)
    head = np.zeros(1, _HEADER)
    head["magic"], head["items"], head["limit"], head["end"] = _MAGIC, items, limit, start
    os.pwrite(fd, head.tobytes(), 0)


def _usable(path: str, identities: IntArray) -> bool:
    """Return True if a file has samples of a set; a damaged one has not, nor one whose items have mostly changed.

    Raises:
        PermissionError: it belongs to another user, who could make this process run any code by it.
    """
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.geteuid():
                raise PermissionError(
                    errno.EPERM, "the kept samples belong to another user: choose another folder", path
                )
            head = np.frombuffer(file.read(_HEADER.itemsize).ljust(_HEADER.itemsize, b"\0"), _HEADER)[0]
            table_end = _TABLE_START + len(identities) * _ROW.itemsize
            if head["magic"] != _MAGIC.rstrip(b"\0") or head["items"] != len(identities):
                return False
            if not table_end <= head["end"] <= status.st_size:
                return False
            file.seek(_TABLE_START)
            rows = np.frombuffer(file.read(table_end - _TABLE_START), _ROW)
            lost = (rows["state"] == _DISCARDED) | (
                (rows["state"] == _KEPT) & (rows["identity"] != identities)
            )
            return not lost.any() or not (_is_unused(path) and np.count_nonzero(lost) * 10 > len(rows))
    except FileNotFoundError:
        return False


def _is_unused(path: str) -> bool:
    with open(path, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True


def _delete_unused(path: str) -> None:
    with contextlib.suppress(OSError):
        if _is_unused(path):
            os.unlink(path)
