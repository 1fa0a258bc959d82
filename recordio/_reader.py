"""RecordReader: a .rec file as a sequence of payloads.

Strategy: compute the ranges to read (`_sansio`, `_plan`), fetch them by position, cut the records out. No position is
shared, so threads and forked children can use one reader.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, overload

import numpy as np

from recordio._files import not_seekable_error
from recordio._framing import MAX_PAYLOAD
from recordio._index import Index, index_not_found, index_path_for, scan_source
from recordio._parser import RecordParser
from recordio._sansio import (
    ReadGenerator,
    RecordStream,
    position_batches,
    read_record,
    read_records,
    resolve_positions,
)
from recordio._sources import (
    AsyncRangeSource,
    BlockingSource,
    OpenTarget,
    RangeSource,
    drive,
    is_stream,
    local_path,
    open_source,
    scheme_of,
    target_name,
)
from recordio.errors import CorruptRecordError, IndexNotFoundError, RecordKeyError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

_T = TypeVar("_T")
# Bytes in the file, and the offsets and lengths that `Index.spans` returns for it.
Located: TypeAlias = "tuple[int, NDArray[np.int64], NDArray[np.int64]]"


def resolve_index(target: object, index: str | os.PathLike[str] | Index | None) -> str | Index | None:
    """Resolve the `index` argument of a reader to a path or URL, an Index, or None for "scan".

    Raises:
        IndexNotFoundError: A named local index does not exist.
    """
    if isinstance(index, Index):
        return index
    if index is None:
        path = local_path(target)
        if path is not None:
            return index_path_for(path) if os.path.exists(index_path_for(path)) else None
        if isinstance(target, str) and scheme_of(target):
            return index_path_for(target)
        return None
    name = os.fspath(index)
    found = local_path(name)
    if found is None:
        return name
    if not os.path.isfile(found):
        raise index_not_found(found)
    return found


def _load_index(choice: str | Index | None, source: BlockingSource, *, named: bool) -> Index:
    """Load the index that `resolve_index` chose."""
    if isinstance(choice, Index):
        return choice
    if is_stream(source):
        raise not_seekable_error(source.path)
    if isinstance(choice, str):
        try:
            return Index.open(choice)
        except (IndexNotFoundError, PermissionError):
            # An object that does not exist is denied too, to a user who may not list, and to a signature for another
            # object.
            if named or local_path(choice) is not None:
                raise
    return scan_source(source)


class ReaderBase(ABC):
    """Target and index of a reader. A pickled reader is its target, and the index that was named."""

    def __init__(
        self,
        path: OpenTarget,
        index: str | os.PathLike[str] | Index | None = None,
        *,
        max_record_bytes: int = MAX_PAYLOAD,
    ) -> None:
        self._target: str | RangeSource | AsyncRangeSource = (
            os.fspath(path) if isinstance(path, os.PathLike) else path
        )
        self._index_named = index
        self.max_record_bytes = max_record_bytes
        self._start()

    def _start(self) -> None:
        self.path = target_name(self._target)
        self._index: Index | None = None
        self._spans: Located | None = None

    @property
    @abstractmethod
    def index(self) -> Index:
        """Return the index."""

    @property
    def keys(self) -> NDArray[np.int64] | list[str]:
        """Return the keys in position order: int64 array, or list of str if any key is not an integer."""
        return self.index.keys

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Return the byte offsets of the records in position order, int64."""
        return self.index.offsets

    def __len__(self) -> int:
        return len(self.index)

    def _read_at(self, positions: Sequence[int], located: Located) -> ReadGenerator[list[bytes]]:
        size, offsets, bounds = located
        at = np.array(resolve_positions(positions, len(offsets)), dtype=np.int64)
        return read_records(offsets[at], bounds[at], size=size, path=self.path, limit=self.max_record_bytes)

    def _new_stream(self, size: int, *, stream: bool) -> RecordStream:
        """Return a pass over the records.

        Args:
            size: Bytes in the file, or `UNKNOWN_SIZE`.
            stream: It is a pipe or device: no more is awaited than the next record needs.
        """
        parser = RecordParser(path=self.path, size=size, max_record_bytes=self.max_record_bytes)
        return RecordStream(parser, 0, size, block_bytes=0) if stream else RecordStream(parser, 0, size)

    def __getstate__(self) -> dict[str, Any]:
        return {"target": self._target, "index": self._index_named, "limit": self.max_record_bytes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        ReaderBase.__init__(self, state["target"], state["index"], max_record_bytes=state["limit"])


class RecordReader(ReaderBase):
    """Reader of a record file: by position, by key, many at once, or from the first to the last record.

    Args:
        path: Local path, `file://` URL, URL of a scheme registered with `register_opener`, or an object with
            `read_ranges` (see `RangeSource`).
        index: Path or URL of an .idx file, or an `Index`. None: the .idx next to the file if there is one; otherwise
            the file is scanned when an index is first needed. Iterating does not need one.
        max_record_bytes: Largest payload to accept, in bytes; a longer record is a `CorruptRecordError`.

    Positions count the lines of the index. Iteration yields `reader[0]`, `reader[1]`, ...; a record without an index
    line is only visible to a reader that has no index.

    A pipe (a FIFO, /dev/stdin) or another device can be iterated, once; reads by position or key raise
    `NotSeekableError`.

    Reads are positional, so one reader may be used by many threads and after a fork. A pickled reader is its path: the
    copy opens the file again at first use.

    Raises:
        RecordFileNotFoundError: There is no such record file.
        IndexNotFoundError: The index named does not exist.
        NotSeekableError: The file is a pipe or device, and an index is named.
    """

    def _start(self) -> None:
        super()._start()
        self._source = open_source(self._target, streams=self._index_named is None)
        self._choice = None if is_stream(self._source) else resolve_index(self._target, self._index_named)
        self._lock = threading.Lock()
        self._pid = os.getpid()

    @property
    def index(self) -> Index:
        """Return the index; load it, or scan the file for it, if it was not needed before."""
        if self._index is None:
            if self._pid != os.getpid():
                self._lock, self._pid = threading.Lock(), os.getpid()
            with self._lock:
                if self._index is None:
                    self._index = _load_index(self._choice, self._source, named=self._index_named is not None)
        return self._index

    @overload
    def __getitem__(self, position: int) -> bytes: ...
    @overload
    def __getitem__(self, position: slice) -> list[bytes]: ...
    def __getitem__(self, position: int | slice) -> bytes | list[bytes]:
        """Return the payload at a position (negative: from the end), or the payloads of a slice.

        Raises:
            RecordIndexError: The position is outside the file.
            CorruptRecordError: There is no valid record at the offset in the index.
            CorruptIndexError: The offset in the index is outside the file, or not a multiple of 4.
        """
        if isinstance(position, slice):
            return self.read_many(range(*position.indices(len(self))))
        return self.read(position)

    def read(self, position: int) -> bytes:
        """Return the payload at a position; the same as `reader[position]`."""
        size, offsets, bounds = self._located()
        (at,) = resolve_positions((position,), len(offsets))
        generator = read_record(
            int(offsets[at]), int(bounds[at]), size=size, path=self.path, limit=self.max_record_bytes
        )
        return drive(self._source, generator)

    def read_many(self, positions: Sequence[int]) -> list[bytes]:
        """Return the payloads in the order of `positions`; neighbours in the file are read together.

        Raises: as `reader[position]`.
        """
        return drive(self._source, self._read_at(positions, self._located()))

    def position(self, key: int | str) -> int:
        """Return the position of the record with this key.

        Raises:
            RecordKeyError: No record has this key.
        """
        return self.index.position(key)

    def read_key(self, key: int | str) -> bytes:
        """Return the payload of the record with this key.

        Raises:
            RecordKeyError: No record has this key.
        """
        return self.read(self.position(key))

    @overload
    def get(self, key: int | str) -> bytes | None: ...
    @overload
    def get(self, key: int | str, default: _T) -> bytes | _T: ...
    def get(self, key: int | str, default: object = None) -> object:
        """Return the payload of the record with this key, or `default` if no record has it."""
        try:
            position = self.position(key)
        except RecordKeyError:
            return default
        return self.read(position)

    def __iter__(self) -> Iterator[bytes]:
        """Yield all payloads; several iterations may run at once."""
        if self._choice is None and self._index is None:
            yield from self._iterate_stream()
            return
        _, _, bounds = self._located()
        for run in position_batches(bounds):
            try:
                records = self.read_many(run)
            except CorruptRecordError:
                # Yield the valid records of the run first; the damaged one then fails alone.
                for position in run:
                    yield self.read(position)
            else:
                yield from records

    def _iterate_stream(self) -> Iterator[bytes]:
        stream = self._new_stream(self._source.size(), stream=is_stream(self._source))
        while not stream.finished:
            drive(self._source, stream.read_block())
            yield from stream.parser

    def _located(self) -> Located:
        located = self._spans
        if located is None:
            size = self._source.size()
            located = self._spans = (size, *self.index.spans(size))
        return located

    def close(self) -> None:
        """Close the file; reads in other threads end first. Idempotent."""
        self._source.close()

    def __enter__(self) -> RecordReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"RecordReader({self.path!r})"
