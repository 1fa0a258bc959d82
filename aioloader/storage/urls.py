"""URLs of objects: tests of paths, the store of an object, and names of objects next to it. Pure.

A URL of object storage is a bucket and a key: nothing in it is escaped, and ``?`` is a character of the key. The same
holds for a path in a data set on the Hugging Face Hub (``hf://``, see `aioloader.storage.hub_names`). A URL of HTTP is
escaped as in a browser, and may have a query (a signature), which belongs to the object and is kept.

A new scheme of object storage is added to `BUCKETS`, and nowhere else: its stores are opened as those of a scheme that
the package obstore knows, and all schemes are registered with `recordio`.
"""

from __future__ import annotations

import os
import posixpath
import re
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from aioloader.errors import UnknownSchemeError
from aioloader.storage.hub_names import SCHEME, parse_hub_url, without_revision

WEB = ("http", "https")
BUCKETS = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "az": "az",
    "azure": "az",
    "adl": "az",
    "abfs": "abfs",
    "abfss": "abfss",
}
"""Schemes of object storage, each with the one of obstore that opens its stores."""
LISTED = (*BUCKETS, SCHEME)
"""Schemes whose objects can be listed."""
SCHEMES = WEB + LISTED
"""Schemes of the paths that are read over the network."""

_HUB = f"{SCHEME}://"
_UNUSUAL_PARTS = {"", ".", ".."}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


class Location(NamedTuple):
    """Location of an object.

    Attributes:
        store: URL of the store: scheme and host, or bucket. The whole URL if its path must not be changed.
        path: of the object in the store, unescaped.
    """

    store: str
    path: str


def scheme_of(path: str) -> str | None:
    """Return the scheme of a URL in lower case, or None."""
    match = _SCHEME.match(path)
    return match.group(1).lower() if match else None


def is_url(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is read over the network; False for ``file://`` URLs and plain paths."""
    return isinstance(path, str) and scheme_of(path) in SCHEMES


def is_hub(path: str) -> bool:
    """Return whether a path is a URL of a data set on the Hugging Face Hub."""
    return path[: len(_HUB)].lower() == _HUB


def can_list(url: str) -> bool:
    """Return whether a URL is of a store that lists its objects: object storage or the Hub, not HTTP."""
    return scheme_of(url) in LISTED


def check_writable(url: str) -> None:
    """Raise if a URL can only be read.

    Raises:
        ValueError: it is one of the Hub.
    """
    if is_hub(url):
        raise ValueError(
            f"{url!r} can only be read; write to a local path, and upload the files with `hf upload`"
        )


def path_of(path: str | os.PathLike[str]) -> str:
    """Normalize a path for its readers: expand ``~``, remove ``file://``, and keep other URLs.

    Raises:
        UnknownSchemeError: the scheme of a URL is not supported.
    """
    name = os.path.expanduser(os.fspath(path))
    scheme = scheme_of(name)
    if scheme is None or scheme in SCHEMES:
        return name
    if scheme == "file":
        return name[len("file://") :]
    raise UnknownSchemeError(name, scheme, ("file", *SCHEMES))


def locate(url: str) -> Location:
    """Return store and path of an object.

    Raises:
        ValueError: the URL has no host or bucket, or its scheme is not supported.
    """
    scheme = scheme_of(url)
    if scheme not in SCHEMES:
        raise ValueError(f"{url!r} is not a URL of one of {', '.join(SCHEMES)}")
    store, slash, path = url[len(scheme) + 3 :].partition("/")
    if not store:
        raise ValueError(f"{url!r} has no {'host' if scheme in WEB else 'bucket'}")
    if scheme == SCHEME:
        file = parse_hub_url(url)
        return Location(file.store, file.path)
    if scheme in BUCKETS:
        return Location(f"{scheme}://{store}", path)
    parts = urlsplit(url)
    plain = unquote(parts.path, errors="strict") if parts.path.isascii() else parts.path
    # A path that is not spelled in the usual way is sent unchanged: the whole URL is a separate store.
    odd = (
        parts.query
        or "%2f" in parts.path.lower()
        or not _UNUSUAL_PARTS.isdisjoint(plain.strip("/").split("/"))
    )
    if odd or not slash:
        return Location(urlunsplit(parts._replace(fragment="")), "")
    return Location(f"{scheme}://{parts.netloc}/", plain.lstrip("/"))


def join(url: str, path: str) -> str:
    """Return the URL of a relative path under a URL; the query of the URL is kept.

    Args:
        url: of a folder.
        path: with slashes, unescaped.
    """
    if can_list(url):
        return f"{url.rstrip('/')}/{path}"
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{quote(path)}"))


def sibling(url: str, name: str) -> str:
    """Return the URL of another object in the same folder; a query is kept."""
    if can_list(url):
        return f"{url.rpartition('/')[0]}/{name}"
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"{parts.path.rpartition('/')[0]}/{quote(name)}"))


def suffix_of(url: str) -> str:
    """Return the suffix of an object's name with its dot, or ""."""
    return posixpath.splitext(url if can_list(url) else urlsplit(url).path)[1]


def name_of(path: str) -> str:
    """Return the last part of a path or URL, without a query."""
    if scheme_of(path) in WEB:
        path = urlsplit(path).path
    return os.path.basename(path)


def beside(url: str, suffix: str) -> str:
    """Return the URL or path of the same name with another suffix; a query is kept."""
    if scheme_of(url) not in WEB:
        return posixpath.splitext(url)[0] + suffix
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=posixpath.splitext(parts.path)[0] + suffix))


def appended(url: str, suffix: str) -> str:
    """Return the URL or path of the whole name with a suffix behind it; a query is kept."""
    if scheme_of(url) not in WEB:
        return url + suffix
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=parts.path + suffix))


def redact_url(url: str) -> str:
    """Return a URL for errors: without a password, and without a query, which may be a signature."""
    if scheme_of(url) not in WEB:
        return url
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=host, query="..." if parts.query else "", fragment=""))


def cache_name(url: str) -> str:
    """Return the name of an object in caches, where its version distinguishes its contents.

    Without a password and a query, as in errors, and without the revision of a data set on the Hub: a file that a
    commit does not change stays in the cache.
    """
    return without_revision(url) if is_hub(url) else redact_url(url)
