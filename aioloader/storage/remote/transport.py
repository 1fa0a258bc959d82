"""Transport of one request at a time: the thinnest layer over the client library, without retries or deadlines.

There are two ways to read bytes. `get` returns the version of the object with them. `get_guarded` names the version in
the request (the header If-Match, RFC 9110, section 13.1.1), so that the server answers from that version or not at all;
that takes one event of the loop instead of two, which saves about a third of what a request costs this process. A test
request with an impossible version shows beforehand whether a server ignores the header (`try_guard`).

Files on the Hugging Face Hub are read at addresses that `HubResolver` finds. Their version is that of the Hub: another
server with the bytes may send another ETag, or none. An address is that of one version, so no header names it.
"""

from __future__ import annotations

from datetime import datetime
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from aioloader.storage.remote.failures import Kind, classify
from aioloader.storage.remote.hub import HubResolver
from aioloader.storage.remote.hub_answers import FileState
from aioloader.storage.remote.stores import Stores, library
from aioloader.storage.urls import is_hub

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.storage.remote.hub import Address


class Version(NamedTuple):
    """Version of an object.

    Attributes:
        nbytes: its size.
        etag: the server's name for this version, or None.
        modified: when it was last written, or None.
    """

    nbytes: int
    etag: str | None
    modified: datetime | None

    @property
    def tag(self) -> str | None:
        """Return one name for this version, for caches; None if the server does not identify it: a size does not."""
        return self.etag or (f"{self.nbytes}-{self.modified.isoformat()}" if self.modified else None)

    def same(self, other: Version) -> bool:
        """Return whether both versions are the same as far as they can be distinguished."""
        if self.etag is not None and other.etag is not None:
            return self.etag == other.etag and self.nbytes == other.nbytes
        return self.nbytes == other.nbytes and self.modified == other.modified

    @classmethod
    def of_json(cls, value: Any) -> Version:
        """Return the version whose JSON value this is; its time is a text there."""
        nbytes, etag, modified = value
        return cls(int(nbytes), etag, modified and datetime.fromisoformat(modified))

    def __str__(self) -> str:
        return f"{self.nbytes} bytes, {self.etag or self.modified or 'of unknown date'}"


class ObjectRange(NamedTuple):
    """Range of an object to read.

    Attributes:
        url: the object.
        offset: first byte.
        length: bytes, at least one; the object has them.
        version: version of the object that they must be from; None for any.
    """

    url: str
    offset: int
    length: int
    version: Version | None = None


class Response(NamedTuple):
    """Response to a request.

    Attributes:
        data: the bytes, a buffer.
        version: of the object that they are from.
        first_s: seconds to the first bytes of the response, or None if they were not observed.
        whole_s: seconds to the last.
    """

    data: memoryview
    version: Version
    first_s: float | None
    whole_s: float


# Each guarded object needs a separate store, with separate connections.
_MOST_GUARDED = 8
_NO_VERSION = '"no version of any object"'


def _version_of(meta: Any) -> Version:
    """Return the version in the headers of a response."""
    modified = meta["last_modified"]
    # For a response without a date the library returns the beginning of the Unix epoch.
    return Version(meta["size"], meta["e_tag"], modified if modified and modified.timestamp() else None)


class Level(NamedTuple):
    """Listing of a prefix.

    Attributes:
        folders: paths in the store of the folders.
        objects: path in the store and version of each object.
    """

    folders: list[str]
    objects: list[tuple[str, Version]]

    @classmethod
    def of_json(cls, value: Any) -> Level:
        """Return the listing whose JSON value this is."""
        folders, objects = value
        return cls(folders, objects_of_json(objects))


def objects_of_json(value: Any) -> list[tuple[str, Version]]:
    """Return the path and the version of each object in a JSON value."""
    return [(path, Version.of_json(version)) for path, version in value]


class ListingPage(NamedTuple):
    """Page of a listing.

    Attributes:
        level: its entries.
        next_page: the next page; None after the last.
    """

    level: Level
    next_page: str | None

    @classmethod
    def of_json(cls, value: Any) -> ListingPage:
        """Return the page whose JSON value this is."""
        level, next_page = value
        return cls(Level.of_json(level), next_page)


def _hub_version(state: FileState) -> Version:
    return Version(state.nbytes, state.etag, None)


