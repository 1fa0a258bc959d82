"""Many ranges of objects at a time, until they are there: the strategy of the network side.

Every range is one task. A bounded number of them have a request in flight (`pace`, `slots`); one whose request fails
is tried again after a pause (`retries`) until the deadline that all ranges of a call share. A request that takes longer
than nearly all others (`latency`) is sent a second time, and the first answer counts: such hedges are 5 % of all
requests at most. Every answer tells which state of the object it is from, or the server was told to answer from that
state only; another one than expected is an error.

Runs in asyncio, because the client library does, and with its own task groups and timers: the work for one request
counts here. On cancellation all tasks have ended before the call returns, and nothing is handed over afterwards.
"""

from __future__ import annotations

import asyncio
import random
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

import anyio

from aioloader.errors import ForkedError, RemoteReadError
from aioloader.storage.remote.adaptive_limit import AdaptiveLimit
from aioloader.storage.remote.counters import Counters
from aioloader.storage.remote.latency import Latencies
from aioloader.storage.remote.limiter import Limiter
from aioloader.storage.remote.pending_requests import Call, PendingRequest, Wanted
from aioloader.storage.remote.reporting import difference, error_of
from aioloader.storage.remote.retries import Kind, RequestFailure, backoff_s, trouble_of
from aioloader.storage.remote.transport import Transport

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from aioloader.storage.remote.transport import Answer, Version

__all__ = ("OPENING_S", "Client")

T = TypeVar("T")

OPENING_S = 30.0
"""Deadline for finding out what an object is, seconds."""

# What one request may take, before anything is known of the server and after.
_FIRST_ATTEMPT_S = 10.0
_ATTEMPT_S = 2.0
_LEAST_BYTES_PER_S = 1e6
_HEDGED_SHARE = 0.05
_HEDGES = 4
_TRIES_NOWHERE = 4
_LOOK_S = 0.01
# Once the usual latency is known only one request in so many tells more than its bytes, see `_ask`.
_TELLING = 16
_TELLING_WHILE_IT_GROWS = 4


