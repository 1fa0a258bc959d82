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


def is_pattern(path: str) -> bool:
    """Return True if a path is a pattern (``*``, ``?``, ``[...]``) and not the name of an existing file.

    URLs of object storage may be patterns, too. URLs of HTTP may not, because ``?`` begins a query there.
    """
    if is_url(path):
        return scheme_of(path) in BUCKETS and glob.has_magic(path)
    return glob.has_magic(path) and not os.path.exists(path)


def record_files(filename: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    """Return the record files that an argument names.

    Args:
        filename: a file or a URL; or a pattern, whose files are sorted by name; or several of these, in that order. The
            existence of URLs is not checked.

    Raises:
        FileNotFoundError: there is no such file, or no file matches the pattern.
        ValueError: the list of files is empty.
    """
    if not isinstance(filename, (str, os.PathLike)):
        names = [name for each in filename for name in record_files(os.fspath(each))]
        if not names:
            raise ValueError("the list of record files is empty: pass at least one")
        return tuple(names)
    path = path_of(filename)
    if is_pattern(path):
        if is_url(path):
            from aioloader.storage.remote.opening import list_matching

            found = sorted(list_matching(path))
        else:
            found = sorted(glob.glob(path))
        if not found:
            raise RecordFileNotFoundError(f"no record file matches {path!r}", path=path)
        return tuple(found)
    if not is_url(path) and not os.path.exists(path):
        raise RecordFileNotFoundError(f"there is no record file {path!r}", path=path)
    return (path,)
