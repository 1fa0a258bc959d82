"""How many bytes of a cache's directory are taken, agreed upon by all processes that use it.

The file `room` holds the number, and whoever changes it has the file locked (flock). Room is taken before bytes are
written, so that the directory never grows beyond the limit, however many write. A process that is killed in between
leaves the number too high by what it had taken; the first process that is alone in the directory counts anew.

Objects that are open somewhere are told by a lock as well: their file `in-use` is locked by everybody who has them
open, for as long as that process lives. What nobody has open may be given up.
"""

from __future__ import annotations

import fcntl
import os
import re
import struct
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.storage.cache.admission import Evictable, fitting, to_give_up

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioloader.foundation.types import IntArray

__all__ = ("DATA", "IN_USE", "LINES", "DiskQuota", "lock_within", "open_file")

DATA, LINES, IN_USE = ".data", ".lines", "in-use"
_SHELF = re.compile(r"[0-9a-f]{16}-[0-9a-f]{16}")
_NUMBER = struct.Struct("<q")
_PATIENCE_S = 1.0
# A full disk harms everybody who writes to it.
_SPARE_NBYTES = 256 << 20
_SPARE_SHARE = 20


def lock_within(fd: int, kind: int, seconds: float) -> bool:
    """Lock a file; False if another process holds the lock all the time."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
        time.sleep(0.001)  # flock has no timeout; others hold it for microseconds


def open_file(path: str) -> int:
    """A descriptor of a file for reading and writing, made where it is missing."""
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)


class DiskQuota:
    """The room in a directory. Safe against other threads and processes.

    Args:
        root: the directory; made where it is missing.
        limit_nbytes: most bytes of all files in it together.

    Attributes:
        evicted_nbytes: bytes that were given up to make room.

    Raises:
        OSError: the directory cannot be made or written to, or knows no locks.
    """

    def __init__(self, root: str, limit_nbytes: int) -> None:
        self._root = root
        self._limit = limit_nbytes
        self.evicted_nbytes = 0
        self._mutex = threading.Lock()
        os.makedirs(root, exist_ok=True)
        self._fd = open_file(os.path.join(root, "room"))
        try:
            self._users = open_file(os.path.join(root, "users"))
        except BaseException:
            os.close(self._fd)
            raise
        try:
            self._join()
        except BaseException:
            self.close()
            raise

    def _join(self) -> None:
        with self._locked(10 * _PATIENCE_S) as mine:
            if not mine:
                raise TimeoutError(f"{self._root}: another process keeps the file 'room' locked")
            if lock_within(self._users, fcntl.LOCK_EX, 0):
                self._write(0)  # the file has its size now
                self._write(_files_nbytes(self._root))
            lock_within(self._users, fcntl.LOCK_SH, _PATIENCE_S)
            if self._read() > self._limit:
                self._give_up(self._read() - self._limit)

    def close(self) -> None:
        """Close the files; may be called twice."""
        with self._mutex:
            for fd in (self._fd, self._users):
                if fd >= 0:
                    os.close(fd)
            self._fd = self._users = -1

    @contextmanager
    def _locked(self, patience_s: float = _PATIENCE_S) -> Iterator[bool]:
        with self._mutex:
            mine = self._fd >= 0 and lock_within(self._fd, fcntl.LOCK_EX, patience_s)
            try:
                yield mine
            finally:
                if mine:
                    fcntl.flock(self._fd, fcntl.LOCK_UN)

    def _read(self) -> int:
        data = os.pread(self._fd, _NUMBER.size, 0)
        if len(data) < _NUMBER.size:
            return _files_nbytes(self._root)
        (taken,) = _NUMBER.unpack(data)
        return max(0, int(taken))

    def _write(self, taken: int) -> None:
        os.pwrite(self._fd, _NUMBER.pack(max(0, taken)), 0)

    @property
    def taken_nbytes(self) -> int:
        """Bytes that are taken now."""
        with self._mutex:
            return self._read() if self._fd >= 0 else 0

    def take(self, nbytes: IntArray) -> Any:
        """Take room for some spans; what nobody uses is given up for them.

        Args:
            nbytes: int64 (n,), bytes of each, all that is written for it included.

        Returns:
            bool (n,), those that may be written.

        Raises:
            OSError: the directory cannot be used any more.
        """
        with self._locked() as mine:
            if not mine:
                return np.zeros(len(nbytes), bool)
            taken = self._read()
            missing = int(nbytes.sum()) - (self._limit - taken)
            if missing > 0 and taken > 0:
                taken -= self._give_up(missing)
            may = fitting(nbytes, min(self._limit - taken, self._disk()))
            self._write(taken + int(nbytes[may].sum()))
            return may

    def give_back(self, nbytes: int) -> None:
        """Bytes that were taken are not used after all, or were deleted."""
        with self._locked() as mine:
            if mine and nbytes:
                self._write(self._read() - nbytes)

    def _disk(self) -> int:
        """Bytes that may be written before the disk is as good as full."""
        status = os.statvfs(self._root)
        spare = min(_SPARE_NBYTES, status.f_blocks * status.f_frsize // _SPARE_SHARE)
        return status.f_bavail * status.f_frsize - spare

    # -- giving up -------------------------------------------------------------------------------------------------

    def _give_up(self, needed: int) -> int:
        """Delete segments that nobody uses; gives the bytes gained. The room is locked."""
        locks: dict[str, int] = {}
        try:
            candidates = []
            for folder in _shelves(self._root):
                fd = _lock_if_unused(folder)
                if fd is not None:
                    locks[folder] = fd
                    candidates += _segments(folder, os.fstat(fd).st_mtime)
            gained = 0
            for stem in to_give_up(candidates, needed):
                gained += delete_segment(stem)
            for folder in locks:
                gained += _delete_if_empty(folder)
        finally:
            for fd in locks.values():
                os.close(fd)
        self._write(self._read() - gained)
        self.evicted_nbytes += gained
        return gained

    def drop_versions(self, name_key: str, kept: str) -> None:
        """Delete the shelves of other versions of an object, as far as nobody uses them.

        Args:
            name_key: what the names of its shelves begin with.
            kept: name of the shelf that stays.
        """
        with self._locked() as mine:
            if not mine:
                return
            gained = 0
            for folder in _shelves(self._root):
                name = os.path.basename(folder)
                if not name.startswith(name_key) or name == kept:
                    continue
                fd = _lock_if_unused(folder)
                if fd is None:
                    continue
                try:
                    gained += sum(delete_segment(one.name) for one in _segments(folder, 0.0))
                    gained += _delete_if_empty(folder)
                finally:
                    os.close(fd)
            if gained:
                self._write(self._read() - gained)
                self.evicted_nbytes += gained


def _files_nbytes(root: str) -> int:
    total = 0
    for folder, _, names in os.walk(root):
        for name in names:
            try:
                total += os.stat(os.path.join(folder, name), follow_symlinks=False).st_size
            except FileNotFoundError:
                continue
    return total


def _shelves(root: str) -> list[str]:
    with os.scandir(root) as entries:
        return sorted(entry.path for entry in entries if _SHELF.fullmatch(entry.name))


def _lock_if_unused(folder: str) -> int | None:
    """A descriptor that has a shelf locked against being opened; None if it is open somewhere."""
    try:
        fd = open_file(os.path.join(folder, IN_USE))
    except OSError:
        return None
    if lock_within(fd, fcntl.LOCK_EX, 0):
        return fd
    os.close(fd)
    return None


def _segments(folder: str, used: float) -> list[Evictable]:
    found = []
    for name in _names(folder):
        stem, suffix = os.path.splitext(os.path.join(folder, name))
        if suffix == DATA:
            found.append(Evictable(stem, used, _made(stem), _size(stem + DATA) + _size(stem + LINES)))
    return found


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _made(stem: str) -> float:
    try:
        return os.stat(stem + DATA).st_mtime
    except OSError:
        return 0.0


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def delete_segment(stem: str) -> int:
    """Delete both files of a segment, the journal first; gives their bytes."""
    return sum(_delete(stem + suffix) for suffix in (LINES, DATA))


def _delete(path: str) -> int:
    size = _size(path)
    try:
        os.unlink(path)
    except OSError:
        return 0
    return size


def _delete_if_empty(folder: str) -> int:
    names = _names(folder)
    if any(name.endswith(DATA) for name in names):
        return 0
    gained = sum(_delete(os.path.join(folder, name)) for name in names)
    try:
        os.rmdir(folder)
    except OSError:
        pass
    return gained
