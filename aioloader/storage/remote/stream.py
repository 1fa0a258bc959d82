"""A pass over an object from its beginning, with what comes next already on its way.

For whoever asks for one range after the other, such as a scan for records: asked for singly, each would wait for the
network.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.storage.remote.openers import BlockingObject

__all__ = ("Stream",)

_BLOCK_BYTES = 4 << 20
_AHEAD = 8


class Stream:
    """Implements `recordio.RangeSource` over another one, for ranges in ascending order.

    Args:
        source: the object.
        reached: told how far the pass has come, bytes; None: nobody is.

    Attributes:
        path: name of the object, for errors.
    """

    def __init__(self, source: BlockingObject, reached: Callable[[int], object] | None = None) -> None:
        self._source = source
        self._reached = reached
        self.path = source.path
        self._size = source.size()
        self._pool = ThreadPoolExecutor(_AHEAD, "aioloader-stream")
        self._blocks: deque[tuple[int, Future[bytes]]] = deque()
        self._next = 0

    def size(self) -> int:
        """Bytes of the object."""
        return self._size

    def state(self) -> str | None:
        """Which state of the object it is."""
        return self._source.state()

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """See `recordio.RangeSource`."""
        return [self._read(offset, length) for offset, length in ranges]

    def _read(self, offset: int, length: int) -> bytes:
        stop = min(offset + length, self._size)
        while self._blocks and self._blocks[0][0] + _BLOCK_BYTES <= offset:
            self._drop()
        if not self._blocks or offset < self._blocks[0][0]:
            while self._blocks:
                self._drop()
            self._next = offset
        self._fill()
        if self._reached is not None:
            self._reached(offset)
        parts: list[bytes] = []
        for begin, block in self._blocks:
            if begin >= stop:
                break
            parts.append(block.result()[max(0, offset - begin) : stop - begin])
        found = b"".join(parts)
        if len(found) < stop - offset:  # a range larger than all that is on its way
            found += self._source.read_ranges([(offset + len(found), stop - offset - len(found))])[0]
        return found

    def _fill(self) -> None:
        while len(self._blocks) < _AHEAD and self._next < self._size:
            future = self._pool.submit(self._block, self._next)
            self._blocks.append((self._next, future))
            self._next += _BLOCK_BYTES

    def _block(self, offset: int) -> bytes:
        return self._source.read_ranges([(offset, _BLOCK_BYTES)])[0]

    def _drop(self) -> None:
        _, block = self._blocks.popleft()
        if not block.cancel():
            block.result()

    def close(self) -> None:
        """Wait for what is on its way, and end."""
        self._pool.shutdown(cancel_futures=True)
