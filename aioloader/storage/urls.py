"""URLs of objects: which paths are URLs, what store an object belongs to, and the names beside it. Pure.

A URL of object storage is a bucket and a key: nothing in it is escaped, and ``?`` is a character of the key. One of
HTTP is escaped as in a browser, and may have a query (a signature), which belongs to the object and stays with it.
"""

from __future__ import annotations

import os
import posixpath
import re
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from aioloader.errors import UnknownSchemeError

__all__ = (
    "SCHEMES",
    "Location",
    "beside",
    "is_url",
    "join",
    "locate",
    "name_of",
    "path_of",
    "redact_url",
    "scheme_of",
    "sibling",
    "suffix_of",
)

WEB = ("http", "https")
BUCKETS = ("s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss")
SCHEMES = WEB + BUCKETS
"""Schemes of the paths that are read over the network."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


class Location(NamedTuple):
    """Where an object is.

    Attributes:
        store: URL of the store: scheme and host, or bucket. All of the URL where its path is not to be touched.
        path: of the object in the store, unescaped.
    """

    store: str
    path: str


def scheme_of(path: str) -> str | None:
    """The scheme of a URL in lower case, or None."""
    match = _SCHEME.match(path)
    return match.group(1).lower() if match else None


def is_url(path: str | os.PathLike[str]) -> bool:
    """Whether a path is read over the network. ``file://`` URLs and plain paths are not."""
    return isinstance(path, str) and scheme_of(path) in SCHEMES


def path_of(path: str | os.PathLike[str]) -> str:
    """A path as its readers take it: ``~`` expanded, ``file://`` taken off, URLs as they are.

    Raises:
        UnknownSchemeError: a URL of a scheme that is not read.
    """
    name = os.path.expanduser(os.fspath(path))
    scheme = scheme_of(name)
    if scheme is None or scheme in SCHEMES:
        return name
    if scheme == "file":
        return name[len("file://") :]
    raise UnknownSchemeError(name, scheme, ("file", *SCHEMES))


def locate(url: str) -> Location:
    """Store and path of an object.

    Raises:
        ValueError: the URL names no host or bucket, or has no scheme that is known.
    """
    scheme = scheme_of(url)
    if scheme not in SCHEMES:
        raise ValueError(f"{url!r} is no URL of one of {', '.join(SCHEMES)}")
    store, slash, path = url[len(scheme) + 3 :].partition("/")
    if not store:
        what = "host" if scheme in WEB else "bucket"
        raise ValueError(f"{url!r} names no {what}")
    if scheme in BUCKETS:
        return Location(f"{scheme}://{store}", path)
    parts = urlsplit(url)
    plain = unquote(parts.path, errors="strict") if parts.path.isascii() else parts.path
    # What is not the usual spelling of a path is sent as it stands: as a store of its own.
    odd = parts.query or "%2f" in parts.path.lower() or any(part in ("", ".", "..") for part in _parts(plain))
    if odd or not slash:
        return Location(urlunsplit(parts._replace(fragment="")), "")
    return Location(f"{scheme}://{parts.netloc}/", plain.lstrip("/"))


def _parts(path: str) -> list[str]:
    return path.strip("/").split("/")


def join(url: str, path: str) -> str:
    """The URL of what lies at a relative path under a URL; the query of the URL goes along.

    Args:
        url: of a folder.
        path: with slashes, unescaped.
    """
    if scheme_of(url) in BUCKETS:
        return f"{url.rstrip('/')}/{path}"
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{quote(path)}"))


def sibling(url: str, name: str) -> str:
    """The URL of another object beside one; a query goes along."""
    if scheme_of(url) in BUCKETS:
        return f"{url.rpartition('/')[0]}/{name}"
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"{parts.path.rpartition('/')[0]}/{quote(name)}"))


def suffix_of(url: str) -> str:
    """The suffix of an object's name with its dot, such as ".rec", or ""."""
    return posixpath.splitext(url if scheme_of(url) in BUCKETS else urlsplit(url).path)[1]


def name_of(path: str) -> str:
    """The last part of a path or URL, without a query."""
    if scheme_of(path) in WEB:
        path = urlsplit(path).path
    return os.path.basename(path)


def beside(url: str, suffix: str) -> str:
    """The URL or path of the same name with another suffix; a query goes along."""
    if scheme_of(url) not in WEB:
        return posixpath.splitext(url)[0] + suffix
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=posixpath.splitext(parts.path)[0] + suffix))


def redact_url(url: str) -> str:
    """A URL as it is told in errors: without a password, and without a query, which may be a signature."""
    if scheme_of(url) not in WEB:
        return url
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=host, query="..." if parts.query else "", fragment=""))
