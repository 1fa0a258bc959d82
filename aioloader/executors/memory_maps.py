"""Pickling of objects with memory maps: an array over a file is sent as the file's name and the place in it.

Otherwise every worker receives a copy of the file's contents, which takes as long as reading it and needs as much
memory.
"""

from __future__ import annotations

import io
import mmap
import os
from typing import TYPE_CHECKING, Any

import cloudpickle
import numpy as np

from aioloader.executors.torch_storages import Storages

if TYPE_CHECKING:
    import pickle
    from collections.abc import Callable, Sequence

    from aioloader.foundation.types import Array


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """Pickler of what is sent to worker processes of this host; see `dumps`."""

    def __init__(
        self,
        file: io.BytesIO,
        buffer_callback: Callable[[pickle.PickleBuffer], Any] | None = None,
        share: Callable[[int], int] | None = None,
    ) -> None:
        super().__init__(file, protocol=5, buffer_callback=buffer_callback)
        self._apart = buffer_callback is not None
        self._storages = None if buffer_callback is None else Storages(share)

    def reducer_override(self, obj: Any) -> Any:
        reduced = None
        if isinstance(obj, np.ndarray):
            reduced = _reduce_map(obj)
            if reduced is None and self._apart and type(obj) is np.memmap:
                # numpy passes the memory of a plain array to the callback, but not that of a subclass.
                reduced = _as_map, (np.asarray(obj),)
        elif self._storages is not None:
            reduced = self._storages.reduce(obj)
        return super().reducer_override(obj) if reduced is None else reduced


class _InheritancePickler(Pickler):
    def __init__(self, file: io.BytesIO, *options: Any, inherited: Sequence[object]) -> None:
        super().__init__(file, *options)
        self._places = {id(each): place for place, each in enumerate(inherited)}

    def persistent_id(self, value: Any) -> int | None:
        return self._places.get(id(value))


def dumps(
    obj: Any,
    buffer_callback: Callable[[pickle.PickleBuffer], Any] | None = None,
    share: Callable[[int], int] | None = None,
    inherited: Sequence[object] = (),
) -> bytes:
    """Return a pickle of any object, by cloudpickle and with protocol 5; memory maps are sent by name.

    An array is sent by name if it is a `numpy.memmap`, or a view of one, of a file that is still there, and writes to
    it go to the file or are forbidden (modes "r", "r+" and "w+"). The pickle must be loaded on the same host, while
    the file exists.

    Args:
        obj: the object.
        buffer_callback: as for `pickle.dumps`. With it the memory of torch's tensors is passed to it, too.
        share: called with the descriptor of each of torch's tensors in shared memory, returns the one that the reader
            has; None: they are pickled like others.
        inherited: objects that the reader has: they are sent as their places in this sequence.

    Raises:
        Exception: some part of it cannot be pickled.
    """
    with io.BytesIO() as file:
        if inherited:
            _InheritancePickler(file, buffer_callback, share, inherited=inherited).dump(obj)
        else:
            Pickler(file, buffer_callback, share).dump(obj)
        return file.getvalue()


def _as_map(array: Array) -> Array:
    return array.view(np.memmap)


def open_map(
    path: str,
    mode: Any,
    offset: int,
    nbytes: int,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    start: int,
    strides: tuple[int, ...],
    as_map: bool,
) -> Array:
    """Return an array over a memory map of a part of a file.

    Args:
        path: the file.
        mode: "r" or "r+".
        offset, nbytes: the part.
        shape, dtype, strides: of the array.
        start: byte of the part at which the array's first element is.
        as_map: return a `numpy.memmap`.

    Raises:
        OSError: the file cannot be opened.
    """
    data = np.memmap(path, np.uint8, mode, offset, (nbytes,))
    kind: Any = np.memmap if as_map else np.ndarray
    # As numpy's own class does it: the array keeps the map open.
    view: Array = np.ndarray.__new__(kind, shape, dtype, data, start, strides)
    return view


def _reduce_map(array: Array) -> tuple[Any, ...] | None:
    """Return how to make an array that is over a memory map of a file; None for another array."""
    source = _map_of(array)
    if source is None or not array.size or array.dtype.hasobject:
        return None
    path, mode = source.filename, source.mode
    if path is None or mode not in ("r", "r+", "w+"):  # with "c", writes are kept in memory
        return None
    held: Any = source._mmap  # type: ignore[attr-defined]  # of the whole map; `source` may be a part of it
    begin = np.frombuffer(held, np.uint8).ctypes.data
    low, high = _bounds(array)
    if low < begin or high > begin + len(held):
        return None
    # numpy maps from a multiple of the granularity on; a part has the offset of the array that it was taken from.
    at = source.offset - source.offset % mmap.ALLOCATIONGRANULARITY + low - begin
    try:
        if os.stat(path).st_size < at + high - low:
            return None
    except OSError:
        return None
    place = os.fspath(path), "r" if mode == "r" else "r+", at, high - low
    as_map = isinstance(array, np.memmap)
    return open_map, (*place, array.shape, array.dtype, array.ctypes.data - low, array.strides, as_map)


def _map_of(array: Array) -> np.memmap[Any, Any] | None:
    """Return the memory map that an array is a view of, or None."""
    each: Any = array
    while isinstance(each, np.ndarray):
        if isinstance(each, np.memmap) and getattr(each, "_mmap", None) is not None:
            return each
        each = each.base
    return None


def _bounds(array: Array) -> tuple[int, int]:
    """Return the addresses of the first byte of an array and behind its last one."""
    low = high = array.ctypes.data
    for extent, stride in zip(array.shape, array.strides, strict=True):
        if stride < 0:
            low += (extent - 1) * stride
        else:
            high += (extent - 1) * stride
    return low, high + array.itemsize
