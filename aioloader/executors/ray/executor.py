"""Executor on the nodes of a Ray cluster.

Each worker is an actor with its own memory. A chunk is sent as numbers and the bytes of its samples, its rows are sent
back; the loader's program is sent once. Ray reports when an actor is gone, and `aioloader.executors.retry` decides
which samples run again. An actor works on its chunks in the order in which they were sent, so one that dies dies of the
first; the sample is not known.

All calls to Ray, in a separate thread: some of them block, and the event loop must stay free.

Only this thread reads from and writes to the memory of chunks in flight, and it does its jobs in order. So it does not
touch a dropped chunk any more as soon as the job that drops it is done.
"""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from aioloader.errors import MissingPackageError, WorkerError
from aioloader.executors.process.child import pickled_program
from aioloader.executors.ray.worker import RayWorker, pack_request, write_rows
from aioloader.executors.retry import Outcome, UnsendableSamples, WorkerDeath
from aioloader.executors.transport import read_error
from aioloader.executors.worker_table import CLOSE_S, Attempt, SupervisedExecutor, WorkerHandle, WorkerTable
from aioloader.foundation.concurrency import Notify, loop_notifier
from aioloader.foundation.types import INDEX, ChunkResult, WorkerState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioloader.abc import Program, SlabMemory


def ray_in_use() -> Any:
    """Return the module of Ray, which is connected to a cluster.

    Raises:
        MissingPackageError: Ray is not installed.
        WorkerError: it is not connected.
    """
    try:
        import ray
    except ImportError as error:
        raise MissingPackageError("ray", what="a RayExecutor needs") from error
    if not ray.is_initialized():
        raise WorkerError(
            "Ray is not initialised in this process, so there is no cluster to work on: call ray.init() first, or "
            "ray.init(address='auto') on a node of a running cluster"
        )
    return ray


