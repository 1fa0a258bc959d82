"""The life of a worker process as the loader sees it: its start, the messages to and from it, and its end.

Each worker is a fresh interpreter, or a fork, with one private socket pair and the slab region's descriptor; nothing is
shared between workers, so the death of one cannot hang another. `aioloader.executors.process.child` has what the system
does for it, `aioloader.executors.process.worker` the other end of the socket.
"""

from __future__ import annotations

import contextlib
import functools
import select
import socket
import sys
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import anyio
import cloudpickle
import numpy as np

from aioloader.errors import LoaderClosedError, WorkerError
from aioloader.executors.process.child import ChildProcess, end_all, import_aliases, read_stacks
from aioloader.executors.process.messages import (
    CANCELLED,
    CURRENT,
    PLACE,
    STAGE,
    PartBuffers,
    chunk_fields,
    encode,
    pack_value,
    unpack_value,
)
from aioloader.executors.retry import Outcome, UnreadableResult, UnsendableSamples, WorkerDeath
from aioloader.executors.transport import read_error
from aioloader.executors.worker_table import OUTSTANDING, Attempt, WorkerHandle, WorkerTable
from aioloader.foundation.concurrency import Notification, deferred, read_each
from aioloader.foundation.pytree import flatten
from aioloader.foundation.threads import ThreadsClosedError
from aioloader.foundation.types import INDEX, Chunk, ChunkResult, Failure, IntArray, WorkerState

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Awaitable, Callable, Sequence

    from aioloader.abc import SlabMemory
    from aioloader.executors.process.child import ForkedProcess
    from aioloader.executors.transport import SentObject
    from aioloader.foundation.threads import Threads

CLOSED_AT_START = "the loader was closed while its workers were being started"
_START_S = 60.0  # a worker that is still importing is not stuck
_FAILED_STARTS = 3
_KILLED_STARTS = 50
_RECEIVE_BYTES = 1 << 18
# A larger copy is made in a thread, which costs 0.1 ms.
_MOST_COPIED = 1 << 20
# A command line tool may end the program at a broken pipe (SIGPIPE); the end of a worker must not do that.
_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)


@dataclass(slots=True)
class SharedParts:
    """Parts that the worker processes of one loader share.

    Attributes:
        table: their table.
        memory: the slab memory.
        control: its control words, a row for each worker; see `aioloader.executors.process.messages`.
        stages: names of the stages, see `stage_names`.
        start: starts the worker of a place (blocking).
        admin: thread that starts and reaps workers.
        copies: thread that makes large copies.
    """

    table: WorkerTable[ProcessHandle]
    memory: SlabMemory
    control: IntArray
    stages: list[str]
    start: Callable[[ProcessHandle], None]
    admin: Threads
    copies: Threads


class Outbox:
    """Messages to a worker: sent at once, or kept until its socket has room.

    Attributes:
        waiting: bytes that were not sent yet.
        layouts: numbers of the layouts that the worker has.
    """

    def __init__(self) -> None:
        self.waiting: deque[memoryview] = deque()
        self.layouts: set[int] = set()
        self._more = Notification()

    def post(self, message: Any, sock: socket.socket | None) -> None:
        """Send a message, or keep it; without a socket it is kept."""
        data = memoryview(encode(message))
        if sock is not None and not self.waiting:
            data = data[_write(sock, data) :]
        if data:
            self.waiting.append(data)
            self._more.set()

    async def write_all(self, sock: socket.socket) -> None:
        """Write messages that did not fit into the socket at once, as long as the worker lives."""
        while True:
            while self.waiting:
                rest = self.waiting[0][_write(sock, self.waiting[0]) :]
                if rest:
                    self.waiting[0] = rest
                    await anyio.wait_writable(sock)
                else:
                    self.waiting.popleft()
            await self._more.wait()


def _write(sock: socket.socket, data: memoryview) -> int:
    try:
        return sock.send(data, _NO_SIGNAL)
    except (BlockingIOError, InterruptedError):
        return 0
    except OSError:
        return len(data)  # the worker is gone, which the end of its messages shows


class LargeCopies:
    """Large copies of a worker's chunks, which are made in a thread, one after the other.

    Attributes:
        waiting: functions that make them; the first one is being made.
        closed: the worker is gone, and all its messages were read.
    """

    def __init__(self) -> None:
        self.waiting: deque[Callable[[], Awaitable[None]]] = deque()
        self.closed = False
        self._more = Notification()

    def put(self, copy: Callable[[], Awaitable[None]]) -> None:
        """Have a copy made."""
        self.waiting.append(copy)
        self._more.set()

    def close(self) -> None:
        """End `run` once nothing is left."""
        self.closed = True
        self._more.set()

    async def run(self, table: WorkerTable[ProcessHandle]) -> None:
        """Make the copies until the worker is gone and all that it sent is taken.

        On cancellation the current copy is made again when the workers are next served.
        """
        while True:
            while not self.waiting:
                if self.closed:
                    return
                await self._more.wait()
            with contextlib.suppress(
                ThreadsClosedError
            ):  # by `close`, in another thread: nobody waits for the copy
                if not table.closed:
                    await self.waiting[0]()
            self.waiting.popleft()


