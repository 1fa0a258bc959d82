"""Worker processes as processes of the system, children or forks of this one: start, watch, end and reap them."""

from __future__ import annotations

import contextlib
import contextvars
import errno
import gc
import io
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import anyio
import cloudpickle

from aioloader.errors import WorkerError
from aioloader.executors.process import worker
from aioloader.executors.process.messages import Inbox, encode
from aioloader.executors.process.worker import CRASHES, StackFile
from aioloader.executors.shared_memory import CONTROL_BYTES, fork_without_batches
from aioloader.executors.transport import SentObject
from aioloader.foundation.descriptors import above_streams, sent_descriptors
from aioloader.foundation.thread_start import start_thread
from aioloader.foundation.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aioloader.abc import Program, SlabMemory


_POLL_S = 0.005
# Handlers of a script are for the script's process.
_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGUSR2") if hasattr(signal, name)]


class ForkedProcess:
    """Child process that calls a function and exits; it has those methods of `subprocess.Popen` that are used here.

    The child has one thread, an empty context, the null device as standard input, and a separate session. It exits
    with status 0 if the function returns, and 1 if it raises.

    Args:
        run: the function.

    Attributes:
        pid: number of the process.
        returncode: its exit status, negative for a signal; None until it is reaped.

    Raises:
        OSError: the system refuses a fork.
    """

    def __init__(self, run: Callable[[], object]) -> None:
        self.returncode: int | None = None
        self._lock = threading.Lock()
        with fork_without_batches(), _no_warning():
            self.pid = os.fork()
        if self.pid == 0:
            _become(run)

    def poll(self) -> int | None:
        """Return the exit status; None while the process runs."""
        if self.returncode is None and self._lock.acquire(blocking=False):
            try:
                self._reap(os.WNOHANG)
            finally:
                self._lock.release()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process and return its exit status. Blocking.

        Args:
            timeout: seconds.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        if timeout is not None and self.poll() is None:
            self._wait_for_end(timeout)
            if self.poll() is None:
                raise subprocess.TimeoutExpired("aioloader worker", timeout)
        with self._lock:
            if self.returncode is None:
                self._reap(0)
        assert self.returncode is not None
        return self.returncode

    def kill(self) -> None:
        """Kill the process, if it was not reaped."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def _wait_for_end(self, timeout: float) -> None:
        try:
            fd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # not on this system
            deadline = time.monotonic() + timeout
            while self.poll() is None and time.monotonic() < deadline:
                time.sleep(_POLL_S)
            return
        try:
            waiting = select.poll()
            waiting.register(fd, select.POLLIN)
            waiting.poll(1000 * timeout)
        finally:
            os.close(fd)

    def _reap(self, flags: int) -> None:
        try:
            pid, status = os.waitpid(self.pid, flags)
        except ChildProcessError:  # somebody else has reaped it, so the status is not known
            self.returncode = 0
        else:
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)


@contextlib.contextmanager
def _no_warning() -> Iterator[None]:
    if sys.version_info < (3, 12):
        yield
        return
    # The child calls only what a worker calls, and nothing of the threads that are not in it.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def _become(run: Callable[[], object]) -> NoReturn:
    status = 1
    try:
        gc.freeze()  # the objects of the parent are not this process's to finalize, and their pages stay shared
        os.setsid()
        signal.set_wakeup_fd(-1)  # of the parent's event loop
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        sent_descriptors.forget()
        _own_streams()
        contextvars.Context().run(run)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def _own_streams() -> None:
    """Read from the null device, and write without what the parent has buffered and will write itself."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    if null > 2:
        os.close(null)
    for name, fd in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if type(stream) is not io.TextIOWrapper or stream.closed:
            continue  # a notebook's, or a test's: it knows forks, or shows nothing
        with contextlib.suppress(OSError, ValueError):
            if stream.fileno() != fd:
                continue
            made = io.TextIOWrapper(
                io.BufferedWriter(io.FileIO(fd, "w", closefd=False)),
                encoding=stream.encoding,
                errors=stream.errors,
                line_buffering=stream.line_buffering,  # as standard error: what ends a process comes without warning
                write_through=stream.write_through,
            )
            _parents.append(stream)  # its end would write what it has buffered
            setattr(sys, name, made)


