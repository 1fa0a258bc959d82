"""References to images: what a caller may pass to a service, and the bytes behind it."""

from __future__ import annotations

import asyncio
import binascii
import errno
import hashlib
import os
from base64 import b64decode
from collections.abc import Awaitable, Callable, Collection, Hashable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote_to_bytes

import numpy as np

from aioloader.errors import (
    ImageFetchError,
    ImageNotAllowedError,
    ImageReferenceError,
    ImageTooLargeError,
)
from aioloader.foundation.threads import Threads
from aioloader.service.allowed import HostRule, check_kinds, is_inside, parse_web_url, path_inside, short_name
from aioloader.service.dataset_items import DatasetItems
from aioloader.service.http_fetch import WebClient
from aioloader.storage.local.descriptors import open_regular, read_into
from aioloader.transforms.raw import encode_raw

if TYPE_CHECKING:
    from aioloader.foundation.types import Array

Fetch = Callable[[str], Awaitable[bytes]]

# A digest of this many bytes takes 0.1 to 0.3 ms.
_DIGEST_HERE = 1 << 18
_NEAR: Final = frozenset(("bytes", "data", "array", "pillow"))


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference that a service accepts.

    Attributes:
        kind: a word of ``allow=``: "bytes", "data", "path", "http", "https", "dataset", "array" or "pillow".
        value: what it refers to: bytes-like object, text of a ``data:`` URI, path, URL, (dataset, index), uint8 array of
            shape (height, width, channels), or a Pillow image.
        name: short text that names it, for errors.
        identity: images of equal identities that are in flight are made once; None: not known before `identify`, or never.
        key: the caller's key, or None.
    """

    kind: str
    value: Any
    name: str
    identity: Hashable | None = None
    key: Hashable | None = None

    @property
    def near(self) -> bool:
        """Return True if reading it waits for nothing."""
        return self.kind in _NEAR


@dataclass(frozen=True, slots=True)
class ReadImage:
    """The bytes of an image.

    Attributes:
        payload: an encoded image; pixels are encoded as a raw image (`aioloader.transforms.encode_raw`).
        key: identifies the image in a cache; None: it is not kept.
    """

    payload: bytes | bytearray | memoryview
    key: Hashable | None

    @property
    def nbytes(self) -> int:
        """Return the number of bytes."""
        return len(self.payload)


class ReferenceReader:
    """Reader of references.

    Args:
        allow: kinds that are accepted.
        root: folder that contains the files of kind "path"; None: there are none.
        hosts: hosts of kinds "http" and "https", see `HostRule`; None: all public hosts.
        fetch: async function that returns the bytes of a URL, in place of the own client. Kinds and hosts are checked
            before it is called; addresses and redirects are its own business.
        max_bytes: most bytes of an image, encoded.
        timeout: seconds for reading one.

    Raises:
        TypeError, ValueError: an argument is wrong.
    """

    def __init__(
        self,
        *,
        allow: Collection[str] = ("bytes", "data"),
        root: str | os.PathLike[str] | None = None,
        hosts: Collection[str] | None = None,
        fetch: Fetch | None = None,
        max_bytes: int = 64 << 20,
        timeout: float = 60.0,
    ) -> None:
        self._allow = check_kinds(allow)
        if "path" in self._allow and root is None:
            raise ValueError("allow has 'path': pass the folder that contains the files as root=")
        if root is not None and "path" not in self._allow:
            raise ValueError("root= is a folder of files: pass allow=('path', ...) too")
        self._root = None if root is None else os.path.realpath(root)
        self._rule = HostRule(hosts)
        self._fetch = fetch
        self._max_bytes = max_bytes
        self._client = WebClient(self._rule, max_bytes=max_bytes, timeout=timeout)
        self._threads = Threads(8, "aioloader-read")
        self._items = DatasetItems(self._threads)

    # -- accepting -------------------------------------------------------------------------------------------------

    def accept(self, ref: Any, *, key: Hashable | None = None) -> Reference:
        """Return the reference that an object is. No file is opened, nothing is decoded.

        Args:
            ref: bytes-like object, path, URL, ``data:`` URI, (dataset, index), uint8 array or Pillow image.
            key: identifies the image, in place of what would be computed.

        Raises:
            ImageNotAllowedError: its kind or its host is not allowed.
            ImageTooLargeError: it has too many bytes.
            ImageReferenceError: it is malformed.
            TypeError: it is no reference at all.
        """
        reference = self._recognise(ref)
        if reference.kind not in self._allow:
            reason = (
                f"references of kind {reference.kind!r} are not allowed; allowed are {_listed(self._allow)}"
            )
            raise ImageNotAllowedError(reference.name, reason, kind=reference.kind)
        if key is not None:
            return replace(reference, key=key, identity=("key", key))
        if reference.kind in ("http", "https"):
            self._rule.check(parse_web_url(reference.value))
        return reference

    def _recognise(self, ref: Any) -> Reference:
        if isinstance(ref, bytes):
            return self._bytes(ref)
        if isinstance(ref, str):
            return self._text(ref)
        if isinstance(ref, (bytearray, memoryview)):
            return self._bytes(bytes(ref))  # the caller may change it later
        if isinstance(ref, os.PathLike):
            return self._path(os.fsdecode(ref))
        if isinstance(ref, np.ndarray):
            return self._array(ref)
        if isinstance(ref, tuple) and len(ref) == 2 and hasattr(type(ref[0]), "__getitem__"):
            return self._item(*ref)
        module = type(ref).__module__
        if module == "PIL" or module.startswith("PIL."):
            return Reference("pillow", ref, f"a Pillow image of {ref.width} x {ref.height} pixels")
        raise TypeError(
            f"a {type(ref).__name__} is no reference to an image: pass bytes, a path, a URL, a data: URI, "
            "(dataset, index), a uint8 array or a Pillow image"
        )

    def _bytes(self, data: bytes) -> Reference:
        name = f"an image of {len(data):,} bytes"
        self._check_nbytes(len(data), name, "bytes")
        return Reference("bytes", data, name, _digest(data) if len(data) <= _DIGEST_HERE else None)

    def _check_nbytes(self, nbytes: int, name: str, kind: str) -> None:
        if nbytes > self._max_bytes:
            raise ImageTooLargeError(name, "bytes", self._max_bytes, nbytes, kind=kind)

    def _text(self, text: str) -> Reference:
        start = text[:8].lower()
        if start.startswith("data:"):
            # Three bytes are four characters of base64, and up to nine escaped ones.
            self._check_nbytes(len(text) * 3 // 4 - 256, "a data: URI", "data")
            name = f"a data: URI of {len(text):,} characters"
            known = len(text) <= _DIGEST_HERE
            return Reference("data", text, name, _digest(text.encode()) if known else None)
        if start.startswith(("http://", "https://")):
            address = parse_web_url(text)
            return Reference(address.scheme, text, address.name, ("url", text))
        if start.startswith("file://") or "://" not in text[:32]:
            return self._path(text)
        scheme = text.partition("://")[0]
        raise ImageNotAllowedError(short_name(text), f"references of the scheme {scheme!r} are not read")

    def _path(self, path: str) -> Reference:
        name = short_name(path)
        if self._root is None:
            raise ImageNotAllowedError(
                name, "paths are not allowed: pass allow=('path', ...) and the folder as root=", kind="path"
            )
        return Reference("path", path, name, ("path", path))

    def _array(self, array: Array) -> Reference:
        shape = "x".join(map(str, array.shape))
        name = f"an array of {array.dtype} {shape}"
        if (
            array.dtype != np.uint8
            or array.ndim not in (2, 3)
            or (array.ndim == 3 and array.shape[2] not in (1, 3))
        ):
            reason = "pixels are uint8 of shape (height, width, 3), (height, width, 1) or (height, width)"
            raise ImageReferenceError(name, reason, kind="array")
        if 0 in array.shape:
            raise ImageReferenceError(name, "it has no pixels", kind="array")
        self._check_nbytes(array.nbytes, name, "array")
        return Reference("array", array, name)

    def _item(self, dataset: Any, index: Any) -> Reference:
        try:
            number = index.__index__()
        except (AttributeError, TypeError):
            raise TypeError(
                f"(dataset, index) needs a whole number as index, got {type(index).__name__}"
            ) from None
        name = f"{type(dataset).__name__}[{number}]"
        return Reference("dataset", (dataset, number), name, ("item", id(dataset), number))

    async def identify(self, reference: Reference) -> Reference:
        """Return the reference with the identity of its bytes, which is computed in a thread if they are many."""
        if reference.identity is not None or reference.kind not in ("bytes", "data"):
            return reference
        data = reference.value
        data = data.encode() if isinstance(data, str) else data
        return replace(reference, identity=await self._threads.run(_digest, data))

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

        Cancellation ends a request at once; a file that is being read is left to its thread.
        """
        kind, value = reference.kind, reference.value
        if kind == "bytes":
            return ReadImage(value, reference.identity)
        if kind == "data":
            run = self._threads.run_abandonable
            data = await run(_decoded, value, reference.name, self._max_bytes, abandoned=_nothing)
            return ReadImage(data, reference.identity)
        if kind == "path":
            data, stamp = await self._threads.run_abandonable(self._read_file, reference, abandoned=_nothing)
            return ReadImage(data, reference.identity if reference.key is not None else stamp)
        if kind == "array":
            return ReadImage(await self._threads.run(encode_raw, value), reference.identity)
        if kind == "pillow":
            data = await self._threads.run(self._from_pillow, reference)
            return ReadImage(data, reference.identity)
        if kind == "dataset":
            data = await self._items.read(value[0], value[1], reference.name)
            self._check_nbytes(len(data), reference.name, kind)
            # Another dataset may get the identity of one that is collected, so only the caller's key is kept.
            return ReadImage(data, None if reference.key is None else reference.identity)
        return await self._read_url(reference)

    async def _read_url(self, reference: Reference) -> ReadImage:
        url = reference.value
        if self._fetch is None:
            data, tag = await self._client.fetch(url)
            key: Hashable | None = None if tag is None else ("url", url, tag)
        else:
            try:
                data = await self._fetch(url)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                reason = f"fetch= failed: {type(error).__name__}: {error}"
                raise ImageFetchError(reference.name, reason, kind=reference.kind) from error
            if not isinstance(data, (bytes, bytearray, memoryview)):
                raise TypeError(f"fetch= returned a {type(data).__name__}, not bytes")
            key = None
        self._check_nbytes(len(data), reference.name, reference.kind)
        return ReadImage(data, reference.identity if reference.key is not None else key)

    async def read_header(self, reference: Reference) -> ReadImage:
        """Read at least as many bytes as the header of the image has, usually fewer than all.

        Raises, and is cancelled, as `read`.
        """
        if reference.kind == "path":
            head = await self._threads.run_abandonable(self._read_file, reference, _HEAD, abandoned=_nothing)
            return ReadImage(*head)
        if reference.kind in ("http", "https") and self._fetch is None:
            data, tag = await self._client.fetch(reference.value, head=_HEAD)
            return ReadImage(data, None if tag is None else ("url", reference.value, tag))
        return await self.read(reference)

    def _read_file(self, reference: Reference, most: int | None = None) -> tuple[bytes | bytearray, Hashable]:
        assert self._root is not None
        real = path_inside(self._root, reference.value)
        try:
            fd = open_regular(real, getattr(os, "O_NOFOLLOW", 0))
        except OSError as error:
            # A link that was put there after the path was resolved.
            if error.errno == errno.ELOOP:
                raise ImageNotAllowedError(reference.name, "it is a link", kind="path") from None
            reason = error.strerror or str(error)
            raise ImageFetchError(reference.name, f"it cannot be read: {reason}", kind="path") from None
        try:
            self._check_opened(fd, reference.name)
            status = os.fstat(fd)
            self._check_nbytes(status.st_size, reference.name, "path")
            data = bytearray(status.st_size if most is None else min(most, status.st_size))
            got = read_into(fd, memoryview(data), 0)
        finally:
            os.close(fd)
        if got < len(data):
            raise ImageFetchError(reference.name, "the file shrank while it was read", kind="path")
        return data, ("path", real, status.st_mtime_ns, status.st_size)

    def _check_opened(self, fd: int, name: str) -> None:
        """Raise if the open file is outside of the root: a folder on its path was replaced by a link meanwhile."""
        assert self._root is not None
        try:
            real = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:  # no Linux
            return
        if not is_inside(self._root, real):
            raise ImageNotAllowedError(name, "it is outside of the folder that root= names", kind="path")

    def _from_pillow(self, reference: Reference) -> bytes:
        image = reference.value
        self._check_nbytes(image.width * image.height * 3, reference.name, "pillow")
        try:
            return encode_raw(np.asarray(image.convert("RGB")))
        except Exception as error:
            reason = f"Pillow cannot convert it: {type(error).__name__}: {error}"
            raise ImageReferenceError(reference.name, reason, kind="pillow") from error

    async def aclose(self) -> None:
        """Close connections, files and threads."""
        await self._items.aclose()
        self._threads.close(0)


