"""Values that travel between the stages, with methods that only arrange, split and add up their own data.

Three numbers that are never mixed: *position* (place in the epoch's order), *index* (place in the dataset),
*key* (name in the .idx).
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from operator import attrgetter
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from aioloader.errors import IncompleteItemError
from aioloader.foundation.decodes import NO_CROP, WAYS, WHOLE

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable, Sequence

IntArray: TypeAlias = npt.NDArray[np.int64]
Array: TypeAlias = npt.NDArray[Any]

WHOLE_FILE = -1
"""Length of a span that is a whole file, whose size the byte source finds."""


class SpanKind(Enum):
    """Kind of the spans of a byte source: how far their lengths can be trusted."""

    FILE = "file"
    """Whole files or objects, of length `WHOLE_FILE`."""
    RECORD = "record"
    """Framed records. The length is a guess from an index; the record's own headers have the real one."""
    EXACT = "exact"
    """Bytes of a known length. Only the end of the file is checked."""


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """Shape and dtype of an array, known before it is made.

    Attributes:
        shape: extents; None where an extent varies from sample to sample.
        dtype: numpy dtype.
    """

    shape: tuple[int | None, ...]
    dtype: np.dtype[Any]

    @property
    def fixed(self) -> bool:
        """Return True if every extent is known, so that a row of a batch can be laid out."""
        return None not in self.shape


@dataclass(frozen=True, slots=True)
class Spans:
    """Spans of files or objects that contain items.

    Attributes:
        file: int64 (n,), number of the file in its byte source.
        offset: int64 (n,), byte offset of each span.
        length: int64 (n,), bytes of each span; `WHOLE_FILE` for a whole file.
        gaps: int64 (n, 2), a stretch inside each span that is not read, or None: where it begins in the span, and its
            bytes, which may be 0. A span that does not contain a whole item has a gap that begins behind its first
            byte; any other has zeros. Only for a source that `reads_parts`.
    """

    file: IntArray
    offset: IntArray
    length: IntArray
    gaps: IntArray | None = None

    def __len__(self) -> int:
        return len(self.offset)


@dataclass(frozen=True, slots=True)
class StorageStats:
    """Counters of a byte source; see `aioloader.metrics.Stats` for the fields."""

    requests: int = 0
    request_bytes: int = 0
    merged: float | None = None
    retries: int = 0
    hedges: int = 0
    hit_rate: float | None = None
    latency_p50_s: float | None = None
    latency_p99_s: float | None = None
    kept_samples: int | None = None
    kept_items: int | None = None
    kept_bytes: int | None = None
    kept_full: bool | None = None
    kept_failed: bool | None = None


class ItemLocation(NamedTuple):
    """Key, path and offset of an item, for errors."""

    key: object = None
    path: str | None = None
    offset: int | None = None


@dataclass(slots=True)
class ReadPlan:
    """Plan of the reads of a batch: how much memory they need, and where in it each item will be.

    Attributes:
        nbytes: bytes to allocate.
        start: int64 (n,), byte offset of each item in that memory; -1 where planning failed, and for mapped items.
        length: int64 (n,), bytes of each item; 0 where planning failed.
        reads: the reads, in any form: only the source that made the plan uses them, and the cache in front of it. The
            package's sources have int64 (m, 4), with the columns of `aioloader.storage.layout.Read`.
        failures: (place in the batch, error) of items whose size could not be found.
        mapped: int64 (m,), places in the batch of items that are not read: the executor finds them in its maps of the
            files.
        partial: bool (n,), items of which only parts are read, one behind the other; None: there are none.
    """

    nbytes: int
    start: IntArray
    length: IntArray
    reads: Any = ()
    failures: list[tuple[int, BaseException]] = field(default_factory=list)
    mapped: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    partial: Array | None = None


class RankBatch(NamedTuple):
    """One batch of a `aioloader.abc.ComputedBatchSampler`, for one rank.

    Attributes:
        indices: int64 (n,), indices of the dataset.
        position: number of samples in the epoch's batches of all ranks before it; one that repeats another has its own.
        consumed: batches of the epoch that all ranks together have consumed once it is delivered.
        padded: how many of its last samples only fill it up.
    """

    indices: IntArray
    position: int
    consumed: int
    padded: int = 0


