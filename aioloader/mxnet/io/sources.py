"""What `NDArrayIter` takes as data: an array, a list of arrays or a dict of them, under names."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from aioloader._checks import require
from aioloader.mxnet.ndarray import NDArray, from_numpy

__all__ = ("named_sources", "rows_of")


def named_sources(data: Any, default_name: str, dtype: npt.DTypeLike | None) -> list[tuple[str, Any]]:
    """(name, array) pairs, sorted by name.

    Args:
        data: an array, a list or tuple of arrays, a dict of name to array, or None. A list of one has the default
            name, one of several the names `_0_<default>`, `_1_<default>`, ...
        default_name: name of what has none.
        dtype: type that arrays other than NDArrays are converted to; None: they keep theirs. Datasets of h5py are
            neither copied nor converted.

    Raises:
        TypeError: `data`, or one value of it, is no array.
    """
    if data is None:
        return []
    if isinstance(data, np.ndarray) or _in_file(data):
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
    return [(name, _source(name, named[name], dtype)) for name in sorted(named)]


def _source(name: str, value: Any, dtype: npt.DTypeLike | None) -> Any:
    if isinstance(value, NDArray) or _in_file(value):
        return value
    try:
        array = np.array(value, dtype)
    except (TypeError, ValueError):
        array = np.array(None)
    if array.dtype == object or not array.ndim:
        raise TypeError(
            f"Invalid type '{type(value)}' for {name}, should be NDArray, numpy.ndarray or h5py.Dataset"
        )
    return from_numpy(array)


def _in_file(value: Any) -> bool:
    # By name: h5py need not be installed.
    return type(value).__module__.partition(".")[0] == "h5py"


def rows_of(source: Any, rows: npt.NDArray[np.intp], axis: int) -> NDArray:
    """Copies of rows of a source, in the order asked for.

    Args:
        source: as `named_sources` gives it.
        rows: their numbers.
        axis: the axis along which they are counted.
    """
    if isinstance(source, np.ndarray):
        return from_numpy(np.take(np.asarray(source), rows, axis))
    # h5py reads rows in increasing order only, each once.
    require(axis == 0, "the batch must be the first axis of a dataset of h5py")
    increasing, places = np.unique(rows, return_inverse=True)
    return from_numpy(np.asarray(source[increasing])[places])
