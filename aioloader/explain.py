"""What a loader's counters say in words: what limits it, what to change, and how much that would give (pure).

The rule: a resource is the limit if the others wait for it. The caller's waiting is split by where its batch was in the
meantime, which tells storage from workers; how busy workers were tells whether they had too little to do; and what they
spent their time on tells decoding from transforms. Gains are what the counters allow: the pace of a resource if it were
never idle, and no more than the next one could take.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioloader.metrics import Stats

__all__ = ("explain",)

# Below this the caller hardly waits; above that workers are hardly idle.
_FED = 0.1
_FULL = 0.5
_SETTLED = 0.8
# A sample that pauses at least so often, and computes for so small a share of its time, waits for something.
_PAUSES = 0.5
_COMPUTING = 0.3
# Threads of which all together compute for hardly more than one core are held up by the interpreter's lock.
_ONE_CORE = 1.3
_HARDLY_MORE = 1.05


def explain(stats: Stats) -> str:
    """One paragraph. Its first sentence names the limit in one of the words storage, decode, transform (with its
    name), consumer, workers and memory; the rest says what it rests on, what to change, and what that would give."""
    if not stats.batches:
        return "Nothing has been delivered yet, so there is nothing to explain."
    text = _Case(stats).text()
    return f"{text} {stats.tuning}" if stats.tuning else text


class _Case:
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

    def _share(self, *stages: str) -> float:
        """Share of the caller's waiting, the start left out, in which its batch was in these stages."""
        waits = dict(self.stats.waits)
        started = self.stats.startup_s
        for stage in ("start", "work"):
            less = min(started, waits.get(stage, 0.0))
            waits[stage] = waits.get(stage, 0.0) - less
            started -= less
        total = sum(waits.values())
        return sum(waits.get(stage, 0.0) for stage in stages) / total if total > 0 else 0.0

    # -- which it is -------------------------------------------------------------------------------------------------

    def text(self) -> str:
        stats = self.stats
        if self.starved < _FED:
            return self._consumer()
        if stats.startup_s > 0.5 * stats.seconds:
            return self._start()
        if stats.awaited and self.occupancy < _SETTLED and self._share("work") >= 0.5:
            return self._awaiting()
        if not stats.decode_s and not stats.transform_s and stats.collate_s and self.inline:
            return self._gathering()
        if self._awaits():
            return self._awaited()
        if self.inline:
            return self._inline()
        if stats.memory_wait_s > 0.3 * self.span and self.occupancy < _SETTLED:
            return self._memory()
        if self._share("read") > 0.5 and self.occupancy < _SETTLED:
            return self._storage()
        if self._share("start") > 0.5 and self.occupancy < _SETTLED:
            return self._source()
        if self._reads_in_workers():
            return self._storage_of_workers()
        if self.occupancy < _FULL:
            return self._consumer_mostly() if self.starved < 0.5 else self._idle_workers()
        if self.workers < stats.cores and not self._locked() and self._free_cores() >= 0.5:
            return self._more_workers()
        return self._work()

    def _awaits(self) -> bool:
        """Whether samples wait for an async transform more than they keep workers busy."""
        longest = max(self.stats.awaited.values(), default=0.0)
        return longest > self.busy_s and self.occupancy < _SETTLED and self._share("read", "start") < 0.5

    def _reads_in_workers(self) -> bool:
        """Whether workers wait for the files that decoding reads: maps of files, or a dataset's own code."""
        stats = self.stats
        return (
            bool(self.busy_s)
            and max(self.costs, key=lambda name: self.costs[name]) == "decode"
            and stats.cpu_s < _COMPUTING * self.busy_s
            and stats.pauses > _PAUSES * self.samples
            and not self._locked()
        )

    def _locked(self) -> bool:
        """Whether threads take turns at the interpreter's lock."""
        stats = self.stats
        together = stats.cpu_s / self.span
        return (
            stats.executor == "thread"
            and self.workers > 1
            and stats.cores > 1
            and self.busy_s > 1.5 * self.span
            and 0.6 < together < _ONE_CORE
            and stats.cpu_s < 0.75 * self.busy_s
        )

    def _free_cores(self) -> float:
        """Cores that nobody here uses. Workers that wait instead of computing need none."""
        stats = self.stats
        used = stats.process_cpu_s
        if stats.executor != "thread" and not self.inline:
            used += stats.cpu_s
        return stats.cores - used / self.span if used else float(stats.cores - self.workers)

    # -- what it would give --------------------------------------------------------------------------------------------

    def _gain(self, rate: float) -> float:
        """How many times as fast, at the pace `rate` and no more than the consumer takes."""
        return max(1.0, min(rate, self.consumer_rate) / self.rate)

    def _with_workers(self, count: int) -> float:
        """The gain with another number of workers."""
        return self._gain(count * self.samples / self.busy_s) if self.busy_s else 1.0

    def _without(self, seconds: float) -> float:
        """The gain if workers had to work so many seconds less."""
        left = self.busy_s - seconds
        return self._gain(self.workers * self.samples / left) if left > 0 else self._gain(math.inf)

    # -- the sentences -------------------------------------------------------------------------------------------------

    @property
    def _rate_now(self) -> str:
        return f"{self.stats.samples_per_s:,.0f} samples/s"

    def _consumer(self) -> str:
        most = 1 / (1 - self.starved)
        text = (
            f"The consumer is the limit. It waited for data in only {self.starved:.0%} of its time "
            f"({self._rate_now}), so that faster loading would give {_times(most)} at most. "
        )
        if self.inline or self.stats.workers < 2 or not self.busy_s:
            return text + "What takes time is the code that takes the batches."
        enough = max(1, math.ceil(self.busy_s / self.span * 1.25))
        if enough < self.stats.workers:
            return text + f"{_number(enough).capitalize()} of the {self.stats.workers} workers would do."
        return text + "What takes time is the code that takes the batches."

    def _consumer_mostly(self) -> str:
        gain = 1 / (1 - self.starved)
        return (
            f"The consumer is the limit for the most part. It waited for data in {self.starved:.0%} of its time, while "
            f"{self.crew} had work for {self.occupancy:.0%} ({self._rate_now}). Batches come unevenly: a larger "
            f"prefetch (now {self.stats.prefetch}) evens that out and gives {_times(gain)} at most."
        )

    def _start(self) -> str:
        stats = self.stats
        what = f"It took {stats.startup_s:.2f} of {stats.seconds:.2f} s"
        later = f"Keep the loader for all epochs, which gives {_times(stats.seconds / self.span)}, and ask again later."
        if stats.executor in ("thread", "inline"):
            return f"Storage is the limit so far. {what} to open the files ({self._rate_now}). {later}"
        return f"The workers are the limit so far. {what} to start them ({self._rate_now}). {later}"

    def _awaiting(self) -> str:
        """An async transform: neither cores nor workers have anything to do with it."""
        stats = self.stats
        limit = max(stats.awaited, key=lambda name: stats.awaited[name])
        seconds = stats.awaited[limit]
        return (
            f"The transform {limit} is the limit. It is awaited: a sample waits {1e3 * seconds / self.samples:.1f} ms "
            f"for it, and {seconds / self.span:.1f} calls were under way on average, while workers had work for "
            f"{self.occupancy:.0%} of the time ({self._rate_now}). Twice as many calls at a time (concurrency= of "
            f".transform, and prefetch, now {stats.prefetch}), or answers in half the time, would give "
            f"{_times(self._gain(2 * self.rate))} if the service bears it."
        )

    def _gathering(self) -> str:
        stats = self.stats
        return (
            f"Memory is the limit. Rows are gathered in this thread, without workers: copying takes "
            f"{1e3 * stats.collate_s / stats.batches:.3f} ms a batch, {stats.collate_s / self.span:.0%} of the time; "
            f"the rest is the cost of a batch as such ({self._rate_now}). Batches twice as large would give "
            f"{_times(self._batches_twice(stats.collate_s))}."
        )

    def _batches_twice(self, useful_s: float) -> float:
        """The gain where half of the batches cost half of what is no work on samples, and no more than twice."""
        spare = max(0.0, self.span - useful_s - self.stats.consumer_s)
        return self.span / (self.span - spare / 2)

    def _memory(self) -> str:
        stats = self.stats
        return (
            f"Memory is the limit. Fetching waited {stats.memory_wait_s:.1f} of {self.span:.1f} s for a place in slab "
            f"memory, while {self.crew} had work for {self.occupancy:.0%} of the time ({self._rate_now}). Raise "
            f"memory_limit (now {_mib(stats.memory_limit_bytes)}; {stats.prefetch} batches on their way need "
            f"{_mib(self._needed_bytes())}), or keep fewer batches: with enough of it the same workers would give "
            f"{_times(self._with_workers(self.workers))}."
        )

    def _needed_bytes(self) -> float:
        """Slab memory for all batches that may be on their way, as far as the peak tells the size of one."""
        stats = self.stats
        ahead = max(1.0, (stats.read_s + self.busy_s / self.workers + stats.ready_s) / self.span)
        return stats.memory_peak_bytes / ahead * (stats.prefetch + 1)

    def _storage(self) -> str:
        stats = self.stats
        each = stats.bytes_read / self.samples / 1024
        gain = self._with_workers(self.workers)
        text = (
            f"Storage is the limit. The caller waited for reads in {self._share('read') * self.starved:.0%} of its "
            f"time, while {self.crew} had work for {self.occupancy:.0%}: "
            f"{stats.bytes_read / self.span / 1e6:,.1f} MB/s, {each:,.0f} KiB a sample ({self._rate_now}). "
        )
        if stats.requests:
            text += self._network() + " "
        text += (
            f"If it is the delay of a read that costs, prefetch={2 * stats.prefetch} (now {stats.prefetch}) would give "
            f"{_times(min(2.0, gain))}; data that is at hand (a faster disk"
        )
        where = (
            ', or cache="DIR" from the second epoch on'
            if stats.requests or stats.hit_rate is not None
            else ""
        )
        return f"{text}{where}) {_times(gain)}."

    def _source(self) -> str:
        gain = self._with_workers(self.workers)
        return (
            f"Storage is the limit. The caller waited for the source, or the sampler, to say what comes next in "
            f"{self._share('start') * self.starved:.0%} of its time, while {self.crew} had work for "
            f"{self.occupancy:.0%} ({self._rate_now}). With samples at hand the loader would give {_times(gain)}."
        )

    def _awaited(self) -> str:
        stats = self.stats
        name = max(stats.awaited, key=lambda each: stats.awaited[each])
        seconds = stats.awaited[name]
        at_once = seconds / self.span
        twice = (
            min(2.0, self._with_workers(self.workers)) if self.busy_s else min(2.0, self._gain(2 * self.rate))
        )
        return (
            f"The transform {name} is the limit. It is awaited for {1e3 * seconds / self.samples:.1f} ms a sample, by "
            f"{at_once:.1f} samples at a time on average, while {self.crew} had work for {self.occupancy:.0%} "
            f"({self._rate_now}). If the service behind it bears twice as many at a time, a greater concurrency= of "
            f"the transform with prefetch={2 * stats.prefetch} (now {stats.prefetch}) would give {_times(twice)}."
        )

    def _network(self) -> str:
        stats = self.stats
        each = stats.request_bytes / stats.requests / 1024
        latency = ""
        if stats.latency_p50_s is not None and stats.latency_p99_s is not None:
            latency = f" in {1e3 * stats.latency_p50_s:.0f} ms (p99 {1e3 * stats.latency_p99_s:.0f} ms)"
        failed = f", {stats.retries} of them tried again" if stats.retries else ""
        return f"It is the network: {stats.requests:,} requests for {each:,.0f} KiB each, answered{latency}{failed}."

    def _storage_of_workers(self) -> str:
        stats = self.stats
        where = "the dataset's own __getitem__" if stats.foreign else "decoding"
        share = stats.cpu_s / self.busy_s
        more = self.workers * 2
        return (
            f"Storage is the limit. Of the time that samples take {stats.decode_s / self.busy_s:.0%} goes "
            f"into {where}, and only {share:.0%} is spent computing: the rest is waiting, for files or another "
            f"service ({self._rate_now} with {self.crew}). Waiting needs no core: num_workers={more} would give "
            f"{_times(self._with_workers(more))}; data that is at hand "
            f"{_times(self._without(stats.decode_s - min(stats.cpu_s, stats.decode_s)))}."
        )

    def _idle_workers(self) -> str:
        per_sample = 1e3 * self.busy_s / self.samples
        twice = min(2.0, self._with_workers(self.workers), self._batches_twice(self.busy_s / self.workers))
        text = (
            f"The workers are the limit: not their number, but handing work to them. {self.crew.capitalize()} had work "
            f"for only {self.occupancy:.0%} of the time, {per_sample:.3f} ms a sample, and neither reads nor a lack of "
            f"room kept them from it ({self._rate_now}). Batches twice as large would give {_times(twice)}"
        )
        alone = self._gain(1 / (self.busy_s / self.samples + 1 / self.consumer_rate)) if self.busy_s else 1.0
        if alone > _HARDLY_MORE:
            text += f"; num_workers=0, where nothing is handed over, {_times(alone)}"
        return text + "."

    def _more_workers(self) -> str:
        stats = self.stats
        limit = max(self.costs, key=lambda name: self.costs[name])
        one, most = self.workers + 1, min(stats.cores, self.workers + math.ceil(self._free_cores() - 0.25))
        text = (
            f"The workers are the limit: there are too few. {self.crew.capitalize()} had work for {self.occupancy:.0%} "
            f"of the time, {1e3 * self.busy_s / self.samples:.2f} ms a sample, of which "
            f"{self.costs[limit] / self.busy_s:.0%} is {limit}; of {stats.cores} cores {self._free_cores():.1f} were "
            f"free ({self._rate_now}). A {_ordinal(one)} worker would give {_times(self._with_workers(one))}"
        )
        if most > one:
            text += f", {most} workers {_times(self._with_workers(most))}"
        if stats.executor == "thread":
            text += (
                " where the work releases the interpreter's lock; where it does not, take executor='process'"
            )
        return text + "."

    def _inline(self) -> str:
        """Without workers, one thing after the other in one thread."""
        stats = self.stats
        waited = self.starved * (self.span if self.span else 1.0)
        if stats.consumer_s > waited:
            return (
                f"The consumer is the limit for the most part. It took {1 - self.starved:.0%} of the time, and "
                f"loading, in the same thread, the rest ({self._rate_now}). One worker beside it "
                f"(num_workers=1) would give {_times(self._beside(1))}."
            )
        if stats.read_s > self.busy_s:
            without = self.span / max(self.span - stats.read_s, 1e-9)
            return (
                f"Storage is the limit. Reading took {stats.read_s / self.span:.0%} of the time, and nothing else was "
                f"done meanwhile ({self._rate_now}). Workers, of which num_workers=0 has none, would let reads go on "
                f"beside the rest: num_workers=1 would give {_times(self._beside(1))}; data at hand {_times(without)}."
            )
        if self._reads_in_workers():
            return self._storage_of_workers()
        if self.busy_s < 0.3 * waited:
            return (
                f"The workers are the limit: there are none, and this thread does all. Of its time "
                f"{self.busy_s / self.span:.0%} went into samples; the rest is the cost of a batch as such "
                f"({self._rate_now}). Batches twice as large would give "
                f"{_times(self._batches_twice(self.busy_s + stats.read_s))}."
            )
        return self._work()

    def _beside(self, count: int) -> float:
        """The gain of an inline loader with so many workers: what was done in turn is done side by side."""
        work = count * self.samples / self.busy_s if self.busy_s else math.inf
        read = self.samples / self.stats.read_s * self.stats.prefetch if self.stats.read_s else math.inf
        return max(1.0, min(work, read, self.consumer_rate) / self.rate)

    def _work(self) -> str:
        limit = max(self.costs, key=lambda name: self.costs[name])
        cost = self.costs[limit]
        head = "Decode is the limit." if limit == "decode" else f"The {limit} is the limit."
        share = min(1.0, cost / self.busy_s) if self.busy_s else 0.0
        per_sample = 1e3 * self.busy_s / self.samples
        if self.inline:
            how = f"in one thread, which it keeps for {self.busy_s / self.span:.0%} of the time"
        else:
            how = f"with {self.crew}, at work for {self.occupancy:.0%} of the time"
        text = f"{head} It takes {share:.0%} of the {per_sample:.2f} ms that a sample costs ({self._rate_now} {how}). "
        return text + self._advice(limit, cost)

    def _advice(self, limit: str, cost: float) -> str:
        stats = self.stats
        if self.inline:
            half = self.span / max(self.span - cost / 2, 1e-9)
            if stats.cores > 1 or self.starved < 1 - _FED:
                count = max(1, stats.cores)
                return f"num_workers={count} would give {_times(self._beside(count))}, and {_faster(limit, half)}."
            return f"There is one core; {_faster(limit, half)}."
        half = self._without(cost / 2)
        if self._locked():
            gain = self._gain(self.rate * min(stats.cores, self.workers) * self.span / stats.cpu_s)
            return (
                f"The threads take turns at the interpreter's lock: together they computed for "
                f"{stats.cpu_s / self.span:.1f} of {stats.cores} cores. executor='process' would give {_times(gain)}, "
                f"and {_faster(limit, half)}."
            )
        waits = (
            stats.cpu_s and stats.cpu_s < _COMPUTING * self.busy_s and stats.pauses > _PAUSES * self.samples
        )
        if waits:
            more = 2 * self.workers
            return (
                f"It waits rather than computes ({stats.cpu_s / self.busy_s:.0%} of the time on a core): "
                f"num_workers={more} would give {_times(self._with_workers(more))}, and {_faster(limit, half)}."
            )
        return (
            f"All {stats.cores} cores that this process may use have a worker; {_faster(limit, half)}; "
            f"a machine with twice the cores would give {_times(self._with_workers(2 * self.workers))}."
            if stats.cores > 1
            else f"There is one core; {_faster(limit, half)}."
        )


def _faster(limit: str, gain: float) -> str:
    if limit == "decode":
        return (
            f"decoding in half the time (smaller images, `aioloader pack --tile`, dct_scaling=True) would give "
            f"{_times(gain)}"
        )
    name = limit.partition(" ")[2]
    return f"{name} in half the time would give {_times(gain)}"


def _times(gain: float) -> str:
    if gain < _HARDLY_MORE:
        return "hardly more"
    return f"about {gain:.1f}x" if gain < 9.95 else f"about {min(gain, 999):.0f}x"


def _mib(nbytes: float) -> str:
    return f"{nbytes / (1 << 20):,.1f} MiB" if nbytes < 10 << 20 else f"{nbytes / (1 << 20):,.0f} MiB"


_NUMBERS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def _number(count: int) -> str:
    return _NUMBERS[count] if count < len(_NUMBERS) else str(count)


_ORDINALS = (
    "",
    "first",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
)


def _ordinal(number: int) -> str:
    if number < len(_ORDINALS):
        return _ORDINALS[number]
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
