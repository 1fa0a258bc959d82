"""Worker process: it receives chunks from its socket, runs them, and sends the results. And the messages of both ends.

A separate thread listens to the socket, so that the worker leaves as soon as the core closes it or dies, even in the
middle of a long transform. It kills the processes that a transform may have started.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import mmap
import os
import pickle
import queue
import select
import signal
import socket
import sys
import threading
import traceback
from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn

import cloudpickle
import numpy as np

from aioloader.errors import WorkerError
from aioloader.executors.process.messages import Inbox, encode
from aioloader.executors.process.parts import parts_of, without_large
from aioloader.executors.process.stacks import answer_signals, write_stack
from aioloader.executors.runner import Runner, Spill
from aioloader.executors.sent_memory import receive
from aioloader.executors.shared_memory import control_array, private_after_fork
from aioloader.foundation.decodes import decoder_messages
from aioloader.foundation.descriptors import fill_streams, sent_descriptors
from aioloader.foundation.error_log import (
    TRACEBACK,
    add_note,
    describe,
    detach,
    is_printable,
    printable,
    remove_note,
    set_args,
    traceback_of,
)
from aioloader.foundation.types import INDEX_TABLE_ROWS, Chunk, ChunkResult, RowLayout, StageTimer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aioloader.abc import Program

# Words of a worker's row of control memory: the attempt in progress, the place of its sample, the number of the stage
# (see `stage_names`), and for each lane the attempt that is cancelled.
CURRENT, PLACE, STAGE, CANCELLED = range(4)
# Fields of a chunk that are sent as they are.
_SENT = ("batch", "rows", "extras", "bases", "custom_collate", "spill", "segment", "first")
chunk_fields = attrgetter(*_SENT)
_PARENT_CHECK_MS = 500
_MOST_FDS = 253
# Standard output may be full, closed, or None where the program was started without it.
_NO_STREAM = (OSError, ValueError, AttributeError)


# -- messages, for both ends -------------------------------------------------------------------------------------------


def pack_value(value: Any, memory: mmap.mmap, spill: tuple[int, int]) -> tuple[bytes, list[Any], int]:
    """Pickle a value, and write its large buffers to the spill region as far as they fit.

    Args:
        value: anything that cloudpickle takes.
        memory: the slab region, writable.
        spill: (offset, nbytes) of the region for this chunk.

    Returns:
        the pickle; for each buffer its (offset, nbytes) in the region, or its bytes; the bytes of the region that
        all buffers would need.
    """
    buffers: list[pickle.PickleBuffer] = []
    blob: bytes = cloudpickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    region = Spill(memory, spill)
    needed = 0
    places: list[Any] = []
    raws = [buffer.raw() for buffer in buffers]
    try:
        # Arrays that were made in the region stay where they are, and the others are written behind them.
        found = [region.place_of(raw) for raw in raws]
        for place, raw in zip(found, raws, strict=True):
            needed += region.extent(raw.nbytes)
            places.append(place or region.write(raw) or bytes(raw))
    finally:
        for raw in raws:
            raw.release()
    return blob, places, needed


def unpack_value(blob: bytes, buffers: list[Any]) -> Any:
    """Return the value that `pack_value` packed, from a writable buffer for each place."""
    return pickle.loads(blob, buffers=buffers)


def stage_names(program: Program) -> list[str]:
    """Return the name of each number in the word STAGE; the first one is for a stage that is not known."""
    stages = [stage for leg in (program.stages, *program.later) for stage in leg]
    return ["transform", "fetch", "decode", "collate", *(f"transform:{stage.name}" for stage in stages)]


class _WithoutInit:
    """Exception that is unpickled without its ``__init__``, whose arguments may differ from ``args``."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self._error), self._error.args, self._error.__dict__)


def _restore(cls: type[BaseException], args: tuple[Any, ...], facts: dict[str, Any]) -> BaseException:
    error = cls.__new__(cls, *args)
    set_args(error, args)
    error.__dict__.update(facts)
    return error


