"""Iterators over files of rows, which they keep in memory: `CSVIter`, `LibSVMIter` and `MNISTIter`.

Files that an argument such as `data_csv` names.
"""

from __future__ import annotations

import os
import re
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.formats.arrays.vision import read_idx
from aioloader.mxnet.base import MXNetError
from aioloader.mxnet.io.backend_iter import ArrayBatches, MXDataIter, RowBatches
from aioloader.mxnet.io.parameters import COMMON, Parameter, read_parameters
from aioloader.mxnet.ndarray.ndarray import from_numpy
from aioloader.mxnet.sparse import CSRNDArray

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioloader.foundation.types import Array, IntArray


def files_of(uri: str) -> list[str]:
    """Return the paths of local files, in order.

    Args:
        uri: a path or ``file://`` URL; several, separated by ";"; a folder, which means the non-empty files in it,
            sorted by name; or, if nothing has that name, a folder and a regular expression for names in it. MXNet takes
            the text after a "#" as the name of a cache file; it is ignored here.

    Raises:
        MXNetError: there is no such file.
    """
    found: list[str] = []
    for path in local_paths(uri):
        if os.path.isdir(path):
            files = [os.path.join(path, name) for name in sorted(os.listdir(path))]
            found += [file for file in files if os.path.isfile(file) and os.path.getsize(file)]
        elif os.path.exists(path):
            found.append(path)
        else:
            found += _matching(path)
    if not found:
        raise MXNetError(f"Cannot find any files that matches the URI pattern {uri}")
    return found


def local_paths(uri: str) -> list[str]:
    """Return the parts of such an argument as paths of files, folders and patterns, without blank ones."""
    parts = [part.partition("#")[0].removeprefix("file://") for part in uri.split(";")]
    return [part for part in parts if part.strip()]


def _matching(path: str) -> list[str]:
    folder, pattern = os.path.split(path)
    try:
        names = sorted(os.listdir(folder or "."))
        found = [os.path.join(folder, name) for name in names if re.fullmatch(pattern, name)]
    except (FileNotFoundError, NotADirectoryError, re.error):
        found = []
    if not found:
        raise MXNetError(f"Cannot find any files that matches the URI pattern {path}")
    return found


_CSV = {
    **COMMON,
    "data_csv": Parameter("string"),
    "data_shape": Parameter("shape"),
    "label_csv": Parameter("string", "NULL"),
    "label_shape": Parameter("shape", (1,)),
}
_DTYPES = ("float32", "int32", "int64")


def CSVIter(*args: Any, **kwargs: Any) -> MXDataIter:
    """Return batches of the rows of comma separated numbers, in the order of the file, which is kept in memory.

    Takes keyword arguments only; unknown ones are warned about (``strict=True``: refused).

    Args:
        data_csv: file, folder, or several files separated by ";". No header line, no quotes; empty lines are skipped.
        data_shape: shape of one row, filled in C order.
        label_csv: as `data_csv`; "NULL": every label is 0.
        label_shape: shape of one label; (1,) means batches of shape (batch_size,).
        batch_size: rows of a batch.
        round_batch: fill the last batch with the first rows, and begin the next pass behind them; False: pad it with
            zeros, and begin every pass at the first row.
        dtype: "float32" (None), "int32" or "int64", of data and labels.
        data_name, label_name: names of the two inputs in the network.
        prefetch_buffer, ctx: accepted; without effect.

    Raises:
        MXNetError: an argument is missing or wrong; a file is missing, is not of numbers, or does not have as many
            numbers in a row as the shape asks for.
    """
    values = read_parameters("CSVIter", _CSV, args, kwargs)
    dtype = values["dtype"] or "float32"
    if dtype not in _DTYPES:
        raise MXNetError(f"{dtype} is not supported for CSVIter; choose one of {', '.join(_DTYPES)}")
    data = _read_csv(values["data_csv"], values["data_shape"], dtype)
    if values["label_csv"] == "NULL":
        label = np.zeros((len(data), *values["label_shape"]), dtype)
    else:
        label = _read_csv(values["label_csv"], values["label_shape"], dtype)
        if len(label) < len(data):
            raise MXNetError(
                f"{values['label_csv']} has {len(label)} rows, fewer than the {len(data)} of {values['data_csv']}"
            )
    if label.shape[1:] == (1,):
        label = label[:, 0]
    batches = ArrayBatches(data, label, batch_size=values["batch_size"], round_batch=values["round_batch"])
    return MXDataIter(batches, values["data_name"], values["label_name"])


def _read_csv(uri: str, shape: tuple[int, ...], dtype: str) -> Array:
    return np.concatenate([_read_csv_file(path, shape, dtype) for path in files_of(uri)])


