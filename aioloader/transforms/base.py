"""What all transforms share: the call, the `out` rule, and how any callable is made to fit.

The `out` rule: a result goes into `out` only if it has exactly `out`'s shape and dtype, and only if writing there
cannot disturb what is still to be read. `out` may be the input itself where every value depends on its own place
only (`in_place`).
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import numpy as np

from aioloader.abc import Transform as TransformProtocol
from aioloader.rng import default_rng

if TYPE_CHECKING:
    from aioloader.foundation.types import Array, ArraySpec
    from aioloader.rng import Rng

__all__ = ("Transform", "accepts_rng", "bind", "is_native")

Step: TypeAlias = Callable[[Any, Any, Any], Any]
"""(x, rng, out) -> result."""


class Transform:
    """Base of all transforms. A subclass defines `apply`, and `out_spec` where it can tell.

    Images are uint8 or float32, (height, width, channels), RGB; after `ToTensor` float32, (channels, height, width).
    The input is never altered, unless it is `out` itself; the result may be the input or a view of it.
    Transforms are picklable and hold no state that changes.

    Attributes:
        in_place: the result has the input's shape and dtype, and `out` may be the input itself.
    """

    in_place: bool = False
    _fields: ClassVar[tuple[str, ...]] = ()

    def __call__(self, x: Any, /, *, rng: Rng | None = None) -> Any:
        """The transformed image.

        Args:
            x: the image; not altered.
            rng: where draws are taken from; None for a stream of this thread, seeded by the system.
        """
        return self.apply(x, default_rng() if rng is None else rng)

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        """The same on the hot path.

        Args:
            x: the image; altered only if it is `out` itself.
            rng: where draws are taken from.
            out: where the result may be written if it has exactly that shape and dtype.

        Returns:
            the result; `out` itself if it was used.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no apply()")

    def out_spec(self, spec: ArraySpec | None) -> ArraySpec | None:
        """Shape and dtype of the result for an input of `spec`; None where they cannot be told."""
        return None

    def _parts(self) -> Sequence[Any]:
        """The callables that this one is made of, for `is_native`."""
        return ()

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._fields)
        return f"{type(self).__name__}({values})"


def is_native(fn: Any) -> bool:
    """Whether a callable is a transform of this package, all its parts included.

    Such a callable takes every draw from the `rng` that it is given and keeps nothing of its input, so it needs no
    seeding of global generators and may be handed memory that is used again.
    """
    home = __name__.rpartition(".")[0] + "."
    return (
        isinstance(fn, Transform)
        and type(fn).__module__.startswith(home)
        and all(is_native(part) for part in fn._parts())
    )


def accepts_rng(fn: Any) -> bool:
    """Whether a callable has a parameter named ``rng`` that can be given by keyword."""
    try:
        parameters = inspect.signature(fn).parameters
    except (TypeError, ValueError):
        return False
    found = parameters.get("rng")
    return found is not None and found.kind in (found.POSITIONAL_OR_KEYWORD, found.KEYWORD_ONLY)


def bind(fn: Any) -> Step:
    """Make any callable callable as ``(x, rng, out)``.

    A transform's `apply` is taken as it is; another callable is given ``rng=`` if it has a parameter of that name, and
    never `out`. The signature is looked at once, here. The result need not be picklable: bind again after unpickling.

    Args:
        fn: a callable of one argument.

    Raises:
        TypeError: `fn` is not callable.
    """
    if isinstance(fn, Transform):
        if type(fn).apply is not Transform.apply:
            return fn.apply
    elif not isinstance(fn, type) and isinstance(fn, TransformProtocol):
        apply: Step = fn.apply
        return apply
    if not callable(fn):
        raise TypeError(f"a transform must be callable, got {fn!r}")
    call: Callable[..., Any] = fn
    if accepts_rng(fn):
        return lambda x, rng, out: call(x, rng=rng)
    return lambda x, rng, out: call(x)


def result_array(
    x: Array, shape: tuple[int, ...], dtype: np.dtype[Any], out: Array | None, in_place: bool = False
) -> Array:
    """Where a result is written: `out` if it fits and does not overlap `x`, else new memory.

    Args:
        x: what the result is computed from.
        shape, dtype: of the result.
        out: the caller's offer, or None.
        in_place: `x` may be `out` itself.
    """
    if (
        out is not None
        and out.shape == shape
        and out.dtype == dtype
        and out.flags.c_contiguous
        and out.flags.writeable
        and ((in_place and x is out) or not np.may_share_memory(x, out))
    ):
        return out
    return np.empty(shape, dtype)


def check_image(x: Any, name: str, ndims: tuple[int, ...] = (3,)) -> Array:
    """`x` as an array, if it can be an image.

    Raises:
        TypeError: not an array.
        ValueError: wrong number of axes.
    """
    if not isinstance(x, np.ndarray):
        raise TypeError(f"{name} takes a numpy array, got {type(x).__name__}; decode the image first")
    if x.ndim not in ndims:
        axes = " or ".join(
            "(height, width, channels)" if n == 3 else "(n, height, width, channels)" for n in ndims
        )
        raise ValueError(f"{name} takes an image {axes}, got shape {x.shape}")
    return x


def check_probability(p: float, name: str) -> float:
    """`p`, if 0 <= p <= 1."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"{name}: p must be a probability, 0 <= p <= 1, got {p!r}")
    return float(p)


def check_size(size: Any, name: str) -> tuple[int, int]:
    """(width, height) from an int or a pair."""
    try:
        if isinstance(size, bool):
            raise TypeError
        pair = (
            tuple(operator.index(n) for n in size)
            if isinstance(size, Sequence)
            else (operator.index(size),) * 2
        )
    except TypeError:
        pair = ()
    if len(pair) != 2 or min(pair) < 1:
        raise ValueError(f"{name}: size must be a positive int or (width, height), got {size!r}")
    return pair[0], pair[1]
