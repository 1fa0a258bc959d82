"""Supervised worker processes: a worker that dies is replaced, and the samples of its unanswered chunks run again.

Each worker is a fresh interpreter with one private socket pair and the slab region's descriptor; nothing is shared
between workers, so the death of one cannot hang another. The program is sent by value, so the caller's ``__main__`` is
never imported.

`aioloader.executors.pool_base` assigns chunks to the workers, `aioloader.executors.retry` decides which samples run
again after a death.
"""

from __future__ import annotations

import contextlib
import functools
import select
import socket
import sys
import threading
import time
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import anyio
import cloudpickle
import numpy as np

from aioloader.errors import LoaderClosedError, WorkerError
from aioloader.executors.pool_base import CLOSE_S, OUTSTANDING, Attempt, PoolExecutor, WorkerHandle
from aioloader.executors.process.child import (
    ChildProcess,
    end_all,
    import_aliases,
    read_stacks,
    sent_program,
)
from aioloader.executors.process.messages import encode
from aioloader.executors.process.parts import PartBuffers
from aioloader.executors.process.worker import (
    CANCELLED,
    CURRENT,
    PLACE,
    STAGE,
    chunk_fields,
    pack_value,
    read_error,
    stage_names,
    unpack_value,
)
from aioloader.executors.retry import Outcome, UnreadableResult, UnsendableSamples, WorkerDeath
from aioloader.executors.shared_memory import MAX_WORKERS, control_array
from aioloader.foundation.concurrency import Notification, deferred, read_each
from aioloader.foundation.pytree import flatten
from aioloader.foundation.threads import Threads, ThreadsClosedError
from aioloader.foundation.types import INDEX, Chunk, ChunkResult, Failure, IntArray, WorkerState

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Awaitable, Callable, Sequence

    from aioloader.abc import Program, SlabMemory
    from aioloader.executors.process.fork import ForkedProcess
    from aioloader.executors.process.pool import WorkerPool
    from aioloader.executors.sent_memory import SentObject

_START_S = 60.0  # a worker that is still importing is not stuck
_FAILED_STARTS = 3
_KILLED_STARTS = 50
_RECEIVE_BYTES = 1 << 18
# A larger copy is made in a thread, which costs 0.1 ms.
_MOST_COPIED = 1 << 20
_CLOSED_AT_START = "the loader was closed while its workers were being started"
# A command line tool may end the program at a broken pipe (SIGPIPE); the end of a worker must not do that.
_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)


def _nbytes(samples: Sequence[Any]) -> int:
    """Return the bytes of the arrays in samples."""
    return sum(leaf.nbytes for leaf in flatten(samples)[1] if isinstance(leaf, np.ndarray))


def _copied_nbytes(chunk: Chunk, packed: tuple[bytes, list[Any], int] | None) -> int:
    """Return the bytes of a result that are copied out of the slab memory."""
    if packed is None or chunk.custom_collate or chunk.keeps_spill:
        return 0
    return sum(place[1] for place in packed[1] if isinstance(place, tuple))


def _has_retired(child: ChildProcess, deadline: float) -> bool:
    """Wait until a process has retired, `deadline` (monotonic seconds) at the latest; return whether it has."""
    assert child.sock is not None
    waiting = select.poll()
    waiting.register(child.sock, select.POLLIN)
    while child.retiring and (left := deadline - time.monotonic()) > 0:
        waiting.poll(1000 * left)
        try:
            data = child.sock.recv(_RECEIVE_BYTES)
        except (BlockingIOError, InterruptedError):
            continue
        except OSError:
            return False
        if not data:
            return False
        for _ in child.messages(data):
            pass
    return not child.retiring


