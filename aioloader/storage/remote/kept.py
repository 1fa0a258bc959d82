"""What is kept of objects in a cache: looked up and written in a thread, item by item."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aioloader._threads import Threads
from aioloader.storage.urls import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aioloader._types import IntArray
    from aioloader.storage.cache import Cache
    from aioloader.storage.remote.transport import Version

__all__ = ("CachedSpans", "Kept")


class CachedSpans(NamedTuple):
    """The items of a batch, as a cache may have them.

    Attributes:
        reads: int64 (n, 4): file, offset, bytes and place of each item.
        urls: of the objects.
        versions: of the objects.
        whole_files: items are whole objects: all of them have one name in the cache, and stand at places that are
            made from URL and version.
    """

    reads: IntArray
    urls: Sequence[str]
    versions: Sequence[Version | None]
    whole_files: bool

    def groups(self, items: IntArray, name: str) -> Iterator[tuple[str, str, IntArray, IntArray]]:
        """Items that have bytes, by object: name and version of it, the items, and their offsets in the cache.

        Args:
            items: int64 (k,), those that are asked for.
            name: of whole objects, all together.
        """
        items = items[self.reads[items, 2] > 0]
        files = self.reads[items, 0]
        if self.whole_files:
            if len(items):
                yield name, "", items, np.array([self._key(number) for number in files.tolist()], np.int64)
            return
        for number in np.unique(files).tolist():
            version = self.versions[number]
            if version is not None:
                mine = items[files == number]
                yield shown(self.urls[number]), version.tag, mine, self.reads[mine, 1]

    def _key(self, number: int) -> int:
        version = self.versions[number]
        text = f"{shown(self.urls[number])}\0{'' if version is None else version.tag}"
        return int.from_bytes(blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).digest()) >> 1


class Kept:
    """A cache, used from an event loop.

    Args:
        cache: closed with this.
        name: of whole objects, all together.
    """

    def __init__(self, cache: Cache, name: str) -> None:
        self._cache = cache
        self._name = shown(name)
        self._threads: Threads | None = None
        self._asked = self._hits = 0

    @property
    def hit_rate(self) -> float | None:
        """Share of the items asked for that were there; None before the first."""
        return self._hits / self._asked if self._asked else None

    async def look_up(self, spans: CachedSpans, out: memoryview) -> IntArray:
        """Copy what is there to its places; gives the items that are not, int64 (k,)."""
        missing = await self._aside().run(self._look_up, spans, out)
        self._asked += len(spans.reads)
        self._hits += len(spans.reads) - len(missing)
        return missing

    def _look_up(self, spans: CachedSpans, out: memoryview) -> IntArray:
        here = spans.reads[:, 2] == 0
        for name, version, items, offset in spans.groups(np.arange(len(here)), self._name):
            length, place = spans.reads[items, 2], spans.reads[items, 3]
            here[items] = self._cache.read(name, version, offset, length, out, place)
        missing: IntArray = np.flatnonzero(~here)
        return missing

    async def keep(self, spans: CachedSpans, items: IntArray, data: memoryview) -> None:
        """Put items into the cache that were read; when it returns, `data` may be used for others."""
        await self._aside().run(self._keep, spans, items, data)

    def _keep(self, spans: CachedSpans, items: IntArray, data: memoryview) -> None:
        for name, version, mine, offset in spans.groups(items, self._name):
            self._cache.write(name, version, offset, spans.reads[mine, 2], data, spans.reads[mine, 3])

    def _aside(self) -> Threads:
        if self._threads is None:
            self._threads = Threads(2, "aioloader-cache")
        return self._threads

    def close(self) -> None:
        """Close the cache and the threads; may be called twice."""
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.close()
        self._cache.close()
