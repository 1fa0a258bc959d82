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
    from aioloader.metrics import Stats

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
    """Return one paragraph about the limit of a loader.

    Its first sentence names the limit: storage, decode (or the dataset's own ``__getitem__``), transform (with its
    name), consumer, workers or memory. The rest lists the evidence, a change that helps, and the gain of that change.
    If image datasets decode, a sentence says how many images were decoded in which way, and why; another one how many
    samples are kept. Others recommend to keep the decoded images where decoding costs most and they fit into memory, a
    crop index where it would save half the decoding time, and the compiled part where resizing would gain by it.
    """
    if not stats.batches:
        return "Nothing has been delivered yet, so there is nothing to explain."
    sentences = [
        _Explanation(stats).text(),
        describe_decodes(stats),
        describe_kept(stats),
        advise_kept(stats),
        advise_crop_index(stats),
        advise_native(stats),
    ]
    if stats.batches < MIN_BATCHES:
        many = "one batch" if stats.batches == 1 else f"{_number(stats.batches)} batches"
        sentences.append(f"So far it is {many}, which is too few for a reliable answer: ask again later.")
    if stats.tuning:
        sentences.append(stats.tuning)
    return " ".join(filter(None, sentences))


class _Explanation(DerivedMetrics):
    """Choice of the limit, and the sentences about it.

    Five methods call storage the limit, each for another reason: `_reads`, `_slow_source`, `_reads_in_workers`,
    `_inline_reads`, and `_startup` of a loader without worker processes.
    """

    # -- choice of the limit -----------------------------------------------------------------------------------------

    def text(self) -> str:
        """Choose the limit from the counters, and return the sentences about it."""
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

    def _idle(self) -> str:
        """Explain workers without enough work when neither storage nor memory is the reason."""
        if self.steady_starvation < 0.5:
            return self._consumer_mostly()
        if self.held() and not self.stats.own_loop:
            return self._blocked_loop()
        return self._short_epochs() if self.restarts_each_epoch() else self._dispatch()

    # -- the sentences -------------------------------------------------------------------------------------------------

    @property
    def _meanwhile(self) -> str:
        """Return how busy the workers were while the caller waited."""
        if self.inline:
            return f"making samples took {self.busy_s / self.steady_s:.0%} of the time"
        return f"{self.workers_text} had work for {self.steady_occupancy:.0%}"

    @property
    def _rate_now(self) -> str:
        """Return the rate without the start-up, as the shares of the time that the sentences name."""
        counted = " since the start-up" if self.stats.startup_s > _LITTLE_STARTUP * self.stats.seconds else ""
        return f"{self.rate:,.0f} samples/s{counted}"

    def _consumer(self) -> str:
        """Explain a consumer that hardly waits: `steady_starvation` is low."""
        most = 1 / (1 - self.steady_starvation)
        text = (
            f"The consumer is the limit. It waited for data in only {self.steady_starvation:.0%} of its time "
            f"({self._rate_now}), so faster loading would give {_times(most)} at most. "
        )
        if self.inline or self.stats.workers < 2 or not self.busy_s:
            return text + "The code that consumes the batches takes the rest."
        enough = max(1, math.ceil(self.busy_s / self.steady_s * 1.25))
        if enough < self.stats.workers:
            return text + f"{_number(enough).capitalize()} of the {self.stats.workers} workers would do."
        return text + "The code that consumes the batches takes the rest."

    def _consumer_mostly(self) -> str:
        """Explain batches that arrive unevenly for a consumer that waits for less than half of its time."""
        gain = 1 / (1 - self.steady_starvation)
        return (
            f"The consumer is the limit for the most part. It waited for data in {self.steady_starvation:.0%} "
            f"of its time, while {self._meanwhile} ({self._rate_now}). Batches arrive unevenly: a larger prefetch "
            f"(now {self.stats.prefetch}) evens that out and gives {_times(gain)} at most."
        )

    def _startup(self) -> str:
        """Explain a short run, of which more than half was `startup_s`: opening files or starting workers."""
        stats = self.stats
        what = f"It took {stats.startup_s:.2f} of {stats.seconds:.2f} s"
        rate = f"{stats.samples_per_s:,.0f} samples/s"  # of all seconds, which the sentence names
        gain = _times(stats.seconds / self.steady_s)
        # More than one epoch was begun: the caller keeps the loader, and later epochs do not start it again.
        later = (
            f"Later epochs of this loader do not, which gives {gain}: ask again later."
            if stats.passes > 1
            else f"Keep the loader for all epochs, which gives {gain}, and ask again later."
        )
        if stats.executor in ("thread", "inline"):
            return f"Storage is the limit so far. {what} to open the files ({rate}). {later}"
        return f"The workers are the limit so far. {what} to start them ({rate}). {later}"

    def _in_memory(self) -> str:
        """Explain data in memory, whose samples the loop's thread copies: `collate_s` without a batchify function."""
        stats = self.stats
        return (
            f"Memory is the limit. Samples are copied in this thread, without workers: copying takes "
            f"{1e3 * stats.collate_s / stats.batches:.3f} ms a batch, {stats.collate_s / self.steady_s:.0%} of the "
            f"time; the rest is the fixed cost of a batch ({self._rate_now}). Batches twice as large would give "
            f"{_times(self.batches_twice(stats.collate_s))}."
        )

    def _slab_memory(self) -> str:
        """Explain a lack of slab memory: `memory_wait_s`."""
        stats = self.stats
        return (
            f"Memory is the limit. Fetching waited {stats.memory_wait_s:.1f} of {self.steady_s:.1f} s for a place in "
            f"slab memory, while {self.workers_text} had work for {self.steady_occupancy:.0%} of the time "
            f"({self._rate_now}). Raise memory_limit (now {_mib(stats.memory_limit_bytes)}; {stats.prefetch} batches "
            f"in flight need {_mib(self.needed_bytes())}), or keep fewer batches: with enough of it the same workers "
            f"would give {_times(self.with_workers(self.workers))}."
        )

    def _reads(self) -> str:
        """Explain slow reads: `share("fetch")`, the part of `Stats.waits` in which the batch was being read."""
        stats = self.stats
        each = stats.bytes_read / self.samples / 1024
        gain = self.with_workers(self.workers)
        text = (
            f"Storage is the limit. The caller waited for reads in {self.share('fetch') * self.steady_starvation:.0%} "
            f"of its time, while {self.workers_text} had work for {self.steady_occupancy:.0%}: "
            f"{stats.bytes_read / self.steady_s / 1e6:,.1f} MB/s, {each:,.0f} KiB a sample ({self._rate_now}). "
        )
        if stats.requests:
            text += self._network() + " "
        text += (
            f"If the latency of reads is the cost, prefetch={2 * stats.prefetch} (now {stats.prefetch}) would give "
            f"{_times(min(2.0, gain))}; data that is available at once (a faster disk"
        )
        where = (
            ', or cache="DIR" from the second epoch on'
            if stats.requests or stats.hit_rate is not None
            else ""
        )
        return f"{text}{where}) {_times(gain)}."

    def _slow_source(self) -> str:
        """Explain a slow sampler or iterable dataset: `share("start")`, when no batch was begun.

        The paragraph calls it storage too, because one of six words must be the first.
        """
        gain = self.with_workers(self.workers) if self.busy_s else self.gain(math.inf)
        return (
            f"Storage is the limit. The caller waited for the source or the sampler in "
            f"{self.share('start') * self.steady_starvation:.0%} of its time, while {self._meanwhile} "
            f"({self._rate_now}). With samples available at once the loader would give {_times(gain)}."
        )

    def _async_transform(self) -> str:
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
            f"The transform {name} is the limit. It is awaited: a sample waits "
            f"{1e3 * stats.awaited[name] / self.samples:.1f} ms for it, and {calls:.1f} calls{of} were under way on "
            f"average, while {self._meanwhile} ({self._rate_now}). If the service behind it can serve twice as many "
            f"at a time, {more} would give {twice}."
        )

    def _blocking_transform(self) -> str:
        """Explain an async transform that computes or blocks: `loop_held_s`, while samples wait for it."""
        name = self.awaited_most
        count = self.left_cores() if self.inline else self.workers
        gain = self.gain(count * self.samples / (self.held_s() + self.busy_s))
        return (
            f"The transform {name} is the limit: it, or other code, blocks the event loop. It is async, but for "
            f"{self.held_s() / self.steady_s:.0%} of the time the loop was late, because some code did not await "
            f"({self._rate_now}). Code that computes or blocks belongs in a plain function, which runs in workers: "
            f"{_number(count)} of them would give {_times(gain)}."
        )

    def _blocked_loop(self) -> str:
        """Explain idle workers of a loader whose event loop is blocked by the caller's other code: `loop_held_s`."""
        return (
            f"The consumer is the limit: other code blocks the event loop in which the loader runs. The loop was "
            f"late for {self.held_s() / self.steady_s:.0%} of the time, while {self._meanwhile} "
            f"({self._rate_now}). Such code "
            f"belongs in a thread (asyncio.to_thread), or the loader does (aioloader.DataLoader): a free loop "
            f"would give {_times(self.with_workers(self.workers))}."
        )

    def _short_epochs(self) -> str:
        """Explain waits for the first batch of each epoch: `first_wait_s`."""
        stats = self.stats
        waited = max(1e-9, stats.wait_s - stats.startup_s)
        return (
            f"The workers are the limit: epochs are short, and each begins without prefetched batches. An epoch has "
            f"{stats.batches / stats.passes:.0f} batches, and of the time that the caller waited "
            f"{min(1.0, stats.first_wait_s / waited):.0%} was for the first of them ({self._rate_now}). Longer "
            f"epochs, with a sampler that repeats the data, would give "
            f"{_times(self.gain(self.samples / max(1e-9, self.steady_s - stats.first_wait_s)))}."
        )

    def _network(self) -> str:
        """Describe the requests of a byte source over the network."""
        stats = self.stats
        each = stats.request_bytes / stats.requests / 1024
        latency = ""
        if stats.latency_p50_s is not None and stats.latency_p99_s is not None:
            latency = f" in {1e3 * stats.latency_p50_s:.0f} ms (p99 {1e3 * stats.latency_p99_s:.0f} ms)"
        failed = f", {stats.retries} of them tried again" if stats.retries else ""
        text = f"It is the network: {stats.requests:,} requests for {each:,.0f} KiB each, answered{latency}{failed}."
        return " ".join(filter(None, (text, advise_partial_reads(stats))))

    def _reads_in_workers(self) -> str:
        """Explain workers that wait for files while decoding: little `cpu_s` against `decode_s`, many `pauses`."""
        stats = self.stats
        where = "the dataset's own __getitem__" if stats.foreign else "decoding"
        share = stats.cpu_s / self.busy_s
        more = self.workers * 2
        return (
            f"Storage is the limit. Of the time that samples take {stats.decode_s / self.busy_s:.0%} goes "
            f"into {where}, and only {share:.0%} is spent computing: the rest is waiting, for files or another "
            f"service ({self._rate_now} with {self.workers_text}). Waiting needs no core: num_workers={more} would "
            f"give {_times(self.with_workers(more))}; data available at once "
            f"{_times(self.without(stats.decode_s - min(stats.cpu_s, stats.decode_s)))}."
        )

    def _dispatch(self) -> str:
        """Explain idle workers for which no other reason was found: dispatching a batch costs more than its work."""
        per_sample = 1e3 * self.busy_s / self.samples
        twice = min(2.0, self.with_workers(self.workers), self.batches_twice(self.busy_s / self.workers))
        text = (
            f"The workers are the limit: not their number, but the dispatch of work to them. "
            f"{self.workers_text.capitalize()} had work for only {self.steady_occupancy:.0%} of the time, "
            f"{per_sample:.3f} ms a sample, and neither reads nor a lack of "
            f"memory is the reason ({self._rate_now}). Batches twice as large would give {_times(twice)}"
        )
        alone = self.gain(1 / (self.busy_s / self.samples + 1 / self.consumer_rate)) if self.busy_s else 1.0
        if alone > _HARDLY_MORE:
            text += f"; num_workers=0, without dispatch, {_times(alone)}"
        return text + "."

    def _more_workers(self) -> str:
        """Explain busy workers of which there are fewer than cores."""
        stats = self.stats
        share = f"{self.costs[self.costliest] / self.busy_s:.0%} is {self.costliest}{self._own_items()}"
        one, most = self.workers + 1, min(stats.cores, self.workers + math.ceil(self.free_cores() - 0.25))
        taken = self.others_cores()
        others = f", and other programs used {taken:.1f}" if taken >= _MANY_CORES else ""
        text = (
            f"The workers are the limit: there are too few. {self.workers_text.capitalize()} had work for "
            f"{self.steady_occupancy:.0%} of the time, {1e3 * self.busy_s / self.samples:.2f} ms a sample, of which "
            f"{share}; of {stats.cores} cores {self.free_cores():.1f} were "
            f"free{others} ({self._rate_now}). A {_ordinal(one)} worker would give {_times(self.with_workers(one))}"
        )
        if most > one:
            text += f", {most} workers {_times(self.with_workers(most))}"
        if stats.executor == "thread":
            text += (
                " where the work releases the interpreter's lock; where it does not, take executor='process'"
            )
        return text + "."

    def _inline(self) -> str:
        """Explain a loader without workers, where all steps run in one thread."""
        stats = self.stats
        waited = self.steady_starvation * (self.steady_s if self.steady_s else 1.0)
        if stats.consumer_s > waited:
            return (
                f"The consumer is the limit for the most part. It took {1 - self.steady_starvation:.0%} of the time, "
                f"and loading, in the same thread, the rest ({self._rate_now}). One worker in parallel "
                f"(num_workers=1) would give {_times(self.parallel(1))}."
            )
        if stats.fetch_s > self.busy_s:
            return self._inline_reads()
        if self.reads_in_workers():
            return self._reads_in_workers()
        if self.busy_s < 0.3 * waited or self.small:
            return (
                f"The workers are the limit: there are none, and this thread does everything. Of its time "
                f"{self.busy_s / self.steady_s:.0%} went into samples; the rest is the fixed cost of a batch "
                f"({self._rate_now}). Batches twice as large would give "
                f"{_times(self.batches_twice(self.busy_s + stats.fetch_s))}."
            )
        return self._work()

    def _inline_reads(self) -> str:
        """Explain slow reads of a loader without workers: `fetch_s` exceeds the work on samples."""
        read_s = self.stats.fetch_s
        without = self.steady_s / max(self.steady_s - read_s, 1e-9)
        return (
            f"Storage is the limit. Reading took {read_s / self.steady_s:.0%} of the time, and nothing else ran "
            f"meanwhile ({self._rate_now}). Workers (num_workers=0 has none) let reads run in parallel: num_workers=1 "
            f"would give {_times(self.parallel(1))}; data available at once {_times(without)}."
        )

    def _work(self) -> str:
        """Explain busy workers by the costliest part of a sample: decoding, a transform, or the batchify function."""
        limit = self.costliest
        cost = self.costs[limit]
        head = f"The {limit} is the limit."
        if limit == "decode":
            head = f"Decode{self._own_items()} is the limit."
        share = min(1.0, cost / self.busy_s) if self.busy_s else 0.0
        per_sample = 1e3 * self.busy_s / self.samples
        if self.inline:
            how = f"in one thread, which it keeps for {self.busy_s / self.steady_s:.0%} of the time"
        else:
            how = f"with {self.workers_text}, at work for {self.steady_occupancy:.0%} of the time"
        text = f"{head} It takes {share:.0%} of the {per_sample:.2f} ms that a sample costs ({self._rate_now} {how}). "
        return text + self._advice(limit, cost)

    def _advice(self, limit: str, cost: float) -> str:
        """Describe changes that help if `limit` takes `cost` seconds."""
        stats = self.stats
        if self.inline:
            half = self.steady_s / max(self.steady_s - cost / 2, 1e-9)
            if self.busy_s < MIN_DISPATCHED_S * stats.batches:
                return (
                    f"A batch takes {1e3 * self.busy_s / stats.batches:.2f} ms, about as long as sending it to a "
                    f"worker and back; {self._faster(limit, half)}."
                )
            count = self.left_cores()
            if count > 1 or (stats.cores == 1 and self.steady_starvation < 1 - LOW_STARVATION):
                times = _times(self.parallel(count))
                return f"num_workers={count} would give {times}, and {self._faster(limit, half)}."
            if stats.cores > 1:
                return f"{self._busy_cores()}; {self._faster(limit, half)}."
            return f"There is one core; {self._faster(limit, half)}."
        half = self.without(cost / 2)
        if self.locked():
            gain = self.gain(self.rate * min(stats.cores, self.workers) * self.steady_s / stats.cpu_s)
            return (
                f"The threads wait for the interpreter's lock: together they used "
                f"{stats.cpu_s / self.steady_s:.1f} of {stats.cores} cores. executor='process' would give "
                f"{_times(gain)}, and {self._faster(limit, half)}."
            )
        if stats.cpu_s and self.work_waits():
            more = 2 * self.workers
            return (
                f"It waits rather than computes ({stats.cpu_s / self.busy_s:.0%} of the time on a core): "
                f"num_workers={more} would give {_times(self.with_workers(more))}, and {self._faster(limit, half)}."
            )
        taken = ""
        if self.workers > stats.cores and stats.executor in ("process", "fork", "thread"):
            have = "one core" if stats.cores == 1 else f"{_number(stats.cores)} cores"
            taken = f"{self.workers_text.capitalize()} share {have}: num_workers={stats.cores} would give as much. "
        elif 0 < stats.cpu_s < HIGH_CPU_SHARE * self.busy_s:
            taken = (
                f"Workers had a core for only {stats.cpu_s / self.busy_s:.0%} of that time: other programs, or "
                "the code that consumes the batches, had the rest. "
            )
        if self.workers < stats.cores:
            return f"{taken}{self._busy_cores()}; {self._faster(limit, half)}."
        cores = f"All {stats.cores} cores" if stats.cores > 1 else "The one core"
        return (
            f"{taken}{cores} that this process may use {'have' if stats.cores > 1 else 'has'} a worker; "
            f"{self._faster(limit, half)}; a machine with twice the cores would give "
            f"{_times(self.with_workers(2 * self.workers))}."
        )

    def _busy_cores(self) -> str:
        """Explain why workers need not be as many as the cores."""
        others = self.others_cores()
        whose = f": other programs use about {others:.1f} of them" if others >= _MANY_CORES else ""
        return (
            f"The {self.stats.cores} cores that this process may use are busy{whose}, so more workers would give "
            "hardly more"
        )

    def _own_items(self) -> str:
        """Return what follows the word "decode" if the dataset makes its samples itself."""
        return " (the dataset's own __getitem__)" if self.stats.foreign and self.costliest == "decode" else ""

    def _faster(self, limit: str, gain: float) -> str:
        """Describe the gain if `limit` ("decode", or "transform <name>") took half the time."""
        what = f"{limit.partition(' ')[2]} in half the time"
        if limit == "decode":
            what = "decoding in half the time (smaller images, dct_scaling=True)"
            if self.stats.foreign:
                what = "a __getitem__ in half the time"
        return f"{what} would give {_times(gain)}"


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
