"""`LibSVMIter`: batches of sparse rows of text files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.mxnet.base import MXNetError
from aioloader.mxnet.io.backend_iter import MXDataIter, RowBatches
from aioloader.mxnet.io.parameters import COMMON, Parameter, read_parameters
from aioloader.mxnet.io.uris import files_of
from aioloader.mxnet.ndarray import from_numpy
from aioloader.mxnet.sparse import CSRNDArray

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioloader.foundation.types import Array, IntArray

_PARAMETERS = {
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
    values = read_parameters("LibSVMIter", _PARAMETERS, args, kwargs)
    parts, part = values["num_parts"], values["part_index"]
    if part >= parts:
        raise MXNetError(f"part_index {part} must be below num_parts {parts}")
    labels: Array | CSRNDArray
    data, labels, begins = _read(values["data_libsvm"], values["data_shape"][0])
    if values["label_libsvm"] != "NULL":
        if values["label_shape"] == (1,):
            raise MXNetError("label_shape must be given with label_libsvm, and be more than (1,)")
        labels, _, _ = _read(values["label_libsvm"], values["label_shape"][0])
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


def _read(uri: str, columns: int) -> tuple[CSRNDArray, Array, Array]:
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
