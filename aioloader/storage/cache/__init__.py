"""Caches of spans: what was read from far away once is read from here the next time."""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING, TypeAlias

from aioloader.storage.cache.counts import CacheCounts
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

Cache: TypeAlias = SpanCache | MemoryCache


_logger = logging.getLogger(__name__)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


def open_cache(options: CacheOptions) -> Cache | None:
    """The cache that options ask for; None for none, and where there is no room at all on its disk.

    Raises:
        OSError: its directory cannot be made or written to.
    """
    if options.directory is None:
        return MemoryCache(options.limit_nbytes) if options.in_memory else None
    try:
        return SpanCache(options.directory, options.limit_nbytes)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        _logger.warning("%s: %s; the loader goes on without a cache", options.directory, error.strerror)
        return None
