"""Images named by a list: a .lst file, or labels and paths."""

from __future__ import annotations

import io
import numbers
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from aioloader.datasets.decoding import (
    DEFAULT_MAX_PIXELS,
    ImageFileDecoder,
    check_image_options,
    label_value,
)
from aioloader.datasets.files import FileDataset, Source
from aioloader.datasets.folder import whole_files
from aioloader.foundation.types import ItemLocation, Spans
from aioloader.storage.local.source import LocalByteSource
from aioloader.storage.urls import is_url, join, path_of, redact_url

if TYPE_CHECKING:
    from aioloader.foundation.types import Array, IntArray

__all__ = ("Entry", "ImageListDataset", "inside_root", "list_entry", "parse_line", "read_list")

_LABELS_LOOKED_AT = 1000

Entry = tuple[object, list[float], str]
"""(key, labels, path relative to the root)."""


class ImageListDataset(FileDataset):
    """(image, label) of every entry of a list: uint8 (height, width, 3) RGB, and the label.

    One label per entry is a scalar: int64 if the first 1,000 are whole numbers, else float32. Several labels are
    float32 (n,), and every entry then has the same number of them.

    Args:
        root: the folder that paths are relative to, or its URL; they must not lead out of it. Links in the folder are
            followed.
        imglist: name of a .lst file, relative to `root`, or its URL (lines of id, labels and path, separated by
            TABs), or a list of ``[label, path]``, ``[[label, ...], path]`` or ``[label, ..., path]``.
        flag: 1 for colour, 0 for grey, (height, width, 1).
        exif: "apply" turns images upright, "ignore" leaves them as stored.
        max_pixels: larger images are refused before they are decoded; None for no limit.
        label_dtype: dtype of all labels instead of these rules.
        dct_scaling: where a crop or resize that comes first shrinks a JPEG to a half or less, decode it at 1/2, 1/4 or
            1/8 of its size. Faster for large photographs, but it changes pixels slightly, and a crop's edges move by
            up to half a decoded pixel. Acts in a loader only, and not on ``dataset[i]``.
        cache: a folder, or "memory": what was read once is kept there and read from there.
        cache_limit: most bytes that are kept, such as "50GB" (the default for a folder; for memory 4 GB).

    Raises:
        FileNotFoundError: there is no such .lst file.
        ValueError: the list is malformed, a path leads out of the root, or an option is not allowed.
    """

    def __init__(
        self,
        root: str | os.PathLike[str] = ".",
        imglist: str | os.PathLike[str] | Sequence[Any] | None = None,
        flag: int = 1,
        *,
        exif: str = "apply",
        max_pixels: int | None = DEFAULT_MAX_PIXELS,
        label_dtype: Any = None,
        dct_scaling: bool = False,
        cache: str | os.PathLike[str] | None = None,
        cache_limit: int | str | None = None,
    ) -> None:
        super().__init__(cache, cache_limit)
        dtype = check_image_options(flag, exif, max_pixels, label_dtype)
        self._decoder = ImageFileDecoder(flag, exif, max_pixels, bool(dct_scaling))
        self._root = path_of(root)
        if isinstance(imglist, (str, os.PathLike)):
            entries = read_list(_under(self._root, os.fspath(imglist)))
        elif isinstance(imglist, Sequence):
            entries = [list_entry(number, entry) for number, entry in enumerate(imglist, 1)]
        else:
            raise ValueError(f"imglist must be filename or list of valid entries, given {imglist!r}")
        self._keys = [key for key, _, _ in entries]
        self._paths = [_under(self._root, inside_root(path, key)) for key, _, path in entries]
        self._labels = _label_array([labels for _, labels, _ in entries], self._keys, dtype)

    def __len__(self) -> int:
        return len(self._paths)

    @property
    def decoder(self) -> ImageFileDecoder:
        """See `ByteDataset.decoder`."""
        return self._decoder

    def open_source(self) -> Source:
        """See `ByteDataset.open_source`."""
        if is_url(self._root):
            return self._remote(self._paths, [None] * len(self._paths), whole_files=True, name=self._root)
        return self._cached(LocalByteSource(self._paths, whole_files=True), self._root)

    @property
    def reads_ahead(self) -> bool:
        """See `FileDataset.reads_ahead`."""
        return is_url(self._root)

    def spans(self, indices: IntArray) -> Spans:
        """See `ByteDataset.spans`."""
        return whole_files(indices)

    def extras(self, indices: IntArray) -> Array:
        """The labels; see `ByteDataset.extras`."""
        return self._labels[indices]

    def labels(self) -> Array:
        """See `Dataset.labels`."""
        if self._labels.ndim != 1:
            raise ValueError(f"the entries of this list have {self._labels.shape[1]} labels each, not one")
        return self._labels.copy()

    def facts(self, index: int) -> ItemLocation:
        """See `ByteDataset.facts`."""
        return ItemLocation(self._keys[index], redact_url(self._paths[index]), None)


