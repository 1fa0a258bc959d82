"""Caches of spans: bytes that were read from a remote or slow file system are kept in memory or on a local disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioloader.foundation.lazy_names import lazy_names

if TYPE_CHECKING:
    from aioloader.storage.cache.base import Cache, CacheCounts, MemoryCache, PlacedSpans
    from aioloader.storage.cache.disk import CacheOptions, SpanCache
    from aioloader.storage.cache.source import CachedByteSource, CachedObjectSource

__all__ = (
    "Cache",
    "CacheCounts",
    "CacheOptions",
    "CachedByteSource",
    "CachedObjectSource",
    "MemoryCache",
    "PlacedSpans",
    "SpanCache",
)

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "aioloader.storage.cache.base": "Cache CacheCounts MemoryCache PlacedSpans",
        "aioloader.storage.cache.disk": "CacheOptions SpanCache",
        "aioloader.storage.cache.source": "CachedByteSource CachedObjectSource",
    },
)
