"""One thing that is done to every sample."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from aioloader.foundation.validation import is_async
from aioloader.transforms.base import accepts_rng, bind, is_native
from aioloader.transforms.compose import Compose

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioloader.foundation.types import Array
    from aioloader.rng import Rng

__all__ = ("Stage", "stage_of_argument")

# Enough to hide a network's latency, and few enough for a service that knows nothing of us.
_CONCURRENCY = 64


class Stage:
    """A transform with the rule of how it takes its samples. Can be pickled if `fn` can.

    Args:
        fn: the transform.
        first: it takes the first element of a tuple sample; False: it takes all elements, as arguments. A
            sample that is no tuple is one argument in both cases.
        concurrency: of an async function, how many calls a loader has under way at most; None: 64. To give it says that
            `fn` is to be awaited, also where that cannot be told by looking at it.

    Attributes:
        fn, first: as given.
        name: of the transform, for errors and statistics.
        native: it is made of this package's transforms only: every draw comes from ``rng``, and nothing of
            the input is kept.
        concurrency: most calls at a time of an async function; 0 for any other one.
        takes_rng: it is given the sample's draws.

    Raises:
        TypeError: `fn` cannot be called, or is an async generator function.
        ValueError: `concurrency` is less than 1.
    """

    __slots__ = ("_apply", "concurrency", "first", "fn", "name", "native", "takes_rng")

    def __init__(self, fn: Callable[..., Any], *, first: bool, concurrency: int | None = None) -> None:
        self._apply = bind(fn)
        self.takes_rng = accepts_rng(fn)
        self.fn = fn
        self.first = first
        self.name = _name(fn)
        self.native = is_native(fn)
        self.concurrency = _calls_at_a_time(fn, self.name, self.native, concurrency)

    @property
    def is_async(self) -> bool:
        """Whether the transform is awaited, in the event loop."""
        return self.concurrency > 0

    def __reduce__(self) -> tuple[Any, ...]:
        return _remake, (self.fn, self.first, self.concurrency or None)

    def __repr__(self) -> str:
        calls = f", concurrency={self.concurrency}" if self.is_async else ""
        return f"Stage({self.fn!r}, first={self.first}{calls})"

    def apply(self, sample: Any, rng: Rng, out: Array | None = None) -> Any:
        """The transformed sample.

        Args:
            sample: not altered, unless its image is `out` itself.
            rng: the sample's draws.
            out: where the image may be written, see `aioloader.abc.Transform.apply`.

        Raises:
            TypeError: the transform is async.
        """
        if self.concurrency:
            raise TypeError(
                f"the transform {self.name} is async, so it needs an event loop: iterate a loader over the dataset, or "
                "use `await dataset.get(index)` for a single sample"
            )
        if not isinstance(sample, tuple):
            return self._apply(sample, rng, out)
        if len(sample) == 1:
            return self._apply(sample[0], rng, out)
        if not self.first:
            return self.fn(*sample, rng=rng) if self.takes_rng else self.fn(*sample)
        return _with_first(sample, self._apply(sample[0], rng, out))

    async def apply_async(self, sample: Any, rng: Rng) -> Any:
        """The sample that an async transform makes.

        Args:
            sample: not altered.
            rng: the sample's draws.

        Raises:
            TypeError: the function gave nothing that can be awaited.
        """
        whole = not isinstance(sample, tuple)
        if whole or self.first or len(sample) == 1:
            image = await self._awaitable(self._apply(sample if whole else sample[0], rng, None))
            return image if whole or len(sample) == 1 else _with_first(sample, image)
        given = self.fn(*sample, rng=rng) if self.takes_rng else self.fn(*sample)
        return await self._awaitable(given)

    def _awaitable(self, given: Any) -> Awaitable[Any]:
        if not isinstance(given, Awaitable):
            raise TypeError(
                f"the transform {self.name} gave a {type(given).__name__}, which cannot be awaited: concurrency= is "
                "for async functions"
            )
        return given


def _with_first(sample: tuple[Any, ...], image: Any) -> Any:
    """The sample with another first element."""
    if hasattr(sample, "_make"):
        return sample._make((image, *sample[1:]))
    return (image, *sample[1:])


def _calls_at_a_time(fn: Any, name: str, native: bool, concurrency: int | None) -> int:
    """How many calls of a transform may wait at a time; 0 if it is not async."""
    if concurrency is None:
        if inspect.isasyncgenfunction(fn):
            raise TypeError(
                f"{name} is an async generator: a transform returns one sample, so use return, not yield"
            )
        return _CONCURRENCY if is_async(fn) else 0
    if isinstance(concurrency, bool) or not hasattr(concurrency, "__index__"):
        raise TypeError(f"concurrency must be a whole number, got {concurrency!r}")
    if concurrency < 1:
        raise ValueError(f"concurrency must be at least 1, got {concurrency}")
    if native:
        raise TypeError(
            f"concurrency is for async functions; {name} runs in the loader's workers, see num_workers"
        )
    return int(concurrency)


def _remake(fn: Callable[..., Any], first: bool, concurrency: int | None = None) -> Stage:
    return Stage(fn, first=first, concurrency=concurrency)


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
