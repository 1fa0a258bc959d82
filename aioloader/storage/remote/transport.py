"""One request at a time: the thinnest layer over the client library. No retries, no deadline, nothing counted.

There are two ways to some bytes. `get` tells the state of the object with them. `get_guarded` names the state in the
request (the header If-Match, RFC 9110, section 13.1.1), so that the server answers from that state or not at all; that
takes one event of the loop and not two, about a third of what a request costs this process. A server that ignores the
header is found out beforehand, by a state that cannot be (`try_guard`).
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from aioloader.storage.remote.retries import Kind, trouble_of
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
    def told(self) -> bool:
        """Whether the server says which state it is; a size alone does not."""
        return bool(self.etag or self.modified)

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
    modified = meta["last_modified"]
    # The library's word for an answer without a date is the beginning of time.
    return Version(meta["size"], meta["e_tag"], modified if modified and modified.timestamp() else None)


class Answer(NamedTuple):
    """The answer to a request.

    Attributes:
        data: the bytes, a buffer.
        version: of the object that they are from.
        first_s: seconds to the first bytes of the answer, or None where only the last was seen.
        whole_s: seconds to the last.
    """

    data: memoryview
    version: Version
    first_s: float | None
    whole_s: float


# Each guarded object has a store of its own, with connections of its own.
_MOST_GUARDED = 8
_NO_STATE = '"no state of any object"'


class Transport:
    """Requests through the client library. Must be used in an asyncio loop.

    Errors are the library's own.
    """

    def __init__(self) -> None:
        self._stores = Stores()
        self._guards: dict[tuple[str, str], bool] = {}

    async def get(self, url: str, offset: int, length: int) -> Answer:
        """Some bytes of an object, at least one. Fewer come where the object ends."""
        store, path = self._stores.find(url)
        begin = perf_counter()
        result = await library().get_async(store, path, options={"range": (offset, offset + length)})
        first_s = perf_counter() - begin
        version = version_of(result.meta)
        data = memoryview(await result.bytes_async())
        return Answer(data, version, first_s, perf_counter() - begin)

    def guarded(self, url: str, version: Version) -> bool | None:
        """Whether `get_guarded` can be used for an object; None where `try_guard` has to find it out."""
        etag = version.etag
        if etag is None or not etag.startswith('"'):  # a weak one never matches
            return False
        known = self._guards.get((url, etag))
        return False if known is None and len(self._guards) >= _MOST_GUARDED else known

    async def try_guard(self, url: str, version: Version) -> bool:
        """Ask with a state that cannot be, and see whether the server refuses.

        Meanwhile, and for good where it does not refuse, the object counts as one without a guard; where there was no
        answer at all, as one of which nothing is known. Azure takes the header for a part of what was to be signed, and
        denies the request: no guard either.
        """
        assert version.etag is not None
        key = url, version.etag
        self._guards[key] = False
        try:
            store, path = self._stores.find(url, _NO_STATE)
            await library().get_range_async(store, path, start=0, length=1)
        except self._precondition_error():
            self._guards[key] = True
        except BaseException as error:
            if trouble_of(error).kind != Kind.DENIED:
                del self._guards[key]
                raise
        return self._guards[key]

    async def get_guarded(self, url: str, offset: int, length: int, version: Version) -> Answer | None:
        """Some bytes of an object in this state; None where it is in another one."""
        store, path = self._stores.find(url, version.etag)
        begin = perf_counter()
        try:
            data = await library().get_range_async(store, path, start=offset, length=length)
        except self._precondition_error():
            return None
        return Answer(memoryview(data), version, None, perf_counter() - begin)

    def _precondition_error(self) -> type[Exception]:
        kind: type[Exception] = library().exceptions.PreconditionError
        return kind

    async def head(self, url: str) -> Version:
        """What an object is."""
        store, path = self._stores.find(url)
        return version_of(await library().head_async(store, path))

    async def list(self, url: str) -> list[tuple[str, Version]]:
        """All objects below a prefix: path in the store, and what they are."""
        store, path = self._stores.find(url)
        found = []
        async for chunk in library().list(store, prefix=path or None, chunk_size=1000):
            found += [(str(meta["path"]), version_of(meta)) for meta in chunk]
        return found

    async def put(self, url: str, data: Any) -> None:
        """Write an object, whole."""
        store, path = self._stores.find(url)
        await library().put_async(store, path, data)

    def close(self) -> None:
        """Let go of connections."""
        self._stores.close()
        self._guards.clear()
