"""Runner of one job of a contender in a fresh process; measures from outside that process and all its children.

CPU time of the whole tree is read when the timed phase begins and when it ends. Memory (the proportional set size:
pages shared by n processes count 1/n in each) is sampled while the contender warms up and after it was timed, never in
between: reading it walks page tables and takes locks.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import tempfile
from dataclasses import asdict
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from aioloader.tools.bench import cpu_seconds, memory_nbytes, process_tree

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.cases import Case


ROOT = Path(__file__).resolve().parents[1]

_SAMPLE_S = 0.1
_LEAVE_S = (
    30.0  # a contender that has delivered everything and does not leave has failed: some finish batches
)
_END_S = 10.0  # a process that has reported its result and does not end is killed

# Fields of /proc/PID/stat after the name, which may contain spaces, and of the first line of /proc/stat.
_START = 19
_IDLE = slice(3, 5)  # idle, and waiting for a disk
_GUEST = 8  # contained in the times before it


class JobFailure(Exception):
    """Error raised when a job failed; the text states the reason in one line.

    Attributes:
        log: the output of the process, and its traceback.
        wrong: the contender ran, but its output differs from the case.
    """

    def __init__(self, reason: str, log: str = "", wrong: bool = False) -> None:
        super().__init__(reason)
        self.log = log
        self.wrong = wrong


def run_job(
    python: Path,
    name: str,
    job: str,
    *,
    limit_s: float,
    cores: Sequence[int] = (),
    case: Case | None = None,
    variables: Mapping[str, str] | None = None,
    **request: Any,
) -> dict[str, Any]:
    """Run one job (see `benchmarks.contenders.run`).

    Args:
        python: interpreter of the contender's environment.
        name: the contender.
        job: "describe", "prepare", "check" or "measure".
        limit_s: seconds after which it is killed.
        cores: numbers of the cores that it may use; empty: all.
        case: the case.
        variables: environment variables.
        request: further entries of the request; ``module``: the contender's module, if its name differs.

    Returns:
        the job's result; for "measure" with ``first_batch_cpu_s`` (CPU seconds of the whole tree from opening to the
        first batch), ``cpu_s`` (CPU seconds per second of the timed phase, of the whole tree), ``others_cpu_s`` (the
        same of all other processes), and ``peak_pss`` (bytes; None if the system does not report it).

    Raises:
        JobFailure: it failed, died or took too long. None of its processes is left running.
    """
    read_end, write_end = os.pipe()
    request = {"module": f"benchmarks.contenders.{name}", **request}
    request |= {"name": name, "job": job, "cores": list(cores), "events": write_end}
    if case is not None:
        request["case"] = asdict(case)
    command = [str(python), "-m", "benchmarks.contenders.run", json.dumps(request, default=str)]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **(variables or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(write_end,),
            start_new_session=True,
        )
        os.close(write_end)
        watch = _Watch(process, read_end, limit_s)
        try:
            watch.follow()
        finally:
            os.close(read_end)
            _end(process, _END_S if watch.finished else 0.0)
        output.seek(0)
        log = output.read()[-100_000:].decode(errors="replace")
    return watch.result(log)


class _Watch:
    """Watch over a process by its events."""

    def __init__(self, process: subprocess.Popen[bytes], events: int, limit_s: float) -> None:
        self._process = process
        self._events = events
        self._limit_s = limit_s
        self._phase = ""
        self._cpu: dict[str, tuple[float, float, float]] = {}
        self._peak_pss: int | None = None
        self._result: dict[str, Any] | None = None
        self._error: dict[str, Any] | None = None
        self._late = False

    @property
    def finished(self) -> bool:
        """Return whether the job has reported its result or its error, and is about to end."""
        return self._result is not None or self._error is not None

    def follow(self) -> None:
        """Read events until the job has reported its result, ended or taken too long."""
        deadline = monotonic() + self._limit_s
        pending = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._events, selectors.EVENT_READ)
            while not self.finished:
                if monotonic() > deadline:
                    self._late = True
                    return
                if selector.select(_SAMPLE_S):
                    chunk = os.read(self._events, 1 << 16)
                    if not chunk:  # it has ended, or is about to end
                        self._wait_until(deadline)
                        return
                    *lines, pending = (pending + chunk).split(b"\n")
                    for line in lines:
                        event = json.loads(line)
                        self._take(event)
                        if event["event"] == "driven":
                            deadline = min(deadline, monotonic() + _LEAVE_S)
                if self._phase in ("", "warm", "memory"):
                    self._sample_memory()

    def result(self, log: str) -> dict[str, Any]:
        """Return the job's result.

        Raises:
            JobFailure: there is no result, or it came too late.
        """
        if self._error is not None:
            raise JobFailure(
                " ".join(self._error["text"].split())[:400],
                log + "\n" + self._error.get("traceback", ""),
                self._error["wrong"],
            )
        if self._result is None:
            if self._late:
                what = "did not end" if self._phase == "driven" else f"took more than {self._limit_s:.0f} s"
                raise JobFailure(what, log)
            raise JobFailure(f"ended with {_exit(self._process.returncode)}{_last_line(log)}", log)
        found = {key: value for key, value in self._result.items() if key not in ("event", "at")}
        if "opening" in self._cpu and "warm" in self._cpu:
            found["first_batch_cpu_s"] = self._cpu["warm"][1] - self._cpu["opening"][1]
        if "timed" in self._cpu and "after" in self._cpu:
            seconds, used, busy = (
                then - now for now, then in zip(self._cpu["timed"], self._cpu["after"], strict=True)
            )
            found["cpu_s"] = used / seconds
            found["others_cpu_s"] = max(0.0, busy - used) / seconds
            found["peak_pss"] = self._peak_pss
        return found

    def _take(self, event: dict[str, Any]) -> None:
        name = event["event"]
        if name == "result":
            self._result = event
        elif name == "error":
            self._error = event
        else:
            if name in ("opening", "warm", "timed"):
                self._cpu[name] = self._now()
            elif self._phase == "timed":
                self._cpu["after"] = self._now()
            self._phase = name

    def _wait_until(self, deadline: float) -> None:
        try:
            self._process.wait(max(0.0, deadline - monotonic()))
        except subprocess.TimeoutExpired:
            self._late = True

    def _sample_memory(self) -> None:
        nbytes = memory_nbytes(self._process.pid)
        if nbytes is not None:
            self._peak_pss = max(self._peak_pss or 0, nbytes)

    def _now(self) -> tuple[float, float, float]:
        return monotonic(), cpu_seconds(self._process.pid) or 0.0, busy_seconds() or 0.0


def _end(process: subprocess.Popen[bytes], patience_s: float) -> None:
    """Wait for the process to end; after `patience_s` seconds kill it and all that it has started."""
    tree = {member: started(member) for member in process_tree(process.pid)}
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        pass
    for member, start in tree.items():
        if start is not None and started(member) == start:
            try:
                os.kill(member, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    process.wait()


def _exit(code: int | None) -> str:
    if code is not None and code < 0:
        return f"signal {signal.Signals(-code).name}"
    return f"exit code {code}"


def _last_line(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    return f": {lines[-1][:300]}" if lines else ""


def started(pid: int) -> int | None:
    """Return the start time of a process in clock ticks; it distinguishes processes with the same number."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return int(text.rpartition(")")[2].split()[_START])


def busy_seconds() -> float | None:
    """Return the CPU seconds that all cores of the machine together have been busy since it started."""
    try:
        with open("/proc/stat") as file:
            ticks = [int(word) for word in file.readline().split()[1:]]
    except (OSError, ValueError):
        return None
    return (sum(ticks[:_GUEST]) - sum(ticks[_IDLE])) / os.sysconf("SC_CLK_TCK")
