"""Messages to worker processes and their answers, in a form that other processes and machines can read.

Large memory of what is sent goes by name where it is that of a file, else once for all workers: otherwise every worker
would receive a separate copy through its socket. Results and exceptions come back.
"""

from __future__ import annotations

import io
import itertools
import mmap
import os
import pickle
import traceback
from typing import TYPE_CHECKING, Any, NamedTuple

import cloudpickle
import numpy as np

from aioloader.errors import WorkerError
from aioloader.executors.pickling import FilePlace, MappedFiles, dumps
from aioloader.foundation.descriptors import anonymous_file, sent_descriptors
from aioloader.foundation.error_log import (
    TRACEBACK,
    add_note,
    describe,
    detach,
    is_printable,
    printable,
    remove_note,
    set_args,
    traceback_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from aioloader.foundation.types import ChunkResult


LARGE = 1 << 16
"""Bytes from which on memory is not part of a pickle."""
_ALIGN = 64
_PART = 1 << 30


class SharedPlace(NamedTuple):
    """Place in an anonymous file, whose descriptor a worker inherits.

    Attributes:
        fd: the descriptor.
        offset, nbytes: the part of the file.
        writable: the worker may write to its memory, of which it then has a copy.
    """

    fd: int
    offset: int
    nbytes: int
    writable: bool


class SentObject:
    """Object that worker processes of this host receive.

    Args:
        obj: the object.
        inherited: parts of it that the workers have, because they are forks of this process.

    Attributes:
        blob: its pickle.
        places: where its large memory is.
        fds: descriptors that a worker must inherit, with the same numbers.

    Raises:
        Exception: some part of it cannot be pickled.
    """

    def __init__(self, obj: Any, inherited: Sequence[object] = ()) -> None:
        self.places: list[FilePlace | SharedPlace] = []
        self._files: MappedFiles | None = None
        self._own_fds: list[int] = []
        self._fd = -1
        self._end = 0
        try:
            self.blob = dumps(obj, self._keep_in_pickle, self._own_copy, inherited)
        except BaseException:
            self.close()
            raise

    @property
    def fds(self) -> Sequence[int]:
        return self._own_fds

    def _own_copy(self, fd: int) -> int:
        self._own_fds.append(os.dup(fd))
        return self._own_fds[-1]

    def _keep_in_pickle(self, buffer: pickle.PickleBuffer) -> bool:
        with buffer.raw() as raw:
            if raw.nbytes < LARGE:
                return True
            if self._files is None:
                self._files = MappedFiles()
            place = self._files.place_of(raw) or self._copied(raw)
        if place is not None:
            self.places.append(place)
        return place is None

    def _copied(self, raw: memoryview) -> SharedPlace | None:
        """Copy memory to an anonymous file; return None if there is no room for it."""
        start = at = -(-self._end // _ALIGN) * _ALIGN
        try:
            if self._fd < 0:
                self._fd = anonymous_file("aioloader-dataset")
                self._own_fds.append(self._fd)
            while at < start + raw.nbytes:
                at += os.pwrite(self._fd, raw[at - start : at - start + _PART], at)
        except OSError:
            if self._fd >= 0:
                os.ftruncate(self._fd, self._end)
            return None
        self._end = at
        return SharedPlace(self._fd, start, raw.nbytes, not raw.readonly)

    def close(self) -> None:
        """Close the descriptors. Workers that have received the object keep its memory."""
        fds = self._own_fds[:]
        self._own_fds.clear()
        for fd in fds:
            os.close(fd)


def know_classes(classes: Iterable[type]) -> None:
    """Have classes that forks send back by value be those of this process, also where it has never sent them."""
    pickler = cloudpickle.Pickler(io.BytesIO())
    for each in classes:
        pickler.reducer_override(each)  # which numbers a class that no module has


class _Unpickler(pickle.Unpickler):
    inherited: Sequence[object] = ()

    def persistent_load(self, place: int) -> object:
        return self.inherited[place]


def receive(blob: bytes, places: Sequence[FilePlace | SharedPlace], inherited: Sequence[object] = ()) -> Any:
    """Return the object that a `SentObject` has sent, in a worker process. To be called once.

    Args:
        blob, places: its attributes.
        inherited: what it was made with.

    Raises:
        Exception: it cannot be unpickled, or a file cannot be opened.
    """
    ends: dict[Any, tuple[int, int]] = {}
    for place in places:
        low, high = ends.get(_map_of(place), (place.offset, 0))
        ends[_map_of(place)] = min(low, place.offset), max(high, place.offset + place.nbytes)
    maps = {
        key: _open(key, low - low % mmap.ALLOCATIONGRANULARITY, high) for key, (low, high) in ends.items()
    }
    buffers = []
    for place in places:
        memory, begin = maps[_map_of(place)]
        part = memory[place.offset - begin : place.offset - begin + place.nbytes]
        buffers.append(part if place.writable else part.toreadonly())
    unpickler = _Unpickler(io.BytesIO(blob), buffers=buffers)
    unpickler.inherited = inherited
    return unpickler.load()


def _map_of(place: FilePlace | SharedPlace) -> tuple[int | str, bool, bool]:
    """Return what places in one map have in common: the file, whether writes go to it, whether there are any."""
    if isinstance(place, SharedPlace):
        return place.fd, False, True
    return place.path, place.shared, place.writable


def _open(key: tuple[int | str, bool, bool], begin: int, end: int) -> tuple[memoryview, int]:
    """Return a map of a part of a file, and where the part begins."""
    file, shared, writable = key
    if isinstance(file, int):
        fd = sent_descriptors.here(file)
    else:
        fd = os.open(file, os.O_RDWR if shared and writable else os.O_RDONLY)
    try:
        kind = mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE
        access = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        return memoryview(mmap.mmap(fd, end - begin, flags=kind, prot=access, offset=begin)), begin
    finally:
        sent_descriptors.close(fd)


class _WithoutInit:
    """Exception that is unpickled without its ``__init__``, whose arguments may differ from ``args``."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self._error), self._error.args, self._error.__dict__)


def _restore(cls: type[BaseException], args: tuple[Any, ...], facts: dict[str, Any]) -> BaseException:
    error = cls.__new__(cls, *args)
    set_args(error, args)
    error.__dict__.update(facts)
    return error


def portable_error(error: BaseException) -> bytes:
    """Return a pickled exception with its traceback as a note; a `WorkerError` where it cannot be pickled."""
    error = printable(error)
    if error.__cause__ is None and error.__context__ is None:
        # Without the exception's text, so that errors of the same place have the same note.
        lines = [TRACEBACK, *traceback.format_tb(traceback_of(error))]
    else:
        lines = traceback.format_exception(error)  # chained exceptions are not sent
    note = f"in worker process {os.getpid()}:\n{''.join(lines).rstrip()}"
    add_note(error, note)
    try:
        for portable in (error, _WithoutInit(error)):
            try:
                blob: bytes = cloudpickle.dumps(portable)
                loaded = pickle.loads(blob)
            except BaseException:  # its class may do anything
                continue
            if isinstance(loaded, BaseException) and is_printable(loaded):
                return blob
    finally:
        # The same object may be raised again.
        remove_note(error, note)
        detach(error)
    replacement = WorkerError(f"{describe(error)} (the exception itself cannot be pickled)")
    replacement.add_note(note)
    blob = cloudpickle.dumps(replacement)
    return blob


def read_error(blob: bytes) -> BaseException:
    """Return the exception that `portable_error` sent; a `WorkerError` where it cannot be read."""
    try:
        error: BaseException = pickle.loads(blob)
    except (Exception, SystemExit) as cause:
        error = WorkerError(f"a worker's exception cannot be read: {describe(cause)}")
    return printable(error)


class _Joined(dict[int, bytes]):
    """Bytes by row. They are sent as one buffer: as parts of a pickle they would be copied seven times."""

    def __reduce__(self) -> tuple[Any, ...]:
        sizes = list(map(len, self.values()))
        return _split, (list(self), sizes, pickle.PickleBuffer(b"".join(self.values())))


def _split(rows: list[int], sizes: list[int], joined: Any) -> dict[int, bytes]:
    whole = bytes(joined)
    ends = itertools.accumulate(sizes)
    return {row: whole[end - size : end] for row, size, end in zip(rows, sizes, ends, strict=True)}


def _joined(objects: dict[int, Any]) -> dict[int, Any]:
    """Return objects by row in the form in which they are sent."""
    values = objects.values()
    many = set(map(type, values)) == {bytes} and sum(map(len, values)) >= LARGE
    return _Joined(objects) if many else objects


def pack_result(result: ChunkResult, pack: Callable[[Any], Any]) -> tuple[Any, ...]:
    """Return a result as it is sent: (rows written, failures, packed values or None, counters).

    Args:
        result: of a chunk.
        pack: pickles (values, objects, batch).

    Raises:
        WorkerError: the batch cannot be pickled.
    """
    failures = [(row, stage, portable_error(error)) for row, stage, error in result.failures]
    packed = None
    result.objects = {leaf: _joined(objects) for leaf, objects in result.objects.items()}
    if result.values or result.objects or result.batch is not None:
        try:
            packed = pack((result.values, result.objects, result.batch))
        except Exception as error:
            # One sample that cannot be pickled must not fail the others.
            bad = pickling_errors(result.values)
            failures += [(row, "collate", portable_error(cause)) for row, cause in bad.items()]
            result.values = {row: value for row, value in result.values.items() if row not in bad}
            if not bad:
                raise WorkerError(
                    f"a result cannot be sent back from a worker process: {error}; "
                    "use executor='thread', or return arrays and plain values"
                ) from error
            packed = pack((result.values, result.objects, result.batch))
    written = np.asarray(result.written, dtype=np.int32).tobytes()
    return written, failures, packed, result.counters


def pickling_errors(values: Mapping[int, Any]) -> dict[int, Exception]:
    """Return the reason for each value that cannot be pickled, by its key."""
    errors: dict[int, Exception] = {}
    for key, value in values.items():
        try:
            cloudpickle.dumps(value, protocol=5)
        except Exception as error:
            errors[key] = error
    return errors
