"""Tests of workers that hang in samples, between them, and after them: each ends after `timeout`, with its stack."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest

from aioloader import DataLoader, LoaderError, SampleError, SimpleDataset
from aioloader.errors import StalledError
from tests.aioloader.cluster import wait_until
from tests.aioloader.loader.programs import run_program
from tests.aioloader.loader.samples import Hanging
from tests.cases import with_cases
from tests.executors import pool

pytestmark = pytest.mark.own_workers

TIMEOUT_S = 0.5
# Less than it would take if every sample of a batch waited for its own timeout.
LIMIT_S = 5.0


def workers_of(loader: Any) -> list[int]:
    """Return the process numbers of the workers that are not starting."""
    return [handle.process.pid for handle in loader._runtime.open().executor._table.handles if handle.ready]


class Sticky:
    """Value that hangs when it is freed, or when it is pickled."""

    def __init__(self, way: str, hung: Hanging) -> None:
        self.way, self.hung = way, hung

    def __del__(self) -> None:
        if self.way == "freed":
            self.hung.hang()

    def __reduce__(self) -> Any:
        if self.way == "pickled":
            self.hung.hang()
        return (int, (1,))


def hanging(way: str, first: int, hung: Hanging) -> Any:
    """Return a dataset whose samples hang in one of several ways from number `first` on."""

    def make(number: int) -> Any:
        if number >= first and way == "made":
            hung.hang()
        if number >= first and way == "pickled":
            return Sticky(way, hung)
        if number >= first and way == "freed":
            del [Sticky(way, hung)][:]
        return np.float32(number)

    return SimpleDataset(range(8)).transform(make)


def hanging_batchify(samples: list[Any], hung: Hanging) -> Any:
    if any(sample >= 4 for sample in samples):
        hung.hang()
    return np.stack(samples)


@with_cases(
    ("executor", "way", "first"),
    [
        *(("thread", way, first) for way, first in (("made", 0), ("freed", 4), ("batchify", 0))),
        *(
            ("process", way, first)
            for way, first in (("made", 4), ("freed", 0), ("pickled", 0), ("pickled", 4))
        ),
    ],
)
def test_the_first_sample_that_hangs_ends_the_pass(
    executor: str, way: str, first: int, only_hung: Hanging
) -> None:
    options: dict[str, Any] = pool(executor, 1)
    if way == "batchify":
        options["batchify_fn"] = partial(hanging_batchify, hung=only_hung)
    with DataLoader(hanging(way, first, only_hung), 8, timeout=TIMEOUT_S, **options) as loader:
        with pytest.raises(LoaderError) as caught:
            list(loader)
    error = caught.value
    stalled = error.__cause__ if isinstance(error, SampleError) else error
    assert isinstance(stalled, StalledError)
    assert any("in hang" in note for note in stalled.__notes__)


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_a_batch_that_hangs_is_named_and_the_others_are_made(executor: str, only_hung: Hanging) -> None:
    """A batch of which every sample is in the batchify function cannot do without one of them."""
    batchify = partial(hanging_batchify, hung=only_hung)
    options: dict[str, Any] = {"timeout": TIMEOUT_S, "batchify_fn": batchify, "on_error": "skip"}
    with DataLoader(SimpleDataset(np.arange(8)), 4, **options, **pool(executor, 1)) as loader:
        batches = iter(loader)
        assert next(batches).tolist() == [0, 1, 2, 3]
        with pytest.raises(StalledError):
            next(batches)


@pytest.mark.parametrize("stops_at", ["start", "sample"])
def test_a_stopped_worker_is_replaced(stops_at: str, only_hung: Hanging) -> None:
    """A process that the system stops makes no progress, before its first sample as within one."""

    def stop(number: int) -> np.float32:
        if number == 20 and stops_at == "sample":
            only_hung.mark(os.getpid())
            os.kill(os.getpid(), signal.SIGSTOP)
        return np.float32(number)

    dataset = SimpleDataset(range(40)).transform(stop)
    with DataLoader(dataset, 4, timeout=TIMEOUT_S, on_error="skip", num_workers=2) as loader:
        passes = iter(loader)
        seen = next(passes).tolist()
        if stops_at == "start":
            seen += sum((batch.tolist() for batch in passes), [])
            stopped = workers_of(loader)[0]
            os.kill(stopped, signal.SIGSTOP)
            only_hung.mark(stopped)
            seen, passes = [], iter(loader)
        seen += sum((batch.tolist() for batch in passes), [])
        failed = [error.index for error in loader.errors]
    assert failed == ([20] if stops_at == "sample" else [])
    assert seen == [n for n in range(40) if n not in failed]


PRINTING = """
import sys
from aioloader import DataLoader, LoaderError, SimpleDataset

