"""Tests of workers that hang in samples, between them, and after them: each ends after `timeout`, with its stack."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cloudpickle
import numpy as np
import pytest

from aioloader import DataLoader, LoaderError, SampleError, SimpleDataset
from aioloader.errors import StalledError
from tests.aioloader.cluster import wait_until
from tests.aioloader.loader.programs import run_program
from tests.cases import with_cases
from tests.executors import pool

pytestmark = pytest.mark.own_workers

# Workers need not import this module and its imports at every start.
cloudpickle.register_pickle_by_value(sys.modules[__name__])

EXECUTORS = ["thread", "process"]
TIMEOUT_S = 0.5
# Less than it would take if every sample of a batch waited for its own timeout.
LIMIT_S = 5.0
SAMPLES = 16


def workers_of(loader: Any) -> list[int]:
    """Return the process numbers of the workers that are not starting."""
    return [handle.process.pid for handle in loader._runtime.open().executor._table.handles if handle.ready]


def hang() -> None:
    threading.Event().wait(60)


class Sticky:
    """Value that hangs when it is freed, or when it is pickled."""

    def __init__(self, way: str) -> None:
        self.way = way

    def __del__(self) -> None:
        if self.way == "freed":
            hang()

    def __reduce__(self) -> Any:
        if self.way == "pickled":
            hang()
        return (int, (1,))


class Hanging:
    """Transform that hangs in one of several ways, for each sample from number `first` on."""

    def __init__(self, way: str, first: int) -> None:
        self.way = way
        self.first = first

    def __call__(self, number: int) -> Any:
        if number < self.first:
            return np.float32(number)
        if self.way == "made":
            hang()
        if self.way == "pickled":
            return Sticky(self.way)
        if self.way == "freed":
            del [Sticky(self.way)][:]
        return np.float32(number)


def hanging_batchify(samples: list[Any]) -> Any:
    if any(sample >= 4 for sample in samples):
        hang()
    return np.stack(samples)


def ways(executor: str) -> list[str]:
    return ["made", "freed", "batchify"] if executor == "thread" else ["made", "freed", "pickled", "batchify"]


@with_cases("first", [0, 4])
@with_cases(("executor", "way"), [(executor, way) for executor in EXECUTORS for way in ways(executor)])
def test_the_first_sample_that_hangs_ends_the_pass(executor: str, way: str, first: int) -> None:
    options: dict[str, Any] = {"batchify_fn": hanging_batchify} if way == "batchify" else {}
    dataset = SimpleDataset(range(SAMPLES)).transform(Hanging(way, 99 if way == "batchify" else first))
    with DataLoader(dataset, SAMPLES, timeout=TIMEOUT_S, **pool(executor, 2), **options) as loader:
        with pytest.raises(LoaderError) as caught:
            list(loader)
    error = caught.value
    stalled = error.__cause__ if isinstance(error, SampleError) else error
    assert isinstance(stalled, StalledError)
    assert any("in hang" in note for note in stalled.__notes__)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_batch_that_hangs_is_named_and_the_others_are_made(executor: str) -> None:
    """A batch of which every sample is in the batchify function cannot do without one of them."""
    with DataLoader(
        SimpleDataset(np.arange(8)),
        4,
        timeout=TIMEOUT_S,
        batchify_fn=hanging_batchify,
        on_error="skip",
        **pool(executor, 1),
    ) as loader:
        batches = iter(loader)
        assert next(batches).tolist() == [0, 1, 2, 3]
        with pytest.raises(StalledError):
            next(batches)


@pytest.mark.parametrize("stops_at", ["start", "sample"])
def test_a_stopped_worker_is_replaced(stops_at: str) -> None:
    """A process that the system stops makes no progress, before its first sample as within one."""

    def stop(number: int) -> np.float32:
        if number == 20 and stops_at == "sample":
            os.kill(os.getpid(), signal.SIGSTOP)
        return np.float32(number)

    dataset = SimpleDataset(range(40)).transform(stop)
    with DataLoader(dataset, 4, timeout=TIMEOUT_S, on_error="skip", num_workers=2) as loader:
        passes = iter(loader)
        seen = next(passes).tolist()
        if stops_at == "start":
            seen += sum((batch.tolist() for batch in passes), [])
            os.kill(workers_of(loader)[0], signal.SIGSTOP)
            seen, passes = [], iter(loader)
        seen += sum((batch.tolist() for batch in passes), [])
        failed = [error.index for error in loader.errors]
    assert failed == ([20] if stops_at == "sample" else [])
    assert seen == [n for n in range(40) if n not in failed]


PRINTING = """
import sys
from aioloader import DataLoader, LoaderError, SimpleDataset

class Talk:
    def __call__(self, number):
        print("x" * 4000)
        return number

try:
    with DataLoader(SimpleDataset(range(400)).transform(Talk()), 2, num_workers=2, timeout=1) as loader:
        for batch in loader:
            pass
except LoaderError as error:
    print(type(error.__cause__).__name__, file=sys.stderr)
    print(*error.__cause__.__notes__, file=sys.stderr)
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


class Slow:
    """Transform that takes a millisecond for some samples, so that a signal finds workers at any point."""

    def __call__(self, number: int) -> np.float32:
        if number % 3 == 0:
            time.sleep(0.001)
        return np.float32(number)


def stop_workers(seed: int, passes: int) -> list[float]:
    """Stop a random worker at a random moment of each pass; return the seconds of each pass."""
    draws = random.Random(seed)
    seconds = []
    with DataLoader(
        SimpleDataset(range(60)).transform(Slow()), 4, timeout=TIMEOUT_S, on_error="skip", num_workers=2
    ) as loader:
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
                timer = threading.Timer(draws.uniform(0, 0.04), os.kill, (victim, signal.SIGSTOP))
                timer.start()
            seen = [number for batch in loader for number in batch.tolist()]
            seconds.append(time.monotonic() - begin)
            timer.join()
            left = not left and executor.restarts == restarts
            failed = [error.index for error in loader.errors[known:]]
            assert seen == [n for n in range(60) if n not in failed]
    return seconds


@pytest.mark.slow
@pytest.mark.parametrize("part", range(5))
def test_passes_end_soon_after_a_worker_is_stopped_at_a_random_moment(part: int, leftovers: Any) -> None:
    total = int(os.environ.get("AIOLOADER_TEST_HANGS", "100")) // 5
    with ThreadPoolExecutor(4) as threads:
        parts = threads.map(stop_workers, range(4 * part, 4 * part + 4), [total // 4] * 4)
        seconds = sorted(second for part in parts for second in part)
    print(f"{total} stops: median {seconds[len(seconds) // 2]:.2f} s, longest {seconds[-1]:.2f} s")
    assert seconds[-1] < LIMIT_S
