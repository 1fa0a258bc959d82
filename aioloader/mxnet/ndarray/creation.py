"""Functions that make NDArrays; new arrays are float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.mxnet.context import Context, host_context
from aioloader.mxnet.ndarray.ndarray import NDArray

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ("arange", "array", "empty", "eye", "full", "linspace", "ones", "ones_like", "zeros", "zeros_like")

Shape = int | Sequence[int]


def array(source_array: Any, ctx: Context | None = None, dtype: npt.DTypeLike | None = None) -> NDArray:
    """Return a new NDArray.

    Args:
        source_array: an array, or an object that numpy converts to one.
        ctx: a context of this host.
        dtype: default: that of an NDArray, float32 for everything else, numpy arrays included.
    """
    if dtype is None:
        dtype = source_array.dtype if isinstance(source_array, NDArray) else np.float32
    return _placed(np.array(source_array, dtype=dtype, order="C"), ctx)


def _placed(made: npt.NDArray[Any], ctx: Context | None) -> NDArray:
    placed = made.view(NDArray)
    placed._context = host_context(ctx)
    return placed


def empty(shape: Shape, ctx: Context | None = None, dtype: npt.DTypeLike | None = np.float32) -> NDArray:
    """Return an array whose elements are not set."""
    return _placed(np.empty(shape, dtype or np.float32), ctx)


def zeros(shape: Shape, ctx: Context | None = None, dtype: npt.DTypeLike | None = np.float32) -> NDArray:
    """Return an array of zeros."""
    return _placed(np.zeros(shape, dtype or np.float32), ctx)


def ones(shape: Shape, ctx: Context | None = None, dtype: npt.DTypeLike | None = np.float32) -> NDArray:
    """Return an array of ones."""
    return _placed(np.ones(shape, dtype or np.float32), ctx)


def full(
    shape: Shape, val: Any, ctx: Context | None = None, dtype: npt.DTypeLike | None = np.float32
) -> NDArray:
    """Return an array filled with `val`."""
    return _placed(np.full(shape, val, dtype or np.float32), ctx)


def zeros_like(data: Any) -> NDArray:
    """Return zeros in the shape and dtype of `data`."""
    return np.zeros_like(np.asarray(data), order="C").view(NDArray)


def ones_like(data: Any) -> NDArray:
    """Return ones in the shape and dtype of `data`."""
    return np.ones_like(np.asarray(data), order="C").view(NDArray)


def arange(
    start: float,
    stop: float | None = None,
    step: float = 1.0,
    repeat: int = 1,
    ctx: Context | None = None,
    dtype: npt.DTypeLike | None = np.float32,
) -> NDArray:
    """Return numbers from `start` up to but without `stop`, each `repeat` times."""
    numbers = np.arange(start, stop, step) if stop is not None else np.arange(0, start, step)
    return _placed(np.repeat(numbers, repeat).astype(dtype or np.float32), ctx)


def linspace(
    start: float,
    stop: float,
    num: int,
    endpoint: bool = True,
    ctx: Context | None = None,
    dtype: npt.DTypeLike | None = np.float32,
) -> NDArray:
    """Return `num` numbers at equal distances from `start` to `stop`."""
    return _placed(np.linspace(start, stop, num, endpoint).astype(dtype or np.float32), ctx)


def eye(
    N: int, M: int = 0, k: int = 0, ctx: Context | None = None, dtype: npt.DTypeLike | None = np.float32
) -> NDArray:
    """Return ones on the diagonal `k` of a matrix of zeros with N rows and M columns, by default N."""
    return _placed(np.eye(N, M or N, k, dtype or np.float32), ctx)
