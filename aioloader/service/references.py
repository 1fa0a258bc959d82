"""References to images: what a caller may pass to a service, whether it is allowed, and the bytes behind it.

A reference is a path, a URL, a ``data:`` URI (RFC 2397), encoded bytes, an item of a dataset, a row with such a field,
an array, or a Pillow image.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from binascii import a2b_base64
from collections.abc import Awaitable, Callable, Collection, Hashable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import unquote_to_bytes

import anyio
import numpy as np

from aioloader.abc import ByteSource, MapDataset
from aioloader.datasets.resolve import resolve
from aioloader.errors import (
    ImageFetchError,
    ImageNotAllowedError,
    ImageReferenceError,
    ImageServiceError,
    ImageTooLargeError,
)
from aioloader.foundation.lru_cache import LRUCache
from aioloader.foundation.protocols import implements
from aioloader.foundation.thread_start import let_threads_run
from aioloader.foundation.threads import Threads
from aioloader.foundation.validation import at_least
from aioloader.service.http_fetch import (
    DEFAULT_USER_AGENT,
    FetchedCache,
    KnownVersion,
    WebClient,
    http_parser,
)
from aioloader.service.nested import is_row
from aioloader.service.object_fetch import ObjectClient, parse_object_url
from aioloader.service.root_folder import RootFolder, path_of_reference
from aioloader.service.web_urls import BUCKETS, HostRule, check_kinds, parse_web_url, short_name
from aioloader.storage.cache.disk import CacheOptions
from aioloader.transforms.formats import is_base64_of_image
from aioloader.transforms.pillow import encode_pillow, is_pillow_image
from aioloader.transforms.raw import raw_buffer

if TYPE_CHECKING:
    from aioloader.abc import ByteDataset
    from aioloader.datasets.decoding import ImageDecoder
    from aioloader.foundation.types import Array, IntArray
    from aioloader.service.object_fetch import ObjectAddress
    from aioloader.service.web_urls import WebAddress

    # Bytes, key, and whether they are all.
    _Read = tuple[bytes | bytearray | memoryview, Hashable | None, bool]


# Encoded images contain few escapes, if any. Removing them takes a hundred bytes of memory for each.
_MOST_ESCAPES = 1 << 16
_LONGEST_TYPE = 256
_PIECE = 1 << 19  # characters; a multiple of four
_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})")


def most_characters(nbytes: int) -> int:
    """Return how many characters a URI with `nbytes` bytes can have."""
    return len("data:") + _LONGEST_TYPE + 1 + -(-nbytes // 3) * 4 + 2 * _MOST_ESCAPES


def decode_data_uri(uri: str, name: str, max_bytes: int) -> bytearray:
    """Return the bytes of a ``data:`` URI.

    Args:
        uri: the text, beginning with "data:" in any case.
        name: names it in errors.
        max_bytes: most bytes that it may have.

    Raises:
        ImageReferenceError: it is malformed, or its type is not that of an image.
        ImageTooLargeError: it has more bytes.
    """
    start = len("data:")
    comma = uri.find(",", start, start + _LONGEST_TYPE + 1)
    if comma < 0:
        raise ImageReferenceError(name, "it has no comma behind its type, and so no data", kind="data")
    kind, *options = (word.strip() for word in uri[start:comma].lower().split(";"))
    if kind and not kind.startswith("image/") and kind != "application/octet-stream":
        raise ImageReferenceError(name, f"its type is {short_name(kind)!r}, not an image", kind="data")
    start = comma + 1
    if not uri.isascii():
        raise ImageReferenceError(name, "it has characters that are not ASCII", kind="data")
    # Looking for one is several times as fast as counting them, and no other thread runs meanwhile.
    escapes = uri.count("%", start) if uri.find("%", start) >= 0 else 0
    if escapes > _MOST_ESCAPES:
        reason = (
            f"it has {escapes:,} escaped characters, and {_MOST_ESCAPES:,} are allowed: encode it as base64"
        )
        raise ImageReferenceError(name, reason, kind="data")
    if escapes:
        if _ESCAPE.search(uri, start):
            raise ImageReferenceError(name, "it has a % that is not followed by two digits", kind="data")
        uri, start = unquote_to_bytes(uri[start:]).decode("latin-1"), 0
    if options and options[-1] == "base64":
        try:
            data = _decode_base64(uri, start)
        except ValueError as error:
            raise ImageReferenceError(name, f"its data are not base64: {error}", kind="data") from None
    else:
        data = bytearray(uri[start:], "latin-1")
    if len(data) > max_bytes:
        raise ImageTooLargeError(name, "bytes", max_bytes, len(data), kind="data")
    return data


def _decode_base64(text: str, start: int) -> bytearray:
    """Decode base64 from a place in a text on, in pieces; between them other threads run.

    Raises:
        ValueError: it is not base64, or has no padding.
    """
    data = bytearray()
    for place in range(start, len(text), _PIECE):
        piece = a2b_base64(text[place : place + _PIECE], strict_mode=True)
        data += piece
        if len(piece) * 4 != _PIECE * 3 and place + _PIECE < len(text):
            raise ValueError("padding before the end")
        if place:
            let_threads_run()
    return data


# Datasets that a caller makes for each request must not keep their files open for ever.
_MOST_OPEN = 16


class DatasetItems:
    """Reader of items. Used from one event loop.

    The source of each dataset is opened once, and stays open while it is one of the 16 used last, or an item of it is
    being read.

    Args:
        threads: what blocks runs there.
    """

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._open: LRUCache[int, _OpenDataset] = LRUCache(_MOST_OPEN)

    async def read(self, dataset: MapDataset[Any], index: int, name: str) -> bytes | memoryview:
        """Return the encoded image of an item: its bytes where the dataset has them and no transforms, or its pixels.

        Raises:
            ImageReferenceError: there is no such item, or it is not an image.
            ImageFetchError: it cannot be read; the error of the dataset is chained.

        Cancellation returns at once; the thread ends the reading.
        """
        opened = self._open.get(id(dataset))
        if opened is None:
            opened = _OpenDataset(dataset)
            for old in self._open.put(id(dataset), opened):
                self._threads.start(old.close)
        return await self._threads.run_abandonable(opened.read, index, name)

    async def aclose(self) -> None:
        """Close all sources, those in use when their items have been read."""
        for each in self._open.shrink(0):
            await self._threads.run(each.close)


class _OpenDataset:
    """Dataset and its source. Used from threads."""

    def __init__(self, dataset: MapDataset[Any]) -> None:
        self._dataset = dataset  # kept, so that its identity is not that of another one
        self._lock = threading.Lock()
        self._users = 0
        self._closed = False
        self._base: ByteDataset[Any] | None = None
        self._decoder: ImageDecoder | None = None
        self._remap: IntArray | None = None
        self._source: ByteSource | None = None

    def read(self, index: int, name: str) -> bytes | memoryview:
        """Return the encoded image of an item; blocks."""
        if not 0 <= index < len(self._dataset):
            reason = f"there is no item {index}: the dataset has {len(self._dataset):,} items"
            raise ImageReferenceError(name, reason, kind="dataset")
        try:
            source = self._enter()
            try:
                data = None if source is None else self._encoded(source, index)
            finally:
                self._leave()
            return self._made(index, name) if data is None else data
        except ImageReferenceError:
            raise
        except Exception as error:
            reason = f"it cannot be read: {type(error).__name__}: {error}"
            raise ImageFetchError(name, reason, kind="dataset") from error

    def _enter(self) -> ByteSource | None:
        """Return the source, opened if necessary; None if the items are made by the dataset."""
        with self._lock:
            self._users += 1
            # A read that begins after `close` opens the source once more, and the last one that leaves closes it.
            if self._source is not None:
                return self._source
            resolved = resolve(self._dataset)
            if resolved.stages or resolved.base_kind != "bytes":
                return None
            decoder = resolved.decoder.as_images()
            if decoder is None:
                return None
            source = resolved.open_source()
            if not source.fetches:
                source.close()
                return None
            self._base, self._decoder, self._remap = resolved.base, decoder, resolved.remap
            self._source = source
            return source

    def _leave(self) -> None:
        with self._lock:
            self._users -= 1
            self._close_unused()

    def _encoded(self, source: ByteSource, index: int) -> bytes | None:
        base, decoder = self._base, self._decoder
        assert base is not None
        assert decoder is not None
        place = np.asarray([index if self._remap is None else self._remap[index]], np.int64)
        plan, memory = source.fetch(base.spans(place))
        if int(plan.start[0]) < 0:
            return None
        start, length = int(plan.start[0]), int(plan.length[0])
        extras = base.extras(place)
        extra = None if extras is None else extras[0]
        body, *_ = decoder.parse(memory[start : start + length], extra, base.location(int(place[0])))
        return bytes(body)

    def _made(self, index: int, name: str) -> bytes | memoryview:
        sample = self._dataset[index]
        image = sample[0] if isinstance(sample, tuple) else sample
        if isinstance(image, (bytes, bytearray, memoryview)):
            return bytes(image)
        try:
            return encode_pillow(image) if is_pillow_image(image) else raw_buffer(np.asarray(image))
        except (TypeError, ValueError) as error:
            raise ImageReferenceError(name, f"the item is not an image: {error}", kind="dataset") from None

    def close(self) -> None:
        """Close the source, once nobody reads from it."""
        with self._lock:
            self._closed = True
            self._close_unused()

    def _close_unused(self) -> None:
        if self._closed and not self._users and self._source is not None:
            self._source.close()
            self._source = None


T = TypeVar("T")

Fetch = Callable[[str], Awaitable[bytes]]
"""Async function that returns the bytes of a URL."""

HEAD_NBYTES = 1 << 16
"""Bytes that `ReferenceReader.read_header` reads: more than the header of most images has, previews included."""

SOURCES: Final = {
    "memory": (8, 8),
    "file": (8, 8),
    "dataset": (8, 8),
    "bucket": (128, 64),
    "web": (256, 64),
}
"""Kinds of sources: most reads at a time of each, and of each of its servers or buckets; they hide latency."""

# A digest of this many bytes takes 0.1 to 0.3 ms.
_DIGEST_HERE = 1 << 18
_DIGEST_PIECE = 1 << 20
_THREADS = 8  # of a kind of source
_SOURCE_OF: Final = {
    "path": "file",
    "dataset": "dataset",
    "http": "web",
    "https": "web",
    **dict.fromkeys(BUCKETS, "bucket"),
}
_WEB: Final = frozenset(("http", "https"))
_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]{0,31}):")


@dataclass(frozen=True, slots=True)
class Reference:
    """Reference that a service accepts.

    Attributes:
        kind: a word of ``allow=``: "bytes", "data", "path", "http", "https", "s3", "gs", "az", "dataset", "array" or
            "pillow".
        value: bytes; text of a ``data:`` URI; path; URL, in its usual form; (dataset, index); uint8 array (height,
            width, 3), (height, width, 1) or (height, width); or a Pillow image.
        name: short text that names it, for errors; without the query and the credentials of a URL.
        identity: images of equal identities that are in flight are made once; None: not known before `identify`, or
            never.
        key: the caller's key, or None.
        server: server or bucket of a URL; "" for others.
    """

    kind: str
    value: Any
    name: str
    identity: Hashable | None = None
    key: Hashable | None = None
    server: str = ""

    @property
    def names_bytes(self) -> bool:
        """Return True if the identity is also the key in a cache: that of a path or URL needs its version too."""
        return self.key is not None or self.kind in ("bytes", "data")

    @property
    def source(self) -> str:
        """Return what reading it waits for: a key of `SOURCES`."""
        return _SOURCE_OF.get(self.kind, "memory")


@dataclass(frozen=True, slots=True)
class ReadImage:
    """The bytes of an image.

    Attributes:
        payload: an encoded image; pixels are encoded as a raw image (`aioloader.transforms.encode_raw`).
        key: identifies the image in a cache; None: it is not kept.
        complete: False if `payload` is only the beginning of the image.
    """

    payload: bytes | bytearray | memoryview
    key: Hashable | None
    complete: bool = True

    @property
    def nbytes(self) -> int:
        """Return the number of bytes."""
        return len(self.payload)


class ReferenceReader:
    """Reader of references.

    Args:
        allow: kinds that are accepted, see `Reference`.
        root: folder that contains the files of kind "path", which needs it.
        hosts: hosts of URLs, and buckets, see `HostRule`; None: all public hosts.
        fetch: async function that returns the bytes of a URL of HTTP, in place of the own client. Kinds, hosts and IP
            addresses in URLs are checked before it is called; it resolves names and follows redirects itself.
        user_agent: what the own client says it is, in each request; None: aioloader and its version.
        max_bytes: most bytes of an image, encoded, or of its pixels.
        timeout: seconds for reading one.
        cache, cache_limit: where bytes of URLs are kept, see `aioloader.storage.cache.disk.CacheOptions`.

    Raises:
        TypeError, ValueError: an argument is wrong.
        MissingPackageError: URLs of HTTP are allowed, and h11 is not installed.
    """

    def __init__(
        self,
        *,
        allow: Collection[str] = ("bytes", "data"),
        root: str | os.PathLike[str] | None = None,
        hosts: Collection[str] | None = None,
        fetch: Fetch | None = None,
        user_agent: str | None = None,
        max_bytes: int = 64 << 20,
        timeout: float = 60.0,
        cache: str | os.PathLike[str] | None = None,
        cache_limit: int | str | None = None,
    ) -> None:
        options = CacheOptions(cache, cache_limit)
        self._cache = None if cache is None else FetchedCache(options)
        self._allow = check_kinds(allow)
        at_least("max_bytes", max_bytes, 1)
        at_least("timeout", timeout, 0, exclusive=True)
        if "path" in self._allow and root is None:
            raise ValueError("allow has 'path': pass the folder that contains the files as root=")
        if root is not None and "path" not in self._allow:
            raise ValueError("root= is a folder of files: pass allow=('path', ...) too")
        self._root = None if root is None else RootFolder(root, max_bytes)
        self._rule = HostRule(hosts)
        self._fetch = fetch
        self._max_bytes = max_bytes
        self._timeout = timeout
        self._web: WebClient | None = None
        if fetch is None and self._allow & _WEB:
            http_parser()
            self._web = WebClient(
                self._rule,
                max_bytes=max_bytes,
                timeout=timeout,
                user_agent=DEFAULT_USER_AGENT if user_agent is None else user_agent,
            )
        elif user_agent is not None:
            raise ValueError(
                "user_agent= is for the own client of HTTP: pass allow=('http', ...) or 'https', and no fetch="
            )
        self._objects = ObjectClient(max_bytes=max_bytes, timeout=timeout)
        # Started when they are needed. What hangs in one kind of source delays no other.
        self._threads = {source: Threads(_THREADS, f"aioloader-read-{source}") for source in SOURCES}
        self._items = DatasetItems(self._threads["dataset"])

    # -- accepting ---------------------------------------------------------------------------------------------------

    def accept(self, ref: Any, *, key: Hashable | None = None) -> Reference:
        """Return the reference that an object is. No file is opened, nothing is decoded.

        A bytearray and a memoryview are copied, so that the caller may change them at once; bytes are not. An array or
        a Pillow image must not be changed before its result is there.

        Args:
            ref: bytes-like object, path, URL, ``data:`` URI, (dataset, index), uint8 array, Pillow image, or a row
                ``{"bytes": ..., "path": ...}``.
            key: identifies the image, in place of what would be computed.

        Raises:
            ImageNotAllowedError: its kind, its host or its bucket is not allowed.
            ImageTooLargeError: it has too many bytes.
            ImageReferenceError: it is malformed.
            TypeError: it is not a reference at all, or `key` is not hashable.
        """
        reference = self._recognise(ref)
        if key is None:
            return reference
        try:
            hash(key)
        except TypeError:
            raise TypeError(
                f"key must be hashable, such as a text or a tuple of numbers, got a {type(key).__name__}"
            ) from None
        return replace(reference, key=key, identity=("key", key))

    def _recognise(self, ref: Any) -> Reference:
        if isinstance(ref, (bytes, bytearray, memoryview)):
            return self._bytes(ref)
        if isinstance(ref, str):
            return self._text(ref)
        if isinstance(ref, os.PathLike):
            return self._path(os.fsdecode(ref))
        if isinstance(ref, np.ndarray):
            return self._array(ref)
        if is_row(ref):
            return self._row(ref["bytes"], ref["path"])
        if isinstance(ref, tuple) and len(ref) == 2 and _is_dataset(ref[0]):
            return self._item(*ref)
        if is_pillow_image(ref):
            return self._pillow(ref)
        raise TypeError(
            f"{type(ref).__name__} is not a reference to an image: pass bytes, a path, a URL, a data: URI, "
            '(dataset, index), a uint8 array, a Pillow image or {"bytes": ..., "path": ...}'
        )

    def _check_kind(self, kind: str, text: str) -> None:
        if kind not in self._allow:
            allowed = ", ".join(map(repr, sorted(self._allow))) or "none"
            reason = f"references of kind {kind!r} are not allowed, only {allowed}: add {kind!r} to allow="
            if kind == "path":
                reason += ", and pass the folder that contains the files as root="
            raise ImageNotAllowedError(short_name(text), reason, kind=kind)

    def _check_nbytes(self, nbytes: int, name: str, kind: str) -> None:
        if nbytes > self._max_bytes:
            raise ImageTooLargeError(name, "bytes", self._max_bytes, nbytes, kind=kind)

    def _bytes(self, data: bytes | bytearray | memoryview) -> Reference:
        nbytes = data.nbytes if isinstance(data, memoryview) else len(data)
        name = f"an image of {nbytes:,} bytes"
        self._check_kind("bytes", name)
        self._check_nbytes(nbytes, name, "bytes")
        taken = bytes(data)
        return Reference("bytes", taken, name, _digest(taken) if nbytes <= _DIGEST_HERE else None)

    def _row(self, data: bytes | bytearray | memoryview | None, path: Any) -> Reference:
        """Return the reference of a row of Hugging Face's datasets: its bytes, or where it has none, its path."""
        if data is None and path is None:
            raise ImageReferenceError("a row", "it has neither bytes nor a path")
        if data is None:
            return self._recognise(path)
        reference = self._bytes(data)
        return reference if path is None else replace(reference, name=short_name(os.fsdecode(path)))

    def _text(self, text: str) -> Reference:
        found = _SCHEME.match(text)
        scheme = "" if found is None else found[1].lower()
        if scheme == "data":
            return self._data(text)
        if scheme in _WEB and text[len(scheme) : len(scheme) + 3] == "://":
            self._check_kind(scheme, text)
            address = parse_web_url(text)
            self._rule.check(address)
            return Reference(
                scheme, address.url, address.name, ("url", address.url), server=address.authority
            )
        if scheme in BUCKETS and text[len(scheme) : len(scheme) + 3] == "://":
            self._check_kind(scheme, text)
            place = parse_object_url(text)
            self._rule.check_bucket(place.scheme, place.bucket, place.name)
            return Reference(scheme, place.url, place.name, ("url", place.url), server=place.bucket)
        if scheme not in ("", "file") and text[len(scheme) : len(scheme) + 3] == "://":
            reason = f"URLs of the scheme {scheme!r} are not read"
            raise ImageNotAllowedError(short_name(text), reason)
        if is_base64_of_image(text):
            name = f"a text of {len(text):,} characters"
            reason = (
                "it is an image in base64: pass its bytes, base64.b64decode(text), or "
                "f'data:image/jpeg;base64,{text}'"
            )
            raise ImageReferenceError(name, reason)
        return self._path(text)

    def _data(self, text: str) -> Reference:
        name = f"a data: URI of {len(text):,} characters"
        self._check_kind("data", name)
        if len(text) > most_characters(self._max_bytes):
            raise ImageTooLargeError(name, "bytes", self._max_bytes, kind="data")
        if not text.isascii():
            raise ImageReferenceError(name, "it has characters that are not ASCII", kind="data")
        return Reference("data", text, name, _digest_of_text(text) if len(text) <= _DIGEST_HERE else None)

    def _path(self, text: str) -> Reference:
        self._check_kind("path", text)
        path = path_of_reference(text)
        return Reference("path", path, short_name(text), ("path", path))

    def _array(self, array: Array) -> Reference:
        name = f"an array of {array.dtype} {'x'.join(map(str, array.shape))}"
        self._check_kind("array", name)
        shape = (*array.shape, 1) if array.ndim == 2 else array.shape
        if array.dtype != np.uint8 or len(shape) != 3 or shape[2] not in (1, 3) or 0 in shape:
            reason = "pixels are uint8 of shape (height, width, 3), (height, width, 1) or (height, width)"
            raise ImageReferenceError(name, reason, kind="array")
        self._check_nbytes(array.nbytes, name, "array")
        return Reference("array", array, name)

    def _pillow(self, image: Any) -> Reference:
        name = f"a Pillow image of {image.width} x {image.height} pixels"
        self._check_kind("pillow", name)
        if not image.width * image.height:
            raise ImageReferenceError(name, "it has no pixels", kind="pillow")
        # Checked before it is decoded: Pillow reads the pixels of an opened file when they are needed.
        self._check_nbytes(image.width * image.height * 3, name, "pillow")
        return Reference("pillow", image, name, ("pillow", id(image)))

    def _item(self, dataset: MapDataset[Any], index: Any) -> Reference:
        text = f"{type(dataset).__name__}[{index!r:.40}]"
        self._check_kind("dataset", text)
        if isinstance(index, bool) or not hasattr(index, "__index__"):
            raise TypeError(f"(dataset, index) needs a whole number as index, got a {type(index).__name__}")
        number = index.__index__()
        return Reference("dataset", (dataset, number), short_name(text), ("item", id(dataset), number))

    async def identify(self, reference: Reference) -> Reference:
        """Return the reference with the identity of its bytes, which is computed in a thread if they are many."""
        if reference.identity is not None or reference.kind not in ("bytes", "data"):
            return reference
        fn: Callable[[Any], Hashable] = _digest if reference.kind == "bytes" else _digest_of_text
        return replace(reference, identity=await self.in_thread(fn, reference.value))

    async def in_thread(self, fn: Callable[..., T], *args: Any) -> T:
        """Call a function that computes for long in a thread, and return its result; cancellation leaves it there."""
        return await self._threads["memory"].run_abandonable(fn, *args)

    # -- reading -----------------------------------------------------------------------------------------------------

    def read_near(self, reference: Reference) -> ReadImage | None:
        """Return the bytes of a reference if that takes no time; None: use `read`."""
        if reference.kind == "bytes":
            return ReadImage(reference.value, reference.identity)
        return None

    async def read(self, reference: Reference) -> ReadImage:
        """Read all bytes of a reference.

        Raises:
            ImageReferenceError: it is malformed, too large, not allowed, or could not be read; see its subclasses.
            MissingPackageError: a package for this kind is not installed.

        Cancellation ends a request at once; a file that is being read is left to its thread.
        """
        return await self._read(reference, None)

    async def read_header(self, reference: Reference, nbytes: int = HEAD_NBYTES) -> ReadImage:
        """Read the beginning of an image: `nbytes` of a file or an object, all of what is in memory or in the cache.

        The header of a photograph may be longer, because of previews and profiles; then `ReadImage.complete` is False,
        and `read` returns the rest too.

        Raises, and is cancelled, as `read`.
        """
        return await self._read(reference, nbytes)

    async def _read(self, reference: Reference, first: int | None) -> ReadImage:
        kind, value, name = reference.kind, reference.value, reference.name
        run = self._threads[reference.source].run_abandonable
        key: Hashable | None = reference.identity
        complete = True
        data: bytes | bytearray | memoryview
        if kind == "bytes":
            data = value
        elif kind == "data":
            data = await run(decode_data_uri, value, name, self._max_bytes)
        elif kind == "array":
            data, key = await run(raw_buffer, value), None
        elif kind == "pillow":
            data, key = await run(_encoded_pillow, value, name), None
        elif kind == "path":
            assert self._root is not None
            data, key, complete = await run(self._root.read, value, name, first)
        elif kind == "dataset":
            # Another dataset may get the identity of one that is collected, so only the caller's key is kept.
            dataset, index = value
            data, key = await self._items.read(dataset, index, name), None
            self._check_nbytes(len(data), name, kind)
        elif kind in BUCKETS:
            data, key, complete = await self._read_object(parse_object_url(value), first)
        elif self._fetch is not None:
            data, key = await self._call_fetch(self._fetch, reference), None
        else:
            data, key, complete = await self._read_web(parse_web_url(value), first)
        return ReadImage(data, key if reference.key is None else reference.identity, complete)

    async def _read_web(self, address: WebAddress, first: int | None) -> _Read:
        url = address.url
        cache = await self._opened_cache()
        run = self._threads["web"].run_abandonable
        known, held = None if cache is None else cache.known.get(url), None
        if cache is not None and known is not None:
            # Before the request, so that the server's answer can be used also if the bytes are evicted meanwhile.
            held = await run(cache.load, known.final, known.tag, known.nbytes)
        found = await self._client().fetch(address, first=first, known=None if held is None else known)
        if known is not None and held is not None and found.is_known:
            return held, ("url", known.final, known.tag), True
        if found.tag is None:
            return found.data, None, found.complete
        # Where a redirect leads, because it may lead to another image of the same tag the next time.
        if cache is not None and found.complete:
            await run(cache.store, found.final, found.tag, found.data)
            cache.known.put(url, KnownVersion(found.final, found.tag, len(found.data)))
        return found.data, ("url", found.final, found.tag), found.complete

    async def _read_object(self, address: ObjectAddress, first: int | None) -> _Read:
        version = await self._objects.describe(address)
        url, tag, nbytes = address.url, version.tag, version.nbytes
        key = None if tag is None else ("url", url, tag)
        cache = None if tag is None else await self._opened_cache()
        run = self._threads["bucket"].run_abandonable
        if cache is not None and tag is not None:
            held = await run(cache.load, url, tag, nbytes)
            if held is not None:
                return held, key, True
        wanted = nbytes if first is None else min(first, nbytes)
        data = await self._objects.fetch(address, version, wanted)
        if wanted < nbytes:
            return data, key, False
        if cache is not None and tag is not None:
            await run(cache.store, url, tag, data)
        return data, key, True

    def _client(self) -> WebClient:
        assert self._web is not None, "accept() takes a URL only where there is a client"
        return self._web

    async def _opened_cache(self) -> FetchedCache | None:
        if self._cache is not None and not self._cache.is_open:
            try:
                await self._threads["web"].run(self._cache.open)
            except OSError as error:
                reason = f"the cache of the bytes of URLs cannot be used: {error}; pass another directory"
                raise ImageServiceError(reason) from error
        return self._cache

    async def _call_fetch(self, fetch: Fetch, reference: Reference) -> bytes:
        kind, name = reference.kind, reference.name
        data: object = None
        with anyio.move_on_after(self._timeout) as scope:
            try:
                data = await fetch(reference.value)
            except ImageServiceError:
                raise
            except Exception as error:
                # Its text may contain the query of the URL.
                raise ImageFetchError(name, f"fetch= raised {type(error).__name__}", kind=kind) from error
        if scope.cancelled_caught:
            raise ImageFetchError(name, f"fetch= did not return within {self._timeout:g} s", kind=kind)
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"fetch= must return bytes, but it returned a {type(data).__name__}")
        self._check_nbytes(len(memoryview(data).cast("B")), name, kind)
        return data if isinstance(data, bytes) else bytes(data)

    async def aclose(self) -> None:
        """Close connections, files and threads. No call may be running."""
        with anyio.CancelScope(shield=True):
            await self._items.aclose()
            if self._cache is not None:
                await self._threads["web"].run(self._cache.close)
            if self._web is not None:
                await self._web.aclose()
        self._objects.close()
        for threads in self._threads.values():
            threads.close(0)


def _is_dataset(value: object) -> bool:
    return implements(value, MapDataset) and not isinstance(value, (str, bytes, bytearray, memoryview))


def _digest(data: bytes) -> Hashable:
    return ("bytes", len(data), hashlib.sha256(data).digest())


def _digest_of_text(text: str) -> Hashable:
    digest = hashlib.sha256()
    for place in range(0, len(text), _DIGEST_PIECE):
        digest.update(text[place : place + _DIGEST_PIECE].encode("ascii"))
    return ("data", len(text), digest.digest())


def _encoded_pillow(image: Any, name: str) -> memoryview:
    """Return a Pillow image as encoded bytes.

    Raises:
        ImageReferenceError: Pillow cannot decode or convert it.
    """
    try:
        return encode_pillow(image)
    except Exception as error:
        reason = f"Pillow cannot convert it: {type(error).__name__}: {error}"
        raise ImageReferenceError(name, reason, kind="pillow") from error
