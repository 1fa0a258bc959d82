"""Worker process: it receives chunks from its socket, runs them, and sends the results.

A separate thread listens to the socket, so that the worker leaves as soon as the core closes it or dies, even in the
middle of a long transform. It kills the processes that a transform may have started.

The listening thread also writes the stack of the main thread, at a request of the core. That needs the interpreter's
lock, which C code may hold for ever; then the core sends a signal, and `faulthandler` writes the stack in C. Not
before: a signal interrupts system calls that wait, and a request for a stack should change nothing.
"""

from __future__ import annotations

import contextlib
import faulthandler
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
import time
from collections import deque
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from aioloader.executors.process.messages import (
    CANCELLED,
    CURRENT,
    PLACE,
    SENT_FIELDS,
    STAGE,
    Inbox,
    encode,
    pack_value,
    parts_of,
    stage_names,
    unpack_value,
    without_large,
)
from aioloader.executors.runner import Runner
from aioloader.executors.shared_memory import control_array, private_after_fork
from aioloader.executors.transport import pack_result, portable_error, receive
from aioloader.foundation.decodes import decoder_messages
from aioloader.foundation.descriptors import anonymous_file, fill_streams, sent_descriptors
from aioloader.foundation.stacks import stack_of
from aioloader.foundation.types import INDEX_TABLE_ROWS, Chunk, ChunkResult, RowLayout, StageTimer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


_SIGNAL = getattr(signal, "SIGUSR1", None)
CRASHES = frozenset(
    -getattr(signal, name)
    for name in ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL")
    if hasattr(signal, name)
)
_PATIENCE_S = 0.15
# Nothing but a busy machine keeps a signal from being answered, and a worker that has no CPU time is late.
_SIGNAL_PATIENCE_S = 1.5
_SETTLED_S = 0.02
_LOOK_S = 0.004
_MOST_BYTES = 1 << 16


# -- in the worker -----------------------------------------------------------------------------------------------------


def answer_signals(fd: int) -> None:
    """Write the stack of the main thread, which calls this, to `fd` at a signal and when the process crashes.

    If the user has enabled `faulthandler`, crashes are still written to standard error.
    """
    if _SIGNAL is not None:
        # Only the thread that receives the signal, which is the main one: reading others while they run is not safe.
        faulthandler.register(_SIGNAL, file=fd, all_threads=False)
    if not faulthandler.is_enabled():
        faulthandler.enable(file=fd, all_threads=False)


def write_stack(fd: int, token: int) -> None:
    """Write the stack of the main thread to `fd`, under a heading with the number of the request. From any thread."""
    main = threading.main_thread().ident
    stack = None if main is None else stack_of(main)
    with contextlib.suppress(OSError):
        os.write(fd, f"{_heading(token)}{stack or ''}\n".encode("utf-8", "backslashreplace")[:_MOST_BYTES])


def _heading(token: int) -> str:
    return f"stack {token}:\n"


# -- in the core ------------------------------------------------------------------------------------------------------


def _catches(pid: int) -> bool:
    """Return whether a child handles the signal, of which it would die otherwise; False where that is not known."""
    assert _SIGNAL is not None
    try:
        with open(f"/proc/{pid}/status") as file:
            facts = dict(line.split(":", 1) for line in file if ":" in line)
        ours = int(facts["PPid"]) == os.getpid()
        return ours and bool(int(facts["SigCgt"], 16) >> (_SIGNAL - 1) & 1)
    except (OSError, KeyError, ValueError):
        return False


