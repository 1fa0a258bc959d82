"""Tests of running loaders with one slow part: `explain` names that part."""

from __future__ import annotations

import time

import anyio
import numpy as np
import pytest

import aioloader
from aioloader import AsyncDataLoader, DataLoader
from aioloader.datasets import SimpleDataset
from aioloader.loader.epoch_iterator import CallerMetrics
from aioloader.pipeline.epoch_runner import FreedMemory
from tests.aioloader.loader.samples import Bytes, ByteSource, Made
from tests.aioloader.loader.virtual_clock import COUNTING, VirtualClock
from tests.executors import pool

WORDS = ("storage", "decode", "transform", "consumer", "workers", "memory")
BATCH = 4
SAMPLES = 12 * BATCH


@pytest.fixture
def clock(monkeypatch, tmp_path):
    """Let the counters count by a clock that the slow part moves, on a machine with one core."""
    clock = VirtualClock(tmp_path / "clock", BATCH)
    for module in COUNTING:
        monkeypatch.setattr(f"{module}.perf_counter", clock)
    record = CallerMetrics.record_request

    def record_request(caller):
        now = record(caller)
        clock.request()
        return now

    monkeypatch.setattr(CallerMetrics, "record_request", record_request)
    monkeypatch.setattr("aioloader.executors.runner.usage", clock.usage)
    monkeypatch.setattr("aioloader.metrics.process_time", clock.computed)
    monkeypatch.setattr("aioloader.metrics.idle_cpu_s", dict)
    monkeypatch.setattr("aioloader.loader.parts.available_cores", lambda: 1)
    return clock


class FarAway(ByteSource):
    """Byte source whose answers take some time."""

    def __init__(self, clock):
        self.clock = clock

    async def read(self, plan, out):
        await self.clock.sleep(0.03, plan.reads[0])
        return await super().read(plan, out)


def decoded(clock):
    """Return a dataset of this library whose decoder computes."""
    data = Bytes(ByteSource(), SAMPLES)
    data.decoder = lambda data, extra, location: clock.compute(0.002, data[0]) or data[0]
    return data


def made(clock, side=4, seconds=0.0):
    """Return a dataset of a caller whose items take seconds that use no core."""

    def make(index):
        if seconds:
            clock.wait(seconds, index)
        return np.full((side, side), index, np.int32), index

    return Made(SAMPLES, make)


def blurred(clock):
    def blur(image, label):
        clock.compute(0.002, label)
        return image, label

    return SimpleDataset(made(clock)).transform(blur)


def explained(clock, executor, data, consumer_s=0.0, **options):
    """Return the report of a loader after an epoch; threads are asked in the caller's own loop, all others are not."""
    options = {**pool(executor, 1), **options}

    async def main():
        async with AsyncDataLoader(data, BATCH, **options) as loader:
            async for _ in loader:
                clock.consume(consumer_s)
            return loader.explain()

    if executor == "thread":
        return anyio.run(main)
    with DataLoader(data, BATCH, **options) as loader:
        for _ in loader:
            clock.consume(consumer_s)
        return loader.explain()


def named(text):
    first = text.partition(".")[0].lower()
    return [word for word in WORDS if word in first]


EXECUTORS = ["inline", "thread", pytest.param("process", marks=[pytest.mark.slow, pytest.mark.own_workers])]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_reads_that_take_long_are_storage(executor, clock):
    text = explained(clock, executor, Bytes(FarAway(clock), SAMPLES))
    assert named(text) == ["storage"], text


@pytest.mark.parametrize("executor", EXECUTORS)
def test_decoding_is_named(executor, clock):
    text = explained(clock, executor, decoded(clock))
    assert text.startswith("Decode is the limit.\n"), text
    assert "It takes 100% of the 2.00 ms that a sample costs" in text


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_transform_is_named(executor, clock):
    text = explained(clock, executor, blurred(clock))
    assert text.startswith("The transform blur is the limit."), text


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_consumer_that_takes_long_is_named(executor, clock):
    text = explained(clock, executor, made(clock), consumer_s=0.03)
    assert named(text) == ["consumer"], text


@pytest.mark.parametrize("executor", EXECUTORS[1:])
def test_too_few_workers_are_named(executor, clock, monkeypatch):
    monkeypatch.setattr("aioloader.loader.parts.available_cores", lambda: 4)
    text = explained(clock, executor, blurred(clock))
    assert named(text) == ["workers"], text


