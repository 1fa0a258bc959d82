"""Tests of stall reports: stage, queues, samples and the stack of the blocked code."""

import asyncio
import contextlib
import logging
import os
import re
import time

import anyio
import pytest

from aioloader import AsyncDataLoader, DataLoader
from aioloader.errors import StalledError
from aioloader.foundation.types import WorkerState
from aioloader.pipeline.watchdog import EpochView, report
from tests.aioloader.loader.samples import Bytes, ByteSource, Made
from tests.cases import with_cases

BATCHES = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


def stand_still(fifo):
    """Block until another process opens the other end and closes it."""
    with open(fifo) as end:
        end.read()


def stuck(fifo, items=(5,), hung=None):
    """Return a dataset of numbers, some of which wait until they are released."""

    def make(index):
        if index in items:
            if hung is not None:
                hung.threads += 1
            stand_still(fifo)
        return index

    return Made(12, make)


class Listener(logging.Handler):
    """Log handler that keeps the library's messages, and calls a function for each."""

    def __init__(self, then=None):
        super().__init__()
        self.then = then
        self.records = []

    def emit(self, record):
        self.records.append(record)
        if self.then is not None:
            self.then()

    def free(self, fifo):
        """Release the blocked item once a report names it: earlier reports may show starting workers."""
        record = self.records[-1]
        if record.batch == 1 and any("in stand_still" in (each["stack"] or "") for each in record.workers):
            self.told, self.then = record, None
            release(fifo)

    def __enter__(self):
        logging.getLogger("aioloader").addHandler(self)
        return self

    def __exit__(self, *_):
        logging.getLogger("aioloader").removeHandler(self)


@pytest.fixture
def fifo(tmp_path):
    path = tmp_path / "never written"
    os.mkfifo(path)
    return path


def release(fifo):
    with contextlib.suppress(OSError):  # no sample is blocked
        os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))


def check(record):
    assert (record.levelname, record.name) == ("WARNING", "aioloader")
    assert (record.stage, record.batch) == ("work", 1)
    assert 5 in record.outstanding
    assert set(record.outstanding) <= {4, 5, 6, 7}
    assert record.seconds >= 0.3
    assert record.queues["batches_allowed"] == 4
    assert record.queues["memory_limit_bytes"] > 0
    assert record.under_way[1] == "work"
    (worker,) = [each for each in record.workers if each["index"] == 5]
    assert worker["batch"] == 1
    assert "in stand_still" in worker["stack"]
    text = record.getMessage()
    assert "waits for batch 1 of this epoch, which is in the workers" in text
    assert f"{worker['name']}: at the sample with index 5, batch 1" in text
    assert "in stand_still" in text


async def test_an_async_loop_gets_a_report_of_what_is_stuck_and_continues(fifo, no_blocking):
    loop = asyncio.get_running_loop()
    with Listener(lambda: loop.call_soon(told.free, fifo)) as told:
        options = {"num_workers": 2, "executor": "thread", "stall_timeout": 0.3}
        async with AsyncDataLoader(stuck(fifo), 4, **options) as loader:
            assert [batch.tolist() async for batch in loader] == BATCHES
    check(told.told)


def test_a_blocking_loop_gets_a_report_too(fifo, leftovers):
    with Listener(lambda: told.free(fifo)) as told:
        options = {"num_workers": 2, "executor": "process", "stall_timeout": 0.3}
        with DataLoader(stuck(fifo), 4, **options) as loader:
            assert [batch.tolist() for batch in loader] == BATCHES
    check(told.told)


def catastrophe():
    """Return Python code that holds the interpreter's lock in C for longer than every timeout."""
    return re.match(r"(a+)+$", "a" * 60 + "b")


@pytest.mark.slow
async def test_a_worker_that_runs_no_python_code_is_seen_into_all_the_same(leftovers):
    deaf = Made(4, lambda index: catastrophe() if index == 2 else index)
    async with AsyncDataLoader(deaf, 4, num_workers=1, stall_timeout=0.3) as loader:
        batches = aiter(loader)
        with anyio.CancelScope() as scope:
            seen = []

            def stop():
                seen.append([each["stack"] or "" for each in told.records[-1].workers])
                if "in catastrophe" in seen[-1][0]:
                    scope.cancel()

            with Listener(stop) as told:
                with anyio.fail_after(30):
                    await anext(batches)
    assert "in catastrophe" in seen[-1][0]


