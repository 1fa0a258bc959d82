"""Tests of `AsyncImageService.map`: order, how far it runs ahead, errors, and leaving early."""

from __future__ import annotations

import gc
from collections.abc import AsyncIterator
from typing import Any

import anyio
import numpy as np
import pytest

import aioloader
from aioloader import AsyncImageService
from tests.aioloader.service.images import Gate, fails, jpeg, numbered
from tests.aioloader.service.test_async_service import until
from tests.cases import on_both_loops


def refs_of(prompt: int) -> list[bytes]:
    return [numbered(prompt), numbered(prompt + 100)]


@pytest.mark.parametrize("asynchronous", [True, False], ids=["async", "sync"])
@pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "unordered"])
@on_both_loops
async def test_all_prompts_come_with_their_images(asynchronous: bool, ordered: bool, leftovers: Any) -> None:
    async def generated() -> AsyncIterator[int]:
        for prompt in range(20):
            await anyio.lowlevel.checkpoint()
            yield prompt

    async with AsyncImageService(fails, num_workers=2) as service:
        prompts: Any = generated() if asynchronous else range(20)
        found = [
            pair
            async for pair in service.map(prompts, refs=lambda n: [numbered(2 * n)], ordered=ordered, ahead=4)
        ]
    assert sorted(found) == [(n, [2 * n]) for n in range(20)]
    if ordered:
        assert found == sorted(found)


@on_both_loops
async def test_prompts_are_taken_only_so_far_ahead() -> None:
    taken = []

    def prompts() -> Any:
        for prompt in range(100):
            taken.append(prompt)
            yield prompt

    async with AsyncImageService(Gate(), num_workers=1, executor="thread") as service:
        mapping = service.map(prompts(), refs=refs_of, ordered=True, ahead=5)
        await anext(mapping)
        await until(lambda: service.stats().pending == 0)
        assert len(taken) in (5, 6)
        await mapping.aclose()


@on_both_loops
async def test_without_order_a_slow_prompt_holds_no_other() -> None:
    gate = Gate(closed=(0,))

    async with AsyncImageService(gate, num_workers=2, executor="thread") as service:
        found = []
        async for prompt, _ in service.map(range(4), refs=refs_of):
            found.append(prompt)
            if len(found) == 3:
                gate.open()
        assert found[3] == 0


@on_both_loops
async def test_draws_have_the_number_that_was_asked_for() -> None:
    photo = jpeg(60, 80)

    async with AsyncImageService(aioloader.transforms.RandomResizedCrop(24), num_workers=1) as service:
        expected = [await service.get(photo, draw=draw) for draw in range(3)]
        assert not np.array_equal(expected[0], expected[1])
        for draw in range(3):
            ((_, image),) = [each async for each in service.map([photo], refs=lambda ref: ref, draw=draw)]
            assert np.array_equal(image, expected[draw])
        for wrong in (-1, 0.5):
            with pytest.raises((TypeError, ValueError), match="draw"):
                service.map([photo], refs=lambda ref: ref, draw=wrong)  # type: ignore[arg-type]


def test_an_error_belongs_to_its_prompt(run_on: Any) -> None:
    async def main() -> None:
        async with AsyncImageService(fails, num_workers=1) as service:
            mapping = service.map(range(4), refs=lambda n: [numbered(n)], ordered=True)
            assert await anext(mapping) == (0, [0])
            with pytest.raises(aioloader.ImageError, match="1 is odd") as caught:
                await anext(mapping)
            assert caught.value.prompt == 1  # type: ignore[attr-defined]
            assert await anext(mapping) == (2, [2])
            with pytest.raises(aioloader.ImageError):
                await anext(mapping)
            with pytest.raises(StopAsyncIteration):
                await anext(mapping)
            kept = [
                images
                async for _, images in service.map(
                    [1, b"x", 2], refs=as_reference, on_error="return", ordered=True
                )
            ]
            assert [type(images).__name__ for images in kept] == ["ImageError", "ImageError", "int"]

    def as_reference(prompt: Any) -> bytes:
        return numbered(prompt) if isinstance(prompt, int) else prompt

    run_on(main)


@on_both_loops
async def test_an_error_of_the_prompts_comes_after_the_prompts_before_it() -> None:
    def prompts() -> Any:
        yield 0
        yield 2
        raise RuntimeError("no more")

    async with AsyncImageService(fails, num_workers=1) as service:
        found = []
        with pytest.raises(RuntimeError, match="no more"):
            async for prompt, _ in service.map(prompts(), refs=lambda n: numbered(n), ordered=True):
                found.append(prompt)
        assert found == [0, 2]


@on_both_loops
async def test_leaving_the_loop_gives_the_images_up(leftovers: Any) -> None:
    gate = Gate(closed=tuple(range(5, 200)))

    async with AsyncImageService(gate, num_workers=1, executor="thread") as service:
        async for prompt, _ in service.map(range(50), refs=lambda n: [numbered(n)], ahead=10):
            assert prompt < 5
            break
        gc.collect()
        await until(lambda: service.stats().pending == 0)
        gate.open()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"ahead": 0}, ValueError),
        ({"on_error": "x"}, ValueError),
        ({"prompts": 3}, TypeError),
        ({"refs": 3}, TypeError),
    ],
)
@on_both_loops
async def test_wrong_arguments_are_refused(options: dict[str, Any], error: type[Exception]) -> None:
    async with AsyncImageService(num_workers=1, executor="thread") as service:
        with pytest.raises(error):
            service.map(**{"prompts": [], "refs": refs_of, **options})
