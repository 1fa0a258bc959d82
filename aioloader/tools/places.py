"""Where the words of a command line lead: files and folders of this machine, and objects far away."""

from __future__ import annotations

import glob
import os
from typing import TYPE_CHECKING

from aioloader.datasets.shards import is_pattern, record_files
from aioloader.storage.urls import BUCKETS, is_url, join, path_of, scheme_of, suffix_of

if TYPE_CHECKING:
    from aioloader.storage.remote.transport import Version

__all__ = ("is_folder", "record_files_at", "version_at")

_SUFFIX = ".rec"


def is_folder(path: str) -> bool:
    """Whether a path is a folder. Object storage has none: there it is whatever is no record file by its name."""
    path = path_of(path)
    if is_url(path):
        return scheme_of(path) in BUCKETS and not is_pattern(path) and suffix_of(path).lower() != _SUFFIX
    return os.path.isdir(path)


def version_at(path: str) -> Version | None:
    """What an object is now; None for what is no URL.

    Raises:
        OSError: there is none, or it cannot be asked.
    """
    if not is_url(path):
        return None
    from aioloader.storage.remote.opening import describe

    return describe(path)


def record_files_at(path: str) -> list[str]:
    """The record files that a path names: itself, those of a pattern, or those in a folder, sorted by name.

    Returns:
        Paths; none for a folder without record files.

    Raises:
        FileNotFoundError: there is nothing of that name, or nothing that fits the pattern.
        OSError: object storage cannot be asked.
    """
    path = path_of(path)
    if is_folder(path):
        if not is_url(path):
            return sorted(glob.glob(os.path.join(glob.escape(path), f"*{_SUFFIX}")))
        from aioloader.storage.remote.listing import list_folder

        return sorted(join(path, name) for name in list_folder(path).files if name.endswith(_SUFFIX))
    if is_url(path) or os.path.exists(path):
        return list(record_files(path))
    found = sorted(glob.glob(path)) if glob.has_magic(path) else []
    if not found:
        raise FileNotFoundError(f"there is no file or folder {path!r}")
    return found