class Source(ByteSource):
    """Byte source that waits for an event before it returns the bytes of item 2."""

    def __init__(self, released):
        self.released = released

    async def read(self, plan, out):
        if 2 in plan.reads:
            await self.released.wait()
        return await super().read(plan, out)


async def test_a_read_that_hangs_is_reported_as_such():
    released = anyio.Event()
    with Listener(
        lambda: (told.records[-1].stage, told.records[-1].batch) == ("fetch", 1) and released.set()
    ) as told:
        dataset = Bytes(Source(released), 4)
        async with AsyncDataLoader(dataset, 2, executor="thread", num_workers=1, stall_timeout=0.2) as loader:
            assert [batch.tolist() async for batch in loader] == [[0, 1], [2, 3]]
    (record, *_) = (each for each in told.records if each.batch == 1)
    assert (record.stage, record.outstanding) == ("fetch", [2, 3])
    assert "batch 1 of this epoch, which is being fetched" in record.getMessage()


def slow(pause_s):
    return Made(12, lambda index: time.sleep(pause_s) or index)


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["thread", "process"])
async def test_what_is_slow_but_moves_is_no_stall(executor):
    # The first pass starts the workers, which may take longer than that.
    async with AsyncDataLoader(slow(0.2), 12, num_workers=1, executor=executor, stall_timeout=1.5) as loader:
        async for _ in loader:
            pass
        with Listener() as told:
            async for _ in loader:
                pass
    assert told.records == []


@pytest.mark.slow
async def test_a_caller_who_takes_time_is_no_stall():
    async with AsyncDataLoader(slow(0), 2, num_workers=1, executor="thread", stall_timeout=0.4) as loader:
        with Listener() as told:
            batches = aiter(loader)
            await anext(batches)
            await anyio.sleep(1)
            await anext(batches)
    assert told.records == []


async def test_none_switches_it_off(fifo):
    options = {"num_workers": 1, "executor": "thread", "stall_timeout": None}
    async with AsyncDataLoader(stuck(fifo), 4, **options) as loader:
        with Listener() as told:
            batches = aiter(loader)
            await anext(batches)
            with anyio.move_on_after(0.3):
                await anext(batches)
        release(fifo)
    assert told.records == []


async def test_a_sample_that_timed_out_reports_its_stack(fifo, only_hung):
    options = {"num_workers": 1, "executor": "thread", "timeout": 0.3, "on_error": "skip"}
    async with AsyncDataLoader(stuck(fifo, hung=only_hung), 4, **options) as loader:
        assert [batch.tolist() async for batch in loader] == [[0, 1, 2, 3], [4, 6, 7], [8, 9, 10, 11]]
        (error,) = loader.errors
        release(fifo)
    assert (error.index, type(error.__cause__)) == (5, StalledError)
    assert "in stand_still" in "\n".join(error.__cause__.__notes__)


@pytest.mark.slow
def test_no_sample_waits_for_a_stuck_thread(fifo, only_hung):
    options = {"num_workers": 2, "executor": "thread", "timeout": 0.1, "on_error": "skip"}
    with DataLoader(stuck(fifo, range(1, 12), only_hung), 4, **options) as loader:
        assert [batch.tolist() for batch in loader] == [[0]]
        assert [error.index for error in loader.errors] == list(range(1, 12))
        release(fifo)


@with_cases("value", [0, -1, float("nan"), "soon", True])
def test_values_that_are_no_time_are_refused(value):
    with pytest.raises((ValueError, TypeError), match="stall_timeout"):
        DataLoader([1], 1, stall_timeout=value)


VIEW = EpochView(
    wanted=True, batch=0, stage="work", indices=(0, 1, 2, 3), under_way={0: "work"}, ready=0, prefetch=1
)
QUEUES = dict.fromkeys(
    ("batches", "chunks_queued", "memory_bytes", "memory_held_bytes", "memory_limit_bytes"), 0
)


def test_samples_are_outstanding_that_workers_have_for_the_batch_or_for_one_that_they_do_not_know():
    held = {0: (1,), None: (2,), 1: (3,)}
    workers = [WorkerState("a", "working", batch, outstanding=rows) for batch, rows in held.items()]
    assert report(VIEW, 30.0, workers, QUEUES)[1]["outstanding"] == [1, 2]


def test_a_report_says_why_a_worker_may_start_slowly():
    text = report(VIEW, 30.0, [WorkerState("process 7", "starting")], QUEUES)[0]
    assert (
        "process 7: starting: it imports the program's modules, which takes long where other programs use"
        in text
    )