class Client:
    """Reads ranges of objects. Used from one asyncio loop at a time, by many tasks.

    Args:
        transport: sends one request.
        pace: how many are in flight.

    Attributes:
        counters: what was done.
        latencies: of the latest requests.
    """

    def __init__(self, transport: Transport | None = None, pace: AdaptiveLimit | None = None) -> None:
        self._transport = Transport() if transport is None else transport
        self._pace = AdaptiveLimit() if pace is None else pace
        self._slots = Limiter(self._pace)
        self._random = random.Random()  # of pauses: never part of what a loader gives
        self._asked = 0
        self._unseen = 0  # answers since one whose beginning was seen
        self.counters = Counters()
        self.latencies = Latencies()

    def close(self) -> None:
        """Let go of connections."""
        self._transport.close()

    # -- many ranges -------------------------------------------------------------------------------------------------

    async def fetch(
        self, wanted: Sequence[Wanted], take: Callable[[int, Answer], None], timeout_s: float
    ) -> dict[int, RemoteReadError]:
        """Get ranges, all at once as far as the pace allows.

        Args:
            wanted: the ranges.
            take: called with the number of a range and its answer, once for each that came, in no order.
            timeout_s: seconds for all of them together.

        Returns:
            the error of every range that could not be had, by its number.
        """
        if not wanted:
            return {}
        task = asyncio.current_task()
        assert task is not None
        call = Call(task, take, timeout_s)
        try:
            async with asyncio.TaskGroup() as tasks:
                self._watch(call, tasks)
                for number, each in enumerate(wanted):
                    await self._slots.take()
                    flight = PendingRequest(number, each)
                    call.flights.add(flight)
                    flight.task = tasks.create_task(self._fly(call, flight))
        finally:
            if call.timer is not None:
                call.timer.cancel()
        return call.failures

    async def get(self, wanted: Sequence[Wanted], timeout_s: float) -> list[bytes]:
        """The bytes of ranges, in their order.

        Raises:
            RemoteReadError: one could not be had.
        """
        found: dict[int, bytes] = {}

        def take(number: int, answer: Answer) -> None:
            found[number] = bytes(answer.data)

        failures = await self.fetch(wanted, take, timeout_s)
        for number in sorted(failures):
            raise failures[number]
        return [found[number] for number in range(len(wanted))]

    async def _fly(self, call: Call, flight: PendingRequest) -> None:
        """One range to its end; begins with a place taken."""
        holds = True
        try:
            while not flight.settled:
                flight.attempts += 1
                trouble = await self._attempt(call, flight)
                if trouble is None:
                    return
                pause = backoff_s(flight.attempts, self._random.random())
                if not trouble.again or monotonic() + pause >= call.deadline:
                    self._settle(call, flight)
                    call.failures[flight.number] = self._error(call, flight, trouble)
                    return
                self._slots.give_back()
                holds = False
                await asyncio.sleep(pause)
                await self._slots.take()
                holds = True
                self.counters.retries += not flight.settled
        except asyncio.CancelledError:
            if not flight.settled or _cancelled_otherwise(flight):
                raise  # else its hedge was faster
        finally:
            if holds:
                self._slots.give_back()
            call.flights.discard(flight)

    async def _attempt(self, call: Call, flight: PendingRequest) -> RequestFailure | None:
        """One request for a range; None if the range is settled."""
        flight.begun = monotonic()
        try:
            answer = await self._ask(flight.wanted)
        except asyncio.CancelledError:
            if not flight.overdue or flight.settled or _cancelled_otherwise(flight):
                raise
            flight.overdue = False
            seconds = monotonic() - flight.begun
            self.latencies.add(seconds, seconds, 0)
            return self._note(RequestFailure(Kind.LOST, True, f"no answer within {seconds:.1f} s"))
        except Exception as error:
            return self._note(trouble_of(error))
        finally:
            flight.begun = None
        return self._arrived(call, flight, answer)

    async def _ask(self, wanted: Wanted) -> Answer:
        """One request, counted.

        An answer that tells when its head came, and which state of the object it is from, costs this process twice as
        much as the bytes alone. So most requests leave the check to the server.
        """
        url, offset, length, version = wanted
        self._asked += 1
        if version is not None and self.latencies.known and self._asked % self._telling:
            guarded = self._transport.guarded(url, version)
            if guarded is None:
                self.counters.requests += 1
                guarded = await self._transport.try_guard(url, version)
                self.counters.nbytes += not guarded
            if guarded:
                self.counters.requests += 1
                answer = await self._transport.get_guarded(url, offset, length, version)
                if answer is not None:
                    return answer
        self.counters.requests += 1
        return await self._transport.get(url, offset, length)

    @property
    def _telling(self) -> int:
        return _TELLING if self._pace.at_most else _TELLING_WHILE_IT_GROWS

    def _patience_s(self, flight: PendingRequest) -> float:
        """Seconds that one request may take. Longer each time: the connection may be slow and not lost."""
        usual_s = _ATTEMPT_S if self.latencies.known else _FIRST_ATTEMPT_S
        usual_s += flight.wanted.length / _LEAST_BYTES_PER_S
        return float(max(usual_s, 8 * self.latencies.late_s) * 2 ** min(flight.attempts - 1, 8))

    def _note(self, trouble: RequestFailure) -> RequestFailure:
        if trouble.kind == Kind.BUSY:
            self._pace.busy(monotonic())
        return trouble

    def _arrived(self, call: Call, flight: PendingRequest, answer: Answer) -> RequestFailure | None:
        wanted = flight.wanted
        self.counters.nbytes += len(answer.data)
        if wanted.version is not None and not wanted.version.same(answer.version):
            return RequestFailure("changed", False, difference(wanted.version, answer.version))
        if len(answer.data) != wanted.length:
            text = f"{len(answer.data)} bytes came of {wanted.length}"
            return self._note(RequestFailure(Kind.LOST, True, text))
        self.latencies.add(answer.first_s, answer.whole_s, len(answer.data))
        if answer.first_s is None:
            self._unseen += 1
        else:
            self._pace.answered(answer.first_s, monotonic(), self._slots.taken, 1 + self._unseen)
            self._unseen = 0
        if self._settle(call, flight):
            call.take(flight.number, answer)
        return None

    @staticmethod
    def _settle(call: Call, flight: PendingRequest) -> bool:
        """A range has its end; False if it had one before."""
        if flight.settled:
            return False
        flight.settled = True
        call.flights.discard(flight)
        if flight.hedge is not None and flight.hedge is not asyncio.current_task():
            flight.hedge.cancel()
        return True

    # -- stragglers --------------------------------------------------------------------------------------------------

    def _watch(self, call: Call, tasks: asyncio.TaskGroup) -> None:
        """Give up requests that take too long, and send those a second time that are late; again and again."""
        if call.task.cancelling():
            return  # the group ends its tasks, and takes no more
        now = monotonic()
        late_s = self.latencies.late_s
        soonest = now + late_s
        allowed = _HEDGES + _HEDGED_SHARE * self.counters.requests - self.counters.hedges
        for flight in list(call.flights):
            begun = flight.begun
            if begun is None or flight.task is None or flight.overdue:
                continue
            if now >= min(call.deadline, begun + self._patience_s(flight)):
                flight.overdue = True
                flight.task.cancel()
            elif not flight.doubled:
                due = begun + self.latencies.late_for(flight.wanted.length)
                if due <= now and allowed >= 1:
                    allowed -= 1
                    flight.doubled = True
                    flight.hedge = tasks.create_task(self._double(call, flight))
                else:
                    soonest = min(soonest, due)
        delay_s = max(_LOOK_S, soonest - now)
        call.timer = asyncio.get_running_loop().call_later(delay_s, self._watch, call, tasks)

    async def _double(self, call: Call, flight: PendingRequest) -> None:
        """The second request for a range. What goes wrong with it is of no account: the first is still there."""
        self.counters.hedges += 1
        try:
            answer = await self._ask(flight.wanted)
        except asyncio.CancelledError:
            if not flight.settled or _cancelled_otherwise(flight, hedge=True):
                raise  # else the first was faster
            return
        except Exception:  # the first request is still on its way, and tells what is wrong
            flight.doubled = False  # another one may be sent
            return
        if not flight.settled and self._arrived(call, flight, answer) is None:
            assert flight.task is not None
            flight.task.cancel()

    # -- one question ------------------------------------------------------------------------------------------------

    async def describe(self, url: str, timeout_s: float = OPENING_S) -> Version:
        """What an object is, from the head of an answer with its first byte.

        Not by a HEAD request: a signed URL allows one method only, and this one shows that ranges are served.

        Raises:
            ObjectMissingError: there is no such object.
            RemoteReadError: it cannot be read.
        """

        async def look() -> Version:
            try:
                answer = await self._transport.get(url, 0, 1)
            except Exception as error:
                if "416" not in str(error) and trouble_of(error).kind != Kind.UNRANGED:
                    raise
                self.counters.requests += 1
                version = await self._transport.head(url)
                if version.nbytes:
                    raise
                return version  # an empty object has no first byte
            self.counters.nbytes += len(answer.data)
            return answer.version

        return await self.retry(look, url, timeout_s)

    async def describe_all(
        self, urls: Sequence[str], timeout_s: float
    ) -> tuple[dict[int, Version], dict[int, RemoteReadError]]:
        """The same for several objects at once: versions and errors, by the objects' numbers."""
        found: dict[int, Version] = {}
        failures: dict[int, RemoteReadError] = {}

        async def one(number: int) -> None:
            try:
                found[number] = await self.describe(urls[number], timeout_s)
            except RemoteReadError as error:
                failures[number] = error
            finally:
                self._slots.give_back()

        async with anyio.create_task_group() as tasks:
            for number in range(len(urls)):
                await self._slots.take()
                tasks.start_soon(one, number)
        return found, failures

    async def list(self, url: str, timeout_s: float = OPENING_S) -> list[tuple[str, Version]]:
        """All objects below a prefix: path in the store, and what they are.

        Raises:
            RemoteReadError: the store cannot be listed.
        """
        return await self.retry(partial(self._transport.list, url), url, timeout_s, patient=True)

    async def retry(
        self, ask: Callable[[], Awaitable[T]], url: str, timeout_s: float, patient: bool = False
    ) -> T:
        """One question, asked until it is answered.

        Args:
            ask: sends it.
            url: what it is about.
            timeout_s: deadline.
            patient: an answer may take all of the time, as it is a long one.

        Raises:
            RemoteReadError: there was no answer before the deadline, or it is no.
        """
        begin = anyio.current_time()
        attempts = 0
        while True:
            attempts += 1
            self.counters.requests += 1
            left_s = begin + timeout_s - anyio.current_time()
            answer: list[T] = []
            try:
                patience_s = timeout_s if patient else _FIRST_ATTEMPT_S * 2**attempts
                with anyio.CancelScope(deadline=anyio.current_time() + min(left_s, patience_s)):
                    answer.append(await ask())
                trouble = RequestFailure(Kind.LOST, True, "no answer in time")
            except (ForkedError, ImportError):
                raise
            except Exception as error:
                trouble = self._note(trouble_of(error))
            if answer:
                return answer[0]
            pause = backoff_s(attempts, self._random.random())
            now = anyio.current_time()
            # While a server is in use its name may be unknown for a moment; at first it is rather a wrong name.
            nowhere = trouble.kind == Kind.NOWHERE and attempts >= _TRIES_NOWHERE
            if not trouble.again or nowhere or now + pause >= begin + timeout_s:
                raise error_of(trouble, url, 0, None, attempts, now - begin, timeout_s)
            await anyio.sleep(pause)
            self.counters.retries += 1

    def _error(self, call: Call, flight: PendingRequest, trouble: RequestFailure) -> RemoteReadError:
        seconds = monotonic() - flight.since
        url, offset, length, _ = flight.wanted
        return error_of(trouble, url, offset, length, flight.attempts, seconds, call.timeout_s)


def _cancelled_otherwise(flight: PendingRequest, hedge: bool = False) -> bool:
    """After `Task.cancel` by this module was seen: whether somebody else has cancelled the task too."""
    task = flight.hedge if hedge else flight.task
    assert task is not None
    return task.uncancel() > 0
