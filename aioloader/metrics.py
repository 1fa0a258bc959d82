"""Counters of a loader: what each stage did and how long it took.

`aioloader.explain` draws conclusions from them, and lists the modules that fill them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass, field
from time import monotonic, perf_counter, process_time
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from aioloader.foundation.decodes import CUT, KEPT, WAYS, kind_of
from aioloader.foundation.host_limits import idle_cpu_s
from aioloader.foundation.types import StorageStats, WorkCounters
from aioloader.observability.lag import Lag

if TYPE_CHECKING:
    from collections.abc import Mapping

# Idle cores are measured this often at most: `stats()` may be called at every batch.
_IDLE_S = 1.0

__all__ = ("LoaderConfig", "Metrics", "StageStats", "Stats", "StorageStats")


@dataclass(frozen=True)  # slots of two bases would not go together
class LoaderConfig:
    """Configuration of a loader; see `Stats` for the fields."""

    executor: str = "process"
    cores: int = 1
    prefetch: int = 1
    foreign: bool = False
    batchify: str | None = None
    own_loop: bool = False
    dataset_samples: int | None = None
    ranks: int = 1
    tuning: str = ""
    native_absence: str = ""
    concurrency: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class StageStats:
    """Counters of one stage.

    Attributes:
        name: "plan", "memory" (waiting for slab memory), "fetch", "dispatch" (waiting for a worker), "decode",
            "transform:<name>", "await:<name>" (an async transform), "collate" (in workers and afterwards), "reorder" or
            "consumer".
        samples: number of samples that passed it.
        busy_s: seconds of work, or of waiting in a stage that only waits; the sum over all batches or workers.
        places: maximum number of batches or workers in it at a time.
        samples_per_s: rate of samples that passed it.
        capacity: rate if it were never idle; None for a stage that only waits.
        occupancy: average share of its places in use, 0 to 1.
        nbytes: bytes that passed it, if they are counted; else 0.
        wait_s: seconds that the caller waited for a batch in this stage; None if several stages share the time.
    """

    name: str
    samples: int
    busy_s: float
    places: int
    samples_per_s: float
    capacity: float | None
    occupancy: float
    nbytes: int = 0
    wait_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats(StorageStats, LoaderConfig):
    """A snapshot of a loader's counters since it was made.

    Attributes:
        seconds: time from the first request to the last batch, without the pauses between epochs.
        batches: number of batches delivered.
        samples: number of samples delivered.
        skipped: number of failed samples that were left out.
        replaced: number of failed samples that were replaced.
        bytes_read: bytes that were read.
        fetch_s: seconds spent reading, summed over all batches.
        decode_s: seconds that the executor spent decoding, summed over all workers, as are the next two. The time of a
            dataset's own ``__getitem__`` counts as decoding.
        transform_s: seconds that it spent in transforms.
        collate_s: seconds that it spent in the batchify function; for data in memory, seconds of copying samples.
        transforms: seconds by name of the transform, summed over all workers.
        work_s: seconds that workers spent on samples, including the time between these three; 0 if unknown.
        cpu_s: CPU seconds of that work.
        pauses: how often a worker stopped during it to wait for something.
        process_cpu_s: CPU seconds of this process, summed over its threads; without worker processes.
        idle_cores: average number of the cores which this process may use that were idle during epochs, or that its
            quota left; None if the system does not report it, and in the first second.
        awaited: seconds that samples waited for each async transform, by name, summed over all samples: two samples
            that wait concurrently for one second count as two seconds.
        bad_entries: number of entries of crop indexes that were not used, because they are damaged or do not belong to
            their images, by the path of the index.
        decodes: number of images that image datasets decoded, by (way, reason): how each was decoded, and why it was
            not cut by a crop index; the words are constants of `aioloader.foundation.decodes`. `decode_ways` and
            `uncut` are its sums. The way "kept" counts samples that `cache_samples` had kept, of any dataset.
        measured_crops: number of crops that were measured: one of each chunk, if there was no crop index of its JPEG.
        crop_pixels: pixels of these crops.
        read_pixels: pixels of their JPEGs from the first row to the last one that was decoded.
        measured_images: number of encoded images whose size was counted: one of each chunk.
        image_nbytes: bytes of the pixels of these images, decoded whole.
        wait_s: seconds that the caller waited for batches.
        waits: these seconds by the stage that the batch was in while the caller waited: "start" (not begun), "plan",
            "memory" (waiting for slab memory), "fetch", "work" (in the executor, or in its queue), "collate", "reorder"
            (waiting for earlier batches, or for the caller).
        consumer_s: seconds that the caller spent between batches.
        plan_s: seconds that batches spent being planned, summed over all batches, as are the next three.
        dispatch_s: seconds that they waited for a worker.
        assemble_s: seconds in which they were assembled from the workers' results.
        reorder_s: seconds that they waited for earlier batches, or for the caller.
        first_batch_s: seconds from the first request to the first batch, or None.
        startup_s: part of these in which files were opened and workers started.
        passes: number of epochs begun.
        first_wait_s: seconds that the caller waited for the first batch of each epoch after the first.
        loop_lag_p50_s: median lag, in seconds, of the event loop that runs the loader, during epochs; None if no task
            of the loader runs in it. It is the caller's loop; for `DataLoader` the loop of its thread.
        loop_lag_p99_s: 99th percentile of that lag.
        loop_lag_max_s: maximum of that lag.
        loop_held_s: sum of that lag, in seconds.
        in_flight: number of batches in flight now.
        workers: number of workers.
        restarts: number of workers that were replaced.
        memory_bytes: slab memory in use now.
        memory_peak_bytes: slab memory in use at the peak.
        memory_limit_bytes: slab memory allowed.
        memory_wait_s: seconds that fetching waited for slab memory.
        available_memory_bytes: memory that this process and its children could still take when the loader was opened;
            None if the system does not report it.
        executor: "process", "fork", "thread", "inline", or the class of the caller's executor; with "auto" the choice.
        cores: number of cores that this process may use.
        prefetch: maximum number of batches in flight.
        foreign: the dataset's own ``__getitem__`` makes the samples.
        batchify: name of the caller's batchify function, or None.
        own_loop: the event loop is the loader's own, that of `DataLoader`'s thread.
        dataset_samples: number of samples of the dataset, of all ranks; None if it is not known.
        ranks: number of ranks.
        tuning: the choice made by measurement and its reason, in words; empty without a choice.
        native_absence: why aioloader's compiled part is not used, in words; empty if it is.
        concurrency: maximum number of concurrent calls of each async transform, by name.
        requests: number of requests sent over the network. For local files this and the following are 0 or None.
        retries: of these, repeated after a failure.
        hedges: of these, sent because an earlier one was late.
        request_bytes: bytes of their responses, including unused bytes between samples.
        merged: average number of spans in a request.
        hit_rate: share of the spans that were in the dataset's cache, 0 to 1; None without a cache.
        latency_p50_s: median of the latest requests' durations, in seconds.
        latency_p99_s: 99th percentile of these durations.
        kept_samples: number of samples that `cache_samples` keeps now, by whichever process; None without it, as are
            the following.
        kept_items: number of samples that the set has, kept or not.
        kept_bytes: bytes that the kept samples take, their table included.
        kept_full: a sample did not fit, or no more are added.
        kept_failed: the reason is not the limit: a sample could not be pickled or written, for example to a full disk.
    """

    seconds: float
    batches: int
    samples: int
    skipped: int
    replaced: int
    bytes_read: int
    fetch_s: float
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
    work_s: float = 0.0
    cpu_s: float = 0.0
    pauses: int = 0
    bad_entries: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    decodes: Mapping[tuple[str, str], int] = field(default_factory=lambda: MappingProxyType({}))
    measured_crops: int = 0
    crop_pixels: int = 0
    read_pixels: int = 0
    measured_images: int = 0
    image_nbytes: int = 0
    available_memory_bytes: int | None = None
    process_cpu_s: float = 0.0
    idle_cores: float | None = None
    passes: int = 0
    first_wait_s: float = 0.0
    waits: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    plan_s: float = 0.0
    dispatch_s: float = 0.0
    assemble_s: float = 0.0
    reorder_s: float = 0.0
    startup_s: float = 0.0
    loop_lag_p50_s: float | None = None
    loop_lag_p99_s: float | None = None
    loop_lag_max_s: float | None = None
    loop_held_s: float = 0.0

    @property
    def samples_per_s(self) -> float:
        """Return the number of samples delivered per second."""
        return self.samples / self.seconds if self.seconds else 0.0

    @property
    def bytes_per_s(self) -> float:
        """Return the number of bytes read per second."""
        return self.bytes_read / self.seconds if self.seconds else 0.0

    @property
    def starvation(self) -> float:
        """Return the share of the time that the caller waited for data, 0 to 1."""
        total = self.wait_s + self.consumer_s
        return self.wait_s / total if total else 0.0

    @property
    def busy_s(self) -> float:
        """Return the seconds that workers had work, summed over all workers."""
        return max(self.work_s, self.decode_s + self.transform_s + self.collate_s)

    @property
    def occupancy(self) -> float:
        """Return the share of the workers' time in which they had work, 0 to 1."""
        places = self.seconds * self.workers
        return min(1.0, self.busy_s / places) if places else 0.0

    @property
    def decode_ways(self) -> dict[str, int]:
        """Return the number of images decoded in each way: "cut" by a crop index, "rectangle", "early stop", ..."""
        counts = dict.fromkeys(WAYS, 0)
        for (way, _), count in self.decodes.items():
            counts[way] += count
        return counts

    @property
    def uncut(self) -> dict[str, int]:
        """Return the number of images that were not cut by a crop index, by the reason, most frequent first.

        The reasons that an index has for refusing images are one, "refused".
        """
        counts: dict[str, int] = {}
        for (way, reason), count in self.decodes.items():
            if way not in (CUT, KEPT):
                kind = kind_of(reason)
                counts[kind] = counts.get(kind, 0) + count
        return dict(sorted(counts.items(), key=lambda item: -item[1]))

    @property
    def stages(self) -> dict[str, StageStats]:
        """Return the counters of each stage, in the order of a sample's path."""
        workers, ahead = max(1, self.workers), self.prefetch
        found = [
            self._stage("plan", self.plan_s, 1, wait="plan"),
            self._stage("memory", self.memory_wait_s, 1, waits_only=True, wait="memory"),
            self._stage("fetch", self.fetch_s, ahead, nbytes=self.bytes_read, wait="fetch"),
            self._stage("dispatch", self.dispatch_s, ahead, waits_only=True),
            self._stage("decode", self.decode_s, workers),
            *(self._stage(f"transform:{name}", each, workers) for name, each in self.transforms.items()),
            *(self._stage(f"await:{name}", each, 1, waits_only=True) for name, each in self.awaited.items()),
            self._stage("collate", self.collate_s + self.assemble_s, workers, wait="collate"),
            self._stage("reorder", self.reorder_s, ahead, waits_only=True, wait="reorder"),
            self._stage("consumer", self.consumer_s, 1),
        ]
        return {stage.name: stage for stage in found}

    def _stage(
        self,
        name: str,
        busy_s: float,
        places: int,
        *,
        nbytes: int = 0,
        waits_only: bool = False,
        wait: str | None = None,
    ) -> StageStats:
        room = self.seconds * places
        return StageStats(
            name=name,
            samples=self.samples,
            busy_s=busy_s,
            places=places,
            samples_per_s=self.samples_per_s,
            capacity=None if waits_only or not busy_s else self.samples * places / busy_s,
            occupancy=min(1.0, busy_s / room) if room else 0.0,
            nbytes=nbytes,
            wait_s=None if wait is None else self.waits.get(wait, 0.0),
        )


