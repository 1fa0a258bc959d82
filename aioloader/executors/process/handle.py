"""The core's end of one worker process: start it, talk to it, end it and reap it."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Literal

import anyio
import cloudpickle

from aioloader.errors import WorkerError
from aioloader.executors.process.stacks import CRASHES, StackFile
from aioloader.executors.process.wire import Inbox, encode
from aioloader.executors.shared_memory import CONTROL_BYTES, SlabMemory
from aioloader.foundation.concurrency import Notification
from aioloader.foundation.descriptors import above_streams

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from aioloader.abc import Program
    from aioloader.executors.retry import Attempt

__all__ = ("WorkerHandle", "end_all", "pickled_program")

# Numeric libraries of a worker must not start a thread per core each; what the user has set stays.
_ONE_THREAD = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENCV_FOR_THREADS_NUM",
)
_BOOT = (
    "import sys; sys.path.insert(0, {home!r}); "
    "from aioloader.executors.process.worker import main; "
    "main({fd}, {memory_fd}, {nbytes}, {slot}, {parent}, {stack_fd})"
)
_RECEIVE_BYTES = 1 << 18
# A program that ends at a broken pipe, as command line tools do, does not end because a worker did.
_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)
# Where the system does not tell when a process ends: in the loop, and in a thread that waits for it.
_END_POLL_S = 0.1
_WAIT_POLL_S = 0.005
_REAP_S = 0.4

# A fork in another thread, such as of torch's workers, would inherit the pipe by which a worker that is being started
# tells that it has begun, and keep it open: who starts it would wait for as long as the fork lives. So forks wait.
_starting = threading.Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_starting.acquire, after_in_parent=_starting.release, after_in_child=_starting.release
    )


def pickled_program(program: Program | None) -> bytes:
    """A program as it is sent to workers.

    Raises:
        WorkerError: some part of it cannot be pickled.
    """
    try:
        blob: bytes = cloudpickle.dumps(program, protocol=5)
    except Exception as error:
        raise WorkerError(
            f"the dataset or a transform cannot be sent to worker processes: {error}; "
            "make it picklable, or use executor='thread'"
        ) from error
    return blob


def _aliases() -> list[tuple[str, str]]:
    """Modules of these packages that the script has put under other names, as (other name, own name).

    A script may set ``sys.modules["mxnet"] = aioloader.mxnet``; what it sends to a worker then imports mxnet.
    """
    found = []
    for alias, module in list(sys.modules.items()):
        name = getattr(module, "__dict__", {}).get("__name__")  # not by attribute: that may load something
        if name != alias and isinstance(name, str) and name.partition(".")[0] in ("aioloader", "recordio"):
            found.append((alias, name))
    return found


def _end_of(pid: int) -> int | None:
    """A descriptor that is readable once a process has ended; None where there is no such thing."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _has_ended(pid: int) -> bool:
    """Whether a child has ended; it stays to be waited for."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _socket_pair() -> tuple[socket.socket, int]:
    """Our end, and the descriptor of the worker's."""
    ours, theirs = socket.socketpair()
    try:
        return ours, above_streams(theirs.detach())
    except OSError:
        ours.close()
        raise


def _not_started(error: BaseException) -> WorkerError:
    full = isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)
    advice = "; raise the limit of open files (ulimit -n), or use fewer workers" if full else ""
    return WorkerError(f"a worker process cannot be started: {error}{advice}")


