"""`mx.gluon.data.dataloader`: `DataLoader` with MXNet's arguments and batches, on `aioloader.DataLoader`.

This module only translates. It adds the order: MXNet draws it from `numpy.random` in the caller's thread, so it is
drawn here when a pass begins, and passed to the loader as a batch sampler. The draws of transforms depend on
`mx.random.seed` and the number of passes since then.
"""

from __future__ import annotations

import importlib
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

import aioloader
from aioloader.errors import SampleError, StalledError, WorkerError, error_report
from aioloader.foundation.validation import require
from aioloader.loader.options import LoaderOptions, error_limits
from aioloader.mxnet import random as mx_random
from aioloader.mxnet.base import names_in
from aioloader.mxnet.context import Context, cpu_pinned
from aioloader.mxnet.gluon.data.batchify import Stack, as_batch, default_batchify_fn, default_mp_batchify_fn
from aioloader.mxnet.gluon.data.dataset import made_of
from aioloader.mxnet.gluon.data.sampler import BatchSampler, RandomSampler, SequentialSampler
from aioloader.mxnet.ndarray.ndarray import NDArray

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, MutableMapping
    from contextlib import AbstractContextManager

    from aioloader.abc import MapDataset, Sampler
    from aioloader.mxnet.gluon.data._multiprocessing import (
        ConnectionWrapper,
        Queue,
        SimpleQueue,
        rebuild_ndarray,
        rebuild_np_ndarray,
        reduce_ndarray,
        reduce_np_ndarray,
    )

__all__ = (
    "ConnectionWrapper",
    "DataLoader",
    "DataLoaderV1",
    "Queue",
    "SimpleQueue",
    "default_batchify_fn",
    "default_mp_batchify_fn",
    "fetcher_loop_v1",
    "rebuild_ndarray",
    "rebuild_np_ndarray",
    "reduce_ndarray",
    "reduce_np_ndarray",
    "worker_loop_v1",
)

# These need multiprocessing: they are loaded when they are first used.
_LAZY = names_in(
    "ConnectionWrapper ForkingPickler Queue SimpleQueue _MultiWorkerIter _as_in_context _worker_fn "
    "rebuild_ndarray rebuild_np_ndarray reduce_ndarray reduce_np_ndarray"
)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module("aioloader.mxnet.gluon.data._multiprocessing")
    value = globals()[name] = getattr(module, name)
    return value


class _Orders:
    """Order of every pass, as the loader's batch sampler.

    Args:
        batches: MXNet's batch sampler.
        at_once: draw the order of a pass when the pass begins; False: with its first batch.
    """

    def __init__(self, batches: Any, at_once: bool) -> None:
        self._batches = batches
        self._at_once = at_once

    def __iter__(self) -> Iterator[Any]:
        if isinstance(self._batches, BatchSampler):
            return self._batches.batches(self._at_once)
        return iter(self._batches)

    def __len__(self) -> int:
        return len(self._batches)


class DataLoaderIter:
    """One pass over a `DataLoader`. Dropping it ends the pass and keeps the workers.

    Args:
        loader: the loader, which the iterator keeps alive.
        batches: iterator of the `aioloader.DataLoader`.
    """

    def __init__(self, loader: DataLoader, batches: Iterator[Any]) -> None:
        self._loader = loader
        self._take = batches.__next__
        self._collated = loader._collated
        self._context = cpu_pinned(loader._pin_device_id) if loader._pin_memory else None

    def __iter__(self) -> DataLoaderIter:
        return self

    def __len__(self) -> int:
        return len(self._loader)

    def __next__(self) -> Any:
        """Return the next batch: an NDArray, a list of them for samples of several fields, or `batchify_fn`'s result.

        Raises:
            StopIteration: the pass is over, or has failed before.
            multiprocessing.TimeoutError: a sample made no progress for `timeout` seconds; a TimeoutError too.
            Exception: the dataset, a transform or `batchify_fn` raised it for this batch.
        """
        try:
            batch = self._take()
            if self._collated:
                batch = as_batch(batch)
            return batch if self._context is None else _in_context(batch, self._context)
        except StopIteration:
            self._loader._passed()
            raise
        except SampleError as error:
            raise _original(error, self._loader._apart) from error
        except WorkerError as error:
            _name_our_argument(error)
            raise

    next = __next__


def _name_our_argument(error: WorkerError) -> None:
    """Put this loader's argument for threads into the text of an error."""
    error.args = tuple(
        each.replace("executor='thread'", "thread_pool=True") if isinstance(each, str) else each
        for each in error.args
    )


