"""Images listed in a .lst file, in a table, or in a list of labels and paths."""

from __future__ import annotations

import csv
import numbers
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.crop_index.lookup import AUTO, ItemCrops
from aioloader.datasets.decoding import ImageFileDecoder, ImageOptions, label_value, label_vector
from aioloader.datasets.files import FileDataset, opens_offline
from aioloader.datasets.shards import pinned_path, pinned_paths
from aioloader.formats.folder.dataset import whole_files
from aioloader.formats.foreign import is_image_name
from aioloader.formats.packed_files import Entries, inside_root, open_text, read_list
from aioloader.foundation.types import Array, IntArray, ItemLocation, SpanKind, Spans
from aioloader.foundation.validation import advises
from aioloader.storage.urls import is_url, join, path_of, redact_url

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Unpack

    from aioloader.abc import ByteSource
    from aioloader.datasets.decoding import ImageKeywords

_LABELS_LOOKED_AT = 1000
_CLASSES = 1 << 63  # greater whole numbers are quantities, and no classes
_SURROGATE = re.compile("[\ud800-\udfff]")  # what "surrogateescape" reads where a text is not UTF-8
TABLE_SUFFIXES = (".csv", ".tsv")
# Usual names of columns.
_PATHS = (
    "image",
    "path",
    "file",
    "filename",
    "file_name",
    "filepath",
    "file_path",
    "image_path",
    "img",
    "img_path",
)
_LABELS = ("label", "target", "class", "labels")

LIST_RULE = "imglist must be the name of a .lst or .csv file, a table, or a list of entries such as [label, path], got"
"""Message about a malformed `imglist`, which follows."""


