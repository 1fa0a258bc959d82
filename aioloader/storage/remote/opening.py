"""Requests of datasets for objects before a loader reads them: versions, indexes and listings.

Blocking, as opening a local file is.

The readers of `recordio` get remote objects here, too; it calls `register` at the first URL that nobody has registered.
"""

from __future__ import annotations

import fnmatch
import re
from collections import deque
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

import recordio
from aioloader.errors import ObjectMissingError, RemoteReadError
from aioloader.foundation.types import Array, IntArray, SpanKind, Spans
from aioloader.storage.cache.kept_answers import current_answers
from aioloader.storage.remote.client import OPENING_S, Client, cheap_nbytes
from aioloader.storage.remote.loop_thread import LoopThread, in_asyncio
from aioloader.storage.remote.source import MOST_BYTES, HeldObjects, RemoteByteSource
from aioloader.storage.remote.stores import library
from aioloader.storage.remote.transport import ObjectRange, Response, Version
from aioloader.storage.urls import (
    SCHEMES,
    HubFile,
    can_list,
    is_hub,
    locate,
    name_of,
    parse_hub_url,
    redact_url,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, MutableMapping, Sequence
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

    def __init__(self, url: str, version: Version | None = None) -> None:
        self.url = url
        self.path = redact_url(url)
        self._client = Client(keeps_answers=True)
        self._version = version
        self._thread: LoopThread | None = None

    async def _described(self) -> Version:
        if self._version is None:
            self._version = await self._client.describe(self.url, OPENING_S)
        return self._version

    async def read_here(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of ranges, in the loop of the object's requests."""
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

    async def _begin(self, nbytes: int) -> tuple[bytes, int]:
        version = await self._described()
        found: list[Response] = []
        begin = ObjectRange(self.url, 0, min(nbytes, version.nbytes), version)
        failures = await self._client.fetch([begin], lambda _, response: found.append(response), _TIMEOUT_S)
        for error in failures.values():
            raise error
        data, _, first_s, whole_s = found[0]
        first_s = whole_s if first_s is None else first_s
        return bytes(data), cheap_nbytes(first_s, len(data), whole_s - first_s)

    def _close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.close()
        self._client.close()


class BlockingObject(_Object):
    """Object as a `recordio.RangeSource`. Used from any thread.

    Args:
        url: of the object.
        version: of the object; None: it is requested.

    Raises:
        ObjectMissingError: it does not exist; the error is a FileNotFoundError.
        RemoteReadError: it cannot be read.
    """

    _thread: LoopThread | None = None  # until it is completely made

    def __init__(self, url: str, version: Version | None = None) -> None:
        super().__init__(url, version)
        self._thread = LoopThread()
        try:
            self._now()
        except BaseException:
            self.close()
            raise

    def __del__(self) -> None:
        self.close()

    def __reduce__(self) -> tuple[type[BlockingObject], tuple[str]]:
        return BlockingObject, (self.url,)

    def _open_thread(self) -> LoopThread:
        if self._thread is None:
            raise ValueError(f"{self.path}: closed")
        return self._thread

    def _call(self, fn: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        return self._open_thread().call(fn, *args)

    def _now(self) -> Version:
        """Return the version of the object, which is requested once."""
        thread = self._open_thread()
        return self._version or thread.call(self._described)

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of ranges, see `recordio.RangeSource`."""
        return self._call(self.read_here, ranges)

    def begin(self, nbytes: int) -> Callable[[], tuple[bytes, int]]:
        """Request the first bytes of an object that has any.

        Returns:
            a function that waits for them, and returns them and `cheap_nbytes` by the time that they took.
        """
        return self._open_thread().begin(self._begin, nbytes)

    def size(self) -> int:
        """Return the bytes of the object."""
        return self._now().nbytes

    def state(self) -> str | None:
        """Return the version of the object; None if the server does not identify it."""
        return self._now().tag

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
        return await self._here(self.read_here, ranges)

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
        begin: first bytes of the object, which were read before.
        ahead: blocks of 4 MiB that are read ahead.
        held: gets the blocks; None: they are forgotten.

    Attributes:
        path: name of the object, for errors.
    """

    def __init__(
        self,
        source: BlockingObject,
        reached: Callable[[int], object] | None = None,
        *,
        begin: bytes = b"",
        ahead: int = _BLOCKS_AHEAD,
        held: HeldObjects | None = None,
    ) -> None:
        self._source = source
        self._reached = reached
        self._ahead = ahead
        self._held = held
        self.path = source.path
        self._size = source.size()
        self._thread = LoopThread()  # its end ends the requests of this stream
        self._blocks: deque[tuple[int, Callable[[], bytes]]] = deque()
        self._next = len(begin)
        if begin:
            self._blocks.append((0, lambda: begin))
            self._hold(0, begin)

    def size(self) -> int:
        """Return the bytes of the object."""
        return self._size

    def state(self) -> str | None:
        """Return the version of the object."""
        return self._source.state()

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of ranges, see `recordio.RangeSource`."""
        return [self.read(offset, length) for offset, length in ranges]

    def read(self, offset: int, length: int) -> bytes:
        """Return the bytes of one range."""
        stop = min(offset + length, self._size)
        while self._blocks and not self._blocks[0][0] <= offset < self._end_of_first():
            self._blocks.popleft()[1]()
        if not self._blocks:
            self._next = offset
        while len(self._blocks) < self._ahead and self._next < self._size:
            self._blocks.append((self._next, self._thread.begin(self._block, self._next)))
            self._next += _BLOCK_BYTES
        if self._reached is not None:
            self._reached(offset)
        parts: list[bytes] = []
        for begin, block in self._blocks:
            if begin >= stop:
                break
            parts.append(block()[max(0, offset - begin) : stop - begin])
        found = b"".join(parts)
        if len(found) < stop - offset:  # a range larger than all blocks in flight
            found += self._thread.call(self._block, offset + len(found), stop - offset - len(found))
        return found

    def _end_of_first(self) -> int:
        return self._blocks[1][0] if len(self._blocks) > 1 else self._blocks[0][0] + _BLOCK_BYTES

    async def _block(self, offset: int, length: int = _BLOCK_BYTES) -> bytes:
        (data,) = await self._source.read_here([(offset, length)])
        self._hold(offset, data)
        return data

    def _hold(self, offset: int, data: bytes) -> None:
        if self._held is not None:
            self._held.add(self._source.url, offset, data)

    def close(self) -> None:
        """End the requests in flight; may be called twice."""
        self._thread.close()


_BEGIN_NBYTES = 1 << 20


@contextmanager
def stream_of_small(
    url: str,
    version: Version,
    usual: Callable[[bytes], int],
    held: HeldObjects | None,
    listed: Callable[[], T | None],
) -> Iterator[tuple[T | None, Stream | None]]:
    """Return a context manager of the samples in a list, or of a stream in which they are found.

    Both are None if requests for headers are cheaper. Reading all is cheaper if headers are usually no further apart
    than `cheap_nbytes`, which is measured with the first MiB. The bytes stay in `held` if it has room for the whole
    object and the samples were found.

    Args:
        url: the object.
        version: of it; it has bytes.
        usual: returns the usual distance of headers by the first bytes.
        held: gets the bytes; None: they are forgotten.
        listed: searches a list of the samples next to the object; None without one. The first MiB is requested
            meanwhile if there is `held`, until an object has a list.

    Raises:
        RemoteReadError: it cannot be read.
    """
    with closing(BlockingObject(url, version)) as source:
        read_begin = source.begin(_BEGIN_NBYTES) if held is not None and not held.listed else None
        found = listed()
        if found is not None:
            if held is not None:
                held.listed = True
            yield found, None
            return
        begin, cheap = (read_begin or source.begin(_BEGIN_NBYTES))()
        if usual(begin) > cheap:
            yield None, None
            return
        ahead = _BLOCKS_AHEAD if held is None else min(_BLOCKS_AHEAD, held.ahead)
        kept = held if held is not None and held.reserve(url, version.nbytes) else None
        try:
            with closing(Stream(source, begin=begin, ahead=ahead, held=kept)) as stream:
                yield None, stream
        except BaseException:
            if kept is not None:
                kept.drop(url)
            raise


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


_HEADS_AT_A_TIME = 1 << 14
_LISTING_S = 120.0


def describe_all(
    urls: Sequence[str], ends: MutableMapping[str, memoryview | None] | None = None
) -> tuple[Version, ...]:
    """Return the current versions of some objects, requested at once.

    Args:
        urls: the objects.
        ends: see `Client.describe_all`.

    Raises:
        MissingPackageError, ObjectMissingError, RemoteReadError: as `describe`, for the first failure.
    """
    library()
    with client_and_thread() as (client, thread):
        found, failures = thread.call(partial(client.describe_all, urls, OPENING_S, ends))
    for number in sorted(failures):
        raise failures[number]
    return tuple(found[number] for number in range(len(urls)))


def describe(url: str) -> Version:
    """Return the current version of an object.

    Raises:
        MissingPackageError: obstore is not installed.
        ObjectMissingError: it does not exist; the error is a FileNotFoundError.
        RemoteReadError: it cannot be read, or the server did not answer for 30 s.
    """
    return describe_all([url])[0]


def pin_urls(urls: Sequence[str]) -> list[str]:
    """Return URLs in which the Hugging Face Hub's branches, tags and refs are replaced by their present commits.

    All readers of a dataset, and its copies in other processes, then read the same files, also if a branch is moved.
    Other URLs, and local paths, are returned unchanged. One request is sent for each revision of a data set.

    Raises:
        MissingPackageError: obstore is not installed.
        ObjectMissingError: there is no such data set or revision; the error is a FileNotFoundError.
        RemoteReadError: the Hub does not answer, or refuses.
        ValueError: a URL of the Hub does not name a data set.
    """
    files = {url: parse_hub_url(url) for url in urls if is_hub(url)}
    stores = {file.store for file in files.values() if not file.is_pinned}
    pinned: dict[str, str] = {}
    if stores:
        library()
        with client_and_thread() as (client, thread):
            pinned = {store: thread.call(client.pin, store) for store in sorted(stores)}

    def pin(file: HubFile) -> str:
        store = pinned.get(file.store, file.store)
        return file._replace(revision=parse_hub_url(store).revision).url

    return [pin(files[url]) if url in files else url for url in urls]


@contextmanager
def client_and_thread() -> Iterator[tuple[Client, LoopThread]]:
    """Return a context manager of a client and the thread that runs it; both are closed at the end."""
    client, thread = Client(keeps_answers=True), LoopThread()
    try:
        yield client, thread
    finally:
        thread.close()
        client.close()


def read_text(url: str, most_nbytes: int | None = None) -> bytes:
    """Return all bytes of a small object, such as a list; those of this version that `current_answers` has, if any.

    Args:
        url: the object.
        most_nbytes: of a larger object only as many bytes are read, and one more; None: no limit.

    Raises:
        ObjectMissingError: it does not exist; the error is a FileNotFoundError.
        RemoteReadError: it cannot be read.
    """
    source = BlockingObject(url)
    try:
        nbytes, tag = source.size(), source.state()
        if most_nbytes is not None:
            nbytes = min(nbytes, most_nbytes + 1)
        answers = None if tag is None else current_answers.get()
        kept = None if answers is None else answers.find("bytes", url, str)
        if kept is not None and kept.value == tag and len(kept.data) >= nbytes:
            return kept.data[:nbytes]
        (data,) = source.read_ranges([(0, nbytes)])
    finally:
        source.close()
    if answers is not None:
        answers.keep("bytes", url, tag, data=data)
    return data


def read_heads(url: str, version: Version | None, offsets: IntArray, nbytes: int) -> tuple[Array, IntArray]:
    """Return the first bytes of records.

    Args:
        url: the object.
        version: of the object; None: it is requested.
        offsets: int64 (n,), where the records begin.
        nbytes: bytes of each.

    Returns:
        uint8 (n, nbytes); and int64 (n,), the bytes of each that the object has: fewer at its end, 0 outside of it.

    Raises:
        RemoteReadError: they cannot be read.
    """
    version = version or describe(url)
    rows = np.zeros((len(offsets), nbytes), np.uint8)
    inside = (offsets >= 0) & (offsets < version.nbytes)
    got: IntArray = np.where(inside, np.minimum(nbytes, version.nbytes - offsets), 0)
    source = RemoteByteSource([url], kind=SpanKind.EXACT, versions=[version])
    try:
        for low in range(0, len(offsets), _HEADS_AT_A_TIME):
            part = slice(low, low + _HEADS_AT_A_TIME)
            spans = Spans(np.zeros(len(offsets[part]), np.int64), offsets[part], got[part])
            data, starts = source.fetch_spans(spans)
            for row, start, count in zip(rows[part], starts.tolist(), got[part].tolist(), strict=True):
                row[:count] = data[start : start + count]
    finally:
        source.close()
    return rows, got


class Folder(NamedTuple):
    """Contents of a prefix.

    Attributes:
        folders: name of each folder, and (path in it, version) of every object in it, at any depth.
        files: names of the objects that are not in a folder.
    """

    folders: dict[str, list[tuple[str, Version]]]
    files: list[str]


def arrange(paths: Iterable[tuple[str, Version]], root: str) -> Folder:
    """Arrange a listing as a folder. Pure.

    Args:
        paths: path in the store and version of every object.
        root: path of the folder in the store; "" for all of it.
    """
    folders: dict[str, list[tuple[str, Version]]] = {}
    files: list[tuple[str, Version]] = []
    prefix = root.strip("/") + "/" if root.strip("/") else ""
    for path, version in paths:
        if not path.startswith(prefix):
            continue  # a marker of the folder itself
        name, slash, inner = path[len(prefix) :].partition("/")
        if not slash:
            files.append((name, version))
        elif inner and not inner.endswith("/"):
            folders.setdefault(name, []).append((inner, version))
        else:
            folders.setdefault(name, [])
    # Cloud consoles mark folders by empty objects with their names.
    return Folder(folders, [name for name, version in files if version.nbytes or name not in folders])


def as_answered(version: Version) -> Version:
    """Return a version from a listing as it is in an answer with the object's bytes. Pure.

    Azure and others list an ETag without the quotation marks that it has in the headers of an answer.
    """
    etag = version.etag
    if etag is None or etag.endswith('"'):
        return version
    return version._replace(etag=f'"{etag}"')


def list_matching(pattern: str) -> list[str]:
    """Return the URLs of the objects that match a pattern (``*``, ``?``, ``[...]``) of object storage or the Hub.

    As with files, the exact name of an object is not treated as a pattern.

    Raises:
        MissingPackageError: obstore is not installed.
        RemoteReadError: the store cannot be listed.
        ValueError: the bucket contains a pattern.
    """
    fixed = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
    folder, _, begin = fixed.rpartition("/")
    if "://" not in folder:
        raise ValueError(
            f"{pattern!r}: the bucket cannot be a pattern; pass one pattern for each bucket, as a list"
        )
    with client_and_thread() as (client, thread):
        recursive = "/" in begin + pattern[len(fixed) :]
        found = thread.call(partial(client.list, folder, _LISTING_S, recursive=recursive))
    store, name = locate(pattern)
    names = [path for path, _ in found]
    matching = re.compile(glob_pattern(name))
    return [f"{store}/{path}" for path in ([name] if name in names else filter(matching.fullmatch, names))]


def glob_pattern(path: str) -> str:
    """Convert a pattern of names to a regular expression; no part of it matches a slash. Pure."""
    parts = (fnmatch.translate(part).removeprefix("(?s:").removesuffix(r")\Z") for part in path.split("/"))
    return "/".join(part.replace(".*", "[^/]*") for part in parts)


def list_folder(url: str, *, advice: str = "") -> Folder:
    """List a URL of object storage or the Hub. Blocking; sends a request for every 1,000 objects.

    Args:
        url: the folder.
        advice: what to do if it is a URL of HTTP, for the error.

    Raises:
        MissingPackageError: obstore is not installed.
        ObjectMissingError: it is empty; the error is a FileNotFoundError.
        RemoteReadError: it cannot be listed; HTTP never allows it.
    """
    if not can_list(url):
        raise RemoteReadError(
            redact_url(url),
            0,
            None,
            attempts=0,
            seconds=0.0,
            reason="HTTP cannot list a folder",
            kind="refused",
            advice=advice,
        )
    with client_and_thread() as (client, thread):
        found = thread.call(partial(client.list, url, _LISTING_S))
    folder = arrange(((path, as_answered(version)) for path, version in found), locate(url).path)
    if not folder.folders and not folder.files:
        raise _nothing_below(url)
    return folder


def list_level(url: str) -> tuple[list[str], list[str]]:
    """List what is directly below a URL of object storage. Blocking; one request for every 1,000 entries.

    Returns:
        names of the folders, and of the objects that are not in a folder.

    Raises:
        MissingPackageError: obstore is not installed.
        ObjectMissingError: it is empty; the error is a FileNotFoundError.
        RemoteReadError: it cannot be listed.
    """
    with client_and_thread() as (client, thread):
        below, objects = thread.call(partial(client.list_level, url, _LISTING_S))
    folders = [name_of(path.rstrip("/")) for path in below]
    # Cloud consoles mark folders by empty objects, with their names or with the name of the listed folder.
    root = locate(url).path.strip("/")
    marked = {*folders, ""}
    files = [
        name_of(path)
        for path, version in objects
        if path != root and (version.nbytes or name_of(path) not in marked)
    ]
    if not folders and not files:
        raise _nothing_below(url)
    return folders, files


def _nothing_below(url: str) -> ObjectMissingError:
    return ObjectMissingError(
        redact_url(url),
        0,
        None,
        attempts=1,
        seconds=0.0,
        reason="it contains no object",
        kind="missing",
    )
