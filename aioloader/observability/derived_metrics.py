"""Metrics derived from a loader's counters: rates, shares, and estimated gains of changes (pure).

`aioloader.metrics.Stats` documents the counters; `aioloader.explain` lists the modules that fill them. A gain is an
upper bound from the counters: the rate of a resource that is never idle, limited by the next resource.

Sentences about the ways in which images were decoded, and the gain of a crop index (pure).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from aioloader.foundation.decodes import (
    BAD_ENTRIES,
    COMPLAINT,
    CUT,
    EARLY_STOP,
    INDEXED,
    KEPT,
    NEARLY_ALL,
    NO_CROP,
    NO_INDEX,
    NOT_IN_INDEX,
    NOT_JPEG,
    RAW,
    RECTANGLE,
    REFUSED,
    TO_KEEP,
    WHOLE,
    WHOLE_ONLY,
)
from aioloader.foundation.validation import limit_text, size_text

if TYPE_CHECKING:
    from aioloader.metrics import Stats


_WAYS = {
    CUT: "cut by the crop index",
    RECTANGLE: "decoded as rectangles by libjpeg-turbo 3",
    EARLY_STOP: "stopped early, below the crop",
    WHOLE: "decoded whole",
    RAW: "stored as raw pixels",
}
_REASONS = {
    NO_CROP: "the first transform does not crop",
    NO_INDEX: "no crop index",
    NOT_IN_INDEX: "not in the crop index",
    NEARLY_ALL: "nearly all pixels needed",
    NOT_JPEG: "not a JPEG",
    WHOLE_ONLY: "a kind of JPEG that is always decoded whole",
    COMPLAINT: "the decoder complained about the part",
    TO_KEEP: "to be kept",
    **{reason: f"{reason} of the crop index" for reason in BAD_ENTRIES.values()},
    BAD_ENTRIES["of other bytes"]: "the entry belongs to other bytes",
}
# More reasons than this are not named.
_MOST_REASONS = 3
# A crop index that would save a smaller share of the decoding time than this is not recommended.
_LEAST_SAVED = 0.5
# Fitted to CPU times of crops of JPEGs of 0.05 to 3 megapixels, which the estimate meets within a tenth: the cost of a
# pixel that a rectangle only reads, as a share of a decoded one's; and the cost of a cut besides its pixels, in decoded
# pixels for each row of a square image.
_READ_ONLY_COST = 0.78
_CUT_COST = 110
# Share of the time of transforms that resize with antialiasing which the compiled part saves; a gain worth a sentence.
_SAVED_BY_NATIVE = 0.7
_LEAST_NATIVE_GAIN = 1.1
# A kept sample costs this share of decoding it: finding it, and memory that is not in the processor's cache. A smaller
# gain than the next figure is not worth the memory, of which the set may take the last share.
_KEPT_COST = 0.1
LEAST_KEPT_GAIN = 1.3
MOST_MEMORY = 0.8


def describe_decodes(stats: Stats) -> str:
    """Return a sentence that says how many images were decoded in which way, and why; empty if none was."""
    total = _decoded(stats)
    if not total:
        return ""
    parts = []
    for way in _WAYS:
        reasons = {
            reason: count for (other, reason), count in stats.decodes.items() if other == way and count
        }
        if reasons:
            parts.append((sum(reasons.values()), _WAYS[way] + _because(reasons)))
    if len(parts) == 1:
        return f"{'The one image was' if total == 1 else f'All {total:,} images were'} {parts[0][1]}."
    counts = ", ".join(f"{count:,} {text}" for count, text in parts)
    return f"Of {total:,} images: {counts}."


def _decoded(stats: Stats) -> int:
    return sum(count for (way, _), count in stats.decodes.items() if way != KEPT)


def _because(reasons: dict[str, int]) -> str:
    """Return reasons in brackets, with their counts if there are several."""
    if INDEXED in reasons:
        return ""
    named = sorted(reasons.items(), key=lambda item: -item[1])
    if len(named) == 1:
        return f" ({_describe(named[0][0])})"
    texts = [f"{count:,}: {_describe(reason)}" for reason, count in named[:_MOST_REASONS]]
    rest = sum(count for _, count in named[_MOST_REASONS:])
    return f" ({'; '.join([*texts, f'{rest:,}: other reasons'] if rest else texts)})"


def _describe(reason: str) -> str:
    if reason.startswith(REFUSED):
        return f"no entry in the crop index{reason.removeprefix(REFUSED)}"
    return _REASONS.get(reason, reason)


def advise_crop_index(stats: Stats) -> str:
    """Return a sentence that recommends a crop index; empty if it would save less than half the decoding time."""
    saved = saved_by_index(stats)
    if saved < _LEAST_SAVED:
        return ""
    return f"A crop index (`aioloader index --crops PATH`) would save about {saved:.0%} of the decoding time."


def advise_partial_reads(stats: Stats) -> str:
    """Return a sentence that recommends a crop index for fetching less; empty if it would not.

    A loader with a cache fetches whole items.
    """
    without = sum(count for (_, reason), count in stats.decodes.items() if reason == NO_INDEX)
    most = 2 * without > _decoded(stats)
    if not most or not stats.measured_crops or not stats.requests or stats.hit_rate is not None:
        return ""
    return (
        "Of record files with a crop index (`aioloader index --crops`) a loader fetches only the rows that the crops "
        "need."
    )


def saved_by_index(stats: Stats) -> float:
    """Return the share of the decoding time that a crop index would save; negative if it would cost time.

    It is estimated from pixels. An early stop takes the time of all rows down to the end of the crop; a rectangle less
    where pixels are read only; a cut that of the crop, and some more for its rows.
    """
    total = _decoded(stats)
    without = {way: count for (way, reason), count in stats.decodes.items() if reason == NO_INDEX}
    images = sum(without.values())
    if not images or not stats.measured_crops:
        return 0.0
    crop, read = stats.crop_pixels / stats.measured_crops, stats.read_pixels / stats.measured_crops
    rectangles = without.get(RECTANGLE, 0) / images
    present = crop + (read - crop) * (1 - rectangles * (1 - _READ_ONLY_COST))
    return (1 - (crop + _CUT_COST * math.sqrt(read)) / present) * images / total


def describe_kept(stats: Stats) -> str:
    """Return sentences about the samples that `cache_samples` keeps; empty without it."""
    kept, items, nbytes = stats.kept_samples, stats.kept_items, stats.kept_bytes
    if kept is None or items is None or nbytes is None:
        return ""
    found = f"{stats.decode_ways[KEPT]:,} were taken from there so far"
    if kept == items:
        return f"All {items:,} samples of the set are kept ({size_text(nbytes)}); {found}."
    text = f"{kept:,} of {items:,} samples are kept ({size_text(nbytes)}); {found}. "
    if stats.kept_failed:
        return f"{text}No more are kept, because one could not be written (see the SampleCacheWarning)."
    if not stats.kept_full:
        return f"{text}The others are kept when they are made."
    if not kept:
        return f"{text}The limit of cache_samples() has room for none."
    return (
        f"{text}The limit of cache_samples() is reached, so the others are made in each epoch: about "
        f"{size_text(nbytes / kept * items)} would hold all."
    )


def advise_kept(stats: Stats) -> str:
    """Return a sentence that recommends to keep decoded images; empty if they would not fit into memory.

    Their size is estimated from the images whose headers were read.
    """
    metrics = DerivedMetrics(stats)
    if (
        stats.kept_samples is not None
        or not stats.measured_images
        or not stats.dataset_samples
        or not stats.available_memory_bytes
        or metrics.costliest != "decode"
    ):
        return ""
    nbytes = stats.image_nbytes / stats.measured_images * stats.dataset_samples
    gain = metrics.without((1 - _KEPT_COST) * stats.decode_s)
    if gain < LEAST_KEPT_GAIN or nbytes > MOST_MEMORY * stats.available_memory_bytes:
        return ""
    shared = ', folder="/dev/shm/NAME"' if stats.ranks > 1 else ""
    return (
        f"dataset.cache_samples({limit_text(nbytes)}{shared}), before random transforms, would give about {gain:.1f}x "
        f"from the second epoch on: the set has about {size_text(nbytes)} of pixels, and "
        f"{size_text(stats.available_memory_bytes)} of memory are free."
    )


def advise_native(stats: Stats) -> str:
    """Return a sentence about the compiled part that is not used; empty if resizing would hardly gain by it."""
    resizing = sum(seconds for name, seconds in stats.transforms.items() if "Resize" in name)
    gain = DerivedMetrics(stats).without(_SAVED_BY_NATIVE * resizing)
    if not stats.native_absence or gain < _LEAST_NATIVE_GAIN:
        return ""
    return (
        f"aioloader's compiled part is not used ({stats.native_absence}): if images are resized with antialiasing, "
        f"as they are by default, it would give about {gain:.1f}x; `aioloader doctor` says how to get it."
    )


# Below this starvation the caller hardly waits.
LOW_STARVATION = 0.1
# Below this occupancy workers are idle most of the time; above the other one they are hardly idle.
MIN_OCCUPANCY = 0.5
HIGH_OCCUPANCY = 0.8
# A sample that pauses at least this often, and spends less than this share of its time on a core, waits for something.
_WAITING_PAUSES = 0.5
_WAITING_CPU_SHARE = 0.3
# Threads that together use little more than one core are limited by the interpreter's lock.
_ONE_CORE = 1.3
# A waiting thread requests the lock after 5 ms. If waits are longer, other programs occupy the cores.
_MAX_LOCK_WAIT_S = 0.012
# Workers that are on a core for a smaller share of their time share the cores with other programs.
HIGH_CPU_SHARE = 0.75
# A loop that is late for this share of the time, and by this much now and then, is blocked by something. (The median
# lag depends on the phase in which it is looked at, if what blocks has a rhythm.) If this process computes for less
# than the last share of that time, other programs occupy the cores instead.
_HELD_SHARE = 0.3
_HELD_LAG_S = 0.01
_HELD_CPU_SHARE = 0.3
# Fewer batches than this allow no conclusion.
MIN_BATCHES = 10
# A batch of less work costs less in the loop's thread than sending it to a worker and back.
MIN_DISPATCHED_S = 1.5e-3
# The largest part of a sample's cost matters only above this share.
_SMALL_SHARE = 0.3


class DerivedMetrics:
    """Metrics derived from counters, without the start-up time: opening files and starting workers.

    Args:
        stats: the counters.

    Attributes:
        steady_s: `Stats.seconds` less the start-up.
        steady_starvation: `Stats.starvation` less the start-up.
        steady_occupancy: `Stats.occupancy` of `steady_s`.
        samples: number of samples, at least 1.
        workers: number of workers, at least 1.
        rate: samples per second.
        consumer_rate: samples per second of a consumer that never waits.
        busy_s: seconds that workers had work, summed over all workers.
        inline: the loader has no workers.
        workers_text: the number of workers in words.
        costs: seconds by part of a sample's work, summed over all workers.
    """

    def __init__(self, stats: Stats) -> None:
        self.stats = stats
        self.steady_s = max(stats.seconds - stats.startup_s, 1e-9)
        self.samples = max(1, stats.samples)
        self.rate = self.samples / self.steady_s
        wait_s = max(0.0, stats.wait_s - stats.startup_s)
        self.steady_starvation = wait_s / (wait_s + stats.consumer_s) if wait_s + stats.consumer_s else 0.0
        self.busy_s = stats.busy_s
        self.workers = max(1, stats.workers)
        self.inline = stats.executor == "inline"
        self.steady_occupancy = min(1.0, self.busy_s / (self.steady_s * self.workers))
        self.consumer_rate = self.samples / stats.consumer_s if stats.consumer_s else math.inf
        self.workers_text = "one worker" if stats.workers == 1 else f"{stats.workers} workers"
        self.costs = self._costs()

    def _costs(self) -> dict[str, float]:
        stats = self.stats
        costs = {"decode": stats.decode_s, **{f"transform {n}": s for n, s in stats.transforms.items()}}
        if stats.collate_s:
            costs[f"transform {stats.batchify or 'batchify'}"] = stats.collate_s
        return costs

    def share(self, *stages: str) -> float:
        """Return the share of the caller's waiting time, without start-up, in which its batch was in these stages.

        The seconds of each stage are those of `Stats.waits`, which `CallerMetrics.record_delivery` in
        `aioloader.loader.epoch_iterator` counts.
        """
        waits = dict(self.stats.waits)
        # The caller's first wait contains the start-up. Files are opened before a batch is begun ("start"); then the
        # first chunks may be in the queue of workers that are still starting ("work").
        started = self.stats.startup_s
        for stage in ("start", "work"):
            less = min(started, waits.get(stage, 0.0))
            waits[stage] = waits.get(stage, 0.0) - less
            started -= less
        total = sum(waits.values())
        return sum(waits.get(stage, 0.0) for stage in stages) / total if total > 0 else 0.0

    @property
    def costliest(self) -> str:
        """Return the name of the costliest part of a sample."""
        return max(self.costs, key=lambda name: self.costs[name])

    @property
    def small(self) -> bool:
        """Return True if a sample's parts cost less than reading it from its dataset and writing its row."""
        return self.costs[self.costliest] < _SMALL_SHARE * self.busy_s

    # -- limits ------------------------------------------------------------------------------------------------------

    @property
    def awaited_most(self) -> str:
        """Return the async transform that samples waited for longest; at least one must exist."""
        return max(self.stats.awaited, key=lambda name: self.stats.awaited[name])

    def awaits(self) -> bool:
        """Return True if samples wait longer for an async transform than they keep workers busy."""
        longest = self.stats.awaited[self.awaited_most] if self.stats.awaited else 0.0
        return (
            longest > self.busy_s
            and self.steady_occupancy < HIGH_OCCUPANCY
            and self.share("fetch", "start") < 0.5
        )

    def held_s(self) -> float:
        """Return the seconds in which code other than the consumer's blocked the loader's event loop."""
        return max(0.0, min(self.stats.loop_held_s, self.steady_s) - self.stats.consumer_s)

    def held(self) -> bool:
        """Return True if the caller waits for a blocked loop; a loop is late also if other programs use the cores."""
        stats = self.stats
        computed = stats.process_cpu_s - (stats.cpu_s if stats.executor == "thread" else 0.0)
        late = self.held_s() > _HELD_SHARE * self.steady_s and (stats.loop_lag_p99_s or 0.0) > _HELD_LAG_S
        return late and computed > _HELD_CPU_SHARE * self.held_s()

    def restarts_each_epoch(self) -> bool:
        """Return True if the caller waits mainly for first batches of epochs, which are not prefetched."""
        stats = self.stats
        return stats.passes > 1 and stats.first_wait_s > 0.5 * max(0.0, stats.wait_s - stats.startup_s)

    def reads_in_workers(self) -> bool:
        """Return True if workers wait for files while decoding: in maps of files, or in a dataset's own code."""
        return bool(self.busy_s) and self.costliest == "decode" and self.work_waits() and not self.locked()

    def work_waits(self) -> bool:
        """Return True if the work on samples is mostly waiting."""
        cpu_s, pauses = self.stats.cpu_s, self.stats.pauses
        return cpu_s < _WAITING_CPU_SHARE * self.busy_s and pauses > _WAITING_PAUSES * self.samples

    def locked(self) -> bool:
        """Return True if threads wait for the interpreter's lock."""
        stats = self.stats
        together = stats.cpu_s / self.steady_s
        return (
            stats.executor == "thread"
            and self.workers > 1
            and stats.cores > 1
            and self.busy_s > 1.5 * self.steady_s
            and 0.6 < together < _ONE_CORE
            and stats.cpu_s < HIGH_CPU_SHARE * self.busy_s
            and stats.pauses > (self.busy_s - stats.cpu_s) / _MAX_LOCK_WAIT_S
        )

    def _used_cores(self) -> float:
        """Return the number of cores that this loader uses. Workers that wait need none."""
        stats = self.stats
        used = stats.process_cpu_s
        if stats.executor != "thread" and not self.inline:
            used += stats.cpu_s
        return used / self.steady_s if used else float(self.workers)

    def others_cores(self) -> float:
        """Return the number of cores that other programs use; 0 if the system does not report it."""
        stats = self.stats
        if stats.idle_cores is None:
            return 0.0
        return max(0.0, stats.cores - self._used_cores() - stats.idle_cores)

    def free_cores(self) -> float:
        """Return the number of cores that are idle while this loader runs."""
        return self.stats.cores - self._used_cores() - self.others_cores()

    def left_cores(self) -> int:
        """Return the number of cores that other programs leave to this loader, at least 1."""
        return max(1, round(self.stats.cores - self.others_cores()))

    # -- estimated gains -----------------------------------------------------------------------------------------------

    def gain(self, rate: float) -> float:
        """Return the speed-up at `rate` samples per second, limited by the consumer's rate."""
        return max(1.0, min(rate, self.consumer_rate) / self.rate)

    def with_workers(self, count: int) -> float:
        """Return the gain with another number of workers; more workers are at most as busy as the present ones."""
        if not self.busy_s:
            return 1.0
        gain = self.gain(count * self.samples / self.busy_s)
        return min(gain, count / self.workers) if count > self.workers and not self.inline else gain

    def without(self, seconds: float) -> float:
        """Return the gain if workers had `seconds` less work."""
        left = self.busy_s - seconds
        return self.gain(self.rate * self.busy_s / left if left > 0 else math.inf)

    def batches_twice(self, useful_s: float) -> float:
        """Return the gain if half as many batches cost half of the time that is not work on samples; at most 2."""
        spare = max(0.0, self.steady_s - useful_s - self.stats.consumer_s)
        return self.steady_s / (self.steady_s - spare / 2)

    def needed_bytes(self) -> float:
        """Estimate the slab memory for all batches in flight, from the peak."""
        stats = self.stats
        ahead = max(1.0, (stats.fetch_s + self.busy_s / self.workers + stats.reorder_s) / self.steady_s)
        return stats.memory_peak_bytes / ahead * (stats.prefetch + 1)

    def parallel(self, count: int) -> float:
        """Return the gain of an inline loader with `count` workers, which would work concurrently."""
        work = count * self.samples / self.busy_s if self.busy_s else math.inf
        read = self.samples / self.stats.fetch_s * self.stats.prefetch if self.stats.fetch_s else math.inf
        return max(1.0, min(work, read, self.consumer_rate) / self.rate)
