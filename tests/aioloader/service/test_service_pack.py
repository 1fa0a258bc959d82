"""Tests of `AsyncImageService.pack`: full batches in the order of arrival, right patches, errors."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest

import aioloader
from aioloader import AsyncImageService
from aioloader.transforms import decode_image
from tests.aioloader.service.images import jpeg, saved, service_of
from tests.cases import on_both_loops, with_cases

pytest.importorskip("PIL")

PROCESSOR = aioloader.transforms.Qwen2VLImageProcessor(max_pixels=28 * 28 * 16)


def prompts_of(count: int, seed: int = 0) -> list[list[bytes]]:
    rng = np.random.default_rng(seed)
    return [
        [
            jpeg(int(rng.integers(30, 300)), int(rng.integers(30, 300)), seed=100 * n + k)
            for k in range(rng.integers(1, 4))
        ]
        for n in range(count)
    ]


@on_both_loops
async def test_batches_hold_the_patches_of_their_prompts_within_the_budget() -> None:
    prompts = list(enumerate(prompts_of(40)))

    async with AsyncImageService(PROCESSOR, num_workers=2) as service:
        seen = []
        async for batch in service.pack(prompts, refs=lambda prompt: prompt[1], max_tokens=128, lookahead=16):
            images = [photo for _, photos in batch.prompts for photo in photos]
            made = [PROCESSOR(decode_image(photo, exif="ignore")) for photo in images]
            assert np.array_equal(batch.pixel_values, np.concatenate([each["pixel_values"] for each in made]))
            assert np.array_equal(
                batch.image_grid_thw, np.concatenate([each["image_grid_thw"] for each in made])
            )
            assert batch.cu_seqlens.dtype == np.int32
            assert np.array_equal(np.diff(batch.cu_seqlens), batch.image_grid_thw.prod(axis=1))
            counts = [len(photos) for _, photos in batch.prompts]
            assert batch.owners.tolist() == np.repeat(np.arange(len(counts)), counts).tolist()
            assert batch.num_tokens == len(batch.pixel_values) // 4 <= 128
            seen += [number for number, _ in batch.prompts]
        assert sorted(seen) == list(range(40))


@on_both_loops
async def test_batches_keep_the_order_of_arrival_within_the_look_ahead_and_are_full() -> None:
    """A mix of one to three images of many sizes, given by a generator that others feed meanwhile."""
    lookahead, budget = 16, 256
    prompts = list(enumerate(prompts_of(160, seed=5)))
    tokens = [
        sum(PROCESSOR.spec(*decode_image(photo, exif="ignore").shape[:2]).num_tokens for photo in photos)
        for _, photos in prompts
    ]

    async def arriving() -> Any:
        for prompt in prompts:
            await anyio.lowlevel.checkpoint()
            yield prompt

    async with AsyncImageService(PROCESSOR, num_workers=2, executor="thread") as service:
        packing = service.pack(
            arriving(), refs=lambda prompt: prompt[1], max_tokens=budget, lookahead=lookahead
        )
        batches = [([number for number, _ in batch.prompts], batch.num_tokens) async for batch in packing]
    waiting = list(range(len(prompts)))
    for numbers, count in batches:
        assert count == sum(tokens[number] for number in numbers) <= budget
        assert numbers == sorted(numbers)
        assert numbers[0] == waiting[0]  # the one that has waited longest
        # The window grows while it holds less than two batches.
        seen, total = 0, 0
        while seen < len(waiting) and (seen < lookahead or total < 2 * budget):
            total += tokens[waiting[seen]]
            seen += 1
        assert set(numbers) <= set(waiting[:seen])
        waiting = [number for number in waiting if number not in numbers]
    assert not waiting
    fills = [count / budget for _, count in batches[:-2]]  # the last ones take what is left
    assert np.mean(fills) > 0.95
    assert len(batches) > 10


@on_both_loops
async def test_headers_are_read_several_at_a_time_and_batches_keep_the_order() -> None:
    """Ten prompts of two images behind a server that answers nobody before it has several requests."""
    photos = [jpeg(30 + 10 * n, 40, seed=n) for n in range(20)]
    prompts = [(f"http://example.com/{2 * n}", f"http://example.com/{2 * n + 1}") for n in range(10)]

    waiting, enough = 0, anyio.Event()

    async def fetch(url: str) -> bytes:
        nonlocal waiting
        waiting += 1
        if waiting == 10:
            enough.set()
        await enough.wait()
        # Later ones come first.
        number = int(url.rpartition("/")[2])
        await anyio.sleep(0.001 * (20 - number))
        return photos[number]

    async with service_of(PROCESSOR, allow=("bytes", "http"), fetch=fetch, timeout=20) as service:
        there = [(photos[2 * n], photos[2 * n + 1]) for n in range(10)]
        expected = [
            [there.index(prompt) for prompt in batch.prompts]
            async for batch in service.pack(there, refs=lambda prompt: prompt, max_tokens=16, lookahead=2)
        ]
        assert len(expected) > 1
        found = [
            [prompts.index(prompt) for prompt in batch.prompts]
            async for batch in service.pack(prompts, refs=lambda prompt: prompt, max_tokens=16, lookahead=2)
        ]
        assert found == expected


@with_cases("ahead", [1, 3])
@on_both_loops
async def test_few_prompts_are_taken_before_they_are_needed(ahead: int) -> None:
    taken = 0

    def prompts() -> Any:
        nonlocal taken
        for number in range(200):
            taken += 1
            yield [jpeg(60, 60, seed=number)]

    async with service_of(PROCESSOR) as service:
        packing = service.pack(prompts(), refs=list, max_tokens=8, lookahead=2)
        for _ in range(ahead):
            await anext(packing)
        await anyio.wait_all_tasks_blocked()
        assert taken <= 2 * ahead + 40
        await packing.aclose()


@with_cases("form", ["JPEG", "PNG", "TIFF"])
@with_cases("exif", ["apply", "ignore"])
async def test_a_photograph_on_its_side_has_the_size_that_probe_announces(form: str, exif: str) -> None:
    photo = saved(np.zeros((60, 300, 3), np.uint8), form, 6)
    processor = aioloader.transforms.Qwen2VLImageProcessor(exif=exif)

    async with AsyncImageService(processor, num_workers=1) as service:
        info = await service.probe(photo)
        for _ in range(2):  # by value, and into its row
            made = await service.get(photo)
            assert made["image_grid_thw"].tolist() == [list(info.grid_thw or ())]
            assert made["pixel_values"].shape == info.shape


@pytest.mark.parametrize(
    "output", [pytest.param("torch", marks=pytest.mark.torch), pytest.param("jax", marks=pytest.mark.jax)]
)
@on_both_loops
async def test_batches_are_of_the_type_of_the_output(output: str) -> None:
    package = pytest.importorskip(output)
    kind = package.Tensor if output == "torch" else package.Array

    async with (
        service_of(PROCESSOR) as plain,
        service_of(PROCESSOR, output=output) as service,
    ):
        (expected,) = [each async for each in plain.pack([[jpeg(50, 60)]], refs=list, max_tokens=64)]
        (batch,) = [each async for each in service.pack([[jpeg(50, 60)]], refs=list, max_tokens=64)]
        for name in ("pixel_values", "image_grid_thw", "cu_seqlens", "owners"):
            array = getattr(batch, name)
            assert isinstance(array, kind), name
            assert np.array_equal(np.asarray(array), getattr(expected, name)), name
