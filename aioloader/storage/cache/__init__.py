"""Caches of spans: bytes that were read from a remote or slow file system are kept in memory or on a local disk."""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING

from aioloader.storage.cache.base import Cache, CacheCounts
from aioloader.storage.cache.disk import SpanCache
from aioloader.storage.cache.memory import MemoryCache
from aioloader.storage.cache.source import CachedByteSource, CachedObjectSource

if TYPE_CHECKING:
    from aioloader.storage.cache.options import CacheOptions

__all__ = (
    "Cache",
    "CacheCounts",
    "CachedByteSource",
    "CachedObjectSource",
    "MemoryCache",
    "SpanCache",
    "open_cache",
)

_logger = logging.getLogger(__name__)
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


def open_cache(options: CacheOptions) -> Cache | None:
    """Open the cache that the options describe; return None for no cache, and if its disk is full.

    Raises:
        OSError: its directory cannot be made or written to.
    """
    if options.directory is None:
        return MemoryCache(options.limit_nbytes) if options.in_memory else None
    try:
        return SpanCache(options.directory, options.limit_nbytes)
    except OSError as error:
        if error.errno not in _NO_SPACE:
            raise
        _logger.warning("%s: %s; the loader continues without a cache", options.directory, error.strerror)
        return None