class ProcessHandle(WorkerHandle):
    """Place of a worker process.

    Attributes:
        child: the process.
        killed_starts: processes in this place that were killed one after the other before they were ready.
        received: messages of the process so far.
        progress: `progress_token` when the worker was last checked.
        parts: large buffers of the next answer.
        copies: large copies: of samples to be sent, and of results.
    """

    def __init__(self, slot: int, shared: SharedParts) -> None:
        self.child = ChildProcess()
        self.killed_starts = 0
        self._shared = shared
        super().__init__(slot)

    def clear(self) -> None:
        super().clear()
        self.child.clear()
        self.received = 0
        self.progress: tuple[int, int, int] = (0, 0, 0)
        self.parts = PartBuffers()
        self.copies = LargeCopies()
        self._outbox = Outbox()

    @property
    def process(self) -> subprocess.Popen[bytes] | ForkedProcess | None:
        """Return the process; None if none was started."""
        return self.child.process

    @property
    def capacity(self) -> int:
        if self.state != "up" or self.dismissed or self.copies.closed:
            return 0
        return OUTSTANDING if self.ready else 1

    # -- life ------------------------------------------------------------------------------------------------------

    async def live(self) -> None:
        """Keep a worker in this place and exchange messages with it, as long as one belongs here."""
        shared = self._shared
        while shared.table.wants(self):
            if self.state == "none":
                try:
                    await shared.admin.run(shared.start, self)
                except ThreadsClosedError:
                    self._give_up(LoaderClosedError(CLOSED_AT_START))
                    return
                except Exception as error:
                    self._give_up(error)
                    return
                shared.table.assign()
            if self.state == "up":
                await self._serve()
                try:
                    await shared.admin.run(self.reap)
                except ThreadsClosedError:  # by `close`, in another thread, which ends the process itself
                    return
            if self.state == "dead":
                failure = None if self.ready or self.dismissed else self._count_failed_start()
                shared.table.lost(self, self._describe_death)
                if failure is not None:
                    self._give_up(failure)

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

    async def _serve(self) -> None:
        """Exchange messages with the worker until it is gone."""
        async with anyio.create_task_group() as tasks:
            assert self.child.sock is not None
            tasks.start_soon(deferred(self._outbox.write_all), self.child.sock)
            tasks.start_soon(deferred(self.child.wait_for_end))
            async with anyio.create_task_group() as copying:
                copying.start_soon(deferred(self.copies.run), self._shared.table)
                await self._read_messages()
                self.copies.close()
                self._shared.table.assign()
            tasks.cancel_scope.cancel()

    async def end_if_stuck(self, now: float) -> None:
        if self.timed_out:  # its end takes long on a busy machine, and it answers no more
            return
        token = self.progress_token()
        if self.progress != token or token[0] == 0:
            self.progress = token
            self.active_at = now
        elif now - self.active_at > self._patience(*token[:2]):
            process = self.process
            (stack,) = await stacks_of([self])
            if self.process is process and self.state == "up" and self.progress_token() == self.progress:
                self.child.stack = stack
                self.timed_out = True
                self.child.kill()

    def _patience(self, current: int, place: int) -> float:
        """Return the seconds without progress after which the worker is ended."""
        timeout = self._shared.table.timeout
        if not self.ready:
            return max(timeout, _START_S)
        attempt = self.running.get(current)
        if attempt is None or not 0 <= place < len(attempt.part):
            return timeout
        return attempt.part.patience_at(place, timeout)

    def dismiss(self) -> None:
        """Make the process leave; its supervisor sees its end. From the loop's thread."""
        if self.state == "up" and self.child.sock is not None:
            self.dismissed = True
            with contextlib.suppress(OSError):
                self.child.sock.shutdown(socket.SHUT_WR)

    def reap(self) -> None:
        """End the process and wait for it. Blocking."""
        self.child.reap()
        self.state = "dead"

    def _describe_death(self, attempt: Attempt, oldest: bool) -> WorkerDeath:
        current, place, stage = self._shared.control[self.slot, [CURRENT, PLACE, STAGE]].tolist()
        at: int | Literal["unknown", "between", "queued"] = "queued"
        if attempt.number == current:
            # One that hung before its first sample would hang again.
            at = place if place >= 0 else "unknown" if self.timed_out else "between"
        elif self.ready and oldest and not current:
            at = "between"
        child = self.child
        return WorkerDeath(at, self._shared.stages[stage], child.exit_code, self.timed_out, child.stack)

    def _count_failed_start(self) -> WorkerError | None:
        code = self.child.exit_code
        if code is not None and code < 0:
            self.killed_starts += 1
        else:
            self.failed_starts += 1
        if self.failed_starts < _FAILED_STARTS and self.killed_starts < _KILLED_STARTS:
            return None
        return WorkerError(
            f"worker processes exit while they start, last with status {code}; "
            "their messages are on standard error. Try executor='thread'",
            exit_code=code,
        )

    def _give_up(self, error: BaseException) -> None:
        """Fail all chunks of the table: no worker can be started."""
        table = self._shared.table
        for handle, attempt in table.give_up(error):
            del handle.running[attempt.number]
            table.resolve(attempt, table.failure or error)

    def retire(self) -> bool:
        """Ask the process to release what belongs to this loader. Not while the worker is served.

        Returns:
            False if it cannot be asked, because of its state.
        """
        if self.state != "up" or self.dismissed or self.timed_out or self._outbox.waiting:
            return False
        self._post(("retire",))
        self.child.retiring += 1
        return not self._outbox.waiting

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

    # -- messages to the worker --------------------------------------------------------------------------------------

    def send(self, attempt: Attempt) -> None:
        lanes = list(range(OUTSTANDING))
        for other in self.running.values():
            lanes.remove(other.lane)
        attempt.lane = lanes[0]
        self._shared.control[self.slot, CANCELLED + attempt.lane] = 0
        samples = attempt.part.samples
        if samples is None:
            self._post_chunk(attempt)
        elif _nbytes(samples) > _MOST_COPIED:
            self.running[attempt.number] = attempt
            self.copies.put(functools.partial(self._send_large, attempt))
        else:
            self._post_samples(attempt, self._pack(attempt))

    def cancel(self, attempt: Attempt) -> None:
        self._shared.control[self.slot, CANCELLED + attempt.lane] = attempt.number

    def _post_chunk(self, attempt: Attempt, samples: tuple[bytes, list[Any]] | None = None) -> None:
        """Send a chunk; `samples` are its packed samples, if it has any."""
        chunk = attempt.part
        layout = chunk.layout
        if layout is not None and layout.number not in self._outbox.layouts:
            self._outbox.layouts.add(layout.number)
            self._post(("layout", cloudpickle.dumps(layout, protocol=5)))
        self.running[attempt.number] = attempt
        number = -1 if layout is None else layout.number
        table = chunk.index_table.tobytes()
        self._post(("run", attempt.number, attempt.lane, number, table, chunk_fields(chunk), samples))

    def _post(self, message: Any) -> None:
        self._outbox.post(message, self.child.sock if self.state == "up" else None)

    def _pack(self, attempt: Attempt) -> tuple[bytes, list[Any]] | UnsendableSamples:
        # Packed at each attempt: a worker that dies then may overwrite the spill.
        samples = attempt.part.samples
        assert samples is not None
        try:
            return pack_value(samples, self._shared.memory.memory, attempt.part.spill)[:2]
        except Exception as error:
            return UnsendableSamples(samples, error)

    def _post_samples(self, attempt: Attempt, packed: tuple[bytes, list[Any]] | UnsendableSamples) -> None:
        if isinstance(packed, UnsendableSamples):
            self.running.pop(attempt.number, None)
            self._shared.table.resolve(attempt, packed)
        else:
            self._post_chunk(attempt, packed)

    async def _send_large(self, attempt: Attempt) -> None:
        if self.running.get(attempt.number) is not attempt:
            return
        packed = await self._shared.copies.run(self._pack, attempt)
        if self.running.get(attempt.number) is attempt:
            self._post_samples(attempt, packed)
            self._shared.table.assign()

    # -- messages of the worker --------------------------------------------------------------------------------------

    async def _read_messages(self) -> None:
        """Take the messages of the worker until it is gone."""
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
                self._receive(*message)
            return bool(data)

        with contextlib.suppress(OSError, ValueError, anyio.ClosedResourceError):
            await read_each(sock, read)

    def _receive(self, kind: str, *rest: Any) -> None:
        self.received += 1
        if kind == "ready":
            self.ready = True
            self.failed_starts = self.killed_starts = 0
            self._shared.table.assign()
        elif kind == "failed":
            cause = read_error(rest[0])
            error = WorkerError(
                f"a worker process cannot load the dataset and transforms: {type(cause).__name__}: {cause}; "
                "what it needs must be importable there, or use executor='thread'"
            )
            error.__cause__ = cause
            self._give_up(error)
        elif kind == "part":
            self.parts.add(*rest)
        else:
            self._receive_result(*rest)

    def _receive_result(
        self,
        number: int,
        written: bytes,
        failures: list[tuple[int, str, bytes]],
        packed: tuple[bytes, list[Any], int] | None,
        counters: tuple[Any, ...],
        error: bytes | None,
    ) -> None:
        nbytes = 0
        if packed is not None:
            blob, places, needed = packed
            packed = blob, self.parts.take(places), needed
        attempt = self.running.get(number)
        if attempt is None:  # all chunks have failed
            return
        chunk = attempt.part
        if packed is not None and not _keeps(chunk):
            nbytes = sum(place[1] for place in packed[1] if isinstance(place, tuple))
        read = functools.partial(
            read_result, self._shared.memory, chunk, written, failures, packed, counters, error
        )
        if nbytes > _MOST_COPIED:
            self.copies.put(functools.partial(self._take_large, attempt, read))
        else:
            self._take(number, read())

    def _take(self, number: int, outcome: Outcome) -> None:
        table = self._shared.table
        table.answer(self, number, outcome)
        if self.slot >= table.count and not self.running:
            self.dismiss()

    async def _take_large(self, attempt: Attempt, read: Callable[[], Outcome]) -> None:
        if self.running.get(attempt.number) is not attempt:
            return
        outcome = await self._shared.copies.run(read)
        if self.running.get(attempt.number) is attempt:
            self._take(attempt.number, outcome)

    # -- for reports of a stall --------------------------------------------------------------------------------------

    def request_stack(self) -> None:
        """Ask the process for its stack, which `ChildProcess.read_stack` returns. From the loop's thread."""
        if self.state == "up":
            self._post(("stack", self.child.next_request()))

    def progress_token(self) -> tuple[int, int, int]:
        """Return a token that changes on any progress, and is (0, ...) for an idle worker.

        Returns:
            the number of the attempt that the worker works on (0: it has none; -1: it is still starting; -2: it has
            not begun one that it has, or has not sent its answer), the place of its sample, and the number of messages.
        """
        current, place = (int(word) for word in self._shared.control[self.slot, [CURRENT, PLACE]])
        if not self.ready:
            current = -1
        elif not current and self.running and not self.copies.waiting:  # they are made here
            current = -2
        return current, place, self.received

    def worker_state(self) -> WorkerState:
        """Return the current state, without a stack."""
        if self.process is None:
            return WorkerState(f"worker {self.slot}", "starting")
        current, place, _ = self.progress_token()
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


