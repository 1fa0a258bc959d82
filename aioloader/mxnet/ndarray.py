"""`mx.nd`: NDArray, and the functions that make such arrays; new arrays are float32."""

from __future__ import annotations

import builtins
import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from aioloader.mxnet._ndarray import NDArray, from_numpy
from aioloader.mxnet.context import Context, host_context

__all__ = (
    "NDArray",
    "arange",
    "array",
    "concat",
    "concatenate",
    "empty",
    "expand_dims",
    "from_numpy",
    "full",
    "ones",
    "ones_like",
    "reshape",
    "slice",
    "slice_axis",
    "split",
    "stack",
    "sum",
    "transpose",
    "waitall",
    "zeros",
    "zeros_like",
)

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
    return _placed(np.array(source_array, dtype=dtype), ctx)


def _placed(made: npt.NDArray[Any], ctx: Context | None) -> NDArray:
    placed = made.view(NDArray)
    placed._context = host_context(ctx)
    return placed


def empty(shape: Shape, ctx: Context | None = None, dtype: npt.DTypeLike = np.float32) -> NDArray:
    """Return an array whose elements are not set."""
    return _placed(np.empty(shape, dtype or np.float32), ctx)


def zeros(shape: Shape, ctx: Context | None = None, dtype: npt.DTypeLike = np.float32) -> NDArray:
    """Return an array of zeros."""
    return _placed(np.zeros(shape, dtype or np.float32), ctx)


def ones(shape: Shape, ctx: Context | None = None, dtype: npt.DTypeLike = np.float32) -> NDArray:
    """Return an array of ones."""
    return _placed(np.ones(shape, dtype or np.float32), ctx)


def full(shape: Shape, val: Any, ctx: Context | None = None, dtype: npt.DTypeLike = np.float32) -> NDArray:
    """Return an array filled with `val`."""
    return _placed(np.full(shape, val, dtype or np.float32), ctx)


def zeros_like(data: Any) -> NDArray:
    """Return zeros in the shape and dtype of `data`."""
    return np.zeros_like(np.asarray(data)).view(NDArray)


def ones_like(data: Any) -> NDArray:
    """Return ones in the shape and dtype of `data`."""
    return np.ones_like(np.asarray(data)).view(NDArray)


def arange(
    start: float,
    stop: float | None = None,
    step: float = 1.0,
    repeat: int = 1,
    ctx: Context | None = None,
    dtype: npt.DTypeLike = np.float32,
) -> NDArray:
    """Return numbers from `start` up to but without `stop`, each `repeat` times."""
    numbers = np.arange(start, stop, step) if stop is not None else np.arange(0, start, step)
    return _placed(np.repeat(numbers, repeat).astype(dtype or np.float32), ctx)


def stack(*data: Any, axis: int = 0) -> NDArray:
    """Stack arrays of one shape along a new axis. Takes arrays, or one list of them."""
    return np.stack(_arrays(data), axis=axis).view(NDArray)


def concat(*data: Any, dim: int = 1) -> NDArray:
    """Concatenate arrays along the axis `dim`, by default 1. Takes arrays, or one list of them."""
    return np.concatenate(_arrays(data), axis=dim).view(NDArray)


def concatenate(arrays: Sequence[Any], axis: int = 0, always_copy: bool = True) -> NDArray:
    """Concatenate arrays along `axis`, by default 0."""
    return np.concatenate(_arrays(arrays), axis=axis).view(NDArray)


def split(data: Any, num_outputs: int, axis: int = 1, squeeze_axis: bool = False) -> Any:
    """Return a list of `num_outputs` equal parts along `axis`; the part itself if there is one."""
    parts = np.split(np.asarray(data), num_outputs, axis)
    parts = [(part.squeeze(axis) if squeeze_axis else part).view(NDArray) for part in parts]
    return parts if len(parts) > 1 else parts[0]


def _arrays(data: Sequence[Any]) -> list[npt.NDArray[Any]]:
    if len(data) == 1 and isinstance(data[0], list | tuple):
        data = data[0]
    return [np.asarray(one) for one in data]


def expand_dims(data: Any, axis: int) -> NDArray:
    """Return `data` with a new axis of length 1."""
    return np.expand_dims(np.asarray(data), axis).view(NDArray)


def reshape(data: Any, shape: Any) -> NDArray:
    """Return `data` in another shape; see `NDArray.reshape`."""
    return np.asarray(data).view(NDArray).reshape(shape)


def slice(
    data: Any,
    begin: Sequence[int | None],
    end: Sequence[int | None],
    step: Sequence[int | None] | None = None,
) -> NDArray:
    """Return a copy of the part from `begin` up to but without `end`, one number for each of the first axes."""
    steps = step or [None] * len(begin)
    places = tuple(builtins.slice(*each) for each in zip(begin, end, steps, strict=True))
    return np.array(np.asarray(data)[places]).view(NDArray)


def slice_axis(data: Any, axis: int, begin: int, end: int | None) -> NDArray:
    """Return a copy of the part from `begin` up to but without `end` along one axis; None: up to its end."""
    array = np.asarray(data)
    places = [builtins.slice(None)] * array.ndim
    places[axis] = builtins.slice(begin, end)
    return np.array(array[tuple(places)]).view(NDArray)


def transpose(data: Any, axes: Sequence[int] | None = None) -> NDArray:
    """Return `data` with its axes in another order, by default reversed."""
    return np.transpose(np.asarray(data), axes or None).view(NDArray)


def sum(data: Any, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> Any:
    """Sum over `axis`, by default over all, which returns shape (1,)."""
    return np.asarray(data).view(NDArray).sum(axis=axis, keepdims=keepdims)


def waitall() -> None:
    """Do nothing: arrays are complete when they are returned."""


def __getattr__(name: str) -> Any:
    # These import this module, and are therefore loaded after it.
    if name in ("random", "sparse"):
        return importlib.import_module(f"aioloader.mxnet.{name}")
    if name == "image":
        return importlib.import_module("aioloader.mxnet.ndarray_image")
    if name in ("random_normal", "random_randint", "random_uniform"):
        return getattr(importlib.import_module("aioloader.mxnet.random"), name.removeprefix("random_"))
    if name in ("load", "load_frombuffer", "save"):
        return getattr(importlib.import_module("aioloader.mxnet.ndarray_file"), name)
    raise AttributeError(
        f"mx.nd.{name} is not part of aioloader.mxnet; an NDArray is a numpy array: use numpy.{name}"
    )