class ImageListDataset(FileDataset):
    """Image files named by a list: (image, label) of every entry.

    The image is uint8 (height, width, 3) RGB. One label per entry is a scalar: int64 if the first 1,000 are whole
    numbers, else float32. Several labels are float32 (n,), and every entry must have the same number of them. Labels
    of a table that are text become the numbers of their sorted names, int64; see `class_names`.

    Args:
        root: the folder that paths are relative to, or its URL; paths must not lead out of it. Links in the folder are
            followed. None: paths may be absolute, or URLs; others are relative to the folder of a table's file, or to
            the current one.
        imglist: name of a .lst file, relative to `root`, or its URL (lines of id, labels and path, separated by
            TABs), or a list of ``[label, path]``, ``[[label, ...], path]`` or ``[label, ..., path]``, or, with
            ``label=None``, of paths. Or a table: the name of a .csv or .tsv file (looked for in `root`, then in the
            current folder), with or without a line of names; a table of pandas, Polars or pyarrow; a dict of columns.
        flag: 1 for colour; 0 for grey, (height, width, 1); -1 for the channels and bits of each file.
        image: column of the paths in a table; None: one with a usual name, such as "image", "path" or "file_name",
            or the first that has names of images.
        label: column of the label in a table, or several columns; "auto": "label", "target" or "class", or the only
            other column. None: the samples are images alone, without labels.
        label_dtype: dtype of all labels; None: by the rules above.
        exif, max_pixels, dct_scaling, cache, cache_limit: see `ImageRecordDataset`.
        crop_index: see `ImageRecordDataset`; the index of the folder.

    Raises:
        FileNotFoundError: there is no such file, or no crop index at the path given.
        CropIndexError: the file given as `crop_index` is damaged, or is that of other data.
        ValueError: the list is malformed, a path leads out of the root, a table has no such column or lacks a value, or
            an option is not allowed.
    """

    _list_rule = LIST_RULE

    @opens_offline
    @advises({}, ImageOptions)
    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        imglist: Any = None,
        flag: int = 1,
        *,
        image: str | None = None,
        label: str | Sequence[str] | None = AUTO,
        **options: Unpack[ImageKeywords],
    ) -> None:
        given = ImageOptions(flag=flag, **options)
        super().__init__(given.cache, given.cache_limit)
        self._labelled = label is not None
        self._decoder = ImageFileDecoder(
            **given.decoding, dct_scaling=bool(given.dct_scaling), labelled=self._labelled
        )
        self._root = pinned_path(path_of(os.curdir if root is None else root))
        self.synsets: list[str] = []
        folder = self._root
        table = None
        if isinstance(imglist, (str, os.PathLike)):
            name = os.fspath(imglist)
            if name.lower().endswith(TABLE_SUFFIXES):
                inside = _under(self._root, name)
                if not is_url(inside) and not os.path.exists(inside):
                    inside = name
                table = read_table(inside)
                folder = os.path.dirname(inside) if root is None else folder
            else:
                entries = read_list(_under(self._root, name))
        elif not isinstance(imglist, (list, tuple)):
            table = columns_of(imglist)
            if table is None and not isinstance(imglist, Sequence):
                raise ValueError(f"{self._list_rule} {imglist!r}")
        if table is not None:
            entries, self.synsets = entries_of_table(table, image, label)
        elif image is not None or label not in (AUTO, None):
            raise ValueError(
                "image and label name columns of a table, and imglist is not one: leave them out"
            )
        elif not isinstance(imglist, (str, os.PathLike)):
            entries = list_entries(imglist, self._list_rule, labelled=self._labelled)
        self._keys = entries.keys
        paths = entries.paths if root is None else inside_root_all(entries.paths, entries.keys)
        self._paths = pinned_paths(_all_under(folder, paths))
        labels = entries.labels if self._labelled else np.zeros(len(paths), np.int64)
        self._labels = _label_array(labels, self._key_of, given.dtype)
        self._crops = ItemCrops(given.crop_index, self._root)
        if given.crop_index != AUTO:
            self._crops.open(lambda: self._paths)

    def _key_of(self, index: int) -> object:
        # As in MXNet, the key of an entry without an id is the text of its number, from 1.
        return str(index + 1) if self._keys is None else self._keys[index]

    def __len__(self) -> int:
        return len(self._paths)

    @property
    def decoder(self) -> ImageFileDecoder:
        crops = self._crops.open(lambda: self._paths)
        return self._decoder if crops is None else replace(self._decoder, crops=crops)

    def open_source(self) -> ByteSource:
        return self._open_files(self._paths, remote=self.reads_ahead, kind=SpanKind.FILE, name=self._root)

    @property
    def reads_ahead(self) -> bool:
        return bool(self._paths) and is_url(self._paths[0])

    def spans(self, indices: IntArray) -> Spans:
        return whole_files(indices)

    def extras(self, indices: IntArray) -> Array:
        """Return the labels; if the folder has a crop index, with the keys of its entries."""
        return self._crops.extras(self._labels, indices)

    def labels(self) -> Array:
        if not self._labelled:
            raise ValueError("this dataset has no labels, because it was made with label=None")
        if self._labels.ndim != 1:
            raise ValueError(f"the entries of this list have {self._labels.shape[1]} labels each, not one")
        return self._labels.copy()

    def class_names(self) -> list[str]:
        """Return the names of a table's classes, or those of the folders if each label from 0 on is that of one."""
        if self.synsets or not self._labelled:
            return list(self.synsets)
        folders: dict[int, str] = {}
        if self._labels.ndim == 1 and self._labels.dtype.kind in "iu":
            for label, path in zip(self._labels.tolist(), self._paths, strict=True):
                folder = os.path.dirname(path)
                if folders.setdefault(label, folder) != folder:
                    return []
        names = [os.path.basename(folders[label]) for label in range(len(folders)) if label in folders]
        return names if names and len(set(names)) == len(folders) else []

    def location(self, index: int) -> ItemLocation:
        return ItemLocation(self._key_of(index), redact_url(self._paths[index]), None)


def _under(root: str, path: str) -> str:
    """Join a path to a folder, either of which may be a URL; an absolute path or URL is returned as it is."""
    if is_url(path) or not is_url(root) or os.path.isabs(path):
        return path if is_url(path) else os.path.join(root, path)
    return join(root, path)


def _all_under(root: str, paths: Sequence[str]) -> Sequence[str]:
    """Join paths to a folder; either all or none of them may be URLs.

    Raises:
        ValueError: some are URLs, and some are not; or one has a null character.
    """
    text = "\n".join(paths)
    if "\0" in text:
        place = next(place for place, path in enumerate(paths, 1) if "\0" in path)
        raise ValueError(f"the path {paths[place - 1]!r} of entry {place} has a null character")
    if is_url(root) or "://" in text or text.startswith("/") or "\n/" in text or os.name == "nt":
        joined = [_under(root, path) for path in paths]
        urls = sum(map(is_url, joined))
        if urls not in (0, len(joined)):
            raise ValueError("a list cannot mix local files and URLs: pass only one kind")
        return joined
    begin = os.path.join(root, "")
    return [begin + path for path in paths]