def _under(root: str, path: str) -> str:
    """A path in a folder, which may be a URL; one that needs no folder stays as it is."""
    if is_url(path) or not is_url(root) or os.path.isabs(path):
        return path if is_url(path) else os.path.join(root, path)
    return join(root, path)


def read_list(path: str) -> list[Entry]:
    """The entries of a .lst file: id, labels and a path on each line, separated by TABs. Blank lines are passed over.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line is malformed; the message names it.
    """
    entries: list[Entry] = []
    with _open_text(path) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                entries.append(parse_line(line))
            except ValueError as error:
                raise ValueError(f"{path}, line {number} ({line.strip()[:80]!r}): {error}") from None
    return entries


def _open_text(path: str) -> TextIO:
    if not is_url(path):
        return open(path, encoding="utf-8-sig", errors="surrogateescape")
    from aioloader.storage.remote.opening import read_text

    return io.TextIOWrapper(io.BytesIO(read_text(path)), encoding="utf-8-sig", errors="surrogateescape")


def parse_line(line: str) -> tuple[int, list[float], str]:
    """Id, labels and path of one line of a .lst file.

    Raises:
        ValueError: it is malformed.
    """
    fields = [field.strip() for field in line.strip("\r\n").split("\t")]
    if len(fields) < 3:
        raise ValueError("it should be an id, labels and a path, separated by TABs")
    if "\0" in fields[-1]:
        raise ValueError("a path cannot have a null character")
    return int(fields[0]), [float(field) for field in fields[1:-1]], fields[-1]


def list_entry(number: int, entry: Any) -> Entry:
    """Entry `number` (from 1, which is its key as text in MXNet) of a list.

    Args:
        number: its number.
        entry: ``[label, path]``, ``[[label, ...], path]`` or ``[label, ..., path]``.

    Raises:
        ValueError: it is none of these.
    """
    if isinstance(entry, (list, tuple)) and len(entry) >= 2 and isinstance(entry[-1], (str, os.PathLike)):
        labels = list(entry[:-1])
        if len(labels) == 1 and isinstance(labels[0], (list, tuple, np.ndarray)):
            labels = np.asarray(labels[0]).ravel().tolist()
        if labels and all(isinstance(label, numbers.Real) for label in labels):
            return str(number), [float(label) for label in labels], os.fspath(entry[-1])
    raise ValueError(f"imglist must be filename or list of valid entries, given {entry!r} as entry {number}")


def inside_root(path: str, key: object) -> str:
    """A path without "..", so that a link in the folder cannot lead it out.

    Raises:
        ValueError: it leads out of the root.
    """
    parts = path.replace("\\", "/").split("/") if os.name == "nt" else path.split("/")
    depth = 0
    for part in parts:
        depth += -1 if part == ".." else part not in ("", ".")
        if depth < 0:
            break
    if depth < 0 or os.path.isabs(path) or os.path.splitdrive(path)[0] or "\0" in path:
        raise ValueError(f"the path {path!r} of entry {key!r} leads out of the root folder")
    return os.path.normpath(path) if ".." in parts else path


def _label_array(labels: list[list[float]], keys: list[object], dtype: np.dtype[Any] | None) -> Array:
    width = len(labels[0]) if labels else 1
    for key, row in zip(keys, labels, strict=True):
        if len(row) != width:
            raise ValueError(f"entry {key!r} has {len(row)} labels, but the first one has {width}")
    if width > 1 and dtype is None:
        dtype = np.dtype(np.float32)
    if dtype is None:
        whole = all(row[0].is_integer() for row in labels[:_LABELS_LOOKED_AT])
        dtype = np.dtype(np.int64 if whole else np.float32)
    rows = []
    for key, row in zip(keys, labels, strict=True):
        try:
            rows.append([label_value(label, dtype) for label in row])
        except ValueError as error:
            raise ValueError(f"entry {key!r}: {error}") from None
    table = np.array(rows, dtype=dtype).reshape(len(labels), width)
    return table[:, 0].copy() if width == 1 else table
