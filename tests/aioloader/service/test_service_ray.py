"""Tests of the image service on a real cluster of two nodes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import cloudpickle
import numpy as np
import pytest

import aioloader
from aioloader import AsyncImageService
from aioloader.executors import RayExecutor
from aioloader.transforms import decode_image
from tests.aioloader.cluster import local_cluster
from tests.aioloader.service import images
from tests.aioloader.service.images import HANGS, NotesAndHangs, fails, jpeg, numbered, ragged

pytestmark = [
    pytest.mark.ray,
    pytest.mark.filterwarnings("ignore"),  # Ray's own
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Make a cluster whose workers need not import the tests."""
    cloudpickle.register_pickle_by_value(images)
    with local_cluster() as made:
        yield made
    cloudpickle.unregister_pickle_by_value(sys.modules[images.__name__])


async def test_images_equal_those_that_are_made_here(cluster: Any) -> None:
    photos = [jpeg(40, 60), jpeg(700, 900), jpeg(50, 30)]

    async with AsyncImageService(executor=RayExecutor(2)) as service:
        await service.ready()
        for made, photo in zip(await service.gather(photos), photos, strict=True):
            assert np.array_equal(made, decode_image(photo))
        with pytest.raises(aioloader.ImageError):
            await service.get(b"damaged")


@pytest.mark.parametrize("processor", [fails, ragged], ids=["scalars", "ragged"])
async def test_functions_run_on_the_cluster(cluster: Any, processor: Any) -> None:
    async with AsyncImageService(processor, executor=RayExecutor(2)) as service:
        made = await service.gather([numbered(n, side=200) for n in (0, 1, 2)], on_error="return")
        if processor is fails:
            assert made[::2] == [0, 2]
            assert isinstance(made[1], aioloader.ImageError)
        else:
            assert [each["rows"].shape[0] for each in made] == [200, 100, 67]


async def test_announced_sizes_fit(cluster: Any) -> None:
    pytest.importorskip("PIL")
    processor = aioloader.transforms.Qwen2VLImageProcessor(max_pixels=28 * 28 * 64)
    photos = [jpeg(300, 400, seed=n) for n in range(6)]

    async with AsyncImageService(processor, executor=RayExecutor(2)) as service:
        for made, photo in zip(await service.gather(photos), photos, strict=True):
            expected = processor(decode_image(photo, exif="ignore"))
            assert np.array_equal(made["pixel_values"], expected["pixel_values"])


async def test_an_actor_that_hangs_is_ended_when_the_time_of_its_caller_is_over(
    cluster: Any, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"

    executor = RayExecutor(1, timeout=600)
    async with AsyncImageService(NotesAndHangs(begun), executor=executor, timeout=600) as service:
        await service.ready()
        with anyio.fail_after(200):
            while not begun.exists():  # a busy cluster may not have begun in time
                with pytest.raises(aioloader.ImageTimeoutError):
                    await service.get(numbered(HANGS), timeout=1.0)
            assert await service.get(numbered(1)) == 1
            assert service.stats().restarts == 1
