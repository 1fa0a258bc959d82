"""Counters of an image service, and what they say."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

_KEPT = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStats:
    """Counters of an image service at one moment.

    Attributes:
        executor: kind of the executor.
        workers: number of workers; `ready` of them can take work.
        restarts: workers that were replaced.
        pending: images in the service: reading, queued or in work.
        reading, queued, in_work: how many of them are in each phase.
        admitted: places of `max_pending` that are taken: images that calls wait for, and headers that are read.
        waiting_for_admission: images and headers that wait until there is room for them.
        made: images that were made.
        failed: images that could not be made.
        abandoned: images that nobody waited for any more.
        timed_out: waits that ended by their timeout.
        joined: requests for an image that was being made already.
        cache_hits, cache_misses: lookups in the cache; `cached` images of `cache_nbytes` bytes are in it.
        held_nbytes: bytes of encoded images that were read and not made yet.
        memory_used, memory_peak, memory_limit: bytes of slab memory.
        memory_wait_s: seconds that images waited for slab memory.
        copies: images that were copied because callers hold half of the slab memory.
        read_s, queue_s, work_s: median and 99th percentile of the seconds in each phase, of the latest 2,048 images.
    """

    executor: str
    workers: int
    ready: int
    restarts: int
    pending: int
    reading: int
    queued: int
    in_work: int
    admitted: int
    waiting_for_admission: int
    made: int
    failed: int
    abandoned: int
    timed_out: int
    joined: int
    cache_hits: int
    cache_misses: int
    cached: int
    cache_nbytes: int
    held_nbytes: int
    memory_used: int
    memory_peak: int
    memory_limit: int
    memory_wait_s: float
    copies: int
    read_s: tuple[float, float]
    queue_s: tuple[float, float]
    work_s: tuple[float, float]


@dataclass(slots=True)
class ServiceCounters:
    """Counters that the service changes; see `ServiceStats`."""

    made: int = 0
    failed: int = 0
    abandoned: int = 0
    timed_out: int = 0
    joined: int = 0
    reading: int = 0
    queued: int = 0
    in_work: int = 0
    admission: int = 0
    read_s: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))
    queue_s: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))
    work_s: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))


def at_end(stats: ServiceStats) -> ServiceStats:
    """Return the counters of a service that was closed: nothing is in work, also where that ends only later."""
    return replace(
        stats, pending=0, reading=0, queued=0, in_work=0, admitted=0, waiting_for_admission=0, held_nbytes=0
    )


def percentiles(seconds: deque[float]) -> tuple[float, float]:
    """Return median and 99th percentile; zeros if there is nothing."""
    if not seconds:
        return 0.0, 0.0
    ordered = sorted(seconds.copy())  # another thread may be adding
    return ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]


def explain(stats: ServiceStats) -> str:
    """Return a text that describes the counters, and what limits the service."""
    read, queue, work = stats.read_s, stats.queue_s, stats.work_s
    lines = [
        f"{stats.made:,} images made by {stats.workers} workers ({stats.executor}), {stats.failed:,} failed, "
        f"{stats.abandoned:,} abandoned, {stats.timed_out:,} timed out",
        f"{stats.joined:,} joined an image in work; cache: {stats.cache_hits:,} hits, {stats.cache_misses:,} misses, "
        f"{stats.cached:,} images of {stats.cache_nbytes / 1e6:,.1f} MB",
        f"now {stats.pending:,} pending: {stats.reading:,} being read, {stats.queued:,} in the queue, "
        f"{stats.in_work:,} in work; {stats.waiting_for_admission:,} wait for admission",
        "median and 99th percentile, ms: "
        + ", ".join(
            f"{name} {1e3 * pair[0]:,.1f} / {1e3 * pair[1]:,.1f}"
            for name, pair in (("reading", read), ("queue", queue), ("work", work))
        ),
        f"slab memory: {stats.memory_used / 1e6:,.0f} MB of {stats.memory_limit / 1e6:,.0f} MB in use, "
        f"{stats.memory_peak / 1e6:,.0f} MB at most; {stats.copies:,} images copied",
    ]
    if stats.ready < stats.workers:
        lines.append(
            f"{stats.ready} of {stats.workers} workers are ready; await service.ready() before measuring"
        )
    if stats.restarts:
        lines.append(f"{stats.restarts:,} workers were replaced: their standard error says why they died")
    if stats.memory_wait_s > 0.1:
        lines.append(
            f"images waited {stats.memory_wait_s:,.1f} s for memory: raise memory_limit, or keep fewer images"
        )
    if stats.made and queue[0] > 2 * work[0] and queue[0] > read[0]:
        lines.append(
            "most of the time images wait for a worker: use more workers, or send fewer requests at a time"
        )
    elif stats.made and read[0] > work[0]:
        lines.append("most of the time goes into reading: the storage or the servers limit the rate")
    return "\n".join(lines)
