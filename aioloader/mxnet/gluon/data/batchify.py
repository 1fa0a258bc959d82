"""`mx.gluon.data.batchify`: the functions of `aioloader.batchify`, with batches as NDArrays and fields as lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader import batchify
from aioloader.mxnet.base import exported
from aioloader.mxnet.ndarray.ndarray import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence


def as_batch(batch: Any) -> Any:
    """Return a batch of `aioloader` in MXNet's form: arrays as NDArrays, fields of tuples in a list."""
    kind = type(batch)
    if kind is np.ndarray:
        return batch.view(NDArray)
    if kind is tuple or kind is list:
        return [each.view(NDArray) if type(each) is np.ndarray else as_batch(each) for each in batch]
    if kind is dict:
        return {key: as_batch(value) for key, value in batch.items()}
    return batch


class _Handled:
    def __mx_handle__(self) -> Any:
        """Return the function itself: MXNet 2's counterparts in C++ are not needed."""
        return self


class Stack(_Handled, batchify.Stack):
    """Stack of each field along a new first axis. Samples that are tuples or lists become a list of batches.

    dtypes are kept; of Python's numbers, ints become int64 and floats float64.

    Args:
        use_shared_mem: accepted and ignored.
    """

    def __call__(self, samples: Sequence[Any], /, out: Any = None) -> Any:
        """Collate; see `aioloader.batchify.Stack`."""
        return as_batch(super().__call__(samples, out))


class Pad(_Handled, batchify.Pad):
    """Stack of arrays of unequal shapes: every axis grows to the longest sample's; see `aioloader.batchify.Pad`.

    Args:
        val: padding value; None is 0.
        dtype: dtype of the batch; None: that of the samples.
        round_to: extents are rounded up to a multiple of this.
        use_shared_mem: accepted and ignored.
    """

    def __call__(self, samples: Sequence[Any], /, out: Any = None) -> Any:
        """Collate; tuples are refused with a NotImplementedError."""
        return as_batch(super().__call__(samples, out))


class Append(_Handled, batchify.Append):
    """List of separate samples: a list of arrays; see `aioloader.batchify.Append`.

    Args:
        expand: add a batch axis of length 1 to every array.
        batch_axis: place of that axis.
        use_shared_mem: accepted and ignored.
    """

    def __call__(self, samples: Sequence[Any], /, out: None = None) -> Any:
        """Collate."""
        return as_batch(super().__call__(samples, out))


class Group(_Handled, batchify.Group):
    """One function for each field of tuple samples; returns a tuple. ``Group(Stack(), Pad())`` or ``Group([...])``.

    Args:
        fn: function of the first field, or a tuple or list of all functions.
        *args: functions of the other fields.
    """

    _wrong_count = (
        "The number of attributes in each data sample should contains {count} elements; "
        "sample {place} has {found}"
    )


class AsList(_Handled, batchify.AsList):
    """Samples as a list, unchanged."""


def default_batchify_fn(data: Sequence[Any]) -> Any:
    """Collate as MXNet 1.x does, by the type of the first sample: tuples field by field, everything else as one array.

    So samples that are lists become one array, where `Stack` separates them.
    """
    if isinstance(data[0], tuple):
        return [default_batchify_fn(field) for field in zip(*data, strict=True)]
    if isinstance(data[0], NDArray):
        return np.stack([np.asarray(each) for each in data]).view(NDArray)
    return np.asarray(data).view(NDArray)


# The same: the loader itself puts batches in shared memory.
default_mp_batchify_fn = default_batchify_fn


__all__ = exported(globals(), module=__name__)
