"""Parts of the loader's module that need `multiprocessing`: queues by MXNet's names, and the error of a timeout.

The queues pickle arrays by value; the loader itself does not use them.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.queues
from multiprocessing.reduction import ForkingPickler
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.mxnet.ndarray import NDArray

if TYPE_CHECKING:
    from collections.abc import Callable

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
