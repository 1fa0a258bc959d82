"""`mx.gluon.data.dataset`: the datasets of `aioloader`, with samples and functions in terms of NDArrays.

A loader treats them like those datasets, so arrays are gathered, and transforms of `vision.transforms` run as the
transforms of `aioloader.transforms` behind them.
"""

from __future__ import annotations

import copy
import operator
import os
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from aioloader import datasets
from aioloader.abc import GatherDataset
from aioloader.datasets.base import IndexedView, TransformedView
from aioloader.datasets.resolve import View, ViewParts, as_gatherable, getitem_fits
from aioloader.formats.recordio.decoding import RecordDecoder
from aioloader.foundation.validation import require
from aioloader.mxnet import ndarray as ndarray
from aioloader.mxnet import recordio
from aioloader.mxnet.base import renamed
from aioloader.mxnet.gluon.data._ndarray_stage import GivenTransform
from aioloader.mxnet.ndarray.ndarray import NDArray
from aioloader.rng import default_rng
from aioloader.samplers.basic import Sampler, is_positional
from aioloader.samplers.training import class_labels
from aioloader.storage.urls import path_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from aioloader.abc import MapDataset
    from aioloader.datasets.stage import Stage
    from aioloader.foundation.types import Array, IntArray

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
        view = _LazyTransformDataset(self, fn)
        return view if lazy else SimpleDataset([view[index] for index in range(len(view))])

    def transform_first(self, fn: Callable[..., Any], lazy: bool = True) -> Dataset:  # type: ignore[override]
        """Return the dataset with `fn` applied to the first element of every sample; the others stay."""
        return self.transform(_TransformFirstClosure(fn), lazy)

    def contents(self) -> Sequence[Any]:
        """Return the objects that decide about the samples, for a loader to see whether one was replaced."""
        return ()

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
        return self._indexed(super().sample(sampler), sampler)

    def _indexed(self, view: datasets.Dataset, sampler: Any = None) -> Dataset:
        indices = cast("IndexedView", view)._indices
        return _SampledDataset(self, indices if sampler is None else sampler, indices)


