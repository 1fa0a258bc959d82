"""A cache of spans in memory, for small sets."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.storage.cache.counts import CacheCounts, Counter

if TYPE_CHECKING:
    from aioloader.foundation.types import IntArray

__all__ = ("MemoryCache",)


class MemoryCache:
    """Spans of objects in the memory of this process; the same as `SpanCache` otherwise.

    What is in it stays; when the limit is reached, nothing more is taken in.

    Args:
        limit_nbytes: most bytes of all spans together.

    Raises:
        ValueError: the limit is not more than 0.
    """

    def __init__(self, limit_nbytes: int) -> None:
        if limit_nbytes <= 0:
            raise ValueError(f"the limit of a cache must be more than 0 bytes, got {limit_nbytes}")
        self._limit = limit_nbytes
        self._counter = Counter()
        self._lock = threading.Lock()
        self._objects: dict[tuple[str, str], dict[int, memoryview]] = {}
        self._taken = 0

    def close(self) -> None:
        """Nothing: several sources may share it, and the memory goes with the object."""

    def read(
        self,
        name: str,
        version: str,
        offset: IntArray,
        length: IntArray,
        out: memoryview,
        place: IntArray,
    ) -> Any:
        """See `SpanCache.read`."""
        spans = self._objects.get((name, version), {})
        here = np.zeros(len(offset), bool)
        for item, (key, nbytes, begin) in enumerate(
            zip(offset.tolist(), length.tolist(), place.tolist(), strict=True)
        ):
            held = spans.get(key)
            if held is not None and 0 < nbytes <= len(held):
                out[begin : begin + nbytes] = held[:nbytes]
                here[item] = True
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
        """See `SpanCache.write`."""
        written = nbytes_written = refused = 0
        with self._lock:
            spans = self._objects.setdefault((name, version), {})
            for key, nbytes, begin in zip(offset.tolist(), length.tolist(), place.tolist(), strict=True):
                held = len(spans[key]) if key in spans else 0
                if nbytes <= held:
                    continue
                if self._taken + nbytes - held > self._limit:
                    refused += 1
                    continue
                spans[key] = memoryview(bytes(data[begin : begin + nbytes]))
                self._taken += nbytes - held
                written += 1
                nbytes_written += nbytes
        self._counter.add(written=written, written_nbytes=nbytes_written, refused=refused)

    def held(self, name: str, version: str, offset: IntArray) -> IntArray:
        """See `SpanCache.held`."""
        spans = self._objects.get((name, version), {})
        return np.array([len(spans.get(key, b"")) for key in offset.tolist()], np.int64)

    def counts(self) -> CacheCounts:
        """See `SpanCache.counts`."""
        return self._counter.counts()

    @property
    def taken_nbytes(self) -> int:
        """Bytes of all spans."""
        return self._taken
