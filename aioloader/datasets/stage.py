"""A transform as a stage that is applied to every sample."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.foundation.stacks import warn_caller
from aioloader.foundation.validation import accepts_rng, is_async
from aioloader.rng import current_rng
from aioloader.transforms.base import advise, bind, is_native, moves_pixels, name_of

if TYPE_CHECKING:
    from aioloader.foundation.types import Array
    from aioloader.rng import Rng

# Enough to hide a network's latency, and few enough for a service that is not prepared for more.
_CONCURRENCY = 64
_LABELS = (str, bytes, int, float, np.number)


class Stage:
    """Transform with the rule for its arguments. Can be pickled if `fn` can.

    Args:
        fn: the transform.
        first: True: it takes the first element of a tuple sample. False: it takes all elements, as arguments. A sample
            that is not a tuple is one argument in both cases.
        concurrency: limit of concurrent calls of an async function in a loader; None: 64. If it is given, the return
            value of `fn` is awaited, even if `fn` is not recognisable as an async function.

    Attributes:
        fn, first: the arguments.
        name: name of the transform, for errors and statistics.
        native: True if it consists of this package's transforms only: all its random numbers come from ``rng``, and it
            keeps no reference to the input.
        concurrency: limit of concurrent calls of an async function; 0 for any other transform.
        takes_rng: True if it receives the sample's random generator as ``rng``.
        looked: no sample is to be looked at for elements that stay behind, see `look_at`; True after the first one.

    Raises:
        TypeError: `fn` is not callable, or is an async generator function.
        ValueError: `concurrency` is less than 1.
    """

    __slots__ = ("_apply", "concurrency", "first", "fn", "looked", "name", "native", "takes_rng")

    def __init__(self, fn: Callable[..., Any], *, first: bool, concurrency: int | None = None) -> None:
        self._apply = bind(fn)
        self.takes_rng = accepts_rng(fn)
        self.fn = fn
        self.first = first
        self.name = name_of(fn)
        self.native = is_native(fn)
        self.concurrency = _calls_at_a_time(fn, self.name, self.native, concurrency)
        self.looked = not (first and moves_pixels(fn))

    @property
    def is_async(self) -> bool:
        """Return True if the transform is awaited, in the event loop."""
        return self.concurrency > 0

    def __reduce__(self) -> tuple[Any, ...]:
        make = functools.partial(Stage, first=self.first, concurrency=self.concurrency or None)
        return make, (self.fn,)

    def __repr__(self) -> str:
        calls = f", concurrency={self.concurrency}" if self.is_async else ""
        return f"Stage({self.fn!r}, first={self.first}{calls})"

    def apply(self, sample: Any, rng: Rng, out: Array | None = None) -> Any:
        """Return the transformed sample.

        Args:
            sample: the sample; it is not modified, unless its image is `out` itself.
            rng: random generator of the sample.
            out: array for the image, see `aioloader.abc.Transform.apply`.

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
        if self.first:
            if not self.looked and isinstance(sample[0], np.ndarray):
                self.look_at(sample[0].shape, sample[1:])
            return _with_first(sample, self._apply(sample[0], rng, out))
        token = current_rng.set(rng)
        try:
            return self.fn(*sample, rng=rng) if self.takes_rng else self.fn(*sample)
        except TypeError as error:
            advise(error, *sample)
            raise
        finally:
            current_rng.reset(token)

    def look_at(self, shape: tuple[int, ...], others: Sequence[Any]) -> bool:
        """Warn if elements of a sample refer to the pixels of its image, which moves without them.

        Args:
            shape: of the image, (height, width, ...).
            others: the other elements.

        Returns:
            True if it has warned.
        """
        self.looked = True
        if len(shape) < 2 or all(isinstance(value, _LABELS) for value in others):
            return False
        # The import takes longer than all else that a loader does before it starts its workers.
        from aioloader.transforms.boxes.base import refers_to_pixels

        if not any(refers_to_pixels(value, *shape[:2]) for value in others):
            return False
        warn_caller(
            f"{self.name} moves the pixels of the first element of each sample, and another element refers to "
            "them and stays as it is: for masks make the sample a dict {'image': ..., 'mask': ...}, and use "
            "dataset.transform(transforms.JointCompose([...]))",
            UserWarning,
        )
        return True

    async def apply_async(self, sample: Any, rng: Rng) -> Any:
        """Await an async transform and return the transformed sample.

        Args:
            sample: the sample; it is not modified.
            rng: random generator of the sample.

        Raises:
            TypeError: the return value of the function is not awaitable.
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
                f"the transform {self.name} returned a {type(given).__name__}, which cannot be awaited: concurrency= "
                "is for async functions"
            )
        return given


def _with_first(sample: tuple[Any, ...], image: Any) -> Any:
    """Return the sample with its first element replaced."""
    if hasattr(sample, "_make"):
        return sample._make((image, *sample[1:]))
    return (image, *sample[1:])


def _calls_at_a_time(fn: Any, name: str, native: bool, concurrency: int | None) -> int:
    """Return the limit of concurrent calls of a transform; 0 if it is not async."""
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


def stage_of_argument(dataset: object, transform: Callable[..., Any] | None) -> Stage | None:
    """Return the stage of Gluon's deprecated argument `transform` of a dataset; None without it.

    Warns:
        DeprecationWarning: the argument is given.
    """
    if transform is None:
        return None
    warn_caller(
        f"{type(dataset).__name__}(transform=...) is deprecated; use .transform(fn) or .transform_first(fn)",
        DeprecationWarning,
    )
    return Stage(transform, first=False)
