"""Blocks that are loaded before a batch needs them, and the bytes that they may take. From any thread."""

from __future__ import annotations

import threading

# Batches after which an announced block is not expected any more: the epoch that needed it was left.
_EXPECTED_BATCHES = 64


class AnnouncedBlocks:
    """Announced blocks that no batch has needed yet.

    Args:
        limit_nbytes: most bytes that they take.
    """

    def __init__(self, limit_nbytes: int) -> None:
        self._limit = limit_nbytes
        self._nbytes = 0
        self._batches = 0
        self._blocks: dict[int, tuple[int, int]] = {}  # bytes, and the number of batches at the announcement
        self._lock = threading.Lock()

    def __contains__(self, number: int) -> bool:
        return number in self._blocks

    def add(self, number: int, nbytes: int) -> bool:
        """Add a block; return False if there is no room for it."""
        with self._lock:
            if number in self._blocks:
                return True
            if self._nbytes + nbytes > self._limit:
                return False
            self._blocks[number] = nbytes, self._batches
            self._nbytes += nbytes
            return True

    def planned(self, numbers: list[int]) -> None:
        """Remove the blocks that a batch needs, and those that are not expected any more."""
        with self._lock:
            self._batches += 1
            for number in numbers:
                self._remove(number)
            for number, (_, batches) in list(self._blocks.items()):
                if self._batches - batches <= _EXPECTED_BATCHES:
                    break  # those behind it were announced later
                self._remove(number)

    def _remove(self, number: int) -> None:
        nbytes, _ = self._blocks.pop(number, (0, 0))
        self._nbytes -= nbytes
