"""Admission to a service: how many calls have a place in it, and who waits for one. In the service's loop.

Places, of all kinds, are shared out by what an image waits for, so that a server that never answers holds no others.
"""

from __future__ import annotations

from collections import Counter
from time import perf_counter
from typing import TYPE_CHECKING

import anyio

from aioloader.errors import ImageTimeoutError, ServiceClosedError, ServiceOverloadedError
from aioloader.service.references import SOURCES
from aioloader.service.schedule import Schedule

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioloader.observability.service_trace import ServiceTrace
    from aioloader.service.jobs import Request
    from aioloader.service.references import Reference
    from aioloader.service.stats import ServiceCounters


class Places:
    """Places that are taken, of each kind of source and of each server.

    Args:
        limits: most places of each kind, and of each of its servers.
    """

    def __init__(self, limits: Mapping[str, tuple[int, int]]) -> None:
        self._limits = limits
        self._taken: Counter[str | tuple[str, str]] = Counter()

    def free(self, reference: Reference) -> bool:
        """Return whether there is a place for an image."""
        source, server = reference.source, reference.server
        most, of_server = self._limits[source]
        return self._taken[source] < most and (not server or self._taken[source, server] < of_server)

    def share(self, reference: Reference) -> int:
        """Return the most places of images of the source or the server of an image, whichever has none left."""
        most, of_server = self._limits[reference.source]
        return most if self._taken[reference.source] >= most else of_server

    def take(self, reference: Reference) -> None:
        """Take a place."""
        self._taken.update(_shares(reference))

    def leave(self, reference: Reference) -> None:
        """Give a place back."""
        for share in _shares(reference):
            self._taken[share] -= 1
            if not self._taken[share]:
                del self._taken[share]


def _shares(reference: Reference) -> tuple[str | tuple[str, str], ...]:
    return (
        (reference.source, (reference.source, reference.server)) if reference.server else (reference.source,)
    )


class _Turn:
    """A call that waits for a place: `event` is set when it need not wait any more, `has_place` if it got one."""

    __slots__ = ("event", "has_place", "reference")

    def __init__(self, reference: Reference) -> None:
        self.reference = reference
        self.event = anyio.Event()
        self.has_place = False


class Admission:
    """Places in the service, one for each image that somebody waits for and for each header that is read.

    Three quarters of them at most are for each kind of source outside of the process, and five eighths for each server.
    Those who wait for one get it in turn, higher priorities first; only those whose source has its share are passed.

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
        limits = dict.fromkeys(SOURCES, (most - most // 4, most - most // 4 - most // 8))
        self._places = Places({**limits, "memory": (most, most)})
        self._raises = overflow == "raise"
        self._counters = counters
        self._trace = trace
        self._turns: Schedule[_Turn] = Schedule()
        self._closed = False
        self.taken = 0

    def try_enter(self, reference: Reference) -> bool:
        """Take a place if there is one; return whether it was taken. Whoever waits cannot take it."""
        if self.taken >= self._most or not self._places.free(reference):
            return False
        self._enter(reference)
        return True

    def _enter(self, reference: Reference) -> None:
        self.taken += 1
        self._places.take(reference)

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
            share = None if self.taken >= self._most else self._places.share(reference)
            raise ServiceOverloadedError(self.taken, self._most, share)
        turn = _Turn(reference)
        lane = reference.source, reference.server
        self._turns.push(turn, priority=request.priority, first_round=0, request=0, place=0, lane=lane)
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
            self._turns.discard(turn)
            if turn.has_place:
                self.leave(reference)
            raise
        finally:
            self._counters.admission -= 1
            if self._trace is not None and not self._closed:
                self._trace.record_admission(reference.name, request.number, began)

    def leave(self, reference: Reference) -> None:
        """Give a place back, to the first one that waits and may have it."""
        self.taken -= 1
        self._places.leave(reference)
        while self.taken < self._most and self._turns:
            turn = self._turns.pop(lambda turn: self._places.free(turn.reference))
            if turn is None:
                return
            self._enter(turn.reference)
            turn.has_place = True
            turn.event.set()

    def close(self) -> None:
        """Wake all who wait: nobody enters any more."""
        self._closed = True
        while (turn := self._turns.pop()) is not None:
            turn.event.set()
