"""Tables of the records of one or several files: from index lines to spans."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

import numpy as np

from aioloader.foundation.types import IntArray, Spans
from aioloader.storage.records import unreadable_line
from aioloader.storage.urls import beside, is_url
from recordio import CorruptIndexError, CorruptRecordError, Index

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.storage.remote.transport import Version

_OPENED_AT_A_TIME = 16


class RecordTable:
    """Offsets and lengths of the records of a file, in the order of its index.

    Args:
        path: the .rec file, or its URL.
        idx_path: its .idx file; None: the file of the same name in the same folder, if it exists.
        tolerant: lines of the .idx that cannot be read become items that fail, each with the line in its error.
        index: an index that was read before, perhaps of a part of the records; then no file is read.
        version: version of the object if `path` is a URL; None: it is requested from the server.

    Attributes:
        index: the index passed, or that of the .idx, or the result of a scan if there is no .idx.
        file_nbytes: size of the file in bytes when the table was made.
        version: version of the object if `path` is a URL, else None.

    Raises:
        OSError: the file or its index cannot be read.
        RecordIOError: the index is malformed, or a file without an index is corrupt.
    """

    def __init__(
        self,
        path: str,
        idx_path: str | None = None,
        *,
        tolerant: bool = False,
        index: Index | None = None,
        version: Version | None = None,
    ) -> None:
        given = idx_path is not None
        idx_path = idx_path or beside(path, ".idx")
        if version is None and is_url(path):
            from aioloader.storage.remote.opening import describe

            version = describe(path)
        self.version = version
        if index is not None:
            self.index = index
        elif version is not None:
            from aioloader.storage.remote.opening import load_index

            self.index = load_index(path, idx_path if given else None, tolerant=tolerant)
        elif given or os.path.exists(idx_path):
            self.index = Index.open(idx_path, tolerant=tolerant)
        else:
            self.index = _scan(path)
        self.file_nbytes = os.path.getsize(path) if version is None else version.nbytes
        if index is None and not len(self.index) and self.file_nbytes:
            raise CorruptIndexError(
                f"the index is empty, but {path} has {self.file_nbytes} bytes; rebuild it with "
                "`python -m recordio index FILE`, or delete it",
                path=idx_path,
            )
        offsets = self.index.offsets
        # In an ordered index a record ends where the record of the next line begins. A misaligned offset is an
        # error of its line alone and must not shorten the record before it.
        possible = (offsets & 3) == 0
        ordered = bool(possible.all() and (offsets[1:] > offsets[:-1]).all())
        self._ordered = offsets if ordered else np.unique(np.append(offsets[possible], self.file_nbytes))

    def spans(self, indices: IntArray) -> Spans:
        """Return spans that contain the records on the given lines. A wrong offset results in a span that is too short.

        The offset of a line that cannot be read is `unreadable_line` of the line's number, counted from 0.
        """
        offset = np.asarray(self.index.offsets[indices], dtype=np.int64)
        if self.index.faults:
            lines = np.asarray(indices, dtype=np.int64)
            unreadable = np.isin(lines, list(self.index.faults))
            offset = np.where(unreadable, unreadable_line(lines), offset)
        after = (
            indices + 1
            if self._ordered is self.index.offsets
            else np.searchsorted(self._ordered, offset, side="right")
        )
        last = len(self._ordered) - 1
        end = np.where(after > last, self.file_nbytes, self._ordered[np.minimum(after, last)])
        length = np.maximum(np.minimum(end, self.file_nbytes) - offset, 0)
        return Spans(np.zeros(len(offset), np.int64), offset, length)

    def first_offsets(self, count: int) -> list[int]:
        """Return the offsets of the first records in the order of the file."""
        first: list[int] = np.unique(self._ordered[:count]).tolist()
        return first


class RecordTables:
    """Tables of the records of several concatenated files.

    Args:
        tables: tables of the files, in order.
    """

    def __init__(self, tables: Sequence[RecordTable]) -> None:
        self.tables = tables
        self._ends = np.cumsum([len(table.index) for table in tables])

    def __len__(self) -> int:
        return int(self._ends[-1]) if self.tables else 0

    def locate(self, index: int) -> tuple[int, int]:
        """Return the number of the file that contains a record, and the record's line in the index of that file."""
        file = int(np.searchsorted(self._ends, index, side="right"))
        return file, index - (int(self._ends[file - 1]) if file else 0)

    def spans(self, indices: IntArray) -> Spans:
        """Return spans that contain the records at the given indices; see `RecordTable.spans`."""
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


def open_tables(
    open_table: Callable[..., RecordTable], paths: Sequence[str], versions: Sequence[Version | None]
) -> list[RecordTable]:
    """Open the tables of several objects concurrently, because loading an index takes several requests.

    Args:
        open_table: opens one table from a path and ``version=``; called in threads.
        paths: URLs of the objects.
        versions: the version of each object, or None.
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


def _scan(path: str) -> Index:
    try:
        return Index.scan(path)
    except CorruptRecordError as error:
        # The records after the damage are unknown, so the error cannot be that of single items.
        raise type(error)(
            f"{error.message}; without an .idx the records are found by a scan, which needs a valid file: "
            f"`aioloader repair {shlex.quote(path)} DST` writes all readable records to a new file, with an .idx",
            path=error.path,
            offset=error.offset,
            expected=error.expected,
            found=error.found,
        ) from error
