"""Options of a dataset's cache."""

from __future__ import annotations

import errno
import logging
import os
from dataclasses import dataclass

from aioloader.foundation.validation import parse_nbytes
from aioloader.storage.cache.disk import SpanCache

_logger = logging.getLogger(__name__)

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
            _logger.warning("%s: %s; the loader continues without a cache", name, error.strerror)
            return None