def portable_error(error: BaseException) -> bytes:
    """Return a pickled exception with its traceback as a note; a `WorkerError` where it cannot be pickled."""
    error = printable(error)
    if error.__cause__ is None and error.__context__ is None:
        # Without the exception's text, so that errors of the same place have the same note.
        lines = [TRACEBACK, *traceback.format_tb(traceback_of(error))]
    else:
        lines = traceback.format_exception(error)  # chained exceptions are not sent
    note = f"in worker process {os.getpid()}:\n{''.join(lines).rstrip()}"
    add_note(error, note)
    try:
        for portable in (error, _WithoutInit(error)):
            try:
                blob: bytes = cloudpickle.dumps(portable)
                loaded = pickle.loads(blob)
            except BaseException:  # its class may do anything
                continue
            if isinstance(loaded, BaseException) and is_printable(loaded):
                return blob
    finally:
        # The same object may be raised again.
        remove_note(error, note)
        detach(error)
    replacement = WorkerError(f"{describe(error)} (the exception itself cannot be pickled)")
    replacement.add_note(note)
    blob = cloudpickle.dumps(replacement)
    return blob


def read_error(blob: bytes) -> BaseException:
    """Return the exception that `portable_error` sent; a `WorkerError` where it cannot be read."""
    try:
        error: BaseException = pickle.loads(blob)
    except (Exception, SystemExit) as cause:
        error = WorkerError(f"a worker's exception cannot be read: {describe(cause)}")
    return printable(error)


def pack_result(result: ChunkResult, pack: Callable[[Any], Any]) -> tuple[Any, ...]:
    """Return a result as it is sent: (rows written, failures, packed values or None, counters).

    Args:
        result: of a chunk.
        pack: pickles (values, objects, batch).

    Raises:
        WorkerError: the batch cannot be pickled.
    """
    failures = [(row, stage, portable_error(error)) for row, stage, error in result.failures]
    packed = None
    if result.values or result.objects or result.batch is not None:
        try:
            packed = pack((result.values, result.objects, result.batch))
        except Exception as error:
            # One sample that cannot be pickled must not fail the others.
            bad = pickling_errors(result.values)
            failures += [(row, "collate", portable_error(cause)) for row, cause in bad.items()]
            result.values = {row: value for row, value in result.values.items() if row not in bad}
            if not bad:
                raise WorkerError(
                    f"a result cannot be sent back from a worker process: {error}; "
                    "use executor='thread', or return arrays and plain values"
                ) from error
            packed = pack((result.values, result.objects, result.batch))
    written = np.asarray(result.written, dtype=np.int32).tobytes()
    return written, failures, packed, result.counters


def pickling_errors(values: Mapping[int, Any]) -> dict[int, Exception]:
    """Return the reason for each value that cannot be pickled, by its key."""
    errors: dict[int, Exception] = {}
    for key, value in values.items():
        try:
            cloudpickle.dumps(value, protocol=5)
        except Exception as error:
            errors[key] = error
    return errors


# -- in the worker -----------------------------------------------------------------------------------------------------


_slot: int | None = None


def own_slot() -> int | None:
    """Return the number of this worker process among those of its loader, from 0; None in any other process.

    A process that replaces one that died has the same number.
    """
    return _slot


def _nothing() -> None:
    pass


def _leave() -> NoReturn:
    with contextlib.suppress(*_NO_STREAM):
        sys.stdout.flush()
    with contextlib.suppress(OSError, AttributeError):
        if os.getpgrp() == os.getpid():
            os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(0)


