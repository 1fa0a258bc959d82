"""`mx.gluon.data.dataset`: the datasets of `aioloader`, with samples and functions in terms of NDArrays.

A loader treats them like those datasets, so arrays are gathered, and transforms of `vision.transforms` run as the
transforms of `aioloader.transforms` behind them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader import datasets
from aioloader.datasets.base import IndexedView, TransformedView
from aioloader.foundation.validation import require
from aioloader.mxnet.gluon.data._ndarray_stage import image_stage, native_of
from aioloader.mxnet.ndarray import NDArray
from aioloader.samplers import Sampler
from aioloader.samplers.basic import is_positional

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.foundation.types import Array

__all__ = ("ArrayDataset", "Dataset", "RecordFileDataset", "SimpleDataset")


class Dataset(datasets.Dataset):
    """Base of datasets. A subclass defines ``__getitem__``, which raises IndexError past the end, and ``__len__``."""

    # True if the image of a sample is an NDArray where a function sees it, also if a loader made it.
    _has_images = False

    def transform(self, fn: Callable[..., Any], lazy: bool = True) -> Dataset:  # type: ignore[override]  # MXNet's own
        """Return the dataset with `fn` applied to every sample.

        Args:
            fn: takes the elements of a tuple sample as its arguments, any other sample (a list too) as one argument. A
                transform of `vision.transforms` takes the first element and passes the others on.
            lazy: apply it whenever a sample is read; False: to all samples now, and keep the results in memory."""
        return self._with(fn, False, lazy)

    def transform_first(self, fn: Callable[..., Any], lazy: bool = True) -> Dataset:  # type: ignore[override]
        """Return the dataset with `fn` applied to the first element of every sample; the others stay."""
        return self._with(fn, True, lazy)

    def _with(self, fn: Callable[..., Any], first: bool, lazy: bool) -> Dataset:
        stage = image_stage(fn, first=first, given=self._has_images)
        view = _Transformed(self, stage)
        view._has_images = self._has_images or native_of(fn) is not None
        return view if lazy else SimpleDataset([view[index] for index in range(len(view))])

    def __mx_handle__(self) -> Dataset:
        """Return the dataset itself: MXNet 2's counterparts in C++ are not needed."""
        return self

    def filter(self, fn: Callable[[Any], object]) -> Dataset:
        """Return the samples that satisfy a condition, which takes a whole sample; all samples are read once, now."""
        return self._indexed(super().filter(fn))

    def shard(self, num_shards: int, index: int) -> Dataset:
        """Return one of `num_shards` contiguous parts; the first ``len(self) % num_shards`` parts are one longer.

        Raises:
            ValueError: not 0 <= index < num_shards (an AssertionError too).
        """
        require(index < num_shards, f"Shard index of out bound: {index} out of {num_shards}")
        require(num_shards > 0, "Number of shards must be greater than 0")
        require(index >= 0, "Index must be non-negative")
        return self._indexed(super().shard(num_shards, index))

    def take(self, count: int | None) -> Dataset:
        """Return the first `count` samples; all of them if `count` is None or larger than their number."""
        return self._indexed(super().take(count))

    def sample(self, sampler: Any) -> Dataset:
        """Return the samples that a sampler selects, in its order; the sampler is iterated once, now.

        Raises:
            TypeError: not a sampler.
        """
        if not isinstance(sampler, Sampler) and not is_positional(sampler):
            raise TypeError(f"Invalid sampler type: {type(sampler)}. Expected gluon.data.Sampler instead.")
        return self._indexed(super().sample(sampler))

    def _indexed(self, view: datasets.Dataset) -> Dataset:
        assert isinstance(view, IndexedView)
        indexed = _Indexed(self, view._indices)
        indexed._has_images = self._has_images
        return indexed


class _Transformed(TransformedView, Dataset):
    """Dataset with a transform applied to every sample."""


class _Indexed(IndexedView, Dataset):
    """Selection of samples of another dataset, in some order."""


class SimpleDataset(datasets.SimpleDataset, Dataset):
    """Dataset over an object with a length and items, such as a list.

    Args:
        data: the items.
    """


class ArrayDataset(datasets.ArrayDataset, Dataset):
    """Arrays, lists or datasets of one length, side by side.

    Sample i is the tuple of their elements i; with one array it is the element itself. NDArrays with one axis become
    numpy arrays, so that labels are numbers.

    Args:
        *args: at least one.

    Raises:
        ValueError: none is given, or their lengths differ (an AssertionError too).
    """

    def __init__(self, *args: Any) -> None:
        require(args, "Needs at least 1 arrays")
        for number, data in enumerate(args, 1):  # MXNet counts the second number of its message from 1
            require(
                len(data) == len(args[0]),
                f"All arrays must have the same length; array[0] has length {len(args[0])} "
                f"while array[{number}] has {len(data)}.",
            )
        super().__init__(*[np.asarray(a) if isinstance(a, NDArray) and a.ndim == 1 else a for a in args])

    @property
    def arrays(self) -> Sequence[Array]:
        """Return the arrays to gather from; see `aioloader.ArrayDataset.arrays`."""
        if self._arrays is None and any(isinstance(data, NDArray) for data in self._data):
            bare = datasets.ArrayDataset(*map(_bare, self._data))
            self._arrays = tuple(bare.arrays)
        return super().arrays

    def __getitem__(self, index: Any) -> Any:
        """Return the element at `index`, or the tuple of them."""
        return super().__getitem__(index)


def _bare(data: Any) -> Any:
    return np.asarray(data) if isinstance(data, NDArray) else data


class RecordFileDataset(datasets.RecordFileDataset, Dataset):
    """The payloads of a RecordIO file, as bytes; see `aioloader.RecordFileDataset`.

    Args:
        filename: the .rec file.
    """
