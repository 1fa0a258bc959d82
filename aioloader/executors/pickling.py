"""Pickling of objects with memory maps: an array over a file is sent as the file's name and the place in it.

Otherwise every worker receives a copy of the file's contents, which takes as long as reading it and needs as much
memory. The files are found in the system's table of maps, whichever library made the map; only Linux has the table.
Elsewhere nothing is found, and memory is copied.

Torch's tensors are sent without their memory, and with shared memory by its descriptor; torch itself copies the memory
of every tensor into the pickle. It is not imported here: only a program that has imported it can have tensors.
"""

from __future__ import annotations

import bisect
import ctypes
import io
import mmap
import os
import pickle
import sys
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import cloudpickle
import numpy as np

from aioloader.foundation.descriptors import sent_descriptors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.foundation.types import Array


class Storages:
    """Reductions of the storages of one pickle; several tensors may have parts of one.

    Args:
        share: called with the descriptor of a storage in shared memory, returns the one that the reader has; None: such
            storages are pickled like others.
    """

    def __init__(self, share: Callable[[int], int] | None) -> None:
        self._share = share
        self._seen: dict[int, Any] = {}
        self._files: MappedFiles | None = None

    def reduce(self, obj: Any) -> tuple[Any, ...] | None:
        """Return how to make a storage in memory again; None for anything else."""
        torch: Any = sys.modules.get("torch")
        if torch is None or not hasattr(torch, "UntypedStorage"):  # it is just being imported
            return None
        if isinstance(obj, torch.storage.TypedStorage):
            untyped = obj._untyped_storage
            if not _in_memory(untyped):
                return None
            return typed_storage, (self._seen.setdefault(untyped._cdata, untyped), obj.dtype)
        if not isinstance(obj, torch.UntypedStorage) or not _in_memory(obj):
            return None
        shared = self._shared(torch, obj)
        if shared is not None:
            return shared
        return open_storage, (pickle.PickleBuffer(_memory(obj)),)

    def _shared(self, torch: Any, storage: Any) -> tuple[Any, ...] | None:
        if self._share is None or not storage.is_shared():
            return None
        if self._files is None:
            self._files = MappedFiles()
        place = self._files.place_of(memoryview(_memory(storage)))
        if place is not None and place.shared and place.writable:
            return open_named, (place.path, place.offset, place.nbytes)
        if torch.multiprocessing.get_sharing_strategy() != "file_descriptor":
            return None  # asking for a descriptor would move it
        fd, nbytes = storage._share_fd_cpu_()
        if fd < 0:
            return None  # a map of a file
        return open_shared, (self._share(fd), nbytes)


def _in_memory(storage: Any) -> bool:
    return bool(storage.device.type == "cpu" and storage.nbytes() > 0)


def _memory(storage: Any) -> Any:
    return (ctypes.c_char * storage.nbytes()).from_address(storage.data_ptr())


def typed_storage(untyped: Any, dtype: Any) -> Any:
    """Return a typed storage, which torch makes tensors of."""
    import torch

    return torch.storage.TypedStorage(wrap_storage=untyped, dtype=dtype, _internal=True)