class _TransformFirstClosure:
    """Function that is applied to the first element of a sample, `_fn`, and passes the others on."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._fn = fn

    def __call__(self, x: Any, *args: Any) -> Any:
        return (self._fn(x), *args) if args else self._fn(x)


class _LazyTransformDataset(TransformedView, Dataset):
    """Dataset with a function applied to every sample of another one; see `Dataset.transform`.

    Args:
        data: the other dataset.
        fn: the function.
    """

    def __init__(self, data: MapDataset[Any], fn: Callable[..., Any]) -> None:
        self._parent = data
        self._fn = fn

    _data = renamed("_parent")

    @property
    def _fn(self) -> Callable[..., Any]:
        return self._function

    @_fn.setter
    def _fn(self, fn: Callable[..., Any]) -> None:
        self._function = fn
        first = isinstance(fn, _TransformFirstClosure)
        inner = fn._fn if isinstance(fn, _TransformFirstClosure) else fn
        self._given = GivenTransform(inner, first=first, given=_has_images(self._parent))

    @property
    def _stage(self) -> Stage:  # type: ignore[override]  # an attribute may change it
        return self._given.stage

    @property
    def _has_images(self) -> bool:  # type: ignore[override]  # depends on the dataset below
        return _has_images(self._parent) or self._given.is_native


def _has_images(dataset: MapDataset[Any]) -> bool:
    return isinstance(dataset, Dataset) and dataset._has_images


class _SampledDataset(IndexedView, Dataset):
    """Selection of samples of another dataset, in some order.

    Args:
        dataset: the other dataset.
        sampler: iterable of the indices.
        indices: the same, if they are known.
    """

    def __init__(
        self, dataset: MapDataset[Any], sampler: Iterable[Any], indices: IntArray | None = None
    ) -> None:
        self._sampler = sampler
        super().__init__(dataset, np.fromiter(map(int, sampler), np.int64) if indices is None else indices)
        self._has_images = _has_images(dataset)

    _dataset = renamed("_parent")


class _FilteredDataset(_SampledDataset):
    """Samples of another dataset that satisfy a condition; see `Dataset.filter`.

    Args:
        dataset: the other dataset; all samples are read once, now.
        fn: the condition.
    """

    def __init__(self, dataset: MapDataset[Any], fn: Callable[[Any], object]) -> None:
        super().__init__(dataset, [index for index in range(len(dataset)) if fn(dataset[index])])


class SimpleDataset(datasets.SimpleDataset, Dataset):
    """Dataset over an object with a length and items, such as a list.

    Args:
        data: the items.
    """

    def contents(self) -> Sequence[Any]:
        return (self._data,)


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
        self._data = list(self._data)  # scripts replace elements
        self._gathered: list[Any] | None = None

    @property
    def arrays(self) -> Sequence[Array]:
        """Return the arrays to gather from; see `aioloader.ArrayDataset.arrays`."""
        if self._gathered is None or not all(map(operator.is_, self._gathered, self._data)):
            bare = datasets.ArrayDataset(*map(_bare, self._data))
            self._arrays, self._gathered = tuple(bare.arrays), list(self._data)
        return super().arrays

    def contents(self) -> Sequence[Any]:
        return self._data

    def __getitem__(self, index: Any) -> Any:
        """Return the element at `index`, or the tuple of them."""
        return super().__getitem__(index)


def _bare(data: Any) -> Any:
    return np.asarray(data) if isinstance(data, NDArray) else data


class RecordFileDataset(datasets.RecordFileDataset, Dataset):
    """The payloads of a RecordIO file, as bytes; see `aioloader.RecordFileDataset`.

    Args:
        filename: the record file.
        **options: those of `aioloader.RecordFileDataset`.

    Attributes:
        filename, idx_file: the record file, and the .idx file of the same name.
    """

    # A reader that the caller has seen: its `keys` are the records, and `_lines` their lines in the file.
    _reader: recordio.MXIndexedRecordIO | None = None
    _lines: Mapping[Any, int] = MappingProxyType({})
    _chosen: IntArray | None = None

    def __init__(self, filename: Any, *args: Any, **options: Any) -> None:
        super().__init__(filename, *args, **options)
        self.filename = filename
        self.idx_file = f"{os.path.splitext(self._path)[0]}.idx"

    @property
    def _record(self) -> recordio.MXIndexedRecordIO:
        if self._reader is None:
            self._record = recordio.MXIndexedRecordIO(self.idx_file, self._path, "r")
            assert self._reader is not None
        return self._reader

    @_record.setter
    def _record(self, reader: recordio.MXIndexedRecordIO) -> None:
        path = os.fspath(reader.uri)
        if vars(self).get("_path") != path:  # another file, or a class that does not call this constructor
            datasets.RecordFileDataset.__init__(self, path)
        keys = recordio.MXIndexedRecordIO(reader.idx_path, path, "r", reader.key_type).keys
        self._reader, self._lines = reader, {key: line for line, key in enumerate(keys)}

    def _line(self, index: int) -> int:
        """Return the line of a record in the .idx file."""
        return self._place(index) if self._reader is None else self._lines[self._reader.keys[index]]

    def contents(self) -> Sequence[Any]:
        return self._path, self._chosen_lines()

    def _chosen_lines(self) -> IntArray | None:
        """Return the lines of the records whose keys `_record` has; None if they are all, in order."""
        if self._reader is None:
            return None
        found = np.fromiter(map(self._lines.__getitem__, self._reader.keys), np.int64)
        if np.array_equal(found, np.arange(super().__len__())):
            return None
        if self._chosen is None or not np.array_equal(found, self._chosen):
            self._chosen = found
        return self._chosen

    def view_parts(self) -> ViewParts | None:
        """Return all records, and the lines of those that `_record` has; None if these are the same."""
        lines = self._chosen_lines()
        if lines is None or not getitem_fits(type(self), "decoder"):
            return None
        whole = copy.copy(self)
        whole._reader = None
        return ViewParts(whole, lines)

    def __len__(self) -> int:
        return super().__len__() if self._reader is None else len(self._reader.keys)

    @property
    def decoder(self) -> Any:
        return super().decoder

    def __getitem__(self, index: int) -> Any:
        """Return the payload of a record, in derived classes too."""
        return self._item(self._line(index), RecordDecoder())


class WithTransform(Dataset):
    """Common part of the datasets that take `transform`: scripts also read and assign the attribute `_transform`."""

    _given: GivenTransform | None = None

    @property
    def _transform(self) -> Callable[..., Any] | None:
        return None if self._given is None else self._given.fn

    @_transform.setter
    def _transform(self, fn: Callable[..., Any] | None) -> None:
        self._given = None if fn is None else GivenTransform(fn, first=False, given=True)

    @property
    def own_stage(self) -> Stage | None:
        """Return the stage of the argument `transform`, which runs before all other stages; None without one."""
        return None if self._given is None else self._given.stage


class _DownloadedDataset(WithTransform, GatherDataset[Any]):
    """Base of datasets of images and labels in memory. Nothing is downloaded.

    A subclass defines `_get_data`, which sets `_data` and `_label`: arrays or lists of one length.

    Args:
        root: the folder of the files, `_root`; it is created.
        transform: takes an image and its label; None: samples are (image, label).
    """

    _has_images = True
    _data: Any = None
    _label: Any = None

    def __init__(self, root: Any, transform: Callable[..., Any] | None) -> None:
        self._root = path_of(root)
        self._transform = transform
        self._data = self._label = None
        os.makedirs(self._root, exist_ok=True)
        self._get_data()

    def _get_data(self) -> None:
        raise NotImplementedError(
            f"{type(self).__name__} does not define _get_data(), which sets _data and _label"
        )

    def __len__(self) -> int:
        return len(self._label)

    @property
    def arrays(self) -> Sequence[Array]:
        """Return images and labels; see `GatherDataset.arrays`.

        Raises:
            AttributeError: they are not arrays whose rows are the elements.
        """
        found = [as_gatherable(_bare(data)) for data in (self._data, self._label)]
        vectors = any(isinstance(data, NDArray) and data.ndim == 1 for data in (self._data, self._label))
        plain = self._given is None or (isinstance(self._data, NDArray) and type(self._label) is np.ndarray)
        if vectors or not plain or any(each is None for each in found):
            raise AttributeError("the images and labels of this dataset are not both arrays")
        return [each for each in found if each is not None]

    def __getitem__(self, idx: Any) -> Any:
        """Return (image, label), or the result of `transform`. A slice returns arrays of both."""
        sample = self._data[idx], self._label[idx]
        stage = self.own_stage
        return sample if stage is None else stage.apply(sample, default_rng())

    def labels(self) -> Array:
        return class_labels(self._label)

    def contents(self) -> Sequence[Any]:
        return self._data, self._label, self.own_stage


def made_of(dataset: Any) -> list[Any]:
    """Return the objects that decide about the samples of a dataset and of the ones below it."""
    found: list[Any] = []
    while True:
        found.append(dataset)
        if isinstance(dataset, Dataset):
            found += dataset.contents()
        # A record file is itself below its chosen records.
        is_view = isinstance(dataset, View) and not isinstance(dataset, RecordFileDataset)
        parts = dataset.view_parts() if is_view else None
        if parts is None:
            return found
        found += (parts.indices, parts.stage)
        dataset = parts.parent
