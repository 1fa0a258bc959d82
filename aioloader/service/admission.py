"""Admission to a service: which image may enter when there is room, and who waits for that. In the service's loop."""

from __future__ import annotations

from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING

import anyio

from aioloader.errors import ImageTimeoutError, ServiceOverloadedError

if TYPE_CHECKING:
    from collections.abc import Sized

    from aioloader.observability.service_trace import ServiceTrace
    from aioloader.service.jobs import Request
    from aioloader.service.references import Reference
    from aioloader.service.stats import ServiceCounters


class Admission:
    """Calls that wait until there is room for their images, in turn.

    Args:
        inside: the images that are in the service.
        most: most of them at a time.
        overflow: "wait" or "raise": what happens with one more.
        counters: changed by those who wait.
        trace: records who waited, or None.
    """

    def __init__(
        self,
        inside: Sized,
        *,
        most: int,
        overflow: str,
        counters: ServiceCounters,
        trace: ServiceTrace | None,
    ) -> None:
        self._inside = inside
        self._most = most
        self._raises = overflow == "raise"
        self._counters = counters
        self._trace = trace
        self._turns: deque[anyio.Event] = deque()
        self._closed = False

    def has_room(self, *, waited: bool) -> bool:
        """Return whether an image may enter now: there is room, and nobody waits for it, unless its call `waited`."""
        return len(self._inside) < self._most and (waited or not self._turns)

    async def wait(
        self, reference: Reference, request: Request, deadline: float | None, *, waited: bool
    ) -> None:
        """Wait for a turn. The room may be taken again when this returns.

        Args:
            reference: the image.
            request: its request.
            deadline: time at which the call gives up, or None.
            waited: it has had a turn, and keeps it.

        Raises:
            ServiceOverloadedError: there is no room, with ``overflow="raise"``.
            ImageTimeoutError: there was no room in time.

        On cancellation the next one gets the turn.
        """
        if self._raises:
            raise ServiceOverloadedError(len(self._inside), self._most)
        turn = anyio.Event()
        (self._turns.appendleft if waited else self._turns.append)(turn)
        self._counters.admission += 1
        began = perf_counter()
        try:
            left = None if deadline is None else max(0.0, deadline - began)
            with anyio.move_on_after(left) as scope:
                await turn.wait()
        except BaseException:
            self._give_up(turn)
            raise
        finally:
            self._counters.admission -= 1
            if self._trace is not None and not self._closed:
                self._trace.record_admission(reference.name, request.number, began)
        if scope.cancelled_caught:
            self._give_up(turn)
            assert request.timeout is not None
            self._counters.timed_out += 1
            raise ImageTimeoutError(reference.name, request.timeout, "admission")

    def _give_up(self, turn: anyio.Event) -> None:
        if turn.is_set():
            self.admit()  # the next one takes the place
        else:
            self._turns.remove(turn)

    def admit(self) -> None:
        """Give the first one its turn, if there is room."""
        if self._turns and len(self._inside) < self._most:
            self._turns.popleft().set()

    def close(self) -> None:
        """Wake all who wait: nobody enters any more."""
        self._closed = True
        for turn in self._turns:
            turn.set()
