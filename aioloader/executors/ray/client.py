"""Everything that is said to Ray, in a thread of its own: some of its calls block, and the event loop must stay free.

The thread alone reads from and writes to the memory of chunks that are under way, and works off its jobs in order. So a
chunk that was dropped is touched no more as soon as the job that drops it is done.
"""

from __future__ import annotations

import queue
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from aioloader.errors import WorkerError
from aioloader.executors.process.wire import unsendable
from aioloader.executors.process.worker import read_error
from aioloader.executors.ray.messages import pack_parcel, write_rows
from aioloader.executors.ray.worker import RayWorker
from aioloader.executors.retry import Attempt, Died, Unreadable

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioloader.executors.shared_memory import SlabMemory
    from aioloader.foundation.types import ChunkResult

__all__ = ("RayClient", "ray_in_use")


def ray_in_use() -> Any:
    """The module of Ray, which is connected to a cluster.

    Raises:
        ImportError: Ray is not installed.
        WorkerError: it is not connected.
    """
    try:
        import ray
    except ImportError as error:
        raise ImportError("RayExecutor needs Ray: pip install 'aioloader[ray]'") from error
    if not ray.is_initialized():
        raise WorkerError(
            "Ray is not initialised in this process, so there is no cluster to work on: call ray.init() first, or "
            "ray.init(address='auto') on a node of a running cluster"
        )
    return ray


def _in_short(error: BaseException) -> str:
    """What an error of Ray says, without the pages that follow."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [*lines[:1], *[line for line in lines[1:] if line.startswith("The actor")]]
    return f"{type(error).__name__}: {' '.join(told)[:400]}" if told else type(error).__name__


def _not_loaded(cause: BaseException) -> WorkerError:
    error = WorkerError(
        f"a Ray actor cannot load the dataset and transforms: {type(cause).__name__}: {cause}; what they need must be "
        "importable on the nodes, see runtime_env of ray.init"
    )
    error.__cause__ = cause
    return error


class RayClient:
    """Starts actors, sends them chunks and takes what comes back.

    Args:
        tell: called with every event, from the courier's thread: ("ready", key), ("failed", key, error) where the
            program cannot be loaded, ("lost", key, reason), ("done", key, number, outcome), ("refused", key, number,
            errors, error) for a chunk with samples that cannot be pickled, ("free", key, number) for one that was
            dropped before, ("dropped", number) and ("broken", error).
        program: the pickled program.
        memory: where the chunks' bytes and rows lie.
        options: of the actors, see ``ray.remote``.
    """

    def __init__(
        self, tell: Callable[..., None], program: bytes, memory: SlabMemory, options: dict[str, Any]
    ) -> None:
        self._tell = tell
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

    def start(self, key: int) -> None:
        """Start an actor."""
        self._jobs.put((self._start, (key,)))

    def send(self, key: int, attempt: Attempt) -> None:
        """Give an actor a chunk."""
        self._jobs.put((self._send, (key, attempt)))

    def drop(self, attempt: Attempt) -> None:
        """Nobody wants a chunk any more: leave its memory alone."""
        self._jobs.put((self._drop, (attempt.number,)))

    def kill(self, key: int, reason: str) -> None:
        """End an actor."""
        self._jobs.put((self._lose, (key, reason)))

    def close(self, timeout_s: float) -> None:
        """End all actors; waits so long at most. From any thread."""
        self._jobs.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s)

    # -- in the courier's thread -------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            do, args = job
            try:
                do(*args)
            except Exception as error:
                self._tell("broken", error)
            del job, do, args  # what came back keeps memory of Ray's store
        for key in list(self._actors):
            self._end(key)
        self._out.clear()
        self._waiting.clear()
        self._program_ref = None

    def _start(self, key: int) -> None:
        ray = ray_in_use()
        if self._class is None:
            self._class = ray.remote(**self._options)(RayWorker)
            self._program_ref = ray.put(self._program)
        actor = self._actors[key] = self._class.remote()
        self._await(actor.load.remote(self._program_ref), self._loaded, key)

    def _await(self, ref: Any, then: Callable[..., None], *args: Any) -> None:
        """Have `then(future, *args)` done once a reference is resolved."""
        future = ref.future()
        self._waiting.add(future)
        # It is called in a thread of Ray's.
        future.add_done_callback(lambda done: self._jobs.put((then, (done, *args))))

    def _loaded(self, done: Any, key: int) -> None:
        self._waiting.discard(done)
        if key not in self._actors:
            return
        error = done.exception()
        if error is not None:
            self._lose(key, _in_short(error))
        elif (blob := done.result()) is not None:
            self._tell("failed", key, _not_loaded(read_error(blob)))
        else:
            self._tell("ready", key)

    def _send(self, key: int, attempt: Attempt) -> None:
        actor = self._actors.get(key)
        if actor is None:
            return  # it was lost, which the executor is told, and this chunk with it
        self._out[attempt.number] = (key, attempt)
        try:
            parcel = pack_parcel(attempt.part, self._memory)
        except Exception as error:
            if attempt.part.samples is None:
                raise
            del self._out[attempt.number]
            self._tell("refused", key, attempt.number, unsendable(attempt.part.samples), error)
            return
        # One argument each: arrays go to the object store, where they need no copy.
        self._await(actor.run.remote(*parcel), self._take, key, attempt.number)

    def _take(self, done: Any, key: int, number: int) -> None:
        self._waiting.discard(done)
        if key not in self._actors:
            return
        from ray import exceptions

        error = done.exception()
        if isinstance(
            error, (exceptions.RayActorError, exceptions.WorkerCrashedError, exceptions.NodeDiedError)
        ):
            self._lose(key, _in_short(error))
            return
        _, attempt = self._out.pop(number, (key, None))
        if attempt is None:
            self._tell("free", key, number)
            return
        outcome: ChunkResult | Died | Unreadable | BaseException
        if error is None:
            try:
                outcome = write_rows(done.result(), attempt.part, self._memory)
            except BaseException as ended:
                outcome = ended
        elif isinstance(error, exceptions.ObjectLostError):
            outcome = Died(None, None, False)  # the result was lost on its way: it is made again
        else:
            outcome = WorkerError(f"a chunk could not be run by Ray: {_in_short(error)}")
            outcome.__cause__ = error
        self._tell("done", key, number, outcome)

    def _drop(self, number: int) -> None:
        # What is not out any more was told of, or is lost with its actor.
        if self._out.pop(number, None) is not None:
            self._tell("dropped", number)

    def _lose(self, key: int, reason: str) -> None:
        if key not in self._actors:
            return
        self._end(key)
        for number in [number for number, (owner, _) in self._out.items() if owner == key]:
            del self._out[number]
        self._tell("lost", key, reason)

    def _end(self, key: int) -> None:
        actor = self._actors.pop(key)
        with suppress(Exception):  # Ray may be gone, and its actors with it
            ray_in_use().kill(actor, no_restart=True)