class StackFile:
    """Anonymous file to which one worker after the other writes its stack. From any thread.

    Attributes:
        fd: its descriptor, for the worker to inherit; -1 if none is available.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closing = False
        try:
            self.fd = anonymous_file("aioloader-stack")
        except OSError:
            self.fd = -1

    def wait(self, pid: int, token: int) -> str | None:
        """Return the stack that a worker writes at a request; None if it does not answer. Blocking, 1.7 s at most.

        Args:
            pid: a child of this process that is not reaped.
            token: number of the request; see `write_stack`.
        """
        with self._lock:
            if self.fd < 0:
                return None
            stack = self._answer(token) or self._answer_to_signal(pid)
            self._empty()  # a crash writes to the same file
            return stack

    def _answer(self, token: int) -> str | None:
        for text in self._readings():
            _, found, stack = text.partition(_heading(token))
            if found:
                return _calls(stack)
        return None

    def _answer_to_signal(self, pid: int) -> str | None:
        if _SIGNAL is None or not _catches(pid):
            return None
        before = len(self._read())
        try:
            os.kill(pid, _SIGNAL)
        except OSError:
            return None
        written, changed_at = "", time.monotonic()
        for text in self._readings(_SIGNAL_PATIENCE_S):
            # The end is not marked: the stack is complete when no more text is written.
            if text[before:] != written:
                written, changed_at = text[before:], time.monotonic()
            elif _calls(written) and time.monotonic() - changed_at > _SETTLED_S:
                break
        return _calls(written)

    def _readings(self, patience_s: float = _PATIENCE_S) -> Iterator[str]:
        """Yield the content again and again, as long as an answer may come."""
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline and not self._closing:
            yield self._read()
            time.sleep(_LOOK_S)

    def left(self) -> str | None:
        """Return the stack that the worker wrote when it crashed, or None. After it was reaped."""
        with self._lock:
            return _calls(self._read()) if self.fd >= 0 else None

    def clear(self) -> None:
        """Make room for another worker."""
        with self._lock:
            if self.fd >= 0:
                self._empty()

    def close(self) -> None:
        """Close the descriptor. May be called twice."""
        self._closing = True
        with self._lock:
            if self.fd >= 0:
                os.close(self.fd)
                self.fd = -1

    def _empty(self) -> None:
        with contextlib.suppress(OSError):
            os.ftruncate(self.fd, 0)
            os.lseek(self.fd, 0, os.SEEK_SET)  # the worker's offset too: it is shared

    def _read(self) -> str:
        return os.pread(self.fd, _MOST_BYTES, 0).decode("utf-8", "backslashreplace")


def _calls(text: str) -> str | None:
    """Return the lines of a stack, without headings."""
    lines = [line.rstrip() for line in text.splitlines() if line.startswith("  ")]
    return "\n".join(lines) or None


_PARENT_CHECK_MS = 500
_MOST_FDS = 253
# Standard output may be full, closed, or None where the program was started without it.
_NO_STREAM = (OSError, ValueError, AttributeError)

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
        collect_at: first threshold of the garbage collector once the program is loaded, if it is 0 until then.
    """

    def __init__(
        self,
        sock: socket.socket,
        memory_fd: int,
        nbytes: int,
        slot: int,
        inherited: Sequence[object] = (),
        collect_at: int = 0,
    ) -> None:
        self.sock = sock
        self.inherited = inherited
        self.collect_at = collect_at
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
        gc.unfreeze()
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
            if not gc.get_threshold()[0]:  # and nothing that was imported has set it
                gc.freeze()
                gc.set_threshold(self.collect_at)
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
    collect_at: int = 0,
) -> None:
    """Serve the core until it closes the socket.

    Args:
        fd: this worker's end of the socket pair.
        memory_fd: descriptor of the slab region; -1: none, until the core sends one ("adopt").
        nbytes: its size.
        slot: this worker's row of the control memory.
        parent: process number of the core.
        stack_fd: descriptor to write Python stacks to, or -1.
        inherited: parts of the first program that this process has as a fork of the core's.
        collect_at: see `_Worker`.
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
    worker: _Worker | None = None
    if memory_fd >= 0:
        worker = _Worker(sock, memory_fd, nbytes, slot, inherited, collect_at)

    def forked() -> None:
        if worker is not None:
            worker.forked()

    os.register_at_fork(after_in_child=forked)
    while True:
        kind, *rest = messages.get()
        if kind == "adopt":
            numbers, nbytes, _slot, here = rest
            for number in here:
                os.set_inheritable(number, False)
            sent_descriptors.take(dict(zip(numbers[1:], here[1:], strict=True)))
            worker = _Worker(sock, here[0], nbytes, _slot, collect_at=collect_at)
            continue
        assert worker is not None
        if kind == "setup":
            worker.setup(*rest)
        elif kind == "retire":
            chunk = None
            worker.retire()
        elif kind == "layout":
            layout: RowLayout = pickle.loads(rest[0])
            worker.layouts[layout.number] = layout
        else:
            number, lane, layout_number, table, fields, packed = rest
            chunk = Chunk(
                index_table=np.frombuffer(table, dtype=np.int64).reshape(INDEX_TABLE_ROWS, -1),
                layout=worker.layouts.get(layout_number),
                **dict(zip(SENT_FIELDS, fields, strict=True)),
            )
            worker.work(number, lane, chunk, packed)
