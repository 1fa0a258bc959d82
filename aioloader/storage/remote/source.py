"""Byte source of remote objects: the spans of a batch become requests, whose bytes are copied to the items' places.

Under asyncio everything runs in the caller's loop. Under trio, which the client library does not support, the requests
run in a thread with a separate asyncio loop.

An error of one item (a missing image, a damaged record) is that item's failure. An error of all of them (the server
does not answer within the deadline, or the record file was replaced) ends the batch, also with ``on_error="skip"``:
skipping unreachable items would lose data silently.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from aioloader.abc import ByteSource
from aioloader.errors import ObjectChangedError, RemoteReadError, SpanTooShortError
from aioloader.foundation.types import SpanKind
from aioloader.metrics import StorageStats
from aioloader.storage.layout import lay_out_apart, plan_apart
from aioloader.storage.records import check_spans, doubtful, extent_steps, wrong_length
from aioloader.storage.remote.client import Client
from aioloader.storage.remote.loop_thread import LoopThread, in_asyncio
from aioloader.storage.remote.stores import library
from aioloader.storage.remote.transport import ObjectRange, Response, Version
from aioloader.storage.urls import cache_name
from recordio._framing import HEAD_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from aioloader.foundation.types import Array, IntArray, ReadPlan, Spans


MOST_BYTES = 8 << 20
"""Largest request, bytes."""


class Piece(NamedTuple):
    """Planned request.

    Attributes:
        file: number of the object.
        offset: where it begins, bytes.
        length: its bytes.
        items: the items of which it contains bytes.
    """

    file: int
    offset: int
    length: int
    items: list[int]


def plan_requests(
    file: IntArray, offset: IntArray, length: IntArray, *, max_gap_bytes: int, most_bytes: int = MOST_BYTES
) -> list[Piece]:
    """Plan the requests for some items.

    Args:
        file, offset, length: int64 (n,) of each item; lengths at least 0.
        max_gap_bytes: longest range between two items that is requested along with them.
        most_bytes: largest request.
    """
    order = np.lexsort((offset, file))
    order = order[length[order] > 0]
    run: list[int] = []
    begin = end = number = -1
    firsts, lasts, files = offset[order].tolist(), (offset + length)[order].tolist(), file[order].tolist()
    merged: list[Piece] = []
    for item, first, last, of in zip(order.tolist(), firsts, lasts, files, strict=True):
        grown = max(end, last) - begin
        if run and (of != number or first - end > max_gap_bytes or (grown > most_bytes and last > end)):
            merged.append(Piece(number, begin, end - begin, run))
            run = []
        if not run:
            begin, end, number = first, last, of
        run.append(item)
        end = max(end, last)
    if run:
        merged.append(Piece(number, begin, end - begin, run))
    pieces: list[Piece] = []
    for piece in merged:
        if piece.length <= most_bytes:
            pieces.append(piece)
            continue
        items = np.array(piece.items, np.int64)
        count = -(-piece.length // most_bytes)
        size = -(-piece.length // count)
        end = piece.offset + piece.length
        for at in range(piece.offset, end, size):
            stop = min(at + size, end)
            touched = (offset[items] < stop) & (offset[items] + length[items] > at)
            if touched.any():
                pieces.append(Piece(piece.file, at, stop - at, items[touched].tolist()))
    return pieces


def scatter(
    piece: Piece,
    data: memoryview,
    out: memoryview,
    *,
    offset: Sequence[int],
    length: Sequence[int],
    start: Sequence[int],
) -> None:
    """Copy the bytes of a request to the places of its items.

    Args:
        piece: the request.
        data: its bytes.
        out: memory of the batch.
        offset, length: of each item of the batch in its object.
        start: place of each item in `out`.
    """
    for item in piece.items:
        at = offset[item]
        first = max(at, piece.offset)
        last = min(at + length[item], piece.offset + piece.length)
        place = start[item] + first - at
        out[place : place + last - first] = data[first - piece.offset : last - piece.offset]


class HeldObjects:
    """Bytes of objects that were read whole to find their samples, for the first epoch. From any thread.

    An object is dropped when each of its samples was read, and all are dropped when a sample is read again: then the
    others are those of other ranks.

    Args:
        limit_nbytes: most bytes of all objects together.
        objects: number of the objects that may be read.

    Attributes:
        ahead: blocks of one object that may be requested ahead, so that those of all take a bounded amount of memory.
        listed: the samples of an object were found in a list next to it, and perhaps those of the others will be.
        connections: those that the versions were requested with, until a source that reads the objects is closed.
        ends: last bytes that came with the versions, by URL, until the samples of the object are found in them.
    """

    def __init__(self, limit_nbytes: int, objects: int) -> None:
        self.listed = False
        self.connections: object = None
        self.ends: dict[str, memoryview | None] = {}
        self.ahead = max(2, _AHEAD // max(1, objects))
        self._free = limit_nbytes
        self._lock = threading.Lock()
        self._objects: dict[str, _HeldObject] = {}

    def __len__(self) -> int:
        """Return the number of objects of which bytes are in memory."""
        return len(self._objects)

    def reserve(self, url: str, nbytes: int) -> bool:
        """Reserve room for an object; return False if there is none."""
        with self._lock:
            if nbytes > self._free or url in self._objects:
                return False
            self._objects[url] = _HeldObject(nbytes)
            self._free -= nbytes
            return True

    def add(self, url: str, offset: int, data: bytes) -> None:
        """Add bytes of an object for which there is room, unless it was dropped."""
        with self._lock:
            held = self._objects.get(url)
            if held is not None:
                place = bisect_left(held.begins, offset)
                held.begins.insert(place, offset)
                held.blocks.insert(place, memoryview(data))

    def expect(self, url: str, nbytes: int) -> None:
        """Set the bytes of all samples of an object, after which it is dropped."""
        with self._lock:
            held = self._objects.get(url)
            if held is not None:
                held.unread_nbytes = nbytes
        if nbytes <= 0:
            self.drop(url)

    def drop(self, url: str) -> None:
        """Forget an object; may be called twice."""
        with self._lock:
            held = self._objects.pop(url, None)
            if held is not None:
                self._free += held.nbytes

    def read(self, url: str, offset: int, out: memoryview) -> bool:
        """Copy bytes of an object to `out`; return False, perhaps after a part, if they are not all there."""
        with self._lock:
            held = self._objects.get(url)
            if held is None or not held.copy(offset, out):
                return False
            held.unread_nbytes -= len(out)
            again = offset in held.read and len(out) > 0
            held.read.add(offset)
            done = [*self._objects] if again else [url] if held.unread_nbytes <= 0 else []
        for each in done:
            self.drop(each)
        return True


# Blocks of 4 MiB.
_AHEAD = 64


class _HeldObject:
    """Blocks of an object, in the order of their offsets.

    Args:
        nbytes: of the object, for which there is room.
    """

    def __init__(self, nbytes: int) -> None:
        self.nbytes = self.unread_nbytes = nbytes
        self.read: set[int] = set()  # offsets of what was read
        self.begins: list[int] = []
        self.blocks: list[memoryview] = []

    def copy(self, offset: int, out: memoryview) -> bool:
        """Copy bytes to `out`; return False if they are not all there."""
        place = bisect_right(self.begins, offset) - 1
        done = 0
        while done < len(out):
            if not 0 <= place < len(self.blocks):
                return False
            at = offset + done - self.begins[place]
            part = self.blocks[place][max(0, at) : at + len(out) - done]
            if at < 0 or not len(part):
                return False
            out[done : done + len(part)] = part
            done += len(part)
            place += 1
        return True


Failures = list[tuple[int, BaseException]]
T = TypeVar("T")

_MAX_FILE_BYTES = 1 << 30
_SMALL_GAP = 64 << 10
# Between parts of an item. With many requests in flight a further one costs the processors of both sides about as much
# as this many bytes.
_GAP_OF_PARTS = 24 << 10
_NO_BYTES = np.empty((0, 4), np.int64)


class RemoteByteSource(ByteSource):
    """Byte source of remote objects.

    Its plans have one read for each item, in their order, so that a cache can leave out those that it has.

    Args:
        urls: the objects; `Spans.file` counts them.
        kind: of the spans.
        versions: of each object, by its number; None: requested at first use.
        held: bytes that are in memory already.

    Attributes:
        timeout: seconds that one call may take.
        reads_parts: see `aioloader.abc.ByteSource`; not of whole objects.
    """

    # A batch waits for its slowest response. Several times the most requests in flight, so that others continue.
    samples_ahead = 1024
    fetches = True
    _closed = True  # until it is completely made

    def __init__(
        self,
        urls: Sequence[str],
        *,
        kind: SpanKind,
        versions: Sequence[Version | None] | None = None,
        held: HeldObjects | None = None,
    ) -> None:
        self.paths = urls
        self.kind = kind
        self._held = held
        self.reads_parts = kind is not SpanKind.FILE
        self.timeout = 120.0
        self._versions: list[Version | None] = list(versions) if versions is not None else [None] * len(urls)
        self._client = Client()
        self._thread: LoopThread | None = None
        # Reentrant: the garbage collector may close another source in this thread.
        self._thread_lock = threading.RLock()
        self._closed = False

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(RemoteByteSource, kind=self.kind, versions=self._versions), (self.paths,)

    def __del__(self) -> None:
        if not self._closed:
            self.close()

    def close(self) -> None:
        self._closed = True
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.close()
        self._client.close()
        if self._held is not None:
            self._held.connections = None

    def ranges(self) -> RemoteByteSource:
        return RemoteByteSource(self.paths, kind=SpanKind.EXACT)

    def set_timeout(self, seconds: float) -> None:
        self.timeout = seconds

    def identity(self, number: int) -> tuple[str, str] | None:
        """Return name and version of an object for a cache.

        None before the version was requested, and if the server does not identify it (`Version.tag`): a cache could not
        distinguish its bytes from those of another version.
        """
        version = self._versions[number]
        tag = None if version is None else version.tag
        return None if tag is None else (cache_name(self.paths[number]), tag)

    def stats(self) -> StorageStats:
        """Return the statistics so far."""
        counters, latencies = self._client.counters, self._client.latencies
        return StorageStats(
            requests=self._client.request_count,
            request_bytes=counters.nbytes,
            merged=counters.spans / counters.pieces if counters.pieces else None,
            retries=counters.retries,
            hedges=counters.hedges,
            latency_p50_s=latencies.percentile(0.5),
            latency_p99_s=latencies.percentile(0.99),
        )

    # -- interface -----------------------------------------------------------------------------------------------------

    async def plan(self, spans: Spans) -> ReadPlan:
        """Return the plan; sends requests only if a span is doubtful or a size is not known."""
        files = {*spans.file.tolist()}  # np.unique imports numpy.ma
        known = all(self._versions[number] is not None for number in files)
        exact = self.kind is SpanKind.EXACT
        if known and (exact or (self.kind is SpanKind.RECORD and not doubtful(spans.length).any())):
            return plan_apart(spans, spans.length.copy())
        return await self._here(self._plan, spans)

    async def read(self, plan: ReadPlan, out: memoryview) -> Failures:
        """Read the items.

        Raises:
            RemoteReadError: the deadline has passed, or the record file of all items is missing or was replaced.
        """
        return await self._here(self._read, plan, out)

    def plan_blocking(self, spans: Spans) -> ReadPlan:
        return self.blocking(self._plan, spans)

    def read_blocking(self, plan: ReadPlan, out: memoryview) -> Failures:
        return self.blocking(self._read, plan, out)

    def fetch_spans(self, spans: Spans) -> tuple[memoryview, IntArray]:
        """Return the bytes of spans of objects whose versions are known, and the place of each. Blocking.

        Raises:
            RemoteReadError: a span could not be read.
        """
        nbytes, start, reads = lay_out_apart(spans.file, spans.offset, spans.length)
        data = memoryview(bytearray(nbytes))
        failures = self.blocking(self._fetch, reads, data)
        for item in sorted(failures):
            raise failures[item]
        return data, start

    async def _here(self, fn: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        if self._closed:
            raise RuntimeError("the byte source is closed")
        library()  # raises in a forked process, where no request would be answered
        if in_asyncio():
            return await fn(*args)
        return await self._shared_thread().run(fn, *args)

    def blocking(self, fn: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        """Run an async function to its end, in the shared thread."""
        if self._closed:
            raise RuntimeError("the byte source is closed")
        return self._shared_thread().call(fn, *args)

    def _shared_thread(self) -> LoopThread:
        with self._thread_lock:
            if self._thread is None:
                self._thread = LoopThread()
            return self._thread

    # -- planning ------------------------------------------------------------------------------------------------------

    async def _plan(self, spans: Spans) -> ReadPlan:
        length = spans.length.copy()
        unknown = await self._describe(spans.file)
        failures: Failures = [
            (place, unknown[number]) for place, number in enumerate(spans.file.tolist()) if number in unknown
        ]
        if self.kind is SpanKind.FILE:
            self._find_sizes(spans, length, failures)
        elif self.kind is SpanKind.RECORD:
            for place, number, offset, guess in check_spans(spans, self.paths, failures):
                try:
                    length[place] = await self._extent(number, offset, guess)
                except RemoteReadError:
                    raise
                except (ValueError, EOFError) as error:
                    failures.append((place, error))
        return plan_apart(spans, length, sorted(failures, key=lambda failure: failure[0]))

    async def _describe(self, files: IntArray) -> dict[int, RemoteReadError]:
        """Request versions that are not known yet; return the errors by object."""
        numbers = [number for number in sorted({*files.tolist()}) if self._versions[number] is None]
        urls = [self.paths[number] for number in numbers]
        found, failures = await self._client.describe_all(urls, self.timeout)
        for place, version in found.items():
            self._versions[numbers[place]] = version
        for error in failures.values():
            if error.kind not in _OF_ONE_OBJECT or self.kind is not SpanKind.FILE:
                raise error
        return {numbers[place]: error for place, error in failures.items()}

    def _find_sizes(self, spans: Spans, length: IntArray, failures: Failures) -> None:
        for place, number in enumerate(spans.file.tolist()):
            version = self._versions[number]
            if version is None:
                continue
            if version.nbytes > _MAX_FILE_BYTES:
                text = f"{self.paths[number]}: {version.nbytes} bytes are too many for one sample"
                failures.append((place, OSError(text)))
            length[place] = version.nbytes

    async def _extent(self, number: int, offset: int, guess: int) -> int:
        """Return the bytes of a record according to its own headers, see `records.record_extent`."""
        version = self._versions[number]
        assert version is not None
        size = version.nbytes
        steps = extent_steps(self.paths[number], offset, guess, size - offset)
        try:
            place = next(steps)
            while True:
                nbytes = min(HEAD_SIZE, size - place)
                head = [ObjectRange(self.paths[number], place, nbytes, version)] if nbytes > 0 else []
                place = steps.send(b"".join(await self._client.get(head, self.timeout)))
        except StopIteration as stop:
            return int(stop.value)

    # -- reading -------------------------------------------------------------------------------------------------------

    async def _read(self, plan: ReadPlan, out: memoryview) -> Failures:
        reads: IntArray = plan.reads if len(plan.reads) else _NO_BYTES
        failures = await self._fetch(reads, out, partial=plan.partial)
        if self.kind is SpanKind.RECORD:
            await self._report_wrong_lengths(plan, out, failures)
        return sorted(failures.items())

    async def _fetch(
        self, reads: IntArray, out: memoryview, partial: Array | None = None
    ) -> dict[int, BaseException]:
        """Read the bytes of items.

        Args:
            reads: (file, offset, bytes, place) of each item; then of the second parts of items.
            out: memory of the batch.
            partial: see `ReadPlan.partial`.
        """
        file, offset, length, start = reads.T
        if self._held:
            length = self._read_held(self._held, reads, out)
        # A gap as long as an item doubles the bytes that are read, at worst.
        gap = min(self._client.latencies.gap_bytes, max(_SMALL_GAP, int(length.mean()) if len(length) else 0))
        if partial is not None:
            gap = min(gap, _GAP_OF_PARTS)
        pieces = plan_requests(file, offset, length, max_gap_bytes=gap)
        items = len(length) if partial is None else len(partial)
        self._client.counters.spans += int(np.count_nonzero(length[:items]))
        self._client.counters.pieces += len(pieces)
        ranges = [
            ObjectRange(self.paths[piece.file], piece.offset, piece.length, self._versions[piece.file])
            for piece in pieces
        ]

        places = {"offset": offset.tolist(), "length": length.tolist(), "start": start.tolist()}

        def take(number: int, response: Response) -> None:
            scatter(pieces[number], response.data, out, **places)

        failed = await self._client.fetch(ranges, take, self.timeout)
        failures: dict[int, BaseException] = {}
        for number, error in sorted(failed.items()):
            one = error.kind in _OF_ONE_OBJECT or isinstance(error, ObjectChangedError)
            if not one or self.kind is not SpanKind.FILE:
                raise error
            failures.update((item, error) for item in pieces[number].items if item not in failures)
        return failures

    def _read_held(self, held: HeldObjects, reads: IntArray, out: memoryview) -> IntArray:
        """Copy the bytes that are in memory; return the bytes of each read, 0 for those that were copied."""
        length: IntArray = reads[:, 2].copy()
        for place, (number, offset, nbytes, start) in enumerate(reads.tolist()):
            if held.read(self.paths[number], offset, out[start : start + nbytes]):
                length[place] = 0
        return length

    async def _report_wrong_lengths(
        self, plan: ReadPlan, out: memoryview, failures: dict[int, BaseException]
    ) -> None:
        start = plan.start if plan.partial is None else np.where(plan.partial, -1, plan.start)
        for item in wrong_length(out, start, plan.length):
            if item in failures:
                continue
            number, offset, planned, _ = plan.reads[item].tolist()
            try:
                needed = await self._extent(number, offset, planned)
                if needed <= planned:  # the header is no better than the index
                    continue
                failures[item] = SpanTooShortError(self.paths[number], offset, planned, needed)
            except RemoteReadError:
                raise
            except (ValueError, EOFError) as error:
                failures[item] = error


_OF_ONE_OBJECT = ("missing", "denied", "refused")