class ProcessHandle(WorkerHandle):
    """One place in the pool, and the messages to and from the process in it.

    Attributes:
        slot: row of the control memory.
        child: the process.
        killed_starts: processes in this place that were killed one after the other before they were ready.
        received: messages of the process so far.
        progress: `progress_token` when the worker was last checked.
        parts: large buffers of the next answer.
        large: functions that make large copies in a thread: of samples to be sent, and of results.
        more_large: set when one was added to `large`, and when `read_all` changes.
        read_all: the worker is gone, and all its messages were read.
    """

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.child = ChildProcess()
        self.killed_starts = 0
        super().__init__()

    def clear(self) -> None:
        super().clear()
        self.child.clear()
        self.received = 0
        self.progress: tuple[int, int, int] = (0, 0, 0)
        self.parts = PartBuffers()
        self.large: deque[Callable[[], Awaitable[None]]] = deque()
        self.more_large = Notification()
        self.read_all = False
        self._outbox: deque[memoryview] = deque()
        self._more = Notification()
        self._layouts: set[int] = set()

    @property
    def process(self) -> subprocess.Popen[bytes] | ForkedProcess | None:
        """Return the process; None if none was started."""
        return self.child.process

    @property
    def capacity(self) -> int:
        if self.state != "up" or self.dismissed:
            return 0
        return OUTSTANDING if self.ready else 1

    def start(
        self,
        program: SentObject,
        memory: SlabMemory,
        fds: Sequence[int] = (),
        idle: Callable[[], ChildProcess | None] = lambda: None,
        inherited: Sequence[object] | None = None,
    ) -> None:
        """Start the process (blocking, a few milliseconds) and queue its program.

        Args:
            program: the program.
            memory: the slab memory.
            fds: descriptors that the process needs, besides those of the program.
            idle: returns an idle process that can be taken instead, or None.
            inherited: objects that the process has as a fork of this one; None: it is a new interpreter.
        """
        fds = (*fds, *program.fds)
        while (child := idle()) is not None:
            if child.adopt(self.slot, memory, fds):
                self.child = child
                break
            end_all([child], 0)
        else:
            self.child.start(self.slot, memory, fds, inherited)
        self.active_at = time.monotonic()
        self._post(("setup", list(sys.path), import_aliases(), program.blob, program.places, list(fds)))
        self.state = "up"

    def retire(self) -> bool:
        """Ask the process to release what belongs to this loader. Not while the worker is served.

        Returns:
            False if it cannot be asked, because of its state.
        """
        if self.state != "up" or self.dismissed or self.timed_out or self._outbox:
            return False
        self._post(("retire",))
        self.child.retiring += 1
        return not self._outbox

    def detach(self, deadline: float) -> ChildProcess | None:
        """Return the process that was asked to retire; it belongs to no place any more.

        One that is idle will retire at once, and one that is starting once it has started. Any other one is waited for.

        Args:
            deadline: monotonic seconds until which it is waited for.

        Returns:
            None if it is late, or gone.
        """
        child = self.child
        if self.ready and self.running and not _has_retired(child, deadline):
            return None
        self.child = ChildProcess()
        self.clear()
        return child

    def send(self, attempt: Attempt, samples: tuple[bytes, list[Any]] | None = None) -> None:
        """Send a chunk; `samples` are its packed samples, if it has any."""
        chunk = attempt.part
        layout = chunk.layout
        if layout is not None and layout.number not in self._layouts:
            self._layouts.add(layout.number)
            self._post(("layout", cloudpickle.dumps(layout, protocol=5)))
        self.running[attempt.number] = attempt
        number = -1 if layout is None else layout.number
        table = chunk.index_table.tobytes()
        self._post(("run", attempt.number, attempt.lane, number, table, chunk_fields(chunk), samples))

    def _post(self, message: Any) -> None:
        data = memoryview(encode(message))
        if not self._outbox and self.state == "up":
            data = data[self._write(data) :]
        if data:
            self._outbox.append(data)
            self._more.set()

    def _write(self, data: memoryview) -> int:
        assert self.child.sock is not None
        try:
            return self.child.sock.send(data, _NO_SIGNAL)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            return len(data)  # the worker is gone, which the end of its messages shows

    async def write_all(self) -> None:
        """Write messages that did not fit into the socket at once, as long as the worker lives."""
        assert self.child.sock is not None
        while True:
            while self._outbox:
                rest = self._outbox[0][self._write(self._outbox[0]) :]
                if rest:
                    self._outbox[0] = rest
                    await anyio.wait_writable(self.child.sock)
                else:
                    self._outbox.popleft()
            await self._more.wait()

    async def read_messages(self, receive: Callable[[Any], object]) -> None:
        """Call `receive` with each message of the worker, until the worker is gone."""
        sock = self.child.sock
        assert sock is not None

        def read() -> bool:
            try:
                data = sock.recv(_RECEIVE_BYTES)
            except (BlockingIOError, InterruptedError):
                return True
            except (OSError, ValueError):
                return False
            for message in self.child.messages(data):
                receive(message)
            return bool(data)

        with contextlib.suppress(OSError, ValueError, anyio.ClosedResourceError):
            await read_each(sock, read)

    def request_stack(self) -> None:
        """Ask the process for its stack, which `ChildProcess.read_stack` returns. From the loop's thread."""
        if self.state == "up":
            self._post(("stack", self.child.next_request()))

    def dismiss(self) -> None:
        """Make the process leave; its supervisor sees its end. From the loop's thread."""
        if self.state == "up" and self.child.sock is not None:
            self.dismissed = True
            with contextlib.suppress(OSError):
                self.child.sock.shutdown(socket.SHUT_WR)

    def progress_token(self, control: IntArray) -> tuple[int, int, int]:
        """Return a token that changes on any progress, and is (0, ...) for an idle worker.

        Args:
            control: the control memory.

        Returns:
            the number of the attempt that the worker works on (0: it has none; -1: it is still starting; -2: it has
            not begun one that it has, or has not sent its answer), the place of its sample, and the number of messages.
        """
        current, place = (int(word) for word in control[self.slot, [CURRENT, PLACE]])
        if not self.ready:
            current = -1
        elif not current and self.running and not self.large:  # large copies are made here
            current = -2
        return current, place, self.received

    def worker_state(self, control: IntArray) -> WorkerState:
        """Return the current state, without a stack."""
        if self.process is None:
            return WorkerState(f"worker {self.slot}", "starting")
        current, place, _ = self.progress_token(control)
        working = self.running.get(current)
        # The two words are not read at once: the place may be that of the next chunk.
        begun = working is not None and 0 <= place < len(working.part)
        outstanding: list[int] = []
        for attempt in self.running.values():
            first = place if begun and attempt is working else 0
            outstanding += attempt.part.index_table[INDEX, first:].tolist()
        idle = "waiting" if self.ready else "starting"
        return WorkerState(
            name=f"process {self.process.pid}",
            doing=idle if working is None else "working",
            batch=None if working is None else working.part.batch,
            index=int(working.part.index_table[INDEX, place]) if working is not None and begun else None,
            outstanding=tuple(outstanding),
            seconds=time.monotonic() - self.active_at,
        )

    def reap(self) -> None:
        """End the process and wait for it. Blocking."""
        self.child.reap()
        self.state = "dead"


