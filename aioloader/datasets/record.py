"""Datasets over RecordIO files."""

from __future__ import annotations

import os
import shlex
import struct
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.datasets.decoding import (
    DEFAULT_MAX_PIXELS,
    ImageRecordDecoder,
    RecordDecoder,
    check_image_options,
)
from aioloader.datasets.files import FileDataset, Source, load
from aioloader.datasets.record_heads import read_heads
from aioloader.datasets.shards import RecordTables, open_side_by_side, record_files
from aioloader.datasets.stage import stage_of_argument
from aioloader.foundation.types import ItemLocation, Spans
from aioloader.storage.local.descriptors import open_regular, read_into
from aioloader.storage.local.source import LocalByteSource
from aioloader.storage.records import unreadable_line
from aioloader.storage.urls import beside, is_url, redact_url
from recordio import MAGIC, CorruptIndexError, CorruptRecordError, Index

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.abc import Decoder
    from aioloader.datasets.record_heads import RecordHeads
    from aioloader.foundation.types import Array, IntArray, ReadPlan
    from aioloader.storage.remote.transport import Version

__all__ = ("ImageRecordDataset", "RecordFileDataset", "RecordTable", "begins_with_a_record")

_LABELS_LOOKED_AT = 1000
_MAGIC = struct.Struct("<I")


class RecordTable:
    """Where the records of a file lie, in the order of its index.

    Args:
        path: the .rec file.
        idx_path: its .idx file; None for the one beside it, if there is one.
        tolerant: lines of the .idx that cannot be read become items that fail, each with its line.
        index: an index of the file that is known already, which may have some of its records only; nothing is read
            then.
        version: what the object is, where `path` is a URL; None: it is asked.

    Attributes:
        index: as given, or from the .idx, or from a scan where there is none.
        file_nbytes: size of the file when the table was made.
        version: what the object is, where `path` is a URL.

    Raises:
        OSError: the file or its index cannot be read.
        RecordIOError: the index is malformed, or a file without an index is damaged.
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
        # In an index of the usual kind a record ends where the next line's begins. An offset where no record can
        # begin is its own line's error and must not cut the record before it.
        possible = (offsets & 3) == 0
        usual = bool(possible.all() and (offsets[1:] > offsets[:-1]).all())
        self._ordered = offsets if usual else np.unique(np.append(offsets[possible], self.file_nbytes))

    def spans(self, indices: IntArray) -> Spans:
        """Spans that hold the records, by line. A wrong offset gives a span too short for any record.

        A line that cannot be read gives the offset `unreadable_line` of its number, counted from 0.
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
        """Offsets of the first records in the order of the file."""
        first: list[int] = np.unique(self._ordered[:count]).tolist()
        return first


def _scan(path: str) -> Index:
    try:
        return Index.scan(path)
    except CorruptRecordError as error:
        # Where a record begins is not known behind the damage, so there are no items that could fail one by one.
        raise type(error)(
            f"{error.message}; without an .idx the records are found by a scan, which needs a sound file: "
            f"`aioloader repair {shlex.quote(path)} DST` writes all readable records to a new file, with an .idx",
            path=error.path,
            offset=error.offset,
            expected=error.expected,
            found=error.found,
        ) from error


