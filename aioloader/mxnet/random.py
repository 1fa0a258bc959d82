"""`mx.random`: MXNet's random generator, as far as data loading uses it.

MXNet's stream of numbers is not reproduced: a seed always yields the same numbers here, but not those of MXNet.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from aioloader.mxnet.context import Context, host_context
from aioloader.mxnet.ndarray import NDArray
from aioloader.rng import seed_default_rng

__all__ = ("current_seed", "next_pass", "normal", "randint", "randn", "seed", "shuffle", "uniform")

_seed = 0
_generator = np.random.Generator(np.random.PCG64(0))
_passes = 0


def seed(seed_state: int, ctx: Context | str = "all") -> None:
    """Seed `mx.random` and the draws of transforms in the loaders of `aioloader.mxnet`.

    Orders of `RandomSampler` and `NDArrayIter` come from `numpy.random`, as in MXNet: seed that with
    `numpy.random.seed`.

    Args:
        seed_state: any integer.
        ctx: ignored: there is one generator.
    """
    global _seed, _generator, _passes
    _seed = int(seed_state) & 0xFFFFFFFFFFFFFFFF
    _generator = np.random.Generator(np.random.PCG64(_seed))
    _passes = 0
    seed_default_rng(_seed)


def current_seed() -> int:
    """Return the seed last passed to `seed`, below 2**64; 0 before that."""
    return _seed


def next_pass() -> int:
    """Return a number below 2**62 for the next pass of a loader, which determines the draws of its transforms.

    After the same seed the same numbers come again.
    """
    global _passes
    number = int(np.random.Philox(key=_seed, counter=_passes).random_raw()) >> 2
    _passes += 1
    return number


def uniform(
    low: float = 0.0,
    high: float = 1.0,
    shape: int | tuple[int, ...] = (1,),
    dtype: npt.DTypeLike = np.float32,
    ctx: Context | None = None,
    out: NDArray | None = None,
) -> NDArray:
    """Draw numbers uniform in [low, high)."""
    return _made(_generator.uniform(low, high, shape), dtype, ctx, out)


def normal(
    loc: float = 0.0,
    scale: float = 1.0,
    shape: int | tuple[int, ...] = (1,),
    dtype: npt.DTypeLike = np.float32,
    ctx: Context | None = None,
    out: NDArray | None = None,
) -> NDArray:
    """Draw normal numbers with mean `loc` and standard deviation `scale`."""
    return _made(_generator.normal(loc, scale, shape), dtype, ctx, out)


def randn(*shape: int, loc: float = 0.0, scale: float = 1.0, **kwargs: Any) -> NDArray:
    """Draw as `normal` does, with the shape as integers."""
    return normal(loc, scale, shape or (1,), **kwargs)


def randint(
    low: int,
    high: int,
    shape: int | tuple[int, ...] = (1,),
    dtype: npt.DTypeLike = np.int32,
    ctx: Context | None = None,
    out: NDArray | None = None,
) -> NDArray:
    """Draw integers uniform in [low, high)."""
    return _made(_generator.integers(low, high, shape), dtype, ctx, out)


def shuffle(data: Any, out: NDArray | None = None) -> NDArray:
    """Return the rows of an array in a random order; a new array."""
    rows = np.asarray(data)
    return _made(rows[_generator.permutation(len(rows))], rows.dtype, None, out)


def _made(
    numbers: npt.NDArray[Any], dtype: npt.DTypeLike, ctx: Context | None, out: NDArray | None
) -> NDArray:
    if out is not None:
        out[...] = numbers
        return out
    made = numbers.astype(dtype or np.float32).view(NDArray)
    made._context = host_context(ctx)
    return made
