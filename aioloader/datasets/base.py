"""What a dataset is, and the views that can be made of any: Gluon's `Dataset` with its methods.

Views do not copy. A loader takes them apart again (`aioloader.datasets.resolve`), so that a chain of them
costs one look-up per batch and the transforms run where the loader's executor is.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.abc import MapDataset, PositionalSampler
from aioloader.datasets.bulk_items import samples_of
from aioloader.datasets.resolve import ViewParts, gathered
from aioloader.datasets.stage import Stage
from aioloader.foundation.validation import check_sync, require
from aioloader.rng import default_rng
from aioloader.samplers import Sampler
from aioloader.samplers.classes import class_labels

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.foundation.types import Array, IntArray

__all__ = ("Dataset", "IndexedView", "SimpleDataset", "TransformedView")


class Dataset:
    """Base of datasets. A subclass gives ``__getitem__`` and ``__len__``.

    ``__getitem__`` must raise IndexError past the end, because ``for sample in dataset`` ends by it.
    """

    def __getitem__(self, index: int) -> Any:
        """The sample at `index`."""
        raise NotImplementedError

    def __len__(self) -> int:
        """Number of samples."""
        raise NotImplementedError

    def labels(self) -> Array:
        """The label of every sample, (n,), as it is before any transform; no sample is made for it. For samplers.

        Raises:
            TypeError: this dataset cannot tell.
            ValueError: samples have several labels, or none.
        """
        raise TypeError(
            f"{type(self).__name__} cannot tell its labels: give an array with the label of every sample instead"
        )

    def transform(
        self, fn: Callable[..., Any], lazy: bool = True, *, concurrency: int | None = None
    ) -> Dataset:
        """The dataset with `fn` applied to every sample.

        Args:
            fn: takes the elements of a tuple sample as its arguments, any other sample (a list too) as one
                argument. If it has a parameter named ``rng``, it is given the sample's draws. An async function is
                awaited in the event loop of the loader's caller, many samples at a time.
            lazy: apply it whenever a sample is taken; False: to all samples now, and keep the results in
                memory.
            concurrency: of an async function, how many calls a loader has under way at most; None: 64. It also says
                that what a plain function returns is to be awaited.

        Raises:
            TypeError: `fn` cannot be called; or it is async, and `lazy` is False.
            ValueError: `concurrency` is less than 1.
        """
        return self._transformed(Stage(fn, first=False, concurrency=concurrency), lazy)

    def transform_first(
        self, fn: Callable[..., Any], lazy: bool = True, *, concurrency: int | None = None
    ) -> Dataset:
        """The dataset with `fn` applied to the first element of every sample, the others kept as they are.

        Args:
            fn: takes the first element, or a sample that is no tuple; see `transform` for ``rng`` and async functions.
            lazy, concurrency: see `transform`.

        Raises:
            TypeError, ValueError: as `transform` does.
        """
        return self._transformed(Stage(fn, first=True, concurrency=concurrency), lazy)

    def _transformed(self, stage: Stage, lazy: bool) -> Dataset:
        if stage.is_async and not lazy:
            raise TypeError(
                f"{stage.name} is async and needs an event loop, so it cannot be applied to all samples here and now: "
                "leave lazy as it is, or put `await dataset.get(index)` of all samples in a list"
            )
        view = TransformedView(self, stage)
        return view if lazy else SimpleDataset([view[index] for index in range(len(view))])

    async def get(self, index: int) -> Any:
        """The sample at `index`, as ``dataset[index]``, with async transforms awaited and all else done in a thread.

        For single samples in an event loop, a service or a notebook; a loader is faster for many. On cancellation what
        runs in a thread is waited for.

        Raises:
            Exception: what ``dataset[index]`` or a transform raises, as itself.
        """
        return await _in_thread(self.__getitem__, index)

    def filter(self, fn: Callable[[Any], object]) -> Dataset:
        """The samples that satisfy a condition. Every sample is looked at once, now.

        Args:
            fn: takes a sample (a tuple as one argument) and says whether it is kept.

        Raises:
            TypeError: `fn` is an async function.
        """
        check_sync(fn, "filter()")
        kept = (index for index in range(len(self)) if fn(self[index]))
        return IndexedView(self, np.fromiter(kept, dtype=np.int64))

    def shard(self, num_shards: int, index: int) -> Dataset:
        """One of `num_shards` contiguous parts; the first ``len(self) % num_shards`` parts are one longer.

        Raises:
            ValueError: not 0 <= index < num_shards (an AssertionError too).
        """
        require(index < num_shards, f"Shard index of out bound: {index} out of {num_shards}")
        require(num_shards > 0, "Number of shards must be greater than 0")
        require(index >= 0, "Index must be non-negative")
        share, longer = divmod(len(self), num_shards)
        start = share * index + min(index, longer)
        stop = start + share + (index < longer)
        return IndexedView(self, np.arange(start, stop, dtype=np.int64))

    def take(self, count: int | None) -> Dataset:
        """The first `count` samples; all of them if `count` is None or larger than their number.

        Raises:
            ValueError: `count` is negative.
        """
        length = len(self)
        if count is not None:
            require(count >= 0, f"count must not be negative, got {count}")
            length = min(length, count)
        return IndexedView(self, np.arange(length, dtype=np.int64))

    def sample(self, sampler: Sampler | PositionalSampler) -> Dataset:
        """The samples that a sampler gives, in its order; the sampler is iterated once, now.

        Raises:
            TypeError: not a sampler.
            IndexError: the sampler gives an index outside of this dataset.
        """
        if not isinstance(sampler, (Sampler, PositionalSampler)):
            raise TypeError(f"Invalid sampler type: {type(sampler)}. Expected gluon.data.Sampler instead.")
        indices = np.fromiter((int(index) for index in sampler), dtype=np.int64)
        length = len(self)
        outside = indices[(indices < -length) | (indices >= length)]
        if len(outside):
            raise IndexError(f"the sampler gives index {outside[0]}, but the dataset has {length} samples")
        return IndexedView(self, np.where(indices < 0, indices + length, indices))


class IndexedView(Dataset):
    """Some samples of another dataset, in some order.

    Args:
        parent: the other dataset.
        indices: int64 (n,), which of its samples, each at least 0.
    """

    def __init__(self, parent: MapDataset[Any], indices: IntArray) -> None:
        self._parent = parent
        self._indices = indices

    def __getitem__(self, index: int) -> Any:
        """The sample at `index`."""
        return self._parent[int(self._indices[operator.index(index)])]

    def view_parts(self) -> ViewParts | None:
        """Return the dataset below and the indices."""
        return ViewParts(self._parent, indices=self._indices) if _inherits_items(self, IndexedView) else None

    async def get(self, index: int) -> Any:
        """See `Dataset.get`."""
        if not _inherits_items(self, IndexedView):
            return await super().get(index)
        return await _get(self._parent, int(self._indices[operator.index(index)]))

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """The samples at some indices; see `FileDataset.__getitems__`."""
        return samples_of(self, indices, owner=IndexedView)

    def __len__(self) -> int:
        """Number of samples."""
        return len(self._indices)

    def labels(self) -> Array:
        """See `Dataset.labels`."""
        return class_labels(self._parent)[self._indices]


class TransformedView(Dataset):
    """Another dataset with something done to every sample.

    Args:
        parent: the other dataset.
        stage: what is done.
    """

    def __init__(self, parent: MapDataset[Any], stage: Stage) -> None:
        self._parent = parent
        self._stage = stage

    def __getitem__(self, index: int) -> Any:
        """The transformed sample; its draws come from a stream of this thread, seeded by the system."""
        return self._stage.apply(self._parent[index], default_rng())

    def view_parts(self) -> ViewParts | None:
        """Return the dataset below and the stage."""
        return ViewParts(self._parent, stage=self._stage) if _inherits_items(self, TransformedView) else None

    async def get(self, index: int) -> Any:
        """See `Dataset.get`."""
        if not _inherits_items(self, TransformedView):
            return await super().get(index)
        sample = await _get(self._parent, index)
        if self._stage.is_async:
            return await self._stage.apply_async(sample, default_rng())
        return await _in_thread(lambda: self._stage.apply(sample, default_rng()))

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """The samples at some indices; see `FileDataset.__getitems__`."""
        return samples_of(self, indices, owner=TransformedView)

    def __len__(self) -> int:
        """Number of samples."""
        return len(self._parent)

    def labels(self) -> Array:
        """See `Dataset.labels`."""
        return class_labels(self._parent)


def _inherits_items(view: Dataset, cls: type[Dataset]) -> bool:
    """Whether no class derived from `cls` has an ``__getitem__`` of its own."""
    return type(view).__getitem__ is cls.__getitem__


async def _in_thread(fn: Callable[..., Any], *args: Any) -> Any:
    from anyio import to_thread  # worker processes do without

    return await to_thread.run_sync(fn, *args)


async def _get(dataset: MapDataset[Any], index: int) -> Any:
    """A sample of a dataset beneath a view, which may be any object with items."""
    if isinstance(dataset, Dataset):
        return await dataset.get(index)
    return await _in_thread(dataset.__getitem__, index)


class SimpleDataset(Dataset):
    """Anything with a length and items, such as a list, as a `Dataset`.

    Args:
        data: the items.
    """

    def __init__(self, data: Any) -> None:
        self._data = data

    def __getitem__(self, index: int) -> Any:
        """Item `index` of the data."""
        return self._data[index]

    def view_parts(self) -> ViewParts | None:
        """Return the data, if they are a `Dataset` or can be gathered."""
        if not _inherits_items(self, SimpleDataset):
            return None
        known = self._data if isinstance(self._data, Dataset) else gathered(self._data)
        return None if known is None else ViewParts(known)

    async def get(self, index: int) -> Any:
        """See `Dataset.get`."""
        if isinstance(self._data, Dataset) and _inherits_items(self, SimpleDataset):
            return await self._data.get(index)
        return await super().get(index)

    def __len__(self) -> int:
        """Number of items."""
        return len(self._data)
