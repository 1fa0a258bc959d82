"""Async readers and writers, for asyncio and trio.

The algorithms are those of the blocking readers (`_sansio`), with `await` where bytes are fetched: one call in a thread
for a whole `read_many` or one full write buffer, never one per record; none for an async source, and no call that
blocks the loop. Under asyncio the thread is that of aiofiles' wrapper, under trio one of anyio's worker threads; both
are imported at the first call.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import os
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from recordio._files import AppendFile, LocalFile, not_seekable_error
from recordio._framing import UNKNOWN_SIZE, BytesLike
from recordio._index import Index, index_not_found
from recordio._index_cache import CachedIndex
from recordio._index_text import IndexLines, parse_index_text
from recordio._reader import Located, ReaderBase, resolve_index
from recordio._sansio import (
    ReadGenerator,
    RecordStream,
    position_batches,
    read_index_text,
    scan_offsets,
)
from recordio._sources import (
    AsyncRangeSource,
    BlockingSource,
    OpenTarget,
    call_optional,
    check_lengths,
    has_method,
    is_stream,
    local_path,
    open_async_source,
    source_name,
)
from recordio._writer import WriterFiles, refuse_pickling
from recordio.errors import ClosedError, CorruptRecordError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence


__all__ = ("AsyncRecordReader", "AsyncRecordWriter")

_T = TypeVar("_T")


def _under_trio() -> bool:
    """Return True if the calling task runs in a trio loop; guest mode counts as trio."""
    if "trio" not in sys.modules:
        return False
    import trio

    # Not `in_trio_run`: in guest mode that is true in the tasks of the host's loop too.
    return bool(trio.lowlevel.in_trio_task())


async def _run_in_thread(call: Callable[..., _T], *args: Any) -> _T:
    """Run a blocking call in a thread and await its result.

    Cancelling stops the waiting, not the call; the calls made this way stay harmless when they finish late
    (positioned reads, and positioned writes of the same bytes).
    """
    if _under_trio():
        import anyio.to_thread

        return await anyio.to_thread.run_sync(call, *args, abandon_on_cancel=True)
    import aiofiles.os

    result: _T = await aiofiles.os.wrap(call)(*args)
    return result


async def _run_in_own_thread(call: Callable[..., _T], *args: Any) -> _T:
    """Run a call that may wait for ever in a separate thread, for which neither the loop nor the program waits.

    The threads of asyncio's executor are waited for when the loop ends.
    """
    if _under_trio():
        return await _run_in_thread(call, *args)
    import asyncio

    loop = asyncio.get_running_loop()
    done: asyncio.Future[_T] = loop.create_future()

    def deliver(result: Any, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)

    def run() -> None:
        result, error = None, None
        try:
            result = call(*args)
        except BaseException as caught:
            error = caught
        with contextlib.suppress(RuntimeError):  # the loop was closed
            loop.call_soon_threadsafe(deliver, result, error)

    threading.Thread(target=run, name="recordio-stream", daemon=True).start()
    return await done


class _AwaitedSource:
    """Source whose own methods are awaited, or its plain results taken."""

    is_stream = False

    def __init__(self, source: AsyncRangeSource, url: str | None) -> None:
        self.path = source_name(source, url)
        self._source = source
        self._sized = has_method(source, "size")

    async def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        blocks = await self._source.read_ranges(ranges)
        check_lengths(self.path, ranges, blocks, sized=self._sized)
        return blocks

    async def size(self) -> int:
        return int(await self._call("size")) if self._sized else UNKNOWN_SIZE

    async def state(self) -> str | None:
        state: str | None = await self._call("state")
        return state

    async def close(self) -> None:
        await self._call("aclose" if has_method(self._source, "aclose") else "close")

    async def _call(self, name: str) -> Any:
        result = call_optional(self._source, name)
        return await result if inspect.isawaitable(result) else result


class _ThreadedSource:
    """Blocking source whose methods run in a thread."""

    def __init__(self, source: BlockingSource) -> None:
        self.path = source.path
        self.is_stream = is_stream(source)
        self._source = source

    async def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        run = _run_in_own_thread if self.is_stream else _run_in_thread
        return await run(self._source.read_ranges, ranges)

    async def size(self) -> int:
        return await _run_in_thread(self._source.size)

    async def state(self) -> str | None:
        return None if isinstance(self._source, LocalFile) else await _run_in_thread(self._source.state)

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
    lines = await _run_in_thread(copy.load)
    if lines is None:
        lines = await make()
        await _run_in_thread(copy.store, lines)
    return lines


class AsyncRecordReader(ReaderBase):
    """Reader of a record file that does not block the event loop.

    Args:
        path: Local path, `file://` URL, URL of a scheme registered with `register_opener`, or an object with
            `read_ranges`: async (see `AsyncRangeSource`; awaited in the loop) or blocking (run in a thread).
        index, max_record_bytes: As for `RecordReader`.

    A pipe or device can be iterated, once; each read waits in a thread until its bytes were written. One that is
    cancelled may take bytes nevertheless, so the next read is a `NotSeekableError`.

    Use it in `async with`, which loads an .idx; `async for` yields all payloads. Many tasks may read at once.
    Cancelling a read of a file is safe, the reader stays usable.

    Raises:
        RecordFileNotFoundError: There is no such record file.
        IndexNotFoundError: The index named does not exist.
    """

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
                file = await _run_in_thread(LocalFile, path)
                if file.is_stream and self._index_named is not None:
                    raise not_seekable_error(path)
                opened = _ThreadedSource(file)
            else:
                opened = _open(self._target, self.path)
            choice = None
            if not opened.is_stream:
                choice = await _run_in_thread(resolve_index, self._target, self._index_named)
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
                return await _run_in_thread(Index.open, choice)
            index = await self._open_index(choice)
            if index is not None:
                return index
        path = local_path(self._target)
        if path is not None:
            return await _run_in_thread(Index.scan, path)

        async def scan() -> IndexLines:
            return IndexLines.counted(await _drive(source, scan_offsets(await source.size(), path=self.path)))

        return Index(await _through_cache(source, "scan", scan), path=self.path)

    async def _open_index(self, url: str) -> Index | None:
        try:
            source = _open(url, url)
            try:

                async def read() -> IndexLines:
                    text = await _drive(source, read_index_text(await source.size(), path=source.path))
                    return await _run_in_thread(lambda: parse_index_text(text, path=source.path))

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
        generator = self._read_at(positions, await self._located())
        return await _drive(await self._source(), generator)

    async def _located(self) -> Located:
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
            import anyio.lowlevel

            await anyio.lowlevel.checkpoint()
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
            self._stream = self._reader._new_stream(await source.size(), stream=source.is_stream)
        if self._failed is not None:
            raise self._failed
        if self._stream.finished:
            raise StopAsyncIteration
        await _drive(source, self._stream.read_block())
        try:
            self._ready.extend(self._stream.parser)
        except CorruptRecordError as error:
            self._failed = error  # the valid records before it come first


class AsyncRecordWriter:
    """Writer of a new record file that does not block the event loop.

    Args:
        path: The .rec file to write; an old one is truncated when the writer is entered.
        index: As for `RecordWriter`.

    Use it in `async with`. Many tasks may write; records are in the order of the calls. A call that is cancelled while
    it waits for the disk has written its record: it is in the buffer, and the next call repeats the flush, at the same
    place.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        index: str | os.PathLike[str] | bool | None = None,
    ) -> None:
        self.path = os.fspath(path)
        self._index = index
        self._files: WriterFiles | None = None

    async def __aenter__(self) -> AsyncRecordWriter:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def open(self) -> None:
        """Create the file, unless that was done; `async with` calls this."""
        if self._files is None:
            self._files = await _run_in_thread(
                lambda: WriterFiles(self.path, self._index, index_at_once=False)
            )

    def __len__(self) -> int:
        """Return the number of records written so far."""
        return 0 if self._files is None else self._files.count

    async def write(self, payload: BytesLike, key: int | str | None = None) -> int:
        """Append one record; arguments, result and errors as `RecordWriter.write`."""
        if self._files is None:
            raise ClosedError(f"{self.path}: the writer is not open; use `async with`")
        # Nothing is awaited before the bookkeeping is done, so calls cannot interleave.
        offset = self._files.add(payload, key)
        if self._files.records.is_full:
            await self.flush()
        return offset

    async def flush(self) -> None:
        """Write everything so far to the operating system, records before index."""
        for file in self._opened():
            await _run_in_thread(file.flush)

    async def aclose(self) -> None:
        """Flush and close. Idempotent. If it is cancelled, the thread that writes completes it."""
        for file in self._opened():
            await _run_in_thread(file.close)

    def _opened(self) -> list[AppendFile]:
        return [] if self._files is None else self._files.opened()

    def __reduce__(self) -> NoReturn:
        refuse_pickling(self)
