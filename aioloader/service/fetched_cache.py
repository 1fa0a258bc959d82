"""Bytes of URLs that were read before, in the cache of remote data. Blocking, but for `known` and `remember`.

The bytes of an image are found by its URL and its version. Object storage says the version before the bytes are read.
A server of HTTP is asked for the bytes unless the version is the known one (If-None-Match, RFC 9110, section 13.1.2).
So an image is never older than the server's. Which version is known, and of which URL after redirects, is remembered
in this process.

The cache finds spans by numbers of 63 bits. A stranger could look for two URLs with the same number, so each span
begins with a digest of URL and version, which is compared.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aioloader.storage.cache.base import Cache, MemoryCache, PlacedSpans
from aioloader.storage.cache.lookup import file_key

if TYPE_CHECKING:
    from aioloader.storage.cache.options import CacheOptions

_NAME = "images of URLs"
_DIGEST_NBYTES = 32
_MOST_KNOWN = 1 << 16


class KnownVersion(NamedTuple):
    """Version of an image that was read.

    Attributes:
        final: its URL after redirects.
        tag: the server's name for the version.
        nbytes: size of the image.
    """

    final: str
    tag: str
    nbytes: int


class FetchedCache:
    """Cache of the bytes of URLs. Used from any thread, but for `known` and `remember`: from one.

    Args:
        options: directory or memory, and how much. A full cache adds nothing more, until it is opened again.
    """

    def __init__(self, options: CacheOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._opened = False
        self._cache: Cache | None = None
        self._known: OrderedDict[str, KnownVersion] = OrderedDict()

    def open(self) -> None:
        """Open the cache, unless it is open. If its disk is full, there is none, and a warning is logged.

        Raises:
            OSError: the directory cannot be made or written to.
        """
        with self._lock:
            if self._opened:
                return
            if self._options.in_memory:
                self._cache = MemoryCache(self._options.limit_nbytes)
            else:
                self._cache = self._options.open_directory()
            self._opened = True

    @property
    def is_open(self) -> bool:
        """Return whether `open` has returned."""
        return self._opened

    def known(self, url: str) -> KnownVersion | None:
        """Return the version of a URL that was remembered last."""
        return self._known.get(url)

    def remember(self, url: str, version: KnownVersion) -> None:
        """Remember the version of a URL whose bytes were added."""
        self._known[url] = version
        self._known.move_to_end(url)
        if len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)

    def load(self, url: str, tag: str, nbytes: int) -> memoryview | None:
        """Return the bytes of a version of a URL; None if they are not there."""
        if self._cache is None:
            return None
        data = memoryview(np.empty(_DIGEST_NBYTES + nbytes, np.uint8).data)
        here = self._cache.read(_NAME, "", _span(url, tag, len(data)), data)
        if not here[0] or data[:_DIGEST_NBYTES] != _digest(url, tag):
            return None
        return data[_DIGEST_NBYTES:]

    def store(self, url: str, tag: str, image: bytes | bytearray | memoryview) -> None:
        """Add the bytes of a version of a URL, if there is space."""
        if self._cache is None:
            return
        data = np.empty(_DIGEST_NBYTES + len(image), np.uint8)
        data[:_DIGEST_NBYTES] = np.frombuffer(_digest(url, tag), np.uint8)
        data[_DIGEST_NBYTES:] = np.frombuffer(image, np.uint8)
        self._cache.write(_NAME, "", _span(url, tag, len(data)), memoryview(data.data))

    def close(self) -> None:
        """Close all files; may be called twice."""
        cache, self._cache = self._cache, None
        if cache is not None:
            cache.close()


def _digest(url: str, tag: str) -> bytes:
    return blake2b(f"{url}\n{tag}".encode("utf-8", "surrogateescape"), digest_size=_DIGEST_NBYTES).digest()


def _span(url: str, tag: str, nbytes: int) -> PlacedSpans:
    key, length, place = ([file_key(url, tag)], [nbytes], [0])
    return PlacedSpans(np.array(key, np.int64), np.array(length, np.int64), np.array(place, np.int64))
