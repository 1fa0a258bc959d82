"""One thing that is done to every sample."""

from __future__ import annotations

import functools
import warnings
from typing import TYPE_CHECKING, Any

from aioloader.transforms.base import accepts_rng, bind, is_native
from aioloader.transforms.compose import Compose

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioloader._types import Array
    from aioloader.rng import Rng

__all__ = ("Stage", "stage_of_argument")


class Stage:
    """A transform with the rule of how it takes its samples. Can be pickled if `fn` can.

    Args:
        fn: the transform.
        first: it takes the first element of a tuple sample; False: it takes all elements, as arguments. A
            sample that is no tuple is one argument in both cases.

    Attributes:
        fn, first: as given.
        name: of the transform, for errors and statistics.
        native: it is made of this package's transforms only: every draw comes from ``rng``, and nothing of
            the input is kept.

    Raises:
        TypeError: `fn` cannot be called.
    """

    __slots__ = ("_apply", "_spread", "first", "fn", "name", "native")

    def __init__(self, fn: Callable[..., Any], *, first: bool) -> None:
        self._apply = bind(fn)
        self._spread = accepts_rng(fn)
        self.fn = fn
        self.first = first
        self.name = _name(fn)
        self.native = is_native(fn)

    def __reduce__(self) -> tuple[Any, ...]:
        return _remake, (self.fn, self.first)

    def __repr__(self) -> str:
        return f"Stage({self.fn!r}, first={self.first})"

    def apply(self, sample: Any, rng: Rng, out: Array | None = None) -> Any:
        """The transformed sample.

        Args:
            sample: not altered, unless its image is `out` itself.
            rng: the sample's draws.
            out: where the image may be written, see `aioloader.abc.Transform.apply`.
        """
        if not isinstance(sample, tuple):
            return self._apply(sample, rng, out)
        if len(sample) == 1:
            return self._apply(sample[0], rng, out)
        if not self.first:
            return self.fn(*sample, rng=rng) if self._spread else self.fn(*sample)
        image = self._apply(sample[0], rng, out)
        if hasattr(sample, "_make"):
            return sample._make((image, *sample[1:]))
        return (image, *sample[1:])


def _remake(fn: Callable[..., Any], first: bool) -> Stage:
    return Stage(fn, first=first)


def _name(fn: Any) -> str:
    while isinstance(fn, functools.partial):
        fn = fn.func
    if isinstance(fn, Compose) and fn.transforms:
        return " > ".join(_name(part) for part in fn.transforms)
    return str(getattr(fn, "__name__", None) or type(fn).__name__)


def stage_of_argument(dataset: object, transform: Callable[..., Any] | None) -> Stage | None:
    """The stage that Gluon's deprecated argument `transform` of a dataset's class asks for.

    Called by the constructor itself, so that the warning points at its caller.

    Warns:
        DeprecationWarning: the argument is given.
    """
    if transform is None:
        return None
    warnings.warn(
        f"{type(dataset).__name__}(transform=...) is deprecated; use .transform(fn) or .transform_first(fn)",
        DeprecationWarning,
        stacklevel=3,
    )
    return Stage(transform, first=False)
