"""Quota of a cache's directory: the number of bytes taken, shared by all processes that use it.

The file `room` contains the number; a process locks it (flock) while it changes it. Space is taken before bytes are
written, so that the directory never grows beyond the limit, with any number of writers. A process that is killed in
between leaves the number too high by the bytes that it had taken; the first process that is alone in the directory
counts the bytes of the files again.

A lock also marks the objects that are open: every process that has an object open holds a lock on its file `in-use`
until it closes the object or ends.

A span in the cache stays there as long as any process has its object open: when the limit is reached, nothing more is
added. An epoch reads every span once, so the spans that were read last are those that will not be needed for the
longest time. A cache that kept them ("least recently used") would evict every span of a set larger than the cache
before it is needed again. Keeping the spans that are there yields as many hits as fit, in every order. Only objects
that no process has open are evicted, the least recently used first, one segment at a time.
"""

from __future__ import annotations

import math
import os
import re
import struct
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from aioloader.foundation.descriptors import lock_within, try_lock, unlock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from aioloader.foundation.types import Array, IntArray


DATA, LINES, IN_USE = ".data", ".lines", "in-use"
_OBJECT = re.compile(r"[0-9a-f]{16}-[0-9a-f]{16}")
_NUMBER = struct.Struct("<q")
_PATIENCE_S = 1.0
# A full disk disturbs every program that writes to it, so some space stays free.
_SPARE_NBYTES = 256 << 20
_SPARE_SHARE = 20


def open_file(path: str) -> int:
    """Open a file for reading and writing; make it if it is missing."""
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)


def object_folder(name: str, version: str) -> str:
    """Return the name of the folder of one version of an object."""
    return f"{name_key(name)}-{name_key(version)}"


def name_key(name: str) -> str:
    """Return the first part of the names of all folders of an object."""
    return blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


@dataclass(frozen=True)
class Evictable:
    """Segment that may be evicted.

    Attributes:
        name: chosen by the caller.
        used: when its object was last used (seconds).
        made: when it was made; of one object the oldest is evicted first.
        nbytes: bytes that are freed.
    """

    name: str
    used: float
    made: float
    nbytes: int


def admit(nbytes: IntArray, free: int) -> Array:
    """Choose the spans that fit into the free space, the first ones first.

    Args:
        nbytes: int64 (n,), bytes of each.
        free: bytes; may be negative.

    Returns:
        bool (n,).
    """
    admitted = np.zeros(len(nbytes), bool)
    if free <= 0:
        return admitted
    fits = np.cumsum(nbytes) <= free
    if fits.all():
        return fits
    # A span that is too large does not prevent smaller ones.
    for number, size in enumerate(nbytes.tolist()):
        if size <= free:
            admitted[number] = True
            free -= size
    return admitted


def choose_evicted(segments: Sequence[Evictable], needed: float) -> list[str]:
    """Choose segments to evict so that `needed` bytes are freed; all of them if they have fewer bytes."""
    chosen = []
    for each in sorted(segments, key=lambda one: (one.used, one.made, one.name)):
        if needed <= 0:
            break
        chosen.append(each.name)
        needed -= each.nbytes
    return chosen