def _summary(error: BaseException) -> str:
    """Return the first lines of an error of Ray, without the pages that follow."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first = [*lines[:1], *[line for line in lines[1:] if line.startswith("The actor")]]
    return f"{type(error).__name__}: {' '.join(first)[:400]}" if first else type(error).__name__


def _not_loaded(cause: BaseException) -> WorkerError:
    error = WorkerError(
        f"a Ray actor cannot load the dataset and transforms: {type(cause).__name__}: {cause}; what they need must be "
        "importable on the nodes, see runtime_env of ray.init"
    )
    error.__cause__ = cause
    return error


class RayClient:
    """Client of Ray that starts actors, sends them chunks and receives their answers.

    Args:
        post: called with every event, from the client's thread: ("ready", key), ("failed", key, error) where the
            program cannot be loaded, ("lost", key, reason), ("done", key, number, outcome), ("free", key, number) when
            an actor has finished a chunk that was dropped, ("dropped", number) and ("broken", error).
        program: the pickled program.
        memory: memory of the chunks' bytes and rows.
        options: of the actors, see ``ray.remote``.
    """

    def __init__(
        self, post: Callable[..., None], program: bytes, memory: SlabMemory, options: dict[str, Any]
    ) -> None:
        self._post = post
        self._program = program
        self._memory = memory
        self._options = options
        self._class: Any = None
        self._program_ref: Any = None
        self._actors: dict[int, Any] = {}
        self._out: dict[int, tuple[int, Attempt]] = {}
        self._waiting: set[Any] = set()
        self._jobs: queue.SimpleQueue[tuple[Callable[..., None], tuple[Any, ...]] | None] = (
            queue.SimpleQueue()
        )
        self._thread = threading.Thread(target=self._work, name="aioloader-ray", daemon=True)
        self._thread.start()

    # -- from the loop's thread --------------------------------------------------------------------------------------

    def queue(self, job: Callable[..., None], *args: Any) -> None:
        """Have the client's thread call one of the methods `start`, `send`, `drop` and `kill`."""
        self._jobs.put((job, args))

    def close(self, timeout_s: float) -> None:
        """End all actors; wait `timeout_s` seconds at most. From any thread."""
        self._jobs.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    # -- in the client's thread --------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            do, args = job
            try:
                do(*args)
            except Exception as error:
                self._post("broken", error)
            del job, do, args  # an answer keeps memory of Ray's store
        for key in list(self._actors):
            self._end(key)
        self._out.clear()
        self._waiting.clear()
        self._program_ref = None

    def start(self, key: int) -> None:
        """Start an actor."""
        ray = ray_in_use()
        if self._class is None:
            self._class = ray.remote(**self._options)(RayWorker)
            self._program_ref = ray.put(self._program)
        actor = self._actors[key] = self._class.remote()
        self._await(actor.load.remote(self._program_ref), self._loaded, key)

    def _await(self, ref: Any, then: Callable[..., None], *args: Any) -> None:
        """Call `then(future, *args)` in this thread once a reference is resolved."""
        future = ref.future()
        self._waiting.add(future)
        # The callback is called in a thread of Ray's.
        future.add_done_callback(lambda done: self.queue(then, done, *args))

    def _loaded(self, done: Any, key: int) -> None:
        self._waiting.discard(done)
        if key not in self._actors:
            return
        error = done.exception()
        if error is not None:
            self.kill(key, _summary(error))
        elif (blob := done.result()) is not None:
            self._post("failed", key, _not_loaded(read_error(blob)))
        else:
            self._post("ready", key)

    def send(self, key: int, attempt: Attempt) -> None:
        """Send a chunk to an actor."""
        actor = self._actors.get(key)
        if actor is None:
            return  # it was lost, which was posted, and this chunk with it
        self._out[attempt.number] = (key, attempt)
        try:
            request = pack_request(attempt.part, self._memory)
        except Exception as error:
            if attempt.part.samples is None:
                raise
            del self._out[attempt.number]
            self._post("done", key, attempt.number, UnsendableSamples(attempt.part.samples, error))
            return
        # One argument each: arrays go to the object store, where they need no copy.
        self._await(actor.run.remote(*request), self._take, key, attempt.number)

    def _take(self, done: Any, key: int, number: int) -> None:
        self._waiting.discard(done)
        if key not in self._actors:
            return
        from ray import exceptions

        error = done.exception()
        if isinstance(
            error, (exceptions.RayActorError, exceptions.WorkerCrashedError, exceptions.NodeDiedError)
        ):
            self.kill(key, _summary(error))
            return
        _, attempt = self._out.pop(number, (key, None))
        if attempt is None:
            self._post("free", key, number)
            return
        outcome: Outcome
        if error is None:
            try:
                outcome = write_rows(done.result(), attempt.part, self._memory)
            except BaseException as failure:
                outcome = failure
        elif isinstance(error, exceptions.ObjectLostError):
            outcome = WorkerDeath()  # the result was lost in transit: it is made again
        else:
            outcome = WorkerError(f"a chunk could not be run by Ray: {_summary(error)}")
            outcome.__cause__ = error
        self._post("done", key, number, outcome)

    def drop(self, number: int) -> None:
        """Ignore the answer to a chunk, and touch its memory no more."""
        # A chunk that is not out any more was answered, or was lost with its actor.
        if self._out.pop(number, None) is not None:
            self._post("dropped", number)

    def kill(self, key: int, reason: str) -> None:
        """End an actor, or note that it has ended."""
        if key not in self._actors:
            return
        self._end(key)
        for number in [number for number, (owner, _) in self._out.items() if owner == key]:
            del self._out[number]
        self._post("lost", key, reason)

    def _end(self, key: int) -> None:
        actor = self._actors.pop(key)
        with suppress(Exception):  # Ray may be gone, and its actors with it
            ray_in_use().kill(actor, no_restart=True)


_FAILED_STARTS = 5


class ActorHandle(WorkerHandle):
    """Place of an actor.

    Args:
        slot: the number of the place.
        client: sends to the actor.
        timeout: seconds without an answer after which an actor that has work is ended.

    Attributes:
        key: identifies the actor.
        reason: description of its end.
    """

    def __init__(self, slot: int, client: RayClient, timeout: float) -> None:
        self._client = client
        self._timeout = timeout
        super().__init__(slot)

    def clear(self) -> None:
        super().clear()
        self.key = 0
        self.reason = ""

    def start(self, key: int) -> None:
        """Start an actor."""
        self.key = key
        self.state = "up"
        self.active_at = time.monotonic()
        self._client.queue(self._client.start, key)

    def send(self, attempt: Attempt) -> None:
        if not self.running:
            self.active_at = time.monotonic()
        self.running[attempt.number] = attempt
        self._client.queue(self._client.send, self.key, attempt)

    def cancel(self, attempt: Attempt) -> None:
        self._client.queue(self._client.drop, attempt.number)

    async def end_if_stuck(self, now: float) -> None:
        if not self.ready or not self.running or self.timed_out:
            return
        oldest = next(iter(self.running.values()))
        patience = oldest.part.patience_at(None, self._timeout)
        if now - self.active_at > patience:
            self.timed_out = True
            self._client.queue(self._client.kill, self.key, f"no answer for {patience:g} s")

    def describe_death(self, attempt: Attempt, oldest: bool) -> WorkerDeath:
        """Return what the actor's end means for one of its chunks; `oldest`: the one that it was sent first."""
        # An actor works on its chunks in their order.
        at: Literal["unknown", "queued"] = "unknown" if oldest else "queued"
        return WorkerDeath(at, timed_out=self.timed_out and oldest, reason=self.reason)

    def count_failed_start(self) -> WorkerError | None:
        """Count an actor that ended before it was ready; return the error if no more are to be started."""
        self.failed_starts += 1
        if self.failed_starts < _FAILED_STARTS:
            return None
        return WorkerError(
            f"{_FAILED_STARTS} Ray actors ended one after the other while they started, at last: {self.reason}. "
            "The nodes need aioloader and what the dataset and transforms import; see runtime_env of ray.init"
        )

    def worker_state(self, now: float) -> WorkerState:
        """Return what the actor has to do. The sample that it makes is not known here."""
        parts = [attempt.part for attempt in self.running.values() if not attempt.ended]
        idle = "waiting" if self.ready else "starting"
        return WorkerState(
            name=f"Ray actor {self.slot}",
            doing="working" if parts else idle,
            batch=parts[0].batch if parts else None,
            outstanding=tuple(index for part in parts for index in part.index_table[INDEX].tolist()),
            seconds=now - self.active_at,
        )


