"""`mx.nd`: NDArray, and the functions that make such arrays; new arrays are float32.

An NDArray is a numpy array with MXNet's methods on top. It behaves like MXNet's where scripts would notice: an element
and a full reduction are arrays of shape (1,), `reshape` accepts 0, -2, -3 and -4, and it prints like one. Everything
else is numpy's: the dtype of arithmetic and of comparisons, `flatten`, broadcasting, indexing.
"""

from __future__ import annotations

import builtins
import importlib
import operator
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, cast

import numpy as np
import numpy.typing as npt

from aioloader.mxnet.base import OutsideError
from aioloader.mxnet.context import Context, cpu, host_context

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


def _boxing(name: str, difference: str = "") -> Callable[..., Any]:
    """Return the method for a reduction of numpy, whose result over all axes has shape (1,)."""
    reduction = getattr(np.ndarray, name)

    def reduce(self: NDArray, *args: Any, **kwargs: Any) -> Any:
        return _boxed(reduction(np.asarray(self), *args, **kwargs), self)

    reduce.__name__, reduce.__qualname__ = name, f"NDArray.{name}"
    reduce.__doc__ = f"Return numpy's `{name}`{difference}; over all axes its shape is (1,)."
    return reduce


class NDArray(np.ndarray[Any, Any]):
    """Numpy array with the methods of MXNet's NDArray. `from_numpy` makes one without copying.

    Differences from numpy: an element (``x[0]`` of a vector) and a full reduction (``x.sum()``) are arrays of
    shape (1,), which convert to numbers with `asscalar`, `int` and `float`; a float array can be an index; and
    the methods below.
    """

    _context: Context | None = None

    def __array_finalize__(self, source: object) -> None:  # numpy passes any array, or None
        # Most sources are plain arrays, for which this test of the type is the fastest.
        if type(source) is not np.ndarray and isinstance(source, NDArray) and source._context is not None:
            self._context = source._context

    # --- MXNet's own methods ---

    def asnumpy(self) -> npt.NDArray[Any]:
        """Return a copy as a plain numpy array. ``numpy.asarray(x)`` does the same without copying."""
        return np.array(self)

    def asscalar(self) -> Any:
        """Return the one element, as a numpy scalar.

        Raises:
            ValueError: there is not exactly one element.
        """
        if self.size != 1:
            raise ValueError("The current array is not a scalar")
        return np.asarray(self).reshape(-1)[0]

    @property
    def context(self) -> Context:
        """Return the context that was named when the array was made; the memory is this host's in any case."""
        return cpu() if self._context is None else self._context

    ctx = context

    def as_in_context(self, context: Context) -> NDArray:
        """Return the array under the name of another context; itself if the name is the same. Nothing is copied.

        Raises:
            MXNetError: `context` is a GPU.
        """
        context = host_context(context)
        if context == self.context:
            return self
        moved = self.view()
        moved._context = context
        return moved

    as_in_ctx = as_in_context

    def copyto(self, other: Any) -> NDArray:
        """Copy into another array of the same shape, or into a new one in a context."""
        if isinstance(other, Context):
            return self.copy().as_in_context(other)
        other[...] = self
        return from_numpy(other)

    def wait_to_read(self) -> None:
        """Do nothing: the array is complete."""

    wait_to_write = wait_to_read

    @property
    def stype(self) -> str:
        """Return "default": the array is dense."""
        return "default"

    def tostype(self, stype: str) -> NDArray:
        """Return the array itself for "default".

        Raises:
            OutsideError: a sparse type is requested.
        """
        if stype != "default":
            raise OutsideError(f"NDArray.tostype({stype!r})", "sparse arrays are made by LibSVMIter only")
        return self

    def as_nd_ndarray(self) -> NDArray:
        """Return the array itself."""
        return self

    as_np_ndarray = detach = as_nd_ndarray

    def attach_grad(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise OutsideError: your framework computes gradients."""
        raise OutsideError("NDArray.attach_grad()")

    def backward(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise OutsideError: your framework computes gradients."""
        raise OutsideError("NDArray.backward()")

    def expand_dims(self, axis: int) -> NDArray:
        """Return the array with a new axis of length 1 at `axis`."""
        return from_numpy(np.expand_dims(self, axis))

    def reshape(self, *shape: Any, **kwargs: Any) -> NDArray:
        """Return a view, or else a copy, in another shape.

        Args:
            *shape: integers or one tuple. In addition to numpy's -1, as in MXNet: 0 keeps this axis, -2 keeps all
                remaining axes, -3 joins two axes, -4 splits one axis into the two numbers that follow. An array without
                elements takes its shape literally.
            **kwargs: `shape`, MXNet's name for it; `order` as numpy's.
        """
        if not shape and "shape" in kwargs:
            shape = (kwargs.pop("shape"),)
        wanted = shape[0] if len(shape) == 1 else shape
        lengths = [operator.index(wanted)] if not isinstance(wanted, Sequence | np.ndarray) else list(wanted)
        if self.size and any(n == 0 or n < -1 for n in lengths):
            lengths = _mxnet_shape(self.shape, lengths)
        return cast("NDArray", super().reshape(tuple(lengths), **kwargs))

    # --- results that numpy returns as a scalar ---

    def __getitem__(self, key: Any) -> Any:
        return _boxed(super().__getitem__(_index(key)), self)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(_index(key), value)

    sum: Any = _boxing("sum")
    mean: Any = _boxing("mean")
    max: Any = _boxing("max")
    min: Any = _boxing("min")
    prod: Any = _boxing("prod")
    std: Any = _boxing("std")
    var: Any = _boxing("var")
    argmax: Any = _boxing("argmax", " (int64; MXNet's is float32)")
    argmin: Any = _boxing("argmin", " (int64; MXNet's is float32)")

    def all(self, *args: Any, **kwargs: Any) -> Any:
        """Return numpy's `all`."""
        return np.asarray(self).all(*args, **kwargs)

    def any(self, *args: Any, **kwargs: Any) -> Any:
        """Return numpy's `any`."""
        return np.asarray(self).any(*args, **kwargs)

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __index__(self) -> int:
        return operator.index(self.item())

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec and self.size == 1 else repr(self).__format__(spec)

    def __repr__(self) -> str:
        lengths = "x".join(map(str, self.shape))
        return f"\n{np.asarray(self)}\n<NDArray {lengths} @{self.context}>"

    __str__ = __repr__


def _boxed(result: Any, like: NDArray) -> Any:
    """Return a result of numpy as an NDArray; a scalar as one of shape (1,)."""
    if isinstance(result, NDArray):
        return result
    boxed = (result if isinstance(result, np.ndarray) else np.array([result])).view(NDArray)
    boxed._context = like._context
    return boxed


def _index(key: Any) -> Any:
    # nd.array([0, 2]) is float32, and MXNet accepts it as an index.
    if isinstance(key, NDArray) and key.dtype.kind == "f":
        return np.asarray(key).astype(np.intp)
    return key


def _mxnet_shape(old: tuple[int, ...], wanted: Sequence[int]) -> list[int]:
    """Return `wanted` with MXNet's codes 0, -2, -3 and -4 resolved; -1 may remain."""
    shape: list[int] = []
    at = 0  # the axis of `old` that is next
    codes = iter(wanted)
    try:
        for code in codes:
            if code == 0:
                shape.append(old[at])
                at += 1
            elif code == -2:
                shape.extend(old[at:])
                at = len(old)
            elif code == -3:
                shape.append(old[at] * old[at + 1])
                at += 2
            elif code == -4:
                first, second = next(codes), next(codes)
                first = old[at] // second if first == -1 else first
                shape += [first, old[at] // first if second == -1 else second]
                at += 1
            else:
                shape.append(code)
                at += 1
    except (IndexError, StopIteration):
        raise ValueError(f"the shape {tuple(wanted)} asks for more axes than {old} has") from None
    return shape


def from_numpy(ndarray: npt.NDArray[Any], zero_copy: bool = True) -> NDArray:
    """Return a numpy array as NDArray: the same memory, or a copy of it.

    Unlike MXNet's, the given array stays writable.
    """
    return ndarray.view(NDArray) if zero_copy else ndarray.copy().view(NDArray)


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
    dtype: npt.DTypeLike | None = np.float32,
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
