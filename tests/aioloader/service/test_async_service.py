"""Tests of images on demand: results, sharing, order, limits, errors, and what is left behind."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import time
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import numpy as np
import pytest
import simplejpeg

import aioloader
from aioloader import AsyncImageService
from aioloader.errors import ImageError, ServiceClosedError
from aioloader.transforms import decode_image, encode_raw
from tests.aioloader.service.images import (
    Gate,
    KillsOnce,
    fails,
    jpeg,
    number_of,
    numbered,
    ragged,
    service_of,
    until,
)
from tests.cases import on_both_loops, with_cases
from tests.conftest import with_orientation

# Tests with worker processes run on asyncio, but for those that cancel, close and compare: they run on trio.
EXECUTORS = ["process", "thread"]
in_pairs = pytest.mark.parametrize(("executor", "backend"), [("process", "trio"), ("thread", "asyncio")])


def filled(value: int, side: int = 300) -> bytes:
    """Return an encoded image of one colour."""
    return encode_raw(np.full((side, side, 3), value, np.uint8))


@in_pairs
@on_both_loops
async def test_images_equal_those_that_are_decoded_here(executor: str) -> None:
    photos = [jpeg(30 + 7 * n, 40 + 3 * n, seed=n) for n in range(9)]
    photos.append(jpeg(900, 1300))  # too large for an ordinary array

    async with AsyncImageService(num_workers=2, executor=executor) as service:
        one = await service.get(photos[0])
        assert np.array_equal(one, decode_image(photos[0]))
        nested = await service.gather({"all": photos, "pair": (photos[1], [photos[2]])})
        for image, photo in zip(nested["all"], photos, strict=True):
            assert image.dtype == np.uint8
            assert np.array_equal(image, decode_image(photo))
        assert np.array_equal(nested["pair"][1][0], decode_image(photos[2]))
        assert await service.gather([]) == []
        stats = service.stats()
        assert (stats.failed, stats.pending, stats.held_nbytes) == (0, 0, 0)


@with_cases("executor", EXECUTORS)
async def test_results_of_any_shape_come_from_any_function(executor: str) -> None:
    async with AsyncImageService(ragged, num_workers=1, executor=executor) as service:
        for side in (1, 5, 400, 800):
            image = np.full((side, side, 3), 7, np.uint8)
            made = await service.get(encode_raw(image))
            assert made["name"] == "x"
            assert np.array_equal(made["mean"], [7.0, 7.0, 7.0])
            assert np.array_equal(made["rows"], image[:: 1 + number_of(image) % 3].astype(np.float32))


async def test_an_image_that_a_caller_holds_keeps_its_values() -> None:
    async with AsyncImageService(num_workers=1) as service:
        held = await service.get(filled(9))
        part = held[10:20, ::2]
        for value in range(20):
            await service.get(filled(value))
        assert (held == 9).all()
        del held
        for value in range(20):
            await service.get(filled(value))
        assert (part == 9).all()
    assert (part == 9).all()


@on_both_loops
async def test_memory_returns_without_the_garbage_collector() -> None:
    async with AsyncImageService(num_workers=1) as service:
        gc.collect()
        gc.disable()
        try:
            made = await service.gather([filled(0, 400), jpeg(500, 500), jpeg(501, 500)])
            assert service.stats().memory_used > 0
            del made
            with pytest.raises(aioloader.ImageError):
                await service.gather([jpeg(502, 500), b"not an image"])
            with anyio.move_on_after(0.001):
                await service.gather([jpeg(503 + n, 500) for n in range(8)])
            async for _, images in service.map(
                [jpeg(520 + n, 500) for n in range(4)], refs=lambda photo: [photo]
            ):
                del images
            del _
            await until(lambda: service.stats().memory_used == 0)
        finally:
            gc.enable()


async def test_callers_who_hold_half_of_the_memory_receive_copies() -> None:
    async with AsyncImageService(num_workers=1, memory_limit=16 << 20) as service:
        held = [await service.get(filled(n, 800)) for n in range(12)]
        assert all((image == n).all() for n, image in enumerate(held))
        assert service.stats().copies > 0


async def test_an_image_that_does_not_fit_into_the_memory_is_a_named_error() -> None:
    async with AsyncImageService(num_workers=1, memory_limit=4 << 20) as service:
        with pytest.raises(aioloader.ServiceMemoryError, match="more than memory_limit") as caught:
            await service.get(filled(0, 1500))
        assert (caught.value.memory_limit, caught.value.held) == (4 << 20, 0)
        assert caught.value.nbytes >= 1500 * 1500 * 3
        assert number_of(await service.get(numbered(5))) == 5


async def test_images_that_find_no_memory_because_all_wait_for_it_are_named_errors() -> None:
    """Three chunks are in work at a time, so none of them waits for one that goes on."""

    async with AsyncImageService(num_workers=1, memory_limit=8 << 20) as service:
        held = await service.get(jpeg(1000, 1000))
        large = [jpeg(1450, 1450, seed=n) for n in range(5)]
        found = await service.gather(large, on_error="return")
        assert {type(each) for each in found} == {aioloader.ServiceMemoryError}
        assert found[0].held >= held.nbytes
        del held
        assert (await service.get(large[0])).shape == (1450, 1450, 3)


def _enlarge(image: Any) -> Any:
    return np.resize(image, (64, 64, 3)).astype(np.float32)


@with_cases("executor", EXECUTORS)
async def test_a_tiny_image_that_a_function_enlarges_leaves_room_for_large_ones(executor: Any) -> None:
    options: dict[str, Any] = {"num_workers": 1, "memory_limit": 64 << 20, "executor": executor}
    begin = time.monotonic()
    async with AsyncImageService(_enlarge, **options) as service:
        for size in [1, 300, 1, 3000, 2999]:
            image = await service.get(filled(size % 251, size))
            assert image.shape == (64, 64, 3)
            assert (image == size % 251).all()
        assert service.stats().memory_wait_s < (time.monotonic() - begin) / 2


# -- sharing -----------------------------------------------------------------------------------------------------------


@on_both_loops
async def test_identical_references_in_flight_are_made_once() -> None:
    gate = Gate(closed=(3,))

    async with service_of(gate) as service:
        async with anyio.create_task_group() as tasks:
            found: list[int] = []

            async def get() -> None:
                found.append(await service.get(numbered(3)))

            for _ in range(8):
                tasks.start_soon(get)
            await until(lambda: service.stats().joined == 7)
            gate.open()
        assert found == [3] * 8
        assert gate.begun == [3]
        await service.get(numbered(3))
        assert gate.begun == [3, 3]  # it was not kept


async def test_arrays_that_several_callers_have_are_read_only() -> None:
    async with AsyncImageService(num_workers=1) as service:
        first, second = await service.gather([numbered(3)] * 2)
        assert not first.flags.writeable
        assert not second.flags.writeable
        assert np.shares_memory(first, second)
        alone = await service.get(jpeg())
        assert alone.flags.writeable


@with_cases(("ref", "key"), [(numbered(6), None), (numbered(6), "mine"), ("a", None)])
@on_both_loops
async def test_the_cache_returns_the_same_image(ref: Any, key: str | None, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(numbered(6))
    gate = Gate()

    async with service_of(gate, cache_limit=1000, allow=("bytes", "path"), root=tmp_path) as service:
        for _ in range(3):
            assert await service.get(ref, key=key) == 6
        assert gate.begun == [6]
        stats = service.stats()
        assert (stats.made, stats.cache_hits, stats.cache_misses) == (1, 2, 1)
        assert await service.get(ref, key=key, draw=1) == 6  # other draws, another image
        assert gate.begun == [6, 6]


@on_both_loops
async def test_errors_are_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(b"damaged")

    async with service_of(cache_limit=1 << 20, allow=("path",), root=tmp_path) as service:
        with pytest.raises(aioloader.ImageError):
            await service.get("a.jpg")
        path.write_bytes(jpeg())
        assert (await service.get("a.jpg")).shape == (40, 60, 3)
        first = await service.get("a.jpg")
        path.write_bytes(jpeg(48, 64))
        os.utime(path, ns=(1, 1))
        assert (await service.get("a.jpg")).shape == (48, 64, 3)
        assert first.shape == (40, 60, 3)


# -- order -------------------------------------------------------------------------------------------------------------


@on_both_loops
async def test_priorities_come_first_and_earlier_requests_before_later_ones() -> None:
    gate = Gate(closed=tuple(range(100, 110)))

    async with service_of(gate) as service, anyio.create_task_group() as tasks:
        ahead = [numbered(100 + n) for n in range(3)]  # as many as are sent to the worker at a time
        tasks.start_soon(service.gather, ahead)
        await until(lambda: service.stats().in_work == 3)
        for number in (1, 2):
            tasks.start_soon(service.gather, [numbered(10 * number + n) for n in range(3)])
            await until(lambda number=number: service.stats().queued == 3 * number)

        async def urgent(number: int) -> None:
            await service.get(numbered(number), priority=1)

        tasks.start_soon(urgent, 99)
        await until(lambda: service.stats().queued == 7)
        tasks.start_soon(urgent, 22)  # it waits already, and comes forward
        await until(lambda: service.stats().joined == 1)
        gate.open()
    # trio starts the tasks of the few chunks that are sent at a time in any order.
    place = {number: place for place, number in enumerate(gate.begun[3:])}
    assert max(place[99], place[22]) <= 3
    assert all(abs(place[n] - (2 + n - 10)) <= 3 for n in (10, 11, 12))
    assert all(abs(place[n] - (5 + n - 20)) <= 3 for n in (20, 21))
    assert (len(place), service.stats().queued) == (7, 0)


@on_both_loops
async def test_a_slow_image_holds_no_other() -> None:
    gate = Gate(closed=(7,))

    async with service_of(gate, num_workers=2) as service, anyio.create_task_group() as tasks:
        tasks.start_soon(service.get, numbered(7))
        await until(lambda: gate.begun == [7])
        assert await service.gather([numbered(n) for n in range(20, 40)]) == list(range(20, 40))
        gate.open()


@on_both_loops
async def test_large_images_between_small_ones_are_made() -> None:
    refs = [numbered(n, side=300 if n % 5 == 4 else 1) for n in range(40)]
    async with service_of() as service:
        await service.gather(refs[:4])  # so short that small images share a chunk
        with anyio.fail_after(30):
            assert [number_of(image) for image in await service.gather(refs)] == list(range(40))


# -- limits ------------------------------------------------------------------------------------------------------------


@with_cases(("phase", "before"), [("admission", 4), ("queue", 3), ("work", 0)])
@on_both_loops
async def test_a_timeout_names_the_phase_and_frees_the_place(phase: str, before: int) -> None:
    gate = Gate(closed=(1, 2, 3, 4))

    async with service_of(gate, max_pending=4) as service, anyio.create_task_group() as tasks:
        for number in range(1, before + 1):
            tasks.start_soon(service.get, numbered(number))
        await until(lambda: service.stats().pending == before)
        with pytest.raises(aioloader.ImageTimeoutError) as caught:
            await service.get(numbered(4 if phase == "work" else 9), timeout=0.05)
        assert (caught.value.phase, caught.value.timeout) == (phase, 0.05)
        assert service.stats().pending == before
        assert service.stats().timed_out == 1
        gate.open()
        assert await service.get(numbered(8)) == 8


@in_pairs
@on_both_loops
async def test_cancelling_the_last_waiter_frees_the_place(executor: str) -> None:
    async with AsyncImageService(num_workers=1, executor=executor) as service:
        await service.ready()
        photos = [jpeg(900, 900, seed=seed) for seed in range(20)]
        for others in (0, 10):  # the cancelled images are in work, and in the queue
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(service.gather, photos[:others])
                await until(lambda others=others: service.stats().queued or not others)
                with anyio.CancelScope() as scope:
                    async with anyio.create_task_group() as inner:
                        inner.start_soon(service.gather, photos[10:])
                        await until(lambda: service.stats().in_work)
                        scope.cancel()
                assert service.stats().pending <= others
            await until(lambda: service.stats().memory_used == 0)
            assert number_of(await service.get(numbered(3))) == 3


# -- errors ------------------------------------------------------------------------------------------------------------


@with_cases("executor", EXECUTORS)
async def test_an_error_belongs_to_its_image_alone(executor: str) -> None:
    async with AsyncImageService(fails, num_workers=2, executor=executor) as service:
        refs = [numbered(n) for n in range(10)] + [b"", b"nothing", jpeg()[:200]]
        found = await service.gather(refs, on_error="return")
        assert found[:10:2] == [0, 2, 4, 6, 8]
        for number in range(1, 10, 2):
            assert isinstance(found[number], aioloader.ImageError)
            assert f"{number} is odd" in str(found[number])
            assert found[number].stage == "transform:fails"
            assert isinstance(found[number].__cause__, ValueError)
        for error in found[10:]:
            assert isinstance(error, aioloader.ImageError)
            assert error.stage == "decode"
        with pytest.raises(aioloader.ImageError, match="1 is odd"):
            await service.gather([numbered(0), numbered(1)])
        assert await service.get(numbered(4)) == 4
        with pytest.raises(ValueError, match="on_error"):
            await service.gather([], on_error="ignore")


async def _asynchronous(image: Any) -> Any:
    return image


@with_cases(
    ("options", "error", "text"),
    [
        ({"num_workers": 0}, ValueError, "num_workers"),
        ({"executor": "inline"}, ValueError, "executor must be"),
        ({"overflow": "drop"}, ValueError, "overflow"),
        ({"executor": 2}, TypeError, "executor must be"),
        ({"executor": aioloader.executors.ThreadExecutor}, TypeError, "executor must be"),
        (
            {"executor": aioloader.executors.ThreadExecutor(1), "num_workers": 2},
            ValueError,
            "num_workers=2: leave one of them out",
        ),
        ({"allow": "bytes"}, TypeError, "allow"),
        ({"workers": 2}, TypeError, r"Service has no argument workers; did you mean num_workers\?"),
        ({"allow": ("urls",)}, ValueError, "urls"),
        ({"allow": ("path",)}, ValueError, "root"),
        ({"root": "."}, ValueError, "path"),
        ({"timeout": 0}, ValueError, "timeout"),
        ({"output": "tensor"}, ValueError, "output"),
        ({"hosts": "example.com"}, TypeError, "hosts"),
        ({"processor": 3}, TypeError, "processor"),
        ({"processor": _asynchronous}, TypeError, "async"),
        *(({"trace": trace}, TypeError, "trace must be the path") for trace in ("", 3, True, b"")),
    ],
)
def test_wrong_options_are_errors_of_the_constructor(
    options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        AsyncImageService(**options)


# -- workers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["trio"])  # asyncio has the test below
@on_both_loops
async def test_a_worker_killed_in_the_middle_costs_nothing_but_time(tmp_path: Path, leftovers: Any) -> None:
    async with AsyncImageService(KillsOnce(tmp_path, 13), num_workers=2) as service:
        assert await service.gather([numbered(n) for n in range(30)]) == list(range(30))
        assert service.stats().restarts == 1


async def test_an_image_that_always_kills_its_worker_is_a_named_error(tmp_path: Path) -> None:
    async with AsyncImageService(KillsOnce(tmp_path, 13, always=True), num_workers=1) as service:
        found = await service.gather([numbered(n) for n in range(10, 16)], on_error="return")
        assert [each for each in found if not isinstance(each, Exception)] == [10, 11, 12, 14, 15]
        assert isinstance(found[3], aioloader.ImageError)


async def test_killed_workers_are_replaced_while_they_are_idle() -> None:
    async with AsyncImageService(num_workers=1) as service:
        await service.ready()
        executor: Any = service._engine.executor
        for pid in executor.pids:
            os.kill(pid, signal.SIGKILL)
        assert number_of(await service.get(numbered(2))) == 2


async def test_a_processor_that_cannot_be_loaded_is_an_error_of_the_request() -> None:
    class Unloadable:
        def __call__(self, image: Any) -> Any:
            return image

        def __reduce__(self) -> Any:
            return (int, ("not a number",))

    async with AsyncImageService(Unloadable(), num_workers=1) as service:
        with pytest.raises(aioloader.ImageServiceError, match="WorkerError"):
            await service.get(numbered(1))
        with pytest.raises(aioloader.WorkerError):
            await service.ready()


# -- life --------------------------------------------------------------------------------------------------------------


@in_pairs
@on_both_loops
async def test_leaving_gives_those_who_wait_an_error_and_leaves_nothing(
    executor: str, leftovers: Any
) -> None:
    errors: list[BaseException] = []
    async with anyio.create_task_group() as tasks:
        async with AsyncImageService(num_workers=2, executor=executor) as service:

            async def get() -> None:
                try:
                    await service.gather([jpeg(700, 700, seed=n) for n in range(30)])
                except aioloader.ServiceClosedError as error:
                    errors.append(error)

            tasks.start_soon(get)
            await until(lambda: service.stats().in_work)
    assert len(errors) == 1
    with pytest.raises(aioloader.ServiceClosedError):
        await service.get(numbered(1))
    with pytest.raises(aioloader.ServiceClosedError):
        async with service:
            pass
    assert service.stats().workers == 2
    assert "images made" in service.explain()


@on_both_loops
async def test_a_service_that_is_not_open_says_so() -> None:
    service = AsyncImageService()
    with pytest.raises(aioloader.ServiceClosedError, match="async with"):
        await service.get(b"")
    await service.aclose()


async def test_another_event_loop_is_refused() -> None:
    async with service_of() as service:

        async def elsewhere() -> None:
            with pytest.raises(RuntimeError, match="another event loop"):
                await service.get(numbered(1))

        await anyio.to_thread.run_sync(anyio.run, elsewhere)
        assert number_of(await service.get(numbered(1))) == 1


async def test_nothing_blocks_the_loop(no_blocking: None, tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(jpeg())

    allow = ("bytes", "data", "path", "array")
    async with AsyncImageService(num_workers=2, allow=allow, root=tmp_path) as service:
        await service.ready()
        await service.gather([jpeg(), "a.jpg", jpeg(1000, 1200), np.zeros((4, 4, 3), np.uint8)])
        await service.probe("a.jpg")


async def test_output_torch_gives_tensors_over_the_same_memory() -> None:
    torch = pytest.importorskip("torch")

    async with AsyncImageService(ragged, num_workers=1, output="torch") as service:
        made = await service.get(numbered(0, side=300))
        assert isinstance(made["rows"], torch.Tensor)
        assert service.stats().memory_used >= made["rows"].nbytes
        del made
        await until(lambda: service.stats().memory_used == 0)


@on_both_loops
async def test_the_last_counters_show_nothing_in_work() -> None:
    begun, may_end = anyio.Event(), anyio.Event()

    async def fetch(url: str) -> bytes:
        begun.set()
        with anyio.CancelScope(shield=True):  # closes slowly
            await may_end.wait()
        return numbered(1)

    async with anyio.create_task_group() as tasks:
        service = service_of(allow=["https"], fetch=fetch)
        await service.__aenter__()

        async def get() -> None:
            with pytest.raises(ServiceClosedError):
                await service.get("https://example.com/a")

        tasks.start_soon(get)
        await begun.wait()
        await service.aclose()
        stats = service.stats()
        assert (stats.pending, stats.admitted, stats.in_work, stats.reading, stats.queued) == (0,) * 5
        may_end.set()


async def test_a_service_whose_opening_is_cancelled_leaves_nothing(leftovers: Any) -> None:
    async def use() -> None:
        async with service_of():
            await anyio.sleep_forever()

    for turns in (0, 1, 2, 3, 5, 8, 13, 30):
        task = asyncio.create_task(use())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@with_cases("executor", EXECUTORS)
@with_cases("shapes", ["equal", "mixed"])
async def test_small_images_of_a_chunk_are_independent_arrays(executor: str, shapes: str) -> None:
    """Chunks of one shape are written to rows: with turned, grey and damaged images between the others."""
    photos = [jpeg(32, 48 if shapes == "equal" else 24 + 8 * (n % 3), seed=n) for n in range(200)]
    photos[50] = with_orientation(photos[50], 6)
    photos[51] = simplejpeg.encode_jpeg(np.full((32, 48, 1), 9, np.uint8), colorspace="GRAY")
    photos[52] = photos[52][: len(photos[52]) // 2]

    async with AsyncImageService(num_workers=2, executor=executor) as service:
        for _ in range(2):  # from the second time on the structure of the results is known
            made = await service.gather(photos, on_error="return")
            assert isinstance(made[52], ImageError)
            for photo, image in zip(photos, made, strict=True):
                if photo is not photos[52]:
                    assert np.array_equal(image, decode_image(photo))
                    image[:] = 0  # nobody else has it
        assert service.stats().held_nbytes == 0
