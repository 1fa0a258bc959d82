"""Jobs of a service: admission, reading, the queue for the workers, chunks, results, and who waits for what.

Everything here runs in the service's event loop. The tasks that read and make images belong to one task group; `run`
opens it and closes it.

Places are shared out by what an image waits for, so that a server that never answers holds no others.
"""

from __future__ import annotations

import copy
import sys
from collections import Counter
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.abc

from aioloader.errors import (
    ImageServiceError,
    ImageTimeoutError,
    ServiceClosedError,
    ServiceOverloadedError,
    single,
)
from aioloader.foundation.concurrency import Notification, deferred
from aioloader.service.jobs import ChunkInWork, HeaderRead, Job, Request, Shared, Waiter, nbytes_of
from aioloader.service.making import Outcome
from aioloader.service.references import SOURCES
from aioloader.service.schedule import Room, Schedule, Turn
from aioloader.service.stats import ServiceCounters
from aioloader.transforms.formats import LongHeaderError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Hashable

    from aioloader.foundation.lru_cache import LRUCache
    from aioloader.service.making import ImageMaker
    from aioloader.service.options import ServiceOptions
    from aioloader.service.references import Reference, ReferenceReader
    from aioloader.service.stats import ServiceTrace


class Admission:
    """Places in the service, one for each image that somebody waits for and for each header that is read.

    Three quarters of them at most are for each kind of source outside of the process, and five eighths for each server.
    Those who wait for one get it in turn, higher priorities first; only those whose source has its share are passed.

    Args:
        most: number of places.
        overflow: "wait" or "raise": what happens with one more.
        counters: changed by those who wait.
        trace: records who waited, or None.

    """

    def __init__(
        self, *, most: int, overflow: str, counters: ServiceCounters, trace: ServiceTrace | None
    ) -> None:
        self._most = most
        limits = dict.fromkeys(SOURCES, (most - most // 4, most - most // 4 - most // 8))
        self._room = Room(most, {**limits, "memory": (most, most)})
        self._raises = overflow == "raise"
        self._counters = counters
        self._trace = trace
        self._closed = False

    @property
    def taken(self) -> int:
        """Return the number of places that are taken."""
        return self._room.taken

    def try_enter(self, reference: Reference) -> bool:
        """Take a place if there is one; return whether it was taken. Whoever waits cannot take it."""
        if not self._room.free(reference.source, reference.server):
            return False
        self._room.take(reference.source, reference.server)
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
            share = None if self.taken >= self._most else self._room.share(reference.source)
            raise ServiceOverloadedError(self.taken, self._most, share)
        turn = Turn(reference.source, reference.server)
        self._room.wait(turn, request.priority)
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
            self._room.give_up(turn)
            raise
        finally:
            self._counters.admission -= 1
            if self._trace is not None and not self._closed:
                self._trace.record_admission(reference.name, request.number, began)

    def leave(self, reference: Reference) -> None:
        """Give a place back, to the first one that waits and may have it."""
        self._room.leave(reference.source, reference.server)

    def close(self) -> None:
        """Wake all who wait: nobody enters any more."""
        self._closed = True
        self._room.close()


T = TypeVar("T")

# Encoded images that were read and wait, of one priority and all above: those of a low one hold no others.
_HELD_BYTES = 256 << 20
_TICK_S = 0.1


class Reads:
    """Images and headers that wait to be read, in order, and the room for reading.

    Attributes:
        queue: the images and headers.
        room: shared out among sources and servers.
        held: bytes of encoded images that were read and not made yet, by priority.
        again: of each place that is being read, the job that reads it again afterwards, if there is one.
    """

    def __init__(self) -> None:
        self.queue: Schedule[Job | HeaderRead] = Schedule()
        self.room = Room(sys.maxsize, SOURCES)
        self.held: Counter[int] = Counter()
        self.again: dict[Hashable, Job | None] = {}

    def hold(self, job: Job, sign: int) -> None:
        """Count the bytes of an image that was read; those of a caller are in memory anyway."""
        if job.image is not None and job.reference.kind != "bytes":
            self.held[job.order[0]] += sign * job.image.nbytes
            if not self.held[job.order[0]]:
                del self.held[job.order[0]]

    def begin(self) -> Job | HeaderRead | None:
        """Return the next one that may be read, which has room now; None if there is none."""
        found = self.queue.pop(self._may_read) if self.queue else None
        if found is not None:
            self.room.take(found.reference.source, found.reference.server)
        return found

    def end(self, reference: Reference) -> None:
        """Give room back."""
        self.room.leave(reference.source, reference.server)

    def _may_read(self, next_one: Job | HeaderRead) -> bool:
        if not self.room.free(next_one.reference.source, next_one.reference.server):
            return False
        if isinstance(next_one, HeaderRead):
            return True
        lowest = next_one.order[0]
        return sum(nbytes for priority, nbytes in self.held.items() if priority >= lowest) < _HELD_BYTES


class Dispatcher:
    """The jobs of one service.

    Args:
        reader: reads references.
        cache: keeps images.
        maker: makes images.
        options: of the service.
        trace: records what happens, or None.

    Attributes:
        counters: what happened so far.
        closed: the service takes no more requests.
    """

    def __init__(
        self,
        reader: ReferenceReader,
        cache: LRUCache[Hashable, tuple[Any]],
        maker: ImageMaker,
        options: ServiceOptions,
        trace: ServiceTrace | None,
    ) -> None:
        self._reader = reader
        self._cache = cache
        self._maker = maker
        self._tick_s = min(_TICK_S, options.longest_s / 10)  # how often timeouts are checked
        self._trace = trace
        self._jobs: set[Job] = set()
        self._shared: dict[Hashable, Job] = {}
        self._reads = Reads()
        self._to_make: Schedule[Job] = Schedule()
        self._tasks: anyio.abc.TaskGroup | None = None
        self.counters = ServiceCounters()
        self._admission = Admission(
            most=options.max_pending, overflow=options.overflow, counters=self.counters, trace=trace
        )
        self._visits: set[anyio.CancelScope] = set()
        self._visits_ended = Notification()
        self.closed = False

    # -- life --------------------------------------------------------------------------------------------------------

    async def run(self, started: anyio.Event, stop: anyio.Event) -> None:
        """Make what is asked for until `stop`. Whoever waits then gets a `ServiceClosedError`.

        Raises:
            Exception: of the executor's own tasks; whoever waits gets it too.
        """
        error: BaseException = ServiceClosedError("the image service was closed")
        if self._trace is not None:
            self._trace.open()
        try:
            async with self._maker.executor.serving(), anyio.create_task_group() as tasks:
                self._tasks = tasks
                tasks.start_soon(deferred(self._expire))
                started.set()
                await stop.wait()
                self.closed = True
                tasks.cancel_scope.cancel()
        except Exception as problem:
            error = single(problem)
            raise
        finally:
            self.closed = True
            self._tasks = None
            for job in list(self._jobs):
                self._end(job, Outcome(None, 0, error))
            self._admission.close()
            for scope in list(self._visits):
                scope.cancel()
            while self._visits:
                await self._visits_ended.wait()
            if self._trace is not None:
                self._trace.close()

    def _check_open(self) -> None:
        if self.closed or self._tasks is None:
            raise ServiceClosedError("the image service is closed")

    def start(self, fn: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        """Run an async function in a task that `run` ends; see `ImageRequests.start`."""
        self._check_open()
        assert self._tasks is not None
        self._tasks.start_soon(deferred(fn), name=name)

    # -- requests ----------------------------------------------------------------------------------------------------

    def request(self, *, priority: int, timeout: float | None, **waiting: bool) -> Request:
        """Return a new request; see `Request`."""
        self._check_open()
        self.counters.requests += 1
        first_round = max(self._reads.queue.first_round(priority), self._to_make.first_round(priority))
        return Request(self.counters.requests, priority, first_round, timeout, **waiting)

    async def submit(
        self, ref: Any, request: Request, *, key: Hashable | None = None, draw: int = 0
    ) -> Waiter:
        """Add an image to a request. Its waiter is settled now or later, and `leave` abandons it.

        Raises:
            ImageReferenceError: the reference is not accepted.
            ServiceOverloadedError: there is no room, with ``overflow="raise"``.
            ImageTimeoutError: there was no room in time.
            ServiceClosedError: the service was closed.
        """
        self._check_open()
        reference = self._reader.accept(ref, key=key)
        if reference.identity is None:
            reference = await self._reader.identify(reference)
            self._check_open()
        deadline = None if request.timeout is None else perf_counter() + request.timeout
        share = None if reference.identity is None else (reference.identity, draw)
        found = self._kept(reference, share)
        if found is None and not self._admission.try_enter(reference):
            await self._admission.wait(reference, request, deadline)
            found = self._kept(reference, share)  # made meanwhile
            if found is not None:
                self._admission.leave(reference)
        if found is not None:
            waiter = Waiter(request, reference, deadline)
            waiter.settle(Shared(found[0], reference.name))
            return waiter
        job = None if share is None else self._shared.get(share)
        if job is not None:
            return self._join(job, reference, request, deadline)
        order = (request.priority, request.first_round, request.number, len(request.waiters))
        job = Job(reference, share, draw, order, perf_counter())
        if self._trace is not None:
            job.trace = self._trace.begin(reference.name, request.number)
        waiter = self._wait_for(job, reference, request, deadline)
        self._jobs.add(job)
        if share is not None:
            self._shared[share] = job
        self._begin(job)
        return waiter

    def _kept(self, reference: Reference, share: Hashable | None) -> tuple[Any] | None:
        """Return the image that the cache has, in a tuple; None if it has to be made, or is being made."""
        if share is None or share in self._shared or not (self._cache.limit and reference.names_bytes):
            return None
        return self._cache.get(share)

    async def visit(self, reference: Reference, request: Request, fn: Callable[[], Awaitable[T]]) -> T:
        """Await `fn()` in a separate place, for what needs no job.

        Args:
            reference: the image that it is about.
            request: its request.
            fn: called when there is a place; cancelled when the service is closed.

        Raises:
            ServiceOverloadedError, ImageTimeoutError, ServiceClosedError: as `submit`.
            Exception: of `fn`.
        """
        self._check_open()
        deadline = None if request.timeout is None else perf_counter() + request.timeout
        if not self._admission.try_enter(reference):
            await self._admission.wait(reference, request, deadline)
        scope = anyio.CancelScope()
        self._visits.add(scope)
        try:
            with scope:
                if self._reader.read_near(reference) is not None:
                    return await fn()
                await self._turn_to_read(reference, request, deadline)
                try:
                    return await fn()
                finally:
                    self._reads.end(reference)
                    self._start_reads()
        finally:
            self._visits.discard(scope)
            self._visits_ended.set()
            self._admission.leave(reference)
        raise ServiceClosedError("the image service was closed")  # which cancelled it

    async def _turn_to_read(self, reference: Reference, request: Request, deadline: float | None) -> None:
        """Wait until a header may be read, and take note that it is."""
        header = HeaderRead(reference)
        self._reads.queue.push(
            header,
            priority=request.priority,
            first_round=request.first_round,
            request=request.number,
            place=0,
            lane=(reference.source, reference.server, "header"),
        )
        self._start_reads()
        try:
            with anyio.move_on_after(None if deadline is None else max(0.0, deadline - perf_counter())):
                await header.turn.wait()
        except BaseException:
            if not header.turn.is_set():
                self._reads.queue.discard(header)
            else:
                self._reads.end(reference)
                self._start_reads()
            raise
        if not header.turn.is_set():
            self._reads.queue.discard(header)
            assert request.timeout is not None
            self.counters.timed_out += 1
            raise ImageTimeoutError(reference.name, request.timeout, "queue")

    def _wait_for(self, job: Job, reference: Reference, request: Request, deadline: float | None) -> Waiter:
        waiter = Waiter(request, reference, deadline)
        waiter.job = job
        job.waiters.append(waiter)
        return waiter

    def _join(self, job: Job, reference: Reference, request: Request, deadline: float | None) -> Waiter:
        self.counters.joined += 1
        waiter = self._wait_for(job, reference, request, deadline)
        order = (request.priority, request.first_round, request.number, len(request.waiters) - 1)
        self._prefer(job, order)
        return waiter

    def _prefer(self, job: Job, order: tuple[int, int, int, int]) -> None:
        """Give a job another order if that has the higher priority."""
        if order[0] > job.order[0]:
            self._reads.hold(job, -1)
            job.order = order
            self._reads.hold(job, 1)
            if job in self._reads.queue or job in self._to_make:
                self._push(job)

    def _merge(self, job: Job, other: Job) -> None:
        """Let those who wait for a job wait for another one, which has the same bytes."""
        self.counters.joined += 1  # the others have joined this one
        for waiter in job.waiters:
            waiter.job = other
        other.waiters += job.waiters
        self._forget(job)
        self._prefer(other, job.order)
        if self._trace is not None and job.trace is not None:
            self._trace.end(job.trace, "joined", len(job.waiters))

    def leave(self, request: Request) -> None:
        """Give up the images that a request waits for, and those that it has."""
        self._leave(request.waiters)
        request.take()

    def _leave(self, waiters: list[Waiter], why: str = "abandoned") -> None:
        """Call off work that nobody else waits for."""
        for waiter in waiters:
            job = waiter.job
            if job is not None:
                waiter.job = None
                job.waiters.remove(waiter)
                self._admission.leave(waiter.asked)
                if not job.waiters:
                    self._abandon(job, why, waiter.request.timeout)

    # -- jobs --------------------------------------------------------------------------------------------------------

    def _begin(self, job: Job) -> None:
        job.image = self._reader.read_near(job.reference)
        if job.image is not None:
            self._has_bytes(job)
        elif job.share in self._reads.again:
            self._reads.again[job.share] = job
        else:
            self._push(job)
            self._start_reads()

    def _push(self, job: Job) -> None:
        priority, first_round, request, place = job.order
        order = {"priority": priority, "first_round": first_round, "request": request, "place": place}
        if job.image is None:
            self._reads.queue.push(job, lane=(job.reference.source, job.reference.server), **order)
        else:
            self._to_make.push(job, **order)

    def _drop(self, job: Job) -> None:
        self._reads.queue.discard(job)
        self._to_make.discard(job)

    def _start_reads(self) -> None:
        while self._tasks is not None and (next_one := self._reads.begin()) is not None:
            if isinstance(next_one, HeaderRead):
                next_one.turn.set()
                continue
            next_one.enter("read")
            next_one.scope = anyio.CancelScope()
            self.counters.reading += 1
            self._tasks.start_soon(deferred(self._read), next_one)

    async def _read(self, job: Job) -> None:
        error: BaseException | None = None
        assert job.scope is not None
        place = None if job.reference.names_bytes else job.share
        if place is not None:
            # What is there may be replaced from now on. Who asks for it meanwhile shares one more reading of it, after
            # this one, so that a place is read once at a time.
            self._unshare(job)
            self._reads.again[place] = None
        try:
            with job.scope:
                image = await self._reader.read(job.reference)
        except Exception as problem:
            error = problem
        finally:
            self.counters.reading -= 1
            job.scope = None
            self._reads.end(job.reference)
        if not job.abandoned and not self.closed:  # `run` ends what is left
            if error is not None:
                self._end(job, Outcome(None, 0, error))
            else:
                self.counters.read_s.append(perf_counter() - job.began)
                job.image = image
                self._has_bytes(job)
        later = None if place is None else self._reads.again.pop(place)
        if later is not None and later in self._jobs:
            self._push(later)
        self._start_reads()

    def _has_bytes(self, job: Job) -> None:
        """Take note that the bytes of an image are there."""
        assert job.image is not None
        self._reads.hold(job, 1)
        version = None if job.image.key is None else (job.image.key, job.draw)
        if version is not None and version != job.share:
            found = self._cache.get(version) if self._cache.limit else None
            if found is not None:
                self._end(job, Outcome(found[0], 0, None), kept=True)
                return
            if version in self._shared:
                self._merge(job, self._shared[version])
                return
            job.share, self._shared[version] = version, job
        try:
            self._maker.expect(job, quick=True)
        except LongHeaderError:
            assert self._tasks is not None
            job.scope = anyio.CancelScope()
            self._tasks.start_soon(deferred(self._expect_long), job)
        except Exception as error:
            self._end(job, Outcome(None, 0, error))
        else:
            self._queue(job)

    async def _expect_long(self, job: Job) -> None:
        """Read a header that would hold the loop in a thread."""
        error: BaseException | None = None
        assert job.scope is not None
        try:
            with job.scope:
                await self._reader.in_thread(self._maker.expect, job)
        except Exception as problem:
            error = problem
        finally:
            job.scope = None
        if job.abandoned:
            return
        if error is None:
            self._queue(job)
        else:
            self._end(job, Outcome(None, 0, error))

    def _queue(self, job: Job) -> None:
        job.enter("queue")
        job.queued_at = perf_counter()
        self._push(job)
        self._start_chunks()

    def _start_chunks(self) -> None:
        # One chunk in work for each worker, one that waits for it, and one in flight.
        while self._to_make and self.counters.chunks < 2 * self._maker.executor.workers + 1:
            first = self._to_make.pop()
            if first is None or self._tasks is None:
                return
            jobs = [first]
            room = self._maker.room_in_chunk(first, len(self._to_make))
            while len(jobs) < room and (job := self._to_make.pop()) is not None:
                if not self._maker.fits(job):
                    self._push(job)
                    break
                jobs.append(job)
            chunk = ChunkInWork(jobs, wanted=len(jobs))
            now = perf_counter()
            for job in jobs:
                job.enter("work")
                job.chunk, job.sent_at = chunk, now
                self.counters.queue_s.append(now - job.queued_at)
            self.counters.chunks += 1
            self.counters.in_work += len(jobs)
            self._tasks.start_soon(deferred(self._make), chunk)

    async def _make(self, chunk: ChunkInWork) -> None:
        outcomes: list[Outcome] = []
        try:
            with chunk.scope:
                outcomes = await self._maker.make(chunk)
        except Exception as error:
            problem = error if isinstance(error, ImageServiceError) else _named(error)
            # An error each: what its prompt is will be noted at it.
            outcomes = [
                Outcome(None, 0, _copy(problem) if place else problem) for place in range(len(chunk.jobs))
            ]
        finally:
            self.counters.chunks -= 1
            self.counters.in_work -= len(chunk.jobs)
        if self._trace is not None:
            waiting = [job.trace for job in chunk.jobs if not job.abandoned and job.trace is not None]
            self._trace.record_chunk(chunk.given_at, chunk.work_spans, waiting)
        now = perf_counter()
        for job, outcome in zip(chunk.jobs, outcomes, strict=False):
            job.chunk = None
            self.counters.work_s.append(now - job.sent_at)
            if not job.abandoned:
                self._end(job, outcome)
        outcomes.clear()
        chunk.jobs.clear()
        self._start_chunks()
        self._start_reads()

    def _abandon(self, job: Job, why: str, allowed_s: float | None) -> None:
        """Call off a job that nobody waits for.

        Args:
            job: the job.
            why: word for the trace.
            allowed_s: seconds that the last one to leave allowed; a worker that takes longer is ended. None: no limit.
        """
        if job not in self._jobs:
            return
        self.counters.abandoned += 1
        job.abandoned = True
        self._drop(job)
        self._forget(job)
        if self._trace is not None and job.trace is not None:
            self._trace.end(job.trace, why, 0)
        if job.scope is not None:
            job.scope.cancel()
        elif job.chunk is not None:
            if allowed_s is not None:
                job.chunk.patience[job.chunk.jobs.index(job)] = allowed_s
            job.chunk.wanted -= 1
            if not job.chunk.wanted:
                job.chunk.scope.cancel()

    def _end(self, job: Job, outcome: Outcome, *, kept: bool = False) -> None:
        """Hand the outcome of a job to all who wait for it."""
        self._drop(job)
        self._forget(job)
        job.phase = "done"
        waiters, job.waiters = job.waiters, []
        for waiter in waiters:
            self._admission.leave(waiter.asked)
        if self._trace is not None and job.trace is not None:
            made = "cached" if kept else "made"
            named = made if outcome.error is None else type(outcome.error).__name__
            self._trace.end(job.trace, named, len(waiters))
        if outcome.error is not None:
            self.counters.failed += 1
            for place, waiter in enumerate(waiters):
                waiter.settle(error=_copy(outcome.error) if place else outcome.error)
            return
        key = None if job.image is None else job.image.key
        keeps = self._cache.limit > 0 and key is not None
        if not kept:
            self.counters.made += 1
            if keeps:
                nbytes = max(outcome.nbytes, nbytes_of(outcome.value))
                self._cache.put((key, job.draw), (outcome.value,), nbytes)
        value = Shared(outcome.value, job.reference.name) if keeps or len(waiters) > 1 else outcome.value
        for waiter in waiters:
            waiter.settle(value)

    def _forget(self, job: Job) -> None:
        self._jobs.discard(job)
        self._unshare(job)
        self._reads.hold(job, -1)

    def _unshare(self, job: Job) -> None:
        if job.share is not None:
            del self._shared[job.share]
            job.share = None

    # -- timeouts ----------------------------------------------------------------------------------------------------

    async def _expire(self) -> None:
        """Settle the waiters whose time is over."""
        while True:
            await anyio.sleep(self._tick_s)
            now = perf_counter()
            late = [
                waiter
                for job in self._jobs
                for waiter in job.waiters
                if waiter.deadline is not None and waiter.deadline <= now
            ]
            for waiter in late:
                self.expire(waiter)

    def expire(self, waiter: Waiter) -> None:
        """Settle a waiter with a timeout, and give its image up."""
        if waiter.job is None:
            return
        self.counters.timed_out += 1
        error = waiter.timed_out()
        self._leave([waiter], "timed out")
        waiter.settle(error=error)

    # -- facts -------------------------------------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """Return the number of jobs."""
        return len(self._jobs)

    @property
    def admitted(self) -> int:
        """Return the number of places that are taken."""
        return self._admission.taken

    @property
    def held_nbytes(self) -> int:
        """Return the bytes of encoded images that were read and not made yet."""
        return sum(self._reads.held.values())

    @property
    def queued(self) -> int:
        """Return the number of jobs that wait to be read, or for a worker."""
        return len(self._reads.queue) + len(self._to_make)


def _named(error: Exception) -> ImageServiceError:
    named = ImageServiceError(f"the image could not be made: {type(error).__name__}: {error}")
    named.__cause__ = error
    return named


def _copy(error: BaseException) -> BaseException:
    """Return a copy of an error, so that callers do not share a traceback."""
    other = copy.copy(error)
    other.__cause__ = error.__cause__
    return other
