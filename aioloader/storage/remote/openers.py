"""Objects for the readers of `recordio`: `register` teaches them all schemes of this package."""

from __future__ import annotations

from typing import TYPE_CHECKING

import recordio
from aioloader.storage.remote.client import OPENING_S, Client
from aioloader.storage.remote.loop_thread import LoopThread, in_asyncio
from aioloader.storage.remote.pending_requests import Wanted
from aioloader.storage.remote.planner import MOST_BYTES
from aioloader.storage.remote.stream import Stream
from aioloader.storage.urls import SCHEMES, redact_url

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Any, TypeVar

    from aioloader.storage.remote.transport import Version

    T = TypeVar("T")

__all__ = ("AsyncObject", "BlockingObject", "register")

_TIMEOUT_S = 120.0


def register() -> None:
    """Teach `recordio`'s readers to open URLs: http, https, s3, gs, az and their kin. May be called again.

    Datasets that are given a URL do it by themselves.
    """
    for scheme in SCHEMES:
        recordio.register_opener(scheme, BlockingObject, async_opener=AsyncObject)


class _Object:
    """What the two kinds have in common: ranges of one object, and its size."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.path = redact_url(url)
        self._client = Client()
        self._version: Version | None = None

    async def _described(self) -> Version:
        if self._version is None:
            self._version = await self._client.describe(self.url, OPENING_S)
        return self._version

    async def _read(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        version = await self._described()
        wanted: list[Wanted] = []
        counts: list[int] = []
        for offset, length in ranges:
            stop = min(offset + length, version.nbytes)
            parts = [
                Wanted(self.url, at, min(MOST_BYTES, stop - at), version)
                for at in range(offset, stop, MOST_BYTES)
            ]
            wanted += parts
            counts.append(len(parts))
        found = iter(await self._client.get(wanted, _TIMEOUT_S))
        return [_joined([next(found) for _ in range(count)]) for count in counts]


def _state_of(version: Version) -> str | None:
    return version.tag if version.told else None


def _joined(parts: list[bytes]) -> bytes:
    return parts[0] if len(parts) == 1 else b"".join(parts)


class BlockingObject(_Object):
    """An object as `recordio.RangeSource`. From any thread.

    Args:
        url: of the object.

    Raises:
        ObjectMissingError: there is none; it is a FileNotFoundError.
        RemoteReadError: it cannot be read.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._thread: LoopThread | None = LoopThread()
        try:
            self._call(self._described)
        except BaseException:
            self.close()
            raise

    def __del__(self) -> None:
        if hasattr(self, "_thread"):
            self.close()

    def __reduce__(self) -> tuple[type[BlockingObject], tuple[str]]:
        return BlockingObject, (self.url,)

    def _call(self, fn: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        if self._thread is None:
            raise ValueError(f"{self.path}: closed")
        return self._thread.call(fn, *args)

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """See `recordio.RangeSource`."""
        return self._call(self._read, ranges)

    def size(self) -> int:
        """Bytes of the object."""
        return self._call(self._described).nbytes

    def state(self) -> str | None:
        """Which state of the object it is; None if the server does not tell."""
        return _state_of(self._call(self._described))

    def in_order(self) -> Stream:
        """See `recordio.RangeSource`."""
        return Stream(self)

    def close(self) -> None:
        """Close connections; may be called twice."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.close()
            self._client.close()


class AsyncObject(_Object):
    """An object as `recordio.AsyncRangeSource`, for asyncio and trio.

    Args:
        url: of the object; it is looked for at the first use.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._thread: LoopThread | None = None

    async def _here(self, fn: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        if in_asyncio():
            return await fn(*args)
        if self._thread is None:
            self._thread = LoopThread()
        return await self._thread.run(fn, *args)

    async def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """See `recordio.AsyncRangeSource`."""
        return await self._here(self._read, ranges)

    async def size(self) -> int:
        """Bytes of the object."""
        return (await self._here(self._described)).nbytes

    async def state(self) -> str | None:
        """Which state of the object it is; None if the server does not tell."""
        return _state_of(await self._here(self._described))

    async def aclose(self) -> None:
        """Close connections; may be called twice."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.close()
        self._client.close()
