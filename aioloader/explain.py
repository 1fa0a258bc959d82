"""Explanation of a loader's counters in words: the limit, a change that helps, and its estimated gain (pure).

Rule: a resource is the limit if the others wait for it. The caller's waiting time is split by the stage that its batch
is in while it waits, which distinguishes storage from workers; the workers' occupancy shows whether they had enough
work; and their time by step distinguishes decoding from transforms. `aioloader.observability.derived_metrics` computes
shares and gains from the counters.

The counters are fields of `aioloader.metrics.Stats`. These modules fill them:

- `aioloader.loader.epoch_iterator`, when the caller requests and receives a batch: `wait_s`, `consumer_s`, and `waits`,
  which is `wait_s` split by stage. `CallerMetrics.record_delivery` compares the time of the wait with the times in the
  batch's timeline. `aioloader.pipeline.batch_task` calls `timeline.enter(stage)` where each stage of a batch begins:
  "fetch", for example, just before the batch is read.
- `aioloader.pipeline.fetch`: `fetch_s`, `bytes_read`.
- `aioloader.pipeline.epoch_runner`: `memory_wait_s`.
- `aioloader.pipeline.dispatch`: `startup_s`, `dispatch_s`, and the executor's work: `decode_s`, `transforms`, `work_s`,
  `cpu_s`, `pauses`, `awaited`, `decodes`. For in-memory data `aioloader.pipeline.inline` counts `collate_s`.
- `aioloader.pipeline.watchdog`: the lag of the event loop.
- The byte source's `stats()`: `requests` and the other figures of the network, the cache and kept samples.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from aioloader.observability.derived_metrics import (
    HIGH_CPU_SHARE,
    HIGH_OCCUPANCY,
    LOW_STARVATION,
    MIN_BATCHES,
    MIN_DISPATCHED_S,
    MIN_OCCUPANCY,
    DerivedMetrics,
    advise_crop_index,
    advise_kept,
    advise_native,
    advise_partial_reads,
    describe_decodes,
    describe_kept,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeAlias

    from aioloader.metrics import Stats

    _Lines: TypeAlias = tuple[str, ...]

__all__ = ("explain",)

# A gain below this is not worth a change.
_HARDLY_MORE = 1.05
# Less of a core is not worth a worker.
_MANY_CORES = 0.5
# A start-up of a smaller share of the time does not show in the rate.
_LITTLE_STARTUP = 0.01
_NUMBERS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
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


def explain(stats: Stats) -> str:
    """Return three lines about the limit of a loader, and a list of changes and facts.

    The first line names the limit: storage, decode (or the dataset's own ``__getitem__``), transform (with its name),
    consumer, workers or memory. The second is the rate, the third the evidence. The list begins with the changes that
    help, each with its gain. If image datasets decode, an item says how many images were decoded in which way, and why;
    another one how many samples are kept. Others recommend to keep the decoded images where decoding costs most and
    they fit into memory, a crop index where it would save half the decoding time, and the compiled part where resizing
    would gain by it.
    """
    if not stats.batches:
        return "Nothing has been delivered yet, so there is nothing to explain."
    explanation = _Explanation(stats)
    limit, evidence, *items = explanation.lines()
    items += [
        describe_decodes(stats),
        describe_kept(stats),
        advise_kept(stats),
        advise_crop_index(stats),
        advise_native(stats),
    ]
    if stats.batches < MIN_BATCHES:
        many = "one batch" if stats.batches == 1 else f"{_number(stats.batches)} batches"
        items.append(f"So far it is {many}, which is too few for a reliable answer: ask again later.")
    items.append(stats.tuning)
    return "\n".join([limit, explanation.rate_line, evidence, *(f"- {item}" for item in items if item)])


class _Explanation(DerivedMetrics):
    """Choice of the limit, and the lines about it.

    Each method of a limit returns the limit, its evidence, and any number of changes and facts. Five of them call
    storage the limit, each for another reason: `_reads`, `_slow_source`, `_reads_in_workers`, `_inline_reads`, and
    `_startup` of a loader without worker processes.
    """

    # -- choice of the limit -----------------------------------------------------------------------------------------

    def lines(self) -> _Lines:
        """Choose the limit from the counters, and return the lines about it."""
        stats = self.stats
        if self.steady_starvation < LOW_STARVATION:
            return self._consumer()
        if stats.startup_s > 0.5 * stats.seconds:
            return self._startup()
        gathers = self.inline and stats.batchify is None and not stats.transform_s
        if gathers and stats.collate_s > stats.fetch_s + stats.decode_s:
            return self._in_memory()
        if self.awaits():
            return self._blocking_transform() if self.held() else self._async_transform()
        if self.share("start") > 0.5 and self.steady_occupancy < HIGH_OCCUPANCY:
            return self._slow_source()
        if self.inline:
            return self._inline()
        if stats.memory_wait_s > 0.3 * self.steady_s and self.steady_occupancy < HIGH_OCCUPANCY:
            return self._slab_memory()
        if self.share("fetch") > 0.5 and self.steady_occupancy < HIGH_OCCUPANCY:
            return self._reads()
        if self.reads_in_workers():
            return self._reads_in_workers()
        if self.steady_occupancy < MIN_OCCUPANCY:
            return self._idle()
        if self.workers < stats.cores and not self.locked() and self.free_cores() >= _MANY_CORES:
            return self._more_workers()
        return self._work()

    def _idle(self) -> _Lines:
        """Explain workers without enough work when neither storage nor memory is the reason."""
        if self.steady_starvation < 0.5:
            return self._consumer_mostly()
        if self.held() and not self.stats.own_loop:
            return self._blocked_loop()
        return self._short_epochs() if self.restarts_each_epoch() else self._dispatch()

    # -- the lines -----------------------------------------------------------------------------------------------------

    @property
    def rate_line(self) -> str:
        """Return the rate, and how busy the workers were; both without the start-up."""
        counted = " since the start-up" if self.stats.startup_s > _LITTLE_STARTUP * self.stats.seconds else ""
        if self.inline:
            busy = f"making samples took {self.busy_s / self.steady_s:.0%} of the time"
        else:
            busy = f"{self.workers_text} had work for {self.steady_occupancy:.0%} of the time"
        return f"{self.rate:,.0f} samples/s{counted}; {busy}."

    def _consumer(self) -> _Lines:
        """Explain a consumer that hardly waits: `steady_starvation` is low."""
        enough = max(1, math.ceil(self.busy_s / self.steady_s * 1.25))
        spare = not self.inline and self.busy_s and enough < self.stats.workers
        return (
            "The consumer is the limit.",
            f"It waited for data in only {self.steady_starvation:.0%} of its time; the code that consumes the batches "
            "takes the rest.",
            f"Faster loading would give {_times(1 / (1 - self.steady_starvation))} at most.",
            f"{_number(enough).capitalize()} of the {self.stats.workers} workers would do." if spare else "",
        )

    def _consumer_mostly(self) -> _Lines:
        """Explain batches that arrive unevenly for a consumer that waits for less than half of its time."""
        return (
            "The consumer is the limit for the most part.",
            f"It waited for data in {self.steady_starvation:.0%} of its time: batches arrive unevenly.",
            f"A larger prefetch (now {self.stats.prefetch}) evens that out and gives "
            f"{_times(1 / (1 - self.steady_starvation))} at most.",
        )

    def _startup(self) -> _Lines:
        """Explain a short run, of which more than half was `startup_s`: opening files or starting workers."""
        stats = self.stats
        limit, what = "The workers are the limit so far.", "start them"
        if stats.executor in ("thread", "inline"):
            limit, what = "Storage is the limit so far.", "open the files"
        gain = _times(stats.seconds / self.steady_s)
        # More than one epoch was begun: the caller keeps the loader, and later epochs do not start it again.
        later = (
            f"Later epochs of this loader do not, which gives {gain}: ask again later."
            if stats.passes > 1
            else f"Keep the loader for all epochs, which gives {gain}, and ask again later."
        )
        return (
            limit,
            f"It took {stats.startup_s:.2f} of {stats.seconds:.2f} s to {what}: {stats.samples_per_s:,.0f} samples/s "
            "with that time.",
            later,
        )

    def _in_memory(self) -> _Lines:
        """Explain data in memory, whose samples the loop's thread copies: `collate_s` without a batchify function."""
        stats = self.stats
        return (
            "Memory is the limit. Samples are copied in this thread, without workers.",
            f"Copying takes {1e3 * stats.collate_s / stats.batches:.3f} ms a batch, "
            f"{stats.collate_s / self.steady_s:.0%} of the time; the rest is the fixed cost of a batch.",
            f"Batches twice as large would give {_times(self.batches_twice(stats.collate_s))}.",
        )

    def _slab_memory(self) -> _Lines:
        """Explain a lack of slab memory: `memory_wait_s`."""
        stats = self.stats
        return (
            "Memory is the limit.",
            f"Fetching waited {stats.memory_wait_s:.1f} of {self.steady_s:.1f} s for a place in slab memory.",
            f"Raise memory_limit (now {_mib(stats.memory_limit_bytes)}; {stats.prefetch} batches in flight need "
            f"{_mib(self.needed_bytes())}), or keep fewer batches: with enough of it the same workers would give "
            f"{_times(self.with_workers(self.workers))}.",
        )

    def _reads(self) -> _Lines:
        """Explain slow reads: `share("fetch")`, the part of `Stats.waits` in which the batch was being read."""
        stats = self.stats
        gain = self.with_workers(self.workers)
        cached = stats.requests or stats.hit_rate is not None
        where = ', or cache="DIR" from the second epoch on' if cached else ""
        return (
            "Storage is the limit.",
            f"The caller waited for reads in {self.share('fetch') * self.steady_starvation:.0%} of its time: "
            f"{stats.bytes_read / self.steady_s / 1e6:,.1f} MB/s, {stats.bytes_read / self.samples / 1024:,.0f} KiB "
            "a sample.",
            f"If the latency of reads is the cost, prefetch={2 * stats.prefetch} (now {stats.prefetch}) would give "
            f"{_times(min(2.0, gain))}.",
            f"Data that is available at once (a faster disk{where}) would give {_times(gain)}.",
            *((self._network(), advise_partial_reads(stats)) if stats.requests else ()),
        )

    def _slow_source(self) -> _Lines:
        """Explain a slow sampler or iterable dataset: `share("start")`, when no batch was begun.

        The first line calls it storage too, because it has to contain one of six words.
        """
        gain = self.with_workers(self.workers) if self.busy_s else self.gain(math.inf)
        return (
            "Storage is the limit.",
            f"The caller waited for the source or the sampler in "
            f"{self.share('start') * self.steady_starvation:.0%} of its time.",
            f"With samples available at once the loader would give {_times(gain)}.",
        )

    def _async_transform(self) -> _Lines:
        """Explain a slow async transform: `Stats.awaited` exceeds the work in the executor."""
        stats = self.stats
        name = self.awaited_most
        calls = stats.awaited[name] / self.steady_s
        most = stats.concurrency.get(name, 0)
        twice = _times(min(2.0, self.with_workers(self.workers) if self.busy_s else self.gain(2 * self.rate)))
        ahead = f"prefetch={2 * stats.prefetch} (now {stats.prefetch})"
        if most and calls > 0.75 * most:
            reach = stats.prefetch * self.samples / max(1, stats.batches) >= 2 * most
            more = f"concurrency={2 * most} (now {most})" + ("" if reach else f" with {ahead}")
        else:
            more = f"{ahead}, or larger batches," if most else ahead
        of = f" of {most}" if most else ""
        return (
            f"The transform {name} is the limit. It is awaited.",
            f"A sample waits {1e3 * stats.awaited[name] / self.samples:.1f} ms for it, and {calls:.1f} calls{of} were "
            "under way on average.",
            f"If the service behind it can serve twice as many at a time, {more} would give {twice}.",
        )

    def _blocking_transform(self) -> _Lines:
        """Explain an async transform that computes or blocks: `loop_held_s`, while samples wait for it."""
        count = self.left_cores() if self.inline else self.workers
        gain = self.gain(count * self.samples / (self.held_s() + self.busy_s))
        return (
            f"The transform {self.awaited_most} is the limit: it, or other code, blocks the event loop.",
            f"It is async, but for {self.held_s() / self.steady_s:.0%} of the time the loop was late, because some "
            "code did not await.",
            "Code that computes or blocks belongs in a plain function, which runs in workers: "
            f"{_number(count)} of them would give {_times(gain)}.",
        )

    def _blocked_loop(self) -> _Lines:
        """Explain idle workers of a loader whose event loop is blocked by the caller's other code: `loop_held_s`."""
        return (
            "The consumer is the limit: other code blocks the event loop in which the loader runs.",
            f"The loop was late for {self.held_s() / self.steady_s:.0%} of the time.",
            "Such code belongs in a thread (asyncio.to_thread), or the loader does (aioloader.DataLoader): a free loop "
            f"would give {_times(self.with_workers(self.workers))}.",
        )

    def _short_epochs(self) -> _Lines:
        """Explain waits for the first batch of each epoch: `first_wait_s`."""
        stats = self.stats
        waited = max(1e-9, stats.wait_s - stats.startup_s)
        return (
            "The workers are the limit: epochs are short, and each begins without prefetched batches.",
            f"An epoch has {stats.batches / stats.passes:.0f} batches, and of the time that the caller waited "
            f"{min(1.0, stats.first_wait_s / waited):.0%} was for the first of them.",
            "Longer epochs, with a sampler that repeats the data, would give "
            f"{_times(self.gain(self.samples / max(1e-9, self.steady_s - stats.first_wait_s)))}.",
        )

    def _network(self) -> str:
        """Describe the requests of a byte source over the network."""
        stats = self.stats
        each = stats.request_bytes / stats.requests / 1024
        latency = ""
        if stats.latency_p50_s is not None and stats.latency_p99_s is not None:
            latency = f" in {1e3 * stats.latency_p50_s:.0f} ms (p99 {1e3 * stats.latency_p99_s:.0f} ms)"
        failed = f", {stats.retries} of them tried again" if stats.retries else ""
        return f"It is the network: {stats.requests:,} requests for {each:,.0f} KiB each, answered{latency}{failed}."

    def _reads_in_workers(self) -> _Lines:
        """Explain workers that wait for files while decoding: little `cpu_s` against `decode_s`, many `pauses`."""
        stats = self.stats
        where = "the dataset's own __getitem__" if stats.foreign else "decoding"
        more = self.workers * 2
        at_once = self.without(stats.decode_s - min(stats.cpu_s, stats.decode_s))
        return (
            "Storage is the limit.",
            f"A sample spends {stats.decode_s / self.busy_s:.0%} of its time in {where}, and computes for "
            f"{stats.cpu_s / self.busy_s:.0%}: the rest is waiting, for files or another service.",
            f"Waiting needs no core: num_workers={more} would give {_times(self.with_workers(more))}.",
            f"Data available at once would give {_times(at_once)}.",
        )

    def _dispatch(self) -> _Lines:
        """Explain idle workers for which no other reason was found: dispatching a batch costs more than its work."""
        twice = min(2.0, self.with_workers(self.workers), self.batches_twice(self.busy_s / self.workers))
        alone = self.gain(1 / (self.busy_s / self.samples + 1 / self.consumer_rate)) if self.busy_s else 1.0
        return (
            "The workers are the limit: not their number, but the dispatch of work to them.",
            f"A sample is {1e3 * self.busy_s / self.samples:.3f} ms of work, and neither reads nor a lack of memory is "
            "the reason.",
            f"Batches twice as large would give {_times(twice)}.",
            f"num_workers=0, without dispatch, would give {_times(alone)}." if alone > _HARDLY_MORE else "",
        )

    def _more_workers(self) -> _Lines:
        """Explain busy workers of which there are fewer than cores."""
        stats = self.stats
        share = f"{self.costs[self.costliest] / self.busy_s:.0%} is {self.costliest}{self._own_items()}"
        one, most = self.workers + 1, min(stats.cores, self.workers + math.ceil(self.free_cores() - 0.25))
        taken = self.others_cores()
        others = f", and other programs used {taken:.1f}" if taken >= _MANY_CORES else ""
        more = f", {most} workers {_times(self.with_workers(most))}" if most > one else ""
        lock = " where the work releases the interpreter's lock; where it does not, take executor='process'"
        return (
            "The workers are the limit: there are too few.",
            f"A sample costs {1e3 * self.busy_s / self.samples:.2f} ms, of which {share}; of {stats.cores} cores "
            f"{self.free_cores():.1f} were free{others}.",
            f"A {_ordinal(one)} worker would give {_times(self.with_workers(one))}{more}"
            f"{lock if stats.executor == 'thread' else ''}.",
        )

    def _inline(self) -> _Lines:
        """Explain a loader without workers, where all steps run in one thread."""
        stats = self.stats
        waited = self.steady_starvation * (self.steady_s if self.steady_s else 1.0)
        if stats.consumer_s > waited:
            return (
                "The consumer is the limit for the most part.",
                f"It took {1 - self.steady_starvation:.0%} of the time, and loading, in the same thread, the rest.",
                f"One worker in parallel (num_workers=1) would give {_times(self.parallel(1))}.",
            )
        if stats.fetch_s > self.busy_s:
            return self._inline_reads()
        if self.reads_in_workers():
            return self._reads_in_workers()
        if self.busy_s < 0.3 * waited or self.small:
            return (
                "The workers are the limit: there are none, and this thread does everything.",
                "The time that is not spent on samples is the fixed cost of a batch.",
                f"Batches twice as large would give {_times(self.batches_twice(self.busy_s + stats.fetch_s))}.",
            )
        return self._work()

    def _inline_reads(self) -> _Lines:
        """Explain slow reads of a loader without workers: `fetch_s` exceeds the work on samples."""
        read_s = self.stats.fetch_s
        without = self.steady_s / max(self.steady_s - read_s, 1e-9)
        return (
            "Storage is the limit.",
            f"Reading took {read_s / self.steady_s:.0%} of the time, and nothing else ran meanwhile.",
            "Workers (num_workers=0 has none) let reads run in parallel: num_workers=1 would give "
            f"{_times(self.parallel(1))}.",
            f"Data available at once would give {_times(without)}.",
        )

    def _work(self) -> _Lines:
        """Explain busy workers by the costliest part of a sample: decoding, a transform, or the batchify function."""
        limit = self.costliest
        cost = self.costs[limit]
        share = min(1.0, cost / self.busy_s) if self.busy_s else 0.0
        return (
            f"Decode{self._own_items()} is the limit." if limit == "decode" else f"The {limit} is the limit.",
            f"It takes {share:.0%} of the {1e3 * self.busy_s / self.samples:.2f} ms that a sample costs.",
            *self._advice(limit, cost),
        )

    def _advice(self, limit: str, cost: float) -> Iterator[str]:
        """Yield changes that help if `limit` takes `cost` seconds, and what keeps others from helping."""
        stats = self.stats
        half = self.without(cost / 2)
        if self.inline:
            half = self.steady_s / max(self.steady_s - cost / 2, 1e-9)
            count = self.left_cores()
            if self.busy_s < MIN_DISPATCHED_S * stats.batches:
                yield (
                    f"A batch takes {1e3 * self.busy_s / stats.batches:.2f} ms, about as long as sending it to a "
                    "worker and back."
                )
            elif count > 1 or (stats.cores == 1 and self.steady_starvation < 1 - LOW_STARVATION):
                yield f"num_workers={count} would give {_times(self.parallel(count))}."
            else:
                yield self._busy_cores() if stats.cores > 1 else "There is one core."
        elif self.locked():
            gain = self.gain(self.rate * min(stats.cores, self.workers) * self.steady_s / stats.cpu_s)
            yield (
                f"The threads wait for the interpreter's lock: together they used "
                f"{stats.cpu_s / self.steady_s:.1f} of {stats.cores} cores. executor='process' would give "
                f"{_times(gain)}."
            )
        elif stats.cpu_s and self.work_waits():
            more = 2 * self.workers
            yield (
                f"It waits rather than computes ({stats.cpu_s / self.busy_s:.0%} of the time on a core): "
                f"num_workers={more} would give {_times(self.with_workers(more))}."
            )
        else:
            yield from self._limited_cores()
        yield self._faster(limit, half)

    def _limited_cores(self) -> Iterator[str]:
        """Yield sentences about the cores that limit busy workers."""
        stats = self.stats
        if self.workers > stats.cores and stats.executor in ("process", "fork", "thread"):
            have = "one core" if stats.cores == 1 else f"{_number(stats.cores)} cores"
            yield f"{self.workers_text.capitalize()} share {have}: num_workers={stats.cores} would give as much."
        elif 0 < stats.cpu_s < HIGH_CPU_SHARE * self.busy_s:
            yield (
                f"Workers had a core for only {stats.cpu_s / self.busy_s:.0%} of that time: other programs, or the "
                "code that consumes the batches, had the rest."
            )
        if self.workers < stats.cores:
            yield self._busy_cores()
            return
        cores = f"All {stats.cores} cores" if stats.cores > 1 else "The one core"
        yield (
            f"{cores} that this process may use {'have' if stats.cores > 1 else 'has'} a worker: a machine with twice "
            f"the cores would give {_times(self.with_workers(2 * self.workers))}."
        )

    def _busy_cores(self) -> str:
        """Explain why workers need not be as many as the cores."""
        others = self.others_cores()
        whose = f": other programs use about {others:.1f} of them" if others >= _MANY_CORES else ""
        return (
            f"The {self.stats.cores} cores that this process may use are busy{whose}, so more workers would give "
            "hardly more."
        )

    def _own_items(self) -> str:
        """Return what follows the word "decode" if the dataset makes its samples itself."""
        return " (the dataset's own __getitem__)" if self.stats.foreign and self.costliest == "decode" else ""

    def _faster(self, limit: str, gain: float) -> str:
        """Describe the gain if `limit` ("decode", or "transform <name>") took half the time."""
        what = f"{limit.partition(' ')[2]} in half the time"
        if limit == "decode":
            what = "Decoding in half the time (smaller images, dct_scaling=True)"
            if self.stats.foreign:
                what = "A __getitem__ in half the time"
        return f"{what} would give {_times(gain)}."


# -- text format of numbers --------------------------------------------------------------------------------------------


def _times(gain: float) -> str:
    """Format a speed-up, such as "about 1.4x"."""
    if gain < _HARDLY_MORE:
        return "hardly more"
    return f"about {gain:.1f}x" if gain < 9.95 else f"about {min(gain, 999):.0f}x"


def _mib(nbytes: float) -> str:
    """Format a number of bytes in MiB."""
    return f"{nbytes / (1 << 20):,.1f} MiB" if nbytes < 10 << 20 else f"{nbytes / (1 << 20):,.0f} MiB"


def _number(count: int) -> str:
    """Format a count; small ones as words."""
    return _NUMBERS[count] if count < len(_NUMBERS) else str(count)


def _ordinal(number: int) -> str:
    """Format an ordinal; small ones as words."""
    if number < len(_ORDINALS):
        return _ORDINALS[number]
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
