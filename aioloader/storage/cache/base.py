"""Base class of the caches of spans, counts of their work, and the cache in memory. Pure."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from aioloader.foundation.types import Array, IntArray


class PlacedSpans(NamedTuple):
    """Spans of one object, and where their bytes are in a buffer.

    Attributes:
        offset: int64 (n,), where each span begins in the object.
        length: int64 (n,), bytes of each.
        place: int64 (n,), where its bytes begin in the buffer; they do not overlap.
    """

    offset: IntArray
    length: IntArray
    place: IntArray

    def take(self, items: Array) -> PlacedSpans:
        """Return some of the spans, by numbers or a mask."""
        return PlacedSpans(self.offset[items], self.length[items], self.place[items])


@dataclass(frozen=True)
class CacheCounts:
    """Work of a cache since this process opened it.

    Attributes:
        hits: spans that were in the cache.
        misses: spans that were not.
        hit_nbytes: bytes of the hits.
        written: spans that were added.
        written_nbytes: their bytes.
        refused: spans that were not added: there was no space, or they could not be written.
        damaged: spans with other bytes than those that were written; they are misses too.
        evicted_nbytes: bytes that were deleted to make space.
    """

    hits: int = 0
    misses: int = 0
    hit_nbytes: int = 0
    written: int = 0
    written_nbytes: int = 0
    refused: int = 0
    damaged: int = 0
    evicted_nbytes: int = 0

    @property
    def hit_rate(self) -> float:
        """Return the share of hits among all lookups; 0 if there were none."""
        lookups = self.hits + self.misses
        return self.hits / lookups if lookups else 0.0

    def plus(self, other: CacheCounts) -> CacheCounts:
        """Return the sums of both."""
        return CacheCounts(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))


class Cache(ABC):
    """Spans of objects, up to a number of bytes. Blocking; used from any thread.

    A span is found by the object's name and version, its offset and its length; versions of an object are separate
    objects.

    Args:
        limit_nbytes: most bytes that the cache holds.

    Raises:
        ValueError: the limit is not more than 0.
    """

    def __init__(self, limit_nbytes: int) -> None:
        if limit_nbytes <= 0:
            raise ValueError(f"the limit of a cache must be more than 0 bytes, got {limit_nbytes}")
        self._limit = limit_nbytes
        self._counts = CacheCounts()
        self._counts_lock = threading.Lock()

    def _count(self, counts: CacheCounts) -> None:
        with self._counts_lock:
            self._counts = self._counts.plus(counts)

    def read(self, name: str, version: str, spans: PlacedSpans, out: memoryview) -> Array:
        """Copy the spans of an object that are in the cache. Never raises because of an error of the cache.

        Args:
            name: of the object, such as its URL.
            version: of the object, such as its ETag.
            spans: in the object, and where to copy them to.
            out: writable bytes.

        Returns:
            bool (n,), the spans that were copied. The places of the others may have been written to.
        """
        here, damaged = self._read(name, version, spans, out)
        hits, hit_nbytes = int(here.sum()), int(spans.length[here].sum())
        self._count(CacheCounts(hits=hits, misses=len(here) - hits, hit_nbytes=hit_nbytes, damaged=damaged))
        return here

    def write(self, name: str, version: str, spans: PlacedSpans, data: memoryview) -> None:
        """Add spans that are not in the cache yet, while there is space. Never raises because of a full disk.

        Args:
            name, version: as for `read`.
            spans: in the object, and where their bytes are; empty ones are ignored.
            data: bytes.
        """
        written, written_nbytes, refused = self._write(name, version, spans, data)
        self._count(CacheCounts(written=written, written_nbytes=written_nbytes, refused=refused))

    @abstractmethod
    def _read(self, name: str, version: str, spans: PlacedSpans, out: memoryview) -> tuple[Array, int]:
        """Copy spans; return those that were copied, bool (n,), and the number of damaged ones."""

    @abstractmethod
    def _write(self, name: str, version: str, spans: PlacedSpans, data: memoryview) -> tuple[int, int, int]:
        """Add spans; return the number of those that were added, their bytes, and the number of refused ones."""

    @abstractmethod
    def held(self, name: str, version: str, offset: IntArray) -> IntArray:
        """Return the bytes of the longest span in the cache that begins at each offset, int64 (n,); 0 for none.

        Args:
            name, version: as for `read`.
            offset: int64 (n,).
        """

    @abstractmethod
    def close(self) -> None:
        """Close all files; may be called twice."""

    @property
    @abstractmethod
    def taken_nbytes(self) -> int:
        """Return the bytes that the cache takes up now."""

    @property
    def evicted_nbytes(self) -> int:
        """Return the bytes that were deleted to make space."""
        return 0

    def counts(self) -> CacheCounts:
        """Return the counts so far."""
        return replace(self._counts, evicted_nbytes=self.evicted_nbytes)


class MemoryCache(Cache):
    """Cache of spans in the memory of this process. Nothing is evicted: a full cache adds nothing more.

    Args:
        limit_nbytes: most bytes of all spans together.

    Raises:
        ValueError: the limit is not more than 0.
    """

    def __init__(self, limit_nbytes: int) -> None:
        super().__init__(limit_nbytes)
        self._lock = threading.Lock()
        self._objects: dict[tuple[str, str], dict[int, memoryview]] = {}
        self._taken = 0

    def close(self) -> None:
        """Do nothing: several sources may share the cache, and the memory is freed with the object."""

    def _read(self, name: str, version: str, spans: PlacedSpans, out: memoryview) -> tuple[Array, int]:
        stored = self._objects.get((name, version), {})
        here = np.zeros(len(spans.offset), bool)
        for item, (key, nbytes, begin) in enumerate(zip(*(column.tolist() for column in spans), strict=True)):
            held = stored.get(key)
            if held is not None and 0 < nbytes <= len(held):
                out[begin : begin + nbytes] = held[:nbytes]
                here[item] = True
        return here, 0

    def _write(self, name: str, version: str, spans: PlacedSpans, data: memoryview) -> tuple[int, int, int]:
        written = written_nbytes = refused = 0
        with self._lock:
            stored = self._objects.setdefault((name, version), {})
            for key, nbytes, begin in zip(*(column.tolist() for column in spans), strict=True):
                held = len(stored[key]) if key in stored else 0
                if nbytes <= held:
                    continue
                if self._taken + nbytes - held > self._limit:
                    refused += 1
                    continue
                stored[key] = memoryview(bytes(data[begin : begin + nbytes]))
                self._taken += nbytes - held
                written += 1
                written_nbytes += nbytes
        return written, written_nbytes, refused

    def held(self, name: str, version: str, offset: IntArray) -> IntArray:
        stored = self._objects.get((name, version), {})
        return np.array([len(stored.get(key, b"")) for key in offset.tolist()], np.int64)

    @property
    def taken_nbytes(self) -> int:
        return self._taken