class WorkerHandle:
    """One place in the pool; the process in it may change.

    Attributes:
        slot: line of the control memory.
        state: "none" (to be started), "up", or "dead" (reaped, its chunks not yet seen to).
        running: chunks sent and not answered, by number, oldest first.
        dismissed: it was told to leave.
        stack: where the process stood when it crashed, or when it was found stuck; None if that is not known.
    """

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.failed_starts = 0
        self.killed_starts = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.sock: socket.socket | None = None
        self._stacks: StackFile | None = None
        self._asked = 0
        self.clear()

    def clear(self) -> None:
        """Make room for a new process."""
        self.state: Literal["none", "up", "dead"] = "none"
        self.process = None
        self.sock = None
        self.ready = False
        self.dismissed = False
        self.timed_out = False
        self.exit_code: int | None = None
        self.stack: str | None = None
        self.running: dict[int, Attempt] = {}
        self.progress: tuple[int, int] = (0, 0)
        self.progress_at = time.monotonic()
        self._inbox = Inbox()
        self._outbox: deque[memoryview] = deque()
        self._more = Notification()
        self._layouts: set[int] = set()

    def start(self, program: bytes, memory: SlabMemory, fds: Sequence[int] = ()) -> None:
        """Start the process (blocking, a few milliseconds) and queue its program; it inherits `fds`."""
        if not sys.executable:
            raise WorkerError("sys.executable is not set, so no worker can be started; use executor='thread'")
        try:
            ours, theirs = _socket_pair()
        except OSError as error:
            raise _not_started(error) from error
        if self._stacks is None:
            self._stacks = StackFile()
        self._stacks.clear()
        stack_fds = () if self._stacks.fd < 0 else (self._stacks.fd,)
        environment = {**dict.fromkeys(_ONE_THREAD, "1"), **os.environ}
        code = _BOOT.format(
            home=os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))),
            fd=theirs,
            memory_fd=memory.fd,
            nbytes=CONTROL_BYTES + memory.limit,
            slot=self.slot,
            parent=os.getpid(),
            stack_fd=self._stacks.fd,
        )
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # -W, -X, -O and so on
        try:
            with _starting:
                self.process = subprocess.Popen(
                    [sys.executable, *flags, "-P", "-X", "aioloader_worker", "-c", code],
                    stdin=subprocess.DEVNULL,
                    pass_fds=(theirs, memory.fd, *stack_fds, *fds),
                    env=environment,
                    start_new_session=True,
                )
        except BaseException as error:
            ours.close()
            raise _not_started(error) from error
        finally:
            os.close(theirs)
        ours.setblocking(False)
        self.sock = ours
        self.progress_at = time.monotonic()
        self._post(("setup", list(sys.path), _aliases(), program))
        self.state = "up"

    def give(self, attempt: Attempt, samples: tuple[bytes, list[Any]] | None = None) -> None:
        """Send a chunk; `samples` are its packed samples, if it has any."""
        chunk = attempt.part
        layout = chunk.layout
        if layout is not None and layout.number not in self._layouts:
            self._layouts.add(layout.number)
            self._post(("layout", cloudpickle.dumps(layout, protocol=5)))
        fields = (
            chunk.batch,
            chunk.index_table.tobytes(),
            chunk.extras,
            chunk.bases,
            chunk.rows,
            chunk.custom_collate,
            chunk.spill,
            chunk.segment,
            samples,
        )
        self.running[attempt.number] = attempt
        self._post(("run", attempt.number, attempt.lane, -1 if layout is None else layout.number, fields))

    def _post(self, message: Any) -> None:
        data = memoryview(encode(message))
        if not self._outbox and self.state == "up":
            data = data[self._send(data) :]
        if data:
            self._outbox.append(data)
            self._more.set()

    def _send(self, data: memoryview) -> int:
        assert self.sock is not None
        try:
            return self.sock.send(data, _NO_SIGNAL)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            return len(data)  # the worker is gone; its end of file tells

    async def send_all(self) -> None:
        """Send what does not fit into the socket at once, as long as the worker lives."""
        assert self.sock is not None
        while True:
            while self._outbox:
                rest = self._outbox[0][self._send(self._outbox[0]) :]
                if rest:
                    self._outbox[0] = rest
                    await anyio.wait_writable(self.sock)
                else:
                    self._outbox.popleft()
            await self._more.wait()

    async def messages(self) -> AsyncIterator[Any]:
        """What the worker says, until it is gone."""
        while self.sock is not None:
            try:
                await anyio.wait_readable(self.sock)
                data = self.sock.recv(_RECEIVE_BYTES)
            except (BlockingIOError, InterruptedError):
                continue
            except (OSError, ValueError, anyio.ClosedResourceError):
                return
            if not data:
                return
            for message in self._inbox.feed(data):
                yield message

    async def notice_end(self) -> None:
        """Wait for the process to end; then there are no more messages than those that have arrived.

        The socket alone would not tell: a process that the worker has started may hold its end.
        """
        assert self.process is not None
        assert self.sock is not None
        pid = self.process.pid
        fd = _end_of(pid)
        if fd is None:
            while True:
                if _has_ended(pid):
                    break
                await anyio.sleep(_END_POLL_S)
        else:
            try:
                await anyio.wait_readable(fd)
            finally:
                os.close(fd)
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def ask_stack(self) -> None:
        """Ask where the process stands; `told_stack` has the answer. From the loop's thread."""
        if self.state == "up":
            self._asked += 1
            self._post(("stack", self._asked))

    def told_stack(self) -> str | None:
        """Where the process stands, after `ask_stack`; None if it does not tell. Blocking, 0.3 s at most."""
        process, stacks = self.process, self._stacks
        if process is None or stacks is None or process.returncode is not None:
            return None
        return stacks.wait(process.pid, self._asked)

    def dismiss(self) -> None:
        """Have the process leave; whoever tends it sees its end. From the loop's thread."""
        if self.state == "up" and self.sock is not None:
            self.dismissed = True
            with contextlib.suppress(OSError):
                self.sock.shutdown(socket.SHUT_WR)

    def kill(self) -> None:
        """End the process and those it has started, at once."""
        process = self.process
        if process is not None and process.returncode is None:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                process.kill()

    def reap(self) -> None:
        """Wait for the end of the process (blocking); nothing writes to its memory after that."""
        self.hang_up()
        self.kill()
        if self.process is not None:
            self.exit_code = self.process.wait()
            if self.exit_code in CRASHES and self._stacks is not None:
                self.stack = self._stacks.left()
        self.state = "dead"

    def hang_up(self) -> None:
        """Close the socket: the process leaves. From any thread."""
        sock = self.sock
        if sock is not None:
            sock.close()

    def wait(self, deadline: float) -> bool:
        """Wait for the process to end until `deadline` (monotonic seconds); whether it has. From any thread.

        It is not reaped, so that its number stays its own and what it has started can still be ended.
        """
        process = self.process
        if process is None or process.returncode is not None:
            return True
        fd = _end_of(process.pid)
        try:
            while not _has_ended(process.pid):
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                if fd is None:
                    time.sleep(min(left, _WAIT_POLL_S))
                else:
                    waiting = select.poll()
                    waiting.register(fd, select.POLLIN)
                    waiting.poll(1000 * left)
        finally:
            if fd is not None:
                os.close(fd)
        return True

    def reap_until(self, deadline: float) -> None:
        """Reap a process that was killed, if it is gone by `deadline` (monotonic seconds). From any thread."""
        if self.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """Let go of a process that was killed. From any thread."""
        process, stacks = self.process, self._stacks
        if process is not None and process.poll() is None:
            # The kernel is busy with its memory. Whoever closes does not wait for that; nor is it left a zombie.
            with contextlib.suppress(RuntimeError):  # no thread is to be had while the interpreter ends
                threading.Thread(target=process.wait, name="aioloader-reaper", daemon=True).start()
        if stacks is not None:
            stacks.close()


def end_all(handles: Sequence[WorkerHandle], patience_s: float) -> None:
    """End the processes of all: hang up, give them `patience_s` seconds to leave, and kill who is left.

    From any thread; blocking, 0.4 s longer at most.
    """
    for handle in handles:
        handle.hang_up()
    deadline = time.monotonic() + patience_s
    for handle in handles:
        handle.wait(deadline)
    for handle in handles:
        handle.kill()
    deadline = time.monotonic() + _REAP_S
    for handle in handles:
        handle.reap_until(deadline)
        handle.close()
