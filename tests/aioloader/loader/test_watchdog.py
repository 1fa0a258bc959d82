"""Tests of stall reports: stage, queues, samples and the stack of the blocked code."""

import asyncio
import contextlib
import ctypes
import logging
import os
import re
import signal
import sys
import time

import anyio
import cloudpickle
import numpy as np
import pytest

from aioloader import AsyncDataLoader, DataLoader, WorkerError
from aioloader.errors import StalledError
from aioloader.foundation.types import ItemLocation, ReadPlan, Spans, WorkerState
from aioloader.pipeline.watchdog import EpochView, report

EXECUTORS = ["thread", pytest.param("process", marks=pytest.mark.slow)]
# Workers need not import this module and its imports at every start.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def stand_still(fifo):
    """Block until another process opens the other end and closes it."""
    with open(fifo) as end:
        end.read()


class Stuck:
    """Dataset of numbers; item 5 waits until it is released."""

    def __init__(self, fifo):
        self.fifo = fifo

    def __len__(self):
        return 12

    def __getitem__(self, index):
        if index == 5:
            stand_still(self.fifo)
        return index


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


@pytest.mark.parametrize("executor", EXECUTORS)
async def test_an_async_loop_gets_a_report_of_what_is_stuck_and_continues(executor, fifo, no_blocking):
    loop = asyncio.get_running_loop()
    with Listener(lambda: loop.call_soon(told.free, fifo)) as told:
        async with AsyncDataLoader(
            Stuck(fifo), 4, num_workers=2, executor=executor, stall_timeout=0.3
        ) as loader:
            assert [batch.tolist() async for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    check(told.told)


@pytest.mark.parametrize("executor", [pytest.param("thread", marks=pytest.mark.slow), "process"])
def test_a_blocking_loop_gets_a_report_too(executor, fifo, leftovers):
    with Listener(lambda: told.free(fifo)) as told:
        with DataLoader(Stuck(fifo), 4, num_workers=2, executor=executor, stall_timeout=0.3) as loader:
            assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    check(told.told)


def catastrophe():
    """Return Python code that holds the interpreter's lock in C for longer than every timeout."""
    return re.match(r"(a+)+$", "a" * 60 + "b")


class Deaf:
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return catastrophe() if index == 2 else index


@pytest.mark.slow
async def test_a_worker_that_runs_no_python_code_is_seen_into_all_the_same(leftovers):
    async with AsyncDataLoader(Deaf(), 4, num_workers=1, stall_timeout=0.3) as loader:
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


class Source:
    """Byte source that waits for an event before it returns the bytes of item 2."""

    paths = ("the numbers",)

    def __init__(self, released):
        self.released = released

    async def plan(self, spans):
        start = np.arange(len(spans), dtype=np.int64)
        return ReadPlan(len(spans), start, np.ones(len(spans), np.int64), spans.offset)

    async def read(self, plan, out):
        if 2 in plan.reads:
            await self.released.wait()
        out[: len(plan.reads)] = bytes(plan.reads.tolist())
        return []

    def close(self):
        pass


class Bytes:
    """Dataset whose item i is the byte i."""

    def __init__(self, source):
        self.source = source

    def __len__(self):
        return 4

    def __getitem__(self, index):
        raise NotImplementedError

    @property
    def decoder(self):
        return lambda data, extra, location: data[0]

    def open_source(self):
        return self.source

    def spans(self, indices):
        return Spans(np.zeros_like(indices), indices, np.ones_like(indices))

    def extras(self, indices):
        return None

    def location(self, index):
        return ItemLocation(index)


async def test_a_read_that_hangs_is_reported_as_such():
    released = anyio.Event()
    with Listener(released.set) as told:
        dataset = Bytes(Source(released))
        async with AsyncDataLoader(dataset, 2, executor="thread", num_workers=1, stall_timeout=0.2) as loader:
            assert [batch.tolist() async for batch in loader] == [[0, 1], [2, 3]]
    (record,) = told.records
    assert (record.stage, record.batch, record.outstanding) == ("fetch", 1, [2, 3])
    assert "batch 1 of this epoch, which is being fetched" in record.getMessage()


class Slow:
    def __init__(self, pause_s):
        self.pause_s = pause_s

    def __len__(self):
        return 12

    def __getitem__(self, index):
        time.sleep(self.pause_s)
        return index


@pytest.mark.slow
@pytest.mark.parametrize("executor", EXECUTORS)
async def test_what_is_slow_but_moves_is_no_stall(executor):
    # The first pass starts the workers, which may take longer than that.
    async with AsyncDataLoader(Slow(0.2), 12, num_workers=1, executor=executor, stall_timeout=1.5) as loader:
        async for _ in loader:
            pass
        with Listener() as told:
            async for _ in loader:
                pass
    assert told.records == []


@pytest.mark.slow
async def test_a_caller_who_takes_time_is_no_stall():
    async with AsyncDataLoader(Slow(0), 2, num_workers=1, executor="thread", stall_timeout=0.4) as loader:
        with Listener() as told:
            batches = aiter(loader)
            await anext(batches)
            await anyio.sleep(1)
            await anext(batches)
    assert told.records == []


async def test_none_switches_it_off(fifo):
    async with AsyncDataLoader(
        Stuck(fifo), 4, num_workers=1, executor="thread", stall_timeout=None
    ) as loader:
        with Listener() as told:
            batches = aiter(loader)
            await anext(batches)
            with anyio.move_on_after(0.3):
                await anext(batches)
        release(fifo)
    assert told.records == []


@pytest.mark.parametrize("executor", EXECUTORS)
async def test_a_sample_that_timed_out_reports_its_stack(executor, fifo):
    options = {"num_workers": 1, "executor": executor, "timeout": 0.6, "on_error": "skip"}
    async with AsyncDataLoader(Stuck(fifo), 4, **options) as loader:
        assert [batch.tolist() async for batch in loader] == [[0, 1, 2, 3], [4, 6, 7], [8, 9, 10, 11]]
        (error,) = loader.errors
        release(fifo)
    assert (error.index, type(error.__cause__)) == (5, StalledError)
    assert "in stand_still" in "\n".join(error.__cause__.__notes__)


class Blocked(Stuck):
    """Dataset in which all items except the first wait until they are released."""

    def __getitem__(self, index):
        if index:
            stand_still(self.fifo)
        return index


@pytest.mark.slow
def test_no_sample_waits_for_a_stuck_thread(fifo):
    options = {"num_workers": 2, "executor": "thread", "timeout": 0.1, "on_error": "skip"}
    with DataLoader(Blocked(fifo), 4, **options) as loader:
        assert [batch.tolist() for batch in loader] == [[0]]
        assert [error.index for error in loader.errors] == list(range(1, 12))
        release(fifo)


def crash():
    ctypes.string_at(0)


class Crashing:
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return crash() if index == 2 else index


@pytest.mark.slow
async def test_a_sample_that_crashes_its_worker_reports_its_stack():
    async with AsyncDataLoader(Crashing(), 4, num_workers=1, on_error="skip") as loader:
        assert [batch.tolist() async for batch in loader] == [[0, 1, 3]]
        (error,) = loader.errors
    cause = error.__cause__
    assert (error.index, type(cause), cause.exit_code) == (2, WorkerError, -signal.SIGSEGV)
    assert "in crash" in "\n".join(cause.__notes__)


@pytest.mark.parametrize("value", [0, -1, float("nan"), "soon", True])
def test_values_that_are_no_time_are_refused(value):
    with pytest.raises((ValueError, TypeError), match="stall_timeout"):
        DataLoader([1], 1, stall_timeout=value)


def test_a_report_says_why_a_worker_may_start_slowly():
    view = EpochView(
        wanted=True, batch=0, stage="work", indices=(0,), under_way={0: "work"}, ready=0, prefetch=1
    )
    queues = dict.fromkeys(
        ("batches", "chunks_queued", "memory_bytes", "memory_held_bytes", "memory_limit_bytes"), 0
    )
    text = report(view, 30.0, [WorkerState("process 7", "starting")], queues)[0]
    assert (
        "process 7: starting: it imports the program's modules, which takes long where other programs use"
        in text
    )
