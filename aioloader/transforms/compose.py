"""Transforms that consist of other transforms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.foundation.validation import check_sync
from aioloader.transforms.base import (
    BindingTransform,
    bind,
    check_probability,
    is_native,
    is_transform,
    works_in_place,
)

if TYPE_CHECKING:
    from aioloader.foundation.types import Array, ArraySpec
    from aioloader.rng import Rng


class Compose(BindingTransform):
    """Chain of transforms, applied one after the other; each may be any callable of one argument.

    A callable with a parameter named ``rng`` is passed the sample's draws through it, others are called with the image
    alone. Draws: those of the parts, in order. Memory that is used again, `out` or an intermediate result, is passed
    to a part only if no foreign callable comes after it, since that might keep a reference to its input.

    Args:
        transforms: callables; the sequence itself is neither kept nor altered.

    Raises:
        TypeError: one of them is not callable, or is an async function.
    """

    def __init__(self, transforms: Iterable[Callable[..., Any]]) -> None:
        self.transforms: tuple[Callable[..., Any], ...] = tuple(transforms)
        for part in self.transforms:
            check_sync(part, "Compose")
        self._bind()

    def _bind(self) -> None:
        native = [is_native(part) for part in self.transforms]
        # (callable, native, out may be passed, works in place) of each part.
        self._bound = tuple(
            (bind(part), native[place], all(native[place + 1 :]), works_in_place(part))
            for place, part in enumerate(self.transforms)
        )
        self.in_place = bool(native) and all(step[3] for step in self._bound)

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        # True if x is separate memory that only this loop refers to.
        fresh = False
        for step, native, lend, in_place in self._bound:
            target = out if lend else None
            if fresh and in_place and lend and not (out is not None and _alike(x, out)):
                target = x
            y = step(x, rng, target)
            if y is not x:
                fresh = native and y is not out and isinstance(y, np.ndarray) and y.base is None
            elif not native:
                fresh = False
            x = y
        return x

    def out_spec(self, spec: ArraySpec | None) -> ArraySpec | None:
        for part in self.transforms:
            spec = _out_spec(part, spec)
        return spec

    def _parts(self) -> Sequence[Any]:
        return self.transforms

    def __repr__(self) -> str:
        lines = ",\n".join(repr(part) for part in self.transforms).replace("\n", "\n    ")
        return f"Compose([\n    {lines},\n])" if lines else "Compose([])"


def _alike(x: Array, out: Array) -> bool:
    return x.shape == out.shape and x.dtype == out.dtype


def _out_spec(fn: Any, spec: ArraySpec | None) -> ArraySpec | None:
    """Return the spec of a callable's result; None if it is not a transform."""
    found: ArraySpec | None = fn.out_spec(spec) if is_transform(fn) else None
    return found


class RandomApply(BindingTransform):
    """Transform that is applied with probability `p`. One draw, then those of the transform if it is applied.

    Args:
        transforms: a callable, or a sequence of them, applied together as by `Compose`.
        p: probability, 0 to 1.

    Raises:
        ValueError: `p` is not a probability.
        TypeError: a transform is async; pass it to a separate `Dataset.transform`.
    """

    def __init__(self, transforms: Callable[..., Any] | Sequence[Callable[..., Any]], p: float = 0.5) -> None:
        self.transforms: Callable[..., Any] = (
            Compose(transforms) if isinstance(transforms, Sequence) else transforms
        )
        check_sync(self.transforms, "RandomApply")
        self.p = check_probability(p, "RandomApply")
        self._bind()

    def _bind(self) -> None:
        self._bound = bind(self.transforms)
        self.in_place = works_in_place(self.transforms)

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        return self._bound(x, rng, out) if rng.random() < self.p else x

    def out_spec(self, spec: ArraySpec | None) -> ArraySpec | None:
        return spec if spec == _out_spec(self.transforms, spec) else None

    def _parts(self) -> Sequence[Any]:
        return (self.transforms,)
