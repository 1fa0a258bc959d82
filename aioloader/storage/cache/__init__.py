"""Caches of spans: bytes that were read from a remote or slow file system are kept in memory or on a local disk."""

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
