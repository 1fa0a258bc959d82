"""Collections of the records of one or several files.

Opening reads only the first lines of the index; the rest is read while the first page is displayed. Without an index
the first records are found by scanning the beginning of the file.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.formats.collection import (
    EMPTY,
    FOREIGN,
    Box,
    Collection,
    Contents,
    LabelChunk,
    NoSuchRecordError,
    Record,
    failed,
    read_bytes,
    with_image,
)
from aioloader.formats.packed_files import class_names
from aioloader.formats.recordio.dataset import RecordTable, RecordTables
from aioloader.formats.recordio.decoding import ImageRecordDecoder
from aioloader.formats.recordio.heads import detection_label, read_heads
from aioloader.formats.sample_fields import printable
from aioloader.foundation.types import ItemLocation, SpanKind
from aioloader.storage.local.descriptors import open_regular
from aioloader.storage.local.source import LocalByteSource
from aioloader.storage.urls import is_url, name_of, redact_url
from recordio import (
    CorruptRecordError,
    HeaderError,
    Index,
    RecordIOError,
    RecordKeyError,
    RecordParser,
    extract,
    unpack,
    verify,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.abc import ByteSource
    from aioloader.foundation.types import Array, IntArray
    from aioloader.storage.remote.transport import Version

_HEAD_NBYTES = 1 << 16
_WALKED_RECORDS = 64
_BLOCK_NBYTES = 1 << 20


class RecordFiles(Collection):
    """Collection of the records of files in order.

    Args:
        paths: the .rec files, at least one, or their URLs; each .idx is next to its file.
        path: path as the user passed it.
        max_pixels: larger images are refused.
        head: find the first records immediately, so that they can be displayed before all are found.

    Raises:
        OSError: the first file or its index cannot be read.
    """

    def __init__(self, paths: Sequence[str], *, path: str, max_pixels: int | None, head: bool = True) -> None:
        self.paths = tuple(paths)
        self.path = redact_url(path)
        self.kind = "record file" if len(paths) == 1 else f"{len(paths)} record files"
        self.decoder = ImageRecordDecoder(max_pixels=max_pixels, scalar_dtype="float32")
        self.problems: list[str] = []
        self._versions: Sequence[Version | None] = [None] * len(paths)
        self._source: ByteSource
        self._tables = RecordTables([])
        self._listing: Sequence[int] | IntArray = range(0)
        self._loaded = False
        if is_url(paths[0]):
            from aioloader.storage.remote.opening import describe_all
            from aioloader.storage.remote.source import RemoteByteSource

            versions = describe_all(paths)
            self._versions = versions
            self._source = RemoteByteSource(paths, kind=SpanKind.RECORD, versions=versions)
            return
        self._source = LocalByteSource(paths, kind=SpanKind.RECORD, watch=False)
        self.classes = {number: printable(name) for number, name in class_names(Path(paths[0])).items()}
        table, whole = _head_of(paths[0]) if head else (None, False)
        if table is not None:
            self._set([table])
            self._loaded = whole and len(paths) == 1

    def _set(self, tables: list[RecordTable]) -> None:
        found = RecordTables(tables)
        self._listing = self._listed(len(found))
        self._tables = found  # assigned last: `known` reads it in other threads

    def _listed(self, count: int) -> Sequence[int] | IntArray:
        """Return the positions of the records to be listed, ascending.

        Args:
            count: number of all known records.
        """
        return range(count)

    @property
    def count(self) -> int | None:
        return self.known if self._loaded else None

    @property
    def known(self) -> int:
        return len(self._tables)

    def load(self) -> None:
        if self._loaded:
            return
        self._set(list(map(self._table, self.paths, self._versions)))
        self._loaded = True

    def _table(self, path: str, version: Version | None) -> RecordTable:
        try:
            return RecordTable(path, version=version)
        except CorruptRecordError as error:
            if version is None:
                offsets = _walk(path, None)
                rest = (
                    ": later records are missing. "
                    "`aioloader repair SRC DST` writes all valid records to a new file."
                )
            else:
                offsets = verify(path).offsets
                rest = "; later records have no keys"
            damage = f"{name_of(path)} has no .idx and is damaged at byte {error.offset}"
            self.problems.append(damage + rest)
            return RecordTable(path, index=Index.of(offsets, path=redact_url(path)), version=version)

    def listing(self) -> Sequence[int] | IntArray:
        return self._listing

    def _locate(self, position: int) -> tuple[int, int]:
        if not 0 <= position < self.known:
            raise NoSuchRecordError(f"there is no record {position}: the dataset has {self.known:,}")
        return self._tables.locate(position)

    def key(self, position: int) -> int | str:
        file, line = self._locate(position)
        return self._tables.tables[file].index.key_at(line)

    def find(self, key: str, file: int | None = None) -> int:
        start = 0
        for number, table in enumerate(self._tables.tables):
            index = table.index
            if file in (None, number):
                try:
                    numbered = len(index) and not isinstance(index.key_at(0), str)
                    return start + index.position(int(key) if numbered else key)
                except (RecordKeyError, ValueError, OverflowError):
                    pass
            start += len(index)
        raise NoSuchRecordError(f"no record has the key {key[:80]!r}")

    def file_names(self) -> list[str]:
        return [printable(name_of(path)) for path in self.paths] if len(self.paths) > 1 else []

    def file_of(self, position: int) -> int:
        return self._locate(position)[0]

    def read(self, position: int) -> Contents:
        file, line = self._locate(position)
        index = self._tables.tables[file].index
        path, offset = redact_url(self.paths[file]), int(index.offsets[line])
        bare = Record(position, ItemLocation(index.key_at(line), path, offset))
        try:
            data = read_bytes(self._source, self._tables.spans(np.array([position], np.int64)))
        except (OSError, ValueError, EOFError) as error:
            return Contents(failed(bare, error))
        record, body = record_of(bare, data)
        return Contents(record, body, data)

    def label_chunk(self, start: int, stop: int) -> LabelChunk:
        file, line = self._locate(start)
        offsets = self._tables.tables[file].index.offsets[line : line + stop - start]
        return read_labels(self.paths[file], offsets, self._versions[file])

    def close(self) -> None:
        self._source.close()


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
    # A small buffer reads hardly more than requested.
    with open(open_regular(idx), "rb", buffering=1 << 13) as file:
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
    with os.fdopen(open_regular(path), "rb", buffering=0) as file:
        try:
            while most is None or len(offsets) < most:
                block = file.read(max(parser.needed, _BLOCK_NBYTES))
                if block:
                    parser.push(block)
                else:
                    parser.finish()
                offsets.extend(parser.record_offset for _ in parser)
                if not block:
                    break
        except CorruptRecordError as error:
            at = parser.offset if error.offset is None else error.offset
            if at < size and (not offsets or at > offsets[-1]):
                offsets.append(at & -4)
    return np.array(offsets if most is None else offsets[:most], np.int64)


_MOST_BOXES = 500
# Annotated boxes occasionally end a little outside the image.
_SLACK = 0.5


def record_of(bare: Record, data: Any) -> tuple[Record, Any]:
    """Describe a record by its framed bytes.

    Args:
        bare: the record's position and location.
        data: the record's bytes from its head on.

    Returns:
        the description, and the body; None for the body of a damaged record.
    """
    try:
        payload: Any = extract(data, path=bare.location.path, offset=bare.location.offset or 0)
    except RecordIOError as error:
        return failed(bare, error), None
    try:
        header, body = unpack(payload)
    except HeaderError:
        # A record file may contain records without images.
        problem = f"{len(payload):,} bytes without the header of an image record"
        return replace(bare, kind=FOREIGN, nbytes=len(payload), problem=problem), payload
    labels = (float(header.label),) if header.flag == 0 else tuple(map(float, header.label.tolist()))
    known = replace(
        bare,
        header=(header.flag, header.id, header.id2),
        labels=labels,
        boxes=detection_boxes(header.label) if header.flag else (),
    )
    if not len(body):
        return replace(known, kind=EMPTY, problem="the record is a header without an image"), body
    return with_image(known, body), body


def detection_boxes(label: Array) -> tuple[Box, ...]:
    """Return the objects of a detection label; none for any other label.

    Args:
        label: float32 (n,).

    Returns:
        at most `_MOST_BOXES` objects with an area.
    """
    layout = detection_label(label)
    if layout is None or not layout.objects:
        return ()
    objects = label[layout.header_width :].reshape(layout.objects, layout.object_width)
    table = objects[:, :5].astype(np.float64)
    edges = table[:, 1:5]
    with np.errstate(invalid="ignore"):
        inside = np.isfinite(table).all() and (edges > -_SLACK).all() and (edges < 1 + _SLACK).all()
    if not inside:
        return ()
    wide = (edges[:, 2] > edges[:, 0]) & (edges[:, 3] > edges[:, 1])
    return tuple([Box(*row) for row in table[wide][:_MOST_BOXES].tolist()])


_MOST_LABELS = 240


def read_labels(path: str, offsets: IntArray, version: Version | None = None) -> LabelChunk:
    """Read the labels of the records at some offsets of a file.

    The result includes the first `_MOST_LABELS` labels of a record; for a detection label, the classes of its boxes. It
    does not include labels for a damaged record or one without a header.

    Raises:
        OSError: the file cannot be read.
    """
    heads = read_heads(path, offsets, labels=_MOST_LABELS, version=version)
    first = np.where(heads.scalar, heads.label, np.float32(np.nan)).astype(np.float32)
    owners: list[int] = []
    values: list[Array] = []
    for place in np.flatnonzero(heads.held).tolist():
        vector = heads.vectors[place, : heads.held[place]]
        boxes = detection_boxes(vector) if len(vector) == heads.flag[place] else ()
        found = np.array([box.label for box in boxes], np.float32) if boxes else vector
        owners.extend([place] * len(found))
        values.append(found)
    return LabelChunk(
        first,
        np.array(owners, np.int64),
        np.concatenate(values).astype(np.float32) if values else np.empty(0, np.float32),
    )