def test_too_little_memory_is_named(clock, monkeypatch):
    wait = FreedMemory.wait

    async def long_wait(memory, timeout_s):
        clock.consume(0.03)
        return await wait(memory, timeout_s)

    monkeypatch.setattr(FreedMemory, "wait", long_wait)
    monkeypatch.setattr("aioloader.executors.runner.perf_counter", float)  # no work takes time
    # A batch takes 64 KiB.
    text = explained(clock, "thread", made(clock, side=64), memory_limit=100_000)
    assert named(text) == ["memory"], text


def test_files_that_a_dataset_reads_itself_are_storage(clock):
    text = explained(clock, "thread", made(clock, seconds=0.003))
    assert named(text) == ["storage"]
    assert "the dataset's own __getitem__" in text


def test_a_batchify_function_is_named(clock):
    def pad(samples):
        clock.compute(0.01, samples[0][1])
        return np.stack([image for image, _ in samples])

    text = explained(clock, "thread", made(clock), batchify_fn=pad)
    assert text.startswith("The transform pad is the limit.")


@pytest.mark.parametrize("executor", EXECUTORS[:2])
def test_a_source_that_is_slow_is_storage(executor, clock):
    async def source():
        for number in range(SAMPLES):
            await clock.sleep(0.002, number)
            yield number

    text = explained(clock, executor, aioloader.IterableDataset(source).transform(float))
    assert text.startswith("Storage is the limit.\n"), text
    assert "The caller waited for the source" in text


async def test_an_async_transform_that_blocks_is_distinguished_from_one_that_waits(monkeypatch):
    monkeypatch.setattr("aioloader.metrics.process_time", time.perf_counter)

    async def caption(image, label):
        time.sleep(0.006)  # longer than the loop may be late
        return image, label

    data = SimpleDataset(Made(40, lambda index: (np.zeros(4), index))).transform(caption)
    async with AsyncDataLoader(data, 4, num_workers=0) as loader:
        async for _ in loader:
            pass
        told = loader.explain()
    assert told.startswith("The transform caption is the limit: it, or other code, blocks the event loop"), (
        told
    )
    assert "a plain function, which runs in workers" in told


async def test_other_code_that_holds_the_loop_is_the_consumers(monkeypatch):
    monkeypatch.setattr("aioloader.metrics.process_time", time.perf_counter)
    monkeypatch.setattr("aioloader.executors.runner.perf_counter", float)  # no work takes time

    async def other():
        while True:
            time.sleep(0.02)
            await anyio.sleep(0)

    data = SimpleDataset(list(range(40))).transform(float)
    async with (
        anyio.create_task_group() as tasks,
        AsyncDataLoader(data, 4, executor="thread", num_workers=1) as loader,
    ):
        tasks.start_soon(other)
        async for _ in loader:
            pass
        told = loader.explain()
        tasks.cancel_scope.cancel()
    assert told.startswith("The consumer is the limit: other code blocks the event loop"), told


@pytest.mark.parametrize(("executor", "consumer_s"), [("inline", 0.01), ("thread", 0.0)])
def test_statistics_tell_where_samples_were(executor, consumer_s, clock):
    with DataLoader(made(clock, seconds=0.002), BATCH, **pool(executor, 1)) as loader:
        for _ in loader:
            clock.consume(consumer_s)
        stats = loader.stats()
    assert (stats.executor, stats.batches, stats.samples, stats.workers) == (executor, 12, SAMPLES, 1)
    assert stats.work_s == pytest.approx(stats.decode_s) == pytest.approx(0.002 * SAMPLES)
    assert sum(stats.waits.values()) == pytest.approx(stats.wait_s) == pytest.approx(stats.work_s)
    assert stats.consumer_s == pytest.approx(consumer_s * 12)
    assert stats.seconds == pytest.approx(stats.wait_s + consumer_s * 11)
    assert stats.first_batch_s == pytest.approx(0.002 * BATCH)
    assert (stats.cpu_s, stats.pauses) == (0, SAMPLES)
    assert stats.stages["decode"].occupancy == pytest.approx(stats.work_s / stats.seconds)
    # A closed loader returns the same report as before.
    assert loader.stats() == stats
    assert loader.explain()


def test_time_after_a_loop_that_was_left_is_nobodys(clock):
    with DataLoader(made(clock, seconds=0.001), BATCH, executor="inline") as loader:
        for _ in range(2):
            for _ in loader:
                break
            clock.consume(300)
        stats = loader.stats()
    assert stats.seconds == pytest.approx(0.008)
    assert stats.consumer_s == 0
