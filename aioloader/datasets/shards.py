"""Several record files as one: the records of the first, then those of the second, and so on."""

from __future__ import annotations

import glob
import os
import re
from typing import TYPE_CHECKING

import numpy as np

from aioloader.foundation.types import Spans
from aioloader.storage.urls import BUCKETS, is_url, path_of, scheme_of
from recordio import RecordFileNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.datasets.record import RecordTable
    from aioloader.foundation.types import IntArray
    from aioloader.storage.remote.transport import Version

__all__ = ("RecordTables", "is_pattern", "open_side_by_side", "record_files", "shard_name")

_OPENED_AT_A_TIME = 16

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


def open_side_by_side(
    open_table: Callable[..., RecordTable], paths: Sequence[str], versions: Sequence[Version | None]
) -> list[RecordTable]:
    """The tables of objects, several opened at a time: the index of each waits for the network more than once.

    Args:
        open_table: makes one from a path and ``version=``; called in threads.
        paths: the objects.
        versions: what each of them is.
    """
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(_OPENED_AT_A_TIME, len(paths)), "aioloader-index") as pool:
        futures = [
            pool.submit(open_table, path, version=version)
            for path, version in zip(paths, versions, strict=True)
        ]
        try:
            return [future.result() for future in futures]
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


class RecordTables:
    """Where the records of several files lie.

    Args:
        tables: those of the files, in order.
    """

    def __init__(self, tables: Sequence[RecordTable]) -> None:
        self.tables = tables
        self._ends = np.cumsum([len(table.index) for table in tables])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def locate(self, index: int) -> tuple[int, int]:
        """The number of the file that holds a record, and the record's line in its index."""
        file = int(np.searchsorted(self._ends, index, side="right"))
        return file, index - (int(self._ends[file - 1]) if file else 0)

    def spans(self, indices: IntArray) -> Spans:
        """See `RecordTable.spans`."""
        if len(self.tables) == 1:
            return self.tables[0].spans(indices)
        files = np.searchsorted(self._ends, indices, side="right")
        offset, length = np.empty(len(indices), np.int64), np.empty(len(indices), np.int64)
        for number in np.unique(files).tolist():
            here = files == number
            begin = int(self._ends[number - 1]) if number else 0
            found = self.tables[number].spans(indices[here] - begin)
            offset[here], length[here] = found.offset, found.length
        return Spans(files.astype(np.int64), offset, length)
