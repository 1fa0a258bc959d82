"""Counters of a loader: what each station did and how long it took, and what that says about the bottleneck."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ("Metrics", "Stats", "StorageStats")


@dataclass(frozen=True, slots=True)
class StorageStats:
    """What a byte source tells of its requests; see `Stats` for the fields."""

    requests: int = 0
    request_bytes: int = 0
    merged: float | None = None
    retries: int = 0
    hedges: int = 0
    hit_rate: float | None = None
    latency_p50_s: float | None = None
    latency_p99_s: float | None = None


@dataclass(frozen=True, slots=True)
class Stats:
    """A snapshot of a loader's counters since it was made, or since `reset`.

    Attributes:
        seconds: from the first ask to the last batch, without the pauses between epochs.
        batches, samples: handed out.
        skipped: samples left out; replaced: failed samples whose place another one took.
        bytes_read: bytes that were read.
        read_s: seconds spent reading, all batches together.
        decode_s, transform_s, collate_s: seconds spent in the executor, all workers together.
        transforms: seconds by transform's name, all workers together.
        awaited: seconds by async transform's name that samples waited for it, all samples together: two that wait side
            by side for a second are two.
        wait_s: seconds that the caller waited for a batch.
        consumer_s: seconds that the caller took between batches.
        first_batch_s: from the first ask to the first batch, or None.
        in_flight: batches on their way now.
        workers: number of workers.
        restarts: workers that were replaced.
        memory_bytes: slab memory in use now; memory_peak_bytes: at most; memory_limit_bytes: allowed.
        memory_wait_s: seconds that fetching waited for slab memory.
        requests: sent over the network; of these, retries: because an earlier one had failed, and hedges: because an
            earlier one was late. 0 for local files, as all that follows is 0 or None.
        request_bytes: bytes of their answers, unwanted ones between samples included.
        merged: spans of samples that a request was for, on average.
        hit_rate: share of the spans that were in the dataset's cache, 0 to 1; None without a cache.
        latency_p50_s, latency_p99_s: seconds that half, and 99 of 100, of the latest requests took at most.
    """

    seconds: float
    batches: int
    samples: int
    skipped: int
    replaced: int
    bytes_read: int
    read_s: float
    decode_s: float
    transform_s: float
    collate_s: float
    transforms: Mapping[str, float]
    awaited: Mapping[str, float]
    wait_s: float
    consumer_s: float
    first_batch_s: float | None
    in_flight: int
    workers: int
    restarts: int
    memory_bytes: int
    memory_peak_bytes: int
    memory_limit_bytes: int
    memory_wait_s: float
    requests: int = 0
    request_bytes: int = 0
    merged: float | None = None
    retries: int = 0
    hedges: int = 0
    hit_rate: float | None = None
    latency_p50_s: float | None = None
    latency_p99_s: float | None = None

    @property
    def samples_per_s(self) -> float:
        """Samples handed out per second."""
        return self.samples / self.seconds if self.seconds else 0.0

    @property
    def starvation(self) -> float:
        """Share of the time that the caller waited for data, 0 to 1."""
        total = self.wait_s + self.consumer_s
        return self.wait_s / total if total else 0.0

    @property
    def occupancy(self) -> float:
        """Share of the workers' time that was used, 0 to 1."""
        busy = self.decode_s + self.transform_s + self.collate_s
        return min(1.0, busy / (self.seconds * self.workers)) if self.seconds else 0.0


@dataclass
class Metrics:
    """Counts; used from the loop's thread only."""

    batches: int = 0
    samples: int = 0
    skipped: int = 0
    replaced: int = 0
    bytes_read: int = 0
    read_s: float = 0.0
    decode_s: float = 0.0
    transform_s: float = 0.0
    collate_s: float = 0.0
    transforms: dict[str, float] = field(default_factory=dict)
    awaited: dict[str, float] = field(default_factory=dict)
    wait_s: float = 0.0
    consumer_s: float = 0.0
    first_batch_s: float | None = None
    in_flight: int = 0
    memory_wait_s: float = 0.0
    started: float | None = None
    ended: float = 0.0
    paused_s: float = 0.0
    _handed_out: float | None = None
    _paused: float | None = None

    def read(self, seconds: float, nbytes: int, samples: int) -> None:
        """A batch of `samples` was read."""
        self.read_s += seconds
        self.bytes_read += nbytes

    def made(
        self, decode_s: float, transform_s: float, collate_s: float, transforms: Mapping[str, float]
    ) -> None:
        """A batch came back from the executor."""
        self.decode_s += decode_s
        self.transform_s += transform_s
        self.collate_s += collate_s
        for name, seconds in transforms.items():
            self.transforms[name] = self.transforms.get(name, 0.0) + seconds

    def waited(self, awaited: Mapping[str, float]) -> None:
        """The samples of a batch have passed async transforms."""
        for name, seconds in awaited.items():
            self.awaited[name] = self.awaited.get(name, 0.0) + seconds

    def asked(self) -> float:
        """The caller asks for a batch; gives the time, for `handed_out`."""
        now = perf_counter()
        if self.started is None:
            self.started = now
        if self._paused is not None:
            self.paused_s += now - self._paused
            self._paused = None
        if self._handed_out is not None:
            self.consumer_s += now - self._handed_out
            self._handed_out = None
        return now

    def handed_out(self, asked: float, samples: int) -> None:
        """The caller got a batch."""
        now = perf_counter()
        self.wait_s += now - asked
        self.batches += 1
        self.samples += samples
        self.ended = now
        self._handed_out = now
        if self.first_batch_s is None and self.started is not None:
            self.first_batch_s = now - self.started

    def pause(self) -> None:
        """The epoch is over: the time until the next ask is nobody's."""
        self._handed_out = None
        if self._paused is None and self.started is not None:
            self._paused = perf_counter()

    def snapshot(
        self,
        workers: int,
        restarts: int,
        memory: tuple[int, int, int],
        storage: StorageStats | None = None,
    ) -> Stats:
        """The counters now."""
        used, peak, limit = memory
        return Stats(
            seconds=0.0 if self.started is None else max(0.0, self.ended - self.started - self.paused_s),
            batches=self.batches,
            samples=self.samples,
            skipped=self.skipped,
            replaced=self.replaced,
            bytes_read=self.bytes_read,
            read_s=self.read_s,
            decode_s=self.decode_s,
            transform_s=self.transform_s,
            collate_s=self.collate_s,
            transforms=MappingProxyType(dict(self.transforms)),
            awaited=MappingProxyType(dict(self.awaited)),
            wait_s=self.wait_s,
            consumer_s=self.consumer_s,
            first_batch_s=self.first_batch_s,
            in_flight=self.in_flight,
            workers=workers,
            restarts=restarts,
            memory_bytes=used,
            memory_peak_bytes=peak,
            memory_limit_bytes=limit,
            memory_wait_s=self.memory_wait_s,
            **asdict(storage or StorageStats()),
        )


