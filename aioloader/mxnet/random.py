"""`mx.random`: MXNet's random generator, as far as data loading uses it.

MXNet's stream of numbers is not reproduced: a seed always yields the same numbers here, but not those of MXNet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from aioloader.mxnet.base import exported
from aioloader.mxnet.context import Context, host_context
from aioloader.mxnet.ndarray.ndarray import NDArray
from aioloader.rng import seed_default_rng

if TYPE_CHECKING:
    from collections.abc import Callable

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


Shape = int | tuple[int, ...] | None


def uniform(
    low: Any = 0.0,
    high: Any = 1.0,
    shape: Shape = None,
    dtype: npt.DTypeLike = np.float32,
    ctx: Context | None = None,
    out: NDArray | None = None,
) -> NDArray:
    """Draw numbers uniform in [low, high); parameters that are arrays have one draw of `shape` for each element."""
    return _drawn(_generator.uniform, (low, high), shape, dtype, ctx, out)


def normal(
    loc: Any = 0.0,
    scale: Any = 1.0,
    shape: Shape = None,
    dtype: npt.DTypeLike = np.float32,
    ctx: Context | None = None,
    out: NDArray | None = None,
) -> NDArray:
    """Draw normal numbers with mean `loc` and standard deviation `scale`; see `uniform`."""
    return _drawn(_generator.normal, (loc, scale), shape, dtype, ctx, out)


def exponential(
    scale: Any = 1.0,
    shape: Shape = None,
    dtype: npt.DTypeLike = np.float32,
    ctx: Context | None = None,
    out: NDArray | None = None,
) -> NDArray:
    """Draw exponential numbers with mean `scale`; see `uniform`."""
    return _drawn(_generator.exponential, (scale,), shape, dtype, ctx, out)


def gamma(
    alpha: Any = 1.0,
    beta: Any = 1.0,
    shape: Shape = None,
    dtype: npt.DTypeLike = np.float32,
    ctx: Context | None = None,
    out: NDArray | None = None,
) -> NDArray:
    """Draw numbers of a gamma distribution of shape `alpha` and scale `beta`; see `uniform`."""
    return _drawn(_generator.gamma, (alpha, beta), shape, dtype, ctx, out)


def poisson(
    lam: Any = 1.0,
    shape: Shape = None,
    dtype: npt.DTypeLike = np.float32,
    ctx: Context | None = None,
    out: NDArray | None = None,
) -> NDArray:
    """Draw numbers of a Poisson distribution with mean `lam`; see `uniform`."""
    return _drawn(_generator.poisson, (lam,), shape, dtype, ctx, out)


def negative_binomial(
    k: Any = 1,
    p: Any = 1,
    shape: Shape = None,
    dtype: npt.DTypeLike = np.float32,
    ctx: Context | None = None,
    out: NDArray | None = None,
) -> NDArray:
    """Draw the number of failures before `k` successes of probability `p`; see `uniform`."""
    return _drawn(_generator.negative_binomial, (k, p), shape, dtype, ctx, out)


def multinomial(
    data: Any,
    shape: Shape = None,
    get_prob: bool = False,
    out: NDArray | None = None,
    dtype: npt.DTypeLike = np.int32,
) -> Any:
    """Draw numbers below k by their probabilities.

    Args:
        data: probabilities, (k,), or (n, k) for n draws.
        shape: of each draw; None: one number.
        get_prob: return a pair: the numbers, and the logarithm of the probability of each, float32.
        out: array for the numbers.
        dtype: of the numbers.
    """
    weights = np.asarray(data, np.float64)
    levels = np.cumsum(weights, -1)
    each = () if shape is None else (shape,) if isinstance(shape, int) else tuple(shape)
    flat = levels.reshape(-1, levels.shape[-1])
    draws = _generator.uniform(0, flat[:, -1:], (len(flat), int(np.prod(each))))
    picked = np.stack([np.searchsorted(row, draw, "right") for row, draw in zip(flat, draws, strict=True)])
    made = _made(picked.reshape((*levels.shape[:-1], *each) or 1), dtype, None, out)
    if not get_prob:
        return made
    chosen = np.take_along_axis(weights.reshape(flat.shape), picked, -1) / flat[:, -1:]
    return made, _made(np.log(chosen).reshape(made.shape), np.float32, None, None)


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


def _drawn(
    draw: Callable[..., npt.NDArray[Any]],
    parameters: tuple[Any, ...],
    shape: Shape,
    dtype: npt.DTypeLike,
    ctx: Context | None,
    out: NDArray | None,
) -> NDArray:
    """Return draws of a shape; for parameters that are arrays, of the shape for each of their elements."""
    if out is not None and shape is None:
        shape = out.shape
    each = () if shape is None else (shape,) if isinstance(shape, int) else tuple(shape)
    values = [np.asarray(value, np.float64) for value in parameters]
    common = np.broadcast_shapes(*(value.shape for value in values))
    aligned = [np.broadcast_to(value, common).reshape(common + (1,) * len(each)) for value in values]
    size = (1,) if shape is None and not common else common + each
    return _made(draw(*aligned, size=size), dtype, ctx, out)


def _made(
    numbers: npt.NDArray[Any], dtype: npt.DTypeLike, ctx: Context | None, out: NDArray | None
) -> NDArray:
    if out is not None:
        out[...] = numbers
        return out
    made = numbers.astype(dtype or np.float32).view(NDArray)
    made._context = host_context(ctx)
    return made


__all__ = exported(globals(), module=__name__)