class RecordFileDataset(FileDataset):
    """The payloads of a RecordIO file, as bytes. Sample i is the record of the i-th line of the .idx.

    The .idx is the file of the same name beside it; where there is none, the records are found by a scan when
    they are first needed. A line of it that cannot be read is a sample that fails.

    Args:
        filename: the .rec file, or its URL. Several are one after the other: a pattern such as ``train-*.rec``, in the
            order of the names, or a list.
        cache: a folder, or "memory": what was read once is kept there and read from there.
        cache_limit: most bytes that are kept, such as "50GB" (the default for a folder; for memory 4 GB).
        direct: read past the system's page cache, where the file system can (Linux): for a local file much larger than
            memory.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: an option is not allowed, or some are files, and others URLs.
    """

    def __init__(
        self,
        filename: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        cache: Any = None,
        cache_limit: Any = None,
        direct: bool = False,
    ) -> None:
        super().__init__(cache, cache_limit)
        self._paths = record_files(filename)
        self._path = self._paths[0]
        self._direct = bool(direct)
        self._versions: tuple[Version | None, ...] = (None,) * len(self._paths)
        if any(map(is_url, self._paths)):
            if not all(map(is_url, self._paths)):
                raise ValueError("files of this machine and URLs cannot be one dataset")
            if self._direct:
                raise ValueError(f"direct=True is for local files, and {redact_url(self._path)} is a URL")
            from aioloader.storage.remote.opening import describe_all

            self._versions = describe_all(self._paths)
        self._records: RecordTables | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_records": None}

    @property
    def tables(self) -> RecordTables:
        """Where the records lie; found at the first use."""
        if self._records is None:
            open_table = partial(RecordTable, tolerant=True)
            if self.reads_ahead and len(self._paths) > 1:
                self._records = RecordTables(open_side_by_side(open_table, self._paths, self._versions))
            else:
                self._records = RecordTables(
                    [
                        open_table(path, version=version)
                        for path, version in zip(self._paths, self._versions, strict=True)
                    ]
                )
        return self._records

    @property
    def table(self) -> RecordTable:
        """Where those of the first file lie."""
        return self.tables.tables[0]

    def __len__(self) -> int:
        return len(self.tables)

    @property
    def decoder(self) -> Decoder[Any]:
        """See `ByteDataset.decoder`."""
        return RecordDecoder()

    def load_spans(self, source: Source, spans: Spans) -> tuple[ReadPlan, memoryview]:
        """Read some spans, blocking; see `load`."""
        return load(source, spans)

    def open_source(self) -> Source:
        """See `ByteDataset.open_source`."""
        if self.reads_ahead:
            return self._remote(self._paths, self._versions, whole_files=False, name=self._path)
        source = LocalByteSource(self._paths, whole_files=False, direct=self._direct)
        return self._cached(source, self._path)

    @property
    def reads_ahead(self) -> bool:
        """See `FileDataset.reads_ahead`."""
        return self._versions[0] is not None

    def spans(self, indices: IntArray) -> Spans:
        """See `ByteDataset.spans`."""
        return self.tables.spans(indices)

    def facts(self, index: int) -> ItemLocation:
        """See `ByteDataset.facts`."""
        file, line = self.tables.locate(index)
        table = self.tables.tables[file].index
        return ItemLocation(table.key_at(line), redact_url(self._paths[file]), int(table.offsets[line]))

    def file_nbytes(self, index: int) -> int:
        """See `FileDataset.file_nbytes`."""
        version = self._versions[self.tables.locate(index)[0]]
        return super().file_nbytes(index) if version is None else version.nbytes


