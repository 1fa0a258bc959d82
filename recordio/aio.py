"""Async readers and writers, for asyncio and trio.

The algorithms are those of the blocking readers (`_sansio`), with `await` where bytes are fetched: one call in a thread
for a whole `read_many`, none for an async source, and no call that blocks the loop.
"""

from __future__ import annotations

import inspect
import itertools
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from recordio._async_backend import checkpoint, run_in_thread
from recordio._async_writer import AsyncRecordWriter
from recordio._files import LocalFile
from recordio._framing import MAX_PAYLOAD, UNKNOWN_SIZE
from recordio._index import Index, index_not_found
from recordio._index_cache import CachedIndex
from recordio._index_text import IndexLines, parse_index_text
from recordio._parser import RecordParser
from recordio._reader import ReaderBase, resolve_index
from recordio._sansio import (
    ReadGenerator,
    RecordStream,
    position_batches,
    read_index_text,
    read_records,
    resolve_positions,
    scan_offsets,
)
from recordio._sources import (
    AsyncRangeSource,
    BlockingSource,
    OpenTarget,
    check_lengths,
    local_path,
    open_async_source,
    optional_method,
    source_name,
)
from recordio.errors import ClosedError, CorruptRecordError

if TYPE_CHECKING:
    import os
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from numpy.typing import NDArray

__all__ = ("AsyncRecordReader", "AsyncRecordWriter")

_T = TypeVar("_T")


class _AwaitedSource:
    """Source whose own methods are awaited, or its plain results taken."""

    def __init__(self, source: AsyncRangeSource, url: str | None) -> None:
        self.path = source_name(source, url)
        self._source = source
        self._size = optional_method(source, "size")

    async def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        blocks = await self._source.read_ranges(ranges)
        check_lengths(self.path, ranges, blocks, sized=self._size is not None)
        return blocks

    async def size(self) -> int:
        return UNKNOWN_SIZE if self._size is None else int(await _result(self._size))

    async def state(self) -> str | None:
        state = optional_method(self._source, "state")
        return None if state is None else await _result(state)

    async def close(self) -> None:
        close = optional_method(self._source, "aclose") or optional_method(self._source, "close")
        if close is not None:
            await _result(close)


async def _result(method: Callable[[], Any]) -> Any:
    result = method()
    return await result if inspect.isawaitable(result) else result


class _ThreadedSource:
    """Blocking source whose methods run in a thread."""

    def __init__(self, source: BlockingSource) -> None:
        self.path = source.path
        self._source = source

    async def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return await run_in_thread(self._source.read_ranges, ranges)

    async def size(self) -> int:
        return await run_in_thread(self._source.size)

    async def state(self) -> str | None:
        return None if isinstance(self._source, LocalFile) else await run_in_thread(self._source.state)

    async def close(self) -> None:
        self._source.close()


def _open(target: OpenTarget, url: str | None) -> _AwaitedSource | _ThreadedSource:
    source = open_async_source(target)
    if isinstance(source, BlockingSource):
        return _ThreadedSource(source)
    return _AwaitedSource(source, url)


async def _drive(source: _AwaitedSource | _ThreadedSource, generator: ReadGenerator[_T]) -> _T:
    """Run a generator of `_sansio` to its end and return its result."""
    try:
        ranges = next(generator)
        while True:
            ranges = generator.send(await source.read_ranges(ranges))
    except StopIteration as stop:
        result: _T = stop.value
        return result


async def _through_cache(
    source: _AwaitedSource | _ThreadedSource, kind: str, make: Callable[[], Awaitable[IndexLines]]
) -> IndexLines:
    """Return an index from its copy in the user's cache directory, if the source reports its state."""
    state = await source.state()
    if state is None:
        return await make()
    copy = CachedIndex.of_object(source.path, kind, size=await source.size(), state=state)
    lines = await run_in_thread(copy.load)
    if lines is None:
        lines = await make()
        await run_in_thread(copy.store, lines)
    return lines


