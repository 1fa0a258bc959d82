"""Parts of the loader's module that need `multiprocessing`: queues by MXNet's names, and the error of a timeout.

The queues pickle arrays by value; the loader itself does not use them.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.queues
import pickle
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.mxnet.context import cpu_pinned
from aioloader.mxnet.ndarray.ndarray import NDArray

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioloader.mxnet.context import Context

    _Queue = multiprocessing.queues.Queue[Any]
else:
    _Queue = multiprocessing.queues.Queue


class BatchTimeoutError(multiprocessing.TimeoutError, TimeoutError):
    """Error raised when a sample of a batch made no progress for the loader's `timeout`."""


class ConnectionWrapper:
    """Connection of `multiprocessing` whose objects go through its own pickler; other attributes are the connection's.

    Args:
        conn: the connection.
    """

    def __init__(self, conn: Any) -> None:
        self.conn = conn

    def send(self, obj: Any) -> None:
        """Send an object."""
        self.conn.send_bytes(ForkingPickler.dumps(obj))

    def recv(self) -> Any:
        """Receive an object; blocks."""
        return ForkingPickler.loads(self.conn.recv_bytes())

    def __getattr__(self, name: str) -> Any:
        if name == "conn":  # missing while the object is being unpickled
            raise AttributeError(name)
        return getattr(self.conn, name)


class Queue(_Queue):
    """Queue between processes that takes NDArrays.

    Args:
        maxsize: largest number of waiting objects; 0 for no limit.
        ctx: the context of the processes that share it; None: that of `multiprocessing`.
    """

    def __init__(self, maxsize: int = 0, *, ctx: Any = None) -> None:
        super().__init__(maxsize, ctx=ctx or multiprocessing.get_context())


class SimpleQueue(multiprocessing.queues.SimpleQueue[Any]):
    """Queue between processes, without its own thread, that takes NDArrays.

    Args:
        ctx: see `Queue`.
    """

    def __init__(self, *, ctx: Any = None) -> None:
        super().__init__(ctx=ctx or multiprocessing.get_context())


class _MultiWorkerIter:
    """Batches from a pool of the caller, for libraries that derive their own loader from MXNet's.

    Args:
        worker_pool: a pool of `multiprocessing`.
        batchify_fn: makes a batch from a list of samples.
        batch_sampler: the indices of each batch.
        pin_memory, pin_device_id: batches name the context ``mx.cpu_pinned(pin_device_id)``.
        worker_fn: runs in the pool, with the indices, `batchify_fn` and `dataset`.
        prefetch: batches in the pool at a time.
        dataset: is passed to `worker_fn`; None: its result is a pickled batch.
        data_loader: is kept alive.
        timeout: seconds to wait for a batch.
    """

    def __init__(
        self,
        worker_pool: Any,
        batchify_fn: Callable[[list[Any]], Any],
        batch_sampler: Any,
        pin_memory: bool = False,
        pin_device_id: int = 0,
        worker_fn: Callable[..., Any] | None = None,
        prefetch: int = 0,
        dataset: Any = None,
        data_loader: Any = None,
        timeout: float = 120,
    ) -> None:
        self._worker_pool = worker_pool
        self._batchify_fn = batchify_fn
        self._batch_sampler = batch_sampler
        self._data_buffer: dict[int, Any] = {}
        self._rcvd_idx = self._sent_idx = 0
        self._iter = iter(batch_sampler)
        self._worker_fn = worker_fn or _worker_fn
        self._pin_memory, self._pin_device_id = pin_memory, pin_device_id
        self._dataset, self._data_loader = dataset, data_loader
        self._timeout = timeout
        for _ in range(prefetch):
            self._push_next()

    def __len__(self) -> int:
        return len(self._batch_sampler)

    def _push_next(self) -> None:
        """Give the next batch to the pool."""
        indices = next(self._iter, None)
        if indices is None:
            return
        work = (indices, self._batchify_fn, self._dataset)
        self._data_buffer[self._sent_idx] = self._worker_pool.apply_async(self._worker_fn, work)
        self._sent_idx += 1

    def __next__(self) -> Any:
        """Return the next batch.

        Raises:
            StopIteration: the pass is over.
            BatchTimeoutError: the batch took more than `timeout` seconds.
        """
        self._push_next()
        if self._rcvd_idx == self._sent_idx:
            raise StopIteration
        answer = self._data_buffer.pop(self._rcvd_idx)
        try:
            batch = answer.get(self._timeout)
        except multiprocessing.TimeoutError as error:
            raise BatchTimeoutError(f"batch {self._rcvd_idx} took more than {self._timeout} s") from error
        if self._dataset is None:
            batch = pickle.loads(batch)
        self._rcvd_idx += 1
        return _as_in_context(batch, cpu_pinned(self._pin_device_id)) if self._pin_memory else batch

    next = __next__

    def __iter__(self) -> _MultiWorkerIter:
        return self


def _worker_fn(samples: Any, batchify_fn: Callable[[list[Any]], Any], dataset: Any = None) -> Any:
    """Return a batch of these samples."""
    return batchify_fn([dataset[index] for index in samples])


def _as_in_context(data: Any, ctx: Context) -> Any:
    """Return arrays under the name of a context; lists and tuples become lists."""
    if isinstance(data, NDArray):
        return data.as_in_context(ctx)
    if isinstance(data, list | tuple):
        return [_as_in_context(each, ctx) for each in data]
    return data


def reduce_ndarray(data: Any) -> tuple[Callable[..., NDArray], tuple[bytes, str, tuple[int, ...]]]:
    """Return the pickled form of an NDArray: a function that rebuilds it, and its arguments (values, dtype, shape)."""
    array = np.ascontiguousarray(data)
    return rebuild_ndarray, (array.tobytes(), array.dtype.str, np.shape(data))


def rebuild_ndarray(values: bytes, dtype: str, shape: tuple[int, ...]) -> NDArray:
    """Return the array that `reduce_ndarray` described."""
    return np.frombuffer(bytearray(values), np.dtype(dtype)).reshape(shape).view(NDArray)


# There is one kind of array here.
reduce_np_ndarray = reduce_ndarray
rebuild_np_ndarray = rebuild_ndarray