async def stacks_of(handles: Sequence[ProcessHandle]) -> list[str | None]:
    """Return the stacks of workers, None for one that does not answer; within two seconds."""
    for handle in handles:
        handle.request_stack()
    return await read_stacks([handle.child for handle in handles])


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
        child.messages(data)
    return not child.retiring


def _nbytes(samples: Sequence[Any]) -> int:
    """Return the bytes of the arrays in samples."""
    return sum(leaf.nbytes for leaf in flatten(samples)[1] if isinstance(leaf, np.ndarray))


def _keeps(chunk: Chunk) -> bool:
    """Return whether values of a chunk stay in its spill, so that they are not copied out of it."""
    return chunk.custom_collate or chunk.keeps_spill


def read_result(
    memory: SlabMemory,
    chunk: Chunk,
    written: bytes,
    failures: list[tuple[int, str, bytes]],
    packed: tuple[bytes, list[Any], int] | None,
    counters: tuple[Any, ...],
    error: bytes | None,
) -> Outcome:
    """Return the result of a chunk that a worker has sent.

    Args:
        memory: the slab memory.
        chunk: the samples that it was sent.
        written, failures, packed, counters: see `aioloader.executors.transport.pack_result`.
        error: the pickled exception that ended the chunk, or None.
    """
    if error is not None:
        return read_error(error)
    result = ChunkResult.counted(counters)
    result.written = np.frombuffer(written, dtype=np.int32).tolist()
    if failures:
        result.failures = [Failure(row, stage, read_error(blob)) for row, stage, blob in failures]
    try:
        if packed is not None:
            blob, places, needed = packed
            result.spill_nbytes = -(-needed // len(chunk))
            buffers = [_buffer(place, memory, result.roots if _keeps(chunk) else None) for place in places]
            result.values, result.objects, result.batch = unpack_value(blob, buffers)
    except Exception as cause:
        return UnreadableResult(cause)
    return result


def _buffer(place: Any, memory: SlabMemory, roots: list[Any] | None) -> Any:
    if isinstance(place, np.ndarray):
        return place
    if isinstance(place, bytes):
        return bytearray(place)
    offset, nbytes = place
    root = memory.array(offset, (nbytes,), np.dtype(np.uint8))
    if roots is None:
        return root.copy()  # which lets other threads run, as a copy of bytes does not
    roots.append(root)
    return root
