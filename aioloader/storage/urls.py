"""URLs of objects: tests of paths, the store of an object, and names of objects next to it. Pure.

A URL of object storage is a bucket and a key: nothing in it is escaped, and ``?`` is a character of the key. The same
holds for a path in a data set on the Hugging Face Hub (``hf://``). A URL of HTTP is
escaped as in a browser, and may have a query (a signature), which belongs to the object and is kept.

A new scheme of object storage is added to `BUCKETS`, and nowhere else: its stores are opened as those of a scheme that
the package obstore knows, and all schemes are registered with `recordio`.

Names of files on the Hub are those of `HfFileSystem` of the package huggingface_hub:
``hf://datasets/USER/NAME[@REVISION]/PATH``. The revision is a branch, a tag, a commit or a ref such as
``refs/convert/parquet``, and may be escaped (``%2F``); the path is not escaped. The interface:
https://huggingface.co/docs/hub/api and its OpenAPI description.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from aioloader.errors import UnknownSchemeError

if TYPE_CHECKING:
    from collections.abc import Iterable


SCHEME = "hf"
DEFAULT_REVISION = "main"

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}")
_COMMIT = re.compile(r"[0-9a-f]{40}")
# Revisions with slashes that need no escape.
_REF = re.compile(r"refs/(?:convert/[\w.-]+|pr/\d+)(?=/|$)")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_MOST_REVISION = 255
_UNUSUAL_NAMES = {"", ".", ".."}
_FORM = "hf://datasets/USER/NAME/PATH or hf://datasets/USER/NAME@REVISION/PATH"


class HubFile(NamedTuple):
    """File or folder of a data set.

    Attributes:
        repository: the data set, "USER/NAME".
        revision: branch, tag, commit or ref.
        path: in the repository, unescaped; "" for its root.
    """

    repository: str
    revision: str
    path: str

    @property
    def is_pinned(self) -> bool:
        """Return whether the revision is a commit, whose files never change."""
        return is_commit(self.revision)

    @property
    def store(self) -> str:
        """Return the URL of the root of this revision, without a slash at its end."""
        return f"{SCHEME}://datasets/{self.repository}@{quote(self.revision, safe='')}"

    @property
    def url(self) -> str:
        """Return the ``hf://`` URL."""
        return f"{self.store}/{self.path}" if self.path else self.store

    @property
    def folder(self) -> HubFile:
        """Return the folder that contains it."""
        return self._replace(path=self.path.rpartition("/")[0])


def is_commit(revision: str) -> bool:
    """Return whether a revision is the full hash of a commit."""
    return _COMMIT.fullmatch(revision) is not None


def parse_hub_url(url: str) -> HubFile:
    """Parse an ``hf://`` URL.

    Raises:
        ValueError: it is not the name of a file or folder of a data set.
    """
    kind, _, rest = url[len(SCHEME) + 3 :].partition("/")
    if kind != "datasets":
        raise ValueError(
            f"{url!r}: hf:// URLs are read from data sets only, not from models, spaces or buckets; write {_FORM}"
        )
    user, _, rest = rest.partition("/")
    first, slash, path = rest.partition("/")
    name, at, revision = first.partition("@")
    if at:
        after = f"{revision}{slash}{path}"
        ref = _REF.match(after)
        if ref is not None:
            revision, path = ref.group(), after[ref.end() :]
        revision = unquote(revision)
    else:
        revision = DEFAULT_REVISION
    if not (_NAME.fullmatch(user) and _NAME.fullmatch(name)):
        raise ValueError(f"{url!r} does not name a data set; write {_FORM}")
    if not 0 < len(revision) <= _MOST_REVISION or _CONTROL.search(revision) or ".." in revision:
        raise ValueError(f"{url!r}: {revision!r} is not a branch, tag, ref or commit")
    path = path.strip("/")
    if path and (_CONTROL.search(path) or not _UNUSUAL_NAMES.isdisjoint(path.split("/"))):
        raise ValueError(f"{url!r}: {path!r} is not a path in a data set")
    return HubFile(f"{user}/{name}", revision, path)


def without_revision(url: str) -> str:
    """Return an ``hf://`` URL without its revision: one name for a file in all commits, for caches.

    The content is identified by its ETag, so files that a commit does not change stay in a cache.
    """
    file = parse_hub_url(url)
    return f"{SCHEME}://datasets/{file.repository}/{file.path}"


def crowded_folders(urls: Iterable[str], least: int) -> dict[str, int]:
    """Return the folders that contain many of some files of commits: URL, and the number of these files.

    Args:
        urls: any URLs; only those of the Hub count.
        least: number of files from which on a folder counts.
    """
    counts: Counter[str] = Counter()
    for url in urls:
        if url.lower().startswith(f"{SCHEME}://"):
            file = parse_hub_url(url)
            if file.is_pinned and file.path:
                counts[file.folder.url] += 1
    return {folder: count for folder, count in counts.items() if count >= least}


# -- the interface, relative to the endpoint -------------------------------------------------------------------------


def resolve_target(file: HubFile) -> str:
    """Return where the bytes of a file are, or a redirect to them."""
    return f"/datasets/{file.repository}/resolve/{quote(file.revision, safe='')}/{quote(file.path)}"


def revision_target(file: HubFile) -> str:
    """Return where the commit of a revision is described, without a list of its files, which may be long."""
    return f"/api/datasets/{file.repository}/revision/{quote(file.revision, safe='')}?expand=sha"


def tree_target(file: HubFile, *, recursive: bool) -> str:
    """Return where a folder is listed.

    Args:
        file: the folder.
        recursive: with the folders in it.
    """
    path = f"/{quote(file.path)}" if file.path else ""
    options = f"recursive={'true' if recursive else 'false'}&expand=false"
    return f"/api/datasets/{file.repository}/tree/{quote(file.revision, safe='')}{path}?{options}"


def origin_of(url: str) -> tuple[str, str, int | None]:
    """Return scheme, host and port of a URL of HTTP: a credential for one origin is sent to no other.

    Raises:
        ValueError: the port is not a number.
    """
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme.lower())
    return parts.scheme.lower(), (parts.hostname or "").lower(), port


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
