"""Pickling of torch's tensors for worker processes: without their memory, and with shared memory by its descriptor.

Torch itself copies the memory of every tensor into the pickle. It is not imported here: only a program that has
imported it can have tensors.
"""

from __future__ import annotations

import ctypes
import mmap
import pickle
import sys
import warnings
from typing import TYPE_CHECKING, Any

from aioloader.executors.mapped_files import MappedFiles
from aioloader.foundation.descriptors import sent_descriptors

if TYPE_CHECKING:
    from collections.abc import Callable


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
