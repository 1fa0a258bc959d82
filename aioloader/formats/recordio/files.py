"""Record files at a path of a command line."""

from __future__ import annotations

import glob
import os
import re

from aioloader.datasets.shards import is_pattern, pinned_path, record_files
from aioloader.storage.urls import can_list, is_url, join, path_of, suffix_of

RECORD_SUFFIX = ".rec"


def is_record_file(path: str) -> bool:
    """Return whether a path or URL has the suffix of a record file."""
    suffix = suffix_of(path) if is_url(path) else os.path.splitext(path)[1]
    return suffix.lower() == RECORD_SUFFIX


def is_folder(path: str) -> bool:
    """Return whether a path is a folder; in a store that lists objects, a name, not a pattern, without the end .rec."""
    path = path_of(path)
    if is_url(path):
        return can_list(path) and not is_pattern(path) and not is_record_file(path)
    return os.path.isdir(path)


def record_files_at(path: str) -> list[str]:
    """Return the record files of a path: the file itself, or the files of a pattern or a folder, sorted by name.

    Returns:
        Paths; an empty list for a folder without record files.

    Raises:
        FileNotFoundError: there is no such file or folder, or no file matches the pattern.
        OSError: listing object storage fails.
    """
    path = path_of(path)
    if is_folder(path):
        if not is_url(path):
            names = glob.glob(os.path.join(glob.escape(path), "*"))
            return sorted(name for name in names if os.path.splitext(name)[1].lower() == RECORD_SUFFIX)
        from aioloader.storage.remote.opening import list_folder

        root = pinned_path(path)
        return sorted(join(root, name) for name in list_folder(root).files if name.endswith(RECORD_SUFFIX))
    if is_url(path) or is_pattern(path) or os.path.exists(path):
        return list(record_files(path))
    raise FileNotFoundError(f"there is no file or folder {path!r}")


_SHARD = re.compile(r"(.*)-(\d{5,})-of-(\d{5,})\.rec", re.DOTALL)


def shard_name(name: str) -> tuple[str, int, int] | None:
    """Parse the name of a shard, NAME-00000-of-00004.rec.

    Args:
        name: name or path of a file.

    Returns:
        name of the set, number of the shard, number of shards; None for any other name.
    """
    found = _SHARD.fullmatch(name)
    return None if found is None else (found[1], int(found[2]), int(found[3]))
