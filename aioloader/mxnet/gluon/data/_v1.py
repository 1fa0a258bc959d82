"""The loader of MXNet's first releases, and the loops of its processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioloader.foundation.validation import require
from aioloader.mxnet.gluon.data.dataloader import DataLoader, DataLoaderIter

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping
    from contextlib import AbstractContextManager

__all__ = ("DataLoaderV1", "DataLoaderV1Iter", "fetcher_loop_v1", "worker_loop_v1")


class DataLoaderV1Iter(DataLoaderIter):
    """One pass over a `DataLoaderV1`."""

    _shut = False

    def __next__(self) -> Any:
        """Return the next batch; see `DataLoaderIter`.

        Raises:
            AssertionError: `shutdown` was called.
        """
        require(not self._shut, "call __next__ after shutdown is forbidden")
        return super().__next__()

    next = __next__

    def shutdown(self) -> None:
        """End the pass. May be called twice."""
        self._shut = True
        self._take = iter(()).__next__


class DataLoaderV1(DataLoader):
    """`DataLoader` with the arguments of MXNet's first releases, and iterators that can be shut down.

    Args:
        dataset, batch_size, shuffle, sampler, last_batch, batch_sampler, batchify_fn, num_workers, pin_memory,
            pin_device_id: see `DataLoader`.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = None,
        shuffle: bool = False,
        sampler: Any = None,
        last_batch: str | None = None,
        batch_sampler: Any = None,
        batchify_fn: Callable[[list[Any]], Any] | None = None,
        num_workers: int = 0,
        pin_memory: bool = False,
        pin_device_id: int = 0,
    ) -> None:
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            last_batch,
            batch_sampler,
            batchify_fn,
            num_workers,
            pin_memory,
            pin_device_id,
        )

    def __iter__(self) -> DataLoaderV1Iter:
        """Begin a new pass."""
        return DataLoaderV1Iter(self, self._begin())


def worker_loop_v1(
    dataset: Any, key_queue: Any, data_queue: Any, batchify_fn: Callable[[list[Any]], Any]
) -> None:
    """Make batches until the queue ends the loop: the work of a process of the first loader.

    Args:
        dataset: source of the samples.
        key_queue: has (number, indices) for each batch; a number of None ends the loop.
        data_queue: receives (number, batch).
        batchify_fn: makes a batch of a list of samples.
    """
    while True:
        number, indices = key_queue.get()
        if number is None:
            return
        data_queue.put((number, batchify_fn([dataset[index] for index in indices])))


def fetcher_loop_v1(
    data_queue: Any,
    data_buffer: MutableMapping[Any, Any],
    pin_memory: bool = False,
    pin_device_id: int = 0,
    data_buffer_lock: AbstractContextManager[Any] | None = None,
) -> None:
    """Put batches into a buffer by their number, until the queue ends the loop.

    Args:
        data_queue: has (number, batch); a number of None ends the loop.
        data_buffer: receives the batches by number.
        pin_memory, pin_device_id: accepted; no memory is pinned.
        data_buffer_lock: held while `data_buffer` is changed; None for none.
    """
    del pin_memory, pin_device_id
    while True:
        number, batch = data_queue.get()
        if number is None:
            return
        if data_buffer_lock is None:
            data_buffer[number] = batch
            continue
        with data_buffer_lock:
            data_buffer[number] = batch
