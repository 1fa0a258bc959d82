"""Tests of executors that the caller made, and of functions that a service cannot call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import aioloader
from aioloader import AsyncImageService
from aioloader.executors import ProcessExecutor, ThreadExecutor
from tests.aioloader.service.images import fails, number_of, numbered
from tests.cases import on_both_loops


@pytest.mark.parametrize("kind", [ThreadExecutor, ProcessExecutor])
@on_both_loops
async def test_an_executor_serves_one_service(kind: Callable[[int], Any], leftovers: Any) -> None:
    """A second one would replace the program of the first, whose images would be made by it."""

    executor = kind(1)
    async with AsyncImageService(fails, executor=executor) as service:
        assert await service.get(numbered(2)) == 2
        with pytest.raises(ValueError, match="belongs to another"):
            async with AsyncImageService(number_of, executor=executor):
                pass
        with pytest.raises(aioloader.ImageError):
            await service.get(numbered(3))
    with pytest.raises(ValueError, match="belongs to another"):
        async with AsyncImageService(fails, executor=executor):
            pass


@pytest.mark.parametrize("first", ["loader", "service"])
@on_both_loops
async def test_a_loader_and_a_service_share_no_executor(first: str) -> None:
    executor = ThreadExecutor(1)

    async def loader() -> None:
        async with aioloader.AsyncDataLoader(aioloader.SimpleDataset(range(4)), 2, executor=executor) as made:
            async for _ in made:
                pass

    async def service() -> None:
        async with AsyncImageService(number_of, executor=executor) as made:
            assert await made.get(numbered(3)) == 3

    order = [loader, service] if first == "loader" else [service, loader]
    await order[0]()
    with pytest.raises(ValueError, match="belongs to another"):
        await order[1]()


@pytest.mark.parametrize("name", ["refs", "key"])
@pytest.mark.parametrize("way", ["map", "pack"])
@on_both_loops
async def test_async_functions_of_prompts_are_refused(name: str, way: str) -> None:
    pytest.importorskip("PIL")

    async def asynchronous(prompt: Any) -> Any:
        return prompt

    processor = aioloader.transforms.Qwen2VLImageProcessor()
    async with AsyncImageService(processor, num_workers=1, executor="thread") as service:
        options: Any = {"refs": list, name: asynchronous}
        with pytest.raises(TypeError, match=f"{name} is an async function"):
            if way == "map":
                service.map([], **options)
            else:
                service.pack([], max_tokens=8, **options)


def test_an_executor_has_its_own_number_of_workers() -> None:
    with pytest.raises(ValueError, match="num_workers=2: leave one of them out"):
        AsyncImageService(executor=ThreadExecutor(1), num_workers=2)


class Breaks(ThreadExecutor):
    """Executor that fails from some moment on."""

    broken = False
    failed = 0

    async def run(self, chunks: Any) -> Any:
        if self.broken:
            self.failed += 1
            raise OSError("gone")
        return await super().run(chunks)


@on_both_loops
async def test_images_that_fail_together_have_errors_of_their_own() -> None:
    executor = Breaks(1)
    async with AsyncImageService(number_of, executor=executor) as service:
        await service.gather([numbered(n) for n in range(20)])
        executor.broken = True
        numbers = range(100, 140)
        elements = service.map(numbers, refs=lambda n: [numbered(n)], on_error="skip")
        assert [each async for each in elements] == []
        assert sorted(error.prompt for error in elements.errors) == list(numbers)
        assert all("gone" in str(error) for error in elements.errors)
    assert executor.failed < len(numbers)  # several together
