"""Cache of spans in a directory, shared by all processes that use the same directory.

    DIR/spans-1/room, users            bytes taken, and the processes that use it
    DIR/spans-1/<object>-<version>/    one folder for each version of an object
        in-use                         locked by the processes that have it open; contains the object's name
        <time>-<process>.data          bytes, appended by one process
        <time>-<process>.lines         its journal: the place of each span

No file in it is needed: the directory may be deleted while no process uses it.

Options of a dataset's cache.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from aioloader.foundation.forks import ForkGuard
from aioloader.foundation.validation import parse_nbytes
from aioloader.storage.cache.base import Cache, PlacedSpans

if TYPE_CHECKING:
    from aioloader.foundation.types import Array, IntArray
    from aioloader.storage.cache.object_cache import ObjectCache


_logger = logging.getLogger(__name__)

_LAYOUT = "spans-1"
# This many segments of one object fill a cache: few files, and little is evicted at a time.
_SEGMENTS = 32
_MOST_SEGMENT_NBYTES = 1 << 30
_FULL_S = 5.0


class SpanCache(Cache):
    """Cache of spans in a directory. Safe against other threads and processes.

    The bytes of a span are checked when a process first reads them. See `aioloader.storage.cache.disk_quota` for the
    rules by which spans are added and evicted. After a disk was full, a warning is logged and nothing more is written
    until the cache is opened again.

    Args:
        directory: of the cache; made if it is missing. Other files in it are not touched.
        limit_nbytes: most bytes of all files of the cache together.

    Raises:
        OSError: the directory cannot be made or written to, or its file system has no locks.
        ValueError: the limit is not more than 0.
    """

    _guard: ForkGuard | None = None  # until it is completely made

    def __init__(self, directory: str | os.PathLike[str], limit_nbytes: int) -> None:
        if sys.platform == "win32":
            raise OSError("a cache directory needs file locks of POSIX; use cache='memory' here")
        super().__init__(limit_nbytes)
        self._root = os.path.join(os.path.abspath(os.path.expanduser(os.fspath(directory))), _LAYOUT)
        self._lock = threading.Lock()
        self._closed = False
        self._stopped = False
        self._open()

    def _open(self) -> None:
        from aioloader.storage.cache.disk_quota import DiskQuota

        self._objects: dict[tuple[str, str], ObjectCache | None] = {}
        self._quota = DiskQuota(self._root, self._limit)
        self._guard = ForkGuard()
        self._full_until = 0.0

    def __del__(self) -> None:
        if self._guard is not None:
            self.close()

    def close(self) -> None:
        """Close all files; may be called twice. Other processes may evict the spans from now on."""
        with self._lock:
            self._closed = True
            if self._guard is not None and not self._guard.forked:
                for cached in self._objects.values():
                    if cached is not None:
                        cached.close()
                self._quota.close()
            self._objects = {}

    def _object(self, name: str, version: str) -> ObjectCache | None:
        """Return the spans of an object; None if they cannot be used now."""
        with self._lock:
            if self._closed:
                return None
            if self._guard is None or self._guard.forked:
                # After a fork the files and locks belong to the parent; appending to them would corrupt them.
                self._open()
            if (name, version) in self._objects:
                return self._objects[name, version]
            from aioloader.storage.cache.disk_quota import name_key, object_folder
            from aioloader.storage.cache.object_cache import ObjectCache

            folder = object_folder(name, version)
            label = name.partition("?")[0] + "\n"  # without a query, which may be a signature
            segment_nbytes = min(_MOST_SEGMENT_NBYTES, max(1, self._limit // _SEGMENTS))
            cached = None
            try:
                self._quota.drop_versions(name_key(name), folder)
                cached = ObjectCache(os.path.join(self._root, folder), label, self._quota, segment_nbytes)
            except OSError as error:
                self._stop(error)
            self._objects[name, version] = cached
            return cached

    def _stop(self, error: OSError) -> None:
        if not self._stopped:
            self._stopped = True
            _logger.warning("nothing more is written to the cache %s: %s", self._root, error)

    def _read(self, name: str, version: str, spans: PlacedSpans, out: memoryview) -> tuple[Array, int]:
        cached = self._object(name, version)
        return (np.zeros(len(spans.offset), bool), 0) if cached is None else cached.read(spans, out)

    def _write(self, name: str, version: str, spans: PlacedSpans, data: memoryview) -> tuple[int, int, int]:
        refused_all = 0, 0, len(spans.offset)
        if self._stopped or time.monotonic() < self._full_until:
            return refused_all
        cached = self._object(name, version)
        if cached is None:
            return refused_all
        try:
            written, nbytes, refused = cached.write(spans, data)
        except OSError as error:
            self._stop(error)
            return refused_all
        if refused and not written:
            # Full: trying for every batch would list all files that can be evicted each time.
            self._full_until = time.monotonic() + _FULL_S
        return written, nbytes, refused

    def held(self, name: str, version: str, offset: IntArray) -> IntArray:
        cached = self._object(name, version)
        return np.zeros(len(offset), np.int64) if cached is None else cached.held(offset)

    @property
    def evicted_nbytes(self) -> int:
        return self._quota.evicted_nbytes

    @property
    def taken_nbytes(self) -> int:
        """Return the bytes that all processes together have taken of the directory."""
        return self._quota.taken_nbytes


_options_logger = logging.getLogger(__name__)

MEMORY = "memory"
_DIRECTORY_LIMIT = "50GB"
_MEMORY_LIMIT = "4GB"
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class CacheOptions:
    """Values of the options `cache` and `cache_limit` of datasets.

    Attributes:
        cache: a directory; "memory"; or None for no cache. A directory of that name is "./memory".
        cache_limit: most bytes, as for `parse_nbytes`; None: 50 GB in a directory, 4 GB in memory.

    Raises:
        TypeError: an option is of the wrong type.
        ValueError: a size is malformed, or a limit is set without a cache.
    """

    cache: str | os.PathLike[str] | None = None
    cache_limit: int | str | None = None

    def __post_init__(self) -> None:
        if self.cache is not None:
            if not isinstance(self.cache, (str, os.PathLike)):
                raise TypeError(f"cache must be a directory, 'memory' or None, got {self.cache!r}")
            if not os.fspath(self.cache):
                raise ValueError("cache must be a directory, 'memory' or None, got an empty string")
            if "://" in os.fspath(self.cache):
                raise ValueError(f"cache must be a directory on this machine, got the URL {self.cache!r}")
        if self.cache_limit is not None:
            parse_nbytes(self.cache_limit, "cache_limit")
            if self.cache is None:
                raise ValueError(
                    f"cache_limit={self.cache_limit!r} has no effect without cache='DIR' or 'memory'"
                )

    @property
    def in_memory(self) -> bool:
        """Return whether the cache is in memory."""
        return self.cache is not None and os.fspath(self.cache) == MEMORY

    @property
    def limit_nbytes(self) -> int:
        """Return the most bytes that the cache holds."""
        limit = self.cache_limit
        if limit is None:
            limit = _MEMORY_LIMIT if self.in_memory else _DIRECTORY_LIMIT
        return parse_nbytes(limit, "cache_limit")

    def open_directory(self) -> SpanCache | None:
        """Open the cache in a directory; return None if the options name none, and if its disk is full.

        Raises:
            OSError: the directory cannot be made or written to.
        """
        if self.cache is None or self.in_memory:
            return None
        try:
            return SpanCache(self.cache, self.limit_nbytes)
        except OSError as error:
            if error.errno not in _NO_SPACE:
                raise
            name = os.fspath(self.cache)
            _options_logger.warning("%s: %s; the loader continues without a cache", name, error.strerror)
            return None
