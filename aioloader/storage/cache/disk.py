"""A cache of spans in a directory, shared by all processes that name the same directory.

    DIR/spans-1/room, users            bytes taken, and who is there
    DIR/spans-1/<object>-<version>/    one folder for each version of an object
        in-use                         locked by those who have it open; holds the object's name
        <time>-<process>.data          bytes, appended by one process
        <time>-<process>.lines         its journal: which span lies where

Nothing in it is needed: the directory may be deleted while nobody uses it.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.storage.cache.counts import CacheCounts, Counter

if TYPE_CHECKING:
    from aioloader.foundation.types import IntArray
    from aioloader.storage.cache.disk_quota import DiskQuota
    from aioloader.storage.cache.object_cache import ObjectCache

__all__ = ("SpanCache",)

_logger = logging.getLogger(__name__)

_LAYOUT = "spans-1"
# So many segments of one object fill a cache: few files, and little is given up at a time.
_SEGMENTS = 32
_MOST_SEGMENT_NBYTES = 1 << 30
_FULL_S = 5.0


class SpanCache:
    """Spans of objects in a directory, up to a number of bytes. Blocking; safe against other threads and processes.

    A span is found again by the object's name and version, its offset and its length; the bytes are checked when they
    are first read by a process. What is taken in and given up, see `aioloader.storage.cache.admission`.

    Args:
        directory: where; made where it is missing. Other files in it are left alone.
        limit_nbytes: most bytes of all files of the cache together.

    Raises:
        OSError: the directory cannot be made or written to, or its file system knows no locks.
        ValueError: the limit is not more than 0.
    """

    def __init__(self, directory: str | os.PathLike[str], limit_nbytes: int) -> None:
        if sys.platform == "win32":
            raise OSError("a cache directory needs file locks of POSIX; use cache='memory' here")
        if limit_nbytes <= 0:
            raise ValueError(f"the limit of a cache must be more than 0 bytes, got {limit_nbytes}")
        self._root = os.path.join(os.path.abspath(os.path.expanduser(os.fspath(directory))), _LAYOUT)
        self._limit = limit_nbytes
        self._counter = Counter()
        self._lock = threading.Lock()
        self._closed = False
        self._stopped = False
        self._open()

    def _open(self) -> None:
        from aioloader.storage.cache.disk_quota import DiskQuota

        self._shelves: dict[tuple[str, str], ObjectCache | None] = {}
        self._room: DiskQuota = DiskQuota(self._root, self._limit)
        self._pid = os.getpid()
        self._full_until = 0.0

    def __del__(self) -> None:
        if hasattr(self, "_pid"):
            self.close()

    def close(self) -> None:
        """Close all files; may be called twice. Others may give up what is here from now on."""
        with self._lock:
            self._closed = True
            if self._pid == os.getpid():
                for shelf in self._shelves.values():
                    if shelf is not None:
                        shelf.close()
                self._room.close()
            self._shelves = {}

    def _shelf(self, name: str, version: str) -> ObjectCache | None:
        """Where the spans of an object are; None if that cannot be used now."""
        with self._lock:
            if self._closed:
                return None
            if self._pid != os.getpid():
                # After a fork the files and locks are the parent's; to append to them would spoil them.
                self._open()
            if (name, version) in self._shelves:
                return self._shelves[name, version]
            from aioloader.storage.cache.object_cache import ObjectCache

            folder = f"{_key(name)}-{_key(version)}"
            segment_nbytes = min(_MOST_SEGMENT_NBYTES, max(1, self._limit // _SEGMENTS))
            try:
                self._room.drop_versions(_key(name), folder)
                shelf = ObjectCache(
                    os.path.join(self._root, folder), _label(name), self._room, segment_nbytes
                )
            except OSError as error:
                self._stop(error)
                shelf = None
            self._shelves[name, version] = shelf
            return shelf

    def _stop(self, error: OSError) -> None:
        if not self._stopped:
            self._stopped = True
            _logger.warning("nothing more is written to the cache %s: %s", self._root, error)

    def read(
        self,
        name: str,
        version: str,
        offset: IntArray,
        length: IntArray,
        out: memoryview,
        place: IntArray,
    ) -> Any:
        """Copy what there is of some spans of an object. Never raises for what is wrong with the cache.

        Args:
            name: of the object, such as its URL.
            version: of the object, such as its ETag: other versions are other objects.
            offset, length: int64 (n,), the spans.
            out: writable bytes.
            place: int64 (n,), where in `out` each goes; the places must not overlap.

        Returns:
            bool (n,), those that were copied. The places of the others may have been written to.
        """
        shelf = self._shelf(name, version)
        here = np.zeros(len(offset), bool)
        if shelf is not None:
            here, damaged = shelf.read(offset, length, out, place)
            self._counter.add(damaged=damaged)
        hits = int(here.sum())
        self._counter.add(hits=hits, misses=len(offset) - hits, hit_nbytes=int(length[here].sum()))
        return here

    def write(
        self,
        name: str,
        version: str,
        offset: IntArray,
        length: IntArray,
        data: memoryview,
        place: IntArray,
    ) -> None:
        """Take in what is not there yet of some spans, as far as there is room. Never raises for a full disk: it is
        counted, a warning is logged, and nothing more is written until the cache is opened anew.

        Args:
            name, version: as for `read`.
            offset, length: int64 (n,), the spans; those without bytes are passed over.
            data: bytes.
            place: int64 (n,), where in `data` each begins.
        """
        if self._stopped or time.monotonic() < self._full_until:
            self._counter.add(refused=len(offset))
            return
        shelf = self._shelf(name, version)
        if shelf is None:
            self._counter.add(refused=len(offset))
            return
        try:
            written, nbytes, refused = shelf.write(offset, length, data, place)
        except OSError as error:
            self._counter.add(refused=len(offset))
            self._stop(error)
            return
        if refused and not written:
            # Full: to ask for every batch would cost a look at all that could be given up.
            self._full_until = time.monotonic() + _FULL_S
        self._counter.add(written=written, written_nbytes=nbytes, refused=refused)

    def held(self, name: str, version: str, offset: IntArray) -> IntArray:
        """Bytes of the longest span that is there from each offset on, int64 (n,); 0 where there is none.

        Args:
            name, version: as for `read`.
            offset: int64 (n,).
        """
        shelf = self._shelf(name, version)
        return np.zeros(len(offset), np.int64) if shelf is None else shelf.held(offset)

    def counts(self) -> CacheCounts:
        """What was done so far."""
        counts = self._counter.counts()
        return CacheCounts(**{**counts.__dict__, "evicted_nbytes": self._room.evicted_nbytes})

    @property
    def taken_nbytes(self) -> int:
        """Bytes that all processes together have taken of the directory."""
        return self._room.taken_nbytes


def _key(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


def _label(name: str) -> str:
    """The name without what may be a signature."""
    return name.partition("?")[0] + "\n"
