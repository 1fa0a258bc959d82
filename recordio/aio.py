"""Async readers and writers, for asyncio and trio.

The loops are those of the blocking readers (`_sansio`), with `await` where bytes are fetched: one
thread hop for a whole `read_many`, none at all for an async source, and no call that blocks the
loop.
"""

from __future__ import annotations

import inspect
import itertools
import os
from collections import deque
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from recordio import _index_cache
from recordio._async_backend import checkpoint, run_in_thread
from recordio._async_writer import AsyncRecordWriter
from recordio._files import LocalFile
from recordio._framing import MAX_PAYLOAD, UNKNOWN_SIZE
from recordio._index import Index
from recordio._index_text import IndexLines, parse_index_text
from recordio._parser import RecordParser, Sentinel
from recordio._reader import check_index_choice
from recordio._sansio import BLOCK_BYTES, position_batches, read_index_text, read_records, resolve_positions
from recordio._scan import scan_offsets
from recordio._sources import (
    AsyncRangeSource,
    BlockingSource,
    OpenTarget,
    RangeSource,
    check_lengths,
    local_path,
    open_async_source,
    source_name,
    target_name,
)
from recordio.errors import ClosedError, CorruptRecordError, IndexNotFoundError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
    from types import TracebackType

    from numpy.typing import NDArray


__all__ = ("AsyncRecordReader", "AsyncRecordWriter")

_T = TypeVar("_T")


class _Source:
    """One await for any source: async ones are awaited, blocking ones run in a thread."""

    def __init__(self, source: BlockingSource | AsyncRangeSource, url: str | None = None) -> None:
        self.inner: Any = source
        self.path = source_name(source, url)
        self._awaits = inspect.iscoroutinefunction(source.read_ranges)

    async def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        blocks: list[bytes] = await self._call(self.inner.read_ranges, ranges)
        if self._awaits:
            check_lengths(self.inner, ranges, blocks)
        return blocks

    async def size(self) -> int:
        size = getattr(self.inner, "size", None)
        return int(await self._call(size)) if callable(size) else UNKNOWN_SIZE

    async def state(self) -> str | None:
        state = getattr(self.inner, "state", None)
        return await self._call(state) if callable(state) else None

    async def _call(self, function: Any, *args: Any) -> Any:
        if self._awaits:
            result = function(*args)
            return await result if inspect.isawaitable(result) else result
        return await run_in_thread(function, *args)

    async def run(self, steps: Generator[list[tuple[int, int]], list[bytes], _T]) -> _T:
        try:
            wanted = next(steps)
            while True:
                wanted = steps.send(await self.read_ranges(wanted))
        except StopIteration as stop:
            result: _T = stop.value
            return result

    async def close(self) -> None:
        for name in ("aclose", "close"):
            close = getattr(self.inner, name, None)
            if close is not None:
                result = close()
                if inspect.isawaitable(result):
                    await result
                return


async def _kept(source: _Source, kind: str, make: Callable[[], Awaitable[IndexLines]]) -> IndexLines:
    """An index through its copy in the user's cache directory, where the source can tell its state."""
    state = await source.state()
    if state is None:
        return await make()
    copy = _index_cache.ObjectCopy(source.path, kind, await source.size(), state)
    lines = await run_in_thread(copy.load)
    if lines is None:
        lines = await make()
        await run_in_thread(copy.store, lines)
    return lines