def list_entries(imglist: Sequence[Any], rule: str = LIST_RULE, *, labelled: bool = True) -> Entries:
    """Convert a list of ``[label, path]``, ``[[label, ...], path]`` or ``[label, ..., path]``, or of paths.

    Args:
        imglist: the list.
        rule: beginning of the error message.
        labelled: False: entries may be paths alone, and labels are not read.

    Raises:
        ValueError: an entry is none of these.
    """
    imglist = list(imglist)
    if not labelled:
        paths = [entry[-1] if isinstance(entry, (list, tuple)) and entry else entry for entry in imglist]
        wrong = next((n for n, path in enumerate(paths) if not isinstance(path, (str, os.PathLike))), None)
        if wrong is not None:
            raise ValueError(f"{rule} {imglist[wrong]!r} as entry {wrong + 1}")
        return Entries(None, (), list(map(os.fspath, paths)))
    # The usual lists are converted as a whole, because a call for each entry would take several times as long.
    widths = set(map(len, imglist)) if set(map(type, imglist)) <= {list, tuple} else set()
    if len(widths) == 1 and min(widths) > 1:
        paths = [entry[-1] for entry in imglist]
        rows: list[Any] = (
            [entry[0] for entry in imglist] if widths == {2} else [entry[:-1] for entry in imglist]
        )
        if set(map(type, paths)) == {str}:
            if _are(numbers.Real, rows):
                return Entries(None, _numbers(rows), paths)
            if _are((list, tuple), rows) and len(set(map(len, rows))) == 1:
                labels = np.array(rows)
                if labels.dtype.kind in "if" and labels.ndim == 2 and labels.size:
                    return Entries(None, labels, paths)
    found = [_entry(number, entry, rule) for number, entry in enumerate(imglist, 1)]
    return Entries(None, [labels for labels, _ in found], [path for _, path in found])


def _are(kind: type | tuple[type, ...], values: list[Any]) -> bool:
    return all(issubclass(each, kind) for each in set(map(type, values)))


def _numbers(values: list[Any]) -> Array:
    """Return numbers as an array, whole ones as int64 if they fit.

    Raises:
        ValueError: one is larger than any float64.
    """
    if _are(numbers.Integral, values):
        try:
            return np.array(values, np.int64)
        except OverflowError:
            pass
    try:
        return np.array(values, np.float64)
    except OverflowError:
        number = next(number for number, value in enumerate(values, 1) if abs(value) >= 1 << 1023)
        raise ValueError(f"the label of entry {number} is too large") from None


def _entry(number: int, entry: Any, rule: str) -> tuple[tuple[float, ...], str]:
    """Return the labels and the path of one entry of a list."""
    if isinstance(entry, (list, tuple)) and len(entry) >= 2 and isinstance(entry[-1], (str, os.PathLike)):
        labels = list(entry[:-1])
        if len(labels) == 1 and isinstance(labels[0], (list, tuple, np.ndarray)):
            labels = np.asarray(labels[0]).ravel().tolist()
        if labels and all(isinstance(label, numbers.Real) for label in labels):
            try:
                found = tuple(map(float, labels))
                exact = all(
                    int(label) == value
                    for label, value in zip(labels, found, strict=True)
                    if isinstance(label, numbers.Integral)
                )
            except OverflowError:
                exact = False
            if not exact:
                raise ValueError(f"a label of entry {number} is too large to be read exactly")
            return found, os.fspath(entry[-1])
    raise ValueError(f"{rule} {entry!r} as entry {number}")


# -- tables ------------------------------------------------------------------------------------------------------------


def columns_of(table: Any) -> dict[str, list[Any]] | None:
    """Return the columns of a table of pandas, Polars or pyarrow, or of a dict of columns; None for anything else.

    Raises:
        ValueError: two columns have one name.
    """
    columns: list[tuple[Any, list[Any]]]
    kind = type(table).__module__.partition(".")[0], type(table).__name__
    if isinstance(table, Mapping):
        columns = [
            (name, values.tolist() if isinstance(values, np.ndarray) else list(values))
            for name, values in table.items()
        ]
    elif kind in (("pyarrow", "Table"), ("pyarrow", "RecordBatch")):
        columns = [
            (name, column.to_pylist()) for name, column in zip(table.column_names, table.columns, strict=True)
        ]
    elif kind == ("polars", "DataFrame"):
        columns = [(column.name, column.to_list()) for column in table.get_columns()]
    elif kind == ("pandas", "DataFrame"):
        # Every mark of a missing value becomes None: pandas has several, and not all can be compared.
        columns = [
            (name, (column.astype(object).where(column.notna(), None) if column.hasnans else column).tolist())
            for name, column in table.items()
        ]
    else:
        return None
    found = {str(name): values for name, values in columns}
    if len(found) < len(columns):
        raise ValueError(
            f"the table has two columns of one name ({', '.join(str(name) for name, _ in columns)}): rename one"
        )
    return found


