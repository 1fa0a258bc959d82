"""Record files as a collection: one, several that follow each other, or InsightFace's layout.

Opening reads the first lines of the index only; the rest is read while the first page is shown. Without an index the
first records are found by walking the file.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from aioloader.datasets.decoding import ImageRecordDecoder
from aioloader.datasets.record import RecordTable
from aioloader.storage.descriptors import open_regular, read_into
from aioloader.storage.local import LocalByteSource
from aioloader.viewer.collection import Collection, Contents, LabelChunk, NoSuchRecordError, read_bytes
from aioloader.viewer.label_heads import label_heads
from aioloader.viewer.records import Record, failed, record_of
from recordio import CorruptRecordError, Index, RecordKeyError, RecordParser

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader._types import IntArray, Spans

__all__ = ("RecordFiles",)

_HEAD_NBYTES = 1 << 16
_WALKED_RECORDS = 64
_BLOCK_NBYTES = 1 << 20
_KEYS = range(-(2**63), 2**63)


class RecordFiles(Collection):
    """Records of files that stand in order.

    Args:
        paths: the .rec files, one at least; each .idx is found beside its file.
        path: as the user gave it.
        kind: in words.
        max_pixels: larger images are refused.
        faces: in InsightFace's layout: the record with the key 0 tells which keys are images.

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
        faces: bool = False,
    ) -> None:
        self.paths = tuple(paths)
        self.path = path
        self.kind = kind
        self.decoder = ImageRecordDecoder(max_pixels=max_pixels, scalar_dtype="float32")
        self.problems: list[str] = []
        self._faces = faces
        self._source = LocalByteSource(self.paths, whole_files=False, watch=False)
        self._tables: list[RecordTable] = []
        self._starts = np.zeros(1, np.int64)
        self._listing: Sequence[int] | IntArray = range(0)
        self._loaded = False
        head, whole = (None, False) if faces else _head_of(self.paths[0])
        if head is not None:
            self._set([head])
            self._loaded = whole and len(self.paths) == 1

    def _set(self, tables: list[RecordTable]) -> None:
        lengths = [len(table.index) for table in tables]
        self._tables = tables
        self._starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        self._listing = range(int(self._starts[-1]))

    @property
    def count(self) -> int | None:
        """See `Collection.count`."""
        return int(self._starts[-1]) if self._loaded else None

    @property
    def known(self) -> int:
        """See `Collection.known`."""
        return int(self._starts[-1])

    def load(self) -> None:
        """See `Collection.load`."""
        if self._loaded:
            return
        tables = [self._table(path) for path in self.paths]
        self._set(tables)
        if self._faces:
            self._listing = self._images_of_faces()
        self._loaded = True

    def _table(self, path: str) -> RecordTable:
        if os.path.exists(os.path.splitext(path)[0] + ".idx"):
            return RecordTable(path)
        try:
            return RecordTable(path, index=Index.scan(path))
        except CorruptRecordError as error:
            offsets = _walk(path, None)
            self.problems.append(
                f"{os.path.basename(path)} has no .idx and is damaged at byte {error.offset}: records behind it are "
                "not found. `aioloader repair SRC DST` writes all readable records to a new file."
            )
            return RecordTable(path, index=Index.of(offsets, path=path))

    def _images_of_faces(self) -> Sequence[int] | IntArray:
        """Positions of the images: the keys from 1 to the first number of the label of record 0."""
        try:
            first = self.read(self.find("0")).record
        except NoSuchRecordError:
            first = None
        if first is None or first.flag != 2 or not first.labels[0] >= 1:
            self.problems.append(
                "The record with the key 0 does not tell which records are images, as it does in InsightFace's "
                "layout: all records are shown."
            )
            return self._listing
        index = self._tables[0].index
        keys = index.keys
        if isinstance(keys, list):
            return self._listing
        identities = int(first.labels[1] - first.labels[0])
        images = np.flatnonzero((keys >= 1) & (keys < first.labels[0]))
        self.kind = f"InsightFace, {len(images):,} images of {identities:,} identities"
        return images

    def listing(self) -> Sequence[int] | IntArray:
        """See `Collection.listing`."""
        return self._listing

    def _place(self, position: int) -> tuple[int, int]:
        if not 0 <= position < self.known:
            raise NoSuchRecordError(f"there is no record {position}: there are {self.known:,}")
        file = int(np.searchsorted(self._starts, position, side="right")) - 1
        return file, position - int(self._starts[file])

    def key(self, position: int) -> int | str:
        """See `Collection.key`."""
        file, line = self._place(position)
        return self._tables[file].index.key_at(line)

    def index(self, position: int) -> int:
        """See `Collection.index`: among all records of all files, of faces among the images."""
        if isinstance(self._listing, np.ndarray):
            place = int(np.searchsorted(self._listing, position))
            if place < len(self._listing) and self._listing[place] == position:
                return place
        return position

    def find(self, key: str, file: int | None = None) -> int:
        """See `Collection.find`."""
        files = range(len(self._tables)) if file is None else [file] if 0 <= file < len(self._tables) else []
        for number in files:
            index = self._tables[number].index
            try:
                return int(self._starts[number]) + _line_of(index, key)
            except RecordKeyError:
                continue
        raise NoSuchRecordError(f"no record has the key {key[:80]!r}")

    def file_names(self) -> list[str]:
        """See `Collection.file_names`."""
        return [os.path.basename(path) for path in self.paths] if len(self.paths) > 1 else []

    def file_of(self, position: int) -> int:
        """See `Collection.file_of`."""
        return self._place(position)[0]

    def _spans(self, file: int, line: int) -> Spans:
        spans = self._tables[file].spans(np.array([line], np.int64))
        spans.file[:] = file
        return spans

    def read(self, position: int) -> Contents:
        """See `Collection.read`."""
        file, line = self._place(position)
        table = self._tables[file]
        bare = Record(position, table.index.key_at(line), self.paths[file], int(table.index.offsets[line]))
        try:
            data = read_bytes(self._source, self._spans(file, line))
        except (OSError, ValueError, EOFError) as error:
            return Contents(failed(bare, error))
        record, body = record_of(bare, data)
        return Contents(record, body, data)

    def label_chunk(self, start: int, stop: int) -> LabelChunk:
        """See `Collection.label_chunk`."""
        file, line = self._place(start)
        last = min(stop - start, len(self._tables[file].index) - line)
        found = label_heads(self.paths[file], self._tables[file].index.offsets[line : line + last])
        if last == stop - start:
            return found
        rest = self.label_chunk(start + last, stop)
        return LabelChunk(
            np.concatenate([found.first, rest.first]),
            np.concatenate([found.owners, rest.owners + last]),
            np.concatenate([found.values, rest.values]),
        )

    def close(self) -> None:
        """See `Collection.close`."""
        self._source.close()


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
    """The first records of a file, found by its first bytes.

    Returns:
        where they lie, None if they cannot be found so; and whether they are all.

    Raises:
        OSError: a file cannot be read.
    """
    idx = os.path.splitext(path)[0] + ".idx"
    if not os.path.exists(idx):
        return RecordTable(path, index=Index.of(_walk(path, _WALKED_RECORDS), path=path)), False
    with open(idx, "rb") as file:
        text = file.read(_HEAD_NBYTES + 1)
    whole = len(text) <= _HEAD_NBYTES
    try:
        index = Index.parse(text if whole else text[: text.rfind(b"\n") + 1], path=idx)
    except ValueError:
        return None, False  # what is wrong with it is told when all of it is read
    if not len(index):
        return None, False
    return RecordTable(path, index=index), whole


def _walk(path: str, most: int | None) -> IntArray:
    """Offsets of the first records of a file without an index; where it is damaged, that place is the last one.

    Args:
        path: the file.
        most: how many are looked for; None for all.
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
