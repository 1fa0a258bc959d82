"""Datasets over RecordIO files."""

from __future__ import annotations

import os
import struct
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.datasets.decoding import ImageRecordDecoder, RecordDecoder, check_image_options
from aioloader.datasets.files import FileDataset
from aioloader.datasets.record_heads import RecordHeads, read_heads
from aioloader.datasets.record_table import RecordTable, RecordTables, open_tables
from aioloader.datasets.shards import record_files
from aioloader.datasets.stage import stage_of_argument
from aioloader.foundation.types import Array, IntArray, ItemLocation, Spans
from aioloader.storage.local.descriptors import open_regular, read_into
from aioloader.storage.urls import is_url, redact_url
from aioloader.transforms.decode import DEFAULT_MAX_PIXELS
from recordio import MAGIC

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.abc import Decoder, FetchingByteSource
    from aioloader.storage.remote.transport import Version

_LABELS_LOOKED_AT = 1000
_MAGIC = struct.Struct("<I")


class RecordFileDataset(FileDataset):
    """Payloads of the records of RecordIO files, as bytes. Sample i is the record of line i of the .idx.

    The .idx is the file of the same name in the same folder. Without it the records are found by a scan when they are
    first needed. A line of the .idx that cannot be read is a sample that fails.

    Args:
        filename: the .rec file, or its URL. Several files are concatenated: a pattern such as ``train-*.rec``, in the
            order of the names, or a list of files.
        cache: a folder, or "memory": bytes that were read once are stored there and read from there.
        cache_limit: size limit of the cache in bytes, such as "50GB" (the default for a folder; for memory 4 GB).
        direct: bypass the system's page cache, if the file system supports it (Linux): for a local file much larger
            than memory.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: an option is not allowed, or files and URLs are mixed.
    """

    def __init__(
        self,
        filename: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        cache: str | os.PathLike[str] | None = None,
        cache_limit: int | str | None = None,
        direct: bool = False,
    ) -> None:
        super().__init__(cache, cache_limit)
        self._paths = record_files(filename)
        self._path = self._paths[0]
        self._direct = bool(direct)
        self._versions: tuple[Version | None, ...] = (None,) * len(self._paths)
        if any(map(is_url, self._paths)):
            if not all(map(is_url, self._paths)):
                raise ValueError("a dataset cannot mix local files and URLs: pass only one kind")
            if self._direct:
                raise ValueError(f"direct=True is for local files, and {redact_url(self._path)} is a URL")
            from aioloader.storage.remote.opening import describe_all

            self._versions = describe_all(self._paths)
        self._records: RecordTables | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_records": None}

    @property
    def tables(self) -> RecordTables:
        """Return the tables of all files, which are read at the first use."""
        if self._records is None:
            open_table = partial(RecordTable, tolerant=True)
            if self.reads_ahead and len(self._paths) > 1:
                self._records = RecordTables(open_tables(open_table, self._paths, self._versions))
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
        """Return the table of the first file."""
        return self.tables.tables[0]

    def __len__(self) -> int:
        return len(self.tables)

    @property
    def decoder(self) -> Decoder[Any]:
        return RecordDecoder()

    def open_source(self) -> FetchingByteSource:
        return self._open_files(
            self._paths,
            remote=self.reads_ahead,
            whole_files=False,
            name=self._path,
            versions=self._versions,
            direct=self._direct,
        )

    @property
    def reads_ahead(self) -> bool:
        return self._versions[0] is not None

    def spans(self, indices: IntArray) -> Spans:
        return self.tables.spans(indices)

    def extras(self, indices: IntArray) -> None:
        """Return None: the records contain their labels."""

    def location(self, index: int) -> ItemLocation:
        file, line = self.tables.locate(index)
        table = self.tables.tables[file].index
        return ItemLocation(table.key_at(line), redact_url(self._paths[file]), int(table.offsets[line]))

    def file_nbytes(self, index: int) -> int:
        version = self._versions[self.tables.locate(index)[0]]
        return super().file_nbytes(index) if version is None else version.nbytes


class ImageRecordDataset(RecordFileDataset):
    """Images of RecordIO files: (image, label) of every record.

    The image is uint8 (height, width, 3) RGB, the label the one passed to `recordio.pack`. Scalar labels are int64 if
    those of the first 1,000 records of the file are whole numbers, else float32; a later label that does not fit is an
    error of its sample. Several labels of a record are float32 (n,).

    Args:
        path: the .rec file, or several; see `RecordFileDataset`.
        flag: 1 for colour, 0 for grey, (height, width, 1).
        transform: deprecated; use ``.transform(fn)``.
        exif: "apply" turns images upright, "ignore" leaves them as stored.
        max_pixels: larger images are refused before they are decoded; None for no limit.
        label_dtype: dtype of all labels; None: by the rules above.
        dct_scaling: if the first transform is a crop or resize that shrinks a JPEG to a half or less, decode it at 1/2,
            1/4 or 1/8 of its size. Faster for large photographs, but it changes pixels slightly, and a crop's edges
            move by up to half a decoded pixel. Used by loaders only, not by ``dataset[i]``.
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
        cache: str | os.PathLike[str] | None = None,
        cache_limit: int | str | None = None,
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
        """Return the decoder. The first call reads the labels of the first records, unless `label_dtype` is given."""
        if self._scalar_dtype is None:
            first = next((n for n, table in enumerate(self.tables.tables) if len(table.index)), 0)
            offsets = self.tables.tables[first].first_offsets(_LABELS_LOOKED_AT)
            self._scalar_dtype = scalar_label_dtype(self._paths[first], offsets, self._versions[first])
        vector_dtype = self._label_dtype or "float32"
        return ImageRecordDecoder(
            *self._image_options,
            scalar_dtype=self._scalar_dtype,
            vector_dtype=vector_dtype,
            dct_scaling=self._dct_scaling,
            first_label=self._first_label,
        )

    def labels(self) -> Array:
        """Return the label of every record, (n,); all headers are read, in the order of the file.

        Raises:
            OSError: the file cannot be read.
            ValueError: a record has no label or several labels, or its header is corrupt.
        """
        found = np.concatenate(
            [_labels_of(path, table) for path, table in zip(self._paths, self.tables.tables, strict=True)]
        )
        if self._label_dtype is not None:
            return found.astype(self._label_dtype)
        whole = bool(np.equal(np.floor(found), found).all())
        return found.astype(np.int64) if whole and len(found) else found


def _labels_of(path: str, table: RecordTable) -> Array:
    """Read the label of every record of a file, float32 (n,)."""
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
    """Return True if a file begins like a RecordIO file.

    Raises:
        OSError: the file cannot be read.
    """
    fd = open_regular(path)
    try:
        head = bytearray(_MAGIC.size)
        return read_into(fd, memoryview(head), 0) == _MAGIC.size and _MAGIC.unpack(head) == (MAGIC,)
    finally:
        os.close(fd)


def scalar_label_dtype(path: str, offsets: list[int], version: Version | None = None) -> str:
    """Return "int64" if all scalar labels at these offsets are whole numbers, else "float32".

    Records that are corrupt, truncated within their header, or have a label array are ignored; without any scalar label
    the result is "float32".
    """
    heads = read_heads(path, np.array(offsets, np.int64), version=version)
    labels = heads.label[_scalar(heads)]
    return "int64" if len(labels) and bool((labels == np.floor(labels)).all()) else "float32"


def _scalar(heads: RecordHeads) -> Array:
    """Return bool (n,): True for records with a scalar label, which is in the header itself."""
    scalar: Array = heads.packed & (heads.flag == 0)
    return scalar
