"""Byte source over those of several parts.

The files of a part have consecutive numbers that begin at the part's own; the parts' sources see theirs from 0 on. A
batch is planned and read by the sources of all parts that it needs at the same time, each in a stretch of the memory.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import anyio
import numpy as np

from aioloader.abc import ByteSource, FileMaps
from aioloader.errors import single
from aioloader.foundation.types import IntArray, ReadPlan, Spans, StorageStats
from aioloader.storage.layout import ALIGNMENT

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable, Coroutine, Sequence


T = TypeVar("T")
Failures = list[tuple[int, BaseException]]

_ADDED = ("requests", "request_bytes", "retries", "hedges")
# The following are None in parts that have none.
_SUMMED = ("kept_samples", "kept_items", "kept_bytes")
_LARGEST = ("latency_p50_s", "latency_p99_s", "kept_full", "kept_failed")


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

    source: ByteSource
    plan: ReadPlan
    places: IntArray
    begin: int


class JoinedByteSource(ByteSource):
    """Byte source over those of several parts.

    Args:
        sources: of the parts; None for a part whose items have no bytes. They are closed with this one.
        numbers: of the parts' files.
        maps: of the parts that map their files.
    """

    def __init__(
        self, sources: Sequence[ByteSource | None], numbers: FileNumbers, maps: JoinedMaps | None = None
    ) -> None:
        self._sources = tuple(sources)
        self._numbers = numbers
        self.maps = maps
        opened = self._opened = [source for source in sources if source is not None]
        self.samples_ahead = max((each.samples_ahead for each in opened), default=0)
        self.announced = max((each.announced for each in opened), default=0)
        self.reads_parts = any(each.reads_parts for each in opened)
        self.fetches = all(each.fetches for each in opened)
        self.blocks = all(each.blocks for each in opened)

    def _parts(self, spans: Spans) -> list[tuple[ByteSource, Spans, IntArray]]:
        """Return the source, the spans and the places in the batch of each part that has bytes."""
        parts = self._numbers.parts_of(spans.file)
        found = []
        for part in np.unique(parts).tolist():
            source = self._sources[part]
            if source is None:
                continue
            places = np.flatnonzero(parts == part)
            gaps = spans.gaps
            own = Spans(
                spans.file[places] - self._numbers.start(part),
                spans.offset[places],
                spans.length[places],
                gaps[places] if gaps is not None and source.reads_parts else None,
            )
            found.append((source, own, places))
        return found

    def _joined(self, spans: Spans, planned: list[tuple[ByteSource, ReadPlan, IntArray]]) -> ReadPlan:
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
        plans = await together([source.plan for source, _, _ in parts], [(own,) for _, own, _ in parts])
        return self._joined(
            spans,
            [(source, plan, places) for (source, _, places), plan in zip(parts, plans, strict=True)],
        )

    async def read(self, plan: ReadPlan, out: memoryview) -> Failures:
        parts: list[_PartPlan] = [part for part in plan.reads if part.plan.nbytes]
        found = await together(
            [part.source.read for part in parts],
            [(part.plan, out[part.begin : part.begin + part.plan.nbytes]) for part in parts],
        )
        return _of_batch(parts, found)

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

    def close(self) -> None:
        for source in self._opened:
            source.close()

    def set_timeout(self, seconds: float) -> None:
        for source in self._opened:
            source.set_timeout(seconds)

    def announce(self, spans: Spans) -> None:
        for source, own, _ in self._parts(spans):
            source.announce(own)

    def stats(self) -> StorageStats:
        """Return the counters of all parts: sums, the slower latency, and rates where only one part has them."""
        counted = [stats for each in self._opened if (stats := each.stats()) is not None]
        added: dict[str, Any] = {name: sum(getattr(each, name) for each in counted) for name in _ADDED}
        for name in (field.name for field in fields(StorageStats) if field.name not in _ADDED):
            known = [getattr(each, name) for each in counted if getattr(each, name) is not None]
            if name in _LARGEST:
                added[name] = max(known, default=None)
            elif name in _SUMMED:
                added[name] = sum(known) if known else None
            else:
                added[name] = known[0] if len(known) == 1 else None
        return StorageStats(**added)

    def mapped(self) -> JoinedByteSource | None:
        """Return a source whose parts map their files, as far as they can; None if no part does."""
        found = [None if source is None else source.mapped() for source in self._sources]
        maps = [None if source is None else source.maps for source in found]
        if all(each is None for each in maps):
            return None
        sources = [mapped or source for mapped, source in zip(found, self._sources, strict=True)]
        return JoinedByteSource(sources, self._numbers, JoinedMaps(maps, self._numbers))


class JoinedMaps(FileMaps):
    """Memory maps of the files of several parts.

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


def _of_batch(parts: list[_PartPlan], found: list[Failures]) -> Failures:
    """Return the failures of parts, by their places in the batch."""
    return [
        (int(part.places[place]), error)
        for part, failures in zip(parts, found, strict=True)
        for place, error in failures
    ]


async def together(
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
