"""Tests of what `map` and `pack` share: the tasks that take prompts, and how they end."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import pytest

import aioloader
from aioloader import AsyncImageService
from aioloader.errors import ServiceClosedError
from tests.aioloader.service.images import jpeg
from tests.aioloader.service.test_async_service import until
from tests.cases import on_both_loops

pytest.importorskip("PIL")

Iterate = Callable[[AsyncImageService, Any], Any]

PROCESSOR = aioloader.transforms.Qwen2VLImageProcessor(max_pixels=28 * 28 * 16)
PHOTO = jpeg(30, 30)


@pytest.fixture(params=["map", "pack"])
def iterate(request: pytest.FixtureRequest) -> Iterate:
    """Return a function that iterates over the images of prompts."""

    def mapping(service: AsyncImageService, prompts: Any) -> Any:
        return service.map(prompts, refs=list, ordered=True)

    def packing(service: AsyncImageService, prompts: Any) -> Any:
        return service.pack(prompts, refs=list, max_tokens=4, lookahead=1)

    made: Iterate = {"map": mapping, "pack": packing}[request.param]
    return made


class Prompts:
    """Prompts that stop coming after `count` of them, in a generator that has a scope open.

    Attributes:
        waiting: set when no more come.
        closed: the generator has ended.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.waiting = anyio.Event()
        self.closed = False

    async def generate(self) -> AsyncIterator[list[bytes]]:
        try:
            # Its scope has to end in the task in which it began.
            with anyio.fail_after(60):
                for _ in range(self.count):
                    yield [PHOTO]
                self.waiting.set()
                await anyio.sleep_forever()
        finally:
            self.closed = True


def service_of(**options: Any) -> AsyncImageService:
    return AsyncImageService(PROCESSOR, num_workers=1, executor="thread", **options)


@on_both_loops
async def test_closing_the_service_ends_an_iterator_that_waits_for_prompts(
    iterate: Iterate, leftovers: Any
) -> None:
    prompts = Prompts(0)
    raised: list[str] = []

    async def wait(elements: Any) -> None:
        try:
            await anext(elements)
        except Exception as error:
            raised.append(type(error).__name__)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            async with service_of() as service:
                elements = iterate(service, prompts.generate())
                tasks.start_soon(wait, elements)
                await prompts.waiting.wait()
        assert raised == ["ServiceClosedError"]
        assert prompts.closed
        with pytest.raises(StopAsyncIteration):
            await anext(elements)


@on_both_loops
async def test_an_iterator_that_is_kept_leaves_no_task_behind(iterate: Iterate, leftovers: Any) -> None:
    with anyio.fail_after(30):
        prompts = Prompts(500)
        async with service_of() as service:
            elements = iterate(service, prompts.generate())
            await anext(elements)
        assert prompts.closed
        with pytest.raises((ServiceClosedError, StopAsyncIteration)):
            while True:
                await anext(elements)


@on_both_loops
async def test_an_iterator_of_a_closed_service_says_so(iterate: Iterate) -> None:
    async with service_of() as service:
        elements = iterate(service, [[PHOTO]])
    for _ in range(2):
        with pytest.raises(ServiceClosedError):
            await anext(elements)


@pytest.mark.parametrize("way", ["dropped", "closed"])
@on_both_loops
async def test_leaving_closes_the_generator_of_the_prompts_in_its_own_task(
    way: str, iterate: Iterate
) -> None:
    with anyio.fail_after(30):
        async with service_of() as service:
            prompts = Prompts(500)
            elements = iterate(service, prompts.generate())
            await anext(elements)
            if way == "closed":
                await elements.aclose()
            del elements
            gc.collect()
            await until(lambda: prompts.closed)
            await until(lambda: service.stats().pending == 0)


@on_both_loops
async def test_plain_generators_are_closed_too(iterate: Iterate) -> None:
    closed = []

    def prompts() -> Any:
        try:
            while True:
                yield [PHOTO]
        finally:
            closed.append(True)

    async with service_of() as service:
        given = prompts()
        elements = iterate(service, given)
        await anext(elements)
        await elements.aclose()
        await until(lambda: bool(closed))
