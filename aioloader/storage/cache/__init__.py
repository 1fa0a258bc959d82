"""Caches of spans: bytes that were read from a remote or slow file system are kept in memory or on a local disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recordio._lazy_names import lazy_names

if TYPE_CHECKING:
    from aioloader.storage.cache.base import Cache as Cache
    from aioloader.storage.cache.base import CacheCounts as CacheCounts
    from aioloader.storage.cache.base import MemoryCache as MemoryCache
    from aioloader.storage.cache.base import PlacedSpans as PlacedSpans
    from aioloader.storage.cache.disk import CacheOptions as CacheOptions
    from aioloader.storage.cache.disk import SpanCache as SpanCache
    from aioloader.storage.cache.source import CachedByteSource as CachedByteSource
    from aioloader.storage.cache.source import CachedObjectSource as CachedObjectSource

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "aioloader.storage.cache.base": "Cache CacheCounts MemoryCache PlacedSpans",
        "aioloader.storage.cache.disk": "CacheOptions SpanCache",
        "aioloader.storage.cache.source": "CachedByteSource CachedObjectSource",
    },
)
