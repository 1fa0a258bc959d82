"""Format of the messages between a loader and a worker process; see `aioloader.executors.process.worker`."""

from __future__ import annotations

import pickle
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

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
