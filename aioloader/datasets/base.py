"""Base class of datasets and its views, with the methods of Gluon's `Dataset`.

Views do not copy. A loader decomposes a chain of views (`aioloader.datasets.resolve`), so that the chain
costs one look-up per batch and the transforms run in the loader's executor.
"""

from __future__ import annotations

import bisect
import operator
import reprlib
from collections.abc import Mapping, Sequence, Set
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, overload

import numpy as np

from aioloader.abc import MapDataset, Sampler, StreamDataset
from aioloader.datasets.bulk_items import samples_of
from aioloader.datasets.resolve import View, ViewParts, gathered
from aioloader.datasets.stage import Stage
from aioloader.foundation.protocols import implements, redefinable
from aioloader.foundation.validation import check_sync, require
from aioloader.rng import default_rng
from aioloader.samplers.training import class_labels

# Their order is that of their items, or not defined.
_NO_SAMPLERS = (Mapping, Sequence, Set, np.ndarray)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Coroutine, Iterable

    from typing_extensions import TypeVar  # those of `typing` have defaults from Python 3.13 on

    from aioloader.datasets.joined import JoinedItems
    from aioloader.foundation.types import Array, IntArray

    T_co = TypeVar("T_co", covariant=True, default=Any)
    U = TypeVar("U")
else:
    from typing import TypeVar

    T_co = TypeVar("T_co", covariant=True)

T = TypeVar("T")


