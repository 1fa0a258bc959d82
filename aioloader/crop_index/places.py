"""Places of crop indexes: next to a record file, in the root of a folder, or in the user's cache directory for URLs."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from aioloader.storage.urls import beside, is_url, name_of, redact_url
from recordio._index_cache import cache_directory

if TYPE_CHECKING:
    from aioloader.storage.remote.transport import Version

SUFFIX = ".crops"
FOLDER_FILE = "images.crops"
"""Name of the index of a folder, in its root."""


def record_index(path: str) -> str:
    """Return where the index of a record file is.

    Args:
        path: the .rec file, or its URL.
    """
    return _cached(path) if is_url(path) else beside(path, SUFFIX)


def folder_index(root: str) -> str:
    """Return where the index of a folder is.

    Args:
        root: the folder, or its URL.
    """
    return _cached(root) if is_url(root) else os.path.join(root, FOLDER_FILE)


def given_index(chosen: str, path: str, *, is_folder: bool) -> str:
    """Return the index that a path chosen by the caller means: the file, or the one in a directory.

    Args:
        chosen: a file, or a directory that contains the index under its usual name.
        path: the record file or folder.
        is_folder: `path` is a folder.
    """
    if not os.path.isdir(chosen):
        return chosen
    name = FOLDER_FILE if is_folder else os.path.splitext(name_of(path))[0] + SUFFIX
    return os.path.join(chosen, name)


def fetched_index(url: str, version: Version) -> str:
    """Return where the copy of the index is that lies next to a remote record file.

    Args:
        url: the record file.
        version: of the index.
    """
    return _cached(url, f"-{file_number(url, version):016x}")


def _cached(url: str, version: str = "") -> str:
    # Without the signature of a URL, which changes.
    digest = hashlib.sha256(redact_url(url).rstrip("/").encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return str(cache_directory() / "crop-index" / f"{digest}{version}{SUFFIX}")


def is_index_file(name: str) -> bool:
    """Return whether a file in the root of a folder is its index, or one that is being written."""
    return name in (FOLDER_FILE, f"{FOLDER_FILE}.partial")


def file_number(path: str, version: Version | None = None) -> int:
    """Return a number that identifies the present state of a record file, by its size and its time of modification.

    Args:
        path: the file, or its URL.
        version: version of the object if `path` is a URL.

    Returns:
        0 < number < 2**64.

    Raises:
        OSError: there is no such file.
    """
    if version is None:
        status = os.stat(path)
        facts = f"{status.st_size} {status.st_mtime_ns}"
    else:
        facts = f"{version.nbytes} {version.tag}"
    return int.from_bytes(hashlib.blake2b(facts.encode(), digest_size=8).digest(), "little") or 1
