"""Collation by stacking along a new first axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.batchify.allocation import check_out, is_numeric, new_array
from aioloader.batchify.fields import collate_by_field
from aioloader.errors import BatchShapeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.abc import Allocate
    from aioloader.foundation.types import Array


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
