"""Admission to a service: how many calls have a place in it, and who waits for one. In the service's loop."""

from __future__ import annotations

from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING

import anyio

from aioloader.errors import ImageTimeoutError, ServiceClosedError, ServiceOverloadedError

if TYPE_CHECKING:
    from aioloader.observability.service_trace import ServiceTrace
    from aioloader.service.jobs import Request
    from aioloader.service.references import Reference
    from aioloader.service.stats import ServiceCounters


class _Turn:
    """A call that waits for a place: `event` is set when it need not wait any more, `has_place` if it got one."""

    __slots__ = ("event", "has_place")

    def __init__(self) -> None:
        self.event = anyio.Event()
        self.has_place = False


class Admission:
    """Places in the service, one for each image that somebody waits for and for each header that is read.

    Those who wait for one get it in turn: a place that is given back goes to the first of them, and nobody passes them.

    Args:
        most: number of places.
        overflow: "wait" or "raise": what happens with one more.
        counters: changed by those who wait.
        trace: records who waited, or None.

    Attributes:
        taken: places that are taken.
    """

    def __init__(
        self, *, most: int, overflow: str, counters: ServiceCounters, trace: ServiceTrace | None
    ) -> None:
        self._most = most
        self._raises = overflow == "raise"
        self._counters = counters
        self._trace = trace
        self._turns: deque[_Turn] = deque()
        self._closed = False
        self.taken = 0

    def try_enter(self) -> bool:
        """Take a place if there is one and nobody waits for it; return whether it was taken."""
        if self._turns or self.taken >= self._most:
            return False
        self.taken += 1
        return True

    async def wait(self, reference: Reference, request: Request, deadline: float | None) -> None:
        """Wait for a place, and take it.

        Args:
            reference: the image.
            request: its request.
            deadline: time at which the call gives up, or None.

        Raises:
            ServiceOverloadedError: there is no place, with ``overflow="raise"``, and the request waits for none.
            ImageTimeoutError: there was no place in time.
            ServiceClosedError: the service was closed.

        On cancellation the next one gets the place.
        """
        if self._raises and not request.waits_for_room:
            raise ServiceOverloadedError(self.taken, self._most)
        turn = _Turn()
        self._turns.append(turn)
        self._counters.admission += 1
        began = perf_counter()
        try:
            left = None if deadline is None else max(0.0, deadline - began)
            with anyio.move_on_after(left) as scope:
                await turn.event.wait()
            if self._closed:
                raise ServiceClosedError("the image service was closed")
            if scope.cancelled_caught:
                assert request.timeout is not None
                self._counters.timed_out += 1
                raise ImageTimeoutError(reference.name, request.timeout, "admission")
        except BaseException:
            if turn.has_place:
                self.leave()
            elif not self._closed:
                self._turns.remove(turn)
            raise
        finally:
            self._counters.admission -= 1
            if self._trace is not None and not self._closed:
                self._trace.record_admission(reference.name, request.number, began)

    def leave(self) -> None:
        """Give a place back, to the first one that waits."""
        if self._turns:
            turn = self._turns.popleft()
            turn.has_place = True
            turn.event.set()
        else:
            self.taken -= 1

    def close(self) -> None:
        """Wake all who wait: nobody enters any more."""
        self._closed = True
        turns, self._turns = self._turns, deque()
        for turn in turns:
            turn.event.set()