@dataclass
class Metrics:
    """Counters of a loader; see `Stats` for the fields of the same names.

    The stages of the pipeline count in the loop's thread; `aioloader.loader.epoch_iterator` counts in the caller's.

    Attributes:
        work: counters of the executor's work on samples.
        waits: see `Stats`; `CallerMetrics.record_delivery` in `aioloader.loader.epoch_iterator` fills it.
        spent: seconds that batches spent in each stage, summed over all batches.
        lag: lag of the event loop.
        startup_s: None until the first samples are made.
        started: time of the first request.
        ended: time at which the caller received the last batch.
        paused_s: seconds between epochs.
        paused: time at which the latest epoch ended; None during an epoch.
        begins: the caller has not received a batch of this epoch, which is not the first.
        delivered_at: time at which the caller received a batch; None while it waits for one.
        latest_epoch: identifies the latest epoch.
        process_cpu_s: CPU seconds of this process in earlier epochs.
        cpu_from: CPU seconds of this process when the present epoch began; None between epochs.
        idle_s: idle CPU seconds of the cores, of `idle_over_s` seconds of epochs.
        idle_over_s: as above.
        idle_from: time of the latest measurement, and its result, see `idle_cpu_s`.
        warned: paths of the crop indexes that the caller was warned of.
    """

    work: WorkCounters = field(default_factory=WorkCounters)
    batches: int = 0
    samples: int = 0
    skipped: int = 0
    replaced: int = 0
    bytes_read: int = 0
    fetch_s: float = 0.0
    dispatch_s: float = 0.0
    wait_s: float = 0.0
    waits: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    consumer_s: float = 0.0
    first_batch_s: float | None = None
    in_flight: int = 0
    memory_wait_s: float = 0.0
    passes: int = 0
    first_wait_s: float = 0.0
    process_cpu_s: float = 0.0
    startup_s: float | None = None
    spent: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    lag: Lag = field(default_factory=Lag)
    started: float | None = None
    ended: float = 0.0
    paused_s: float = 0.0
    paused: float | None = None
    begins: bool = False
    delivered_at: float | None = None
    latest_epoch: object = None
    cpu_from: float | None = None
    idle_s: float = 0.0
    idle_over_s: float = 0.0
    idle_from: tuple[float, dict[str, float]] = (0.0, {})
    available_memory_bytes: int | None = None
    warned: set[str] = field(default_factory=set)

    def begin(self) -> None:
        """Begin to count the CPU seconds of an epoch, unless one is under way."""
        if self.cpu_from is None:
            self.cpu_from = process_time()
            self.idle_from = monotonic(), idle_cpu_s()

    def _measure_idle(self) -> None:
        """Count what the cores were idle since the latest measurement of this epoch."""
        (since, before), now, left = self.idle_from, monotonic(), idle_cpu_s()
        self.idle_from = now, left
        latest = [left[limit] - then for limit, then in before.items() if limit in left]
        if latest:
            self.idle_s += max(0.0, min(latest))
            self.idle_over_s += now - since

    def pause(self) -> None:
        """End the epoch: the time until the next request is not counted."""
        self.delivered_at = None
        if self.cpu_from is not None:
            self.process_cpu_s += process_time() - self.cpu_from
            self._measure_idle()
            self.cpu_from = None
        if self.paused is None and self.started is not None:
            self.paused = perf_counter()

    def snapshot(
        self,
        workers: int,
        restarts: int,
        memory: tuple[int, int, int],
        storage: StorageStats | None = None,
        config: LoaderConfig | None = None,
    ) -> Stats:
        """Return a snapshot of the counters."""
        used, peak, limit = memory
        if self.cpu_from is not None and monotonic() - self.idle_from[0] > _IDLE_S:
            self._measure_idle()
        latest_cpu_s = 0.0 if self.cpu_from is None else process_time() - self.cpu_from
        # Not by `asdict`, which iterates over mappings, while the loop's thread may add an item; a copy is one step.
        work = {name: getattr(self.work, name) for name in WorkCounters.__dataclass_fields__}
        counted: dict[str, Any] = {
            name: MappingProxyType(dict(value)) if isinstance(value, dict) else value
            for name, value in {**work, **vars(self)}.items()
            if name in Stats.__dataclass_fields__
        }
        counted |= {
            "seconds": 0.0 if self.started is None else max(0.0, self.ended - self.started - self.paused_s),
            "idle_cores": self.idle_s / self.idle_over_s if self.idle_over_s else None,
            "process_cpu_s": self.process_cpu_s + latest_cpu_s,
            "measured_images": self.work.image_sizes[0],
            "image_nbytes": self.work.image_sizes[1],
            "plan_s": self.spent.get("plan", 0.0),
            "assemble_s": self.spent.get("collate", 0.0),
            "reorder_s": self.spent.get("reorder", 0.0),
            "startup_s": self.startup_s or 0.0,
            "loop_lag_p50_s": self.lag.quantile(0.5),
            "loop_lag_p99_s": self.lag.quantile(0.99),
            "loop_lag_max_s": self.lag.max_s if self.lag.count else None,
            "loop_held_s": self.lag.total_s,
            "workers": workers,
            "restarts": restarts,
            "memory_bytes": used,
            "memory_peak_bytes": peak,
            "memory_limit_bytes": limit,
        }
        return Stats(**counted, **asdict(storage or StorageStats()), **vars(config or LoaderConfig()))
