"""Names of files in data sets on the Hugging Face Hub (``hf://``), and where its interface has them. Pure.

The names are those of `HfFileSystem` of the package huggingface_hub: ``hf://datasets/USER/NAME[@REVISION]/PATH``. The
revision is a branch, a tag, a commit or a ref such as ``refs/convert/parquet``, and may be escaped (``%2F``); the path
is not escaped. The interface: https://huggingface.co/docs/hub/api and its OpenAPI description.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote, urlsplit

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
_UNUSUAL_PARTS = {"", ".", ".."}
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
    if path and (_CONTROL.search(path) or not _UNUSUAL_PARTS.isdisjoint(path.split("/"))):
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