class ProcessExecutor(PoolExecutor[ProcessHandle]):
    """Executor that runs chunks in worker processes.

    Args:
        workers: number of processes, 1 to 1024.
        timeout: seconds without progress on a sample after which its worker is ended.
        pool: idle processes that are taken before new ones are started, and where the processes go at the end.
        inherited: parts of the program, such as its dataset, that are not sent: the workers are forks of this process,
            and have them. None: the workers are new interpreters, and all is sent.

    Attributes:
        kind: "process".
        maps_files: workers inherit descriptors, so that a program's `maps` work there.
        started: set when all workers have been started, or one cannot be.

    Raises:
        ValueError: `workers` is out of its range, or forks are to come from a pool.
    """

    kind = "process"
    maps_files = True

    def __init__(
        self,
        workers: int,
        timeout: float = 120.0,
        *,
        pool: WorkerPool | None = None,
        inherited: Sequence[object] | None = None,
    ) -> None:
        if not 1 <= workers <= MAX_WORKERS:
            raise ValueError(f"workers must be 1 to {MAX_WORKERS}, got {workers}")
        if pool is not None and inherited is not None:
            raise ValueError("the processes of a pool are not forks: leave pool or inherited out")
        super().__init__(timeout)
        self._inherited = inherited
        self.started = threading.Event()
        self._count = workers
        self._pool = pool
        self._starting = threading.RLock()
        self._admin = Threads(1, "aioloader-admin")
        self._copies = Threads(1, "aioloader-copy")
        self._sent: SentObject | None = None

    @property
    def workers(self) -> int:
        return self._count

    def open(self, program: Program, memory: SlabMemory) -> None:
        self._program = program
        self._raises = program.raises
        self._memory = memory
        self._control = control_array(memory.memory)
        self._stages = stage_names(program)
        self._handles = [ProcessHandle(slot) for slot in range(self._count)]

    @property
    def pids(self) -> list[int]:
        """Return the process numbers of the workers that live now."""
        return [handle.process.pid for handle in self._handles if handle.process is not None]

    def resize(self, workers: int) -> None:
        """Change the number of workers. Surplus workers leave as soon as they have no chunk. In the loop's thread."""
        self._count = workers
        self._handles += [ProcessHandle(slot) for slot in range(len(self._handles), workers)]
        for handle in self._handles[workers:]:
            if not handle.running:
                handle.dismiss()
        self._vacant = None
        self._changed.set()

    @property
    def spills(self) -> bool:
        """Return True: see `aioloader.abc.SpillingExecutor`."""
        return True

    @property
    def failure(self) -> BaseException | None:
        """Return the reason why no worker can be started, or None."""
        return self._fatal

    @property
    def ready(self) -> int:
        """Return the number of workers that have loaded their program."""
        return sum(handle.state == "up" and handle.ready for handle in self._handles[: self._count])

    # -- supervision -----------------------------------------------------------------------------------------------

    async def _supervise(self) -> None:
        async with anyio.create_task_group() as tasks:
            supervised: set[int] = set()

            async def supervise(handle: ProcessHandle) -> None:
                await self._supervise_worker(handle)
                supervised.discard(handle.slot)

            while True:
                for handle in self._handles[: self._count]:
                    if handle.slot not in supervised:
                        supervised.add(handle.slot)
                        tasks.start_soon(deferred(supervise), handle)
                await self._changed.wait()

    async def _supervise_worker(self, handle: ProcessHandle) -> None:
        """Keep one worker alive and exchange messages with it, until the pool is smaller or closed."""
        while not self._closed and self._fatal is None and (handle.slot < self._count or handle.running):
            if handle.state == "none":
                try:
                    await self._admin.run(self._start, handle)
                except ThreadsClosedError:
                    self._give_up(LoaderClosedError(_CLOSED_AT_START))
                    return
                except Exception as error:
                    self._give_up(error)
                    return
                self._assign()
            if handle.state == "up":
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(deferred(handle.write_all))
                    tasks.start_soon(deferred(handle.child.wait_for_end))
                    async with anyio.create_task_group() as copying:
                        copying.start_soon(deferred(self._copy_large), handle)
                        await handle.read_messages(functools.partial(self._receive, handle))
                        handle.read_all = True
                        handle.more_large.set()
                    tasks.cancel_scope.cancel()
                try:
                    await self._admin.run(handle.reap)
                except ThreadsClosedError:  # by `close`, in another thread, which ends the process itself
                    return
            if handle.state == "dead":
                self._handle_death(handle)

    def _start(self, handle: ProcessHandle) -> None:
        try:
            self._start_process(handle)
        except BaseException:
            self.started.set()
            raise
        if all(each.process is not None for each in self._handles[: self._count]):
            self.started.set()

    def _start_process(self, handle: ProcessHandle) -> None:
        if self._sent is None:
            self._sent = sent_program(self._program, self._inherited)
        with self._starting:
            if self._closed:
                self._sent.close()
                raise LoaderClosedError(_CLOSED_AT_START)
            self._control[handle.slot] = 0
            maps = self._program.maps
            fds = () if maps is None else maps.fds
            if self._pool is None:
                handle.start(self._sent, self._memory, fds, inherited=self._inherited)
            else:
                handle.start(self._sent, self._memory, fds, self._pool.take)
            if self._closed:  # by the garbage collector, in this thread
                handle.reap()

    def _receive(self, handle: ProcessHandle, message: Any) -> None:
        kind, *rest = message
        handle.received += 1
        if kind == "ready":
            handle.ready = True
            handle.failed_starts = handle.killed_starts = 0
            self._assign()
        elif kind == "failed":
            cause = read_error(rest[0])
            error = WorkerError(
                f"a worker process cannot load the dataset and transforms: {type(cause).__name__}: {cause}; "
                "what it needs must be importable there, or use executor='thread'"
            )
            error.__cause__ = cause
            self._give_up(error)
        elif kind == "part":
            handle.parts.add(*rest)
        else:
            number, written, failures, packed, *others = rest
            if packed is not None:
                blob, places, needed = packed
                packed = blob, handle.parts.take(places), needed
            attempt = handle.running.get(number)
            if attempt is None:  # all chunks have failed
                return
            fields = (written, failures, packed, *others)
            if _copied_nbytes(attempt.part, packed) > _MOST_COPIED:
                handle.large.append(functools.partial(self._take_large_answer, handle, attempt, fields))
                handle.more_large.set()
            else:
                self._take_answer(handle, number, self._result(attempt.part, *fields))

    def _take_answer(self, handle: ProcessHandle, number: int, outcome: Outcome) -> None:
        self._handle_answer(handle, number, outcome)
        if handle.slot >= self._count and not handle.running:
            handle.dismiss()

    async def _take_large_answer(
        self, handle: ProcessHandle, attempt: Attempt, fields: tuple[Any, ...]
    ) -> None:
        if handle.running.get(attempt.number) is not attempt:
            return
        outcome = await self._copies.run(self._result, attempt.part, *fields)
        if handle.running.get(attempt.number) is attempt:
            self._take_answer(handle, attempt.number, outcome)

    async def _copy_large(self, handle: ProcessHandle) -> None:
        """Make the large copies of a worker's chunks in a thread, until it is gone and all that it sent is taken.

        On cancellation the current copy is made again when the workers are next served.
        """
        while True:
            while not handle.large:
                if handle.read_all:
                    return
                await handle.more_large.wait()
            with contextlib.suppress(
                ThreadsClosedError
            ):  # by `close`, in another thread: nobody waits for the copy
                if not self._closed:
                    await handle.large[0]()
            handle.large.popleft()

    def _result(
        self,
        chunk: Chunk,
        written: bytes,
        failures: list[tuple[int, str, bytes]],
        packed: tuple[bytes, list[Any], int] | None,
        counters: tuple[Any, ...],
        error: bytes | None,
    ) -> Outcome:
        if error is not None:
            return read_error(error)
        result = ChunkResult(written=np.frombuffer(written, dtype=np.int32).tolist())
        result.failures = [Failure(row, stage, read_error(blob)) for row, stage, blob in failures]
        try:
            if packed is not None:
                blob, places, needed = packed
                result.spill_nbytes = -(-needed // len(chunk))
                keep = chunk.custom_collate or chunk.keeps_spill
                buffers = [self._buffer(place, keep, result) for place in places]
                result.values, result.objects, result.batch = unpack_value(blob, buffers)
        except Exception as cause:
            return UnreadableResult(cause)
        result.counters = counters
        return result

    def _buffer(self, place: Any, keep: bool, result: ChunkResult) -> Any:
        if isinstance(place, np.ndarray):
            return place
        if isinstance(place, bytes):
            return bytearray(place)
        offset, nbytes = place
        root = self._memory.array(offset, (nbytes,), np.dtype(np.uint8))
        if not keep:
            return root.copy()  # which lets other threads run, as a copy of bytes does not
        result.roots.append(root)
        return root

    # -- chunks ----------------------------------------------------------------------------------------------------

    def _send(self, handle: ProcessHandle, attempt: Attempt) -> None:
        lanes = {other.lane for other in handle.running.values()}
        attempt.lane = next(lane for lane in range(OUTSTANDING) if lane not in lanes)
        self._control[handle.slot, CANCELLED + attempt.lane] = 0
        samples = attempt.part.samples
        if samples is None:
            handle.send(attempt)
        elif _nbytes(samples) > _MOST_COPIED:
            handle.running[attempt.number] = attempt
            handle.large.append(functools.partial(self._send_large, handle, attempt))
            handle.more_large.set()
        else:
            self._post_samples(handle, attempt, self._pack(attempt))

    def _pack(self, attempt: Attempt) -> tuple[bytes, list[Any]] | UnsendableSamples:
        # Packed at each attempt: a worker that dies then may overwrite the spill.
        samples = attempt.part.samples
        assert samples is not None
        try:
            return pack_value(samples, self._memory.memory, attempt.part.spill)[:2]
        except Exception as error:
            return UnsendableSamples(samples, error)

    def _post_samples(
        self, handle: ProcessHandle, attempt: Attempt, packed: tuple[bytes, list[Any]] | UnsendableSamples
    ) -> None:
        if isinstance(packed, UnsendableSamples):
            handle.running.pop(attempt.number, None)
            self._resolve(attempt, packed)
        else:
            handle.send(attempt, packed)

    async def _send_large(self, handle: ProcessHandle, attempt: Attempt) -> None:
        if handle.running.get(attempt.number) is not attempt:
            return
        packed = await self._copies.run(self._pack, attempt)
        if handle.running.get(attempt.number) is attempt:
            self._post_samples(handle, attempt, packed)
            self._assign()

    def _cancel(self, handle: ProcessHandle, attempt: Attempt) -> None:
        self._control[handle.slot, CANCELLED + attempt.lane] = attempt.number

    # -- death -----------------------------------------------------------------------------------------------------

    def _describe_death(self, handle: ProcessHandle, attempt: Attempt, oldest: bool) -> WorkerDeath:
        current, place, stage = self._control[handle.slot, [CURRENT, PLACE, STAGE]].tolist()
        at: int | Literal["unknown", "between", "queued"] = "queued"
        if attempt.number == current:
            # One that hung before its first sample would hang again.
            at = place if place >= 0 else "unknown" if handle.timed_out else "between"
        elif handle.ready and oldest and not current:
            at = "between"
        child = handle.child
        return WorkerDeath(at, self._stages[stage], child.exit_code, handle.timed_out, child.stack)

    def _count_failed_start(self, handle: ProcessHandle) -> WorkerError | None:
        code = handle.child.exit_code
        if code is not None and code < 0:
            handle.killed_starts += 1
        else:
            handle.failed_starts += 1
        if handle.failed_starts < _FAILED_STARTS and handle.killed_starts < _KILLED_STARTS:
            return None
        return WorkerError(
            f"worker processes exit while they start, last with status {code}; "
            "their messages are on standard error. Try executor='thread'",
            exit_code=code,
        )

    def _fail_running(self, handle: ProcessHandle, error: BaseException) -> None:
        running, handle.running = handle.running, {}
        for attempt in running.values():
            self._resolve(attempt, error)

    async def _end_if_stuck(self, handle: ProcessHandle, now: float) -> None:
        token = handle.progress_token(self._control)
        if handle.progress != token or token[0] == 0:
            handle.progress = token
            handle.active_at = now
        elif now - handle.active_at > self._patience(handle, *token[:2]):
            process = handle.process
            (stack,) = await self._stacks([handle])
            if (
                handle.process is process
                and handle.state == "up"
                and handle.progress_token(self._control) == handle.progress
            ):
                handle.child.stack = stack
                handle.timed_out = True
                handle.child.kill()

    def _patience(self, handle: ProcessHandle, current: int, place: int) -> float:
        """Return the seconds without progress after which a worker is ended."""
        if not handle.ready:
            return max(self.timeout, _START_S)
        attempt = handle.running.get(current)
        if attempt is None or not 0 <= place < len(attempt.part):
            return self.timeout
        return attempt.part.patience_at(place, self.timeout)

    # -- for reports of a stall --------------------------------------------------------------------------------------

    def activity(self) -> object:
        words = self._control[: len(self._handles), [CURRENT, PLACE]].tobytes()
        return words, self.restarts, [handle.ready for handle in self._handles]

    async def workers_now(self) -> list[WorkerState]:
        states = [handle.worker_state(self._control) for handle in self._handles]
        busy = [place for place, state in enumerate(states) if state.doing != "waiting"]
        stacks = await self._stacks([self._handles[place] for place in busy])
        for place, stack in zip(busy, stacks, strict=True):
            states[place] = replace(states[place], stack=stack)
        return states

    async def _stacks(self, handles: Sequence[ProcessHandle]) -> list[str | None]:
        for handle in handles:
            handle.request_stack()
        return await read_stacks([handle.child for handle in handles])

    def close(self) -> None:
        with self._starting:  # a worker that is being started is there afterwards, and ended like the others
            if self._closed:
                return
            self._closed = True
            if self._sent is not None:
                self._sent.close()
        if self._pool is not None and not self._users:
            self._return_processes(self._pool)
        for handle in self._handles:
            # One that still starts has nothing to finish, and its imports would keep the others from leaving.
            if not handle.ready:
                handle.child.kill()
        end_all([handle.child for handle in self._handles], CLOSE_S)
        self._admin.close()
        self._copies.close()
        if self._handles:
            self._control = self._control.copy()  # releases the memory

    def _return_processes(self, pool: WorkerPool) -> None:
        """Return the processes that are idle, or will be soon, to the pool; the others are ended."""
        for handle in self._handles:
            for attempt in handle.running.values():
                self._cancel(handle, attempt)
        # One that could not load its program has loaded half of it.
        whole = [handle for handle in self._handles if handle.ready or self._fatal is None]
        leaving = [handle for handle in whole if handle.retire()]
        deadline = time.monotonic() + CLOSE_S
        for handle in leaving:
            child = handle.detach(deadline)
            if child is not None:
                pool.put(child)
