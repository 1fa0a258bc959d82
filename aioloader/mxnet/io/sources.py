"""Sources of `NDArrayIter`: an array, a list of arrays or a dict of them, under names."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from aioloader.foundation.validation import require
from aioloader.mxnet.ndarray import NDArray, from_numpy
from aioloader.mxnet.sparse import CSRNDArray

__all__ = ("named_sources", "rows_of")


def named_sources(data: Any, default_name: str, dtype: npt.DTypeLike | None) -> list[tuple[str, Any]]:
    """Return (name, array) pairs, sorted by name.

    Args:
        data: an array, a list or tuple of arrays, a dict of name to array, or None. A list of one has the default
            name, one of several the names `_0_<default>`, `_1_<default>`, ...
        default_name: name of arrays without a name.
        dtype: type that arrays other than NDArrays are converted to; None: they keep theirs. Datasets of h5py are
            neither copied nor converted. Sparse matrices of SciPy become CSRNDArrays.

    Raises:
        TypeError: `data`, or one value of it, is not an array.
    """
    if data is None:
        return []
    if isinstance(data, np.ndarray | CSRNDArray) or _of(data, "h5py", "scipy"):
        named = {default_name: data}
    elif isinstance(data, list | tuple):
        single = len(data) == 1
        named = {default_name if single else f"_{n}_{default_name}": one for n, one in enumerate(data)}
    elif isinstance(data, dict):
        named = data
    else:
        raise TypeError(
            "Input must be NDArray, numpy.ndarray, h5py.Dataset a list of them or dict with them as values, "
            f"not {type(data).__name__}"
        )
    return [(name, _as_array(name, named[name], dtype)) for name in sorted(named)]


def _as_array(name: str, value: Any, dtype: npt.DTypeLike | None) -> Any:
    if isinstance(value, NDArray | CSRNDArray) or _of(value, "h5py"):
        return value
    if _of(value, "scipy"):
        rows = value.tocsr()
        values = rows.data if dtype is None else rows.data.astype(dtype)
        return CSRNDArray(values, rows.indices.astype(np.int64), rows.indptr.astype(np.int64), rows.shape)
    try:
        array = np.array(value, dtype)
    except (TypeError, ValueError):
        array = np.array(None)
    if array.dtype == object or not array.ndim:
        raise TypeError(
            f"Invalid type '{type(value)}' for {name}, should be NDArray, numpy.ndarray or h5py.Dataset"
        )
    return from_numpy(array)


def _of(value: Any, *packages: str) -> bool:
    # By name: neither package need be installed.
    return type(value).__module__.partition(".")[0] in packages


def rows_of(array: Any, rows: npt.NDArray[np.intp], axis: int) -> NDArray | CSRNDArray:
    """Return copies of rows of a source, in the order requested.

    Args:
        array: an array that `named_sources` returned.
        rows: numbers of the rows.
        axis: the axis along which rows are counted.
    """
    if isinstance(array, np.ndarray):
        return from_numpy(np.take(np.asarray(array), rows, axis))
    require(axis == 0, "the batch must be the first axis of a sparse matrix and of a dataset of h5py")
    if isinstance(array, CSRNDArray):
        return array.take_rows(rows, len(rows))
    # h5py reads rows in increasing order only, each once.
    increasing, places = np.unique(rows, return_inverse=True)
    return from_numpy(np.asarray(array[increasing])[places])
