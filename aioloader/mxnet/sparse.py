"""`mx.nd.sparse`: matrices that store only nonzero values, as `LibSVMIter` delivers them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.mxnet.base import MXNetError, OutsideError
from aioloader.mxnet.context import Context, cpu
from aioloader.mxnet.ndarray import NDArray, from_numpy

if TYPE_CHECKING:
    from aioloader.foundation.types import Array, IntArray

__all__ = ("CSRNDArray",)


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
        import importlib

        csr_matrix = importlib.import_module("scipy.sparse").csr_matrix

        return csr_matrix(
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
