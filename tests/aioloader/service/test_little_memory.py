"""Tests of a service whose memory is too small for some of its images: every request has its image or a named error."""

from __future__ import annotations

import random
from typing import Any

import anyio
import cv2
import numpy as np
import pytest
import simplejpeg

from aioloader import AsyncImageService, ServiceMemoryError
from aioloader.transforms import CenterCrop, Compose, RandomResizedCrop, Resize, ToTensor

SIDES = (1, 8, 64, 300, 500, 1000)
CLIENTS = 12
REQUESTS = 60


def enlarge(image: Any) -> Any:
    return cv2.resize(image, (2 * image.shape[1], 2 * image.shape[0])).astype(np.float32)


def shrink(image: Any) -> Any:
    return cv2.resize(image, (64, 64)).astype(np.float32)


def replace(image: Any) -> Any:
    return np.full((600, 600, 3), image[0, 0, 0], np.float32)


PROCESSORS: dict[str, Any] = {
    "none": None,
    "enlarge": enlarge,
    "shrink": shrink,
    "replace": replace,
    "chain": Compose([Resize(72), CenterCrop(64), ToTensor()]),
    "crops": Compose([RandomResizedCrop(224), ToTensor()]),
}


LIMITS = [("thread", 1 << 20), ("thread", 4 << 20), ("process", 2 << 20)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "executor", "memory_limit"),
    [(name, *LIMITS[number]) for place, name in enumerate(PROCESSORS) for number in {0, 1 + place % 2}],
)
def test_many_clients_who_keep_images_are_all_answered(name: str, executor: Any, memory_limit: int) -> None:
    draw = random.Random(f"{name} {memory_limit}")
    images = []
    for _ in range(REQUESTS):
        shape = (draw.choice(SIDES), draw.choice(SIDES), 3)
        images.append(simplejpeg.encode_jpeg(np.full(shape, 100, np.uint8)))
    kept: list[Any] = []
    answers: list[str] = []

    async def client(service: AsyncImageService, mine: list[bytes]) -> None:
        for image in mine:
            try:
                made: Any = await service.get(image)
                answers.append("image")
                if draw.random() < 0.3:
                    kept.append(made)
                    del kept[:-5]
            except ServiceMemoryError as error:
                answers.append("refused")
                assert error.nbytes > 0

    async def main() -> None:
        options: dict[str, Any] = {"num_workers": 2, "memory_limit": memory_limit, "executor": executor}
        async with AsyncImageService(PROCESSORS[name], **options) as service:
            with anyio.fail_after(120):
                async with anyio.create_task_group() as tasks:
                    for number in range(CLIENTS):
                        tasks.start_soon(client, service, images[number::CLIENTS])
            kept.clear()

    anyio.run(main)
    assert len(answers) == REQUESTS
    # Where the processor announces no size, a result that does not fit comes by value.
    assert name == "none" or "refused" not in answers
