"""The trace of an image service: images in flight, the chunks of the workers, and calls that wait for admission."""

from __future__ import annotations

import heapq
import threading
from time import perf_counter
from typing import TYPE_CHECKING, Any

from aioloader.observability.trace import IN_FLIGHT, WHOLE, TraceLanes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.foundation.types import WorkSpan
    from aioloader.observability.trace import Tracer

MOST_LANES = 128
"""Lanes of images in flight. Those that begin while all of them are taken have none."""

_COUNT_EVERY_S = 0.01


class ImageTrace:
    """One image in flight, as the trace knows it.

    Attributes:
        number: of the image, in the order in which they entered the service.
        lane: number of its lane; None: it has none.
        args: facts about it.
        times: its stages so far, and when each began (seconds, `time.perf_counter`).
    """

    __slots__ = ("args", "lane", "number", "times")

    def __init__(self, number: int, lane: int | None, args: dict[str, Any]) -> None:
        self.number = number
        self.lane = lane
        self.args = args
        self.times = [("queue", perf_counter())]

    def enter(self, stage: str) -> None:
        """Begin a stage and end the one before, unless it is the same."""
        if self.times[-1][0] != stage:
            self.times.append((stage, perf_counter()))


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
        place = self._lane(IN_FLIGHT + image.lane)
        facts = {**image.args, "outcome": outcome, "waiters": waiters}
        name = f"image {image.number}"
        self._tracer.slice(name, place, image.times[0][1], now, args=facts, category="image")
        self._stages(place, image.times, now, {"image": image.number})

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
