"""Images in object storage, read by the client of remote data with its credentials, retries and deadlines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from aioloader.errors import ImageFetchError, ImageReferenceError, ImageTooLargeError, RemoteReadError
from aioloader.service.http_fetch import SMALL_NBYTES, BodyRoom, room_for
from aioloader.service.web_urls import short_name

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from aioloader.storage.remote.client import Client
    from aioloader.storage.remote.loop_thread import LoopThread
    from aioloader.storage.remote.transport import Version

T = TypeVar("T")

_LONGEST_KEY = 2048
_LONGEST_URL = _LONGEST_KEY + 256
_LONGEST_S = 3600.0
# The bucket becomes a part of the name of a host: nothing but letters, digits, dots and hyphens.
_FORM = re.compile(
    r"(s3|gs|az)://([a-z0-9](?:[a-z0-9._-]{0,220}[a-z0-9])?)/([^\x00-\x1f\x7f]+)", re.IGNORECASE
)


class ObjectAddress(NamedTuple):
    """Checked parts of a URL of object storage.

    Attributes:
        scheme: "s3", "gs" or "az".
        bucket: name of the bucket or container.
        url: the URL with both in lower case.
        name: the URL for messages.
    """

    scheme: str
    bucket: str
    url: str
    name: str


def parse_object_url(url: str) -> ObjectAddress:
    """Return the parts of a URL of object storage. Pure.

    Raises:
        ImageReferenceError: it has no bucket or no key, or characters that neither has, or is too long.
    """
    name = short_name(url)
    kind = url[:8].partition(":")[0].lower()
    found = _FORM.fullmatch(url) if len(url) <= _LONGEST_URL else None
    parts = [] if found is None else found[3].split("/")
    if found is None or len(found[3]) > _LONGEST_KEY or not {"", ".", ".."}.isdisjoint(parts):
        raise ImageReferenceError(name, f"this is not a URL {kind}://bucket/key", kind=kind)
    scheme, bucket = found[1].lower(), found[2].lower()
    return ObjectAddress(scheme, bucket, f"{scheme}://{bucket}/{found[3]}", name)


class ObjectClient:
    """Client for object storage, for asyncio and trio. Needs the extra ``remote``.

    Args:
        max_bytes: most bytes of an object.
        timeout: seconds for an object, with further tries.
    """

    def __init__(self, *, max_bytes: int, timeout: float) -> None:
        self._max_bytes = max_bytes
        self._timeout = min(timeout, _LONGEST_S)
        self._client: Client | None = None
        self._room: BodyRoom | None = None
        self._thread: LoopThread | None = None

    async def describe(self, address: ObjectAddress) -> Version:
        """Return the version of an object.

        Raises:
            ImageFetchError: it cannot be read; the `RemoteReadError` is chained.
            ImageTooLargeError: it has too many bytes.
            MissingPackageError: obstore is not installed.

        On cancellation the request is given up.
        """
        version = await self._run(self._describe, address)
        if version.nbytes > self._max_bytes:
            raise ImageTooLargeError(
                address.name, "bytes", self._max_bytes, version.nbytes, kind=address.scheme
            )
        return version

    async def fetch(self, address: ObjectAddress, version: Version, nbytes: int) -> bytes:
        """Return the first bytes of an object.

        Args:
            address: of the object.
            version: of the object.
            nbytes: number of bytes, at most its size. Where they are many, they wait for room.

        Raises, and is cancelled, as `describe`.
        """
        if nbytes <= SMALL_NBYTES:
            return await self._run(self._get, address, version, nbytes)
        if self._room is None:
            self._room = room_for(self._max_bytes)
        async with self._room.take(address.bucket, nbytes):
            return await self._run(self._get, address, version, nbytes)

    async def _run(self, fn: Callable[..., Coroutine[Any, Any, T]], address: ObjectAddress, *args: Any) -> T:
        from aioloader.storage.remote.loop_thread import LoopThread, in_asyncio
        from aioloader.storage.remote.stores import library

        library()
        try:
            if in_asyncio():
                return await fn(address, *args)
            if self._thread is None:
                self._thread = LoopThread()
            return await self._thread.run(fn, address, *args)
        except RemoteReadError as error:
            reason = f"it cannot be read: {error.reason} ({error.kind})"
            raise ImageFetchError(address.name, reason, kind=address.scheme) from error

    async def _describe(self, address: ObjectAddress) -> Version:
        return await self._opened().describe(address.url, self._timeout)

    async def _get(self, address: ObjectAddress, version: Version, nbytes: int) -> bytes:
        from aioloader.storage.remote.transport import ObjectRange

        parts = [ObjectRange(address.url, 0, nbytes, version)] if nbytes else []
        return b"".join(await self._opened().get(parts, self._timeout))

    def _opened(self) -> Client:
        from aioloader.storage.remote.client import Client

        if self._client is None:
            self._client = Client()
        return self._client

    def close(self) -> None:
        """Close connections, and end the thread that trio needs."""
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.close()
        client, self._client = self._client, None
        if client is not None:
            client.close()
