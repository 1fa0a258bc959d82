"""Processing of samples in terms of NDArrays: the caller's functions take and return them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.datasets.stage import Stage
from aioloader.foundation.validation import accepts_rng, is_async
from aioloader.mxnet.base import MXNetError
from aioloader.mxnet.ndarray.ndarray import NDArray
from aioloader.transforms.base import is_native

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioloader.foundation.types import Array
    from aioloader.rng import Rng


def plain(x: Any) -> Any:
    """Return an NDArray as the numpy array that it is; everything else unchanged."""
    return np.asarray(x) if isinstance(x, NDArray) else x


def as_nd(x: Any) -> Any:
    """Return a numpy array as NDArray; everything else unchanged."""
    return x.view(NDArray) if type(x) is np.ndarray else x


class TransformValueError(MXNetError, ValueError):
    """Error raised when a transform cannot be applied with its arguments, or to this image."""


class TransformTypeError(MXNetError, TypeError):
    """Error raised when a transform cannot be applied to this kind of array."""


def applied(native: Callable[..., Any], x: Any) -> Any:
    """Return `x`, transformed by one of `aioloader.transforms`, as NDArray.

    Raises:
        TransformValueError, TransformTypeError: it raised ValueError or TypeError.
    """
    source = plain(x)
    try:
        result = native(source)
    except (ValueError, TypeError) as error:
        # Errors of the caller's own functions have their own classes, or derive from these.
        kind = {ValueError: TransformValueError, TypeError: TransformTypeError}.get(type(error))
        if kind is None:
            raise
        raise kind(str(error)) from error
    if isinstance(result, np.ndarray) and isinstance(source, np.ndarray):
        # If the result were a view, its owner could alter the image.
        result = result.copy() if np.may_share_memory(result, source) else result
    return as_nd(result)


def image_as_nd(sample: Any) -> Any:
    """Return a sample with its image, the first element or the sample itself, as NDArray; labels stay."""
    if type(sample) is tuple:
        return (as_nd(sample[0]), *sample[1:]) if sample else sample
    return as_nd(sample)


class NativeBacked:
    """Base of the transforms of `vision.transforms`, behind which there is one of `aioloader.transforms`."""

    def native_transform(self) -> Callable[..., Any] | None:
        """Return the transform that a loader runs; None if a derived class does something else."""
        raise NotImplementedError


class _CallerFunction:
    """Function of the caller, under its own name.

    Args:
        fn: the function.
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        self.__name__ = getattr(fn, "__name__", type(fn).__name__)

    def __repr__(self) -> str:
        return repr(self.fn)


class NDArrayFunction(_CallerFunction):
    """Function of the caller that takes an image as NDArray, used where plain arrays are passed."""

    def __call__(self, x: Any) -> Any:
        """Return the function's result for `x`."""
        return self.fn(as_nd(x))


class _SampleFunction(_CallerFunction):
    """Function of the caller that takes only its sample, regardless of its parameters' names."""

    def __call__(self, *sample: Any) -> Any:
        """Return the function's result for the elements of a sample."""
        return self.fn(*sample)


class ImageStage(Stage):
    """Stage whose image is an NDArray where the caller sees it.

    Args:
        fn: the transform.
        first: it takes the image; False: all elements of the sample.
        wraps_result: its result becomes an NDArray.
        wraps_input: its input becomes an NDArray.
    """

    __slots__ = ("wraps_input", "wraps_result")

    def __init__(
        self, fn: Callable[..., Any], *, first: bool, wraps_result: bool = False, wraps_input: bool = False
    ) -> None:
        super().__init__(fn, first=first)
        self.wraps_result = wraps_result
        self.wraps_input = wraps_input

    def __reduce__(self) -> tuple[Any, ...]:
        options = {name: getattr(self, name) for name in ("first", "wraps_result", "wraps_input")}
        return partial(ImageStage, **options), (self.fn,)

    def apply(self, sample: Any, rng: Rng, out: Array | None = None) -> Any:
        if self.wraps_input:
            sample = image_as_nd(sample)
        made = super().apply(sample, rng, out)
        # A row of the batch is recognised by its identity.
        return image_as_nd(made) if self.wraps_result and out is None else made


def image_stage(fn: Callable[..., Any], *, first: bool, given: bool) -> ImageStage:
    """Return the stage of a function of the caller, or of a transform of `vision.transforms`.

    Args:
        fn: the function; a transform takes the image and passes the rest on in any case.
        first: it takes the first element; False: all elements of a tuple sample.
        given: the first element is an image, which the function takes as NDArray.
    """
    if is_async(fn):
        raise TypeError(
            f"{getattr(fn, '__name__', type(fn).__name__)} is an async function, and nothing is awaited in a script of "
            "MXNet's: use aioloader.AsyncDataLoader and the datasets of aioloader"
        )
    native = native_of(fn)
    if native is not None:
        return ImageStage(native, first=True, wraps_result=True)
    if first and given:
        # A decoder that runs this stage as well calls the function itself.
        return ImageStage(NDArrayFunction(fn), first=True)
    # The loader would pass its draws to a parameter named `rng`.
    return ImageStage(_SampleFunction(fn) if accepts_rng(fn) else fn, first=first, wraps_input=given)


def native_of(fn: Any) -> Callable[..., Any] | None:
    """Return the transform of `aioloader.transforms` behind `fn`; None for a function of the caller."""
    if isinstance(fn, NativeBacked):
        return fn.native_transform()
    return fn if is_native(fn) else None


class GivenTransform:
    """Function of the caller, with its stage, which is made again when an attribute of a transform was assigned.

    Args:
        fn, first, given: see `image_stage`.
    """

    def __init__(self, fn: Callable[..., Any], *, first: bool, given: bool) -> None:
        self.fn = fn
        self._options = {"first": first, "given": given}
        self._native = native_of(fn)
        self._stage = image_stage(fn, **self._options)

    @property
    def is_native(self) -> bool:
        """Return True if there is one of `aioloader.transforms` behind it."""
        return self._native is not None

    @property
    def stage(self) -> ImageStage:
        """Return the stage."""
        native = native_of(self.fn)
        if native is not self._native:
            self.__init__(self.fn, **self._options)  # type: ignore[misc]  # all attributes depend on it
        return self._stage