_parents: list[object] = []


# Numeric libraries of a worker must not start a thread per core each; what the user has set stays.
_ONE_THREAD = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENCV_FOR_THREADS_NUM",
)
# What modules make stays, so that looking for garbage in it would only take time: a sixth of that of the imports.
_BOOT = (
    "import gc, sys; collect_at = gc.get_threshold()[0]; gc.set_threshold(0); sys.path.insert(0, {home!r}); "
    "from aioloader.executors.process.worker import main; "
    "main({fd}, memory_fd={memory_fd}, nbytes={nbytes}, slot={slot}, parent={parent}, stack_fd={stack_fd}, "
    "collect_at=collect_at)"
)
# Intervals of polling where the system cannot report the end of a process: in the loop, and in a waiting thread.
_END_POLL_S = 0.1
_WAIT_POLL_S = 0.005
_REAP_S = 0.4
_STACKS_S = 2.0
# Descriptors that the system sends with one message.
_MOST_SENT = 250

# A fork in another thread, such as of torch's workers, would inherit the pipe by which a starting worker reports that
# it has begun, and keep it open: the thread that starts it would wait for as long as the fork lives. So forks wait.
_starting = threading.Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_starting.acquire, after_in_parent=_starting.release, after_in_child=_starting.release
    )


def pickled_program(program: Program) -> bytes:
    """Return a program as it is sent to workers on any host.

    Raises:
        WorkerError: some part of it cannot be pickled.
    """
    try:
        blob: bytes = cloudpickle.dumps(program, protocol=5)
    except Exception as error:
        raise _not_sent(error) from error
    return blob


def sent_program(program: Program, inherited: Sequence[object] | None = None) -> SentObject:
    """Return a program as it is sent to workers on this host.

    Args:
        program: the program.
        inherited: parts of it that the workers have as forks of this process.

    Raises:
        WorkerError: some other part of it cannot be pickled.
    """
    try:
        return SentObject(program, inherited or ())
    except Exception as error:
        raise _not_sent(error) from error


def _not_sent(error: Exception) -> WorkerError:
    return WorkerError(
        f"the dataset or a transform cannot be sent to worker processes: {error}; "
        "make it picklable, or use executor='thread'"
    )


def import_aliases() -> list[tuple[str, str]]:
    """Return the modules of these packages that the script has put under other names, as (other name, own name).

    A script may set ``sys.modules["mxnet"] = aioloader.mxnet``; what it sends to a worker then imports mxnet.
    """
    found = []
    for alias, module in list(sys.modules.items()):
        name = getattr(module, "__dict__", {}).get("__name__")  # not by attribute: that may load something
        if name != alias and isinstance(name, str) and name.partition(".")[0] in ("aioloader", "recordio"):
            found.append((alias, name))
    return found


def _end_descriptor(pid: int) -> int | None:
    """Return a descriptor that is readable once a process has ended; None where the system has none."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def _has_ended(pid: int) -> bool:
    """Return whether a child has ended; it is not reaped."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _socket_pair() -> tuple[socket.socket, int]:
    """Return our end, and the descriptor of the worker's end."""
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


