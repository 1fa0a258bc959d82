"""Cache of spans in memory, for small sets."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np

from aioloader.storage.cache.base import Cache, PlacedSpans

if TYPE_CHECKING:
    from aioloader.foundation.types import Array, IntArray


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
