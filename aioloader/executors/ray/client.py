"""All calls to Ray, in a separate thread: some of them block, and the event loop must stay free.

Only this thread reads from and writes to the memory of chunks in flight, and it does its jobs in order. So it does not
touch a dropped chunk any more as soon as the job that drops it is done.
"""

from __future__ import annotations

import queue
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aioloader.errors import MissingPackageError, WorkerError
from aioloader.executors.process.worker import read_error
from aioloader.executors.ray.messages import pack_request, write_rows
from aioloader.executors.ray.worker import RayWorker
from aioloader.executors.retry import Outcome, UnsendableSamples, WorkerDeath

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioloader.abc import SlabMemory
    from aioloader.executors.pool_base import Attempt


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