class ChildProcess:
    """Processes of one place in the pool, one at a time.

    Attributes:
        process: the process; None if none was started.
        sock: this end of its socket pair.
        exit_code: its exit status once it is reaped.
        stack: its Python stack when it crashed, or when it was found stuck; None if that is not known.
        inbox: messages of the process.
        retiring: how many loaders it was asked to retire from, and has not; its messages are for the first of them.
    """

    def __init__(self) -> None:
        self._stacks: StackFile | None = None
        self._requests = 0
        self.clear()

    def clear(self) -> None:
        """Make room for a new process."""
        self.process: subprocess.Popen[bytes] | ForkedProcess | None = None
        self.sock: socket.socket | None = None
        self.exit_code: int | None = None
        self.stack: str | None = None
        self.inbox = Inbox()
        self.retiring = 0

    def start(
        self,
        slot: int,
        memory: SlabMemory | None = None,
        fds: Sequence[int] = (),
        inherited: Sequence[object] | None = None,
    ) -> None:
        """Start the process, which inherits `fds`. Blocking, a few milliseconds.

        Args:
            slot: row of the control memory.
            memory: the slab memory; None: the process is idle until it is adopted.
            fds: descriptors.
            inherited: objects that the process has as a fork of this one; None: it is a new interpreter.
        """
        if inherited is None and not sys.executable:
            raise WorkerError("sys.executable is not set, so no worker can be started; use executor='thread'")
        try:
            ours, theirs = _socket_pair()
        except OSError as error:
            raise _not_started(error) from error
        if self._stacks is None:
            self._stacks = StackFile()
        self._stacks.clear()
        try:
            if memory is not None and inherited is not None:
                self.process = self._forked(theirs, slot, memory, inherited)
            else:
                self.process = self._interpreter(theirs, slot, memory, fds)
        except BaseException as error:
            ours.close()
            raise _not_started(error) from error
        finally:
            os.close(theirs)
        ours.setblocking(False)
        self.sock = ours

    def _forked(
        self, theirs: int, slot: int, memory: SlabMemory, inherited: Sequence[object]
    ) -> ForkedProcess:
        parent = os.getpid()

        def run() -> None:
            for name in _ONE_THREAD:
                os.environ.setdefault(name, "1")
            worker.main(
                theirs,
                memory_fd=memory.fd,
                nbytes=CONTROL_BYTES + memory.limit,
                slot=slot,
                parent=parent,
                stack_fd=-1 if self._stacks is None else self._stacks.fd,
                inherited=inherited,
            )

        return ForkedProcess(run)

    def _interpreter(
        self, theirs: int, slot: int, memory: SlabMemory | None, fds: Sequence[int]
    ) -> subprocess.Popen[bytes]:
        assert self._stacks is not None
        memory_fd, nbytes = (-1, 0) if memory is None else (memory.fd, CONTROL_BYTES + memory.limit)
        own_fds = [fd for fd in (theirs, memory_fd, self._stacks.fd) if fd >= 0]
        environment = {**dict.fromkeys(_ONE_THREAD, "1"), **os.environ}
        # Through a link to the package the workers import it as this process did, so the path is not resolved.
        code = _BOOT.format(
            home=str(Path(__file__).absolute().parents[3]),
            fd=theirs,
            memory_fd=memory_fd,
            nbytes=nbytes,
            slot=slot,
            parent=os.getpid(),
            stack_fd=self._stacks.fd,
        )
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # -W, -X, -O and so on
        with _starting:
            return subprocess.Popen(
                [sys.executable, *flags, "-P", "-c", code],
                stdin=subprocess.DEVNULL,
                pass_fds=(*own_fds, *fds),
                env=environment,
                start_new_session=True,
            )

    def adopt(self, slot: int, memory: SlabMemory, fds: Sequence[int] = ()) -> bool:
        """Give an idle process other memory, and further descriptors, instead of a start.

        Args:
            slot: row of the control memory.
            memory: the slab memory.
            fds: descriptors.

        Returns:
            False if it cannot be done; then the process is of no use.
        """
        process, sock = self.process, self.sock
        numbers = [memory.fd, *fds]
        if process is None or sock is None or process.poll() is not None or len(numbers) > _MOST_SENT:
            return False
        if self._stacks is not None:
            self._stacks.clear()
        message = encode(("adopt", numbers, CONTROL_BYTES + memory.limit, slot))
        try:
            return socket.send_fds(sock, [message], numbers) == len(message)
        except OSError:
            return False

    def messages(self, data: bytes) -> list[Any]:
        """Return the messages that received bytes complete, except those for the loader before."""
        messages = self.inbox.feed(data)
        while self.retiring and messages:
            kind, *_ = messages.pop(0)
            if kind == "retired":
                self.retiring -= 1
            elif kind == "failed":
                self.kill()  # half of its program is loaded
        return messages

    async def wait_for_end(self) -> None:
        """Wait until the process ends; then there are no more messages than those that have arrived.

        The socket alone would not show it: a process that the worker has started may hold its end.
        """
        assert self.process is not None
        assert self.sock is not None
        pid = self.process.pid
        fd = _end_descriptor(pid)
        if fd is None:
            while not _has_ended(pid):  # noqa: ASYNC110  # the system has no event for it
                await anyio.sleep(_END_POLL_S)
        else:
            try:
                await anyio.wait_readable(fd)
            finally:
                os.close(fd)
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def next_request(self) -> int:
        """Return the number of a new request for the process's stack."""
        self._requests += 1
        return self._requests

    def read_stack(self) -> str | None:
        """Return the stack of the process after the last request, or None. Blocking, 1.7 s at most."""
        process, stacks = self.process, self._stacks
        if process is None or stacks is None or process.returncode is not None:
            return None
        return stacks.wait(process.pid, self._requests)

    def kill(self) -> None:
        """Kill the process and those that it has started."""
        process = self.process
        if process is not None and process.returncode is None:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                process.kill()

    def reap(self) -> None:
        """End the process and wait for it (blocking); nothing writes to its memory after that."""
        self.hang_up()
        self.kill()
        if self.process is not None:
            self.exit_code = self.process.wait()
            if self.exit_code in CRASHES and self._stacks is not None:
                self.stack = self._stacks.left()

    def hang_up(self) -> None:
        """Close the socket: the process leaves. From any thread."""
        sock = self.sock
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)  # a fork of this process may hold this end too
            sock.close()

    def wait(self, deadline: float) -> None:
        """Wait until the process has ended, `deadline` (monotonic seconds) at the latest. From any thread.

        It is not reaped, so that its number is not reused and the processes that it has started can still be ended.
        """
        process = self.process
        if process is None or process.returncode is not None:
            return
        fd = _end_descriptor(process.pid)
        try:
            while not _has_ended(process.pid):
                left = deadline - time.monotonic()
                if left <= 0:
                    return
                if fd is None:
                    time.sleep(min(left, _WAIT_POLL_S))
                else:
                    waiting = select.poll()
                    waiting.register(fd, select.POLLIN)
                    waiting.poll(1000 * left)
        finally:
            if fd is not None:
                os.close(fd)

    def reap_until(self, deadline: float) -> None:
        """Reap a process that was killed, if it ends by `deadline` (monotonic seconds). From any thread."""
        if self.process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """Release a process that was killed. From any thread."""
        process, stacks = self.process, self._stacks
        if process is not None and process.poll() is None:
            # The kernel is busy with its memory. A thread reaps it: closing does not wait, and no zombie is left.
            with contextlib.suppress(RuntimeError):  # no thread can be started while the interpreter ends
                start_thread(process.wait, "aioloader-reaper")
        if stacks is not None:
            stacks.close()


def end_all(children: Sequence[ChildProcess], patience_s: float) -> None:
    """End processes: close their sockets, give them `patience_s` seconds to leave, and kill those that are left.

    From any thread; blocking, 0.4 s longer at most.
    """
    for child in children:
        child.hang_up()
    deadline = time.monotonic() + patience_s
    for child in children:
        child.wait(deadline)
    for child in children:
        child.kill()
    deadline = time.monotonic() + _REAP_S
    for child in children:
        child.reap_until(deadline)
        child.close()


async def read_stacks(children: Sequence[ChildProcess]) -> list[str | None]:
    """Wait for the stacks that were requested from processes, 2 s at most; None for one that does not answer."""
    found: list[str | None] = [None] * len(children)
    if not found:
        return found

    def wait() -> None:
        for place, child in enumerate(children):
            found[place] = child.read_stack()

    # In a separate thread: those of the loader may be stuck.
    threads = Threads(1, "aioloader-stacks")
    try:
        with anyio.move_on_after(_STACKS_S):
            await threads.run_abandonable(wait, abandoned=lambda: None)
    finally:
        threads.close(0)
    return list(found)
