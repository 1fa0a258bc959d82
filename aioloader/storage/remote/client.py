"""Client that reads many ranges of objects at a time, until all of them have arrived or failed.

Every range is one task. A limited number of them have a request in flight. After a failed request a
task waits and tries again (`failures`) until the deadline that all ranges of a call share. A request that takes longer
than nearly all others is hedged: it is sent a second time, and the first response counts; hedges are at
most 5 % of all requests. Every response contains the version of the object, or the request was for that version only;
another version is an error.

obstore's own retries, and its merging of ranges, are not used: they report neither how many requests were sent nor how
many attempts failed, apply one timeout to all requests of a store, and cannot hedge (docs/design.md, "Remote data").

Runs in asyncio, because the client library does, with asyncio's task groups and timers: the work for each request
matters here. On cancellation all tasks have ended before the call returns, and no response is delivered afterwards.

Adaptive limit of the number of requests in flight, and the limiter that enforces it.

The limit rises while more requests cost no latency and falls when the server is overloaded. The rule: every response
that took about as long as responses take when few are in flight adds one (so the limit doubles in the time of one
response). A response that took several times as long adds nothing and, at most once in the time of a response, cuts the
limit by a tenth; from then on the limit grows by a few in the time of one response. A server that repeatedly reports
that it is busy cuts the limit by a third. Single errors cut nothing.

Latencies of requests: the usual ones, late ones, and the largest gap that is cheaper to read than to skip. Pure.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

import anyio

from aioloader.errors import ForkedError, RemoteReadError
from aioloader.foundation.opening import limited
from aioloader.storage.cache.kept_answers import current_answers
from aioloader.storage.remote.failures import (
    NO_SERVER,
    Kind,
    RequestFailedError,
    RequestFailure,
    classify,
    closed_early,
    remote_error,
    retry_pause_s,
    status_of,
)
from aioloader.storage.remote.transport import (
    Level,
    ListingPage,
    ObjectRange,
    Response,
    Transport,
    Version,
    objects_of_json,
)
from aioloader.storage.urls import crowded_folders, is_hub

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping, Sequence
    from typing import Any


_SLOW = 3.0
_STEP = 16.0
_FORGET_PER_S = 0.001
_BUSY_SHARE = 0.1
_MEMORY = 1 / 256


class AdaptiveLimit:
    """Number of requests that may be in flight. Pure.

    Args:
        start: at first.
        least, most: its bounds.
    """

    def __init__(self, start: int = 32, least: int = 16, most: int = 256) -> None:
        self._least = least
        self._most = most
        self._limit = float(start)
        self._base_s = float("inf")
        self._busy = 0.0
        self._cut_at = float("-inf")
        self._answered_at = float("inf")

    @property
    def limit(self) -> int:
        """Return the number of requests that may be in flight now."""
        return int(self._limit)

    @property
    def at_most(self) -> bool:
        """Return whether the limit is at its upper bound."""
        return self._limit >= self._most

    def answered(self, latency_s: float, now: float, in_flight: int, answers: int = 1) -> None:
        """Record that a response began to arrive.

        Args:
            latency_s: seconds from the request to its first bytes.
            now: a monotonic clock, seconds.
            in_flight: requests in flight; a limit that is not used up is not raised.
            answers: number of responses that this one represents: the first bytes of the others were not observed.
        """
        self._busy -= self._busy * min(1.0, answers * _MEMORY)
        forgotten = 1.0 + _FORGET_PER_S * max(0.0, now - self._answered_at)
        self._answered_at = now
        # At the lower bound our own requests do not delay each other: this is how long responses take now.
        at_least = self._limit <= self._least
        self._base_s = latency_s if at_least else min(latency_s, self._base_s * forgotten)
        # Below a few milliseconds this process takes the time, not the server.
        if latency_s <= max(_SLOW * self._base_s, self._base_s + 0.01):
            if in_flight >= self._limit / 2 and self._busy <= _BUSY_SHARE:
                step = 1.0 if self._cut_at == float("-inf") else _STEP / self._limit
                self._limit = min(self._most, self._limit + answers * step)
        else:
            self._cut(0.9, now, latency_s)

    def busy(self, now: float) -> None:
        """Record that the server reported overload, or did not answer at all."""
        self._busy += (1.0 - self._busy) * _MEMORY
        if self._busy > _BUSY_SHARE:
            self._cut(2 / 3, now, self._base_s if self._base_s < 60 else 1.0)

    def _cut(self, factor: float, now: float, pause_s: float) -> None:
        if now - self._cut_at >= pause_s:
            self._cut_at = now
            self._limit = max(self._least, self._limit * factor)


class Limiter:
    """Limiter that grants requests in the order in which they wait. Used from one event loop at a time.

    Args:
        adaptive_limit: the most requests in flight.

    Attributes:
        taken: requests in flight.
    """

    def __init__(self, adaptive_limit: AdaptiveLimit) -> None:
        self._adaptive_limit = adaptive_limit
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.taken = 0

    async def acquire(self) -> None:
        """Wait until one more request may be sent. Nothing is acquired on cancellation."""
        if self.taken < self._adaptive_limit.limit and not self._waiting:
            self.taken += 1
            return
        granted = asyncio.get_running_loop().create_future()
        self._waiting.append(granted)
        try:
            await granted
        except BaseException:
            if granted.done() and not granted.cancelled():
                self.release()
            elif granted in self._waiting:
                self._waiting.remove(granted)
            raise

    def release(self) -> None:
        """Grant the place of a finished request to those that wait."""
        self.taken -= 1
        while self._waiting and self.taken < self._adaptive_limit.limit:
            granted = self._waiting.popleft()
            if not granted.done():  # else its waiter was cancelled and is about to remove it
                self.taken += 1
                granted.set_result(None)


_KEPT = 512
_FEW = 20
_UNKNOWN_LATE_S = 0.5
_LATE_PERCENTILE = 0.98
_SORT_EVERY = 32

_LEAST_GAP = 16 << 10
_MOST_GAP = 1 << 20
_UNKNOWN_GAP = 64 << 10


class Latencies:
    """Latencies of the latest requests that were answered.

    Attributes:
        late_s: seconds after which a request is late: longer than nearly all of the latest ones took.
    """

    def __init__(self) -> None:
        self._first: deque[float] = deque(maxlen=_KEPT)
        self._whole: deque[float] = deque(maxlen=_KEPT)
        self.late_s = _UNKNOWN_LATE_S
        self._usual_first_s = 0.0
        self._due = _FEW
        self._nbytes = 0.0
        self._body_s = 0.0

    def add(self, first_s: float | None, whole_s: float, nbytes: int) -> None:
        """Add a request that was answered.

        Args:
            first_s: seconds to the first bytes of the answer; None if they were not observed.
            whole_s: seconds to its last.
            nbytes: its bytes.
        """
        self._whole.append(whole_s)
        if first_s is not None:
            self._first.append(first_s)
            # Moving averages over some dozens of responses, of bytes and time separately: long bodies weigh more.
            self._nbytes += (nbytes - self._nbytes) / 32
            self._body_s += (max(whole_s - first_s, 1e-6) - self._body_s) / 32
        self._due -= 1
        if self._due <= 0:
            self._due = _SORT_EVERY
            ordered = sorted(self._whole)
            self._usual_first_s = _percentile(sorted(self._first), 0.5) if self._first else 0.0
            self.late_s = max(
                1.5 * _percentile(ordered, _LATE_PERCENTILE), 2 * _percentile(ordered, 0.5), 0.02
            )

    def percentile(self, share: float) -> float | None:
        """Return the seconds to the last byte that a share of the latest requests did not exceed; None without any."""
        return _percentile(sorted(self._whole), share) if self._whole else None

    @property
    def known(self) -> bool:
        """Return whether there were enough responses to estimate the usual latency."""
        return len(self._whole) >= _FEW

    def late_for(self, nbytes: int) -> float:
        """Return `late_s` for a request of `nbytes` bytes; one that is larger than usual has more time."""
        surplus = max(0.0, nbytes - self._nbytes)
        return self.late_s + 2 * surplus * self._body_s / max(self._nbytes, 1.0)

    @property
    def gap_bytes(self) -> int:
        """Return the bytes that one connection, as busy as now, receives while another request would wait."""
        return cheap_nbytes(self._usual_first_s, self._nbytes, self._body_s) if self.known else _UNKNOWN_GAP


def cheap_nbytes(first_s: float, nbytes: float, body_s: float) -> int:
    """Return the bytes that are read in the time in which another request waits for its answer. Pure.

    All connections are as busy for the one as for the other, so the answers of one of them decide.

    Args:
        first_s: seconds from a request to the first bytes of its answer.
        nbytes: of an answer.
        body_s: seconds from the first of them to the last.

    Returns:
        16 KiB to 1 MiB.
    """
    return int(min(_MOST_GAP, max(_LEAST_GAP, first_s * nbytes / max(body_s, 1e-6))))


def _percentile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


T = TypeVar("T")

OPENING_S = 30.0
"""Deadline for finding out the version of an object, seconds."""
END_NBYTES = 64 << 10
"""Bytes at the end of an object that may be read along with its version."""

# Seconds that one request may take before the server's latency is known, and after.
_FIRST_ATTEMPT_S = 10.0
_ATTEMPT_S = 2.0
_LEAST_BYTES_PER_S = 1e6
_HEDGED_SHARE = 0.05
_HEDGES = 4
_NOWHERE_ATTEMPTS = 4
# Seconds after which a request that reaches no server is given up if its answer is kept: a server that is restarted is
# waited for, a network that is not there only briefly.
_UNREACHED_S = 5.0
_KEPT_FAILURES = (Kind.MISSING, Kind.DENIED, Kind.UNRANGED)
_NOT_CACHED = "the server is not reached, and the cache does not have this: read it once while it is"
_LEAST_CHECK_S = 0.01
# Files of one folder from which on it is listed; pages of a thousand files, and how many more for how many files.
_CROWDED = 8
_PAGES_OF_CROWDED = 2
_FILES_OF_CROWDED_PAGE = 100
_MOST_PAGES = 2000
# Once the usual latency is known only one request in this many returns more than its bytes, see `_request`.
_DETAILED_EVERY = 16
_DETAILED_EVERY_WHILE_GROWING = 4


@dataclass
class Counters:
    """Counts since the client was made; used from one thread.

    Attributes:
        requests: requests of every kind, including retries and hedges, but not those that `Transport` sends to find
            the address of a file.
        nbytes: bytes of the complete responses.
        retries: requests that were sent because an earlier one had failed.
        hedges: requests that were sent because an earlier one was late.
        spans: items that were requested; pieces: requests that they were merged into.
    """

    requests: int = 0
    nbytes: int = 0
    retries: int = 0
    hedges: int = 0
    spans: int = 0
    pieces: int = 0


@dataclass(slots=True, eq=False)
class PendingRequest:
    """Range that has not arrived yet."""

    number: int
    range: ObjectRange
    since: float = field(default_factory=monotonic)
    attempts: int = 0
    begun: float | None = None  # when the request in flight was sent
    overdue: bool = False  # the request in flight was given up
    hedged: bool = False
    done: bool = False
    task: asyncio.Task[None] | None = None
    hedge: asyncio.Task[None] | None = None


@dataclass(slots=True, eq=False)
class _Call:
    """State of one call of `Client.fetch`."""

    task: asyncio.Task[object]
    take: Callable[[int, Response], None]
    timeout_s: float
    deadline: float
    pending: set[PendingRequest] = field(default_factory=set)
    failures: dict[int, RemoteReadError] = field(default_factory=dict)
    timer: asyncio.TimerHandle | None = None


class Client:
    """Reader of ranges of objects. Used from one asyncio loop at a time, by many tasks.

    Args:
        transport: sends one request.
        adaptive_limit: of the requests in flight.
        keeps_answers: answers about objects and folders are those of `current_answers`, and are kept there.

    Attributes:
        counters: of requests.
        latencies: of the latest requests.
    """

    def __init__(
        self,
        transport: Transport | None = None,
        adaptive_limit: AdaptiveLimit | None = None,
        *,
        keeps_answers: bool = False,
    ) -> None:
        self._answers = current_answers.get()
        self._keeps_answers = keeps_answers
        self._transport = transport or Transport()
        self._adaptive_limit = adaptive_limit or AdaptiveLimit()
        self._limiter = Limiter(self._adaptive_limit)
        self._random = random.Random()  # for pauses only: never affects what a loader returns
        self._sent = 0
        self._unobserved = 0  # responses since one whose first bytes were observed
        self.counters = Counters()
        self.latencies = Latencies()

    @property
    def request_count(self) -> int:
        """Return the number of requests of every kind, with those to the Hugging Face Hub for addresses."""
        return self.counters.requests + self._transport.lookup_count

    @property
    def _offline(self) -> bool:
        """Return whether no server was reached when the dataset was opened."""
        return self._answers is not None and self._answers.offline

    def close(self) -> None:
        """Close connections."""
        self._transport.close()

    # -- many ranges -------------------------------------------------------------------------------------------------

    async def fetch(
        self, ranges: Sequence[ObjectRange], take: Callable[[int, Response], None], timeout_s: float
    ) -> dict[int, RemoteReadError]:
        """Read ranges, as many at a time as the limit allows.

        Args:
            ranges: to read.
            take: called with the number of a range and its response, once for each that arrives, in any order.
            timeout_s: seconds for all of them together, or those of the opening that they are part of.

        Returns:
            the error of every range that could not be read, by its number.
        """
        if not ranges:
            return {}
        task = asyncio.current_task()
        assert task is not None
        timeout_s = limited(timeout_s)
        call = _Call(task, take, timeout_s, monotonic() + timeout_s)
        try:
            async with asyncio.TaskGroup() as tasks:
                self._watch(call, tasks)
                for number, each in enumerate(ranges):
                    await self._limiter.acquire()
                    pending = PendingRequest(number, each)
                    call.pending.add(pending)
                    pending.task = tasks.create_task(self._run(call, pending))
        finally:
            if call.timer is not None:
                call.timer.cancel()
        return call.failures

    async def get(self, ranges: Sequence[ObjectRange], timeout_s: float) -> list[bytes]:
        """Return the bytes of ranges, in their order.

        Raises:
            RemoteReadError: a range could not be read.
        """
        found: dict[int, bytes] = {}

        def take(number: int, response: Response) -> None:
            found[number] = bytes(response.data)

        failures = await self.fetch(ranges, take, timeout_s)
        for number in sorted(failures):
            raise failures[number]
        return [found[number] for number in range(len(ranges))]

    async def _run(self, call: _Call, pending: PendingRequest) -> None:
        """Read one range until it arrives or fails; begins with a place of the limiter."""
        acquired = True
        try:
            while not pending.done:
                pending.attempts += 1
                failure = await self._attempt(call, pending)
                if failure is None:
                    return
                failure, pause = self._next(failure, pending.attempts, pending.since, call.deadline)
                if pause is None:
                    self._finish(call, pending)
                    url, offset, length, _ = pending.range
                    call.failures[pending.number] = remote_error(
                        failure,
                        url,
                        offset=offset,
                        length=length,
                        attempts=pending.attempts,
                        seconds=monotonic() - pending.since,
                        timeout_s=call.timeout_s,
                    )
                    return
                self._limiter.release()
                acquired = False
                await asyncio.sleep(pause)
                await self._limiter.acquire()
                acquired = True
                self.counters.retries += not pending.done
        except asyncio.CancelledError:
            if not pending.done or _cancelled_otherwise(pending.task):
                raise  # else its hedge was faster
        finally:
            if acquired:
                self._limiter.release()
            call.pending.discard(pending)

    def _next(
        self, failure: RequestFailure, attempts: int, since: float, deadline: float
    ) -> tuple[RequestFailure, float | None]:
        """Return the failure, with advice, and the seconds to wait before the next attempt, None without another one.

        Args:
            failure: of the latest attempt.
            attempts: number of attempts so far.
            since, deadline: when they began, and have to end.
        """
        if failure.kind in NO_SERVER and self._offline:
            failure = failure._replace(advice=_NOT_CACHED)
            deadline = min(deadline, since + OPENING_S)
        share, left_s = self._random.random(), deadline - monotonic()
        pause = retry_pause_s(attempts, share, asked_s=failure.pause_s, left_s=left_s)
        return failure, pause if failure.again else None

    async def _attempt(self, call: _Call, pending: PendingRequest) -> RequestFailure | None:
        """Send one request for a range; return None if the range is done."""
        pending.begun = monotonic()
        try:
            response = await self._request(pending.range)
        except asyncio.CancelledError:
            if not pending.overdue or pending.done or _cancelled_otherwise(pending.task):
                raise
            pending.overdue = False
            seconds = monotonic() - pending.begun
            self.latencies.add(seconds, seconds, 0)
            return self._note(RequestFailure(Kind.LOST, True, f"no response within {seconds:.1f} s"))
        except Exception as error:
            return self._note(classify(error))
        finally:
            pending.begun = None
        return self._arrived(call, pending, response)

    async def _request(self, range_: ObjectRange) -> Response:
        """Send one request, and count it.

        A response with the time of its first bytes and the version of the object costs this process twice as much as
        the bytes alone. So most requests leave the check of the version to the server.
        """
        url, offset, length, version = range_
        self._sent += 1
        every = _DETAILED_EVERY if self._adaptive_limit.at_most else _DETAILED_EVERY_WHILE_GROWING
        if version is not None and self.latencies.known and self._sent % every:
            guarded = self._transport.guarded(url, version)
            if guarded is None:
                self.counters.requests += 1
                guarded = await self._transport.try_guard(url, version)
                self.counters.nbytes += not guarded
            if guarded:
                self.counters.requests += 1
                response = await self._transport.get_guarded(url, offset, length, version)
                if response is not None:
                    return response
        self.counters.requests += 1
        return await self._transport.get(url, offset, length)

    def _patience_s(self, pending: PendingRequest) -> float:
        """Return the seconds that one request may take; longer each time, as the connection may only be slow."""
        usual_s = _ATTEMPT_S if self.latencies.known else _FIRST_ATTEMPT_S
        usual_s += pending.range.length / _LEAST_BYTES_PER_S
        return float(max(usual_s, 8 * self.latencies.late_s) * 2 ** min(pending.attempts - 1, 8))

    def _note(self, failure: RequestFailure) -> RequestFailure:
        if failure.kind == Kind.BUSY:
            self._adaptive_limit.busy(monotonic())
        return failure

    def _arrived(self, call: _Call, pending: PendingRequest, response: Response) -> RequestFailure | None:
        _, _, length, version = pending.range
        self.counters.nbytes += len(response.data)
        if version is not None and not version.same(response.version):
            text = f"it was {version} when the dataset was created, and is {response.version} now"
            return RequestFailure(Kind.CHANGED, False, text)
        if len(response.data) != length:
            return self._note(
                RequestFailure(Kind.LOST, True, f"{len(response.data)} of {length} bytes arrived")
            )
        self.latencies.add(response.first_s, response.whole_s, len(response.data))
        if response.first_s is None:
            self._unobserved += 1
        else:
            now = monotonic()
            self._adaptive_limit.answered(response.first_s, now, self._limiter.taken, 1 + self._unobserved)
            self._unobserved = 0
        if self._finish(call, pending):
            call.take(pending.number, response)
        return None

    @staticmethod
    def _finish(call: _Call, pending: PendingRequest) -> bool:
        """Mark a range as done; return False if it was done before."""
        if pending.done:
            return False
        pending.done = True
        call.pending.discard(pending)
        if pending.hedge is not None and pending.hedge is not asyncio.current_task():
            pending.hedge.cancel()
        return True

    # -- stragglers --------------------------------------------------------------------------------------------------

    def _watch(self, call: _Call, tasks: asyncio.TaskGroup) -> None:
        """Give up requests that take too long and hedge those that are late; schedule the next check."""
        if call.task.cancelling():
            return  # the group is ending its tasks and accepts no more
        now = monotonic()
        soonest = now + self.latencies.late_s
        allowed = _HEDGES + _HEDGED_SHARE * self.counters.requests - self.counters.hedges
        for pending in list(call.pending):
            begun = pending.begun
            if begun is None or pending.task is None or pending.overdue:
                continue
            if now >= min(call.deadline, begun + self._patience_s(pending)):
                pending.overdue = True
                pending.task.cancel()
            elif not pending.hedged:
                due = begun + self.latencies.late_for(pending.range.length)
                if due <= now and allowed >= 1:
                    allowed -= 1
                    pending.hedged = True
                    pending.hedge = tasks.create_task(self._hedge(call, pending))
                else:
                    soonest = min(soonest, due)
        delay_s = max(_LEAST_CHECK_S, soonest - now)
        call.timer = asyncio.get_running_loop().call_later(delay_s, self._watch, call, tasks)

    async def _hedge(self, call: _Call, pending: PendingRequest) -> None:
        """Send a second request for a range. Its errors are ignored: the first request is still in flight."""
        self.counters.hedges += 1
        try:
            response = await self._request(pending.range)
        except asyncio.CancelledError:
            if not pending.done or _cancelled_otherwise(pending.hedge):
                raise  # else the first was faster
            return
        except Exception:  # the first request is still in flight, and reports its own error
            pending.hedged = False  # another hedge may be sent
            return
        if not pending.done and self._arrived(call, pending, response) is None:
            assert pending.task is not None
            pending.task.cancel()

    # -- single requests ---------------------------------------------------------------------------------------------

    async def describe(
        self, url: str, timeout_s: float = OPENING_S, take_end: Callable[[memoryview], object] | None = None
    ) -> Version:
        """Return the version of an object, from the headers of a response with its first byte, or its last bytes.

        It sends no HEAD request: a signed URL allows one method only, and this one shows that ranges are supported.
        For a file on the Hugging Face Hub its answer is enough.

        Args:
            url: of the object.
            timeout_s: seconds for all attempts.
            take_end: called with the last `END_NBYTES` of this version, or all of a smaller object, if the server
                returns them; None: they are not asked for.

        Raises:
            ObjectMissingError: there is no such object.
            RemoteReadError: it cannot be read.
        """
        if is_hub(url):
            send = partial(self._transport.describe_at_hub, url)
            return await self._ask("version", send, Version.of_json, url, timeout_s, counts=False)

        end: Response | None = None

        async def look() -> Version:
            nonlocal end
            end = None if take_end is None else await self._get_end(url)
            if end is not None:
                return end.version
            try:
                response = await self._transport.get(url, 0, 1)
            except Exception as error:
                if status_of(error) != 416 and classify(error).kind != Kind.UNRANGED:
                    raise
                self.counters.requests += 1
                version = await self._transport.head(url)
                if version.nbytes:
                    raise
                return version  # an empty object has no first byte
            self.counters.nbytes += len(response.data)
            return response.version

        version = await self._ask("version", look, Version.of_json, url, timeout_s)
        # A kept answer may have come instead, of another version.
        if take_end is not None and end is not None and end.version == version:
            take_end(end.data)
        return version

    async def _get_end(self, url: str) -> Response | None:
        """Return the last `END_NBYTES` of an object, or all of a smaller one; None if they cannot be asked for."""
        try:
            response = await self._transport.get_end(url, END_NBYTES)
        except Exception as error:
            if classify(error).kind not in (Kind.UNRANGED, Kind.REFUSED):
                raise
            self.counters.requests += 1
            return None  # an empty object, or a server that counts from the beginning only, such as Azure
        self.counters.nbytes += len(response.data)
        length = min(END_NBYTES, response.version.nbytes)
        if len(response.data) != length:
            text = f"{len(response.data)} of {length} bytes arrived"
            raise RequestFailedError(RequestFailure(Kind.LOST, True, text))
        return response

    async def describe_all(
        self,
        urls: Sequence[str],
        timeout_s: float,
        ends: MutableMapping[str, memoryview | None] | None = None,
    ) -> tuple[dict[int, Version], dict[int, RemoteReadError]]:
        """Describe several objects at once; return versions and errors, by the objects' numbers.

        Of many files in one folder on the Hugging Face Hub the folder is listed instead.

        Args:
            urls: of the objects.
            timeout_s: seconds for each of them.
            ends: the URLs of objects whose ends are asked for; gets the ends, see `describe`.
        """
        crowded = crowded_folders(urls, _CROWDED)
        async with anyio.create_task_group() as tasks:
            for folder, count in crowded.items():
                if not self._transport.is_listed(folder):
                    await self._limiter.acquire()
                    tasks.start_soon(self._list_crowded, folder, count, timeout_s)
        found: dict[int, Version] = {}
        failures: dict[int, RemoteReadError] = {}

        async def one(number: int) -> None:
            try:
                url = urls[number]
                take_end = partial(ends.__setitem__, url) if ends and url in ends else None
                found[number] = await self.describe(url, timeout_s, take_end)
            except RemoteReadError as error:
                failures[number] = error
            finally:
                self._limiter.release()

        async with anyio.create_task_group() as tasks:
            for number in range(len(urls)):
                await self._limiter.acquire()
                tasks.start_soon(one, number)
        return found, failures

    async def pin(self, url: str, timeout_s: float = OPENING_S) -> str:
        """Return a URL of the Hugging Face Hub with the commit that its branch, tag or ref has now.

        Raises:
            ObjectMissingError: there is no such data set or revision.
            RemoteReadError: the Hub does not answer, or refuses.
        """
        return await self._ask("commit", partial(self._transport.pin, url), str, url, timeout_s, counts=False)

    async def list(
        self, url: str, timeout_s: float = OPENING_S, *, recursive: bool = True
    ) -> list[tuple[str, Version]]:
        """List the objects below a prefix: path in the store, and version.

        Args:
            url: of the prefix.
            timeout_s: seconds for all of it.
            recursive: with those in folders below it; object storage always lists them.

        Raises:
            RemoteReadError: the store cannot be listed.
        """
        if is_hub(url):
            return (await self._list_all_pages(url, timeout_s, recursive=recursive)).objects
        # A listing is long: one attempt may take all of the time.
        send = partial(self._transport.list, url)
        return await self._ask("list", send, objects_of_json, url, timeout_s, attempt_s=timeout_s)

    async def list_level(self, url: str, timeout_s: float = OPENING_S) -> Level:
        """List what is directly below a prefix.

        Raises:
            RemoteReadError: the store cannot be listed.
        """
        if is_hub(url):
            return await self._list_all_pages(url, timeout_s, recursive=False)
        send = partial(self._transport.list_level, url)
        return await self._ask("level", send, Level.of_json, url, timeout_s, attempt_s=timeout_s)

    async def _list_all_pages(self, url: str, timeout_s: float, *, recursive: bool) -> Level:
        """Return a whole listing of the Hub."""
        level, complete = await self._list_pages(url, timeout_s, recursive=recursive, most_pages=_MOST_PAGES)
        if not complete:
            text = f"the listing has more than {len(level.objects):,} files"
            failure = RequestFailure(Kind.REFUSED, False, text, advice="name a smaller folder")
            raise remote_error(failure, url, attempts=_MOST_PAGES, seconds=0.0, timeout_s=timeout_s)
        return level

    async def _list_crowded(self, folder: str, count: int, timeout_s: float) -> None:
        """List a folder on the Hub for the versions of some of its files; of a far larger folder only the beginning.

        Begins with a place of the limiter.
        """
        pages = _PAGES_OF_CROWDED + count // _FILES_OF_CROWDED_PAGE
        try:
            level, complete = await self._list_pages(folder, timeout_s, recursive=False, most_pages=pages)
        except RemoteReadError:
            return  # each file is described separately, and reports its own error
        finally:
            self._limiter.release()
        self._transport.add_listing(folder, level.objects, complete=complete)

    async def _list_pages(
        self, url: str, timeout_s: float, *, recursive: bool, most_pages: int
    ) -> tuple[Level, bool]:
        """Return the first pages of a listing of the Hub, and whether there are no others."""
        deadline = anyio.current_time() + limited(timeout_s)
        found = Level([], [])
        page: str | None = None
        for _ in range(most_pages):
            send = partial(self._transport.list_page, url, page, recursive=recursive)
            remaining_s = max(0.0, deadline - anyio.current_time())
            question = f"page {page} {recursive}"
            level, page = await self._ask(question, send, ListingPage.of_json, url, remaining_s, counts=False)
            found.folders.extend(level.folders)
            found.objects.extend(level.objects)
            if page is None:
                return found, True
        return found, False

    async def _ask(
        self,
        question: str,
        send: Callable[[], Awaitable[T]],
        read: Callable[[Any], T],
        url: str,
        timeout_s: float,
        *,
        attempt_s: float | None = None,
        counts: bool = True,
    ) -> T:
        """Send a request until it is answered, and keep the answer; return the kept one if no server is reached.

        Args:
            question: what is asked about the URL.
            send: sends the request.
            read: makes a kept answer of its JSON value.
            url: of the object or prefix.
            timeout_s: seconds for all attempts, or those of the opening that it is part of.
            attempt_s: seconds for one; None: twice as many for each further attempt.
            counts: an attempt is a request; False: the transport counts it.

        Raises:
            RemoteReadError: there was no response before the deadline, or it is an error that retries do not fix.
        """
        answers = self._answers if self._keeps_answers else None
        kept = None if answers is None else answers.find(question, url, read)
        go_offline = None if answers is None or kept is None else answers.go_offline
        found: T | None = None
        if answers is None or kept is None or not answers.offline:
            try:
                found = await self._retry(send, url, timeout_s, attempt_s, counts, go_offline)
            except RemoteReadError as error:
                if answers is not None and error.kind in _KEPT_FAILURES:
                    answers.keep(question, url, before=kept, failure=(error.kind, error.reason))
                raise
        # Another request may have found out meanwhile that no server is reached.
        if answers is not None and kept is not None and answers.offline:
            answers.replayed(url, kept.at, str(kept.value) if isinstance(kept.value, Version) else "")
            if kept.failure is not None:
                failure = RequestFailure(kept.failure[0], False, kept.failure[1])
                raise remote_error(failure, url, attempts=0, seconds=0.0, timeout_s=timeout_s)
            found = kept.value
        elif answers is not None:
            answers.keep(question, url, found, before=kept)
        assert found is not None
        return found

    async def _retry(
        self,
        send: Callable[[], Awaitable[T]],
        url: str,
        timeout_s: float,
        attempt_s: float | None,
        counts: bool,
        go_offline: Callable[[str], bool] | None,
    ) -> T | None:
        """Send a request until it is answered; see `_ask`.

        Args:
            send, url, timeout_s, attempt_s, counts: as for `_ask`.
            go_offline: called with a reason when no attempt has reached a server for a while; if it returns True, the
                request is given up, and the result is None.
        """
        timeout_s = limited(timeout_s)
        begin = monotonic()
        attempts = 0
        reached = False
        while True:
            attempts += 1
            self.counters.requests += counts
            left_s = begin + timeout_s - monotonic()
            try:
                with anyio.move_on_after(min(left_s, attempt_s or _FIRST_ATTEMPT_S * 2**attempts)):
                    return await send()
                failure = RequestFailure(Kind.LOST, True, "no response in time")
                reached = True
            except (ForkedError, ImportError):
                raise
            except Exception as error:
                failure = self._note(classify(error))
                # A server that goes away closes its connections: a request on one of them reached it too late.
                reached = reached or not (failure.kind in NO_SERVER or closed_early(error))
            seconds = monotonic() - begin
            # The name of a server in use may be unknown for a moment; at first it is more likely a wrong name.
            nowhere = failure.kind == Kind.NOWHERE and attempts >= _NOWHERE_ATTEMPTS
            long = nowhere or seconds >= _UNREACHED_S
            if go_offline is not None and long and not reached and go_offline(failure.text):
                return None
            failure, pause = self._next(failure, attempts, begin, begin + timeout_s)
            if nowhere or pause is None:
                raise remote_error(failure, url, attempts=attempts, seconds=seconds, timeout_s=timeout_s)
            await anyio.sleep(pause)
            self.counters.retries += 1


def _cancelled_otherwise(task: asyncio.Task[None] | None) -> bool:
    """Undo one `Task.cancel` of this module; return whether the task was also cancelled by other code."""
    assert task is not None
    return task.uncancel() > 0