def _original(error: SampleError, apart: bool) -> BaseException:
    """Return the error of the caller's code, with a note of the sample.

    Args:
        error: the loader's error.
        apart: it was raised in another process.
    """
    cause = error.__cause__
    if cause is None:
        return error
    error.__cause__ = None  # it is raised from this one
    if isinstance(cause, StalledError):
        from aioloader.mxnet.gluon.data._multiprocessing import BatchTimeoutError

        cause = BatchTimeoutError(str(cause))
    if isinstance(cause, WorkerError):
        _name_our_argument(cause)
    cause.add_note(f"{error.dataset}: sample at index {error.index}, in {error.stage}")
    if apart and isinstance(cause, AttributeError | NameError | ImportError):
        cause.add_note(
            "it was raised in a worker, which is a new process and not a fork as in MXNet: names that the script added "
            "to modules, or replaced in them, are absent there; set them in the module that defines the dataset, or "
            "pass thread_pool=True"
        )
    return cause


class DataLoader:
    """Loader of batches of a dataset, with MXNet's arguments, of 1.9.1 and of 2.0.

    Batches are NDArrays; samples that are tuples become a list of them. They come in the sampler's order for any number
    of workers. An error in the dataset, a transform or `batchify_fn` is raised unchanged at its batch, and the loader
    can be used again.

    Args:
        dataset: any object with ``__len__`` and ``__getitem__``, such as an array.
        batch_size: samples of a batch; required unless `batch_sampler` is given.
        shuffle: draw a new order in each pass, from `numpy.random` as MXNet does.
        sampler: iterable of indices, with ``len``; excludes `shuffle`.
        last_batch: "keep" (the default), "discard" or "rollover".
        batch_sampler: iterable of lists of indices, with ``len``; excludes the four above.
        batchify_fn: makes a batch from a list of samples, in a worker; default `batchify.Stack`.
        num_workers: 0: in this thread. Data in memory without transforms needs no workers and starts none.
        pin_memory, pin_device_id: batches name the context ``mx.cpu_pinned(pin_device_id)``; no memory is pinned.
        prefetch: batches in flight at a time, at least one; None: twice the workers.
        thread_pool: workers are threads.
        timeout: seconds without progress on a sample after which it fails.
        try_nopython: None, True, False or "Auto"; accepted: there is only one loader, which chooses by itself.
        auto_reload: begin the next pass when the last one ends, and the first one now.
        on_error: "raise", "skip" or "replace" a sample that fails, see `aioloader.DataLoader`. Not in MXNet.
        max_errors: with "skip" and "replace", the number or share of samples that may fail. Not in MXNet.

    Raises:
        ValueError: arguments are not allowed, or exclude each other.
    """

    _pass: ClassVar[type[DataLoaderIter]] = DataLoaderIter
    _worker_pool: ClassVar[Any] = None  # scripts that need MXNet's pool find that there is none

    def __init__(
        self,
        dataset: MapDataset[Any],
        batch_size: int | None = None,
        shuffle: bool = False,
        sampler: Sampler | None = None,
        last_batch: str | None = None,
        batch_sampler: Any = None,
        batchify_fn: Callable[[list[Any]], Any] | None = None,
        num_workers: int = 0,
        pin_memory: bool = False,
        pin_device_id: int = 0,
        prefetch: int | None = None,
        thread_pool: bool = False,
        timeout: float = 120,
        try_nopython: bool | str | None = None,
        auto_reload: bool = False,
        *,
        on_error: str = "raise",
        max_errors: float | None = None,
    ) -> None:
        require(timeout > 0, f"timeout must be positive, given {timeout}")
        if try_nopython not in (None, True, False, "Auto", "auto"):
            raise ValueError(f'try_nopython must be None, True, False or "Auto", got {try_nopython!r}')
        # MXNet's rules for arguments that exclude each other are those of the loader's options.
        LoaderOptions(
            dataset,
            batch_size,
            shuffle=shuffle,
            sampler=sampler,
            last_batch=last_batch,
            batch_sampler=batch_sampler,
        )
        self._dataset = dataset
        if batch_sampler is None:
            assert batch_size is not None
            if sampler is None:
                sampler = (RandomSampler if shuffle else SequentialSampler)(len(dataset))
            batch_sampler = BatchSampler(sampler, batch_size, last_batch or "keep")
        self._batch_sampler = batch_sampler
        # Scripts assign these, and classes that are derived from MXNet's loader use them in their own iterator.
        self._num_workers = max(0, num_workers)
        self._pin_memory, self._pin_device_id = pin_memory, pin_device_id
        self._batchify_fn = default_batchify_fn if batchify_fn is None else batchify_fn
        self._prefetch = max(0, int(2 * self._num_workers if prefetch is None else prefetch))
        self._timeout, self._thread_pool = timeout, thread_pool
        self._options: dict[str, Any] = {
            "on_error": on_error,
            **({"prefetch": None} if prefetch is None else {}),  # chosen by the loader
            **(error_limits(max_errors) if on_error != "raise" else {}),
        }
        self._noted: list[SampleError] = []  # of the loaders before this one
        self._open()
        self.auto_reload = bool(auto_reload)
        self._iter: Any = self._prefetch_iter() if self.auto_reload else None

    @property
    def _collated(self) -> bool:
        """Return False if the result of a caller's function is the batch."""
        return self._batchify_fn is default_batchify_fn or type(self._batchify_fn) is Stack

    @property
    def _apart(self) -> bool:
        """Return True if samples are made in other processes."""
        return self._num_workers > 0 and not self._thread_pool

    def _made_of(self) -> list[Any]:
        """Return all that the loader below was made from, attributes that scripts assign."""
        return [
            *(self._batch_sampler, self._batchify_fn, self._num_workers, self._thread_pool),
            *(self._prefetch, self._timeout, *made_of(self._dataset)),
        ]

    def _open(self) -> None:
        self._parts = self._made_of()
        self._engine: aioloader.DataLoader[Any] = aioloader.DataLoader(
            _items(self._dataset),
            batch_sampler=_Orders(self._batch_sampler, at_once=self._num_workers > 0),
            batchify_fn=None if self._collated else self._batchify_fn,
            num_workers=self._num_workers,
            executor="thread" if self._thread_pool else "process",
            timeout=self._timeout,
            # In one thread the global generators are used in the sampler's order, as in MXNet.
            watch_globals=self._num_workers > 0,
            **{"prefetch": max(1, self._prefetch), **self._options},
        )

    def _prefetch_iter(self) -> Any:
        """Begin a pass. A derived class may return another iterator of batches."""
        parts = self._made_of()
        if len(parts) != len(self._parts) or not all(map(_same, parts, self._parts)):
            self._noted += self._engine.errors
            self._open()
        # Only the seed and this number decide the draws of a pass.
        self._engine.set_epoch(mx_random.next_pass())
        try:
            return self._pass(self, iter(self._engine))
        except WorkerError as error:
            _name_our_argument(error)
            raise

    def __iter__(self) -> Any:
        """Begin a new pass. With workers, work on it begins now."""
        ahead, self._iter = self._iter, None
        batches = self._prefetch_iter() if ahead is None else ahead
        return batches if isinstance(batches, DataLoaderIter) else self._followed(batches)

    def _followed(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield the batches of a derived class's own iterator."""
        yield from batches
        self._passed()

    def refresh(self) -> None:
        """Begin the next pass now, for the next ``iter``."""
        self._iter = self._prefetch_iter()

    def clean(self) -> None:
        """Drop the pass that `refresh` or `auto_reload` began."""
        self._iter = None

    @property
    def errors(self) -> list[SampleError]:
        """Return the errors of all samples that failed so far, in the order of delivery. Not in MXNet."""
        return [*self._noted, *self._engine.errors]

    def error_report(self) -> dict[str, Any]:
        """Return every sample that failed so far, as a JSON object; see `aioloader.DataLoader`. Not in MXNet."""
        return error_report(self.errors)

    def _passed(self) -> None:
        if self.auto_reload and self._iter is None:
            self.refresh()

    def __len__(self) -> int:
        """Return the number of batches of the next pass."""
        return len(self._batch_sampler)

    def __enter__(self) -> DataLoader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the workers and all passes; garbage collection does so too. May be called twice."""
        self.clean()
        self._engine.close()


def _same(one: Any, other: Any) -> bool:
    # Some are numbers.
    return one is other or (type(one) in (int, float, str) and one == other)


def _in_context(batch: Any, context: Context) -> Any:
    """Return a batch whose NDArrays name a context."""
    if isinstance(batch, NDArray):
        return batch.as_in_context(context)
    if type(batch) in (list, tuple):
        return type(batch)(_in_context(each, context) for each in batch)
    return batch


def _items(dataset: MapDataset[Any]) -> MapDataset[Any]:
    """Return the dataset in the form that the loader takes."""
    if isinstance(dataset, NDArray):
        # An element of a vector is an NDArray of shape (1,).
        array = np.asarray(dataset)
        return array[:, None] if array.ndim == 1 else array
    return dataset


# --- the loader of MXNet's first releases ---


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
    """`DataLoader` whose iterators can be shut down.

    Args:
        dataset, batch_size, shuffle, sampler, last_batch, batch_sampler, batchify_fn, num_workers, pin_memory,
            pin_device_id: see `DataLoader`, whose other arguments are accepted too.
    """

    _pass = DataLoaderV1Iter


def worker_loop_v1(
    dataset: MapDataset[Any], key_queue: Any, data_queue: Any, batchify_fn: Callable[[list[Any]], Any]
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
        with data_buffer_lock or nullcontext():
            data_buffer[number] = batch
