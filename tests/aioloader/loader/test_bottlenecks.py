"""Tests of running loaders with one slow part: `explain` names that part."""

from __future__ import annotations

import time

import anyio
import numpy as np
import pytest
import simplejpeg

import aioloader
from aioloader import AsyncDataLoader, DataLoader, ImageRecordDataset, transforms
from aioloader.datasets import SimpleDataset
from aioloader.foundation.host_limits import available_cores
from aioloader.observability.derived_metrics import MIN_BATCHES
from aioloader.tools.draw import draw_image
from recordio import IRHeader, RecordWriter, pack
from tests.executors import pool

WORDS = ("storage", "decode", "transform", "consumer", "workers", "memory")
DELAY_S = 0.03


class Pausing:
    """Dataset whose item i comes after a pause that uses no core."""

    def __init__(self, n, pause_s, side=4):
        self.n = n
        self.pause_s = pause_s
        self.side = side

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        if self.pause_s:
            time.sleep(self.pause_s)
        return np.full((self.side, self.side), index, np.int32), index


def blur(image, label):
    """Run Python code for two milliseconds."""
    until = time.thread_time() + 0.002
    while time.thread_time() < until:
        pass
    return image, label


class FarAway:
    """Byte source whose answers take some time."""

    def __init__(self, source):
        self._source = source
        self.paths = source.paths

    async def plan(self, spans):
        return await self._source.plan(spans)

    async def read(self, plan, out):
        await anyio.sleep(DELAY_S)
        return await self._source.read(plan, out)

    def plan_blocking(self, spans):
        return self._source.plan_blocking(spans)

    def read_blocking(self, plan, out):
        time.sleep(DELAY_S)
        return self._source.read_blocking(plan, out)

    def close(self):
        self._source.close()


class FarRecords(ImageRecordDataset):
    def open_source(self):
        return FarAway(super().open_source())


def write_records(path, count, side):
    jpeg = simplejpeg.encode_jpeg(draw_image(1, height=side, width=side), quality=90)
    with RecordWriter(str(path)) as writer:
        for key in range(count):
            writer.write(pack(IRHeader(0, float(key), key, 0), jpeg), key)
    return str(path)


@pytest.fixture(scope="module")
def small_pictures(tmp_path_factory):
    return write_records(tmp_path_factory.mktemp("small") / "small.rec", 64, 32)


@pytest.fixture(scope="module")
def large_pictures(tmp_path_factory):
    return write_records(tmp_path_factory.mktemp("large") / "large.rec", 32, 900)


def go_on(loader):
    """Return whether there are too few batches to tell, or the start is still too large a share of the time."""
    stats = loader.stats()
    return stats.batches < MIN_BATCHES or stats.seconds < 0.15 + 4 * stats.startup_s


def explained(face, *args, consumer_s=0.0, **options):
    """Return the report of a loader after enough epochs."""
    if face == "blocking":
        with DataLoader(*args, **options) as loader:
            for _ in range(200):
                for _ in loader:
                    time.sleep(consumer_s)
                if not go_on(loader):
                    break
            return loader.explain()

    async def main():
        async with AsyncDataLoader(*args, **options) as loader:
            for _ in range(200):
                async for _ in loader:
                    await anyio.sleep(consumer_s)
                if not go_on(loader):
                    break
            return loader.explain()

    return anyio.run(main)


def named(text):
    first = text.partition(".")[0].lower()
    return [word for word in WORDS if word in first]


CORES = available_cores()


def storage(face, executor, small_pictures, **_):
    return explained(face, FarRecords(small_pictures), 8, **pool(executor, 2))


def decode(face, executor, large_pictures, **_):
    data = ImageRecordDataset(large_pictures).transform_first(transforms.Resize((32, 32), antialias=False))
    return explained(face, data, 8, **pool(executor, CORES))


def transform(face, executor, **_):
    data = SimpleDataset(Pausing(64, 0.0)).transform(blur)
    return explained(face, data, 16, **pool(executor, CORES))


def consumer(face, executor, **_):
    return explained(face, Pausing(32, 0.0), 4, **pool(executor, 2), consumer_s=0.03)


def workers(face, executor, **_):
    data = SimpleDataset(Pausing(64, 0.0)).transform(blur)
    return explained(face, data, 16, **pool(executor, 1))


def memory(face, executor, **_):
    # A batch of 8 takes 128 KiB, with results by value 288 KiB: memory suffices for one at a time, not for four.
    limit = 320_000 if executor == "process" else 200_000
    options = {"executor": executor, "num_workers": 4, "memory_limit": limit}
    return explained(face, Pausing(64, 0.002, side=64), 8, **options)


QUICK = [
    (storage, "thread", "async"),
    (decode, "thread", "blocking"),
    (transform, "process", "async"),
    (consumer, "thread", "blocking"),
    (workers, "thread", "blocking"),
    (memory, "thread", "async"),
]
ALL = [
    (situation, executor, face)
    for situation in (storage, decode, transform, consumer, workers, memory)
    for executor in ("thread", "process", "inline")
    for face in ("async", "blocking")
    if executor != "inline"
    or situation not in (workers, memory)  # without workers the report cannot name too few workers
]