class Transport:
    """Requests through the client library. Must be used in an asyncio loop.

    Errors are those of the library, or `RequestFailedError`.
    """

    def __init__(self) -> None:
        self._stores = Stores()
        self._hub = HubResolver()
        self._guards: dict[tuple[str, str], bool] = {}

    @property
    def lookup_count(self) -> int:
        """Return the number of requests to the Hub for addresses, versions and listings."""
        return self._hub.request_count

    async def get(self, url: str, offset: int, length: int) -> Response:
        """Read bytes of an object, at least one; fewer are returned where the object ends."""
        if is_hub(url):
            return await self._get_from_hub(url, offset, length)
        return await self._get_at(*self._stores.find(url), (offset, offset + length))

    async def get_end(self, url: str, nbytes: int) -> Response:
        """Read the last bytes of an object that is not on the Hub, or all of a smaller one."""
        return await self._get_at(*self._stores.find(url), {"suffix": nbytes})

    async def _get_at(self, store: Any, path: str, span: tuple[int, int] | dict[str, int]) -> Response:
        begin = perf_counter()
        result = await library().get_async(store, path, options={"range": span})
        first_s = perf_counter() - begin
        version = _version_of(result.meta)
        data = memoryview(await result.bytes_async())
        return Response(data, version, first_s, perf_counter() - begin)

    async def _get_from_hub(self, url: str, offset: int, length: int) -> Response:
        address = await self._hub.address(url)
        try:
            response = await self._get_at(*self._find_at(address, url), (offset, offset + length))
        except Exception as error:
            raise self._hub.examine(url, address, error) from None
        self._hub.confirm(url, address)
        version = Version(response.version.nbytes, address.state.etag, None)
        return response._replace(version=version)

    def _find_at(self, address: Address, url: str) -> tuple[Any, str]:
        return self._stores.find(address.url, authorization=address.authorization, configured_as=url)

    def guarded(self, url: str, version: Version) -> bool | None:
        """Return whether `get_guarded` can be used for an object; None if `try_guard` has to find out."""
        etag = version.etag
        if is_hub(url):
            return etag is not None
        if etag is None or not etag.startswith('"'):  # a weak one never matches
            return False
        known = self._guards.get((url, etag))
        return False if known is None and len(self._guards) >= _MOST_GUARDED else known

    async def try_guard(self, url: str, version: Version) -> bool:
        """Send a request with an impossible version and return whether the server refuses it.

        Meanwhile, and permanently if the server does not refuse, the object counts as one without a guard; if there is
        no response at all, it is not known. Azure expects the header to be part of the signed request and denies the
        request: no guard either.
        """
        assert version.etag is not None
        key = url, version.etag
        self._guards[key] = False
        try:
            store, path = self._stores.find(url, _NO_VERSION)
            await library().get_range_async(store, path, start=0, length=1)
        except self._precondition_error():
            self._guards[key] = True
        except BaseException as error:
            if classify(error).kind != Kind.DENIED:
                del self._guards[key]
                raise
        return self._guards[key]

    async def get_guarded(self, url: str, offset: int, length: int, version: Version) -> Response | None:
        """Read bytes of an object of this version; return None if it has another one."""
        if is_hub(url):
            return await self._get_guarded_from_hub(url, offset, length, version)
        store, path = self._stores.find(url, version.etag)
        begin = perf_counter()
        try:
            data = await library().get_range_async(store, path, start=offset, length=length)
        except self._precondition_error():
            return None
        return Response(memoryview(data), version, None, perf_counter() - begin)

    async def _get_guarded_from_hub(
        self, url: str, offset: int, length: int, version: Version
    ) -> Response | None:
        address = await self._hub.address(url)
        if not version.same(_hub_version(address.state)):
            return None
        begin = perf_counter()
        try:
            store, path = self._find_at(address, url)
            data = await library().get_range_async(store, path, start=offset, length=length)
        except Exception as error:
            raise self._hub.examine(url, address, error) from None
        self._hub.confirm(url, address)
        return Response(memoryview(data), version, None, perf_counter() - begin)

    def _precondition_error(self) -> type[Exception]:
        kind: type[Exception] = library().exceptions.PreconditionError
        return kind

    async def head(self, url: str) -> Version:
        """Return the version of an object."""
        store, path = self._stores.find(url)
        return _version_of(await library().head_async(store, path))

    async def list(self, url: str) -> list[tuple[str, Version]]:
        """List all objects below a prefix: path in the store, and version."""
        store, path = self._stores.find(url)
        found = []
        async for chunk in library().list(store, prefix=path or None, chunk_size=1000):
            found += [(str(meta["path"]), _version_of(meta)) for meta in chunk]
        return found

    async def list_level(self, url: str) -> Level:
        """List what is directly below a prefix."""
        store, path = self._stores.find(url)
        found = await library().list_with_delimiter_async(store, prefix=path or None)
        folders = [str(folder) for folder in found["common_prefixes"]]
        return Level(folders, [(str(meta["path"]), _version_of(meta)) for meta in found["objects"]])

    # -- the Hugging Face Hub ------------------------------------------------------------------------------------------

    async def describe_at_hub(self, url: str) -> Version:
        """Return the version of a file on the Hub."""
        return _hub_version(await self._hub.state(url))

    async def pin(self, url: str) -> str:
        """Return a URL of the Hub with a commit in place of a branch or tag."""
        return await self._hub.pin(url)

    async def list_page(self, url: str, page: str | None, *, recursive: bool) -> ListingPage:
        """Return a page of the listing of a folder on the Hub.

        Args:
            url: of the folder.
            page: `ListingPage.next_page` of the page before; None for the first.
            recursive: with the contents of folders in it.
        """
        found = await self._hub.page(url, page, recursive=recursive)
        objects = [(path, _hub_version(state)) for path, state in found.files]
        return ListingPage(Level(found.folders, objects), found.query)

    def add_listing(self, url: str, objects: Sequence[tuple[str, Version]], *, complete: bool) -> None:
        """Remember the objects of a folder on the Hub, so that `describe_at_hub` sends no requests for them."""
        states = [(path, FileState(version.nbytes, version.etag or "")) for path, version in objects]
        self._hub.add_listing(url, states, complete=complete)

    def is_listed(self, url: str) -> bool:
        """Return whether `add_listing` was called for a folder."""
        return self._hub.is_listed(url)

    def close(self) -> None:
        """Close connections."""
        self._stores.close()
        self._hub.close()
        self._guards.clear()