def open_storage(memory: Any) -> Any:
    """Return a storage over memory."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch has no storage that cannot be written to
        return torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()


def open_named(path: str, offset: int, nbytes: int) -> Any:
    """Return a storage over a part of a file; what is written to it goes to the file."""
    begin = offset - offset % mmap.ALLOCATIONGRANULARITY
    with open(path, "r+b") as file:
        whole = mmap.mmap(file.fileno(), offset + nbytes - begin, offset=begin)
    return open_storage(memoryview(whole)[offset - begin :])


def open_shared(fd: int, nbytes: int) -> Any:
    """Return a storage over shared memory of torch, of which this process has inherited the descriptor."""
    import torch

    return torch.UntypedStorage._new_shared_fd_cpu(sent_descriptors.here(fd), nbytes)


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
    part: tuple[str, Any, int, int],
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    start: int,
    strides: tuple[int, ...],
    as_map: bool,
) -> Array:
    """Return an array over a memory map of a part of a file.

    Args:
        part: path of the file, "r" or "r+", offset and number of bytes.
        shape, dtype, strides: of the array.
        start: byte of the part at which the array's first element is.
        as_map: return a `numpy.memmap`.

    Raises:
        OSError: the file cannot be opened.
    """
    path, mode, offset, nbytes = part
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
    part = os.fspath(path), "r" if mode == "r" else "r+", at, high - low
    as_map = isinstance(array, np.memmap)
    return open_map, (part, array.shape, array.dtype, array.ctypes.data - low, array.strides, as_map)


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


_PAGE = mmap.PAGESIZE


class FilePlace(NamedTuple):
    """Place in a file.

    Attributes:
        path: the file.
        offset, nbytes: the part of it.
        shared: what is written to the memory goes to the file, and is seen by all processes.
        writable: the memory can be written to.
    """

    path: str
    offset: int
    nbytes: int
    shared: bool
    writable: bool


class _Map(NamedTuple):
    start: int
    stop: int
    access: str
    offset: int
    file: tuple[str, str]  # device and inode
    path: str


def _maps() -> list[_Map]:
    """Return the maps of files, by address."""
    found = []
    try:
        with open("/proc/self/maps", errors="surrogateescape") as table:
            for line in table:
                words = line.split(maxsplit=5)
                if len(words) == 6 and words[5].startswith("/"):
                    start, stop = (int(word, 16) for word in words[0].split("-"))
                    path = words[5].rstrip("\n")
                    found.append(_Map(start, stop, words[1], int(words[2], 16), (words[3], words[4]), path))
    except OSError:
        return []
    return found


class MappedFiles:
    """Maps of files as they are when this object is made."""

    def __init__(self) -> None:
        self._maps = _maps()
        self._starts = [each.start for each in self._maps]
        self._same: dict[tuple[str, tuple[str, str]], bool] = {}

    def place_of(self, memory: memoryview) -> FilePlace | None:
        """Return the place in a file that memory is mapped from; None if it is from elsewhere, or differs from it.

        Memory of a private map, whose writes do not reach the file, differs once it was written to.

        Args:
            memory: contiguous bytes.
        """
        address, nbytes = np.frombuffer(memory, np.uint8).ctypes.data, memory.nbytes
        at = bisect.bisect(self._starts, address) - 1
        if at < 0 or not nbytes or address >= self._maps[at].stop:
            return None
        first = self._maps[at]
        while self._maps[at].stop < address + nbytes:  # a map may be several, of different access
            if at + 1 == len(self._maps):
                return None
            last, at = self._maps[at], at + 1
            following = self._maps[at]
            if (
                (following.start, following.file, following.access) != (last.stop, last.file, last.access)
                or following.offset != last.offset + last.stop - last.start
            ):  # fmt: skip
                return None
        place = FilePlace(
            first.path,
            first.offset + address - first.start,
            nbytes,
            first.access[3] == "s",
            first.access[1] == "w",
        )
        if not self._is_file(first, place):
            return None
        return None if not place.shared and _written(first.start, self._maps[at].stop) else place

    def _is_file(self, found: _Map, place: FilePlace) -> bool:
        """Return whether the path still leads to the file, which is as long as the map."""
        try:
            if os.stat(place.path).st_size < place.offset + place.nbytes:
                return False
        except (OSError, ValueError):
            return False
        key = found.path, found.file
        if key not in self._same:
            self._same[key] = _file_at(found.path) == found.file
        return self._same[key]


def _file_at(path: str) -> tuple[str, str] | None:
    """Return device and inode of a file as the table of maps has them, which may differ from those of `os.stat`."""
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 1, access=mmap.ACCESS_READ) as probe:
            address = np.frombuffer(probe, np.uint8).ctypes.data
            return next((each.file for each in _maps() if each.start <= address < each.stop), None)
    except (OSError, ValueError, BufferError):
        return None


def _written(start: int, stop: int) -> bool:
    """Return whether pages of private maps were written to, from the start of one to the end of one."""
    inside = False
    try:
        with open("/proc/self/smaps", errors="surrogateescape") as table:
            for line in table:
                head = line.split(maxsplit=1)[0]
                if "-" in head and not head.endswith(":"):
                    low, high = (int(word, 16) for word in head.split("-"))
                    if low >= stop:
                        return False
                    inside = start <= low and high <= stop
                elif inside and head == "Anonymous:" and int(line.split()[1]):
                    return True
    except (OSError, ValueError):
        return True
    return False
