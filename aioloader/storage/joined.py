"""Byte sources over others: over those of several parts, and over one of files with items in pieces.

The files of a part have consecutive numbers that begin at the part's own; the parts' sources see theirs from 0 on. A
batch is planned and read by the sources of all parts that it needs at the same time, each in a stretch of the memory.

An item in pieces has a span of the bytes of all of them, by which it is known. Each piece is read like an item.
"""

from __future__ import annotations

from dataclasses import fields
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar

import anyio
import numpy as np

from aioloader.abc import (
    AnnouncedByteSource,
    BlockingByteSource,
    CountingByteSource,
    FetchingByteSource,
    FileMaps,
    MappableByteSource,
    NetworkByteSource,
    PartialByteSource,
)
from aioloader.errors import single
from aioloader.foundation.types import IntArray, ReadPlan, Spans, StorageStats
from aioloader.storage.layout import ALIGNMENT

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable, Coroutine, Sequence

    from aioloader.abc import ByteSource

T = TypeVar("T")
Failures = list[tuple[int, BaseException]]

_ADDED = ("requests", "request_bytes", "retries", "hedges")


class FileNumbers:
    """Numbers of the files of parts.

    Args:
        starts: the number of the first file of each part, ascending; the first is 0.
    """

    def __init__(self, starts: Sequence[int]) -> None:
        self._starts = np.asarray(starts, np.int64)

    def parts_of(self, files: IntArray) -> IntArray:
        """Return the part of each file, int64 (n,)."""
        return np.searchsorted(self._starts, files, side="right").astype(np.int64) - 1

    def locate(self, file: int) -> tuple[int, int]:
        """Return the part of a file, and the file's number in it."""
        part = int(np.searchsorted(self._starts, file, side="right")) - 1
        return part, file - int(self._starts[part])

    def start(self, part: int) -> int:
        """Return the number of a part's first file."""
        return int(self._starts[part])


class _PartPlan(NamedTuple):
    """The plan of one part's source: its places in the batch, int64 (m,), and where its memory begins."""

    source: Any
    plan: ReadPlan
    places: IntArray
    begin: int


