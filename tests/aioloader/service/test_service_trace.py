"""Tests of traces of the image service: every phase, nested slices, arrows to the workers, and a bound on lanes."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest

from aioloader import AsyncImageService, ImageService
from aioloader.errors import ImageError, ImageTimeoutError
from aioloader.executors import InlineExecutor
from aioloader.observability.trace import Tracer
from aioloader.service import stats as service_trace
from aioloader.service.stats import ServiceTrace
from aioloader.transforms import CenterCrop, decode_image, encode_raw
from tests.aioloader.service.images import (
    Gate,
    KillsOnce,
    fails,
    jpeg,
    number_of,
    numbered,
    service_of,
    until,
)
from tests.aioloader.traces import (
    CLOSE_US,
    beside,
    check_flows,
    check_nesting,
    lanes_of,
    names_of,
    read_trace,
)
from tests.cases import on_both_loops


def of_category(events: list[Any], category: str) -> list[Any]:
    return [event for event in events if event["ph"] == "X" and event["cat"] == category]


def check(path: Path) -> list[Any]:
    """Return the events of a trace that has the right form, and whose slices are inside of the service's life."""
    events = read_trace(path)
    check_nesting(events)
    (life,) = of_category(events, "service")
    for event in events:
        if event["ph"] == "X":
            assert event["ts"] >= life["ts"] - CLOSE_US
            assert event["ts"] + event["dur"] <= life["ts"] + life["dur"] + CLOSE_US
    images = of_category(events, "image")
    assert life["args"]["images"] >= len(images)
    # Phases fill the slice of their image.
    for image in images:
        phases = [
            each for each in of_category(events, "stage") if each["args"]["image"] == image["args"]["image"]
        ]
        assert sum(each["dur"] for each in phases) == pytest.approx(image["dur"], abs=0.01)
        assert {(each["pid"], each["tid"]) for each in phases} == {(image["pid"], image["tid"])}
    return events


def outcomes(events: list[Any]) -> list[str]:
    found = [(event["args"]["image"], event["args"]["outcome"]) for event in of_category(events, "image")]
    return [outcome for _, outcome in sorted(found)]


@pytest.fixture
def traced(run_on: Any, tmp_path: Path) -> Callable[..., list[Any]]:
    """Return a function that uses a service in a new event loop, and returns the events of its trace."""

    def run(use: Callable[[AsyncImageService], Awaitable[None]], *args: Any, **options: Any) -> list[Any]:
        path = tmp_path / "out.json"

        async def main() -> None:
            async with service_of(*args, trace=path, **options) as service:
                await use(service)

        run_on(main)
        return check(path)

    return run


Traced = Callable[..., list[Any]]


@pytest.mark.parametrize("executor", ["process", "thread"])
def test_every_phase_of_an_image_is_there(
    executor: str, traced: Traced, tmp_path: Path, no_blocking: None
) -> None:
    (tmp_path / "photos").mkdir()
    for number in range(4):
        (tmp_path / "photos" / f"{number}.jpg").write_bytes(jpeg(300 + number, 400, seed=number))
    options: Any = {"allow": ("bytes", "path"), "root": tmp_path / "photos", "num_workers": 2}

    async def use(service: AsyncImageService) -> None:
        await service.gather([f"{number}.jpg" for number in range(4)])
        await service.gather([jpeg(seed=number) for number in range(20)])

    events = traced(use, CenterCrop(200), executor=executor, **options)
    phases = {"queue", "read", "memory wait", "work", "chunk", "decode", "transform:CenterCrop"}
    assert phases <= names_of(events)
    assert outcomes(events) == ["made"] * 24
    named = [event["args"]["name"] for event in of_category(events, "image")]
    assert {f"{number}.jpg" for number in range(4)} <= set(named)
    chunks = [event for event in events if event["name"] == "chunk"]
    assert sum(event["args"]["samples"] for event in chunks) == check_flows(events) == 24
    assert len(beside(events, "dispatch")) == len(chunks)
    workers = {(event["pid"], event["tid"]) for event in chunks}
    assert len(workers) <= 2
    assert workers <= lanes_of(events).keys()
    assert (os.getpid() in {pid for pid, _ in workers}) is (executor == "thread")
    processes = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert processes == {"image service"} | ({"worker"} if executor == "process" else set())