class PartialItems(NamedTuple):
    """Items of a batch, some of which are not read whole.

    Attributes:
        spans: their spans, with gaps.
        extras: array of n rows, from which the decoder knows the parts of each item; zeros for one that is whole.
    """

    spans: Spans
    extras: Array


@dataclass(slots=True, eq=False)
class Slab:
    """A stretch of slab memory, held by its owner or by the arrays that were leased from it.

    Attributes:
        offset: byte offset in the memory.
        nbytes: its size, a multiple of the page size.
        leases: number of its leases that have not ended.
        forked: a fork of this process may still read it, so it is never used again.
        spare: bytes of it that are perhaps not needed, until `shrink` frees them.
    """

    offset: int
    nbytes: int
    leases: int = 0
    forked: bool = False
    spare: int = 0


@dataclass(frozen=True, slots=True)
class RowLayout:
    """Layout of the samples of a loader in a batch: one row of every array leaf per sample.

    Attributes:
        number: identifies the layout, so that each is sent to a worker once.
        structure: the samples' structure (see `aioloader.foundation.pytree`).
        leaves: spec of every leaf; None for one that has no fixed row (strings, objects).
        build: puts leaves into the structure.
    """

    number: int
    structure: Any
    leaves: tuple[ArraySpec | None, ...]
    build: Callable[[Sequence[Any]], Any]

    def offsets(self, rows: int) -> tuple[list[int], int]:
        """Return the byte offset of every leaf's array for `rows` samples, and the bytes of all: 64-byte aligned."""
        offsets, total = [], 0
        for leaf in self.leaves:
            offsets.append(total)
            if leaf is not None:
                count = rows
                for extent in leaf.shape:
                    count *= extent or 0
                total += max(64, -(-count * leaf.dtype.itemsize // 64) * 64)
        return offsets, total

    def arrays(self, memory: mmap.mmap | memoryview, bases: Sequence[int], rows: int) -> list[Array | None]:
        """Return the array of every leaf, over a buffer; None for a leaf without rows.

        Args:
            memory: the buffer; arrays are writable if it is.
            bases: place of each array in it.
            rows: number of samples.
        """
        return [
            None
            if leaf is None
            else np.ndarray((rows, *[extent or 0 for extent in leaf.shape]), leaf.dtype, memory, base)
            for leaf, base in zip(self.leaves, bases, strict=True)
        ]


_layout_numbers = itertools.count(1)


def next_layout_number() -> int:
    """Return a number that no other layout of this process has."""
    return next(_layout_numbers)


# Rows of Chunk.index_table.
ROW, INDEX, EPOCH, POSITION, BASE, START, LENGTH, FILE, OFFSET = range(9)
INDEX_TABLE_ROWS = 9


def _nothing() -> None:
    pass


@dataclass(slots=True, kw_only=True)
class Chunk:
    """Some samples of one batch, as they are sent to an executor. Only numbers: bytes and pixels are in slab memory.

    Attributes:
        batch: number of the batch in its epoch.
        index_table: int64 (9, n): row in the batch, index, epoch and position (the three seed the sample's draws),
            index in the base dataset, start and length of its bytes in the slab memory (0 where it has none; a start of
            -1: in the map of its file), file and offset they came from.
        extras: numbers of the dataset that travel along, (n, ...), or the keys (n,) that it is asked for; or None.
        layout: rows to write, or None: every sample is returned by value.
        bases: place in the slab memory of each leaf's array of the whole batch.
        rows: samples of the whole batch.
        custom_collate: the chunk is a whole batch, to be collated by the program's batchify function.
        spill: (offset, nbytes) in the slab memory for results that have no row.
        release: called once, from any thread, when nobody touches the chunk's memory any more.
        samples: what to begin with, by place in the chunk, instead of bytes or a dataset's items; or None.
        keeps_spill: arrays that are returned by value stay in the spill, and `ChunkResult.roots` are views of it, so
            that whoever owns the spill can lease them. Otherwise they are copied out of it.
        segment: which part of the program runs: 0 up to the first async transform, n from the n-th on.
        first: (epoch, position) of the first sample of the whole batch, which seed the batch's draws.
        patience: seconds that single samples may take, by row, where that is less than the executor's timeout. May
            change while the chunk is in work.
    """

    batch: int
    index_table: IntArray
    rows: int
    extras: Array | None = None
    layout: RowLayout | None = None
    bases: tuple[int, ...] = ()
    custom_collate: bool = False
    spill: tuple[int, int] = (0, 0)
    release: Callable[[], object] = _nothing
    samples: list[Any] | None = None
    segment: int = 0
    keeps_spill: bool = False
    first: tuple[int, int] = (0, 0)
    patience: dict[int, float] = field(default_factory=dict)

    def __len__(self) -> int:
        return int(self.index_table.shape[1])

    def patience_at(self, place: int | None, timeout: float) -> float:
        """Return the seconds that a sample may take.

        Args:
            place: of the sample in the chunk; None: it is not known, and may be any.
            timeout: the executor's.
        """
        if not self.patience:
            return timeout
        rows = self.index_table[ROW] if place is None else self.index_table[ROW, place : place + 1]
        return min(timeout, max((self.patience.get(row, timeout) for row in rows.tolist()), default=timeout))

    def part(self, columns: Any) -> Chunk:
        """Return the chunk of some of the samples.

        Args:
            columns: index of the columns of `index_table`: places, a slice or a mask.
        """
        return replace(
            self,
            index_table=np.ascontiguousarray(self.index_table[:, columns]),
            extras=None if self.extras is None else self.extras[columns],
            samples=None
            if self.samples is None
            else [self.samples[n] for n in np.arange(len(self))[columns]],
        )


class BatchTimeline:
    """Stages of a batch, or of an image of a service, and when each began: for counters, traces and reports of a stall.

    Args:
        stage: the first one.

    Attributes:
        stage: the current one. Those of a batch are "plan", "memory" (waiting for slab memory), "fetch", "work" (in the
            executor, or in its queue), "collate", and "reorder" (waiting for earlier batches, or for the caller).
        times: every stage so far, and when it began (seconds, `time.perf_counter`).
        work_spans: chunks as their workers saw them, with the time at which they were passed to the executor; empty
            without a trace.
        calls: of async transforms; empty without a trace.
    """

    __slots__ = ("calls", "stage", "times", "work_spans")

    def __init__(self, stage: str = "plan") -> None:
        self.stage = stage
        self.times = [(stage, perf_counter())]
        self.work_spans: list[tuple[float, WorkSpan]] = []
        self.calls: list[CallSpan] = []

    def enter(self, stage: str) -> None:
        """Begin a stage and end the one before, unless it is the same."""
        if stage != self.stage:
            self.stage = stage
            self.times.append((stage, perf_counter()))


class Failure(NamedTuple):
    """A sample that could not be made.

    Attributes:
        row: its row in the batch.
        stage: "fetch", "decode", "transform:<name>" or "collate".
        error: the exception, with its own type.
    """

    row: int
    stage: str
    error: BaseException


@dataclass(frozen=True, slots=True)
class WorkerState:
    """State of a worker at one moment, for reports of a stall.

    Attributes:
        name: the process or thread, such as "process 1234".
        doing: "starting", "working" or "waiting".
        batch: number of the batch it works for, or None.
        index: index of the sample in progress, or None.
        outstanding: indices of the samples that it received and has not finished, this one included.
        seconds: since it last began a sample, as far as that is known.
        stack: its Python stack, innermost call first; None if it is not available.
    """

    name: str
    doing: str
    batch: int | None = None
    index: int | None = None
    outstanding: tuple[int, ...] = ()
    seconds: float = 0.0
    stack: str | None = None


def _no_decodes() -> dict[str, defaultdict[str, int]]:
    return {way: defaultdict(int) for way in WAYS}


@dataclass(slots=True, eq=False)
class StageTimer:
    """Current stage of a sample, and the seconds that all samples of a chunk spent in each.

    An executor that observes or cancels chunks passes a subclass to the runner.

    Attributes:
        transforms: seconds by number of the stage.
        stage: the stage entered last: "fetch", "decode", "transform:<name>" or "collate", as in `Failure`.
        decode_s: seconds spent decoding.
        bad_entries: number of entries of crop indexes that did not fit their images, by the path of the index.
        decodes: number of images decoded, by way and reason; see `aioloader.foundation.decodes`.
        uncropped: number of images decoded whole because the first transform does not crop; not in `decodes`.
        measured_crops: 1 if one of the crops of JPEGs for which there was no crop index was measured, else 0.
        crop_pixels: pixels of this crop.
        read_pixels: pixels of its JPEG from the first row to the last one that was decoded.
        measured_images: 1 if the size of one of the encoded images was counted, else 0.
        image_nbytes: bytes of its pixels, of the whole image.
    """

    transforms: list[float] = field(default_factory=list)
    stage: str = "decode"
    decode_s: float = 0.0
    bad_entries: Counter[str] = field(default_factory=Counter)
    decodes: dict[str, defaultdict[str, int]] = field(default_factory=_no_decodes)
    uncropped: int = 0
    measured_crops: int = 0
    crop_pixels: int = 0
    read_pixels: int = 0
    measured_images: int = 0
    image_nbytes: int = 0

    def begin(self, place: int) -> bool:
        """Note that the sample at a place of the chunk begins, in the stage "decode".

        Returns:
            False if the chunk was cancelled.
        """
        self.stage = "decode"
        return True

    def count_decodes(self, work: WorkCounters) -> None:
        """Set the counters of decoded images of a chunk."""
        work.decodes = {
            (way, reason): count for way, counts in self.decodes.items() for reason, count in counts.items()
        }
        if self.uncropped:
            work.decodes[WHOLE, NO_CROP] = work.decodes.get((WHOLE, NO_CROP), 0) + self.uncropped
        work.measured_crops = self.measured_crops
        work.crop_pixels, work.read_pixels = self.crop_pixels, self.read_pixels
        work.image_sizes = self.measured_images, self.image_nbytes


class WorkSpan(NamedTuple):
    """A chunk as its worker saw it, for traces; seconds by `time.perf_counter`, which all processes of a machine share.

    Attributes:
        pid: number of the process.
        tid: number of the thread.
        thread: the thread's name.
        begin: when work on it began.
        end: when work on it ended.
        samples: how many there were.
        parts: (name, seconds) of what was done, all samples together: "decode", "transform:<name>", "collate".
    """

    pid: int
    tid: int
    thread: str
    begin: float
    end: float
    samples: int
    parts: tuple[tuple[str, float], ...]


class CallSpan(NamedTuple):
    """A call of an async transform, for traces; seconds by `time.perf_counter`.

    Attributes:
        name: of the transform.
        sample: its index.
        begin: when it was called.
        end: when it ended.
    """

    name: str
    sample: int
    begin: float
    end: float


@dataclass(slots=True)
class WorkCounters:
    """Counters of the work on samples.

    Attributes:
        decode_s: seconds spent decoding, all samples together, as in the next three.
        transform_s: seconds in transforms.
        collate_s: seconds collating.
        transforms: seconds by transform's name.
        work_s: seconds that workers spent on it, time between these included; 0 where that is not known.
        longest_s: of one chunk, at most.
        cpu_s: CPU seconds that it took.
        pauses: how often a worker stopped to wait for something.
        awaited: seconds that samples waited for async transforms, by name, all samples together.
        bad_entries: see `StageTimer`.
        decodes: number of images decoded, by (way, reason); see `aioloader.foundation.decodes`.
        measured_crops, crop_pixels, read_pixels: see `StageTimer`; of all chunks.
        image_sizes: sums of `measured_images` and `image_nbytes`, see there.
    """

    decode_s: float = 0.0
    transform_s: float = 0.0
    collate_s: float = 0.0
    transforms: dict[str, float] = field(default_factory=dict)
    work_s: float = 0.0
    longest_s: float = 0.0
    cpu_s: float = 0.0
    pauses: int = 0
    awaited: dict[str, float] = field(default_factory=dict)
    bad_entries: dict[str, int] = field(default_factory=dict)
    decodes: dict[tuple[str, str], int] = field(default_factory=dict)
    measured_crops: int = 0
    crop_pixels: int = 0
    read_pixels: int = 0
    image_sizes: tuple[int, int] = (0, 0)

    def add(self, other: WorkCounters) -> None:
        """Add the counters of other work."""
        self.decode_s += other.decode_s
        self.transform_s += other.transform_s
        self.collate_s += other.collate_s
        # Most are empty, and a call for each would be several for every answer.
        for name in other.transforms:
            self.transforms[name] = self.transforms.get(name, 0.0) + other.transforms[name]
        self.work_s += other.work_s
        self.longest_s = max(self.longest_s, other.longest_s)
        self.cpu_s += other.cpu_s
        self.pauses += other.pauses
        for name in other.awaited:
            self.awaited[name] = self.awaited.get(name, 0.0) + other.awaited[name]
        for path in other.bad_entries:
            self.bad_entries[path] = self.bad_entries.get(path, 0) + other.bad_entries[path]
        for key in other.decodes:
            self.decodes[key] = self.decodes.get(key, 0) + other.decodes[key]
        self.measured_crops += other.measured_crops
        self.crop_pixels += other.crop_pixels
        self.read_pixels += other.read_pixels
        (count, nbytes), (more, bytes_more) = self.image_sizes, other.image_sizes
        self.image_sizes = count + more, nbytes + bytes_more


_counted = attrgetter(*(each.name for each in fields(WorkCounters)))


@dataclass(slots=True)
class ChunkResult(WorkCounters):
    """Result of a chunk, with the counters of the work on it.

    Attributes:
        written: rows that were written to the batch's arrays.
        values: samples returned by value, by row.
        objects: leaves without a row of samples that are written: {leaf: {row: value}}.
        failures: samples that could not be made.
        batch: the collated batch of a whole chunk.
        samples: how many samples a whole chunk collated.
        work_spans: one for each chunk, for traces; empty without a trace.
        calls: one for each call of an async transform, for traces; empty without a trace.
        spill_nbytes: bytes of spill per sample that would have been needed.
        roots: arrays over the spill region that hold what `batch` is made of, or with `Chunk.keeps_spill` the values.
        tainted: a worker may still write to the chunk's memory: copy the batch before it is delivered.
    """

    written: list[int] = field(default_factory=list)
    values: dict[int, Any] = field(default_factory=dict)
    objects: dict[int, dict[int, Any]] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    batch: Any = None
    samples: int = 0
    work_spans: list[WorkSpan] = field(default_factory=list)
    calls: list[CallSpan] = field(default_factory=list)
    spill_nbytes: int = 0
    roots: list[Array] = field(default_factory=list)
    tainted: bool = False

    @property
    def incomplete(self) -> list[int]:
        """Return the rows of samples that could not be made of the parts of their items that were read."""
        return [failure.row for failure in self.failures if isinstance(failure.error, IncompleteItemError)]

    @property
    def counters(self) -> tuple[Any, ...]:
        """Return the counters, as a worker in another process sends them."""
        return _counted(self), self.samples, self.work_spans

    @classmethod
    def counted(cls, counters: tuple[Any, ...]) -> ChunkResult:
        """Return a result that has the counters of another one, and nothing else of it."""
        work, samples, work_spans = counters
        result = cls(*work)
        result.samples, result.work_spans = samples, work_spans
        return result

    def merge(self, other: ChunkResult) -> None:
        """Add the result of another part of the same chunk."""
        self.add(other)
        self.written += other.written
        self.values.update(other.values)
        for leaf, values in other.objects.items():
            self.objects.setdefault(leaf, {}).update(values)
        self.failures += other.failures
        if other.batch is not None:
            self.batch = other.batch
        self.samples += other.samples
        self.work_spans += other.work_spans
        self.calls += other.calls
        self.spill_nbytes = max(self.spill_nbytes, other.spill_nbytes)
        self.roots += other.roots
        self.tainted |= other.tainted