def check(situation, executor, face, monkeypatch, **files):
    if situation is workers:
        # On one core, or beside other programs, none is free; the worker's figures are the same.
        monkeypatch.setattr("aioloader.loader.runtime.available_cores", lambda: 4)
        monkeypatch.setattr("aioloader.metrics.idle_cpu_s", dict)
    for _ in range(5):  # measured again where other programs use the cores that the workers need
        text = situation(face, executor, **files)
        if named(text) == [situation.__name__]:
            break
    assert named(text) == [situation.__name__], text
    if situation is transform:
        assert text.startswith("The transform blur is the limit.")


@pytest.mark.parametrize(("situation", "executor", "face"), QUICK)
def test_the_limit_is_named(situation, executor, face, monkeypatch, small_pictures, large_pictures):
    check(
        situation, executor, face, monkeypatch, small_pictures=small_pictures, large_pictures=large_pictures
    )


@pytest.mark.slow
@pytest.mark.parametrize(("situation", "executor", "face"), [each for each in ALL if each not in QUICK])
def test_the_limit_is_named_everywhere(
    situation, executor, face, monkeypatch, small_pictures, large_pictures
):
    check(
        situation, executor, face, monkeypatch, small_pictures=small_pictures, large_pictures=large_pictures
    )


def test_files_that_a_dataset_reads_itself_are_storage():
    text = explained("blocking", Pausing(64, 0.003), 8, executor="thread", num_workers=2)
    assert named(text) == ["storage"]
    assert "the dataset's own __getitem__" in text


def test_a_batchify_function_is_named():
    def pad(samples):
        time.sleep(0.01)
        return np.stack([image for image, _ in samples])

    text = explained(
        "blocking", Pausing(32, 0.0), 4, batchify_fn=pad, executor="thread", num_workers=available_cores()
    )
    assert text.startswith("The transform pad is the limit.")


@pytest.mark.parametrize("num_workers", [0, 1])
async def test_a_source_that_is_slow_is_storage(num_workers):
    async def source():
        for number in range(80):
            await anyio.sleep(0.002)
            yield number

    data = aioloader.IterableDataset(source).transform(float)
    async with AsyncDataLoader(data, 4, executor="thread", num_workers=num_workers) as loader:
        async for _ in loader:
            pass
        assert loader.explain().startswith("Storage is the limit. The caller waited for the source")


async def told_when_it_has_a_core(explained, expected):
    """Return the report, measured again if other programs use the cores: a loop without a core is not held."""
    for _ in range(20):
        told = await explained()
        if told.startswith(expected):
            break
    return told


async def test_an_async_transform_that_blocks_is_distinguished_from_one_that_waits():
    async def caption(image, label):
        blur(image, label)
        return image, label

    async def explained():
        data = SimpleDataset(Pausing(120, 0.0)).transform(caption)
        async with AsyncDataLoader(data, 4, num_workers=0) as loader:
            async for _ in loader:
                pass
            return loader.explain()

    expected = "The transform caption is the limit: it, or other code, blocks the event loop"
    told = await told_when_it_has_a_core(explained, expected)
    assert told.startswith(expected), told
    assert "a plain function, which runs in workers" in told


async def test_other_code_that_holds_the_loop_is_the_consumers():
    async def explained():
        over = False

        async def other():
            while not over:
                for _ in range(10):
                    blur(0, 0)
                await anyio.sleep(0)

        data = SimpleDataset(list(range(40))).transform(float)
        async with (
            anyio.create_task_group() as tasks,
            AsyncDataLoader(data, 4, executor="thread", num_workers=1) as loader,
        ):
            tasks.start_soon(other)
            async for _ in loader:
                pass
            over = True
            return loader.explain()

    expected = "The consumer is the limit: other code blocks the event loop"
    told = await told_when_it_has_a_core(explained, expected)
    assert told.startswith(expected), told


async def test_statistics_tell_where_samples_were_and_how_late_the_loop_is():
    async with aioloader.AsyncDataLoader(Pausing(64, 0.002), 8, executor="thread", num_workers=2) as loader:
        async for _ in loader:
            pass
        stats = loader.stats()
    assert stats.executor == "thread"
    assert sum(stats.waits.values()) == pytest.approx(stats.wait_s, rel=0.05)
    assert stats.work_s >= stats.decode_s > 0.1
    assert 0 <= stats.cpu_s < stats.work_s
    assert stats.pauses >= 64
    assert 0 <= stats.loop_lag_p50_s <= stats.loop_lag_p99_s <= stats.loop_lag_max_s
    assert stats.stages["decode"].occupancy > 0.3
    # A closed loader returns the same report as before.
    assert loader.stats().executor == "thread"
    assert loader.explain()


def test_time_after_a_loop_that_was_left_is_nobodys():
    begin, slept = time.monotonic(), 0.0
    with DataLoader(Pausing(40, 0.001), 4, executor="thread", num_workers=1) as loader:
        for _ in range(2):
            for _ in loader:
                break
            left = time.monotonic()
            time.sleep(0.3)
            slept += time.monotonic() - left
        stats = loader.stats()
        assert stats.consumer_s <= stats.seconds <= time.monotonic() - begin - slept