class Derived(Generic[T]):
    """Descriptor like `property`, except that a subclass may simply assign the attribute in its constructor.

    Args:
        compute: takes the object and returns the value.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Derived[T]: ...

    @overload
    def __get__(self, instance: object, owner: type) -> T: ...

    def __get__(self, instance: object | None, owner: type) -> T | Derived[T]:
        return self if instance is None else self._compute(instance)


class Dataset(View, Generic[T_co]):
    """Base class of datasets. A subclass defines ``__getitem__`` and ``__len__``.

    For type checkers, ``Dataset[T]`` is a dataset of samples of type T; without a type they are Any.

    ``__getitem__`` must raise IndexError past the end, because that ends ``for sample in dataset``.
    """

    def __getitem__(self, index: int) -> T_co:
        """Return the sample at `index`."""
        raise NotImplementedError

    def __len__(self) -> int:
        """Return the number of samples."""
        raise NotImplementedError

    @redefinable
    def labels(self) -> Array:
        """Return the label of every sample before any transform, (n,), without reading the samples. Used by samplers.

        Raises:
            TypeError: this dataset does not know its labels.
            ValueError: samples have several labels, or none.
        """
        own = vars(self).get("targets")  # as in torch's datasets
        if own is not None:
            return class_labels(own)
        raise TypeError(
            f"{type(self).__name__} has no labels(): pass an array with the label of every sample instead"
        )

    @Derived
    def classes(self) -> list[str]:
        """Return the names of the classes, in the order of the labels, as torchvision's datasets have them.

        Raises:
            AttributeError: this dataset has no names of classes.
        """
        names: list[str] = self.class_names()
        if not names:
            raise AttributeError(
                f"this {type(self).__name__} has no `classes`: its data have no names of classes, only labels"
            )
        return names

    @Derived
    def class_to_idx(self) -> dict[str, int]:
        """Return the label of each class by its name.

        Raises:
            AttributeError: this dataset has no names of classes.
        """
        return {name: number for number, name in enumerate(self.classes)}

    @Derived
    def targets(self) -> list[Any]:
        """Return the label of every sample before any transform, as Python numbers; see `labels`.

        They are found at every access: keep them in a variable where that takes reading.

        Raises:
            AttributeError: this dataset does not know its labels.
            OSError, ValueError: they cannot be read.
        """
        try:
            found: list[Any] = self.labels().tolist()
        except TypeError as error:
            raise AttributeError(f"this {type(self).__name__} has no `targets`: {error}") from error
        return found

    def class_names(self) -> list[str]:
        """Return the names of the classes, in the order of the labels; nothing if the data have no names."""
        return []

    def __add__(self, other: MapDataset[Any]) -> ConcatDataset:
        """Return this dataset and another one behind it, as torch's datasets do."""
        return ConcatDataset([self, other])

    @overload
    def transform(
        self, fn: Callable[..., Coroutine[Any, Any, U]], lazy: bool = True, *, concurrency: int | None = None
    ) -> Dataset[U]: ...
    @overload
    def transform(
        self, fn: Callable[..., U], lazy: bool = True, *, concurrency: int | None = None
    ) -> Dataset[U]: ...
    def transform(
        self, fn: Callable[..., Any], lazy: bool = True, *, concurrency: int | None = None
    ) -> Dataset:
        """Return the dataset with `fn` applied to every sample.

        Args:
            fn: takes the elements of a tuple sample as its arguments, any other sample (a list too) as one
                argument. If it has a parameter named ``rng``, it receives the sample's random generator. An async
                function is awaited in the event loop of the loader's caller, for many samples concurrently.
            lazy: True: apply it each time a sample is read. False: apply it to all samples now, and keep the
                results in memory.
            concurrency: limit of concurrent calls of an async function in a loader; None: 64. If it is given, the
                return value of a plain function is awaited, too.

        Raises:
            TypeError: `fn` is not callable; or it is async and `lazy` is False.
            ValueError: `concurrency` is less than 1.
        """
        return self._transformed(Stage(fn, first=False, concurrency=concurrency), lazy)

    def transform_first(
        self, fn: Callable[..., Any], lazy: bool = True, *, concurrency: int | None = None
    ) -> Dataset:
        """Return the dataset with `fn` applied to the first element of every sample; the others are unchanged.

        Args:
            fn: takes the first element, or the whole sample if it is not a tuple; see `transform` for ``rng`` and
                async functions.
            lazy, concurrency: see `transform`.

        Raises:
            TypeError, ValueError: for the same reasons as `transform`.
        """
        return self._transformed(Stage(fn, first=True, concurrency=concurrency), lazy)

    def _transformed(self, stage: Stage, lazy: bool) -> Dataset:
        if stage.is_async and not lazy:
            raise TypeError(
                f"{stage.name} is async and needs an event loop, so lazy=False cannot apply it to all samples: "
                "leave lazy=True, or collect `await dataset.get(index)` of all samples in a list"
            )
        view = TransformedView(self, stage)
        return view if lazy else SimpleDataset([view[index] for index in range(len(view))])

    def cache_samples(self, limit: int | str, folder: str | os.PathLike[str] | None = None) -> Dataset[T_co]:
        """Return the dataset with its samples kept when they are first made; see `aioloader.cache_samples`.

        Args:
            limit: most bytes of samples, such as "20GB".
            folder: where they are kept for other processes and later runs; None: in memory.

        Raises:
            TypeError, ValueError: the samples cannot be kept.
        """
        return CachedSamples(self, limit, folder)

    async def get(self, index: int) -> Any:
        """Return the sample ``dataset[index]``; await async transforms and run everything else in a thread.

        Use it for single samples in an event loop, a service or a notebook; a loader is faster for many. If the call is
        cancelled, it waits for the code that runs in a thread.

        Raises:
            Exception: the exception of ``dataset[index]`` or of a transform, unchanged.
        """
        parts = self.view_parts()
        if parts is None:
            return await _in_thread(self.__getitem__, index)
        place = index if parts.indices is None else int(parts.indices[operator.index(index)])
        sample, stage = await _item(parts.parent, place), parts.stage
        if stage is None:
            return sample
        if stage.is_async:
            return await stage.apply_async(sample, default_rng())
        return await _in_thread(lambda: stage.apply(sample, default_rng()))

    def filter(self, fn: Callable[[Any], object]) -> Dataset[T_co]:
        """Return the samples that satisfy a condition. Every sample is read once, now.

        Args:
            fn: takes a sample (a tuple as one argument) and returns a true value to keep it.

        Raises:
            TypeError: `fn` is an async function.
        """
        check_sync(fn, "filter()")
        kept = (index for index in range(len(self)) if fn(self[index]))
        return IndexedView(self, np.fromiter(kept, dtype=np.int64))

    def shard(self, num_shards: int, index: int) -> Dataset[T_co]:
        """Return one of `num_shards` contiguous parts; the first ``len(self) % num_shards`` parts are one longer.

        Raises:
            ValueError: not 0 <= index < num_shards (also an AssertionError).
        """
        require(num_shards > 0, f"num_shards must be at least 1, got {num_shards}")
        require(0 <= index < num_shards, f"the shard index must be from 0 to {num_shards - 1}, got {index}")
        share, longer = divmod(len(self), num_shards)
        start = share * index + min(index, longer)
        stop = start + share + (index < longer)
        return IndexedView(self, np.arange(start, stop, dtype=np.int64))

    def take(self, count: int | None) -> Dataset[T_co]:
        """Return the first `count` samples; all of them if `count` is None or larger than their number.

        Raises:
            ValueError: `count` is negative.
        """
        length = len(self)
        if count is not None:
            require(count >= 0, f"count must not be negative, got {count}")
            length = min(length, count)
        return IndexedView(self, np.arange(length, dtype=np.int64))

    def sample(self, sampler: Sampler | Sequence[int] | IntArray) -> Dataset[T_co]:
        """Return the samples at several indices, in their order.

        Args:
            sampler: the indices: a list, an integer array of one axis or another sequence; negative ones count from
                the end. Or a sampler, which is iterated once, now.

        Raises:
            TypeError: `sampler` is neither, or an index is not a whole number.
            IndexError: an index is outside of this dataset.
        """
        sampled = not isinstance(sampler, _NO_SAMPLERS) and implements(sampler, Sampler)
        indices = np.fromiter(map(int, sampler), dtype=np.int64) if sampled else _as_indices(sampler)
        length = len(self)
        outside = indices[(indices < -length) | (indices >= length)]
        if len(outside):
            found = (
                f"the sampler yielded index {outside[0]}" if sampled else f"sample() got index {outside[0]}"
            )
            raise IndexError(f"{found}, but the dataset has {length} samples")
        return IndexedView(self, np.where(indices < 0, indices + length, indices).astype(np.int64))


