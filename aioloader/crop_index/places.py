"""Places of crop indexes: next to a record file, in the root of a folder, or in the user's cache directory for URLs."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from aioloader.storage.urls import beside, cache_name, is_url, name_of
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


def shard_index(path: str) -> str:
    """Return where the index of a shard of another format is.

    The whole name is kept: shards of several formats, or with numbers as suffixes, may differ in their suffixes only.

    Args:
        path: the shard, or its URL.
    """
    return _cached(path) if is_url(path) else path + SUFFIX


def folder_index(root: str) -> str:
    """Return where the index of a folder is.

    Args:
        root: the folder, or its URL.
    """
    return _cached(root) if is_url(root) else os.path.join(root, FOLDER_FILE)


def given_index(chosen: str, path: str, *, is_folder: bool = False, is_record_file: bool = True) -> str:
    """Return the index that a path chosen by the caller means: the file, or the one in a directory.

    Args:
        chosen: a file, or a directory that contains the index under its usual name.
        path: the record file, shard or folder.
        is_folder: `path` is a folder.
        is_record_file: if it is a file, it is a RecordIO file, whose suffix is replaced; see `shard_index`.
    """
    if not os.path.isdir(chosen):
        return chosen
    if is_folder:
        return os.path.join(chosen, FOLDER_FILE)
    name = name_of(path)
    return os.path.join(chosen, (os.path.splitext(name)[0] if is_record_file else name) + SUFFIX)


def fetched_index(url: str, version: Version) -> str:
    """Return where the copy of the index is that lies next to a remote record file.

    Args:
        url: the record file.
        version: of the index.
    """
    return _cached(url, f"-{file_number(url, version):016x}")


def _cached(url: str, version: str = "") -> str:
    # Without the signature of a URL, which changes.
    digest = hashlib.sha256(cache_name(url).rstrip("/").encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return str(cache_directory() / "crop-index" / f"{digest}{version}{SUFFIX}")


def is_index_file(name: str) -> bool:
    """Return whether a file in the root of a folder is its index, or one that is being written."""
    return name in (FOLDER_FILE, f"{FOLDER_FILE}.partial")


def file_number(path: str, version: Version | None = None, *, field: str | None = None) -> int:
    """Return a number that identifies the present state of a file, by its size and its time of modification.

    Args:
        path: the file, or its URL.
        version: version of the object if `path` is a URL.
        field: name of the images in the samples of a shard; None for a record file.

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
    if field is not None:
        facts += f" {field}"
    return int.from_bytes(hashlib.blake2b(facts.encode(), digest_size=8).digest(), "little") or 1
