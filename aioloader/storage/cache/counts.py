"""What a cache did, in numbers."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

__all__ = ("CacheCounts", "Counter")


@dataclass(frozen=True)
class CacheCounts:
    """What a cache did since it was opened by this process.

    Attributes:
        hits: spans that it had.
        misses: spans that it had not.
        hit_nbytes: bytes of those that it had.
        written: spans that it took in.
        written_nbytes: their bytes.
        refused: spans that it did not take in: there was no room, or they could not be written.
        damaged: spans whose bytes were not those that had been written; they are misses too.
        evicted_nbytes: bytes that were given up for others.
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
        """Share of the spans asked for that it had; 0 if none was asked for."""
        asked = self.hits + self.misses
        return self.hits / asked if asked else 0.0


class Counter:
    """Adds up `CacheCounts`, from any thread."""

    def __init__(self) -> None:
        self._counts = CacheCounts()
        self._lock = threading.Lock()

    def add(self, **numbers: int) -> None:
        """Add to some of the numbers."""
        with self._lock:
            counts = self._counts
            self._counts = replace(counts, **{name: getattr(counts, name) + n for name, n in numbers.items()})

    def counts(self) -> CacheCounts:
        """The sums."""
        return self._counts
