"""Runner of a target in separate processes, so that a hang or a crash is detected, named, and does not end the run."""

from __future__ import annotations

import json
import mmap
import os
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import IO

from tests.fuzz.target import ROOT, Found, Tally

BOARD_BYTES = 1 << 20
HEAD = struct.Struct("<QI")
"""Start of a board: number of tried inputs, and length of the current one, whose bytes follow."""

_LOOK_S = 0.2
_MOST_RESTARTS = 20


@dataclass
class _Share:
    """Work of one process, and its reports."""

    inputs: int
    seed: str
    done: int = 0
    outcomes: Counter[str] | None = None


def run(
    where: str,
    *,
    inputs: int,
    seconds: float = float("inf"),
    seed: int = 0,
    processes: int = 1,
    hang_s: float = 20.0,
) -> Tally:
    """Try new inputs until their number is reached, or the time is up.

    Args:
        where: the target, see `tests.fuzz.targets.load`.
        inputs: number of inputs of all processes together.
        seconds: time limit.
        seed: with the same seed and number of processes the inputs are the same.
        processes: number of parallel processes.
        hang_s: an input that takes longer than this is a finding.
    """
    tally = Tally()
    lock = threading.Lock()
    begin = time.monotonic()
    shares = [
        _Share(inputs // processes + (rank < inputs % processes), f"{seed}.{rank}")
        for rank in range(processes)
    ]
    threads = [
        threading.Thread(target=_supervise, args=(where, share, begin + seconds, hang_s, tally, lock))
        for share in shares
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tally.seconds = time.monotonic() - begin
    return tally


def _supervise(
    where: str, share: _Share, until: float, hang_s: float, tally: Tally, lock: threading.Lock
) -> None:
    """Run one process after the other, until the share is done."""
    for restart in range(_MOST_RESTARTS):
        left = share.inputs - share.done
        if left <= 0 or time.monotonic() >= until:
            return
        seed = f"{share.seed}.{restart}"
        with tempfile.TemporaryFile(prefix="fuzz-board-") as file:
            file.truncate(BOARD_BYTES)
            ended, outcomes = _one_process(where, left, seed, until, hang_s, file, tally, lock)
            count, length = HEAD.unpack(os.pread(file.fileno(), HEAD.size, 0))
            data = os.pread(file.fileno(), length, HEAD.size)
        with lock:
            tally.outcomes += outcomes
            share.done += sum(outcomes.values())
            if ended is None:
                continue
            # Of inputs that were tried but not reported only the number is known.
            lost = max(0, count - sum(outcomes.values()) - 1)
            if lost:
                tally.outcomes["untold"] += lost
            tally.outcomes["finding"] += 1
            share.done += lost + 1
            tally.found.setdefault(ended, Found(data, f"{ended} (after {count} inputs, seed {seed})\n"))


def _one_process(
    where: str,
    inputs: int,
    seed: str,
    until: float,
    hang_s: float,
    board: IO[bytes],
    tally: Tally,
    lock: threading.Lock,
) -> tuple[str | None, Counter[str]]:
    """Run one process to its end; return the cause of its death, if it died, and the outcomes that it reported."""
    outcomes: Counter[str] = Counter()
    finished = threading.Event()
    seconds = until - time.monotonic()
    command = [sys.executable, "-m", "tests.fuzz.worker", where, str(inputs), seed, str(seconds)]
    process = subprocess.Popen(
        [*command, str(board.fileno())],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=(board.fileno(),),
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", "")))},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    said: list[bytes] = []
    # Decoders write many warnings to standard error: only the end of it is kept.
    errors = threading.Thread(target=_keep_last, args=(process.stderr, said), daemon=True)
    errors.start()

    def listen() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            message = json.loads(line)
            outcomes.clear()
            outcomes.update(message["outcomes"])
            if message.get("done"):
                finished.set()
            with lock:
                for place, found in message.get("found", {}).items():
                    tally.found.setdefault(place, Found(bytes.fromhex(found["data"]), found["text"]))

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    hung = _watch(process, board, hang_s)
    listener.join()
    errors.join()
    process.stdout.close()
    process.stderr.close()
    if finished.is_set() and not hung:
        return None, outcomes
    if hung:
        return f"no end within {hang_s:g} s", outcomes
    return (
        f"ended with status {process.returncode}: {b''.join(said)[-500:].decode(errors='replace')}",
        outcomes,
    )


def _watch(process: subprocess.Popen[bytes], board: IO[bytes], hang_s: float) -> bool:
    """Wait for the process; kill it when its count no longer rises, and return True then."""
    shown = -1
    since = time.monotonic()
    while True:
        try:
            process.wait(_LOOK_S)
            return False
        except subprocess.TimeoutExpired:
            pass
        count = HEAD.unpack(os.pread(board.fileno(), HEAD.size, 0))[0]
        if count != shown:
            shown, since = count, time.monotonic()
        # Until the first input it loads libraries, which may take long on a busy machine.
        elif time.monotonic() - since > (hang_s if count else max(hang_s, 60.0)):
            process.kill()
            process.wait()
            return True


def _keep_last(stream: IO[bytes], said: list[bytes]) -> None:
    for line in stream:
        said.append(line)
        del said[:-20]


def board_of(descriptor: int) -> mmap.mmap:
    """Return the board in the form in which the process writes to it."""
    return mmap.mmap(descriptor, BOARD_BYTES)
