"""Runs chunks on the nodes of a Ray cluster.

Each worker is an actor, with a memory of its own. What travels are numbers, the bytes of the samples and the rows that
come back; the loader's program travels once. Ray says when an actor is gone, and the engine's own rules
(`aioloader.executors.retry`) say which samples run again. An actor works off its chunks in the order in which they
were sent, so one that dies dies of the first; nobody sees of which sample.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Literal

import anyio

from aioloader.errors import WorkerError
from aioloader.executors.pool_base import PoolExecutor
from aioloader.executors.process.handle import pickled_program
from aioloader.executors.ray.client import RayClient, ray_in_use
from aioloader.executors.retry import Died, Unreadable
from aioloader.foundation.concurrency import Notification, deferred, loop_notifier
from aioloader.foundation.types import INDEX, ChunkResult, WorkerState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioloader.abc import Program
    from aioloader.executors.retry import Attempt
    from aioloader.executors.shared_memory import SlabMemory
    from aioloader.foundation.concurrency import Notify

__all__ = ("RayExecutor",)

_OUTSTANDING = 2  # one being worked on, one waiting, so that an actor is never idle between chunks
_LEAVE_S = 0.4
_FAILED_STARTS = 5


class _Place:
    """One place in the pool; the actor in it may change.

    Attributes:
        key: tells actors apart.
        state: "none" (to be started), "starting" or "up".
        running: chunks sent and not answered, by number, oldest first; None for one that was dropped.
        heard_at: when it was last heard of, or given work while it had none.
    """

    def __init__(self) -> None:
        self.failed_starts = 0
        self.clear()

    def clear(self) -> None:
        """Make room for a new actor."""
        self.key = 0
        self.state: Literal["none", "starting", "up"] = "none"
        self.running: dict[int, Attempt | None] = {}
        self.timed_out = False
        self.heard_at = time.monotonic()


class RayExecutor(PoolExecutor):
    """Runs chunks in actors of the Ray cluster that this process is connected to.

    ::

        ray.init(address="auto")
        loader = aioloader.AsyncDataLoader(dataset, 256, shuffle=True, executor=aioloader.executors.RayExecutor())

    The batches are those of every other executor, bit for bit, where the nodes have the same versions of the libraries
    and the same type of CPU. This process reads the bytes, so only it needs the files; a dataset without a byte part
    (one with nothing but ``__getitem__``) runs whole on the nodes and must find its files there.

    Actors that are lost, with their node or alone, are replaced, and their unfinished samples run again. While the
    cluster has no room for a new one, those that are left do the work.

    Args:
        workers: number of actors, at least 1; None: what the CPUs that are free when the loader is first used allow.
        timeout: seconds without an answer from an actor that has work, after which it is ended. Its samples then run
            again one by one, and one that takes so long alone is a failure.
        num_cpus: CPUs that Ray sets aside for each actor.
        resources: further resources that each needs, by name, for nodes of a certain kind; see ``ray.remote``.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(
        self,
        workers: int | None = None,
        timeout: float = 120.0,
        *,
        num_cpus: float = 1,
        resources: Mapping[str, float] | None = None,
    ) -> None:
        if workers is not None and workers < 1:
            raise ValueError(f"workers must be at least 1, got {workers}")
        if not timeout > 0:
            raise ValueError(f"timeout must be more than 0 seconds, got {timeout}")
        if not num_cpus >= 0:
            raise ValueError(f"num_cpus must be at least 0, got {num_cpus}")
        super().__init__(timeout)
        self.restarts = 0
        self._workers = workers
        self._num_cpus = num_cpus
        self._resources = dict(resources or {})
        self._keys = itertools.count(1)
        self._places: list[_Place] = []
        self._dropping: dict[int, Attempt] = {}
        self._inbox: deque[tuple[Any, ...]] = deque()
        self._notify: Notify | None = None
        self._more = Notification()
        self._answers = 0
        self._courier: RayClient | None = None
        self._closed = False

    @property
    def workers(self) -> int:
        """How many actors there are to be. The first time it may ask the cluster.

        Raises:
            ImportError: Ray is not installed.
            WorkerError: it is not initialised.
        """
        if self._workers is None:
            free = float(ray_in_use().available_resources().get("CPU", 0))
            self._workers = max(1, int(free // (self._num_cpus or 1)))
        return self._workers

    def open(self, program: Program, memory: SlabMemory) -> None:
        """See `aioloader.abc.Executor.open`.

        Raises:
            ImportError, WorkerError: there is no cluster to work on, or the program cannot be pickled.
        """
        if self._courier is not None or self._closed:
            raise WorkerError("a RayExecutor serves one loader: make another one for another loader")
        ray_in_use()
        options: dict[str, Any] = {
            "num_cpus": self._num_cpus,
            "resources": self._resources,
            "max_restarts": 0,  # which samples run again, and where, is decided here
            "max_task_retries": 0,
            "scheduling_strategy": "SPREAD",
        }
        self._courier = RayClient(self._tell, pickled_program(program), memory, options)
        self._places = [_Place() for _ in range(self.workers)]

    # -- serving -----------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        super()._begin()
        self._more = Notification()

    @property
    def _draining(self) -> bool:
        return bool(self._dropping)

    async def _lead(self) -> None:
        async with anyio.create_task_group() as tasks:
            self._notify = loop_notifier()  # before the inbox is looked at: what comes later is told
            tasks.start_soon(deferred(self._watch))
            while True:
                while self._inbox:
                    self._heard(*self._inbox.popleft())
                self._supervise()
                self._assign()
                await self._more.wait()

    def _tell(self, *event: Any) -> None:
        """An event, from the courier's thread."""
        self._inbox.append(event)
        notify = self._notify
        if notify is not None:
            notify(self._more.set)

    def _supervise(self) -> None:
        """Start actors where there are none."""
        if self._courier is None or self._fatal is not None or self._closed:
            return
        for place in self._places:
            if place.state == "none":
                place.key = next(self._keys)
                place.state = "starting"
                place.heard_at = time.monotonic()
                self._courier.start(place.key)

    def _heard(self, kind: str, *rest: Any) -> None:
        if kind == "broken":
            (cause,) = rest
            error = WorkerError(f"the Ray cluster cannot be worked with: {type(cause).__name__}: {cause}")
            error.__cause__ = cause
            self._give_up(error)
            return
        if kind == "dropped":
            self._dropped(*rest)
            return
        key, *facts = rest
        place = next((each for each in self._places if each.key == key), None)
        if place is None:
            return  # of an actor that was replaced
        place.heard_at = time.monotonic()
        self._answers += 1
        if kind == "ready":
            place.state = "up"
            place.failed_starts = 0
        elif kind == "failed":
            self._give_up(facts[0])
        elif kind == "lost":
            self._lost(place, facts[0])
        else:
            attempt = place.running.pop(facts[0], None)
            if attempt is None:
                return
            if kind == "refused" and facts[1] and attempt.number not in self._dropping:
                attempt.exclude(facts[1])
            else:
                self._resolve(attempt, facts[-1])

    def _dropped(self, number: int) -> None:
        for place in self._places:
            if number in place.running:
                place.running[number] = None  # the actor is still busy with it
        attempt = self._dropping.get(number)
        if attempt is not None:
            # Dropped because nobody waits for it any more, or because all is lost.
            self._resolve(attempt, self._fatal or ChunkResult())

    # -- chunks ------------------------------------------------------------------------------------------------------

    def _call_off(self, attempt: Attempt) -> None:
        if self._courier is not None and any(attempt.number in place.running for place in self._places):
            self._dropping[attempt.number] = attempt
            self._courier.drop(attempt)
        else:
            attempt.end(ChunkResult())  # still queued: nobody has seen it

    def _resolve(self, attempt: Attempt, outcome: ChunkResult | Died | Unreadable | BaseException) -> None:
        attempt.end(outcome)
        if self._dropping.pop(attempt.number, None) is not None:
            self._drained.set()

    def _assign(self) -> None:
        """Hand queued chunks to the actors that have the least to do."""
        while self._courier is not None and self._any_queued():
            free = [p for p in self._places if p.state == "up" and len(p.running) < _OUTSTANDING]
            if not free:
                return
            place = min(free, key=lambda each: len(each.running))
            attempt = self._next_queued()
            if not place.running:
                place.heard_at = time.monotonic()
            place.running[attempt.number] = attempt
            self._courier.send(place.key, attempt)

    # -- death -------------------------------------------------------------------------------------------------------

    def _lost(self, place: _Place, reason: str) -> None:
        """An actor is gone: see to the chunks it had, and make room for the next."""
        starting, timed_out = place.state == "starting", place.timed_out
        running = list(place.running.values())
        place.clear()
        self.restarts += 1
        for number, attempt in enumerate(running):
            if attempt is not None:
                first = number == 0  # it works off its chunks in their order
                self._resolve(attempt, Died(None, None, timed_out and first, unseen=first, reason=reason))
        if starting:
            place.failed_starts += 1
            if place.failed_starts >= _FAILED_STARTS:
                self._give_up(
                    WorkerError(
                        f"{_FAILED_STARTS} Ray actors ended one after the other while they started, at last: {reason}. "
                        "The nodes need aioloader and what the dataset and transforms import; see runtime_env of "
                        "ray.init"
                    )
                )

    def _give_up(self, error: BaseException) -> None:
        self._fail_queued(error)
        # What is with the courier is dropped first: it may be writing to its memory at this moment.
        for place in self._places:
            for given in place.running.values():
                if self._courier is not None and given is not None and given.number not in self._dropping:
                    self._dropping[given.number] = given
                    self._courier.drop(given)

    async def _watch(self) -> None:
        """End actors that do not answer."""
        while True:
            await anyio.sleep(min(1.0, self.timeout / 4))
            now = time.monotonic()
            for place in self._places:
                late_by = now - place.heard_at - self.timeout
                if place.state == "up" and place.running and late_by > 0 and not place.timed_out:
                    place.timed_out = True
                    assert self._courier is not None
                    self._courier.kill(place.key, f"no answer for {self.timeout:g} s")

    # -- for reports of a stall ----------------------------------------------------------------------------------------

    def activity(self) -> object:
        """Something that is another whenever an actor has answered, came or went."""
        return self._answers, self.restarts, [place.state for place in self._places]

    async def workers_now(self) -> list[WorkerState]:
        """What every actor has to do. Which sample it is at is not known here."""
        now = time.monotonic()
        states = []
        for number, place in enumerate(self._places):
            attempts = [attempt for attempt in place.running.values() if attempt is not None]
            outstanding = tuple(
                index for attempt in attempts for index in attempt.part.index_table[INDEX].tolist()
            )
            doing = "working" if attempts else "waiting"
            states.append(
                WorkerState(
                    f"Ray actor {number}",
                    doing if place.state == "up" else "starting",
                    attempts[0].part.batch if attempts else None,
                    None,
                    outstanding,
                    now - place.heard_at,
                )
            )
        return states

    def close(self) -> None:
        """See `aioloader.abc.Executor.close`. Ray ends the actors' processes, shortly after they were told to leave."""
        if self._closed:
            return
        self._closed = True
        if self._courier is not None:
            self._courier.close(_LEAVE_S)
