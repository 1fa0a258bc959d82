"""Tests of processors that hang: their workers are ended when the time of their last caller is over."""

from __future__ import annotations

from typing import Any

import anyio
import numpy as np
import pytest

import aioloader
from aioloader import AsyncImageService
from aioloader.foundation.types import INDEX_TABLE_ROWS, ROW, Chunk
from tests.aioloader.service.images import HANGS, Gate, hangs, numbered, until
from tests.cases import on_both_loops, with_cases

LONG_S = 600.0


@pytest.mark.parametrize("backend", ["trio"])  # asyncio has the tests below
@on_both_loops
async def test_a_shorter_timeout_ends_the_worker(leftovers: Any) -> None:
    async with AsyncImageService(hangs, num_workers=1, timeout=LONG_S) as service:
        await service.ready()
        with anyio.fail_after(60):
            with pytest.raises(aioloader.ImageTimeoutError) as caught:
                await service.get(numbered(HANGS), timeout=0.5)
            assert caught.value.phase == "work"
            assert await service.get(numbered(1)) == 1
            assert service.stats().restarts == 1
            await until(lambda: service.stats().memory_used == 0)


async def test_a_worker_is_not_ended_while_another_caller_waits_for_its_image() -> None:
    async with AsyncImageService(hangs, num_workers=1, timeout=LONG_S) as service:
        await service.ready()
        found: list[int] = []

        async def patient() -> None:
            found.append(await service.get(numbered(2500)))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(patient)
            await until(lambda: service.stats().in_work)
            with pytest.raises(aioloader.ImageTimeoutError):
                await service.get(numbered(2500), timeout=0.2)
            assert service.stats().joined == 1
        assert found == [2500]
        assert service.stats().restarts == 0


async def test_the_limit_of_the_caller_who_leaves_last_ends_the_worker() -> None:
    async def late(service: AsyncImageService) -> None:
        with pytest.raises(aioloader.ImageTimeoutError):
            await service.get(numbered(HANGS), timeout=1.0)

    async with AsyncImageService(hangs, num_workers=1, timeout=LONG_S) as service:
        await service.ready()
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(late, service)
                await until(lambda: service.stats().in_work)
                with anyio.move_on_after(0.1):
                    await service.get(numbered(HANGS))
            assert await service.get(numbered(1)) == 1


@with_cases("executor", ["process", "thread"])
async def test_the_other_images_of_a_chunk_are_made(executor: str) -> None:
    """Small images are made several at a time, and other callers wait longer for theirs."""
    gate = Gate(closed=(HANGS,))
    processor: Any = gate if executor == "thread" else hangs

    async with AsyncImageService(processor, num_workers=1, executor=executor, timeout=LONG_S) as service:
        await service.ready()
        await service.gather([numbered(0, side=n) for n in range(1, 5)])  # how long one takes is known now
        found: dict[int, Any] = {}

        async def get(number: int, timeout: float) -> None:
            try:
                found[number] = await service.get(numbered(number), timeout=timeout)
            except aioloader.ImageTimeoutError as error:
                found[number] = error.phase

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for number in range(20):
                    tasks.start_soon(get, number, LONG_S)
                    if number == 9:
                        tasks.start_soon(get, HANGS, 0.5)
        assert found.pop(HANGS) in ("queue", "work")
        assert found == {number: number for number in range(20)}
    gate.open()


async def test_a_busy_worker_is_not_ended_for_the_images_before() -> None:
    """Timeouts of images in the queue are no sign of a worker that hangs."""

    async with AsyncImageService(hangs, num_workers=1, timeout=LONG_S) as service:
        await service.ready()
        found = await service.gather([numbered(200 + n) for n in range(15)], timeout=1.0, on_error="return")
        assert found[0] == 200
        assert any(isinstance(each, aioloader.ImageTimeoutError) for each in found)
        assert service.stats().restarts == 0


@with_cases(
    ("patience", "place", "expected"),
    [
        ({}, 0, 9.0),
        ({}, None, 9.0),
        ({5: 2.0}, 0, 2.0),
        ({5: 2.0}, 1, 9.0),
        ({5: 2.0}, None, 9.0),
        ({5: 2.0, 7: 3.0}, None, 3.0),
        ({5: 20.0}, 0, 9.0),
    ],
)
def test_the_patience_of_a_chunk(patience: dict[int, float], place: int | None, expected: float) -> None:
    table = np.zeros((INDEX_TABLE_ROWS, 2), np.int64)
    table[ROW] = [5, 7]
    chunk = Chunk(batch=0, index_table=table, rows=8, patience=patience)
    assert chunk.patience_at(place, 9.0) == expected
