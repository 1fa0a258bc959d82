"""`mx.nd.sparse`: matrices that store only nonzero values, by rows, as `LibSVMIter` delivers them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.mxnet.base import MXNetError, OutsideError
from aioloader.mxnet.context import Context, cpu
from aioloader.mxnet.ndarray.ndarray import SPARSE_TYPES, NDArray, from_numpy

if TYPE_CHECKING:
    from aioloader.foundation.types import Array, IntArray

__all__ = ("CSRNDArray", "array", "csr_matrix", "zeros")


class CSRNDArray:
    """Matrix in compressed sparse rows.

    Args:
        data: values, row by row, (n,).
        indices: the column of each value, int64 (n,).
        indptr: row i has the values from indptr[i] up to indptr[i + 1], int64 (rows + 1,).
        shape: (rows, columns).

    Attributes:
        data, indices, indptr: as given, as NDArrays.
        shape: as given.
    """

    def __init__(self, data: Array, indices: IntArray, indptr: IntArray, shape: tuple[int, int]) -> None:
        self.data = from_numpy(np.asarray(data))
        self.indices = from_numpy(np.asarray(indices))
        self.indptr = from_numpy(np.asarray(indptr))
        self.shape = shape

    @property
    def dtype(self) -> Any:
        """Return the type of the values."""
        return self.data.dtype

    @property
    def stype(self) -> str:
        """Return the text "csr"."""
        return "csr"

    @property
    def context(self) -> Context:
        """Return the context of this host."""
        return cpu()

    ctx = context

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: int | slice) -> CSRNDArray:
        """Return a row, or the rows of a slice without steps, as a matrix."""
        rows = np.arange(len(self))[key if isinstance(key, slice) else slice(key, key + 1 or None)]
        if not isinstance(key, slice) and not len(rows):
            raise IndexError(f"there is no row {key} among {len(self)}")
        return self.take_rows(rows, len(rows))

    def __repr__(self) -> str:
        return f"\n<CSRNDArray {'x'.join(map(str, self.shape))} @{self.context}>"

    def asnumpy(self) -> Array:
        """Return the whole matrix as a numpy array, zeros included."""
        dense = np.zeros(self.shape, self.dtype)
        rows = np.repeat(np.arange(len(self)), np.diff(np.asarray(self.indptr)))
        np.add.at(dense, (rows, np.asarray(self.indices)), np.asarray(self.data))
        return dense

    def tostype(self, stype: str) -> NDArray | CSRNDArray:
        """Return the matrix itself for "csr", the whole matrix as an NDArray for "default".

        Raises:
            OutsideError: another type is requested.
        """
        if stype == "csr":
            return self
        if stype != "default":
            raise OutsideError(f"CSRNDArray.tostype({stype!r})", "there are no such arrays here")
        return from_numpy(self.asnumpy())

    def asscipy(self) -> Any:
        """Return the matrix as a `scipy.sparse.csr_matrix`; needs SciPy."""
        return importlib.import_module("scipy.sparse").csr_matrix(
            (np.asarray(self.data), np.asarray(self.indices), np.asarray(self.indptr)), shape=self.shape
        )

    def take_rows(self, rows: IntArray, length: int) -> CSRNDArray:
        """Return the requested rows, followed by empty ones up to `length`."""
        starts, stops = np.asarray(self.indptr)[rows], np.asarray(self.indptr)[rows + 1]
        counts = np.zeros(length, np.int64)
        counts[: len(rows)] = stops - starts
        indptr = np.concatenate(([0], np.cumsum(counts)))
        places = np.arange(indptr[-1]) + np.repeat(
            np.concatenate((starts, np.zeros(length - len(rows), np.int64))) - indptr[:-1], counts
        )
        return CSRNDArray(
            np.asarray(self.data)[places], np.asarray(self.indices)[places], indptr, (length, self.shape[1])
        )

    def check_format(self, full_check: bool = True) -> None:
        """Check that the three arrays describe a matrix of this shape.

        Args:
            full_check: check every row's columns, too.

        Raises:
            MXNetError: they do not.
        """
        indptr, indices = np.asarray(self.indptr), np.asarray(self.indices)
        sound = (
            len(indptr) == self.shape[0] + 1
            and indptr[0] == 0
            and indptr[-1] == len(indices) == len(self.data)
        )
        if sound and full_check:
            inner = np.ones(max(len(indices) - 1, 0), bool)
            starts = indptr[1:-1]
            inner[starts[(starts > 0) & (starts < len(indices))] - 1] = False  # between two rows
            sound = bool(
                (np.diff(indptr) >= 0).all()
                and ((indices >= 0) & (indices < self.shape[1])).all()
                and (np.diff(indices)[inner] > 0).all()
            )
        if not sound:
            raise MXNetError(f"these arrays are not a matrix of shape {self.shape} in compressed sparse rows")


def csr_matrix(arg1: Any, shape: Any = None, ctx: Context | None = None, dtype: Any = None) -> CSRNDArray:
    """Return a matrix in compressed sparse rows.

    Args:
        arg1: a dense matrix, a CSRNDArray or a `scipy.sparse.csr_matrix`; a tuple (data, indices, indptr) as in
            `CSRNDArray`; a tuple (data, (row, column)) of the places of values; or a shape, for a matrix of zeros.
        shape: (rows, columns); default: as large as the places require.
        ctx: accepted; the memory is this host's.
        dtype: of the values; default: that of the given array, float32 for lists and numbers.

    Raises:
        MXNetError: the three arrays do not describe a matrix of this shape.
    """
    del ctx
    if isinstance(arg1, CSRNDArray):
        arg1, shape = (arg1.data, arg1.indices, arg1.indptr), arg1.shape
    elif not isinstance(arg1, tuple | list | np.ndarray):  # of SciPy
        compressed = arg1.tocsr()
        arg1, shape = (compressed.data, compressed.indices, compressed.indptr), compressed.shape
    if isinstance(arg1, tuple) and len(arg1) == 3:
        data, indices, indptr = (
            _numbers(each, kind) for each, kind in zip(arg1, (dtype, np.int64, np.int64), strict=True)
        )
        shape = shape or (len(indptr) - 1, int(indices.max(initial=-1)) + 1)
        made = CSRNDArray(data, indices, indptr, tuple(shape))
        made.check_format(full_check=False)
        return made
    if isinstance(arg1, tuple) and len(arg1) == 2 and isinstance(arg1[1], tuple | list):
        data, (row, column) = _numbers(arg1[0], dtype), (np.asarray(each, np.int64) for each in arg1[1])
        shape = shape or (int(row.max(initial=-1)) + 1, int(column.max(initial=-1)) + 1)
        dense = np.zeros(shape, data.dtype)
        np.add.at(dense, (row, column), data)
    elif isinstance(arg1, tuple) and len(arg1) == 2 and all(isinstance(n, int | np.integer) for n in arg1):
        dense = np.zeros(arg1, dtype or np.float32)
    else:
        dense = _numbers(arg1, dtype)
        if dense.ndim != 2:
            raise ValueError(f"a matrix has two axes, got the shape {dense.shape}")
    rows, columns = np.nonzero(dense)
    indptr = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=len(dense))))).astype(np.int64)
    return CSRNDArray(dense[rows, columns], columns.astype(np.int64), indptr, dense.shape)


SPARSE_TYPES["csr"] = csr_matrix


def _numbers(values: Any, dtype: Any) -> Any:
    """Return numbers as a plain array; lists are float32 by default."""
    if dtype is None and not hasattr(values, "dtype"):
        dtype = np.float32
    return np.array(values, dtype)


def array(source_array: Any, ctx: Context | None = None, dtype: Any = None) -> CSRNDArray:
    """Return a copy of a sparse matrix; see `csr_matrix`."""
    return csr_matrix(source_array, ctx=ctx, dtype=dtype)


def zeros(stype: str, shape: Any, ctx: Context | None = None, dtype: Any = None) -> NDArray | CSRNDArray:
    """Return a matrix of zeros, "csr" or "default".

    Raises:
        OutsideError: another type is requested.
    """
    if stype == "default":
        return from_numpy(np.zeros(shape, dtype or np.float32))
    if stype != "csr":
        raise OutsideError(f"mx.nd.sparse.zeros({stype!r})", "there are no such arrays here")
    return csr_matrix(tuple(shape), ctx=ctx, dtype=dtype)
