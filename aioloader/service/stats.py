"""Counters of an image service, and what they say.

The trace of an image service: images in flight, the chunks of the workers, and calls that wait for admission.
"""

from __future__ import annotations

import heapq
import threading
from collections import deque
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

from aioloader.foundation.types import BatchTimeline
from aioloader.observability.trace import IN_FLIGHT, WHOLE, TraceLanes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.foundation.types import WorkSpan
    from aioloader.observability.trace import Tracer


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

    requests: int = 0
    made: int = 0
    failed: int = 0
    abandoned: int = 0
    timed_out: int = 0
    joined: int = 0
    reading: int = 0
    chunks: int = 0
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


MOST_LANES = 128
"""Lanes of images in flight. Those that begin while all of them are taken have none."""

_COUNT_EVERY_S = 0.01


@dataclass(slots=True, eq=False)
class ImageTrace:
    """One image in flight, as the trace knows it.

    Attributes:
        number: of the image, in the order in which they entered the service.
        lane: number of its lane; None: it has none.
        args: facts about it.
        timeline: its stages so far.
    """

    number: int
    lane: int | None
    args: dict[str, Any]
    timeline: BatchTimeline = field(default_factory=lambda: BatchTimeline("queue"))


class ServiceTrace(TraceLanes):
    """The trace of one image service. All methods are called in its loop's thread.

    Args:
        tracer: the trace of the service.
        memory_usage: returns the bytes of slab memory in use, at the peak so far, and allowed.
    """

    def __init__(self, tracer: Tracer, memory_usage: Callable[[], tuple[int, int, int]]) -> None:
        super().__init__(tracer, 0, "service")
        self._memory_usage = memory_usage
        self._began = perf_counter()
        self._images = 0
        self._in_flight = 0
        self._counted = 0.0

    def open(self) -> None:
        """Begin, in the thread of the service's loop."""
        self._thread = threading.get_native_id()
        self._began = perf_counter()

    # -- images ------------------------------------------------------------------------------------------------------

    def begin(self, name: str, request: int) -> ImageTrace:
        """Record that an image begins.

        Args:
            name: short text that names it.
            request: number of the first request that waits for it.
        """
        self._images += 1
        self._in_flight += 1
        lane = self._take_lane("image") if self._free or self._lanes < MOST_LANES else None
        args = {"image": self._images, "name": name, "request": request}
        return ImageTrace(self._images, lane, args)

    def end(self, image: ImageTrace, outcome: str, waiters: int) -> None:
        """Record that an image was made, or was not.

        Args:
            image: the image.
            outcome: what became of it: "made", "cached", "abandoned", "timed out", or the name of the error.
            waiters: how many calls receive it.
        """
        now = perf_counter()
        self._in_flight -= 1
        if now - self._counted > _COUNT_EVERY_S:
            self._counted = now
            self._counter("slab memory (MiB)", now, used=self._memory_usage()[0] / (1 << 20))
            self._counter("images in flight", now, images=self._in_flight)
        if image.lane is None:
            return
        heapq.heappush(self._free, image.lane)
        facts = {**image.args, "outcome": outcome, "waiters": waiters}
        self._in_stages("image", image.lane, image.timeline, now, {"image": image.number}, facts)

    def record_chunk(self, given: float, spans: Sequence[WorkSpan], images: Sequence[ImageTrace]) -> None:
        """Record the chunk that some images were made in.

        Args:
            given: when it was passed to the executor.
            spans: the chunk as its worker saw it.
            images: those that somebody waits for; none has ended.
        """
        now = perf_counter()
        for span in spans:
            lane, begin = self._chunk(given, span, now, {"images": [image.number for image in images]})
            for image in images:
                if image.lane is not None:
                    self._flow(self._lane(IN_FLIGHT + image.lane), given, lane, begin)

    # -- the service -------------------------------------------------------------------------------------------------

    def record_admission(self, name: str, request: int, begin: float) -> None:
        """Record that a call waited for admission, from `begin` to now.

        Args:
            name: short text that names the image.
            request: number of the call's request.
            begin: when it began to wait.
        """
        args = {"name": name, "request": request}
        self._overlapping("admission", "admission", begin, perf_counter(), args)

    def close(self) -> None:
        """End the trace. All images have ended."""
        args = {"images": self._images}
        self._tracer.slice(
            "service", self._lane(WHOLE), self._began, perf_counter(), args=args, category="service"
        )
