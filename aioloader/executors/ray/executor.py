"""Executor on the nodes of a Ray cluster.

Each worker is an actor with its own memory. A chunk is sent as numbers and the bytes of its samples, its rows are sent
back; the loader's program is sent once. Ray reports when an actor is gone, and `aioloader.executors.retry` decides
which samples run again. An actor works on its chunks in the order in which they were sent, so one that dies dies of the
first; the sample is not known.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Literal

from aioloader.errors import WorkerError
from aioloader.executors.pool_base import CLOSE_S, Attempt, PoolExecutor, WorkerHandle
from aioloader.executors.process.child import pickled_program
from aioloader.executors.ray.client import RayClient, ray_in_use
from aioloader.executors.retry import WorkerDeath
from aioloader.foundation.concurrency import Notify, loop_notifier
from aioloader.foundation.types import INDEX, ChunkResult, WorkerState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioloader.abc import Program, SlabMemory

_FAILED_STARTS = 5


class ActorHandle(WorkerHandle):
    """One place in the pool; the actor in it may change.

    Attributes:
        key: identifies the actor.
        reason: description of its end.
    """

    def clear(self) -> None:
        super().clear()
        self.key = 0
        self.reason = ""


class RayExecutor(PoolExecutor[ActorHandle]):
    """Executor that runs chunks in actors of the Ray cluster that this process is connected to.

    ::

        ray.init(address="auto")
        loader = aioloader.AsyncDataLoader(dataset, 256, shuffle=True, executor=aioloader.executors.RayExecutor())

    The batches are those of every other executor, bit for bit, where the nodes have the same versions of the libraries
    and the same type of CPU. This process reads the bytes, so only it needs the files; a dataset without a byte part
    (one with nothing but ``__getitem__``) runs whole on the nodes and must find its files there.

    Lost actors are replaced, and the samples of their unanswered chunks run again. While the cluster has no room for a
    new one, the remaining actors do the work.

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
        self._count = workers
        self._num_cpus = num_cpus
        self._resources = dict(resources or {})
        self._keys = itertools.count(1)
        self._inbox: deque[tuple[Any, ...]] = deque()
        self._notify: Notify | None = None
        self._answers = 0
        self._client: RayClient | None = None

    @property
    def workers(self) -> int:
        """Return the number of actors. The first call may ask the cluster.

        Raises:
            MissingPackageError: Ray is not installed.
            WorkerError: it is not initialised.
        """
        if self._count is None:
            free = float(ray_in_use().available_resources().get("CPU", 0))
            self._count = max(1, int(free // (self._num_cpus or 1)))
        return self._count

    def open(self, program: Program, memory: SlabMemory) -> None:
        """Connect to the cluster.

        Raises:
            MissingPackageError, WorkerError: there is no cluster to work on, or the program cannot be pickled.
        """
        if self._client is not None or self._closed:
            raise WorkerError("a RayExecutor serves one loader: make another one for another loader")
        ray_in_use()
        options: dict[str, Any] = {
            "num_cpus": self._num_cpus,
            "resources": self._resources,
            "max_restarts": 0,  # this class decides which samples run again, and where
            "max_task_retries": 0,
            "scheduling_strategy": "SPREAD",
        }
        self._client = RayClient(self._post, pickled_program(program), memory, options)
        self._handles = [ActorHandle() for _ in range(self.workers)]

    # -- supervision ---------------------------------------------------------------------------------------------------

    async def _supervise(self) -> None:
        self._notify = loop_notifier()  # before the inbox is read: later events notify
        while True:
            while self._inbox:
                self._receive(*self._inbox.popleft())
            if self._client is not None and self._fatal is None and not self._closed:
                for handle in self._handles:
                    if handle.state == "none":
                        handle.key = next(self._keys)
                        handle.state = "up"
                        handle.active_at = time.monotonic()
                        self._client.queue(self._client.start, handle.key)
            self._assign()
            await self._changed.wait()

    def _post(self, *event: Any) -> None:
        """Enter an event, from the client's thread."""
        self._inbox.append(event)
        notify = self._notify
        if notify is not None:
            notify(self._changed.set)

    def _receive(self, kind: str, *rest: Any) -> None:
        """Handle an event; see `RayClient`."""
        if kind == "broken":
            (cause,) = rest
            error = WorkerError(f"the Ray cluster cannot be used: {type(cause).__name__}: {cause}")
            error.__cause__ = cause
            self._give_up(error)
            return
        if kind == "dropped":
            attempt = self._ending.get(*rest)
            if attempt is not None:
                # Dropped because its batch was cancelled, or because no worker can be started. The actor is still busy
                # with it.
                self._resolve(attempt, self._fatal or ChunkResult())
            return
        key, *facts = rest
        handle = next((each for each in self._handles if each.key == key), None)
        if handle is None:
            return  # of an actor that was replaced
        handle.active_at = time.monotonic()
        self._answers += 1
        if kind == "ready":
            handle.ready = True
            handle.failed_starts = 0
        elif kind == "failed":
            self._give_up(facts[0])
        elif kind == "lost":
            (handle.reason,) = facts
            self._handle_death(handle)
        elif kind == "free":
            handle.running.pop(facts[0], None)
        else:
            self._handle_answer(handle, *facts)

    # -- chunks ------------------------------------------------------------------------------------------------------

    def _send(self, handle: ActorHandle, attempt: Attempt) -> None:
        assert self._client is not None
        if not handle.running:
            handle.active_at = time.monotonic()
        handle.running[attempt.number] = attempt
        self._client.queue(self._client.send, handle.key, attempt)

    def _cancel(self, handle: ActorHandle, attempt: Attempt) -> None:
        assert self._client is not None
        self._client.queue(self._client.drop, attempt.number)

    # -- death -------------------------------------------------------------------------------------------------------

    def _describe_death(self, handle: ActorHandle, attempt: Attempt, oldest: bool) -> WorkerDeath:
        # An actor works on its chunks in their order.
        at: Literal["unknown", "queued"] = "unknown" if oldest else "queued"
        return WorkerDeath(at, timed_out=handle.timed_out and oldest, reason=handle.reason)

    def _count_failed_start(self, handle: ActorHandle) -> WorkerError | None:
        handle.failed_starts += 1
        if handle.failed_starts < _FAILED_STARTS:
            return None
        return WorkerError(
            f"{_FAILED_STARTS} Ray actors ended one after the other while they started, at last: {handle.reason}. "
            "The nodes need aioloader and what the dataset and transforms import; see runtime_env of ray.init"
        )

    def _fail_running(self, handle: ActorHandle, error: BaseException) -> None:
        # The client drops them first: it may be writing to their memory now.
        for attempt in handle.running.values():
            if not attempt.ended and attempt.number not in self._ending:
                self._ending[attempt.number] = attempt
                self._cancel(handle, attempt)

    async def _end_if_stuck(self, handle: ActorHandle, now: float) -> None:
        if not handle.ready or not handle.running or handle.timed_out:
            return
        oldest = next(iter(handle.running.values()))
        patience = oldest.part.patience_at(None, self.timeout)
        if now - handle.active_at > patience:
            handle.timed_out = True
            assert self._client is not None
            self._client.queue(self._client.kill, handle.key, f"no answer for {patience:g} s")

    # -- for reports of a stall ----------------------------------------------------------------------------------------

    def activity(self) -> object:
        return self._answers, self.restarts, [(handle.state, handle.ready) for handle in self._handles]

    async def workers_now(self) -> list[WorkerState]:
        """Return what every actor has to do. The sample that it makes is not known here."""
        now = time.monotonic()
        states = []
        for number, handle in enumerate(self._handles):
            parts = [attempt.part for attempt in handle.running.values() if not attempt.ended]
            idle = "waiting" if handle.ready else "starting"
            states.append(
                WorkerState(
                    name=f"Ray actor {number}",
                    doing="working" if parts else idle,
                    batch=parts[0].batch if parts else None,
                    outstanding=tuple(index for part in parts for index in part.index_table[INDEX].tolist()),
                    seconds=now - handle.active_at,
                )
            )
        return states

    def close(self) -> None:
        """End the actors. Ray ends their processes shortly afterwards."""
        if self._closed:
            return
        self._closed = True
        if self._client is not None:
            self._client.close(CLOSE_S)