try:
    data = SimpleDataset(range(400)).transform(lambda number: print("x" * 4000) or number)
    with DataLoader(data, 2, num_workers=1, timeout=1) as loader:
        list(loader)
except LoaderError as error:
    print(type(error.__cause__).__name__, *error.__cause__.__notes__, sep="\\n", file=sys.stderr)
"""


def test_a_standard_output_that_nobody_reads_ends_the_pass() -> None:
    """What a worker has printed is written after its chunk, and may not fit into the pipe."""
    read, write = os.pipe()
    try:
        done = run_program(PRINTING, capture_output=False, stdout=write, stderr=subprocess.PIPE)
    finally:
        os.close(read)
        os.close(write)
    assert done.stderr.splitlines()[0] == "StalledError"
    assert "the worker was at" in done.stderr


def slow(number: int) -> np.float32:
    """Take a millisecond for some samples, so that a signal finds workers at any point."""
    if number % 3 == 0:
        time.sleep(0.001)
    return np.float32(number)


def stop_workers(seed: int, passes: int, hung: Hanging) -> list[float]:
    """Stop a random worker at a random moment of each pass; return the seconds of each pass."""

    def stop(victim: int) -> None:
        os.kill(victim, signal.SIGSTOP)
        hung.mark(victim)

    draws = random.Random(seed)
    seconds = []
    data = SimpleDataset(range(60)).transform(slow)
    with DataLoader(data, 4, timeout=TIMEOUT_S, on_error="skip", num_workers=2) as loader:
        list(loader)
        executor = loader._runtime.open().executor
        left = False  # the last one was stopped when it had nothing more to do
        for _ in range(passes):
            # A pass that has lost both workers takes as long as the machine needs to start another one, which goes on
            # while the loader is used.
            if not left:
                wait_until(lambda: len(workers_of(loader)) == 2 or not list(loader))
            known, restarts = len(loader.errors), executor.restarts
            begin = time.monotonic()
            if not left:
                victim = draws.choice(workers_of(loader))
                timer = threading.Timer(draws.uniform(0, 0.04), stop, (victim,))
                timer.start()
            seen = [number for batch in loader for number in batch.tolist()]
            spent = time.monotonic() - begin
            timer.join()
            left = not left and executor.restarts == restarts
            failed = [error.index for error in loader.errors[known:]]
            assert seen == [n for n in range(60) if n not in failed]
            if spent > LIMIT_S:  # the machine may be as busy: a pass without a stop shows it
                begin = time.monotonic()
                list(loader)
                spent -= 20 * (time.monotonic() - begin)
            seconds.append(spent)
    return seconds


@pytest.mark.slow
@pytest.mark.parametrize("part", range(3))
def test_passes_end_soon_after_a_worker_is_stopped_at_a_random_moment(
    part: int, only_hung: Hanging, leftovers: Any
) -> None:
    total = int(os.environ.get("AIOLOADER_TEST_HANGS", "60")) // 3
    with ThreadPoolExecutor(4) as threads:
        seeds = range(4 * part, 4 * part + 4)
        parts = threads.map(partial(stop_workers, passes=total // 4, hung=only_hung), seeds)
        seconds = sorted(second for part in parts for second in part)
    print(f"{total} stops: median {seconds[len(seconds) // 2]:.2f} s, longest {seconds[-1]:.2f} s")
    assert seconds[-1] < LIMIT_S
