"""What a loader's counters come to: rates, shares, and what changes would give (pure).

Gains are what the counters allow: the pace of a resource if it were never idle, and no more than the next one takes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioloader.metrics import Stats

__all__ = ("COMPUTING", "FED", "FEW", "FULL", "ON_A_CORE", "PAUSES", "SETTLED", "WORTH_S", "DerivedMetrics")

# Below this the caller hardly waits; above that workers are hardly idle.
FED = 0.1
FULL = 0.5
SETTLED = 0.8
# A sample that pauses at least so often, and computes for so small a share of its time, waits for something.
PAUSES = 0.5
COMPUTING = 0.3
# Threads of which all together compute for hardly more than one core are held up by the interpreter's lock.
ONE_CORE = 1.3
# A thread asks the other to let go after 5 ms. Where waits are longer, other programs have the cores.
LONGEST_TURN_S = 0.012
ON_A_CORE = 0.75
# A loop that is late for so much of the time, and that much as a rule, is held by something.
_HELD = 0.3
_HELD_S = 0.005
_COMPUTES = 0.3
# So few batches tell little.
FEW = 10
# What a batch takes at least for its hand-over to a worker to pay (`executors.tuning.tuner` has the same figure).
WORTH_S = 1.5e-3
# A part of a sample's cost below this is not what costs.
_SMALL = 0.3


class DerivedMetrics:
    """The counters, and what is computed from them. Rates are samples per second, without the start."""

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
        self.crew = "one worker" if stats.workers == 1 else f"{stats.workers} workers"
        self.costs = self._costs()

    def _costs(self) -> dict[str, float]:
        stats = self.stats
        costs = {"decode": stats.decode_s, **{f"transform {n}": s for n, s in stats.transforms.items()}}
        if stats.collate_s:
            costs[f"transform {stats.batchify or 'batchify'}"] = stats.collate_s
        return costs

    def share(self, *stages: str) -> float:
        """Share of the caller's waiting, the start left out, in which its batch was in these stages."""
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
        """The dearest part of a sample."""
        return max(self.costs, key=lambda name: self.costs[name])

    @property
    def small(self) -> bool:
        """Whether a sample's parts cost less than taking one from its dataset and writing it down."""
        return self.costs[self.costliest] < _SMALL * self.busy_s

    # -- what holds what up ------------------------------------------------------------------------------------------

    @property
    def awaited_most(self) -> str:
        """The async transform that samples waited for longest; there is one."""
        return max(self.stats.awaited, key=lambda name: self.stats.awaited[name])

    def awaits(self) -> bool:
        """Whether samples wait for an async transform more than they keep workers busy."""
        longest = self.stats.awaited[self.awaited_most] if self.stats.awaited else 0.0
        return longest > self.busy_s and self.occupancy < SETTLED and self.share("fetch", "start") < 0.5

    def held_s(self) -> float:
        """Seconds for which something held the loader's event loop, besides the code that takes the batches."""
        return max(0.0, min(self.stats.loop_held_s, self.span) - self.stats.consumer_s)

    def held(self) -> bool:
        """Whether that is what the caller waits for. A loop is late, too, where other programs have the cores."""
        stats = self.stats
        computed = stats.process_cpu_s - (stats.cpu_s if stats.executor == "thread" else 0.0)
        late = self.held_s() > _HELD * self.span and (stats.loop_lag_p50_s or 0.0) > _HELD_S
        return late and computed > _COMPUTES * self.held_s()

    def starts_anew(self) -> bool:
        """Whether the caller waits mainly for the first batches of passes, before which nothing is read ahead."""
        stats = self.stats
        return stats.passes > 1 and stats.first_wait_s > 0.5 * max(0.0, stats.wait_s - stats.startup_s)

    def reads_in_workers(self) -> bool:
        """Whether workers wait for the files that decoding reads: maps of files, or a dataset's own code."""
        stats = self.stats
        return (
            bool(self.busy_s)
            and self.costliest == "decode"
            and stats.cpu_s < COMPUTING * self.busy_s
            and stats.pauses > PAUSES * self.samples
            and not self.locked()
        )

    def locked(self) -> bool:
        """Whether threads take turns at the interpreter's lock."""
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
        """Cores that nobody here uses. Workers that wait instead of computing need none."""
        stats = self.stats
        used = stats.process_cpu_s
        if stats.executor != "thread" and not self.inline:
            used += stats.cpu_s
        return stats.cores - used / self.span if used else float(stats.cores - self.workers)

    # -- what it would give --------------------------------------------------------------------------------------------

    def gain(self, rate: float) -> float:
        """How many times as fast, at the pace `rate` and no more than the consumer takes."""
        return max(1.0, min(rate, self.consumer_rate) / self.rate)

    def with_workers(self, count: int) -> float:
        """The gain with another number of workers; of more, each has as much to do as now at most."""
        if not self.busy_s:
            return 1.0
        gain = self.gain(count * self.samples / self.busy_s)
        return min(gain, count / self.workers) if count > self.workers and not self.inline else gain

    def without(self, seconds: float) -> float:
        """The gain if workers had to work so many seconds less."""
        left = self.busy_s - seconds
        return self.gain(self.rate * self.busy_s / left if left > 0 else math.inf)

    def batches_twice(self, useful_s: float) -> float:
        """The gain where half of the batches cost half of what is no work on samples, and no more than twice."""
        spare = max(0.0, self.span - useful_s - self.stats.consumer_s)
        return self.span / (self.span - spare / 2)

    def needed_bytes(self) -> float:
        """Slab memory for all batches that may be on their way, as far as the peak tells the size of one."""
        stats = self.stats
        ahead = max(1.0, (stats.fetch_s + self.busy_s / self.workers + stats.reorder_s) / self.span)
        return stats.memory_peak_bytes / ahead * (stats.prefetch + 1)

    def beside(self, count: int) -> float:
        """The gain of an inline loader with so many workers: what was done in turn is done side by side."""
        work = count * self.samples / self.busy_s if self.busy_s else math.inf
        read = self.samples / self.stats.fetch_s * self.stats.prefetch if self.stats.fetch_s else math.inf
        return max(1.0, min(work, read, self.consumer_rate) / self.rate)
