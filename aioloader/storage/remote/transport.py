"""One request at a time: the thinnest layer over the client library. No retries, no deadline, nothing counted."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from aioloader.storage.remote.stores import Stores, library

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ("Answer", "Transport", "Version")


class Version(NamedTuple):
    """Which object it is.

    Attributes:
        nbytes: its size.
        etag: what the server calls this state of it, or None.
        modified: when it was last written, or None.
    """

    nbytes: int
    etag: str | None
    modified: datetime | None

    @property
    def tag(self) -> str:
        """One name for this state of the object, for caches."""
        return self.etag or f"{self.nbytes}-{self.modified and self.modified.isoformat()}"

    def same(self, other: Version) -> bool:
        """Whether the object is the same as far as can be told."""
        if self.etag is not None and other.etag is not None:
            return self.etag == other.etag and self.nbytes == other.nbytes
        return self.nbytes == other.nbytes and self.modified == other.modified


def version_of(meta: Any) -> Version:
    """The version that an answer's head tells."""
    return Version(meta["size"], meta["e_tag"], meta["last_modified"])


class Answer(NamedTuple):
    """The answer to a request.

    Attributes:
        data: the bytes, a buffer.
        version: of the object that they are from.
        first_s: seconds to the first bytes of the answer.
        whole_s: seconds to the last.
    """

    data: memoryview
    version: Version
    first_s: float
    whole_s: float


class Transport:
    """Requests through the client library. Must be used in an asyncio loop.

    Errors are the library's own.
    """

    def __init__(self) -> None:
        self._stores = Stores()
        self._library: Any = None

    def _obstore(self) -> Any:
        if self._library is None:
            self._library = library()
        return self._library

    async def get(self, url: str, offset: int, length: int) -> Answer:
        """Some bytes of an object, at least one. Fewer come where the object ends."""
        store, path = self._stores.find(url)
        begin = perf_counter()
        result = await self._obstore().get_async(store, path, options={"range": (offset, offset + length)})
        first_s = perf_counter() - begin
        version = version_of(result.meta)
        data = memoryview(await result.bytes_async())
        return Answer(data, version, first_s, perf_counter() - begin)

    async def head(self, url: str) -> Version:
        """What an object is."""
        store, path = self._stores.find(url)
        return version_of(await self._obstore().head_async(store, path))

    async def list(self, url: str) -> list[tuple[str, Version]]:
        """All objects below a prefix: path in the store, and what they are."""
        store, path = self._stores.find(url)
        found = []
        async for chunk in self._obstore().list(store, prefix=path or None, chunk_size=1000):
            found += [(str(meta["path"]), version_of(meta)) for meta in chunk]
        return found

    async def put(self, url: str, data: Any) -> None:
        """Write an object, whole."""
        store, path = self._stores.find(url)
        await self._obstore().put_async(store, path, data)

    def close(self) -> None:
        """Let go of connections."""
        self._stores.close()
