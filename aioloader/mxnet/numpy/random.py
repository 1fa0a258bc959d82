"""`mx.np.random`: numpy's functions of these names, on the generator of `mx.random`. Floats are float32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.mxnet import random as mx_random
from aioloader.mxnet.random import seed

if TYPE_CHECKING:
    import numpy.typing as npt

    from aioloader.mxnet.context import Context
    from aioloader.mxnet.ndarray.ndarray import NDArray

    Size = int | tuple[int, ...] | None

__all__ = ("normal", "rand", "randint", "randn", "seed", "shuffle", "uniform")


def uniform(
    low: float = 0.0,
    high: float = 1.0,
    size: Size = None,
    dtype: npt.DTypeLike | None = None,
    ctx: Context | None = None,
    out: NDArray | None = None,
    device: Context | None = None,
) -> NDArray:
    """Draw numbers uniform in [low, high)."""
    made = mx_random.uniform(low, high, _shape(size), dtype=dtype or np.float32, ctx=ctx or device, out=out)
    return made.as_np_ndarray()


def normal(
    loc: float = 0.0,
    scale: float = 1.0,
    size: Size = None,
    dtype: npt.DTypeLike | None = None,
    ctx: Context | None = None,
    out: NDArray | None = None,
    device: Context | None = None,
) -> NDArray:
    """Draw normal numbers with mean `loc` and standard deviation `scale`."""
    made = mx_random.normal(loc, scale, _shape(size), dtype=dtype or np.float32, ctx=ctx or device, out=out)
    return made.as_np_ndarray()


def randint(
    low: int,
    high: int | None = None,
    size: Size = None,
    dtype: npt.DTypeLike | None = None,
    ctx: Context | None = None,
    out: NDArray | None = None,
    device: Context | None = None,
) -> NDArray:
    """Draw integers uniform in [low, high), or in [0, low) without `high`."""
    low, high = (0, low) if high is None else (low, high)
    made = mx_random.randint(low, high, _shape(size), dtype=dtype or np.int64, ctx=ctx or device, out=out)
    return made.as_np_ndarray()


def rand(*size: int, **kwargs: Any) -> NDArray:
    """Draw uniformly from 0 to 1, with the shape as integers."""
    return uniform(size=size, **kwargs)


def randn(*size: int, **kwargs: Any) -> NDArray:
    """Draw normal numbers with mean 0 and deviation 1, with the shape as integers."""
    return normal(size=size, **kwargs)


def shuffle(x: Any) -> None:
    """Put the rows of an array in a random order, in place."""
    x[...] = mx_random.shuffle(x)


def _shape(size: Size) -> int | tuple[int, ...]:
    return () if size is None else size


def __getattr__(name: str) -> Any:
    instead = f"; use numpy.random.{name}" if hasattr(np.random, name) else ""
    raise AttributeError(f"mx.np.random.{name} is not part of aioloader.mxnet{instead}")
