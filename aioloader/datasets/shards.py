"""Names of record files: shards, patterns and lists."""

from __future__ import annotations

import glob
import os
import re
from typing import TYPE_CHECKING

from aioloader.storage.urls import BUCKETS, is_url, path_of, scheme_of
from recordio import RecordFileNotFoundError

if TYPE_CHECKING:
    from collections.abc import Sequence


__all__ = ("is_pattern", "record_files", "shard_name")

_SHARD = re.compile(r"(.*)-(\d{5,})-of-(\d{5,})\.rec", re.DOTALL)


def shard_name(name: str) -> tuple[str, int, int] | None:
    """What the name of a shard says, NAME-00000-of-00004.rec: that of the set, its number, and of how many it is one.

    Args:
        name: of a file, or its path.

    Returns:
        None if it is no such name.
    """
    found = _SHARD.fullmatch(name)
    return None if found is None else (found[1], int(found[2]), int(found[3]))


def is_pattern(path: str) -> bool:
    """Whether a path names files by a pattern (``*``, ``?``, ``[...]``), and is not the name of one.

    URLs of object storage may be patterns, too; those of HTTP are not, where ``?`` means something else.
    """
    if is_url(path):
        return scheme_of(path) in BUCKETS and glob.has_magic(path)
    return glob.has_magic(path) and not os.path.exists(path)


def record_files(filename: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    """The files that are meant.

    Args:
        filename: a file or a URL; or a pattern, whose files are taken in the order of their names; or several files,
            taken in that order. Whether there is anything at a URL is not asked.

    Raises:
        FileNotFoundError: there is no such file, or none that the pattern fits.
    """
    if not isinstance(filename, (str, os.PathLike)):
        names = [name for each in filename for name in record_files(os.fspath(each))]
        if not names:
            raise ValueError("there has to be at least one record file")
        return tuple(names)
    path = path_of(filename)
    if is_pattern(path):
        found = sorted(_matching(path) if is_url(path) else glob.glob(path))
        if not found:
            raise RecordFileNotFoundError(f"there is no record file that fits {path!r}", path=path)
        return tuple(found)
    if not is_url(path) and not os.path.exists(path):
        raise RecordFileNotFoundError(f"there is no record file {path!r}", path=path)
    return (path,)


def _matching(pattern: str) -> list[str]:
    from aioloader.storage.remote.listing import list_matching

    return list_matching(pattern)
