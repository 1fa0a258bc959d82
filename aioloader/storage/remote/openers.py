"""Remote objects for the readers of `recordio`, which calls `register` at the first URL that nobody has registered."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING

import recordio
from aioloader.foundation.opening import in_this_opening
from aioloader.storage.remote.client import OPENING_S, Client
from aioloader.storage.remote.loop_thread import LoopThread, in_asyncio
from aioloader.storage.remote.source import MOST_BYTES
from aioloader.storage.remote.transport import ObjectRange, Version
from aioloader.storage.urls import SCHEMES, redact_url

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Sequence
    from typing import Any, TypeVar

    T = TypeVar("T")

_TIMEOUT_S = 120.0
_BLOCK_BYTES = 4 << 20
_BLOCKS_AHEAD = 8


def register() -> None:
    """Register openers of URLs with `recordio`: http, https, s3, gs, az and similar schemes. May be called again.

    It is an entry point of the group ``recordio.openers``, so the readers of `recordio` call it by themselves.
    """
    for scheme in SCHEMES:
        recordio.register_opener(scheme, BlockingObject, async_opener=AsyncObject)


class _Object:
    """Base class of blocking and async objects: ranges of one object, and its size."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.path = redact_url(url)
        self._client = Client(keeps_answers=True)
        self._version: Version | None = None
        self._thread: LoopThread | None = None

    async def _described(self) -> Version:
        if self._version is None:
            self._version = await self._client.describe(self.url, OPENING_S)
        return self._version

    async def _read(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        version = await self._described()
        parts: list[ObjectRange] = []
        counts: list[int] = []
        for offset, length in ranges:
            stop = min(offset + length, version.nbytes)
            begins = range(offset, stop, MOST_BYTES)
            parts += [ObjectRange(self.url, at, min(MOST_BYTES, stop - at), version) for at in begins]
            counts.append(len(begins))
        found = iter(await self._client.get(parts, _TIMEOUT_S))
        return [b"".join([next(found) for _ in range(count)]) for count in counts]  # one block is not copied

    def _close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.close()
        self._client.close()


class BlockingObject(_Object):
    """Object as a `recordio.RangeSource`. Used from any thread.

    Args:
        url: of the object.

    Raises:
        ObjectMissingError: it does not exist; the error is a FileNotFoundError.
        RemoteReadError: it cannot be read.
    """

    _thread: LoopThread | None = None  # until it is completely made

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._thread = LoopThread()
        try:
            self._call(self._described)
        except BaseException:
            self.close()
            raise

    def __del__(self) -> None:
        self.close()

    def __reduce__(self) -> tuple[type[BlockingObject], tuple[str]]:
        return BlockingObject, (self.url,)

    def _call(self, fn: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        if self._thread is None:
            raise ValueError(f"{self.path}: closed")
        return self._thread.call(fn, *args)

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of ranges, see `recordio.RangeSource`."""
        return self._call(self._read, ranges)

    def size(self) -> int:
        """Return the bytes of the object."""
        return self._call(self._described).nbytes

    def state(self) -> str | None:
        """Return the version of the object; None if the server does not identify it."""
        return self._call(self._described).tag

    def in_order(self) -> Stream:
        """Return a source for one pass from the beginning, see `recordio.RangeSource`."""
        return Stream(self)

    def close(self) -> None:
        """Close connections; may be called twice."""
        if self._thread is not None:
            self._close()


class AsyncObject(_Object):
    """Object as a `recordio.AsyncRangeSource`, for asyncio and trio.

    Args:
        url: of the object; the first use sends the first request.
    """

    async def _here(self, fn: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        if in_asyncio():
            return await fn(*args)
        if self._thread is None:
            self._thread = LoopThread()
        return await self._thread.run(fn, *args)

    async def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of ranges, see `recordio.AsyncRangeSource`."""
        return await self._here(self._read, ranges)

    async def size(self) -> int:
        """Return the bytes of the object."""
        return (await self._here(self._described)).nbytes

    async def state(self) -> str | None:
        """Return the version of the object; None if the server does not identify it."""
        return (await self._here(self._described)).tag

    async def aclose(self) -> None:
        """Close connections; may be called twice."""
        self._close()


class Stream:
    """`recordio.RangeSource` for one pass over an object, which reads the next blocks ahead.

    For code that reads one range after the other in ascending order, such as a scan for records: without reading ahead,
    each range would wait for the network.

    Args:
        source: the object.
        reached: called with the offset of each range; None: not called.

    Attributes:
        path: name of the object, for errors.
    """

    def __init__(self, source: BlockingObject, reached: Callable[[int], object] | None = None) -> None:
        self._source = source
        self._reached = reached
        self.path = source.path
        self._size = source.size()
        self._pool = ThreadPoolExecutor(_BLOCKS_AHEAD, "aioloader-stream")
        self._blocks: deque[tuple[int, Future[bytes]]] = deque()
        self._next = 0

    def size(self) -> int:
        """Return the bytes of the object."""
        return self._size

    def state(self) -> str | None:
        """Return the version of the object."""
        return self._source.state()

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of ranges, see `recordio.RangeSource`."""
        return [self._read(offset, length) for offset, length in ranges]

    def _read(self, offset: int, length: int) -> bytes:
        stop = min(offset + length, self._size)
        while self._blocks and not 0 <= offset - self._blocks[0][0] < _BLOCK_BYTES:
            _, block = self._blocks.popleft()
            if not block.cancel():
                block.result()
        if not self._blocks:
            self._next = offset
        while len(self._blocks) < _BLOCKS_AHEAD and self._next < self._size:
            self._blocks.append((self._next, self._pool.submit(in_this_opening(self._block), self._next)))
            self._next += _BLOCK_BYTES
        if self._reached is not None:
            self._reached(offset)
        parts: list[bytes] = []
        for begin, block in self._blocks:
            if begin >= stop:
                break
            parts.append(block.result()[max(0, offset - begin) : stop - begin])
        found = b"".join(parts)
        if len(found) < stop - offset:  # a range larger than all blocks in flight
            found += self._block(offset + len(found), stop - offset - len(found))
        return found

    def _block(self, offset: int, length: int = _BLOCK_BYTES) -> bytes:
        return self._source.read_ranges([(offset, length)])[0]

    def close(self) -> None:
        """Wait for the blocks in flight, and end the threads."""
        self._pool.shutdown(cancel_futures=True)


def object_blocks(url: str) -> Generator[bytes]:
    """Yield the bytes of an object in blocks of up to 8 MiB, with the next ones read ahead. Blocking.

    Raises:
        ObjectMissingError: it does not exist; the error is a FileNotFoundError.
        RemoteReadError: it cannot be read.
    """
    with closing(BlockingObject(url)) as source, closing(Stream(source)) as stream:
        for at in range(0, stream.size(), MOST_BYTES):
            (block,) = stream.read_ranges([(at, MOST_BYTES)])
            yield block