def _read_csv_file(path: str, shape: tuple[int, ...], dtype: str) -> Array:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # an empty file has no rows
            rows = np.loadtxt(path, dtype, delimiter=",", comments=None, ndmin=2, encoding="utf-8-sig")
    except ValueError as error:
        raise MXNetError(f"{path} cannot be read as rows of {dtype}: {error}") from error
    columns = int(np.prod(shape))
    if rows.size and rows.shape[1] != columns:
        raise MXNetError(
            "The data size in CSV do not match size of shape: "
            f"specified shape={list(shape)}, the csv row-length={rows.shape[1]} ({path})"
        )
    return rows.reshape(-1, *shape)


_LIBSVM = {
    **COMMON,
    "data_libsvm": Parameter("string"),
    "data_shape": Parameter("shape", axes=1),
    "label_libsvm": Parameter("string", "NULL"),
    "label_shape": Parameter("shape", (1,)),
    "num_parts": Parameter("int", 1, low=1),
    "part_index": Parameter("int", 0, low=0),
}


def LibSVMIter(*args: Any, **kwargs: Any) -> MXDataIter:
    """Return batches of the rows of LibSVM files, ``label column:value ...``: data as `CSRNDArray`, float32.

    Takes keyword arguments only; unknown ones are warned about (``strict=True``: refused). The rows are kept in
    memory.

    Args:
        data_libsvm: file, folder, or several files separated by ";". Columns count from 0 and increase in a row.
        data_shape: (columns,).
        label_libsvm: a file whose rows are the labels; they are delivered as `CSRNDArray` too. "NULL": the first number
            of each row of the data is its label.
        label_shape: (columns,) of `label_libsvm`.
        batch_size: rows of a batch.
        round_batch: fill the last batch with the first rows, and begin the next pass behind them; False: pad it with
            empty rows, and begin every pass at the first row.
        num_parts, part_index: load only one of `num_parts` parts, by number from 0: the rows that begin in that part of
            the file's bytes, or where it ends. With `label_libsvm`, that part of the rows.
        data_name, label_name: names of the two inputs in the network.
        dtype, prefetch_buffer, ctx: accepted; without effect.

    Raises:
        MXNetError: an argument is missing or wrong; a file is missing or malformed; a column is beyond the shape.
    """
    values = read_parameters("LibSVMIter", _LIBSVM, args, kwargs)
    parts, part = values["num_parts"], values["part_index"]
    if part >= parts:
        raise MXNetError(f"part_index {part} must be below num_parts {parts}")
    labels: Array | CSRNDArray
    data, labels, begins = _read_libsvm(values["data_libsvm"], values["data_shape"][0])
    if values["label_libsvm"] != "NULL":
        if values["label_shape"] == (1,):
            raise MXNetError("label_shape must be given with label_libsvm, and be more than (1,)")
        labels, _, _ = _read_libsvm(values["label_libsvm"], values["label_shape"][0])
        if len(labels) < len(data):
            raise MXNetError(f"there are {len(data)} rows of data and only {len(labels)} of labels")
    rows = range(*_part(values["data_libsvm"], begins, parts, part))
    return MXDataIter(
        _SparseBatches(
            data, labels, rows, batch_size=values["batch_size"], round_batch=values["round_batch"]
        ),
        values["data_name"],
        values["label_name"],
    )


class _SparseBatches(RowBatches):
    """Batches of a range of rows."""

    def __init__(
        self, data: CSRNDArray, labels: Array | CSRNDArray, rows: range, *, batch_size: int, round_batch: bool
    ) -> None:
        super().__init__(len(rows), batch_size, round_batch=round_batch, first=rows.start)
        self._data = data
        self._labels = labels
        dtype: np.dtype[Any] = np.dtype(np.float32)
        self.data_desc = ((batch_size, *data.shape[1:]), dtype)
        self.label_desc = ((batch_size, *labels.shape[1:]), dtype)

    def _load(self, rows: IntArray) -> tuple[Any, Any, IntArray]:
        rows = rows + self._first
        label: Any
        if isinstance(self._labels, CSRNDArray):
            label = self._labels.take_rows(rows, self.batch_size)
        else:
            label = from_numpy(np.zeros(self.batch_size, np.float32))
            label[: len(rows)] = self._labels[rows]
        return self._data.take_rows(rows, self.batch_size), label, rows

    def _contents(self) -> list[Array]:
        labels = (
            [self._labels.indptr, self._labels.data]
            if isinstance(self._labels, CSRNDArray)
            else [self._labels]
        )
        return [
            np.asarray(part) for part in (self._data.indptr, self._data.indices, self._data.data, *labels)
        ]


