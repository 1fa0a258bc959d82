"""Buffers that are too large for one message: they are sent in parts, so that no message holds the event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aioloader.foundation.types import Array

PART_NBYTES = 1 << 18

Place = tuple[int, int] | bytes | None
"""Where a buffer of a value is: (offset, nbytes) in the slab memory, its bytes, or None: it was sent in parts."""


def without_large(places: Sequence[Place]) -> tuple[list[Place], list[bytes]]:
    """Take the large buffers out of the places of a value.

    Returns:
        the places, None for each large buffer; the large buffers in their order.
    """
    large = [place for place in places if isinstance(place, bytes) and len(place) > PART_NBYTES]
    return [None if any(place is each for each in large) else place for place in places], large


def parts_of(buffer: bytes) -> Iterator[tuple[int, bytes]]:
    """Cut a buffer; yield the bytes of the whole, and a part of at most `PART_NBYTES` bytes, in order."""
    for start in range(0, len(buffer), PART_NBYTES):
        yield len(buffer), buffer[start : start + PART_NBYTES]


class PartBuffers:
    """Buffers of one value that arrive in parts."""

    def __init__(self) -> None:
        self._buffers: list[Array] = []
        self._filled = 0

    def add(self, nbytes: int, part: bytes) -> None:
        """Add a part of a buffer of `nbytes` bytes: the next one of the latest buffer, or the first of a new one."""
        if not self._buffers or self._filled == self._buffers[-1].nbytes:
            self._buffers.append(np.empty(nbytes, np.uint8))
            self._filled = 0
        end = self._filled + len(part)
        self._buffers[-1][self._filled : end] = np.frombuffer(part, np.uint8)
        self._filled = end

    def take(self, places: Sequence[Place]) -> list[Any]:
        """Return the places of a value, with its buffers that arrived in parts; the next value begins."""
        buffers = iter(self._buffers)
        self._buffers, self._filled = [], 0
        return [next(buffers) if place is None else place for place in places]
