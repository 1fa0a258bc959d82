"""Messages between a loader and a worker process, for both ends: their format, and the values that they carry.

Buffers that are too large for one message are sent in parts, so that no message holds the event loop.
"""

from __future__ import annotations

import pickle
import struct
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import cloudpickle
import numpy as np

from aioloader.executors.runner import Spill

if TYPE_CHECKING:
    import mmap
    from collections.abc import Iterator, Sequence

    from aioloader.abc import Program
    from aioloader.foundation.types import Array

# Words of a worker's row of control memory: the attempt in progress, the place of its sample, the number of the stage
# (see `stage_names`), and for each lane the attempt that is cancelled.
CURRENT, PLACE, STAGE, CANCELLED = range(4)
# Fields of a chunk that are sent as they are.
SENT_FIELDS = ("batch", "rows", "extras", "bases", "custom_collate", "spill", "segment", "first")
chunk_fields = attrgetter(*SENT_FIELDS)

_LENGTH = struct.Struct("<Q")


def encode(message: Any) -> bytes:
    """Return a message as it is sent over the socket: eight bytes of length, then a pickle."""
    payload = pickle.dumps(message, protocol=5)
    return _LENGTH.pack(len(payload)) + payload


class Inbox:
    """Buffer for the bytes of one socket that returns complete messages.

    Both ends are the same program and the socket is private to them, so its pickles are trusted.
    """

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        """Add bytes; return the messages that they complete."""
        self._bytes += data
        messages = []
        begin, filled, head = 0, len(self._bytes), _LENGTH.size
        with memoryview(self._bytes) as view:
            while filled - begin >= head:
                end = begin + head + _LENGTH.unpack_from(view, begin)[0]
                if end > filled:
                    break
                messages.append(pickle.loads(view[begin + head : end]))
                begin = end
        del self._bytes[:begin]
        return messages


def pack_value(value: Any, memory: mmap.mmap, spill: tuple[int, int]) -> tuple[bytes, list[Any], int]:
    """Pickle a value, and write its large buffers to the spill region as far as they fit.

    Args:
        value: anything that cloudpickle takes.
        memory: the slab region, writable.
        spill: (offset, nbytes) of the region for this chunk.

    Returns:
        the pickle; for each buffer its (offset, nbytes) in the region, or its bytes; the bytes of the region that
        all buffers would need.
    """
    buffers: list[pickle.PickleBuffer] = []
    blob: bytes = cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    region = Spill(memory, spill)
    needed = 0
    places: list[Any] = []
    raws = [buffer.raw() for buffer in buffers]
    try:
        # Arrays that were made in the region stay where they are, and the others are written behind them.
        found = [region.place_of(raw) for raw in raws]
        for place, raw in zip(found, raws, strict=True):
            needed += region.extent(raw.nbytes)
            places.append(place or region.write(raw) or bytes(raw))
    finally:
        for raw in raws:
            raw.release()
    return blob, places, needed


def unpack_value(blob: bytes, buffers: list[Any]) -> Any:
    """Return the value that `pack_value` packed, from a writable buffer for each place."""
    return pickle.loads(blob, buffers=buffers)


def stage_names(program: Program) -> list[str]:
    """Return the name of each number in the word STAGE; the first one is for a stage that is not known."""
    stages = [stage for leg in (program.stages, *program.later) for stage in leg]
    return ["transform", "fetch", "decode", "collate", *(f"transform:{stage.name}" for stage in stages)]


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
