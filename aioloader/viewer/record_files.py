"""Collection of one or several record files.

Opening reads only the first lines of the index; the rest is read while the first page is displayed. Without an index
the first records are found by scanning the beginning of the file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from aioloader.datasets.decoding import ImageRecordDecoder
from aioloader.datasets.record_table import RecordTable
from aioloader.packing.report import class_names
from aioloader.storage.local.descriptors import open_regular, read_into
from aioloader.storage.local.source import LocalByteSource
from aioloader.storage.urls import name_of, redact_url
from aioloader.viewer.collection import Collection, Contents, LabelChunk, NoSuchRecordError, read_bytes
from aioloader.viewer.header_labels import read_labels
from aioloader.viewer.records import Record, failed, record_of
from recordio import CorruptRecordError, Index, RecordKeyError, RecordParser, verify

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import IntArray, Spans
    from aioloader.storage.remote.source import RemoteByteSource
    from aioloader.storage.remote.transport import Version

_HEAD_NBYTES = 1 << 16
_WALKED_RECORDS = 64
_BLOCK_NBYTES = 1 << 20
_KEYS = range(-(2**63), 2**63)


class RecordFiles(Collection):
    """Collection of the records of files in order.

    Args:
        paths: the .rec files, at least one, or their URLs; each .idx is next to its file.
        path: path as the user passed it.
        kind: description of the kind of dataset.
        max_pixels: larger images are refused.
        head: find the first records immediately, so that they can be displayed before all are found.
        versions: version of each object, if the paths are URLs.

    Raises:
        OSError: the first file or its index cannot be read.
    """

    def __init__(
        self,
        paths: Sequence[str],
        *,
        path: str,
        kind: str,
        max_pixels: int | None,
        head: bool = True,
        versions: Sequence[Version] | None = None,
    ) -> None:
        self.paths = tuple(paths)
        self.path = path
        self.kind = kind
        self.decoder = ImageRecordDecoder(max_pixels=max_pixels, scalar_dtype="float32")
        self.problems: list[str] = []
        self._versions: Sequence[Version | None] = versions or [None] * len(self.paths)
        self._source = _source(self.paths, versions)
        self._tables: list[RecordTable] = []
        self._starts = np.zeros(1, np.int64)
        self._listing: Sequence[int] | IntArray = range(0)
        self._loaded = False
        self._names = class_names(Path(self.paths[0])) if versions is None else {}
        table, whole = _head_of(self.paths[0]) if head and versions is None else (None, False)
        if table is not None:
            self._set([table])
            self._loaded = whole and len(self.paths) == 1

    def _set(self, tables: list[RecordTable]) -> None:
        lengths = [len(table.index) for table in tables]
        self._tables = tables
        self._listing = self._listed(sum(lengths))
        # Assigned last: `known` reads it in other threads.
        self._starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])

    def _listed(self, count: int) -> Sequence[int] | IntArray:
        """Return the positions of the records to be listed, ascending.

        Args:
            count: number of all known records.
        """
        return range(count)

    @property
    def count(self) -> int | None:
        return int(self._starts[-1]) if self._loaded else None

    @property
    def known(self) -> int:
        return int(self._starts[-1])

    def load(self) -> None:
        if self._loaded:
            return
        tables = [self._table(*each) for each in zip(self.paths, self._versions, strict=True)]
        self._set(tables)
        self._loaded = True

    def _table(self, path: str, version: Version | None) -> RecordTable:
        if version is not None:
            return self._remote_table(path, version)
        if os.path.exists(os.path.splitext(path)[0] + ".idx"):
            return RecordTable(path)
        try:
            return RecordTable(path, index=Index.scan(path))
        except CorruptRecordError as error:
            offsets = _walk(path, None)
            self.problems.append(
                f"{os.path.basename(path)} has no .idx and is damaged at byte {error.offset}: later records are "
                "missing. `aioloader repair SRC DST` writes all valid records to a new file."
            )
            return RecordTable(path, index=Index.of(offsets, path=path))

    def _remote_table(self, url: str, version: Version) -> RecordTable:
        try:
            return RecordTable(url, version=version)
        except CorruptRecordError as error:
            self.problems.append(
                f"{name_of(url)} has no .idx and is damaged at byte {error.offset}; later records have no keys"
            )
            return RecordTable(
                url, index=Index.of(verify(url).offsets, path=redact_url(url)), version=version
            )

    def listing(self) -> Sequence[int] | IntArray:
        return self._listing

    def _place(self, position: int) -> tuple[int, int]:
        if not 0 <= position < self.known:
            raise NoSuchRecordError(f"there is no record {position}: the dataset has {self.known:,}")
        file = int(np.searchsorted(self._starts, position, side="right")) - 1
        return file, position - int(self._starts[file])

    def key(self, position: int) -> int | str:
        file, line = self._place(position)
        return self._tables[file].index.key_at(line)

    def find(self, key: str, file: int | None = None) -> int:
        files = range(len(self._tables)) if file is None else [file] if 0 <= file < len(self._tables) else []
        for number in files:
            index = self._tables[number].index
            try:
                return int(self._starts[number]) + _line_of(index, key)
            except RecordKeyError:
                continue
        raise NoSuchRecordError(f"no record has the key {key[:80]!r}")

    def label_name(self, label: float) -> str:
        return self._names.get(label, "")

    def label_of_name(self, name: str) -> float | None:
        return next((label for label, each in self._names.items() if each == name), None)

    def file_names(self) -> list[str]:
        return [name_of(path) for path in self.paths] if len(self.paths) > 1 else []

    def file_of(self, position: int) -> int:
        return self._place(position)[0]

    def _spans(self, file: int, line: int) -> Spans:
        spans = self._tables[file].spans(np.array([line], np.int64))
        spans.file[:] = file
        return spans

    def read(self, position: int) -> Contents:
        file, line = self._place(position)
        table = self._tables[file]
        bare = Record(
            position, table.index.key_at(line), redact_url(self.paths[file]), int(table.index.offsets[line])
        )
        try:
            data = read_bytes(self._source, self._spans(file, line))
        except (OSError, ValueError, EOFError) as error:
            return Contents(failed(bare, error))
        record, body = record_of(bare, data)
        return Contents(record, body, data)

    def label_chunk(self, start: int, stop: int) -> LabelChunk:
        file, line = self._place(start)
        last = min(stop - start, len(self._tables[file].index) - line)
        offsets = self._tables[file].index.offsets[line : line + last]
        found = read_labels(self.paths[file], offsets, self._versions[file])
        if last == stop - start:
            return found
        rest = self.label_chunk(start + last, stop)
        return LabelChunk(
            np.concatenate([found.first, rest.first]),
            np.concatenate([found.owners, rest.owners + last]),
            np.concatenate([found.values, rest.values]),
        )

    def close(self) -> None:
        self._source.close()


def _source(paths: Sequence[str], versions: Sequence[Version] | None) -> LocalByteSource | RemoteByteSource:
    if versions is None:
        return LocalByteSource(paths, whole_files=False, watch=False)
    from aioloader.storage.remote.source import RemoteByteSource

    return RemoteByteSource(paths, whole_files=False, versions=versions)


def _line_of(index: Index, key: str) -> int:
    if not len(index) or isinstance(index.key_at(0), str):
        return index.position(key)
    try:
        number = int(key) if len(key) <= 20 else None
    except ValueError:
        number = None
    if number is None or number not in _KEYS:
        raise RecordKeyError(f"no record has the key {key[:80]!r}: keys are numbers", key=key)
    return index.position(number)


def _head_of(path: str) -> tuple[RecordTable | None, bool]:
    """Find the first records of a file by the first bytes of its index or of the file.

    Returns:
        the table of these records, or None if their index is empty or not valid; and True if these are all records.

    Raises:
        OSError: a file cannot be read.
    """
    idx = os.path.splitext(path)[0] + ".idx"
    if not os.path.exists(idx):
        return RecordTable(path, index=Index.of(_walk(path, _WALKED_RECORDS), path=path)), False
    with open(idx, "rb", buffering=1 << 13) as file:  # a small buffer reads hardly more than requested
        text = file.read(_HEAD_NBYTES + 1)
    whole = len(text) <= _HEAD_NBYTES
    try:
        index = Index.parse(text if whole else text[: text.rfind(b"\n") + 1], path=idx)
    except ValueError:
        return None, False  # the error is reported when the whole index is read
    if not len(index):
        return None, False
    return RecordTable(path, index=index), whole


def _walk(path: str, most: int | None) -> IntArray:
    """Find the offsets of the first records of a file without an index, up to the first damaged record.

    The offset of the damaged record is included as the last one.

    Args:
        path: the file.
        most: largest number of offsets; None for all.
    """
    size = os.path.getsize(path)
    parser = RecordParser(path=path, size=size)
    offsets: list[int] = []
    reached = 0
    fd = open_regular(path)
    try:
        while most is None or len(offsets) < most:
            block = bytearray(min(max(parser.needed, _BLOCK_NBYTES), size - reached))
            got = read_into(fd, memoryview(block), reached)
            if got:
                parser.push(bytes(block[:got]))
                reached += got
            else:
                parser.finish()
            offsets.extend(parser.record_offset for _ in parser)
            if not got:
                break
    except CorruptRecordError as error:
        at = parser.offset if error.offset is None else error.offset
        if at < size and (not offsets or at > offsets[-1]):
            offsets.append(at & -4)
    finally:
        os.close(fd)
    return np.array(offsets if most is None else offsets[:most], np.int64)