def _listen(sock: socket.socket, messages: queue.SimpleQueue[Any], parent: int, stack_fd: int) -> None:
    inbox = Inbox()
    received: deque[int] = deque()
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    while True:
        # A fork of the core may keep its end of the socket open after the core died, so check the parent too.
        if not poll.poll(_PARENT_CHECK_MS):
            if os.getppid() != parent:
                _leave()
            continue
        try:
            data, fds, _, _ = socket.recv_fds(sock, 1 << 18, _MOST_FDS)
        except OSError:
            data = b""
        if not data:
            _leave()
        received.extend(fds)
        for message in inbox.feed(data):
            if message[0] == "stack":
                write_stack(stack_fd, message[1])
                continue
            if message[0] == "adopt":
                here = [received.popleft() for _ in message[1]]
                message = (*message, here)
            messages.put(message)


class _Progress(StageTimer):
    """Timer of a chunk that also writes to the worker's row of control memory, for the core.

    Args:
        control: the row.
        stages: the number of each stage.
        number: the attempt that is cancelled when the word of its lane has this number.
        lane: the lane.
    """

    __slots__ = ("_cancelled", "_decode", "_number", "_stage", "_stages", "control")

    def __init__(self, control: memoryview, stages: dict[str, int], number: int, lane: int) -> None:
        self.control = control
        self._stages = stages
        self._number = number
        self._cancelled = CANCELLED + lane
        self._decode = stages["decode"]
        super().__init__()

    def begin(self, place: int) -> bool:
        control = self.control
        if control[self._cancelled] == self._number:
            return False
        control[PLACE] = place
        control[STAGE] = self._decode
        self._stage = "decode"
        return True

    @property
    def stage(self) -> str:
        return self._stage

    @stage.setter
    def stage(self, name: str) -> None:
        self._stage = name
        self.control[STAGE] = self._stages.get(name, 0)  # a decoder may have stages that are in no chain


class _Worker:
    """The worker of one loader; the next loader gets another one in the same process.

    Args:
        sock: this worker's end of the socket pair.
        memory_fd: descriptor of the slab region.
        nbytes: its size.
        slot: this worker's row of the control memory.
        inherited: parts of the program that this process has as a fork of the core's.
    """

    def __init__(
        self, sock: socket.socket, memory_fd: int, nbytes: int, slot: int, inherited: Sequence[object] = ()
    ) -> None:
        self.sock = sock
        self.inherited = inherited
        self.memory_fd = memory_fd
        self.memory = memory = mmap.mmap(memory_fd, nbytes)
        os.set_inheritable(memory_fd, False)
        self.control = memoryview(control_array(memory)[slot])  # faster access to single items than an array
        self.layouts: dict[int, RowLayout] = {}
        self.runner: Runner | None = None
        self.stages: dict[str, int] = {}
        self.progress: _Progress | None = None
        self.pid = os.getpid()
        self._private_after_fork = private_after_fork(memory, memory_fd)

    def retire(self) -> None:
        """Release all that belongs to the loader, and report it."""
        self.runner = self.progress = None
        self.layouts.clear()
        self.control.release()
        self._private_after_fork = _nothing
        memory, self.memory = self.memory, mmap.mmap(-1, 1)
        gc.collect()
        with contextlib.suppress(BufferError):  # the caller's code has kept a view
            memory.close()
        os.close(self.memory_fd)
        sent_descriptors.close_all()
        self.send(("retired",))

    def forked(self) -> None:
        """Detach a process that a transform has forked: if it returns to this code, it changes nothing and stops."""
        words: Any = np.array(self.control)
        words[CANCELLED:] = words[CURRENT]
        self._private_after_fork()
        self.control = memoryview(words)
        if self.progress is not None:
            self.progress.control = self.control

    def send(self, message: Any) -> None:
        try:
            self.sock.sendall(encode(message))
        except OSError:
            _leave()

    def setup(
        self,
        path: list[str],
        aliases: list[tuple[str, str]],
        program: bytes,
        places: Sequence[Any],
        fds: Sequence[int],
    ) -> None:
        sent_descriptors.inherit(fds)
        sys.path[:] = path
        try:
            for alias, name in aliases:
                sys.modules[alias] = importlib.import_module(name)
            loaded = receive(program, places, self.inherited)
            self.stages = {name: number for number, name in enumerate(stage_names(loaded))}
            self.runner = Runner(loaded, self.memory, spills=True)
        except BaseException as error:
            self.send(("failed", portable_error(error)))
            return
        self.send(("ready",))

    def work(
        self, number: int, lane: int, chunk: Chunk, packed: tuple[bytes, list[Any]] | None = None
    ) -> None:
        if self.runner is None:
            return  # the core has received "failed"
        self.control[PLACE] = -1
        self.control[CURRENT] = number
        self.progress = _Progress(self.control, self.stages, number, lane)
        error: bytes | None = None
        try:
            if packed is not None:
                chunk.samples = self.unpack(*packed)
            result = self.runner.run(chunk, self.progress)
            answer = self.answer(result, chunk)
        except BaseException as failure:
            answer = self.answer(ChunkResult(), chunk)
            error = portable_error(failure)
        if os.getpid() != self.pid:
            os._exit(0)  # a fork that returned here: the worker itself answers
        with contextlib.suppress(*_NO_STREAM):
            sys.stdout.flush()  # a pipe that nobody reads holds it; the core then blames the chunk
        self.control[CURRENT] = 0
        written, failures, value, counters = answer
        if value is not None:
            blob, places, needed = value
            places, large = without_large(places)
            for buffer in large:
                for part in parts_of(buffer):
                    self.send(("part", *part))
            value = blob, places, needed
        self.send(("done", number, written, failures, value, counters, error))

    def unpack(self, blob: bytes, places: list[Any]) -> Any:
        """Return copies of the samples of a chunk: the answer may be written to their memory."""
        buffers = [
            bytearray(place) if isinstance(place, bytes) else bytearray(self.memory[place[0] : sum(place)])
            for place in places
        ]
        return unpack_value(blob, buffers)

    def answer(self, result: ChunkResult, chunk: Chunk) -> tuple[Any, ...]:
        return pack_result(result, lambda payload: pack_value(payload, self.memory, chunk.spill))


