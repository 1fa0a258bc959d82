"""Transforms made of transforms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from aioloader.foundation.validation import check_sync
from aioloader.transforms.base import Step, Transform, bind, check_probability, is_native

if TYPE_CHECKING:
    from aioloader.foundation.types import Array, ArraySpec
    from aioloader.rng import Rng

__all__ = ("Compose", "RandomApply")


def _in_place(fn: Any) -> bool:
    return isinstance(fn, Transform) and fn.in_place


class Compose(Transform):
    """Transforms one after the other; any callable of one argument will do.

    A callable with a parameter named ``rng`` is given the sample's draws through it, others are called with the image
    alone. Draws: those of the parts, in order. Memory that is used again, `out` or an intermediate result, is handed
    to a part only where no foreign callable comes after it, since that might keep what it is given.

    Args:
        transforms: callables; the sequence itself is neither kept nor altered.

    Raises:
        TypeError: one of them is no callable, or an async function.
    """

    def __init__(self, transforms: Iterable[Callable[..., Any]]) -> None:
        self.transforms: tuple[Callable[..., Any], ...] = tuple(transforms)
        for part in self.transforms:
            check_sync(part, "Compose")
        self._bind()

    def _bind(self) -> None:
        native = [is_native(part) for part in self.transforms]
        self._steps: tuple[tuple[Step, bool, bool, bool], ...] = tuple(
            (bind(part), native[place], all(native[place + 1 :]), native[place] and _in_place(part))
            for place, part in enumerate(self.transforms)
        )
        self.in_place = bool(native) and all(step[3] for step in self._steps)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        # Bound methods and closures: made anew on arrival.
        del state["_steps"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._bind()

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        # Whether x is memory of its own that nobody but this loop has seen.
        fresh = False
        for step, native, lend, in_place in self._steps:
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
            tell = getattr(part, "out_spec", None)
            spec = None if tell is None else tell(spec)
        return spec

    def _parts(self) -> Sequence[Any]:
        return self.transforms

    def __repr__(self) -> str:
        lines = ",\n".join(repr(part) for part in self.transforms).replace("\n", "\n    ")
        return f"Compose([\n    {lines},\n])" if lines else "Compose([])"


def _alike(x: Array, out: Array) -> bool:
    return x.shape == out.shape and x.dtype == out.dtype


class RandomApply(Transform):
    """Apply a transform with probability `p`. One draw, then those of the transform if it is applied.

    Args:
        transforms: a callable, or a sequence of them, applied together as `Compose` does.
        p: probability, 0 to 1.

    Raises:
        ValueError: `p` is no probability.
        TypeError: a transform is async; give it a `Dataset.transform` of its own.
    """

    _fields: ClassVar[tuple[str, ...]] = ("transforms", "p")

    def __init__(self, transforms: Callable[..., Any] | Sequence[Callable[..., Any]], p: float = 0.5) -> None:
        self.transforms: Callable[..., Any] = (
            Compose(transforms) if isinstance(transforms, Sequence) else transforms
        )
        check_sync(self.transforms, "RandomApply")
        self.p = check_probability(p, "RandomApply")
        self._bind()

    def _bind(self) -> None:
        self._step = bind(self.transforms)
        self.in_place = is_native(self.transforms) and _in_place(self.transforms)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_step"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._bind()

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        return self._step(x, rng, out) if rng.random() < self.p else x

    def out_spec(self, spec: ArraySpec | None) -> ArraySpec | None:
        tell = getattr(self.transforms, "out_spec", None)
        changed = None if tell is None else tell(spec)
        return spec if spec == changed else None

    def _parts(self) -> Sequence[Any]:
        return (self.transforms,)