def read_table(path: str) -> dict[str, list[Any]]:
    """Read the columns of a .csv or .tsv file; without a line of names they are named by their numbers, from 0.

    The first line has no names if one of its fields is the name of an image.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line has another number of fields than the first one, or is not UTF-8.
    """
    shown = redact_url(path)
    with open_text(path, newline="", errors="strict") as file:
        apart = "\t" if path.lower().endswith(".tsv") else ","
        reader = csv.reader(file, delimiter=apart, skipinitialspace=True)
        try:
            rows = [row for row in reader if row]
        except csv.Error as error:
            raise ValueError(f"{shown}, line {reader.line_num} is not valid CSV: {error}") from None
        except UnicodeDecodeError:
            raise _other_encoding(path) from None
    if not rows:
        raise ValueError(f"{shown} has no lines")
    width = len(rows[0])
    widths = list(map(len, rows))
    if set(widths) != {width}:
        number = next(number for number, each in enumerate(widths) if each != width)
        raise ValueError(
            f"{shown}, row {number + 1} has {widths[number]} fields, and the first one has {width}"
        )
    other = next((mark for mark in ";|\t" if width == 1 and all(mark in row[0] for row in rows)), None)
    if other is not None:
        raise ValueError(
            f"{shown} keeps fields apart by {other!r}, and not by {apart!r}: pass a table, such as "
            f"pandas.read_csv({shown!r}, sep={other!r})"
        )
    bare = any(map(is_image_name, rows[0]))
    names = list(map(str, range(width))) if bare else [name.strip() for name in rows.pop(0)]
    if len(set(names)) < width:
        raise ValueError(f"{shown} has two columns of one name ({', '.join(names)}): rename one")
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}


def _other_encoding(path: str) -> ValueError:
    """Return the error for a table that is not UTF-8."""
    with open_text(path) as file:
        number = next(number for number, line in enumerate(file, 1) if _SURROGATE.search(line))
    shown = redact_url(path)
    return ValueError(
        f"{shown}, line {number} is not UTF-8: save the table as UTF-8, or pass it as pandas.read_csv({shown!r}, "
        "encoding='latin-1'), or with the encoding that it has"
    )


def entries_of_table(
    table: dict[str, list[Any]], image: str | None, label: str | Sequence[str] | None
) -> tuple[Entries, list[str]]:
    """Return the entries of a table, and the names of its classes if its labels are text.

    Args:
        table: its columns.
        image, label: see `ImageListDataset`.

    Raises:
        ValueError: there is no such column, it is not clear which one, or a value is missing.
    """
    if image is None:
        image = next((name for name in _PATHS if name in table), None)
    if image is None:
        image = next(
            (name for name, column in table.items() if column and is_image_name(str(column[0]))), None
        )
    if image is None:
        raise ValueError(
            f"no column of {_listed(table)} has names of images: pass image=NAME, the column of the paths"
        )
    if label == AUTO and label not in table:
        others = [name for name in table if name != image]
        usual = [name for name in _LABELS if name in table]
        if len(others) != 1 and not usual and not all(map(str.isdigit, table)):
            raise ValueError(
                f"the columns are {_listed(table)}: pass label=NAME, the column of the label, label=[NAME, ...] for "
                "several, or label=None for images without labels"
            )
        label = usual[:1] or others
    chosen = () if label is None else (label,) if isinstance(label, str) else tuple(label)
    for name in (image, *chosen):
        if name not in table:
            raise ValueError(f"there is no column {name!r}: the columns are {_listed(table)}")
    paths = table[image]
    for name in chosen:
        if len(table[name]) != len(paths):
            raise ValueError(
                f"columns differ in length: {image!r} has {len(paths):,} rows, and {name!r} {len(table[name]):,}"
            )
    if not _are((str, os.PathLike), paths) or "" in paths:
        wrong = next(
            n for n, path in enumerate(paths) if not isinstance(path, (str, os.PathLike)) or not path
        )
        raise ValueError(f"row {wrong + 1} has no path in the column {image!r}, but {paths[wrong]!r}")
    names: list[str] = []
    columns = []
    for name in chosen:
        column = _column(table[name], name)
        if isinstance(column, list):
            if len(chosen) > 1:
                raise ValueError(f"the column {name!r} has text: several labels must be numbers")
            names = sorted(set(column))
            numbers_of = {text: number for number, text in enumerate(names)}
            column = np.array([numbers_of[text] for text in column], np.int64)
        columns.append(column)
    labels = columns[0] if len(columns) == 1 else np.stack(columns, 1) if columns else ()
    return Entries(None, labels, list(map(os.fspath, paths))), names