def main(
    fd: int,
    *,
    memory_fd: int,
    nbytes: int,
    slot: int,
    parent: int,
    stack_fd: int = -1,
    inherited: Sequence[object] = (),
) -> None:
    """Serve the core until it closes the socket.

    Args:
        fd: this worker's end of the socket pair.
        memory_fd: descriptor of the slab region.
        nbytes: its size.
        slot: this worker's row of the control memory.
        parent: process number of the core.
        stack_fd: descriptor to write Python stacks to, or -1.
        inherited: parts of the first program that this process has as a fork of the core's.
    """
    global _slot
    _slot = slot
    fill_streams()
    decoder_messages.own()
    if stack_fd >= 0:
        answer_signals(stack_fd)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the core handles Ctrl-C
    sock = socket.socket(fileno=fd)
    messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(sock, messages, parent, stack_fd), daemon=True).start()
    worker = _Worker(sock, memory_fd, nbytes, slot, inherited)

    def forked() -> None:
        worker.forked()

    os.register_at_fork(after_in_child=forked)
    while True:
        kind, *rest = messages.get()
        if kind == "setup":
            worker.setup(*rest)
        elif kind == "retire":
            chunk = None
            worker.retire()
        elif kind == "adopt":
            numbers, nbytes, _slot, here = rest
            for number in here:
                os.set_inheritable(number, False)
            sent_descriptors.take(dict(zip(numbers[1:], here[1:], strict=True)))
            worker = _Worker(sock, here[0], nbytes, _slot)
        elif kind == "layout":
            layout: RowLayout = pickle.loads(rest[0])
            worker.layouts[layout.number] = layout
        else:
            number, lane, layout_number, table, fields, packed = rest
            chunk = Chunk(
                index_table=np.frombuffer(table, dtype=np.int64).reshape(INDEX_TABLE_ROWS, -1),
                layout=worker.layouts.get(layout_number),
                **dict(zip(_SENT, fields, strict=True)),
            )
            worker.work(number, lane, chunk, packed)
