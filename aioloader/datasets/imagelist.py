"""Images listed in a .lst file, or in a list of labels and paths."""

from __future__ import annotations

import io
import numbers
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from aioloader.crop_index.lookup import AUTO
from aioloader.datasets.decoding import ImageFileDecoder, check_image_options, label_value
from aioloader.datasets.files import FileDataset
from aioloader.datasets.folder import whole_files
from aioloader.datasets.item_crops import ItemCrops
from aioloader.datasets.shards import pinned_path, pinned_paths
from aioloader.foundation.types import Array, IntArray, ItemLocation, SpanKind, Spans
from aioloader.storage.urls import is_url, join, path_of, redact_url
from aioloader.transforms.decode import DEFAULT_MAX_PIXELS

if TYPE_CHECKING:
    from aioloader.abc import FetchingByteSource

_LABELS_LOOKED_AT = 1000
_EXACT = 1 << 53  # float64 has all whole numbers up to this one

LIST_RULE = "imglist must be the name of a .lst file, or a list of entries such as [label, path], got"
"""Message about a malformed `imglist`, which follows."""

Entry = tuple[object, list[float], str]
"""(key, labels, path relative to the root)."""


class ImageListDataset(FileDataset):
    """Image files named by a list: (image, label) of every entry.

    The image is uint8 (height, width, 3) RGB. One label per entry is a scalar: int64 if the first 1,000 are whole
    numbers, else float32. Several labels are float32 (n,), and every entry must have the same number of them.

    Args:
        root: the folder that paths are relative to, or its URL; paths must not lead out of it. Links in the folder are
            followed.
        imglist: name of a .lst file, relative to `root`, or its URL (lines of id, labels and path, separated by
            TABs), or a list of ``[label, path]``, ``[[label, ...], path]`` or ``[label, ..., path]``.
        flag: 1 for colour, 0 for grey, (height, width, 1).
        exif: "apply" turns images upright, "ignore" leaves them as stored.
        max_pixels: larger images are refused before they are decoded; None for no limit.
        label_dtype: dtype of all labels; None: by the rules above.
        dct_scaling: if the first transform is a crop or resize that shrinks a JPEG to a half or less, decode it at 1/2,
            1/4 or 1/8 of its size. Faster for large photographs, but it changes pixels slightly, and a crop's edges
            move by up to half a decoded pixel. Used by loaders only, not by ``dataset[i]``.
        crop_index: the crop index of the folder (`aioloader index --crops`), with which a crop of a JPEG is decoded
            without the rest of the image, pixels unchanged. "auto": the one at its usual place, if it exists; None:
            none; or its path. Used by loaders only.
        cache: a folder, or "memory": bytes that were read once are stored there and read from there.
        cache_limit: size limit of the cache in bytes, such as "50GB" (the default for a folder; for memory 4 GB).

    Raises:
        FileNotFoundError: there is no such .lst file, or no crop index at the path given.
        CropIndexError: the file given as `crop_index` is damaged, or is that of other data.
        ValueError: the list is malformed, a path leads out of the root, or an option is not allowed.
    """

    _list_rule = LIST_RULE

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
        crop_index: str | os.PathLike[str] | None = AUTO,
        cache: str | os.PathLike[str] | None = None,
        cache_limit: int | str | None = None,
    ) -> None:
        super().__init__(cache, cache_limit)
        dtype = check_image_options(flag, exif, max_pixels, label_dtype)
        self._decoder = ImageFileDecoder(flag, exif, max_pixels, dct_scaling=bool(dct_scaling))
        self._root = pinned_path(path_of(root))
        if isinstance(imglist, (str, os.PathLike)):
            entries = read_list(_under(self._root, os.fspath(imglist)))
        elif isinstance(imglist, Sequence):
            entries = [list_entry(number, entry, self._list_rule) for number, entry in enumerate(imglist, 1)]
        else:
            raise ValueError(f"{self._list_rule} {imglist!r}")
        self._keys = [key for key, _, _ in entries]
        self._paths = pinned_paths([_under(self._root, inside_root(path, key)) for key, _, path in entries])
        self._labels = _label_array([labels for _, labels, _ in entries], self._keys, dtype)
        self._crops = ItemCrops(crop_index, self._root)
        if crop_index != AUTO:
            self._crops.open(lambda: self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    @property
    def decoder(self) -> ImageFileDecoder:
        crops = self._crops.open(lambda: self._paths)
        return self._decoder if crops is None else replace(self._decoder, crops=crops)

    def open_source(self) -> FetchingByteSource:
        return self._open_files(self._paths, remote=self.reads_ahead, kind=SpanKind.FILE, name=self._root)

    @property
    def reads_ahead(self) -> bool:
        return is_url(self._root)

    def spans(self, indices: IntArray) -> Spans:
        return whole_files(indices)

    def extras(self, indices: IntArray) -> Array:
        """Return the labels; if the folder has a crop index, with the keys of its entries."""
        return self._crops.extras(self._labels, indices)

    def labels(self) -> Array:
        if self._labels.ndim != 1:
            raise ValueError(f"the entries of this list have {self._labels.shape[1]} labels each, not one")
        return self._labels.copy()

    def class_names(self) -> list[str]:
        """Return the names of the folders, if each label from 0 on is that of the images of one folder."""
        folders: dict[int, str] = {}
        if self._labels.ndim == 1 and self._labels.dtype.kind in "iu":
            for label, path in zip(self._labels.tolist(), self._paths, strict=True):
                folder = os.path.dirname(path)
                if folders.setdefault(label, folder) != folder:
                    return []
        names = [os.path.basename(folders[label]) for label in range(len(folders)) if label in folders]
        return names if names and len(set(names)) == len(folders) else []

    def location(self, index: int) -> ItemLocation:
        return ItemLocation(self._keys[index], redact_url(self._paths[index]), None)


def _under(root: str, path: str) -> str:
    """Join a path to a folder, either of which may be a URL; an absolute path or URL is returned as it is."""
    if is_url(path) or not is_url(root) or os.path.isabs(path):
        return path if is_url(path) else os.path.join(root, path)
    return join(root, path)


def read_list(path: str) -> list[Entry]:
    """Read the entries of a .lst file: id, labels and a path on each line, separated by TABs; blank lines are skipped.

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
    """Parse one line of a .lst file into id, labels and path.

    Raises:
        ValueError: the line is malformed.
    """
    fields = [field.strip() for field in line.strip("\r\n").split("\t")]
    if len(fields) < 3:
        raise ValueError("expected an id, labels and a path, separated by TABs")
    if "\0" in fields[-1]:
        raise ValueError("a path cannot contain a null character")
    labels = [float(field) for field in fields[1:-1]]
    for label, field in zip(labels, fields[1:], strict=False):
        if abs(label) >= _EXACT and field.lstrip("+-").isdigit() and int(field) != label:
            raise ValueError(f"the label {field} is too large to be read exactly")
    return int(fields[0]), labels, fields[-1]


def list_entry(number: int, entry: Any, rule: str = LIST_RULE) -> Entry:
    """Convert one entry of a list.

    Args:
        number: number of the entry, from 1; its text is the key of the entry, as in MXNet.
        entry: ``[label, path]``, ``[[label, ...], path]`` or ``[label, ..., path]``.
        rule: beginning of the error message.

    Raises:
        ValueError: it is none of these.
    """
    if isinstance(entry, (list, tuple)) and len(entry) >= 2 and isinstance(entry[-1], (str, os.PathLike)):
        labels = list(entry[:-1])
        if len(labels) == 1 and isinstance(labels[0], (list, tuple, np.ndarray)):
            labels = np.asarray(labels[0]).ravel().tolist()
        if labels and all(isinstance(label, numbers.Real) for label in labels):
            return str(number), [float(label) for label in labels], os.fspath(entry[-1])
    raise ValueError(f"{rule} {entry!r} as entry {number}")


def inside_root(path: str, key: object) -> str:
    """Return a path without "..", so that a link in the folder cannot lead out of it.

    Raises:
        ValueError: the path leads out of the root.
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
