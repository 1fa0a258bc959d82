"""Messages between the core and a worker: framing (pure), and values with their buffers out of band."""

from __future__ import annotations

import pickle
import struct
from typing import TYPE_CHECKING, Any

import cloudpickle

from aioloader.errors import WorkerError

if TYPE_CHECKING:
    import mmap
    from collections.abc import Iterator

_LENGTH = struct.Struct("<Q")
_ALIGN = 64


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

    def feed(self, data: bytes) -> Iterator[Any]:
        """Add bytes; yield every message that they complete."""
        self._bytes += data
        while len(self._bytes) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._bytes)
            end = _LENGTH.size + length
            if len(self._bytes) < end:
                return
            with memoryview(self._bytes) as view:
                message = pickle.loads(view[_LENGTH.size : end])
            del self._bytes[:end]
            yield message


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
    offset, room = spill
    end = offset + room
    needed = 0
    places: list[Any] = []
    with memoryview(memory) as region:
        for buffer in buffers:
            with buffer.raw() as raw:
                size = -(-raw.nbytes // _ALIGN) * _ALIGN
                needed += size
                if raw.nbytes and offset + raw.nbytes <= end:
                    region[offset : offset + raw.nbytes] = raw
                    places.append((offset, raw.nbytes))
                    offset += size
                else:
                    places.append(bytes(raw))
    return blob, places, needed


def unsendable(samples: list[Any]) -> dict[int, WorkerError]:
    """Return the reason why a sample cannot be pickled, by place, for each that cannot."""
    found = {}
    for place, sample in enumerate(samples):
        try:
            cloudpickle.dumps(sample, protocol=5)
        except Exception as error:
            found[place] = WorkerError(
                f"the value of an async transform or an iterable dataset cannot be sent to a worker process: {error}; "
                "return arrays and plain values, or use executor='thread'"
            )
            found[place].__cause__ = error
    return found


def unpack_value(blob: bytes, buffers: list[Any]) -> Any:
    """Return the value that `pack_value` packed, from a writable buffer for each place."""
    return pickle.loads(blob, buffers=buffers)