class JoinedByteSource:
    """Byte source over those of several parts; implements `PartialByteSource`, `AnnouncedByteSource` and more.

    Args:
        sources: of the parts; None for a part whose items have no bytes. They are closed with this one.
        numbers: of the parts' files.
    """

    def __init__(self, sources: Sequence[ByteSource | None], numbers: FileNumbers) -> None:
        self._sources = tuple(sources)
        self._numbers = numbers

    @property
    def _opened(self) -> list[ByteSource]:
        return [source for source in self._sources if source is not None]

    def _parts(self, spans: Spans) -> list[tuple[Any, Spans, IntArray]]:
        """Return the source, the spans and the places in the batch of each part that has bytes."""
        parts = self._numbers.parts_of(spans.file)
        found = []
        for part in np.unique(parts).tolist():
            source = self._sources[part]
            if source is None:
                continue
            places = np.flatnonzero(parts == part)
            gaps = spans.gaps
            takes = isinstance(source, PartialByteSource) and source.reads_parts
            own = Spans(
                spans.file[places] - self._numbers.start(part),
                spans.offset[places],
                spans.length[places],
                gaps[places] if gaps is not None and takes else None,
            )
            found.append((source, own, places))
        return found

    def _joined(self, spans: Spans, planned: list[tuple[Any, ReadPlan, IntArray]]) -> ReadPlan:
        n = len(spans)
        start, length = np.zeros(n, np.int64), np.zeros(n, np.int64)
        mapped: list[IntArray] = []
        partial: Any = None
        failures: Failures = []
        reads: list[_PartPlan] = []
        begin = 0
        for source, plan, places in planned:
            start[places] = np.where(plan.start < 0, plan.start, plan.start + begin)
            length[places] = plan.length
            if len(plan.mapped):
                mapped.append(places[plan.mapped])
            if plan.partial is not None:
                partial = np.zeros(n, bool) if partial is None else partial
                partial[places] = plan.partial
            failures += [(int(places[place]), error) for place, error in plan.failures]
            reads.append(_PartPlan(source, plan, places, begin))
            begin += -(-plan.nbytes // ALIGNMENT) * ALIGNMENT
        found = np.sort(np.concatenate(mapped)) if mapped else np.empty(0, np.int64)
        return ReadPlan(begin, start, length, reads, failures, mapped=found, partial=partial)

    async def plan(self, spans: Spans) -> ReadPlan:
        parts = self._parts(spans)
        plans = await _together([source.plan for source, _, _ in parts], [(own,) for _, own, _ in parts])
        return self._joined(
            spans,
            [(source, plan, places) for (source, _, places), plan in zip(parts, plans, strict=True)],
        )

    async def read(self, plan: ReadPlan, out: memoryview) -> Failures:
        parts: list[_PartPlan] = [part for part in plan.reads if part.plan.nbytes]
        found = await _together(
            [part.source.read for part in parts],
            [(part.plan, out[part.begin : part.begin + part.plan.nbytes]) for part in parts],
        )
        return _of_batch(parts, found)

    def fetch(self, spans: Spans) -> tuple[ReadPlan, memoryview]:
        """Plan and read at once, blocking; see `aioloader.abc.FetchingByteSource.fetch`.

        Raises:
            TypeError: the source of a part has no `fetch`.
        """
        planned, memories = [], []
        for source, own, places in self._parts(spans):
            if not isinstance(source, FetchingByteSource):
                raise TypeError(
                    f"{type(source).__name__} lacks fetch(), see aioloader.abc.FetchingByteSource"
                )
            plan, data = source.fetch(own)
            planned.append((source, plan, places))
            memories.append(data)
        plan = self._joined(spans, planned)
        out = memoryview(bytearray(plan.nbytes))
        for part, data in zip(plan.reads, memories, strict=True):
            out[part.begin : part.begin + part.plan.nbytes] = data[: part.plan.nbytes]
        return plan, out

    def close(self) -> None:
        for source in self._opened:
            source.close()

    # -- abilities ---------------------------------------------------------------------------------------------------

    @property
    def reads_parts(self) -> bool:
        """Return True if a part's source can leave out a stretch of a span."""
        return any(isinstance(source, PartialByteSource) and source.reads_parts for source in self._opened)

    @property
    def announced(self) -> int:
        """Return how many samples behind the next batch are announced; 0 if no part reads ahead."""
        return max(
            (each.announced for each in self._opened if isinstance(each, AnnouncedByteSource)), default=0
        )

    def announce(self, spans: Spans) -> None:
        """Begin to read; see `aioloader.abc.AnnouncedByteSource`."""
        for source, own, _ in self._parts(spans):
            if isinstance(source, AnnouncedByteSource):
                source.announce(own)

    def stats(self) -> StorageStats:
        """Return the counters of all parts: sums, the slower latency, and rates where only one part has them."""
        counted = [each.stats() for each in self._opened if isinstance(each, CountingByteSource)]
        added: dict[str, Any] = {name: sum(getattr(each, name) for each in counted) for name in _ADDED}
        for name in (field.name for field in fields(StorageStats) if field.name not in _ADDED):
            known = [getattr(each, name) for each in counted if getattr(each, name) is not None]
            if name.startswith("latency"):
                added[name] = max(known, default=None)
            else:
                added[name] = known[0] if len(known) == 1 else None
        return StorageStats(**added)

    def mapped(self) -> MappedJoinedSource | None:
        """Return a source whose parts map their files, as far as they can; None if no part does."""
        found: list[ByteSource | None] = []
        maps: list[FileMaps | None] = []
        for source in self._sources:
            mapped = source.mapped() if isinstance(source, MappableByteSource) else None
            found.append(source if mapped is None else mapped)
            maps.append(None if mapped is None else mapped.maps)
        if not any(each is not None for each in maps):
            return None
        return MappedJoinedSource(found, self._numbers, JoinedMaps(maps, self._numbers))


class BlockingJoinedSource(JoinedByteSource):
    """Byte source over those of parts that all work without an event loop; implements `BlockingByteSource`."""

    def plan_blocking(self, spans: Spans) -> ReadPlan:
        return self._joined(
            spans, [(source, source.plan_blocking(own), places) for source, own, places in self._parts(spans)]
        )

    def read_blocking(self, plan: ReadPlan, out: memoryview) -> Failures:
        parts: list[_PartPlan] = [part for part in plan.reads if part.plan.nbytes]
        found = [
            part.source.read_blocking(part.plan, out[part.begin : part.begin + part.plan.nbytes])
            for part in parts
        ]
        return _of_batch(parts, found)


class NetworkJoinedSource(JoinedByteSource):
    """Byte source over those of parts, some of them with long latencies; implements `NetworkByteSource`."""

    @property
    def _remote(self) -> list[NetworkByteSource]:
        return [source for source in self._opened if isinstance(source, NetworkByteSource)]

    @property
    def timeout(self) -> float:
        """Return the seconds that one call may take."""
        return max(source.timeout for source in self._remote)

    @timeout.setter
    def timeout(self, seconds: float) -> None:
        for source in self._remote:
            source.timeout = seconds

    @property
    def samples_ahead(self) -> int:
        """Return how many samples must be in flight at a time."""
        return max(source.samples_ahead for source in self._remote)


class MappedJoinedSource(JoinedByteSource):
    """Byte source over those of parts, some of which map their files; implements `MappedByteSource`.

    Args:
        sources: of the parts.
        numbers: of their files.
        maps: of the parts that map their files.
    """

    def __init__(self, sources: Sequence[ByteSource | None], numbers: FileNumbers, maps: JoinedMaps) -> None:
        super().__init__(sources, numbers)
        self.maps = maps


class JoinedMaps:
    """Memory maps of the files of several parts; implements `aioloader.abc.FileMaps`.

    Args:
        maps: of each part; None for a part that is read.
        numbers: of the parts' files.
    """

    def __init__(self, maps: Sequence[FileMaps | None], numbers: FileNumbers) -> None:
        self._maps = tuple(maps)
        self._numbers = numbers

    @property
    def fds(self) -> Sequence[int]:
        return [fd for maps in self._maps if maps is not None for fd in maps.fds]

    def _of(self, file: int) -> tuple[FileMaps, int]:
        part, number = self._numbers.locate(file)
        maps = self._maps[part]
        assert maps is not None
        return maps, number

    def record(self, file: int, offset: int, length: int) -> memoryview:
        maps, number = self._of(file)
        return maps.record(number, offset, length)

    def whole(self, file: int, end: IntArray) -> mmap.mmap | None:
        maps, number = self._of(file)
        return maps.whole(number, end)


def join_sources(sources: Sequence[ByteSource | None], numbers: FileNumbers) -> JoinedByteSource:
    """Return the byte source over those of parts, with the abilities that they have.

    Args:
        sources: of the parts; None for a part whose items have no bytes.
        numbers: of the parts' files.
    """
    opened = [source for source in sources if source is not None]
    if any(isinstance(source, NetworkByteSource) for source in opened):
        return NetworkJoinedSource(sources, numbers)
    if all(isinstance(source, BlockingByteSource) for source in opened):
        return BlockingJoinedSource(sources, numbers)
    return JoinedByteSource(sources, numbers)


# -- items in pieces ---------------------------------------------------------------------------------------------------

Pieces: TypeAlias = "Sequence[tuple[int, int, int]]"
"""Pieces of an item: (place in the item, offset in its file, bytes) of each."""


class ItemPieces(Protocol):
    """Items of one file that are several stretches of it, such as samples with links to other members."""

    def find(self, offset: IntArray, length: IntArray) -> Sequence[tuple[int, Pieces]]:
        """Return the place among some spans, and the pieces, of each span that is that of such an item.

        Args:
            offset, length: int64 (n,), of the spans; the length is that of the whole item.
        """
        ...

    def finish(self, item: memoryview, pieces: Pieces) -> None:
        """Change those bytes of an item that are not the ones in the file; the pieces are in their places."""
        ...


class _PiecedReads(NamedTuple):
    """Reads of a batch with items in pieces.

    Attributes:
        plan: of the spans, those of items in pieces without bytes; and of all pieces, behind them.
        items: place in the batch, number of the file, and pieces of each item in pieces.
        owners: place in the batch of the item of each span in `plan`.
    """

    plan: ReadPlan
    items: list[tuple[int, int, Pieces]]
    owners: list[int]


class PiecedByteSource(JoinedByteSource):
    """Byte source of files with items in pieces, which are read like items and copied to one place.

    Args:
        source: a `FileByteSource`; closed with this one.
        pieces: of the items of each file; None for a file whose items are single stretches.
    """

    def __init__(self, source: Any, pieces: Sequence[ItemPieces | None]) -> None:
        super().__init__([source], FileNumbers([0]))
        self.paths: Sequence[str] = source.paths
        self._pieces = tuple(pieces)

    @property
    def reads_parts(self) -> bool:
        """Return False: there is nothing to leave out of an item in pieces."""
        return False

    def mapped(self) -> None:
        """Return None: in a map of a file an item is one stretch."""
        return

    def _apart(self, spans: Spans) -> tuple[Spans, list[tuple[int, int, Pieces]]]:
        """Return the spans to read, and the items in pieces; see `_PiecedReads`."""
        items = []
        for number in np.unique(spans.file).tolist():
            file = self._pieces[number]
            if file is not None:
                here = np.flatnonzero(spans.file == number)
                found = file.find(spans.offset[here], spans.length[here])
                items += [(int(here[place]), number, pieces) for place, pieces in found]
        length = spans.length.copy()
        length[[place for place, _, _ in items]] = 0
        rows = [(number, at, nbytes) for _, number, pieces in items for _, at, nbytes in pieces]
        columns = (spans.file, spans.offset, length), np.array(rows, np.int64).reshape(-1, 3).T
        return Spans(*(np.concatenate(both) for both in zip(*columns, strict=True))), items

    def _whole(self, spans: Spans, plan: ReadPlan, items: list[tuple[int, int, Pieces]]) -> ReadPlan:
        """Return the plan of a batch from that of its items and pieces: room for whole items is behind these."""
        n, end = len(spans), plan.nbytes
        owners = [*range(n), *(place for place, _, pieces in items for _ in pieces)]
        failures = {owners[place]: error for place, error in plan.failures}
        start, length = plan.start[:n].copy(), plan.length[:n].copy()
        for place, _, _ in items:
            start[place] = -1
            if place not in failures:
                start[place], length[place] = -(-end // ALIGNMENT) * ALIGNMENT, spans.length[place]
                end = int(start[place] + length[place])
        return ReadPlan(end, start, length, _PiecedReads(plan, items, owners), sorted(failures.items()))

    def _finish(self, plan: ReadPlan, failures: Failures, out: memoryview) -> Failures:
        """Put the pieces that were read together; return the failures of items."""
        reads: _PiecedReads = plan.reads
        failed = {reads.owners[place]: error for place, error in failures}
        begins = iter(reads.plan.start[len(plan.start) :].tolist())
        for place, number, pieces in reads.items:
            sources = [next(begins) for _ in pieces]
            file, start = self._pieces[number], int(plan.start[place])
            if file is None or start < 0 or place in failed:
                continue
            item = out[start : start + int(plan.length[place])]
            for (at, _, nbytes), begin in zip(pieces, sources, strict=True):
                item[at : at + nbytes] = out[begin : begin + nbytes]
            file.finish(item, pieces)
        return sorted(failed.items(), key=itemgetter(0))

    async def plan(self, spans: Spans) -> ReadPlan:
        apart, items = self._apart(spans)
        return self._whole(spans, await super().plan(apart), items)

    async def read(self, plan: ReadPlan, out: memoryview) -> Failures:
        return self._finish(plan, await super().read(plan.reads.plan, out), out)

    def fetch(self, spans: Spans) -> tuple[ReadPlan, memoryview]:
        apart, items = self._apart(spans)
        inner, data = super().fetch(apart)
        plan = self._whole(spans, inner, items)
        out = memoryview(bytearray(plan.nbytes))
        out[: inner.nbytes] = data[: inner.nbytes]
        self._finish(plan, [], out)
        return plan, out


class _BlockingPiecedSource(PiecedByteSource, BlockingJoinedSource):
    def plan_blocking(self, spans: Spans) -> ReadPlan:
        apart, items = self._apart(spans)
        return self._whole(spans, super().plan_blocking(apart), items)

    def read_blocking(self, plan: ReadPlan, out: memoryview) -> Failures:
        return self._finish(plan, super().read_blocking(plan.reads.plan, out), out)


class _NetworkPiecedSource(PiecedByteSource, NetworkJoinedSource):
    pass


def in_pieces(source: FetchingByteSource, pieces: Sequence[ItemPieces | None]) -> PiecedByteSource:
    """Return a source of files with items in pieces, with the abilities of the source.

    Args:
        source, pieces: see `PiecedByteSource`.
    """
    made = _NetworkPiecedSource if isinstance(source, NetworkByteSource) else _BlockingPiecedSource
    return made(source, pieces)


def _of_batch(parts: list[_PartPlan], found: list[Failures]) -> Failures:
    """Return the failures of parts, by their places in the batch."""
    return [
        (int(part.places[place]), error)
        for part, failures in zip(parts, found, strict=True)
        for place, error in failures
    ]


async def _together(
    calls: list[Callable[..., Coroutine[Any, Any, T]]], args: list[tuple[Any, ...]]
) -> list[T]:
    """Await calls at the same time; return their results in order."""
    if len(calls) == 1:
        return [await calls[0](*args[0])]
    found: dict[int, T] = {}

    async def call(number: int) -> None:
        found[number] = await calls[number](*args[number])

    try:
        async with anyio.create_task_group() as tasks:
            for number in range(len(calls)):
                tasks.start_soon(call, number)
    except BaseExceptionGroup as group:
        raise single(group) from None
    return [found[number] for number in range(len(calls))]
