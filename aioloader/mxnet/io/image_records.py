"""Records of files as a dataset for the loader.

Rule: the records of all files, file after file and each in the order of its offsets, have one numbering, regardless of
the part that is read, so that a record's random draws depend on no other record. A number past the last one means the
same records once more, as rows that only pad a batch: their draws differ, and a batch reports which rows they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.abc import Decoder
from aioloader.crop_index.lookup import AUTO, RecordCrops
from aioloader.datasets.decoding import FusedImages
from aioloader.datasets.files import FileDataset
from aioloader.formats.recordio.dataset import RecordTable, RecordTables, open_crops
from aioloader.formats.recordio.decoding import RECORD_FIELDS
from aioloader.formats.recordio.heads import read_heads
from aioloader.foundation.error_log import add_note
from aioloader.foundation.types import SpanKind
from aioloader.mxnet.base import MXNetError
from aioloader.transforms.decode import DEFAULT_MAX_PIXELS, decode_image
from aioloader.transforms.lazy_image import LazyImageReader
from recordio import MAGIC, RecordIOError, extract, unpack

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from aioloader.abc import ByteSource
    from aioloader.datasets.stage import Stage
    from aioloader.foundation.types import Array, IntArray, ItemLocation, Spans


class MissingLabelError(MXNetError, LookupError):
    """Error raised when a record's id is not in the list of labels. A LookupError too.

    Args:
        key: the id.
        path: the list.

    Attributes:
        key, path: as given.
    """

    def __init__(self, key: int, path: str) -> None:
        super().__init__(
            f"fail to find imagelabel for id {key}: {path} has no line for it; add one, or give no path_imglist to "
            "take the labels of the records"
        )
        self.key = key
        self.path = path


class LabelList:
    """Labels of a list. Lines are an id, labels and a path, separated by TABs or, without any TAB, by spaces.

    Args:
        path: the file.
        width: labels of every line; None for any number.

    Attributes:
        widest: the largest number of labels in a line; 0 without lines.

    Raises:
        MXNetError: the file cannot be read, or a line is malformed or has another number of labels.
    """

    def __init__(self, path: str, width: int | None) -> None:
        ids: list[int] = []
        counts: list[int] = []
        labels: list[float] = []
        try:
            with open(path, encoding="utf-8", errors="surrogateescape") as file:
                for number, line in enumerate(file, 1):
                    if line.strip():
                        key, row = _parse(line, width, f"{path}, line {number}")
                        ids.append(key)
                        counts.append(len(row))
                        labels += row
        except OSError as error:
            raise MXNetError(f"path_imglist: {path} cannot be opened: {error.strerror}") from error
        self._path = path
        order = np.argsort(np.array(ids, np.uint64), kind="stable")
        self._ids: npt.NDArray[np.uint64] = np.array(ids, np.uint64)[order]
        ends = np.cumsum(np.array(counts, np.int64))
        self._start = (ends - counts)[order]
        self._end = ends[order]
        with np.errstate(over="ignore"):  # values that are too large become infinite, as in MXNet
            self._labels: npt.NDArray[np.float32] = np.array(labels, np.float32)
        self.widest = max(counts, default=0)

    def find(self, key: int) -> npt.NDArray[np.float32]:
        """Return the labels of an id, float32 (n,); of several lines with that id those of the last one.

        Raises:
            MissingLabelError: no line has this id.
        """
        place = int(np.searchsorted(self._ids, np.uint64(key), side="right")) - 1
        if place < 0 or int(self._ids[place]) != key:
            raise MissingLabelError(key, self._path)
        return self._labels[self._start[place] : self._end[place]]


def _parse(line: str, width: int | None, where: str) -> tuple[int, list[float]]:
    fields = [field.strip() for field in line.strip("\r\n").split("\t")] if "\t" in line else line.split()
    try:
        key = _id(fields[0])
        row = [float(field) for field in fields[1:-1]]
        if len(fields) < 3:
            raise ValueError("it should be an id, labels and a path")
    except ValueError as error:
        raise MXNetError(f"{where} ({line.strip()[:80]!r}): {error}") from None
    if width is not None and len(row) != width:
        raise MXNetError(
            f"{where} ({line.strip()[:80]!r}) has {len(row)} labels, but label_width is {width}; set "
            f"label_width={len(row)}"
        )
    return key, row


def _id(text: str) -> int:
    try:
        key = int(text)
    except ValueError:
        number = float(text)  # "12.0", as tables of numbers are written
        key = int(number) if number.is_integer() else -1
    if not 0 <= key < 1 << 64:
        raise ValueError(f"{text.strip()} is not an id")
    return key


Row = tuple[Any, Any, np.uint64, Any]
"""(image, label, id, is padding)."""


class ImageRecords(FileDataset):
    """Dataset of the `Row` of every record, and then once more as padding rows.

    Args:
        paths: record files.
        idx_paths: an .idx file for each, or nothing: the .idx files next to the records, where they exist.
        decoder: produces the rows.

    Attributes:
        total: number of records.

    Raises:
        MXNetError: a file or an index cannot be read or is damaged.
    """

    def __init__(self, paths: Sequence[str], idx_paths: Sequence[str], decoder: ImageRecordRows) -> None:
        super().__init__()
        self._paths = list(paths)
        self._decoder = replace(decoder, crops=open_crops(AUTO, self._paths))
        try:
            tables = [
                RecordTable(path, idx)
                for path, idx in zip(paths, idx_paths or repeat(None, len(paths)), strict=True)
            ]
        except (RecordIOError, OSError) as error:
            raise MXNetError(str(error)) from error
        if len({table.version is None for table in tables}) > 1:
            raise MXNetError("files of this machine and URLs cannot be read as one set of records")
        self._tables = RecordTables(tables)
        self._order = _file_order(tables)
        self.total = len(self._tables)

    def __len__(self) -> int:
        return 2 * self.total

    @property
    def decoder(self) -> ImageRecordRows:
        return self._decoder

    def open_source(self) -> ByteSource:
        versions = [table.version for table in self._tables.tables]
        remote = any(version is not None for version in versions)
        return self._open_files(
            self._paths, remote=remote, kind=SpanKind.RECORD, name=self._paths[0], versions=versions
        )

    def _lines(self, indices: IntArray) -> IntArray:
        """Return the lines of records in the indices of all files."""
        records = indices % self.total
        return records if self._order is None else self._order[records]

    def spans(self, indices: IntArray) -> Spans:
        return self._tables.spans(self._lines(indices))

    def extras(self, indices: IntArray) -> Array:
        """Return whether each row is only padding; see `ByteDataset.extras`."""
        return indices >= self.total

    def widest_label(self) -> int:
        """Return the largest number of labels of a record. Corrupt records do not count: reading them fails anyway.

        Raises:
            OSError: a file cannot be read.
        """
        widest = 0
        for table in self._tables.tables:
            places = table.spans(np.arange(len(table.index), dtype=np.int64))
            heads = read_heads(table.path, places.offset, version=table.version)
            # The number of a corrupt record may exceed its length.
            fits = heads.packed & (RECORD_FIELDS.size + 4 * heads.flag <= places.length)
            widest = max(widest, int(heads.flag[fits].max(initial=0)))
        return widest

    def location(self, index: int) -> ItemLocation:
        file, line = self._tables.locate(int(self._lines(np.array([index]))[0]))
        return self._tables.tables[file].location(line)


def _file_order(tables: Sequence[RecordTable]) -> IntArray | None:
    """Return the lines of all indices in the order of the records in their files; None if they have that order."""
    offsets = [table.index.offsets for table in tables]
    if all(bool((each[1:] >= each[:-1]).all()) for each in offsets):
        return None
    starts = np.cumsum([0, *map(len, offsets[:-1])])
    order: IntArray = np.concatenate(
        [start + np.argsort(each, kind="stable") for start, each in zip(starts, offsets, strict=True)]
    )
    return order


@dataclass(frozen=True)
class ImageRecordRows(Decoder[Row]):
    """Decoder of a record to a `Row`.

    Attributes:
        channels: 3, 1, or 4 for images that have an alpha channel.
        label_width: labels of every record; None: any number, delivered as a vector.
        labels: labels that replace those of the records.
        exif, max_pixels: see `aioloader.transforms.decode_image`.
        dct_scaling: see `aioloader.ImageRecordDataset`.
        crops: crop indexes of the files, or None.
    """

    channels: int
    label_width: int | None
    labels: LabelList | None = None
    exif: str = "apply"
    max_pixels: int | None = DEFAULT_MAX_PIXELS
    dct_scaling: bool = False
    crops: RecordCrops | None = field(default=None, compare=False, repr=False)

    def __call__(self, data: memoryview, extra: Any, location: ItemLocation) -> Row:
        body, label, key, padding = self.parse(data, extra, location)
        if self.channels == 4:
            image = decode_alpha(body, self.exif, self.max_pixels)
        else:
            image = decode_image(
                body,
                flag=int(self.channels == 3),
                exif=self.exif,
                max_pixels=self.max_pixels,
                path=location.path,
            )
        return image, label, key, padding

    def fuse(self, stages: Sequence[Stage]) -> FusedImages | None:
        if self.channels == 4:
            return None
        reader = LazyImageReader(
            int(self.channels == 3), exif=self.exif, max_pixels=self.max_pixels, dct_scaling=self.dct_scaling
        )
        return FusedImages(reader, stages, self.parse, self.crops)

    def parse(self, data: memoryview, extra: Any, location: ItemLocation) -> Row:
        """Return the `Row` with the encoded image.

        Raises:
            MXNetError: the record has another number of labels.
        """
        if self.label_width == 1 and self.labels is None and len(data) >= RECORD_FIELDS.size:
            magic, word, flag, value, number, _ = RECORD_FIELDS.unpack_from(data)
            # The record in one part with one label: the others take the long way.
            if magic == MAGIC and 24 <= word < 1 << 29 and (word + 11) & -4 <= len(data) and flag == 0:
                return data[32 : 8 + word], np.float32(value), np.uint64(number), extra
        payload: Any = extract(data, path=location.path, offset=location.offset or 0)
        header, body = unpack(payload)
        key = np.uint64(header.id)
        if self.labels is not None:
            row: Any = self.labels.find(header.id)
        elif header.flag == 0 and self.label_width == 1:
            return body, np.float32(header.label), key, extra
        else:
            row = header.label if header.flag else ()
            self._check(header, location)
        if self.label_width == 1:
            return body, np.float32(row[0]), key, extra
        # A copy: the values are in memory that will be reused.
        return body, np.array(row, np.float32), key, extra

    def _check(self, header: Any, location: ItemLocation) -> None:
        width, count = self.label_width, header.flag
        if width is None or count == width:
            return
        text = f"rec file provide {count}-dimensional label but label_width is set to {width}; set label_width={count}"
        if not count:
            text = (
                "label_width must be 1 unless an imglist is provided or the rec file is packed with multi dimensional "
                f"label; it is {width}"
            )
        error = MXNetError(text)
        labels = f"{count} labels" if count > 1 else "1 label"
        add_note(
            error,
            f"The record with id {header.id} of {location.path} has {labels}. If the records of a file have different "
            "numbers of labels, no label_width fits all of them: `aioloader inspect FILE` counts the records of each "
            "number, and path_imglist replaces the labels of all records.",
        )
        raise error


def decode_alpha(data: Any, exif: str = "apply", max_pixels: int | None = DEFAULT_MAX_PIXELS) -> Array:
    """Decode an image that has an alpha channel.

    Args:
        data: the encoded image, bytes or a flat memoryview of bytes.
        exif: "apply" turns the image upright by its EXIF orientation; "ignore" leaves it as stored.
        max_pixels: larger images are refused before they are decoded; None for no limit.

    Returns:
        uint8 (height, width, 4), RGBA.

    Raises:
        DecodeError: not an image, damaged, or too large.
        MXNetError: it has no alpha channel, or more than 8 bits a channel.
    """
    image = decode_image(data, flag=-1, exif=exif, max_pixels=max_pixels)
    channels = image.shape[2]
    if channels != 4:
        raise MXNetError(f"Expected 4 channels, got {channels}; data_shape asks for images with alpha")
    if image.dtype != np.uint8:
        raise MXNetError(
            f"Expected 8 bits a channel, got {image.dtype}; images with alpha are delivered as stored"
        )
    return image
