"""Datasets over RecordIO files."""

from __future__ import annotations

import os
import shlex
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader._types import Facts, Spans
from aioloader.datasets.decoding import (
    DEFAULT_MAX_PIXELS,
    ImageRecordDecoder,
    RecordDecoder,
    check_image_options,
)
from aioloader.datasets.files import FileDataset, Source
from aioloader.datasets.stage import stage_of_argument
from aioloader.storage.descriptors import open_regular, read_into
from aioloader.storage.local import LocalByteSource
from aioloader.storage.urls import beside, is_url, shown
from recordio import MAGIC, CorruptIndexError, CorruptRecordError, Index, RecordFileNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from aioloader._types import Array, IntArray
    from aioloader.abc import Decoder
    from aioloader.storage.remote.transport import Version

__all__ = ("ImageRecordDataset", "RecordFileDataset", "RecordTable", "begins_with_a_record")

_LABELS_LOOKED_AT = 1000
# Part head (magic, flag and length), then the image header's first fields (number of labels, label).
_HEADS = struct.Struct("<IIIf")
_MAGIC = struct.Struct("<I")


class RecordTable:
    """Where the records of a file lie, in the order of its index.

    Args:
        path: the .rec file.
        idx_path: its .idx file; None for the one beside it, if there is one.
        version: what the object is, where `path` is a URL; None: it is asked.

    Attributes:
        index: from the .idx, or from a scan where there is none.
        file_nbytes: size of the file when the table was made.
        version: what the object is, where `path` is a URL.

    Raises:
        OSError: the file or its index cannot be read.
        RecordIOError: the index is malformed, or a file without an index is damaged.
    """

    def __init__(self, path: str, idx_path: str | None = None, version: Version | None = None) -> None:
        given = idx_path is not None
        idx_path = idx_path or beside(path, ".idx")
        if is_url(path):
            from aioloader.storage.remote.opening import describe, load_index

            version = version or describe(path)
            self.index = load_index(path, idx_path if given else None)
        elif given or os.path.exists(idx_path):
            self.index = Index.open(idx_path)
        else:
            self.index = _scan(path)
        self.version = version
        self.file_nbytes = os.path.getsize(path) if version is None else version.nbytes
        if not len(self.index) and self.file_nbytes:
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
        """Spans that hold the records, by line. A wrong offset gives a span too short for any record."""
        offset = np.asarray(self.index.offsets[indices], dtype=np.int64)
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
    they are first needed.

    Args:
        filename: the .rec file.
        cache: a folder, or "memory": what was read once is kept there and read from there.
        cache_limit: most bytes that are kept, such as "50GB" (the default for a folder; for memory 4 GB).
        direct: read past the system's page cache, where the file system can (Linux): for a local file much larger than
            memory.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: an option is not allowed.
    """

    def __init__(
        self,
        filename: str | os.PathLike[str],
        *,
        cache: Any = None,
        cache_limit: Any = None,
        direct: bool = False,
    ) -> None:
        super().__init__(cache, cache_limit)
        self._path = os.path.expanduser(os.fspath(filename))
        self._direct = bool(direct)
        if self._direct and is_url(self._path):
            raise ValueError(f"direct=True is for local files, and {shown(self._path)} is a URL")
        self._version: Version | None = None
        if is_url(self._path):
            from aioloader.storage.remote.opening import describe

            self._version = describe(self._path)
        elif not os.path.exists(self._path):
            raise RecordFileNotFoundError(f"there is no record file {self._path!r}", path=self._path)
        self._records: RecordTable | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_records": None}

    @property
    def table(self) -> RecordTable:
        """Where the records lie; found at the first use."""
        if self._records is None:
            self._records = RecordTable(self._path, version=self._version)
        return self._records

    def __len__(self) -> int:
        return len(self.table.index)

    @property
    def decoder(self) -> Decoder[Any]:
        """See `ByteDataset.decoder`."""
        return RecordDecoder()

    def open_source(self) -> Source:
        """See `ByteDataset.open_source`."""
        if self._version is not None:
            return self._remote((self._path,), (self._version,), whole_files=False, name=self._path)
        source = LocalByteSource((self._path,), whole_files=False, direct=self._direct)
        return self._cached(source, self._path)

    def spans(self, indices: IntArray) -> Spans:
        """See `ByteDataset.spans`."""
        return self.table.spans(indices)

    def facts(self, index: int) -> Facts:
        """See `ByteDataset.facts`."""
        table = self.table.index
        return Facts(table.key_at(index), shown(self._path), int(table.offsets[index]))

    def file_nbytes(self, index: int) -> int:
        """See `FileDataset.file_nbytes`."""
        return super().file_nbytes(index) if self._version is None else self._version.nbytes


class ImageRecordDataset(RecordFileDataset):
    """(image, label) of every record: uint8 (height, width, 3) RGB, and what `recordio.pack` was given.

    Scalar labels are int64 if those of the first 1,000 records of the file are whole numbers, else float32; a
    later label that does not fit is an error of its sample. Records with several labels give float32 (n,).

    Args:
        path: the .rec file; see `RecordFileDataset` for its index.
        flag: 1 for colour, 0 for grey, (height, width, 1).
        transform: deprecated; use ``.transform(fn)``.
        exif: "apply" turns images upright, "ignore" leaves them as stored.
        max_pixels: larger images are refused before they are decoded; None for no limit.
        label_dtype: dtype of all labels instead of these rules.
        dct_scaling: where a crop or resize that comes first shrinks a JPEG to a half or less, decode it at 1/2, 1/4 or
            1/8 of its size. Faster for large photographs, but it changes pixels slightly, and a crop's edges move by
            up to half a decoded pixel. Acts in a loader only, and not on ``dataset[i]``.
        cache: a folder, or "memory": what was read once is kept there and read from there.
        cache_limit: most bytes that are kept, such as "50GB" (the default for a folder; for memory 4 GB).
        direct: read past the system's page cache, where the file system can (Linux): for a local file much larger than
            memory.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: an option is not allowed.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
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
            self._scalar_dtype = scalar_label_dtype(self._heads(self.table.first_offsets(_LABELS_LOOKED_AT)))
        vector_dtype = self._label_dtype or "float32"
        return ImageRecordDecoder(*self._image_options, self._scalar_dtype, vector_dtype, self._dct_scaling)

    def labels(self) -> Array:
        """The label of every record, (n,), from the headers; each is read, in the order of the file.

        Raises:
            OSError: the file cannot be read.
            ValueError: a record has no single label, or its header is damaged.
        """
        offsets = self.table.index.offsets
        order = np.argsort(offsets, kind="stable")
        found = np.empty(len(offsets), np.float32)
        labels = map(_scalar_label, self._heads(offsets[order].tolist()))
        for place, label in zip(order.tolist(), labels, strict=True):
            if label is None:
                key = self.table.index.key_at(place)
                raise ValueError(f"{self._path}: the record with the key {key!r} has no single label")
            found[place] = label
        if self._label_dtype is not None:
            return found.astype(self._label_dtype)
        whole = bool(np.equal(np.floor(found), found).all())
        return found.astype(np.int64) if whole and len(found) else found

    def _heads(self, offsets: list[int]) -> Iterator[bytes]:
        """The first bytes of the records at some offsets; fewer where the file ends."""
        if self._version is None:
            return local_heads(self._path, offsets)
        from aioloader.storage.remote.opening import read_heads

        return read_heads(self._path, self._version, np.array(offsets, np.int64), _HEADS.size)


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


def scalar_label_dtype(heads: Iterable[bytes]) -> str:
    """ "int64" if the scalar labels of the records with these heads are all whole numbers, else "float32".

    Records that are damaged, cut within their header, or have a label array have no say; without any scalar
    label it is "float32".
    """
    labels = [label for label in map(_scalar_label, heads) if label is not None]
    return "int64" if labels and all(label.is_integer() for label in labels) else "float32"


def _scalar_label(head: bytes) -> float | None:
    """The scalar label of the record that begins so; None where there is none."""
    if len(head) != _HEADS.size:
        return None
    magic, word, flag, label = _HEADS.unpack(head)
    scalar = magic == MAGIC and word >> 29 in (0, 1) and word & 0x1FFFFFFF >= 8 and flag == 0
    return label if scalar else None


def local_heads(path: str, offsets: Iterable[int]) -> Iterator[bytes]:
    """The first bytes of the records at these offsets of a file; b"" for one before its beginning or behind its end."""
    head = bytearray(_HEADS.size)
    fd = open_regular(path)
    try:
        for offset in offsets:
            yield b"" if offset < 0 else bytes(head[: read_into(fd, memoryview(head), offset)])
    finally:
        os.close(fd)
