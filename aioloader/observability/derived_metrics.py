"""Metrics derived from a loader's counters: rates, shares, and estimated gains of changes (pure).

A gain is an upper bound from the counters: the rate of a resource that is never idle, limited by the next resource.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioloader.metrics import Stats

# Starvation below FED: the caller hardly waits. Occupancy above SETTLED: workers are hardly idle.
FED = 0.1
FULL = 0.5
SETTLED = 0.8
# A sample that pauses at least PAUSES times and computes for less than COMPUTING of its time waits for something.
PAUSES = 0.5
COMPUTING = 0.3
# Threads that together use little more than one core are limited by the interpreter's lock.
ONE_CORE = 1.3
# A waiting thread requests the lock after 5 ms. If waits are longer, other programs occupy the cores.
LONGEST_TURN_S = 0.012
ON_A_CORE = 0.75
# A loop that is late for this share of the time, and by this median, is blocked by something.
_HELD = 0.3
_HELD_S = 0.005
_COMPUTES = 0.3
# Fewer batches than this allow no conclusion.
FEW = 10
# Dispatching a batch pays from this duration on (`executors.tuning.tuner` has the same figure).
WORTH_S = 1.5e-3
# The largest part of a sample's cost matters only above this share.
_SMALL = 0.3


class DerivedMetrics:
    """Metrics derived from counters. Rates are samples per second, without the start-up time."""

    def __init__(self, stats: Stats) -> None:
        self.stats = stats
        self.span = max(stats.seconds - stats.startup_s, 1e-9)
        self.samples = max(1, stats.samples)
        self.rate = self.samples / self.span
        wait_s = max(0.0, stats.wait_s - stats.startup_s)
        self.starved = wait_s / (wait_s + stats.consumer_s) if wait_s + stats.consumer_s else 0.0
        self.busy_s = stats.busy_s
        self.workers = max(1, stats.workers)
        self.inline = stats.executor == "inline"
        self.occupancy = min(1.0, self.busy_s / (self.span * self.workers))
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
        """Return the share of the caller's waiting time, without start-up, in which its batch was in these stages."""
        waits = dict(self.stats.waits)
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
        return self.costs[self.costliest] < _SMALL * self.busy_s

    # -- limits ------------------------------------------------------------------------------------------------------

    @property
    def awaited_most(self) -> str:
        """Return the async transform that samples waited for longest; at least one must exist."""
        return max(self.stats.awaited, key=lambda name: self.stats.awaited[name])

    def awaits(self) -> bool:
        """Return True if samples wait longer for an async transform than they keep workers busy."""
        longest = self.stats.awaited[self.awaited_most] if self.stats.awaited else 0.0
        return longest > self.busy_s and self.occupancy < SETTLED and self.share("fetch", "start") < 0.5

    def held_s(self) -> float:
        """Return the seconds in which code other than the consumer's blocked the loader's event loop."""
        return max(0.0, min(self.stats.loop_held_s, self.span) - self.stats.consumer_s)

    def held(self) -> bool:
        """Return True if the caller waits for a blocked loop; a loop is late also if other programs use the cores."""
        stats = self.stats
        computed = stats.process_cpu_s - (stats.cpu_s if stats.executor == "thread" else 0.0)
        late = self.held_s() > _HELD * self.span and (stats.loop_lag_p50_s or 0.0) > _HELD_S
        return late and computed > _COMPUTES * self.held_s()

    def restarts_each_epoch(self) -> bool:
        """Return True if the caller waits mainly for first batches of epochs, which are not prefetched."""
        stats = self.stats
        return stats.passes > 1 and stats.first_wait_s > 0.5 * max(0.0, stats.wait_s - stats.startup_s)

    def reads_in_workers(self) -> bool:
        """Return True if workers wait for files while decoding: in maps of files, or in a dataset's own code."""
        stats = self.stats
        return (
            bool(self.busy_s)
            and self.costliest == "decode"
            and stats.cpu_s < COMPUTING * self.busy_s
            and stats.pauses > PAUSES * self.samples
            and not self.locked()
        )

    def locked(self) -> bool:
        """Return True if threads wait for the interpreter's lock."""
        stats = self.stats
        together = stats.cpu_s / self.span
        return (
            stats.executor == "thread"
            and self.workers > 1
            and stats.cores > 1
            and self.busy_s > 1.5 * self.span
            and 0.6 < together < ONE_CORE
            and stats.cpu_s < ON_A_CORE * self.busy_s
            and stats.pauses > (self.busy_s - stats.cpu_s) / LONGEST_TURN_S
        )

    def free_cores(self) -> float:
        """Return the number of cores that this loader leaves idle. Workers that wait need none."""
        stats = self.stats
        used = stats.process_cpu_s
        if stats.executor != "thread" and not self.inline:
            used += stats.cpu_s
        return stats.cores - used / self.span if used else float(stats.cores - self.workers)

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
        spare = max(0.0, self.span - useful_s - self.stats.consumer_s)
        return self.span / (self.span - spare / 2)

    def needed_bytes(self) -> float:
        """Estimate the slab memory for all batches in flight, from the peak."""
        stats = self.stats
        ahead = max(1.0, (stats.fetch_s + self.busy_s / self.workers + stats.reorder_s) / self.span)
        return stats.memory_peak_bytes / ahead * (stats.prefetch + 1)

    def parallel(self, count: int) -> float:
        """Return the gain of an inline loader with `count` workers, which would work concurrently."""
        work = count * self.samples / self.busy_s if self.busy_s else math.inf
        read = self.samples / self.stats.fetch_s * self.stats.prefetch if self.stats.fetch_s else math.inf
        return max(1.0, min(work, read, self.consumer_rate) / self.rate)
