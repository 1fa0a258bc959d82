"""Tests of traces: complete JSON at every moment, every stage, and correctly nested slices."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import aioloader
from aioloader import ArrayDataset, AsyncDataLoader, DataLoader, IterableDataset, SimpleDataset
from aioloader.observability.trace import TraceFile, Tracer
from tests.aioloader.loader.samples import Made, Numbers
from tests.aioloader.traces import (
    CLOSE_US,
    beside,
    check_flows,
    check_nesting,
    lanes_of,
    names_of,
    read_trace,
)
from tests.cases import with_cases
from tests.executors import pool

STAGES = {"plan", "fetch", "work", "collate", "chunk", "decode", "wait", "consumer", "epoch"}


def halve(image, label):
    return image // 2, label


def keep(samples):
    return np.stack([image for image, _ in samples])


def check_passes(events, count):
    """Check that all events happen during an epoch."""
    passes = [event for event in events if event["ph"] == "X" and event["name"] == "epoch"]
    assert len(passes) == count
    for event in events:
        if event["ph"] == "X" and event["cat"] != "epoch":
            begin, end = event["ts"], event["ts"] + event["dur"]
            assert any(
                each["ts"] - CLOSE_US <= begin and end <= each["ts"] + each["dur"] + CLOSE_US
                for each in passes
            ), event


@pytest.mark.parametrize("executor", ["inline", "thread", pytest.param("process", marks=pytest.mark.slow)])
def test_every_stage_is_there(executor, tmp_path, photo_rec):
    path = tmp_path / "out.json"
    data = aioloader.ImageRecordDataset(photo_rec).transform_first(aioloader.transforms.Resize((16, 16)))
    options = {**pool(executor, 2), "trace": path}
    with DataLoader(data, 4, shuffle=True, **options) as loader:
        for _ in range(2):
            for _ in loader:
                time.sleep(0.001)
    events = read_trace(path)
    check_nesting(events)
    check_passes(events, 2)
    stages = STAGES | {"transform:Resize"}
    if executor != "inline":
        stages |= {"reorder"}
    assert stages <= names_of(events)
    chunks = [event for event in events if event["name"] == "chunk"]
    assert len(beside(events, "dispatch")) == check_flows(events) == len(chunks)
    assert sum(event["args"]["samples"] for event in chunks) == 2 * len(data)
    workers = {(event["pid"], event["tid"]) for event in chunks}
    assert len(workers) <= (1 if executor == "inline" else 2)
    assert (os.getpid() in {pid for pid, _ in workers}) is (executor != "process")
    assert workers <= lanes_of(events).keys()


async def test_the_callers_own_loop_is_traced_too(tmp_path, no_blocking):
    path = tmp_path / "out.json"
    options = {"executor": "process", "num_workers": 1, "trace": path}
    async with AsyncDataLoader(Numbers(40, 0.0005), 8, batchify_fn=keep, **options) as loader:
        async for _ in loader:
            pass
    events = read_trace(path)
    check_nesting(events)
    check_passes(events, 1)
    assert STAGES | {"collate", "reorder"} <= names_of(events)


@pytest.mark.parametrize("executor", ["inline", "thread"])
def test_calls_of_async_transforms_are_there(executor, tmp_path):
    async def captions(x):
        await asyncio.sleep(0.001)
        if x == 7:
            raise LookupError
        return x

    path = tmp_path / "out.json"
    data = SimpleDataset(list(range(24))).transform(captions, concurrency=4).transform(float)
    with DataLoader(data, 4, **pool(executor, 1), trace=path, on_error="skip") as loader:
        for _ in loader:
            pass
    events = read_trace(path)
    check_nesting(events)
    check_flows(events)
    calls = beside(events, "await")
    assert {name for name, *_ in calls} == {"captions"}
    assert sorted((args["index"], args["batch"]) for *_, args in calls) == [(n, n // 4) for n in range(24)]
    assert all(end - begin >= 1000 for _, begin, end, _ in calls)
    for _, at, _, _ in calls:
        assert sum(begin <= at < end for _, begin, end, _ in calls) <= 4


async def test_what_a_source_takes_is_there(tmp_path):
    async def source():
        for number in range(6):
            await asyncio.sleep(0.001)
            yield number

    path = tmp_path / "out.json"
    async with AsyncDataLoader(IterableDataset(source), 2, num_workers=0, trace=path) as loader:
        async for _ in loader:
            pass
    events = read_trace(path)
    asked = beside(events, "source")
    assert len(asked) == 3 + 1  # and for the end
    assert sum(end - begin for _, begin, end, _ in asked) >= 6000


def test_waiting_for_memory_is_a_stage(tmp_path):
    path = tmp_path / "out.json"

    large = Made(64, lambda index: (np.zeros((64, 64), np.int32), time.sleep(0.001) or index))
    options = {"executor": "thread", "num_workers": 2, "memory_limit": 200_000, "trace": path}
    with DataLoader(large, 8, **options) as loader:
        for _ in loader:
            pass
    events = read_trace(path)
    check_nesting(events)
    assert "memory wait" in names_of(events)


def test_data_in_memory_has_a_trace(tmp_path):
    with DataLoader(ArrayDataset(np.arange(100)), 10, trace=str(tmp_path / "out.json")) as loader:
        assert len(list(loader)) == 10
    events = read_trace(tmp_path / "out.json")
    check_nesting(events)
    check_passes(events, 1)
    assert {"collate", "wait", "consumer"} <= names_of(events)


@pytest.mark.parametrize("executor", ["inline", "thread"])
def test_a_loop_that_was_left_leaves_a_whole_trace(executor, tmp_path):
    path = tmp_path / "out.json"
    with DataLoader(Numbers(100, 0.001), 4, **pool(executor, 2), trace=path) as loader:
        for number, _ in enumerate(loader):
            if number == 3:
                break
        with pytest.raises(KeyError):
            for _ in loader:
                raise KeyError("of the loop's body")
    events = read_trace(path)
    check_nesting(events)
    check_passes(events, 2)


def test_two_passes_at_once_have_lanes_of_their_own(tmp_path):
    path = tmp_path / "out.json"
    with DataLoader(Numbers(40, 0.0005), 4, executor="thread", num_workers=2, trace=path) as loader:
        for _ in zip(loader, loader, strict=True):
            pass
    events = read_trace(path)
    check_nesting(events)
    check_passes(events, 2)
    assert {"caller", "caller 1"} <= set(lanes_of(events).values())


def test_a_path_that_cannot_be_written_is_an_error(tmp_path):
    with DataLoader(Numbers(8), 4, num_workers=0, trace=tmp_path / "missing" / "out.json") as loader:
        with pytest.raises(FileNotFoundError, match="missing"):
            list(loader)


@with_cases("trace", ["", 3, True, b""])
def test_what_is_no_path_is_refused(trace):
    with pytest.raises(TypeError, match="trace must be the path"):
        DataLoader(Numbers(8), 4, trace=trace)


def test_the_file_is_whole_after_every_write(tmp_path):
    path = tmp_path / "out.json"
    file = TraceFile(path)
    assert json.loads(path.read_text()) == []
    for count in range(1, 6):
        assert file.append([{"name": "é" * count, "n": n} for n in range(count)]) == count
        assert len(json.loads(path.read_text())) == count * (count + 1) // 2
    file.close()


def test_a_file_has_a_bound(tmp_path):
    path = tmp_path / "out.json"
    file = TraceFile(path, limit=1000)
    fitted = file.append([{"name": f"{n:04}"} for n in range(200)])
    assert 0 < fitted < 200
    assert len(json.loads(path.read_text())) == fitted
    assert path.stat().st_size <= 1000
    assert file.append([{"name": "x" * 1000}]) == 0
    file.close()


def test_a_trace_that_has_grown_too_large_ends_and_the_pass_goes_on(tmp_path, caplog):
    path = tmp_path / "out.json"
    tracer = Tracer(path, limit=4000)
    tracer.open()
    for n in range(1000):
        tracer.slice(f"slice {n}", (1, 1), time.perf_counter(), time.perf_counter())
    tracer.close()
    assert path.stat().st_size <= 4000
    assert read_trace(path)
    assert "has reached its limit of 4000 bytes" in caplog.text
    assert not any(thread.name == "aioloader-trace" for thread in threading.enumerate())


SCRIPT = """
import pathlib, sys, time
from aioloader import DataLoader
from tests.aioloader.loader.samples import Made, Numbers
loader = DataLoader(Numbers(100_000, 0.0002), 4, executor="thread", num_workers=2, trace=sys.argv[1])
path = pathlib.Path(sys.argv[1])
for number, _ in enumerate(loader):
    if number == 20:
        while not all(name in path.read_text() for name in ('"chunk"', '"wait"')):
            time.sleep(0.01)
        print("now", flush=True)
"""


@pytest.mark.slow
def test_a_program_that_is_killed_leaves_a_whole_trace(tmp_path):
    path = tmp_path / "out.json"
    root = Path(__file__).parents[3]
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(path)],
        stdout=subprocess.PIPE,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert child.stdout is not None
    with child.stdout:
        assert child.stdout.readline() == b"now\n"
        child.send_signal(signal.SIGKILL)
        child.wait()
    events = read_trace(path)
    check_nesting(events)
    assert {"chunk", "wait"} <= names_of(events)
