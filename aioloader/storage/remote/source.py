"""Objects as a byte source: a batch's spans become requests, their answers are copied to where the items lie.

Under asyncio everything runs in the loop that asks. Under trio, which the client library does not know, the requests
run in a thread with an asyncio loop of its own.

What concerns one item only (a missing image, a damaged record) is that item's failure. What concerns all of them (the
server does not answer within the deadline, or the record file was replaced) ends the batch, whatever is done with
failed samples: leaving out what could not be reached would lose data in silence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from aioloader.errors import ObjectChangedError, RemoteReadError, SpanTooShortError
from aioloader.foundation.types import ReadPlan, Spans
from aioloader.metrics import StorageStats
from aioloader.storage.layout import lay_out_apart
from aioloader.storage.records import doubtful, extent_steps, no_place, unlike
from aioloader.storage.remote.client import Client
from aioloader.storage.remote.loop_thread import LoopThread, in_asyncio
from aioloader.storage.remote.pending_requests import Wanted
from aioloader.storage.remote.planner import plan_requests, scatter
from aioloader.storage.remote.stores import library
from aioloader.storage.urls import redact_url
from recordio._framing import HEAD_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from aioloader.foundation.types import IntArray
    from aioloader.storage.remote.planner import Piece
    from aioloader.storage.remote.transport import Answer, Version

__all__ = ("Failures", "RemoteByteSource")

Failures = list[tuple[int, BaseException]]
T = TypeVar("T")

_MAX_FILE_BYTES = 1 << 30
_SMALL_GAP = 64 << 10
_NO_BYTES = np.empty((0, 4), np.int64)


class RemoteByteSource:
    """Bytes of objects; implements `ByteSource`. Can be pickled; the copy has connections of its own.

    Args:
        urls: the objects; `Spans.file` counts them.
        whole_files: spans are whole objects (length -1), not records.
        versions: what each object is, by its number; None where that is not known: it is asked for at first use.

    Attributes:
        timeout: seconds that one call may take; the loader sets it.
        samples_ahead: samples that should be on their way at a time.
    """

    # A batch is there when its slowest answer is. Several times as many as may be in flight, so that the others go on.
    samples_ahead = 1024

    def __init__(
        self,
        urls: Sequence[str],
        *,
        whole_files: bool,
        versions: Sequence[Version | None] | None = None,
    ) -> None:
        self.paths = urls
        self.whole_files = whole_files
        self.timeout = 120.0
        self._versions: list[Version | None] = list(versions) if versions is not None else [None] * len(urls)
        self._client = Client()
        self._thread: LoopThread | None = None
        self._closed = False

    def __reduce__(self) -> tuple[Any, ...]:
        return _remake, (self.paths, self.whole_files, self._versions)

    def __del__(self) -> None:
        if hasattr(self, "_closed"):
            self.close()

    def close(self) -> None:
        """Close connections and the thread, if there is one; may be called twice."""
        self._closed = True
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.close()
        self._client.close()

    def identity(self, number: int) -> tuple[str, str] | None:
        """Name and version of an object, as a cache may know it.

        None before it was asked for, and where the server does not say which state it is (`Version.told`): bytes that
        are kept could not be told from those of another one.
        """
        version = self._versions[number]
        return None if version is None or not version.told else (redact_url(self.paths[number]), version.tag)

    def stats(self) -> StorageStats:
        """What was done so far."""
        counters, latencies = self._client.counters, self._client.latencies
        return StorageStats(
            requests=counters.requests,
            request_bytes=counters.nbytes,
            merged=counters.spans / counters.pieces if counters.pieces else None,
            retries=counters.retries,
            hedges=counters.hedges,
            latency_p50_s=latencies.percentile(0.5),
            latency_p99_s=latencies.percentile(0.99),
        )

    # -- faces ---------------------------------------------------------------------------------------------------------

    async def plan(self, spans: Spans) -> ReadPlan:
        """See `ByteSource.plan`. Asks the network only where the index is doubtful, or a size is not known."""
        if not self.whole_files and self._known(spans.file) and not doubtful(spans.length).any():
            return self._laid_out(spans, spans.length.copy(), [])
        return await self._here(self._plan, spans)

    async def read(self, plan: ReadPlan, out: memoryview) -> Failures:
        """See `ByteSource.read`.

        Raises:
            RemoteReadError: the deadline has passed, or the object of all items is gone or was replaced.
        """
        return await self._here(self._read, plan, out)

    def fetch(self, spans: Spans) -> tuple[ReadPlan, memoryview]:
        """Plan and read at once, blocking: for a single item here and now.

        Raises:
            Exception: the first item that could not be read, raised as its own error.
        """
        plan = self.blocking(self._plan, spans)
        data = memoryview(bytearray(plan.nbytes))
        for _, error in plan.failures or self.blocking(self._read, plan, data):
            raise error
        return plan, data

    def fetch_spans(self, spans: Spans) -> tuple[memoryview, IntArray]:
        """The bytes of any spans of objects whose versions are known, blocking, and the place of each.

        Raises:
            RemoteReadError: one could not be read.
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
        library()  # in a forked process nothing would answer
        if in_asyncio():
            return await fn(*args)
        return await self._loop_thread().run(fn, *args)

    def blocking(self, fn: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        """Run an async function to its end, in the thread for such calls."""
        if self._closed:
            raise RuntimeError("the byte source is closed")
        return self._loop_thread().call(fn, *args)

    def _loop_thread(self) -> LoopThread:
        if self._thread is None:
            self._thread = LoopThread()
        return self._thread

    # -- planning ------------------------------------------------------------------------------------------------------

    def _known(self, files: IntArray) -> bool:
        return all(self._versions[number] is not None for number in np.unique(files).tolist())

    async def _plan(self, spans: Spans) -> ReadPlan:
        length = spans.length.copy()
        unknown = await self._describe(spans.file)
        failures: Failures = [
            (place, unknown[number]) for place, number in enumerate(spans.file.tolist()) if number in unknown
        ]
        if self.whole_files:
            self._find_sizes(spans, length, failures)
        else:
            await self._check_spans(spans, length, failures)
        return self._laid_out(spans, length, sorted(failures, key=lambda failure: failure[0]))

    def _laid_out(self, spans: Spans, length: IntArray, failures: Failures) -> ReadPlan:
        fine = np.ones(len(length), bool)
        fine[[place for place, _ in failures]] = False
        length[~fine] = 0
        nbytes, start, reads = lay_out_apart(spans.file, spans.offset, length)
        start[~fine] = -1
        return ReadPlan(nbytes, start, length, reads, failures)

    async def _describe(self, files: IntArray) -> dict[int, RemoteReadError]:
        """Find out what objects are that are not known yet; gives the errors by object."""
        numbers = [number for number in np.unique(files).tolist() if self._versions[number] is None]
        wanted = [self.paths[number] for number in numbers]
        found, failures = await self._client.describe_all(wanted, self.timeout)
        for place, version in found.items():
            self._versions[numbers[place]] = version
        for error in failures.values():
            if error.kind not in _OF_ONE_OBJECT or not self.whole_files:
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

    async def _check_spans(self, spans: Spans, length: IntArray, failures: Failures) -> None:
        bad = (spans.offset < 0) | (length <= 0)
        for place in np.flatnonzero(bad).tolist():
            path, offset = self.paths[int(spans.file[place])], int(spans.offset[place])
            failures.append((place, no_place(path, offset, int(length[place]))))
        for place in np.flatnonzero(doubtful(length) & ~bad).tolist():
            number, offset = int(spans.file[place]), int(spans.offset[place])
            try:
                length[place] = await self._extent(number, offset, int(length[place]))
            except RemoteReadError:
                raise
            except (ValueError, EOFError) as error:
                failures.append((place, error))

    async def _extent(self, number: int, offset: int, guess: int) -> int:
        """Bytes of a record by its own heads, see `records.record_extent`."""
        size = self._size(number)
        steps = extent_steps(self.paths[number], offset, guess, size - offset)
        try:
            place = next(steps)
            while True:
                nbytes = min(HEAD_SIZE, size - place)
                place = steps.send(await self._bytes(number, place, nbytes) if nbytes > 0 else b"")
        except StopIteration as stop:
            return int(stop.value)

    async def _bytes(self, number: int, offset: int, nbytes: int) -> bytes:
        wanted = Wanted(self.paths[number], offset, nbytes, self._versions[number])
        return (await self._client.get([wanted], self.timeout))[0]

    def _size(self, number: int) -> int:
        version = self._versions[number]
        assert version is not None
        return version.nbytes

    # -- reading -------------------------------------------------------------------------------------------------------

    async def _read(self, plan: ReadPlan, out: memoryview) -> Failures:
        reads: IntArray = plan.reads if len(plan.reads) else _NO_BYTES
        failures = await self._fetch(reads, out)
        if not self.whole_files:
            await self._report_unlike(plan, out, failures)
        return sorted(failures.items())

    async def _fetch(self, reads: IntArray, out: memoryview) -> dict[int, BaseException]:
        """Bring the bytes of items; `reads` are (file, offset, bytes, place), one for each item."""
        file, offset, length, start = reads.T
        # A gap as long as an item doubles what is read, at worst.
        gap = min(self._client.latencies.gap_bytes, max(_SMALL_GAP, int(length.mean()) if len(length) else 0))
        pieces = plan_requests(file, offset, length, max_gap_bytes=gap)
        self._client.counters.spans += int(np.count_nonzero(length))
        self._client.counters.pieces += len(pieces)
        wanted = [
            Wanted(self.paths[piece.file], piece.offset, piece.length, self._versions[piece.file])
            for piece in pieces
        ]

        where = offset.tolist(), length.tolist(), start.tolist()

        def take(number: int, answer: Answer) -> None:
            scatter(pieces[number], answer.data, out, *where)

        failed = await self._client.fetch(wanted, take, self.timeout)
        return self._sorted_out(pieces, failed)

    def _sorted_out(
        self, pieces: list[Piece], failed: dict[int, RemoteReadError]
    ) -> dict[int, BaseException]:
        """The failures of items from those of requests; raises what is not the affair of single items."""
        failures: dict[int, BaseException] = {}
        for number, error in sorted(failed.items()):
            one = self.whole_files and (error.kind in _OF_ONE_OBJECT or isinstance(error, ObjectChangedError))
            if not one:
                raise error
            failures.update((item, error) for item in pieces[number].items if item not in failures)
        return failures

    async def _report_unlike(
        self, plan: ReadPlan, out: memoryview, failures: dict[int, BaseException]
    ) -> None:
        for item in unlike(out, plan.start, plan.length):
            if item in failures:
                continue
            number, offset, planned, _ = plan.reads[item].tolist()
            try:
                needed = await self._extent(number, offset, planned)
                if needed <= planned:  # nobody knows better
                    continue
                failures[item] = SpanTooShortError(self.paths[number], offset, planned, needed)
            except RemoteReadError:
                raise
            except (ValueError, EOFError) as error:
                failures[item] = error


_OF_ONE_OBJECT = ("missing", "denied", "refused")


def _remake(urls: Sequence[str], whole_files: bool, versions: Sequence[Version | None]) -> RemoteByteSource:
    return RemoteByteSource(urls, whole_files=whole_files, versions=versions)