def _column(values: list[Any], name: str) -> Array | list[str]:
    """Return the labels of a column: int64, float64, or a list of texts.

    Raises:
        ValueError: one is missing, or neither a number nor text; or all but one text are numbers.
    """
    if not _are(str, values) or "" in values:
        missing = next((n for n, value in enumerate(values) if value in (None, "") or value != value), None)
    else:
        missing = None
    if missing is not None:
        raise ValueError(f"row {missing + 1} has no label in the column {name!r}: remove it, or fill it in")
    if _are(numbers.Real, values):
        return _numbers(values)
    if not _are(str, values):
        raise ValueError(f"the column {name!r} has neither numbers nor text only, so it cannot be the label")
    for kind in (
        () if any("_" in value for value in values) else (int, float)
    ):  # Python's numbers may have some
        try:
            parsed = list(map(kind, values))
        except ValueError:
            continue
        found = _numbers(parsed)
        if not np.isfinite(found).all():
            row = int(np.isfinite(found).argmin())
            raise ValueError(f"row {row + 1} has no label in the column {name!r}, but {values[row]!r}")
        return found
    distinct = set(values)
    words = [value for value in distinct if not _is_number(value)]
    if len(words) == 1 and len(distinct) > 2:
        row = values.index(words[0]) + 1
        raise ValueError(
            f"row {row} has {words[0]!r} in the column {name!r}, whose other labels are numbers: correct it, remove "
            "the row, or name all classes by words"
        )
    return values


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _listed(table: dict[str, list[Any]]) -> str:
    return ", ".join(map(repr, table)) or "none"


# -- paths and labels --------------------------------------------------------------------------------------------------


def inside_root_all(paths: Sequence[str], keys: Sequence[int] | None) -> Sequence[str]:
    """Return paths as `inside_root` does, without a call for each where none needs it."""
    text = "\n".join(paths)
    if os.name == "nt" or ".." in text or "\0" in text or text.startswith("/") or "\n/" in text:
        return [
            inside_root(path, str(place + 1) if keys is None else keys[place])
            for place, path in enumerate(paths)
        ]
    return paths


def _label_array(
    labels: Array | Sequence[tuple[float, ...]], key_of: Callable[[int], object], dtype: np.dtype[Any] | None
) -> Array:
    if not isinstance(labels, np.ndarray):
        widths = list(map(len, labels))
        width = widths[0] if widths else 1
        if set(widths) - {width}:
            place = next(place for place, each in enumerate(widths) if each != width)
            raise ValueError(
                f"entry {key_of(place)!r} has {widths[place]} labels, but the first one has {width}"
            )
        labels = np.array(labels, np.float64).reshape(len(labels), width)
    labels = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    chosen = dtype
    if chosen is None:
        first = labels[:_LABELS_LOOKED_AT]
        whole = labels.ndim == 1 and bool((np.floor(first) == first).all())
        chosen = np.dtype(np.int64 if whole else np.float32)
    try:
        found = label_vector(labels, chosen)
    except ValueError:
        for place, row in enumerate(labels.reshape(len(labels), -1).tolist()):
            for label in row:
                try:
                    label_value(label, chosen)
                except ValueError as error:
                    raise ValueError(f"entry {key_of(place)!r}: {error}") from None
        raise
    if dtype is None and chosen.kind == "f":
        lost = (found != labels) & (np.floor(labels) == labels) & (np.abs(labels) < _CLASSES)
        if lost.any():
            key = key_of(int(np.argwhere(lost)[0, 0]))
            label = labels[lost][0]
            raise ValueError(f"entry {key!r}: float32 has no {label}: pass label_dtype='float64' or 'int64'")
    return found