def _part(uri: str, begins: Array, parts: int, part: int) -> tuple[int, int]:
    """Return the first row of a part, and the first behind it.

    MXNet searches for the end of a line from a part's first byte on, unless a file begins there: a row that begins
    exactly there belongs to the part before.
    """
    files = [0, *np.cumsum([os.path.getsize(path) for path in files_of(uri)]).tolist()]
    total = files[-1]
    step = -(-total // parts)
    borders = [min(number * step, total) for number in (part, part + 1)]
    first, last = (
        int(np.searchsorted(begins, border, side="left" if border in files else "right"))
        for border in borders
    )
    return first, last


def _lines(uri: str) -> Iterator[tuple[str, int, int, list[str]]]:
    """Yield (file, line number, byte offset in all files together, fields) of every line that has fields."""
    offset = 0
    for path in files_of(uri):
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                if fields := line.decode(errors="replace").partition("#")[0].split():
                    yield path, number, offset, fields
                offset += len(line)


def _read_libsvm(uri: str, columns: int) -> tuple[CSRNDArray, Array, Array]:
    """Return the rows, the number at the head of each, and the byte at which it begins."""
    heads: list[float] = []
    begins: list[int] = []
    values: list[float] = []
    indices: list[int] = []
    ends = [0]
    for path, number, offset, fields in _lines(uri):
        try:
            heads.append(float(fields[0]))
            for field in fields[1:]:
                column, value = field.split(":")
                indices.append(int(column))
                values.append(float(value))
            if not all(0 <= column < columns for column in indices[ends[-1] :]):
                raise ValueError(f"a column is not below {columns}")
        except ValueError as error:
            raise MXNetError(
                f"{path}, line {number} is not a row 'label column:value ...': {error}"
            ) from error
        begins.append(offset)
        ends.append(len(values))
    with np.errstate(over="ignore"):  # values that are too large become infinite, as in MXNet
        numbers, labels = np.array(values, np.float32), np.array(heads, np.float32)
    matrix = CSRNDArray(numbers, np.array(indices, np.int64), np.array(ends), (len(heads), columns))
    return matrix, labels, np.array(begins)


_MNIST = {
    **COMMON,
    "image": Parameter("string", "./train-images-idx3-ubyte"),
    "label": Parameter("string", "./train-labels-idx1-ubyte"),
    "batch_size": Parameter("int", 128, low=1),
    "data_shape": Parameter("string", None),  # the files say it; many scripts give it all the same
    "shuffle": Parameter("boolean", True),
    "flat": Parameter("boolean", False),
    "seed": Parameter("int", 0),
    "silent": Parameter("boolean", False),
    "num_parts": Parameter("int", 1, low=1),
    "part_index": Parameter("int", 0, low=0),
}


def MNISTIter(*args: Any, **kwargs: Any) -> MXDataIter:
    """Return batches of MNIST's files: float32 images, pixel / 256, and float32 labels; an incomplete batch is dropped.

    Takes keyword arguments only; unknown ones are warned about (``strict=True``: refused).

    Args:
        image, label: IDX files, gzipped if their name ends in ".gz". If a file does not exist, the one with ".gz"
            appended is used.
        batch_size: rows of a batch.
        shuffle: put the rows in a random order, the same in every pass. It depends on `seed`, but is not MXNet's order
            of that seed.
        flat: return images of shape (784,) instead of (1, 28, 28).
        seed: seed of the order.
        num_parts, part_index: load only one of `num_parts` equal parts of the file, by number from 0.
        data_name, label_name: names of the two inputs in the network.
        data_shape, silent, round_batch, dtype, prefetch_buffer, ctx: accepted; without effect.

    Raises:
        MXNetError: an argument is wrong; a file is missing or not in MNIST's format, or the two do not fit together.
    """
    values = read_parameters("MNISTIter", _MNIST, args, kwargs)
    images, labels = _read_mnist(values["image"], 3), _read_mnist(values["label"], 1)
    if len(images) != len(labels):
        raise MXNetError(
            f"there are {len(images)} images and {len(labels)} labels; the files do not belong together"
        )
    parts, part = values["num_parts"], values["part_index"]
    if part >= parts:
        raise MXNetError(f"part_index {part} must be below num_parts {parts}")
    first, last = int(len(images) / parts * part), int(len(images) / parts * (part + 1))
    images, labels = images[first:last], labels[first:last]
    order = np.arange(len(images))
    if values["shuffle"]:
        order = np.random.Generator(np.random.PCG64(values["seed"] & 0xFFFFFFFF)).permutation(order)
    height, width = images.shape[1:]
    shape = (height * width,) if values["flat"] else (1, height, width)

    def convert(pixels: Array, digits: Array) -> tuple[Array, Array]:
        scaled = pixels.astype(np.float32) * np.float32(1 / 256)
        return scaled.reshape(len(pixels), *shape), digits

    size = values["batch_size"]
    whole = order[: len(order) // size * size]
    batches = ArrayBatches(
        images, labels.astype(np.float32), batch_size=size, first=first, order=whole, convert=convert
    )
    return MXDataIter(batches, values["data_name"], values["label_name"])


def _read_mnist(path: str, axes: int) -> Array:
    try:
        return read_idx(path, axes)
    except FileNotFoundError:
        try:
            return read_idx(f"{path}.gz", axes)
        except FileNotFoundError as error:
            raise MXNetError(
                f"{path} does not exist; MNIST's files are not downloaded, put it there"
            ) from error
    except ValueError as error:
        raise MXNetError(str(error)) from error
