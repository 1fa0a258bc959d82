"""Collation by stacking along a new first axis, and to lists; what batchify functions share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.abc import AllocatingBatchify
from aioloader.batchify.fields import collate_by_field
from aioloader.errors import BatchShapeError
from aioloader.foundation.protocols import implements
from aioloader.foundation.validation import accepts_rng, require

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.abc import Allocate
    from aioloader.foundation.types import Array
    from aioloader.rng import Rng


def is_numeric(value: Any) -> bool:
    if isinstance(value, (str, bytes)):  # numpy's own strings are among them
        return False
    return isinstance(value, (bool, int, float, complex)) or hasattr(value, "__array__")


def check_out(out: Any, shape: tuple[int, ...]) -> None:
    if not isinstance(out, np.ndarray) or out.shape != shape:
        found = out.shape if isinstance(out, np.ndarray) else type(out).__name__
        raise ValueError(f"out must be an array of shape {shape}, got {found}")


class Append:
    """Collation to lists: each field becomes a list of arrays, one per sample.

    Args:
        expand: add a batch axis of length 1 to every array.
        batch_axis: position of that axis.
        use_shared_mem: accepted and ignored, see `Stack`.
    """

    def __init__(self, expand: bool = True, batch_axis: int = 0, use_shared_mem: bool = False) -> None:
        del use_shared_mem
        self._expand = expand
        self._batch_axis = batch_axis

    def __call__(self, samples: Sequence[Any], /, out: None = None) -> Any:
        """Collate; the result is a list of arrays, so `out` must be None."""
        require(out is None, "Append() makes no array, so it takes no out")
        return collate_by_field(samples, None, self._append)

    def _append(self, values: list[Any], out: None) -> list[Any]:
        del out
        arrays = [np.asarray(value) for value in values]
        return [np.expand_dims(array, self._batch_axis) for array in arrays] if self._expand else arrays


class AsList:
    """Collation to a list of the unchanged samples."""

    def __call__(self, samples: Sequence[Any], /, out: None = None) -> list[Any]:
        """Return the samples as a list; `out` must be None."""
        require(out is None, "AsList() makes no array, so it takes no out")
        return list(samples)


def new_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return a new array with any contents; implements `aioloader.abc.Allocate`."""
    return np.empty(shape, dtype)


class Part:
    """A batchify function within another one, and what it takes besides the samples.

    Args:
        function: the function.
    """

    def __init__(self, function: Any) -> None:
        self.function: Callable[..., Any] = function
        self._draws = accepts_rng(function)
        self._allocates = implements(function, AllocatingBatchify, instead_of="__call__")
        self._collate_draws = self._allocates and accepts_rng(function.collate)

    def __call__(self, samples: Sequence[Any], rng: Rng, **out: Any) -> Any:
        """Collate, without memory from elsewhere.

        Args:
            samples: as the function takes them.
            rng: the draws of the batch.
            **out: the argument of this name, if it is given.
        """
        if self._draws:
            out["rng"] = rng
        return self.function(samples, **out)

    def collate(self, samples: Sequence[Any], allocate: Allocate, rng: Rng) -> Any:
        """Collate into memory from `allocate`, if the function can.

        Args:
            samples: as the function takes them.
            allocate: returns memory.
            rng: the draws of the batch.
        """
        if not self._allocates:
            return self(samples, rng)
        function: Any = self.function
        drawn = {"rng": rng} if self._collate_draws else {}
        return function.collate(samples, allocate, **drawn)


def stack_leaves(
    values: Sequence[Any], out: Array | None = None, allocate: Allocate = new_array
) -> Array | list[Any]:
    """Collate one field.

    Arrays, numpy scalars, Python numbers and booleans, and objects with ``__array__`` (such as torch tensors) become
    one array with a first axis for the samples; the dtype follows numpy's rules (int: int64, float: float64). All
    other values (str, bytes, None, objects) become a list: an array of bytes would lose trailing zero bytes.

    Args:
        values: the field of every sample, in order; at least one.
        out: array to write into, of exactly the result's shape; or None.
        allocate: returns the memory of the result if there is no `out`.

    Raises:
        BatchShapeError: the arrays have unequal shapes.
        ValueError: there are no values, or `out` does not fit.
    """
    if not values:
        raise ValueError("there are no samples to collate")
    if not all(map(is_numeric, values)):
        return list(values)
    if not any(hasattr(value, "shape") for value in values):
        joined = np.asarray(values)
        # Python integers beyond 64 bits have no dtype.
        return list(values) if joined.dtype.hasobject else _deliver(joined, out, allocate)
    arrays = [np.asarray(value) for value in values]
    if any(array.dtype.hasobject for array in arrays):
        return list(values)
    shape = arrays[0].shape
    for place, array in enumerate(arrays):
        if array.shape != shape:
            raise BatchShapeError(
                f"samples of different shapes cannot be stacked: sample 0 has shape {shape}, sample {place} has "
                f"shape {array.shape}; {_advice(len(shape), array.ndim)}",
                place=place,
                shape=array.shape,
                expected=str(shape),
            )
    if out is None:
        out = allocate((len(arrays), *shape), np.result_type(*arrays))
    else:
        check_out(out, (len(arrays), *shape))
    return np.stack(arrays, out=out, casting="same_kind")


def _advice(axes: int, others: int) -> str:
    """Return what helps against arrays of different shapes, with these numbers of axes."""
    if axes != others:
        return "make them equal in a transform, or use aioloader.batchify.AsList()"
    if axes == 3:
        return "make them equal (Resize, a crop) or use aioloader.batchify.Pad(), of tuples as in Group(Pad(), Stack())"
    return (
        "make them equal in a transform, or use aioloader.batchify.Pad() or Ragged(), of tuples as in "
        "Group(Pad(), Stack())"
    )


def _deliver(result: Array, out: Array | None, allocate: Allocate) -> Array:
    if out is None:
        if allocate is new_array:
            return result
        out = allocate(result.shape, result.dtype)
    check_out(out, result.shape)
    np.copyto(out, result, casting="same_kind")
    return out


def default_batchify_fn(samples: Sequence[Any], out: Any = None) -> Any:
    """Collate as the loaders do when no function is given: each field is stacked along a new first axis.

    Fields that are not arrays or numbers become lists.

    Args:
        samples: samples of one structure and, field by field, of one shape.
        out: arrays of the batch's structure to write into (None for a field that becomes a list), or None.

    Returns:
        The batch, in the structure of a sample.

    Raises:
        BatchShapeError: the samples differ in the shape of a field; the error is a ValueError and names it.
        ValueError: the samples differ in structure, or `out` does not fit them.
    """
    return collate_by_field(samples, out, stack_leaves)


class Stack:
    """Collation by stacking each field along a new first axis; fields that are not arrays or numbers become lists.

    Args:
        use_shared_mem: accepted for compatibility with Gluon and ignored: the loaders put batches in shared memory
            themselves.
    """

    def __init__(self, use_shared_mem: bool = False) -> None:
        del use_shared_mem

    def __call__(self, samples: Sequence[Any], /, out: Any = None) -> Any:
        """Collate; see `default_batchify_fn`."""
        return default_batchify_fn(samples, out)

    def collate(self, samples: Sequence[Any], allocate: Allocate) -> Any:
        """Collate into memory from `allocate`; see `aioloader.abc.AllocatingBatchify`."""
        return collate_by_field(samples, None, lambda values, out: stack_leaves(values, out, allocate))