class IndexedView(Dataset):
    """Selection of samples of another dataset, in any order.

    Args:
        parent: the other dataset.
        indices: int64 (n,), indices of the selected samples, each at least 0.
    """

    def __init__(self, parent: MapDataset[Any], indices: IntArray) -> None:
        self._parent = parent
        self._indices = indices

    def __getitem__(self, index: int) -> Any:
        return self._parent[int(self._indices[operator.index(index)])]

    def view_parts(self) -> ViewParts | None:
        """Return the dataset below and the indices."""
        return ViewParts(self._parent, indices=self._indices) if _inherits_items(self, IndexedView) else None

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return the samples at several indices; see `FileDataset.__getitems__`."""
        return samples_of(self, indices, owner=IndexedView)

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._indices)

    def labels(self) -> Array:
        return class_labels(self._parent)[self._indices]

    def class_names(self) -> list[str]:
        return _class_names(self._parent)


class TransformedView(Dataset):
    """Dataset that applies a transform to every sample of another dataset.

    Args:
        parent: the other dataset.
        stage: the transform.
    """

    def __init__(self, parent: MapDataset[Any], stage: Stage) -> None:
        self._parent = parent
        self._stage = stage

    def __getitem__(self, index: int) -> Any:
        """Return the transformed sample; its random numbers come from this thread's generator, seeded by the system."""
        return self._stage.apply(self._parent[index], default_rng())

    def view_parts(self) -> ViewParts | None:
        """Return the dataset below and the stage."""
        return ViewParts(self._parent, stage=self._stage) if _inherits_items(self, TransformedView) else None

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return the samples at several indices; see `FileDataset.__getitems__`."""
        return samples_of(self, indices, owner=TransformedView)

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._parent)

    def labels(self) -> Array:
        return class_labels(self._parent)

    def class_names(self) -> list[str]:
        return _class_names(self._parent)


def _as_indices(given: Any) -> IntArray:
    """Return a sequence or an array of indices as an integer array.

    Raises:
        TypeError: it is neither, or does not consist of whole numbers.
    """
    if isinstance(given, (str, bytes)) or not (isinstance(given, Sequence) or hasattr(given, "__array__")):
        raise TypeError(
            f"sample() takes a list or an array of indices, or a sampler, got {type(given).__name__}"
        )
    if not len(given):
        return np.empty(0, np.int64)
    try:
        indices = np.asarray(given)
    except ValueError:  # lists of different lengths
        indices = np.empty((0, 0))
    if indices.dtype == bool:
        raise TypeError("sample() takes indices, and got booleans: pass numpy.flatnonzero(mask)")
    if indices.ndim != 1 or indices.dtype.kind not in "iu":
        raise TypeError(
            f"sample() takes indices, whole numbers in one list or an array of one axis, got {reprlib.repr(given)}"
        )
    return indices


def _class_names(dataset: MapDataset[Any]) -> list[str]:
    """Return the names of the classes of a dataset of any class; nothing if it has none."""
    names: Any = getattr(dataset, "classes", ())
    usual = isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names)
    return list(names) if usual else []


def _inherits_items(view: Dataset, cls: type[Dataset]) -> bool:
    """Return True if no class derived from `cls` overrides ``__getitem__``."""
    return type(view).__getitem__ is cls.__getitem__


async def _in_thread(fn: Callable[..., Any], *args: Any) -> Any:
    from anyio import to_thread  # not needed in worker processes

    return await to_thread.run_sync(fn, *args)


async def _item(dataset: MapDataset[Any], index: int) -> Any:
    """Return an item of a dataset of any class."""
    found = dataset.get(index) if isinstance(dataset, Dataset) else _in_thread(dataset.__getitem__, index)
    return await found


class SimpleDataset(Dataset[T_co]):
    """Dataset over an object with a length and items, such as a list.

    Args:
        data: the object; it has ``__len__`` and ``__getitem__``.
    """

    def __init__(self, data: MapDataset[T_co]) -> None:
        self._data = data

    def __getitem__(self, index: int) -> T_co:
        return self._data[index]

    def view_parts(self) -> ViewParts | None:
        """Return the data, if they are a `Dataset` or can be gathered."""
        if not _inherits_items(self, SimpleDataset):
            return None
        known = self._data if isinstance(self._data, Dataset) else gathered(self._data)
        return None if known is None else ViewParts(known)

    def __len__(self) -> int:
        return len(self._data)


class ConcatDataset(Dataset[T_co]):
    """Several datasets, one behind the other, as torch's class of this name: ``first + second`` makes one too.

    A loader reads and decodes the items of each part as if it were alone: order, shards, resume, errors, caches, crop
    indexes and remote reads are those of one dataset. The parts may be of different formats, and have separate
    transforms.

    A part that is only an object with ``__len__`` and ``__getitem__`` is asked for its items in a worker. If a part is
    read in blocks, ``shuffle=True`` mixes the blocks of all parts over a window, see
    `aioloader.samplers.BlockShuffleSampler`; other parts count as blocks of random samples of theirs.

    Args:
        datasets: at least one.

    Attributes:
        datasets: the parts, as they were given.

    Raises:
        ValueError: there is no dataset; an AssertionError too, as in torch.
        TypeError: one is an iterable dataset, or has no length or no items.
    """

    def __init__(self, datasets: Iterable[MapDataset[T_co]]) -> None:
        if isinstance(datasets, Dataset):
            raise TypeError("ConcatDataset takes a list of datasets: pass ConcatDataset([first, second])")
        self.datasets = list(datasets)
        require(self.datasets, "ConcatDataset needs at least one dataset")
        for number, dataset in enumerate(self.datasets):
            if isinstance(dataset, StreamDataset):
                raise TypeError(
                    f"dataset {number} is an IterableDataset, whose samples have no indices: read it with a loader of "
                    "its own, or yield the samples of all sources from one iterable"
                )
            if isinstance(dataset, type) or not (
                hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
            ):
                raise TypeError(
                    f"dataset {number} needs __len__ and __getitem__, and is {dataset!r}: wrap it in "
                    "aioloader.SimpleDataset"
                )

    @cached_property
    def cumulative_sizes(self) -> list[int]:
        """Return the number of samples up to the end of each part."""
        found: list[int] = np.cumsum([len(dataset) for dataset in self.datasets]).tolist()
        return found

    def __len__(self) -> int:
        """Return the number of samples of all parts."""
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> T_co:
        """Return the sample at `index`; negative indices count from the end.

        Raises:
            IndexError: there is no such sample.
        """
        number, place = self._locate(index)
        return self.datasets[number][place]

    def _locate(self, index: int) -> tuple[int, int]:
        """Return the number of the part of a sample, and the sample's index in it."""
        place, length = operator.index(index), len(self)
        if not -length <= place < length:
            raise IndexError(f"index {place} is out of range: this ConcatDataset has {length} samples")
        place %= length
        number = bisect.bisect_right(self.cumulative_sizes, place)
        return number, place - (self.cumulative_sizes[number - 1] if number else 0)

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return the samples at several indices; see `FileDataset.__getitems__`."""
        return samples_of(self, indices, owner=ConcatDataset)

    @cached_property
    def _items(self) -> JoinedItems:
        from aioloader.datasets.joined import JoinedItems  # most workers need none

        filled = [dataset for dataset in self.datasets if len(dataset)]
        return JoinedItems(filled or self.datasets[:1], type(self).__name__)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_items"}

    def view_parts(self) -> ViewParts | None:
        """Return the joined items, and the transforms that all parts share."""
        if type(self).__getitem__ is not ConcatDataset.__getitem__:
            return None
        items: Any = self._items
        for stage in items.shared_stages:
            items = TransformedView(items, stage)
        return ViewParts(items)

    async def get(self, index: int) -> Any:
        """Return the sample ``dataset[index]``; see `Dataset.get`."""
        number, place = self._locate(index)
        return await _item(self.datasets[number], place)

    def labels(self) -> Array:
        """Return the labels of all parts; see `Dataset.labels`."""
        return np.concatenate([class_labels(dataset) for dataset in self.datasets])

    def class_names(self) -> list[str]:
        """Return the names of the classes, if they are the same in all parts; else nothing."""
        first, *others = [_class_names(dataset) for dataset in self.datasets]
        return first if all(names == first for names in others) else []


class CachedSamples(Dataset[T_co]):
    """Dataset that keeps the samples of another one; see `cache_samples` for arguments and errors."""

    def __init__(
        self, dataset: MapDataset[T_co], limit: int | str, folder: str | os.PathLike[str] | None = None
    ) -> None:
        from aioloader.datasets.cached_samples import KeptItems  # imported by those who use it

        self._below = dataset
        self._items = KeptItems(dataset, limit, folder)

    def __getitem__(self, index: int) -> Any:
        """Return the sample at `index`; negative indices count from the end. Its arrays are the caller's own."""
        return self._items[index]

    def view_parts(self) -> ViewParts | None:
        """Return the items, as a byte dataset."""
        return ViewParts(self._items) if _inherits_items(self, CachedSamples) else None

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return the samples at several indices; see `FileDataset.__getitems__`."""
        return samples_of(self, indices, owner=CachedSamples)

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._below)

    def labels(self) -> Array:
        return class_labels(self._below)

    def class_names(self) -> list[str]:
        return _class_names(self._below)


def cache_samples(
    dataset: MapDataset[T], limit: int | str, folder: str | os.PathLike[str] | None = None
) -> CachedSamples[T]:
    """Return a dataset that keeps its samples when they are first made, so that each is made once on this host.

    It takes any dataset, also one of torch or a list, and works in any loader. What follows it in a chain, such as
    random crops, runs in every epoch; the batches are bit for bit those without it. See docs/caching.md.

    Args:
        dataset: has ``__len__`` and ``__getitem__``. Its samples must not depend on random numbers.
        limit: most bytes of samples, such as "20GB". Nothing is evicted: when they are taken, the samples that are kept
            stay, and the others are made in each epoch.
        folder: where the samples are kept for other processes and later runs, which should have a fast disk, or be in
            memory (``/dev/shm``); None: in memory, as long as this object or a loader of it lives. It is this user's
            alone, because what Python unpickles may run any code.

    Raises:
        TypeError: the dataset is an iterable one, has an async transform, or cannot be identified for a folder.
        ValueError: a transform before it draws random numbers; or the limit is not a size.
    """
    return CachedSamples(dataset, limit, folder)