def test_calls_that_wait_for_admission_are_there(traced: Traced) -> None:
    gate = Gate(closed=(1,))

    async def use(service: AsyncImageService) -> None:
        async with anyio.create_task_group() as tasks:
            for count, number in enumerate((1, 2, 3)):
                tasks.start_soon(service.get, numbered(number))
                await until(lambda: service.stats().pending == 1)  # the first one takes the room
                await until(lambda count=count: service.stats().waiting_for_admission == count)
            gate.open()

    events = traced(use, gate, max_pending=1)
    waits = beside(events, "admission")
    assert [args["request"] for *_, args in waits] == [2, 3]
    begun = {event["args"]["request"]: event["ts"] for event in of_category(events, "image")}
    for _, begin, end, args in waits:
        assert begin < end <= begun[args["request"]] + CLOSE_US


def test_the_outcome_of_each_image_is_there(traced: Traced) -> None:
    async def use(service: AsyncImageService) -> None:
        await service.get(numbered(2))
        for ref in (numbered(3), b"no image"):
            with pytest.raises(ImageError):
                await service.get(ref)
        await service.get(numbered(2), key="another")  # from the cache, once its bytes are known

    assert outcomes(traced(use, fails, cache_limit=1 << 20)) == ["made", "ImageError", "ImageError", "made"]


def test_images_that_nobody_waits_for_are_there(traced: Traced) -> None:
    gate = Gate(closed=(1, 2, 3))

    async def use(service: AsyncImageService) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(service.get, numbered(1))
            await until(lambda: gate.begun == [1])
            with pytest.raises(ImageTimeoutError):
                await service.get(numbered(2), timeout=0.05)
            with anyio.move_on_after(0.05):
                await service.get(numbered(3))
            gate.open()

    assert outcomes(traced(use, gate)) == ["made", "timed out", "abandoned"]


def test_a_worker_that_dies_leaves_a_right_trace(traced: Traced, tmp_path: Path) -> None:
    async def use(service: AsyncImageService) -> None:
        assert await service.gather([numbered(number) for number in range(6)]) == list(range(6))

    events = traced(use, KillsOnce(tmp_path, 3), executor="process")
    assert outcomes(events) == ["made"] * 6
    assert check_flows(events) >= 6  # the chunk was made in parts


def test_lanes_are_bounded(traced: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_trace, "MOST_LANES", 3)

    async def use(service: AsyncImageService) -> None:
        await service.gather([numbered(number) for number in range(100)])

    events = traced(use, number_of, max_pending=50)
    lanes = [name for name in lanes_of(events).values() if name.startswith("image in flight")]
    assert sorted(lanes) == [f"image in flight {number}" for number in range(3)]
    images = of_category(events, "image")
    assert 3 <= len(images) < 100
    assert check_flows(events) == len(images)
    # The work on the others is there too.
    assert sum(event["args"]["samples"] for event in events if event["name"] == "chunk") == 100


def test_images_are_the_same_with_the_blocking_service(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    photos = [jpeg(30, 40, seed=number) for number in range(5)]
    with ImageService(num_workers=1, executor="thread", trace=str(path)) as service:
        found = service.gather(photos)
    assert all(np.array_equal(image, decode_image(photo)) for image, photo in zip(found, photos, strict=True))
    assert outcomes(check(path)) == ["made"] * 5


def test_images_made_in_the_loops_thread_are_there(tmp_path: Path, run_on: Any) -> None:
    path = tmp_path / "out.json"

    async def main() -> None:
        async with AsyncImageService(number_of, executor=InlineExecutor(), trace=path) as service:
            assert await service.gather([numbered(number) for number in range(9)]) == list(range(9))

    run_on(main)
    assert any("in the loop's thread" in name for name in lanes_of(check(path)).values())


@on_both_loops
async def test_a_path_that_cannot_be_written_is_an_error(tmp_path: Path, leftovers: Any) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        await service_of(trace=tmp_path / "missing" / "out.json").__aenter__()


def test_adding_never_waits_for_the_file(tmp_path: Path) -> None:
    """A trace whose file is not opened takes events all the same, up to a bound."""
    tracer = Tracer(tmp_path / "out.json", process="image service")
    trace = ServiceTrace(tracer, lambda: (0, 0, 0))
    for _ in range(300):
        trace.end(trace.begin("a", 1), "made", 1)
    trace.close()
    assert not (tmp_path / "out.json").exists()
    tracer.open()
    tracer.close()
    assert outcomes(check(tmp_path / "out.json")) == ["made"] * 300


def test_an_image_of_large_pixels_waits_for_memory(traced: Traced) -> None:
    image = encode_raw(np.zeros((400, 400, 3), np.uint8))

    async def use(service: AsyncImageService) -> None:
        held = await service.get(image)
        async with anyio.create_task_group() as tasks:
            for draw in range(6):
                tasks.start_soon(partial(service.get, image, draw=draw))
        del held

    assert outcomes(traced(use, memory_limit=2_500_000)) == ["made"] * 7