class ImageRecordDataset(RecordFileDataset):
    """(image, label) of every record: uint8 (height, width, 3) RGB, and what `recordio.pack` was given.

    Scalar labels are int64 if those of the first 1,000 records of the file are whole numbers, else float32; a
    later label that does not fit is an error of its sample. Records with several labels give float32 (n,).

    Args:
        path: the .rec file, or several; see `RecordFileDataset`.
        flag: 1 for colour, 0 for grey, (height, width, 1).
        transform: deprecated; use ``.transform(fn)``.
        exif: "apply" turns images upright, "ignore" leaves them as stored.
        max_pixels: larger images are refused before they are decoded; None for no limit.
        label_dtype: dtype of all labels instead of these rules.
        dct_scaling: where a crop or resize that comes first shrinks a JPEG to a half or less, decode it at 1/2, 1/4 or
            1/8 of its size. Faster for large photographs, but it changes pixels slightly, and a crop's edges move by
            up to half a decoded pixel. Acts in a loader only, and not on ``dataset[i]``.
        cache, cache_limit, direct: see `RecordFileDataset`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: an option is not allowed.
    """

    _first_label = False

    def __init__(
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        flag: int = 1,
        transform: Callable[..., Any] | None = None,
        *,
        exif: str = "apply",
        max_pixels: int | None = DEFAULT_MAX_PIXELS,
        label_dtype: Any = None,
        dct_scaling: bool = False,
        cache: Any = None,
        cache_limit: Any = None,
        direct: bool = False,
    ) -> None:
        super().__init__(path, cache=cache, cache_limit=cache_limit, direct=direct)
        self._own_stage = stage_of_argument(self, transform)
        dtype = check_image_options(flag, exif, max_pixels, label_dtype)
        self._image_options = (flag, exif, max_pixels)
        self._dct_scaling = bool(dct_scaling)
        self._label_dtype = None if dtype is None else dtype.name
        self._scalar_dtype: str | None = self._label_dtype

    @property
    def decoder(self) -> ImageRecordDecoder:
        """See `ByteDataset.decoder`. The first time it looks at the labels of the first records."""
        if self._scalar_dtype is None:
            first = next((n for n, table in enumerate(self.tables.tables) if len(table.index)), 0)
            offsets = self.tables.tables[first].first_offsets(_LABELS_LOOKED_AT)
            self._scalar_dtype = scalar_label_dtype(self._paths[first], offsets, self._versions[first])
        vector_dtype = self._label_dtype or "float32"
        return ImageRecordDecoder(
            *self._image_options, self._scalar_dtype, vector_dtype, self._dct_scaling, self._first_label
        )

    def labels(self) -> Array:
        """The label of every record, (n,), from the headers; each is read, in the order of the file.

        Raises:
            OSError: the file cannot be read.
            ValueError: a record has no single label, or its header is damaged.
        """
        found = np.concatenate(
            [_labels_of(path, table) for path, table in zip(self._paths, self.tables.tables, strict=True)]
        )
        if self._label_dtype is not None:
            return found.astype(self._label_dtype)
        whole = bool(np.equal(np.floor(found), found).all())
        return found.astype(np.int64) if whole and len(found) else found


def _labels_of(path: str, table: RecordTable) -> Array:
    """The label of every record of a file, float32 (n,)."""
    offsets = table.index.offsets
    order = np.argsort(offsets, kind="stable")
    heads = read_heads(path, offsets[order], version=table.version)
    lost = order[~_scalar(heads)]
    if len(lost):
        key = table.index.key_at(int(lost.min()))
        raise ValueError(f"{redact_url(path)}: the record with the key {key!r} has no single label")
    found = np.empty(len(offsets), np.float32)
    found[order] = heads.label
    return found


def begins_with_a_record(path: str) -> bool:
    """Whether a file's first bytes are those of a RecordIO file.

    Raises:
        OSError: it cannot be read.
    """
    fd = open_regular(path)
    try:
        head = bytearray(_MAGIC.size)
        return read_into(fd, memoryview(head), 0) == _MAGIC.size and _MAGIC.unpack(head) == (MAGIC,)
    finally:
        os.close(fd)


def scalar_label_dtype(path: str, offsets: list[int], version: Version | None = None) -> str:
    """ "int64" if the scalar labels at these offsets are all whole numbers, else "float32".

    Records that are damaged, cut within their header, or have a label array have no say; without any scalar
    label it is "float32".
    """
    heads = read_heads(path, np.array(offsets, np.int64), version=version)
    labels = heads.label[_scalar(heads)]
    return "int64" if len(labels) and bool((labels == np.floor(labels)).all()) else "float32"


def _scalar(heads: RecordHeads) -> Array:
    """bool (n,): which of them have one label, in the header itself."""
    scalar: Array = heads.packed & (heads.flag == 0)
    return scalar