class AsyncRecordReader(ReaderBase):
    """Reader of a record file that does not block the event loop.

    Args:
        path: Local path, `file://` URL, URL of a scheme registered with `register_opener`, or an object with
            `read_ranges`: async (see `AsyncRangeSource`; awaited in the loop) or blocking (run in a thread).
        index, max_record_bytes: As for `RecordReader`.

    Use it in `async with`, which loads an .idx; `async for` yields all payloads. Many tasks may read at once.
    Cancelling a read is safe, the reader stays usable.

    Raises:
        RecordFileNotFoundError: There is no such record file.
        IndexNotFoundError: The index named does not exist.
    """

    def __init__(
        self,
        path: OpenTarget,
        index: str | os.PathLike[str] | Index | None = None,
        *,
        max_record_bytes: int = MAX_PAYLOAD,
    ) -> None:
        super().__init__(path, index, max_record_bytes)

    def _start(self) -> None:
        super()._start()
        self._opened: _AwaitedSource | _ThreadedSource | None = None
        self._closed = False
        self._choice: str | Index | None = None

    async def __aenter__(self) -> AsyncRecordReader:
        await self._source()
        if self._choice is not None:
            await self.load()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _source(self) -> _AwaitedSource | _ThreadedSource:
        """Return the open source. Looking for files can wait for a disk or a server, so this is not in __init__."""
        if self._closed:
            raise ClosedError(f"{self.path}: the reader was closed; open a new one")
        if self._opened is None:
            opened: _AwaitedSource | _ThreadedSource
            if (path := local_path(self._target)) is not None:
                opened = _ThreadedSource(await run_in_thread(LocalFile, path))
            else:
                opened = _open(self._target, self.path)
            choice = await run_in_thread(resolve_index, self._target, self._index_named)
            if self._opened is None:  # no other task was faster
                self._opened, self._choice = opened, choice
        return self._opened

    async def load(self) -> Index:
        """Load the index, or scan the file for it, unless that was done, and return it."""
        source = await self._source()
        if self._index is None:
            self._index = await self._load(source)
        return self._index

    async def _load(self, source: _AwaitedSource | _ThreadedSource) -> Index:
        choice = self._choice
        if isinstance(choice, Index):
            return choice
        if isinstance(choice, str):
            if local_path(choice) is not None:
                return await run_in_thread(Index.open, choice)
            index = await self._open_index(choice)
            if index is not None:
                return index
        path = local_path(self._target)
        if path is not None:
            return await run_in_thread(Index.scan, path)

        async def scan() -> IndexLines:
            return IndexLines.counted(await _drive(source, scan_offsets(await source.size(), path=self.path)))

        return Index(await _through_cache(source, "scan", scan), path=self.path)

    async def _open_index(self, url: str) -> Index | None:
        try:
            source = _open(url, url)
            try:

                async def read() -> IndexLines:
                    text = await _drive(source, read_index_text(await source.size(), path=source.path))
                    return await run_in_thread(lambda: parse_index_text(text, path=source.path))

                return Index(await _through_cache(source, "idx", read), path=source.path)
            finally:
                await source.close()
        except FileNotFoundError as error:
            if self._index_named is not None:
                raise index_not_found(url) from error
            return None
        except PermissionError:
            # An object that does not exist is denied too, to a user who may not list, and to a signature for another
            # object.
            if self._index_named is not None:
                raise
            return None

    @property
    def index(self) -> Index:
        """Return the index. Without an .idx it exists after `await load()`, or after the first read."""
        if self._index is None:
            raise ClosedError(f"{self.path}: the index is not loaded yet; call `await reader.load()` first")
        return self._index

    @property
    def keys(self) -> NDArray[np.int64] | list[str]:
        """Return the keys in position order, as `RecordReader.keys` does."""
        return self.index.keys

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Return the byte offsets of the records in position order, int64."""
        return self.index.offsets

    def __len__(self) -> int:
        return len(self.index)

    async def read(self, position: int) -> bytes:
        """Return the payload at a position (negative: from the end).

        Raises:
            RecordIndexError: The position is outside the file.
            CorruptRecordError: There is no valid record at the offset in the index.
            CorruptIndexError: The offset in the index is outside the file, or not a multiple of 4.
        """
        return (await self.read_many((position,)))[0]

    async def read_key(self, key: int | str) -> bytes:
        """Return the payload of the record with this key.

        Raises:
            RecordKeyError: No record has this key.
        """
        return await self.read((await self.load()).position(key))

    async def read_many(self, positions: Sequence[int]) -> list[bytes]:
        """Return the payloads in the order of `positions`, with one call in a thread or one set of requests.

        Raises: as `read`.
        """
        size, offsets, bounds = await self._located()
        at = np.array(resolve_positions(positions, len(offsets)), dtype=np.int64)
        generator = read_records(
            offsets[at], bounds[at], size=size, path=self.path, limit=self.max_record_bytes
        )
        return await _drive(await self._source(), generator)

    async def _located(self) -> tuple[int, NDArray[np.int64], NDArray[np.int64]]:
        if self._spans is None:
            index = await self.load()
            size = await (await self._source()).size()
            self._spans = (size, *index.spans(size))
        return self._spans

    def __aiter__(self) -> _Records:
        """Iterate over all payloads in position order; several iterations may run at once."""
        return _Records(self)

    async def aclose(self) -> None:
        """Close the file; reads in progress end first. Idempotent."""
        self._closed = True
        if self._opened is not None:
            await self._opened.close()


class _Records:
    """Iterator over the records of a reader. A class, because trio warns of an abandoned async generator."""

    def __init__(self, reader: AsyncRecordReader) -> None:
        self._reader = reader
        self._ready: deque[bytes] = deque()
        self._runs: Iterator[range] | None = None
        self._stream: RecordStream | None = None
        self._streaming: bool | None = None
        self._failed: CorruptRecordError | None = None

    def __aiter__(self) -> _Records:
        return self

    async def __anext__(self) -> bytes:
        if self._streaming is None:
            await self._reader._source()
            self._streaming = self._reader._choice is None and self._reader._index is None
        while not self._ready:
            await (self._read_stream() if self._streaming else self._read_run())
        return self._ready.popleft()

    async def _read_run(self) -> None:
        if self._runs is None:
            _, _, bounds = await self._reader._located()
            self._runs = position_batches(bounds)
        run = next(self._runs, None)
        if run is None:
            await checkpoint()
            raise StopAsyncIteration
        try:
            self._ready.extend(await self._reader.read_many(run))
        except CorruptRecordError:
            if len(run) == 1:
                raise
            # Yield the valid records of the run first; the damaged one then fails alone.
            self._runs = itertools.chain((range(at, at + 1) for at in run), self._runs)

    async def _read_stream(self) -> None:
        source = await self._reader._source()
        if self._stream is None:
            size = await source.size()
            limit = self._reader.max_record_bytes
            self._stream = RecordStream(
                RecordParser(path=self._reader.path, size=size, max_record_bytes=limit), 0, size
            )
        if self._failed is not None:
            raise self._failed
        if self._stream.finished:
            raise StopAsyncIteration
        await _drive(source, self._stream.read_block())
        try:
            self._ready.extend(self._stream.parser)
        except CorruptRecordError as error:
            self._failed = error  # the valid records before it come first
