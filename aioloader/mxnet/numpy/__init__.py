"""`mx.np`: numpy's names, with arrays of `mx.np.ndarray` as results. New arrays are float32 unless a dtype is passed.

Every name that is not defined here is numpy's function of that name.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy

from aioloader.mxnet import ndarray as _nd
from aioloader.mxnet.ndarray.ndarray import NDArray, ndarray
from aioloader.mxnet.numpy import random

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from aioloader.mxnet.context import Context

__all__ = ("arange", "array", "empty", "full", "ndarray", "ones", "random", "zeros")


def array(
    object: Any,
    dtype: npt.DTypeLike | None = None,
    ctx: Context | None = None,
    device: Context | None = None,
) -> NDArray:
    """Return a new array.

    Args:
        object: an array, or an object that numpy converts to one.
        dtype: default: that of an array, float32 for everything else.
        ctx, device: a context of this host.
    """
    return _nd.array(object, ctx or device, dtype or getattr(object, "dtype", None)).as_np_ndarray()


def _maker(make: Callable[..., NDArray]) -> Callable[..., NDArray]:
    """Return a function of `mx.nd` that makes an array of a given shape, with the parameters of `mx.np`."""

    def call(
        shape: int | Sequence[int],
        dtype: npt.DTypeLike | None = None,
        order: str = "C",
        ctx: Context | None = None,
        device: Context | None = None,
    ) -> NDArray:
        del order
        return make(shape, ctx or device, dtype).as_np_ndarray()

    call.__name__ = call.__qualname__ = make.__name__
    call.__doc__ = make.__doc__
    return call


empty, zeros, ones = map(_maker, (_nd.empty, _nd.zeros, _nd.ones))


def full(
    shape: int | Sequence[int],
    fill_value: Any,
    dtype: npt.DTypeLike | None = None,
    order: str = "C",
    ctx: Context | None = None,
    device: Context | None = None,
) -> NDArray:
    """Return an array filled with `fill_value`."""
    del order
    return _nd.full(shape, fill_value, ctx or device, dtype).as_np_ndarray()


def arange(
    start: float,
    stop: float | None = None,
    step: float = 1,
    dtype: npt.DTypeLike | None = None,
    ctx: Context | None = None,
    device: Context | None = None,
) -> NDArray:
    """Return numbers from `start` up to but without `stop`."""
    return _nd.arange(start, stop, step, ctx=ctx or device, dtype=dtype).as_np_ndarray()


def _giving_ndarrays(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return _as_ndarrays(function(*args, **kwargs))

    return call


def _as_ndarrays(made: Any) -> Any:
    if type(made) in (numpy.ndarray, NDArray):
        return made.view(ndarray)
    if type(made) in (list, tuple):
        return type(made)([_as_ndarrays(each) for each in made])
    return made


def __getattr__(name: str) -> Any:
    found = getattr(numpy, name)
    if not callable(found) or isinstance(found, type):  # constants, modules and dtypes
        return found
    value = globals()[name] = _giving_ndarrays(found)
    return value