def explain(stats: Stats) -> str:
    """One paragraph: what limits the loader, and what to change. Its first sentence names the limit."""
    if not stats.batches:
        return "Nothing has been delivered yet, so there is nothing to explain."
    busy = stats.decode_s + stats.transform_s + stats.collate_s
    per_sample = 1e3 * busy / max(1, stats.samples)
    rate = f"{stats.samples_per_s:,.0f} samples/s"
    crew = "one worker" if stats.workers == 1 else f"{stats.workers} workers"
    if stats.starvation < 0.1:
        return (
            f"The consumer is the limit: it waited for data in only {stats.starvation:.0%} of its time "
            f"({rate}). The loader keeps up; faster loading would change nothing."
        )
    if stats.memory_wait_s > 0.3 * stats.seconds:
        return (
            f"Memory is the limit: fetching waited {stats.memory_wait_s:.1f} s for slab memory ({rate}). "
            f"Raise memory_limit (now {stats.memory_limit_bytes >> 20} MiB), or keep fewer batches."
        )
    if stats.read_s > 2 * busy / max(1, stats.workers) and stats.occupancy < 0.5:
        return (
            f"Storage is the limit: reading took {stats.read_s:.1f} s while {crew} had work for "
            f"{stats.occupancy:.0%} of the time ({rate}). {_storage_advice(stats)}"
        )
    if stats.first_batch_s is not None and stats.first_batch_s > 0.5 * stats.seconds:
        return (
            f"Starting is the limit so far: the first batch came after {stats.first_batch_s:.2f} s of "
            f"{stats.seconds:.2f} s ({rate}). Keep the loader for all epochs, and ask again later."
        )
    if not stats.decode_s and not stats.transform_s and stats.collate_s:
        return (
            f"This process is the limit: it gathers rows in memory, without workers. Copying takes "
            f"{1e3 * stats.collate_s / stats.batches:.3f} ms a batch, {stats.collate_s / stats.seconds:.0%} of the "
            f"time; the rest is the cost of a batch as such ({rate}). Larger batches cost less per sample."
        )
    if stats.occupancy < 0.5:
        if stats.starvation < 0.5:
            return (
                f"The consumer is the limit for the most part: it waited for data in {stats.starvation:.0%} of its "
                f"time, while {crew} had work for {stats.occupancy:.0%} ({rate}). A larger prefetch evens out what "
                "is left."
            )
        return (
            f"The loader's own work is the limit: {crew} had work for only {stats.occupancy:.0%} of the time, and "
            f"neither storage nor memory kept them from it ({rate}, {per_sample:.3f} ms a sample in a worker). Make "
            "batches larger; where samples cost so little, num_workers=0 may be faster."
        )
    costs = {"Decode": stats.decode_s, **stats.transforms, "Collating": stats.collate_s}
    limit = max(costs, key=lambda name: costs[name])
    advice = _ADVICE.get(limit, "make it faster")
    return (
        f"{limit if limit in _ADVICE else f'The transform {limit}'} is the limit: it takes "
        f"{costs[limit] / busy:.0%} of the workers' time, {per_sample:.2f} ms a sample in all "
        f"({rate} with {crew}, at work for {stats.occupancy:.0%} of the time). "
        f"Add workers if there are cores left, or {advice}."
    )


def _storage_advice(stats: Stats) -> str:
    if not stats.requests:
        return "Raise prefetch, or use faster storage."
    each = stats.bytes_read / stats.requests / 1024
    latency = ""
    if stats.latency_p50_s is not None and stats.latency_p99_s is not None:
        latency = f" in {1e3 * stats.latency_p50_s:.0f} ms (p99 {1e3 * stats.latency_p99_s:.0f} ms)"
    failed = f", {stats.retries} of them tried again" if stats.retries else ""
    return (
        f"It is the network: {stats.requests:,} requests for {each:,.0f} KiB each, answered{latency}{failed}. "
        'Raise prefetch, keep what was read (cache="DIR"), or bring the data nearer.'
    )


_ADVICE = {"Decode": "store smaller images", "Collating": "make batchify_fn faster"}