class AsyncRecordReader:
    """Reads a record file without blocking the event loop.

    Args:
        path: Local path, `file://` URL, URL of a scheme given to `register_opener`, or an object
            with `read_ranges`: async (see `AsyncRangeSource`; awaited in the loop) or blocking (run
            in a thread).
        index, max_record_bytes: As for `RecordReader`.

    Use it in `async with`, which loads an .idx; `async for` gives all payloads. Many tasks may
    read at once. Cancelling a read is safe, the reader stays usable.

    Raises:
        RecordFileNotFoundError: there is no such record file.
        IndexNotFoundError: the index named does not exist.
    """

    def __init__(
        self,
        path: OpenTarget,
        index: str | os.PathLike[str] | Index | None = None,
        *,
        max_record_bytes: int = MAX_PAYLOAD,
    ) -> None:
        if isinstance(path, os.PathLike):
            path = os.fspath(path)
        self._target: str | RangeSource | AsyncRangeSource = path
        self._index_named = index
        self.max_record_bytes = max_record_bytes
        self._start()

    def _start(self) -> None:
        self.path = target_name(self._target)
        self._opened: _Source | None = None
        self._closed = False
        self._choice: str | Index | None = None
        self._index: Index | None = None
        self._spans: tuple[int, NDArray[np.int64], NDArray[np.int64]] | None = None

    async def __aenter__(self) -> AsyncRecordReader:
        await self._source()
        if self._choice is not None:
            await self.load()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def _source(self) -> _Source:
        """The open source. Looking for files can wait for a disk or a server, so not in __init__."""
        if self._closed:
            raise ClosedError(f"{self.path}: the reader was closed; open a new one")
        if self._opened is None:
            if local_path(self._target) is not None:
                opened = _Source(await run_in_thread(LocalFile, local_path(self._target)))
            else:
                opened = _Source(open_async_source(self._target), self.path)
            choice = await run_in_thread(check_index_choice, self._target, self._index_named)
            if self._opened is None:  # no other task was faster
                self._opened, self._choice = opened, choice
        return self._opened

    async def load(self) -> Index:
        """Load the index, or scan the file for one, unless that was done. Returns it."""
        source = await self._source()
        if self._index is None:
            self._index = await self._load(source)
        return self._index

    async def _load(self, source: _Source) -> Index:
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

        async def walk() -> IndexLines:
            steps = scan_offsets(await source.size(), path=self.path)
            try:
                wanted = next(steps)
                while True:
                    (block,) = await source.read_ranges([wanted])
                    wanted = steps.send(block)
            except StopIteration as stop:
                return IndexLines(range(len(stop.value)), stop.value)

        return Index(await _kept(source, "scan", walk), path=self.path)

    async def _open_index(self, url: str) -> Index | None:
        try:
            source = _Source(open_async_source(url), url)
            try:

                async def read() -> IndexLines:
                    text = await source.run(read_index_text(await source.size(), path=source.path))
                    return await run_in_thread(lambda: parse_index_text(text, path=source.path))

                return Index(await _kept(source, "idx", read), path=source.path)
            finally:
                await source.close()
        except FileNotFoundError as error:
            if self._index_named is not None:
                raise IndexNotFoundError("no such index", path=url) from error
            return None
        except PermissionError:
            # What is not there is denied too, to who may not list, and to a signature for another object.
            if self._index_named is not None:
                raise
            return None

    def _loaded(self) -> Index:
        if self._index is None:
            raise ClosedError(f"{self.path}: the index is not loaded yet; call `await reader.load()` first")
        return self._index

    @property
    def index(self) -> Index:
        """The index. Without an .idx it is there after `await load()`, or after the first read."""
        return self._loaded()

    @property
    def keys(self) -> NDArray[np.int64] | list[str]:
        """Keys in position order, as `RecordReader.keys`."""
        return self._loaded().keys

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Byte offsets of the records in position order, int64."""
        return self._loaded().offsets

    def __len__(self) -> int:
        return len(self._loaded())

    async def read(self, position: int) -> bytes:
        """The payload at a position (negative: from the end).

        Raises:
            RecordIndexError: the position is outside the file.
            CorruptRecordError: there is no sound record at the offset that the index gives.
            CorruptIndexError: the index points outside the file, or at no multiple of 4.
        """
        return (await self.read_many((position,)))[0]

    async def read_key(self, key: int | str) -> bytes:
        """The payload of the record with this key.

        Raises:
            RecordKeyError: no record has it.
        """
        return await self.read((await self.load()).position(key))

    async def read_many(self, positions: Sequence[int]) -> list[bytes]:
        """Payloads in the order of `positions`, with one thread hop or one set of requests.

        Raises: as `read`.
        """
        size, offsets, bounds = await self._located()
        at = np.array(resolve_positions(positions, len(offsets)), dtype=np.int64)
        source = await self._source()
        steps = read_records(offsets[at], bounds[at], size=size, path=self.path, limit=self.max_record_bytes)
        return await source.run(steps)

    async def _located(self) -> tuple[int, NDArray[np.int64], NDArray[np.int64]]:
        if self._spans is None:
            index = await self.load()
            size = await (await self._source()).size()
            self._spans = (size, *index.spans(size))
        return self._spans

    def __aiter__(self) -> _Records:
        """Give all payloads in position order; several iterations may run at once."""
        return _Records(self)

    async def aclose(self) -> None:
        """Close the file; reads under way end first. Idempotent."""
        self._closed = True
        if self._opened is not None:
            await self._opened.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"target": self._target, "index": self._index_named, "limit": self.max_record_bytes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._target = state["target"]
        self._index_named = state["index"]
        self.max_record_bytes = state["limit"]
        self._start()


class _Records:
    """One pass over a reader. A class, because an abandoned async generator would warn under
    trio."""

    def __init__(self, reader: AsyncRecordReader) -> None:
        self._reader = reader
        self._ready: deque[bytes] = deque()
        self._runs: Iterator[range] | None = None
        self._parser: RecordParser | None = None
        self._streaming: bool | None = None
        self._failed: CorruptRecordError | None = None
        self._reached = 0
        self._size = -1

    def __aiter__(self) -> _Records:
        return self

    async def __anext__(self) -> bytes:
        if self._streaming is None:
            await self._reader._source()
            self._streaming = self._reader._choice is None and self._reader._index is None
        while not self._ready:
            await (self._more_streamed() if self._streaming else self._more_indexed())
        return self._ready.popleft()

    async def _more_indexed(self) -> None:
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
            # Give the sound records of the run first; the damaged one then fails alone.
            self._runs = itertools.chain((range(at, at + 1) for at in run), self._runs)

    async def _more_streamed(self) -> None:
        source = await self._reader._source()
        if self._parser is None:
            self._size = await source.size()
            self._parser = RecordParser(
                path=self._reader.path, size=self._size, max_record_bytes=self._reader.max_record_bytes
            )
        parser = self._parser
        if self._failed is not None:
            raise self._failed
        while not self._ready:
            if self._reached >= self._size:
                parser.finish()
                if parser.next_record() is Sentinel.END:
                    raise StopAsyncIteration
            length = min(max(parser.needed, BLOCK_BYTES), self._size - self._reached)
            (block,) = await source.read_ranges([(self._reached, length)])
            self._reached += len(block)
            self._size = self._reached if len(block) < length else self._size
            parser.push(block)
            try:
                self._ready.extend(parser)
            except CorruptRecordError as error:
                if not self._ready:
                    raise
                self._failed = error  # the sound records before it come first