_HEAD = 1 << 16
"""Bytes that `read_header` reads at first: more than the header of most images has, previews included."""


def _digest(data: bytes) -> Hashable:
    return ("bytes", len(data), hashlib.blake2b(data, digest_size=16).digest())


def _decoded(uri: str, name: str, most: int) -> bytes:
    """Return the data of a ``data:`` URI (RFC 2397)."""
    head, comma, body = uri.partition(",")
    if not comma:
        raise ImageReferenceError(name, "it has no comma, and so no data", kind="data")
    words = head[5:].lower().split(";")
    if words[0] and not words[0].strip().startswith(("image/", "application/octet-stream")):
        raise ImageReferenceError(name, f"its type is {short_name(words[0])!r}, not an image", kind="data")
    try:
        if words[-1].strip() == "base64":
            data = b64decode(body if "%" not in body else unquote_to_bytes(body), validate=True)
        else:
            data = unquote_to_bytes(body)
    except (binascii.Error, ValueError) as error:
        raise ImageReferenceError(name, f"its data are not base64: {error}", kind="data") from None
    if len(data) > most:
        raise ImageTooLargeError(name, "bytes", most, len(data), kind="data")
    return data


def _listed(kinds: Collection[str]) -> str:
    return ", ".join(map(repr, sorted(kinds))) or "none"


def _nothing() -> None:
    pass