class DiskQuota:
    """Quota of a directory. Safe against other threads and processes.

    Args:
        root: the directory; made if it is missing.
        limit_nbytes: most bytes of all files in it together.

    Attributes:
        evicted_nbytes: bytes that were deleted to make space.

    Raises:
        OSError: the directory cannot be made or written to, or its file system has no locks.
    """

    def __init__(self, root: str, limit_nbytes: int) -> None:
        self._root = root
        self._limit = limit_nbytes
        self.evicted_nbytes = 0
        self._mutex = threading.Lock()
        os.makedirs(root, exist_ok=True)
        self._fd = self._users = -1
        try:
            self._fd = open_file(os.path.join(root, "room"))
            self._users = open_file(os.path.join(root, "users"))
            self._join()
        except BaseException:
            self.close()
            raise

    def _join(self) -> None:
        with self._locked(10 * _PATIENCE_S) as locked:
            if not locked:
                raise TimeoutError(f"{self._root}: another process keeps the file 'room' locked")
            if try_lock(self._users):
                self._write(0)  # so that its own size is counted
                self._write(_files_nbytes(self._root))
            lock_within(self._users, _PATIENCE_S, shared=True)
            if self._read() > self._limit:
                self._evict(_object_folders(self._root), self._read() - self._limit)

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
            locked = self._fd >= 0 and lock_within(self._fd, patience_s)
            try:
                yield locked
            finally:
                if locked:
                    unlock(self._fd)

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
        """Return the bytes that are taken now."""
        with self._mutex:
            return self._read() if self._fd >= 0 else 0

    def take(self, nbytes: IntArray) -> Array:
        """Take space for some spans, and evict unused objects for them.

        Args:
            nbytes: int64 (n,), all bytes that are written for each.

        Returns:
            bool (n,), the spans that may be written.

        Raises:
            OSError: the directory can no longer be used.
        """
        with self._locked() as locked:
            if not locked:
                return np.zeros(len(nbytes), bool)
            taken = self._read()
            missing = int(nbytes.sum()) - (self._limit - taken)
            if missing > 0 and taken > 0:
                taken -= self._evict(_object_folders(self._root), missing)
            may = admit(nbytes, min(self._limit - taken, self._disk_free()))
            self._write(taken + int(nbytes[may].sum()))
            return may

    def release(self, nbytes: int) -> None:
        """Release bytes that were taken and not used."""
        with self._locked() as locked:
            if locked and nbytes:
                self._write(self._read() - nbytes)

    def _disk_free(self) -> int:
        """Return the bytes that may be written before the disk counts as full."""
        status = os.statvfs(self._root)
        spare = min(_SPARE_NBYTES, status.f_blocks * status.f_frsize // _SPARE_SHARE)
        return status.f_bavail * status.f_frsize - spare

    def open_object(self, folder: str, label: bytes) -> int:
        """Mark an object as in use: nothing in its folder is evicted until the descriptor is closed.

        Args:
            folder: of the object; made if it is missing.
            label: text written to the folder, for people who look into it.

        Returns:
            a descriptor of the file `in-use`, locked.

        Raises:
            OSError: the folder cannot be made, or another process keeps it locked.
        """
        deadline = time.monotonic() + 10 * _PATIENCE_S
        path = os.path.join(folder, IN_USE)
        while True:
            os.makedirs(folder, exist_ok=True)
            try:
                fd = open_file(path)
            except FileNotFoundError:  # the folder is being deleted
                continue
            try:
                # The file may have been deleted while this process waited for its lock.
                if lock_within(fd, _PATIENCE_S, shared=True) and os.fstat(fd).st_nlink:
                    if os.fstat(fd).st_size == 0 and self.take(np.array([len(label)])).all():
                        os.pwrite(fd, label, 0)
                    os.utime(fd)
                    return fd
                if time.monotonic() > deadline:
                    raise TimeoutError(f"another process keeps {path} locked")
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)

    # -- eviction --------------------------------------------------------------------------------------------------

    def _evict(self, folders: Iterable[str], needed: float) -> int:
        """Delete segments of objects that no process has open; return the bytes freed. The file `room` is locked."""
        locks: dict[str, int] = {}
        try:
            segments = []
            for folder in folders:
                fd = _lock_if_unused(folder)
                if fd is not None:
                    locks[folder] = fd
                    segments += _segments(folder, os.fstat(fd).st_mtime)
            freed = 0
            for stem in choose_evicted(segments, needed):
                freed += delete_segment(stem)
            for folder in locks:
                freed += _delete_if_empty(folder)
        finally:
            for fd in locks.values():
                os.close(fd)
        self._write(self._read() - freed)
        self.evicted_nbytes += freed
        return freed

    def drop_versions(self, name_key: str, kept: str) -> None:
        """Delete other versions of an object that no process has open.

        Args:
            name_key: beginning of the names of the object's folders.
            kept: name of the folder that stays.
        """
        with self._locked() as locked:
            if not locked:
                return
            folders = [
                folder
                for folder in _object_folders(self._root)
                if (name := os.path.basename(folder)).startswith(name_key) and name != kept
            ]
            if folders:
                self._evict(folders, math.inf)


def _files_nbytes(root: str) -> int:
    total = 0
    for folder, _, names in os.walk(root):
        for name in names:
            try:
                total += os.stat(os.path.join(folder, name), follow_symlinks=False).st_size
            except FileNotFoundError:
                continue
    return total


def _object_folders(root: str) -> list[str]:
    with os.scandir(root) as entries:
        return sorted(entry.path for entry in entries if _OBJECT.fullmatch(entry.name))


def _lock_if_unused(folder: str) -> int | None:
    """Lock an object against being opened, and return the descriptor; return None if a process has it open."""
    try:
        fd = open_file(os.path.join(folder, IN_USE))
    except OSError:
        return None
    if try_lock(fd):
        return fd
    os.close(fd)
    return None


def _segments(folder: str, used: float) -> list[Evictable]:
    found = []
    for name in _names(folder):
        if name.endswith(DATA):
            stem = os.path.join(folder, name.removesuffix(DATA))
            made, nbytes = _time_and_size(stem + DATA)
            found.append(Evictable(stem, used, made, nbytes + _time_and_size(stem + LINES)[1]))
    return found


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _time_and_size(path: str) -> tuple[float, int]:
    try:
        status = os.stat(path)
    except OSError:
        return 0.0, 0
    return status.st_mtime, status.st_size


def delete_segment(stem: str) -> int:
    """Delete both files of a segment, the journal first; return their bytes."""
    return sum(_delete(stem + suffix) for suffix in (LINES, DATA))


def _delete(path: str) -> int:
    try:
        size = os.stat(path).st_size
        os.unlink(path)
    except OSError:
        return 0
    return size


def _delete_if_empty(folder: str) -> int:
    names = _names(folder)
    if any(name.endswith(DATA) for name in names):
        return 0
    freed = sum(_delete(os.path.join(folder, name)) for name in names)
    try:
        os.rmdir(folder)
    except OSError:
        pass
    return freed