class RayExecutor(SupervisedExecutor[ActorHandle]):
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
        self._table = WorkerTable(timeout)
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
        if self._client is not None or self._table.closed:
            raise WorkerError("a RayExecutor serves one loader: make another one for another loader")
        ray_in_use()
        options: dict[str, Any] = {
            "num_cpus": self._num_cpus,
            "resources": self._resources,
            "max_restarts": 0,  # this class decides which samples run again, and where
            "max_task_retries": 0,
            "scheduling_strategy": "SPREAD",
        }
        table = self._table
        client = self._client = RayClient(self._post, pickled_program(program), memory, options)
        table.count = self.workers
        table.handles = [ActorHandle(slot, client, table.timeout) for slot in range(table.count)]

    # -- supervision ---------------------------------------------------------------------------------------------------

    async def _supervise(self) -> None:
        self._notify = loop_notifier()  # before the inbox is read: later events notify
        table = self._table
        while True:
            while self._inbox:
                self._receive(*self._inbox.popleft())
            for handle in table.handles:
                if handle.state == "none" and table.wants(handle):
                    handle.start(next(self._keys))
            table.assign()
            await table.changed.wait()

    def _post(self, *event: Any) -> None:
        """Enter an event, from the client's thread."""
        self._inbox.append(event)
        notify = self._notify
        if notify is not None:
            notify(self._table.changed.set)

    def _receive(self, kind: str, *rest: Any) -> None:
        """Handle an event; see `RayClient`."""
        table = self._table
        if kind == "broken":
            (cause,) = rest
            error = WorkerError(f"the Ray cluster cannot be used: {type(cause).__name__}: {cause}")
            error.__cause__ = cause
            self._give_up(error)
            return
        if kind == "dropped":
            attempt = table.ending.get(*rest)
            if attempt is not None:
                # Dropped because its batch was cancelled, or because no worker can be started. The actor is still busy
                # with it.
                table.resolve(attempt, table.failure or ChunkResult())
            return
        key, *facts = rest
        handle = next((each for each in table.handles if each.key == key), None)
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
            failure = None if handle.ready or handle.dismissed else handle.count_failed_start()
            table.lost(handle, handle.describe_death)
            if failure is not None:
                self._give_up(failure)
        elif kind == "free":
            handle.running.pop(facts[0], None)
        else:
            table.answer(handle, *facts)

    def _give_up(self, error: BaseException) -> None:
        """Fail all chunks: no worker can be started. The client drops them first: it may be writing to their memory."""
        for handle, attempt in self._table.give_up(error):
            if not attempt.ended and attempt.number not in self._table.ending:
                self._table.cancel(handle, attempt)

    # -- for reports of a stall ----------------------------------------------------------------------------------------

    def activity(self) -> object:
        handles = self._table.handles
        return self._answers, self.restarts, [(handle.state, handle.ready) for handle in handles]

    async def workers_now(self) -> list[WorkerState]:
        now = time.monotonic()
        return [handle.worker_state(now) for handle in self._table.handles]

    def close(self) -> None:
        """End the actors. Ray ends their processes shortly afterwards."""
        if self._table.closed:
            return
        self._table.closed = True
        if self._client is not None:
            self._client.close(CLOSE_S)
