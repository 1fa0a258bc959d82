"""Sources of encoded images and labels for `ImageIter`: a record file, a .lst file or a list.

Items are (encoded image, label): datasets whose bytes the loader reads in bulk.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from aioloader.abc import Decoder
from aioloader.datasets.files import FileDataset
from aioloader.formats.folder.dataset import whole_files
from aioloader.formats.list.dataset import list_entries
from aioloader.formats.packed_files import Entries, read_list
from aioloader.formats.recordio.dataset import RecordTable
from aioloader.foundation.stacks import warn_caller
from aioloader.foundation.types import Array, IntArray, ItemLocation, SpanKind, Spans
from aioloader.foundation.validation import require
from aioloader.mxnet.ndarray.ndarray import from_numpy
from aioloader.mxnet.recordio import MXIndexedRecordIO, MXRecordIO
from aioloader.storage.local.source import LocalByteSource
from recordio import Index, extract, unpack

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class _Body(Decoder[Any]):
    """Decoder of bytes to (encoded image, label)."""

    in_record: bool

    def __call__(self, data: memoryview, extra: Any, location: ItemLocation) -> tuple[bytes, Array]:
        """Return the item; the label is float32, () or (n,)."""
        if not self.in_record:
            return bytes(data), _labels_of(extra)
        payload: Any = extract(data, path=location.path, offset=location.offset or 0)
        header, body = unpack(payload)
        label = np.array(header.label, np.float32) if extra is None else _labels_of(extra)
        return bytes(body), label


def _labels_of(row: Array) -> Array:
    # The number of labels comes first: detection lists have rows of different lengths.
    return np.array(row[1 : 1 + int(row[0])], np.float32)


class _Labels:
    """Labels of all items, concatenated: a table as wide as the widest row might exceed all memory.

    Args:
        labels: of each item, float32 (n,).
    """

    def __init__(self, labels: Sequence[Array]) -> None:
        counts = np.array([len(values) for values in labels], np.int64)
        self._end: IntArray = np.cumsum(counts, dtype=np.int64)
        self._start: IntArray = self._end - counts
        self._values: Array = np.concatenate(
            [np.zeros(0, np.float32), *map(np.asarray, labels)], dtype=np.float32
        )

    def of(self, index: int) -> Array:
        """Return the labels of one item."""
        return self._values[self._start[index] : self._end[index]].copy()

    def rows(self, indices: IntArray) -> Array:
        """Return one row for each item, float32: the number of its labels, the labels, and zeros."""
        counts = self._end[indices] - self._start[indices]
        table = np.zeros((len(counts), 1 + int(counts.max(initial=0))), np.float32)
        table[:, 0] = counts
        for row, start, count in zip(table, self._start[indices].tolist(), counts.tolist(), strict=True):
            row[1 : 1 + count] = self._values[start : start + count]
        return table


class EncodedImages(FileDataset):
    """Dataset of encoded images with labels.

    Args:
        paths: paths of the files.
        keys: names of the items, for errors.
        labels: their labels; None where the records contain them.

    Attributes:
        keys: as given, in the order of the index or list.
    """

    _in_records: ClassVar[bool]

    def __init__(self, paths: list[str], keys: list[Any], labels: Sequence[Array] | None) -> None:
        super().__init__()
        self._paths = paths
        self.keys = keys
        self._labels = None if labels is None else _Labels(labels)

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def decoder(self) -> _Body:
        return _Body(self._in_records)

    def open_source(self) -> LocalByteSource:
        return LocalByteSource(self._paths, kind=SpanKind.RECORD if self._in_records else SpanKind.FILE)

    def label(self, index: int) -> Array:
        """Return the labels of one item; read from its record if they are not in a list."""
        found: Array = self[index][1] if self._labels is None else self._labels.of(index)
        return found

    def extras(self, indices: IntArray) -> Array | None:
        """Return the labels; see `ByteDataset.extras`."""
        return None if self._labels is None else self._labels.rows(indices)


class EncodedRecords(EncodedImages):
    """Dataset of the images of a record file.

    Args:
        path: the record file.
        keys: keys of the records.
        offsets: byte at which each record begins.
        labels: labels that replace those in the records; None: keep those.
    """

    _in_records = True

    def __init__(self, path: str, keys: list[Any], offsets: IntArray, labels: list[Array] | None) -> None:
        super().__init__([path], keys, labels)
        self._table = RecordTable(path, index=Index.of(offsets))

    def spans(self, indices: IntArray) -> Spans:
        return self._table.spans(indices)

    def location(self, index: int) -> ItemLocation:
        return ItemLocation(self.keys[index], self._paths[0], int(self._table.index.offsets[index]))


class EncodedFiles(EncodedImages):
    """Dataset of image files."""

    _in_records = False

    def spans(self, indices: IntArray) -> Spans:
        return whole_files(indices)

    def location(self, index: int) -> ItemLocation:
        return ItemLocation(self.keys[index], self._paths[index], None)


_LABEL_DTYPES = ("int32", "float32", "int64", "float64")


@dataclass
class ImageSource:
    """Input of `ImageIter`.

    Attributes:
        dataset: (encoded image, label) of every item.
        imgrec: a reader of the record file, or None.
        imgidx: keys of the record file's index, or None.
        imglist: key to (label, path), or None.
    """

    dataset: EncodedImages
    imgrec: MXRecordIO | None
    imgidx: list[Any] | None
    imglist: dict[Any, tuple[Array, str]] | None


def open_images(
    *,
    path_imgrec: str | None,
    path_imgidx: str | None,
    path_imglist: str | None,
    imglist: list[Any] | None,
    path_root: str | None,
    dtype: str,
) -> ImageSource:
    """Open the files that the arguments of `ImageIter` name; see there.

    Raises:
        MXNetError: there is no such record file.
        FileNotFoundError: there is no such list or index.
        ValueError: there is no file and no list, or `dtype` is not one for labels (an AssertionError too); a list is
            malformed; a path leads out of `path_root`.
        KeyError: the list has no entry for a record.
    """
    require(
        path_imgrec or path_imglist or isinstance(imglist, list),
        "ImageIter needs images: give path_imgrec, path_imglist or a list imglist",
    )
    require(str(np.dtype(dtype)) in _LABEL_DTYPES, f"{dtype} label not supported")
    entries: dict[Any, tuple[Array, str]] | None = None
    if path_imglist:
        entries = _entries(read_list(path_imglist), dtype)
    elif imglist is not None:
        entries = _entries(list_entries(imglist), dtype)
    if not path_imgrec:
        assert entries is not None
        return _files(entries, path_root or "")
    path_imgrec = os.fspath(path_imgrec)
    if not path_imgidx:
        if entries is not None:
            warn_caller(
                "the list of labels has no effect without path_imgidx, because a record's entry is found by its key",
                UserWarning,
            )
        reader = MXRecordIO(path_imgrec, "r")
        offsets = Index.scan(path_imgrec).offsets
        keys = list(range(len(offsets)))
        return ImageSource(EncodedRecords(path_imgrec, keys, offsets, None), reader, None, None)
    indexed = MXIndexedRecordIO(path_imgidx, path_imgrec, "r")
    keys = list(indexed.keys)
    offsets = np.array([indexed.idx[key] for key in keys], np.int64)
    labels = None if entries is None else [_entry_of(entries, key)[0] for key in keys]
    return ImageSource(EncodedRecords(path_imgrec, keys, offsets, labels), indexed, list(keys), entries)


def _entries(found: Entries, dtype: str) -> dict[Any, tuple[Array, str]]:
    entries: dict[Any, tuple[Array, str]] = {
        key: (_label_array(key, labels, dtype), path) for key, labels, path in found.rows()
    }
    count = len(found.paths)
    if len(entries) < count:
        warn_caller(
            f"{count - len(entries)} of {count} entries of the list of labels have the key of a later one, "
            "which replaces them: give every entry a different key",
            UserWarning,
        )
    return entries


def _label_array(key: Any, labels: list[float], dtype: str) -> Array:
    try:
        with np.errstate(over="ignore"):  # values that are too large become infinite, as in MXNet
            return from_numpy(np.array(labels, dtype))
    except (ValueError, OverflowError) as error:
        raise ValueError(f"the labels of entry {key!r} cannot be {dtype}: {error}") from error


def _entry_of(entries: dict[Any, tuple[Array, str]], key: Any) -> tuple[Array, str]:
    # Entries of a list in memory have the keys "1", "2", ...
    found = entries.get(key, entries.get(str(key)))
    if found is None:
        raise KeyError(f"the list of labels has no entry for the record with the key {key!r}")
    return found


def _files(entries: dict[Any, tuple[Array, str]], root: str) -> ImageSource:
    paths = [_inside(root, path, key) for key, (_, path) in entries.items()]
    labels = [label for label, _ in entries.values()]
    return ImageSource(EncodedFiles(paths, list(entries), labels), None, None, entries)


def _inside(root: str, path: str, key: Any) -> str:
    """Return `path` under `root`; with an empty root any path is allowed."""
    joined = os.path.join(root, path)
    if root:
        home, place = os.path.abspath(root), os.path.abspath(joined)
        if os.path.commonpath((home, place)) != home:
            raise ValueError(
                f"the path {path!r} of entry {key!r} leads out of path_root {root!r}; "
                'give path_root="" if the paths of the list are to be trusted'
            )
        if ".." in path.split("/"):  # a link in the folder must not lead it out
            joined = os.path.join(root, os.path.normpath(path))
    return joined
