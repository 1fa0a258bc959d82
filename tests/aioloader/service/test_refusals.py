"""Tests of wrong arguments and hostile references: each is a named error of its own image, and of no other."""

from __future__ import annotations

import time
from typing import Any

import anyio
import numpy as np
import pytest

import aioloader
from aioloader import AsyncImageService
from aioloader.errors import ImageError, ImageReferenceError, ImageTimeoutError
from aioloader.service.nested import flatten_references
from tests.aioloader.service.images import jpeg, number_of, numbered
from tests.cases import on_both_loops


class Refusing:
    """Processor that announces sizes, and refuses images of one row with an error of any kind."""

    def __init__(self, error: type[Exception]) -> None:
        self.error = error

    def spec(self, height: int, width: int) -> Any:
        if height == 1:
            raise self.error("one row")
        return Announced(height, width)

    def __call__(self, image: Any) -> Any:
        return {"pixel_values": image}


class Announced:
    """Sizes of an image that is returned as it is."""

    def __init__(self, height: int, width: int) -> None:
        self.shape = (height, width, 3)
        self.grid_thw = (1, height, width)
        self.num_tokens = height * width
        self.nbytes = height * width * 3


class Sleeping:
    """Dataset whose items take longer than anybody waits."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        time.sleep(1.0)
        return np.zeros((3, 3, 3), np.uint8)


@pytest.mark.parametrize("executor", ["process", "thread"])
@on_both_loops
async def test_a_wrong_draw_harms_no_other_image(executor: str) -> None:
    """Small images are made many at a time, and their numbers are in one table."""

    async with AsyncImageService(number_of, num_workers=1, executor=executor) as service:
        await service.gather([numbered(number) for number in range(100)])  # measures small images
        found: list[int] = []
        wrong = iter(("x", None, 1.5, -1, 2**63, 2**70))

        async def ask(number: int) -> None:
            found.append(await service.get(numbered(number)))

        async def ask_wrongly() -> None:
            draw: Any = next(wrong)
            with pytest.raises((TypeError, ValueError), match="draw"):
                await service.get(numbered(7), draw=draw)
            with pytest.raises((TypeError, ValueError), match="draw"):
                await service.gather([numbered(7)], draw=draw)

        async with anyio.create_task_group() as tasks:
            for number in range(30):
                tasks.start_soon(ask, number)
                if number % 5 == 4:
                    tasks.start_soon(ask_wrongly)
        assert sorted(found) == list(range(30))


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"priority": "high"}, TypeError, "priority must be a whole number, got 'high'"),
        ({"priority": float("nan")}, TypeError, "priority"),
        ({"priority": None}, TypeError, "priority"),
        ({"timeout": "5"}, TypeError, "timeout"),
        ({"timeout": 0}, ValueError, "timeout"),
        ({"timeout": float("nan")}, ValueError, "timeout"),
    ],
)
@on_both_loops
async def test_wrong_numbers_are_named(options: dict[str, Any], error: type[Exception], text: str) -> None:
    async with AsyncImageService(num_workers=1, executor="thread") as service:
        with pytest.raises(error, match=text):
            await service.get(numbered(1), **options)
        with pytest.raises(error, match=text):
            await service.gather([numbered(1)], **options)
        with pytest.raises(error, match=text):
            await anext(service.map([1], refs=numbered, **options))
        assert service.stats().pending == 0


@on_both_loops
async def test_a_key_that_cannot_be_hashed_is_named() -> None:
    async with AsyncImageService(num_workers=1, executor="thread") as service:
        for key in ([1], {}, (1, [2]), np.zeros(2)):
            for method in (service.get, service.probe):
                with pytest.raises(TypeError, match="key must be hashable"):
                    await method(numbered(1), key=key)


@pytest.mark.parametrize("wrap", [lambda value: [value], lambda value: (value,), lambda value: {"a": value}])
@pytest.mark.parametrize("levels", [101, 5000])
def test_references_nested_too_deep_are_a_named_error(wrap: Any, levels: int) -> None:
    value: Any = b""
    for _ in range(100):
        value = wrap(value)
    assert flatten_references(value)[0] == [b""]
    for _ in range(levels - 100):
        value = wrap(value)
    with pytest.raises(ImageReferenceError, match="100 levels"):
        flatten_references(value)


def test_references_that_contain_themselves_are_a_named_error() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(ImageReferenceError, match="levels"):
        flatten_references(value)


@on_both_loops
async def test_a_pillow_image_without_pixels_is_a_named_error() -> None:
    pillow = pytest.importorskip("PIL.Image")

    async with AsyncImageService(num_workers=1, executor="thread", allow=("pillow",)) as service:
        for size in ((0, 0), (5, 0), (0, 5)):
            with pytest.raises(ImageReferenceError, match="no pixels"):
                await service.get(pillow.new("RGB", size))


@pytest.mark.parametrize("error", [ValueError, ZeroDivisionError, KeyError])
@on_both_loops
async def test_a_size_that_the_processor_refuses_is_an_image_error_everywhere(error: type[Exception]) -> None:
    async with AsyncImageService(Refusing(error), num_workers=1, executor="thread") as service:
        for method in (service.get, service.probe):
            with pytest.raises(ImageError, match="one row") as caught:
                await method(jpeg(1, 30))
            assert (caught.value.stage, type(caught.value.__cause__)) == ("transform", error)
        packing = service.pack([[jpeg(1, 30)]], refs=list, max_tokens=10_000)
        with pytest.raises(ImageError, match="one row") as caught:
            await anext(packing)
        assert caught.value.prompt  # type: ignore[attr-defined]


@on_both_loops
async def test_a_header_that_does_not_arrive_is_a_timeout_of_its_image() -> None:
    async with AsyncImageService(
        num_workers=1, executor="thread", allow=("dataset",), timeout=0.2
    ) as service:
        with pytest.raises(ImageTimeoutError, match=r"Sleeping\[1\]") as caught:
            await service.probe((Sleeping(), 1))
        assert (caught.value.timeout, caught.value.phase) == (0.2, "read")


@pytest.mark.parametrize("kind", ["bytes", "path"])
@on_both_loops
async def test_each_image_is_one_miss_of_the_cache(kind: str, tmp_path: Any) -> None:
    (tmp_path / "a.jpg").write_bytes(jpeg())
    ref = jpeg() if kind == "bytes" else "a.jpg"
    options = {} if kind == "bytes" else {"allow": ("path",), "root": tmp_path}

    async with AsyncImageService(num_workers=1, executor="thread", cache_limit=1 << 20, **options) as service:
        for _ in range(3):
            await service.get(ref)
        stats = service.stats()
        assert (stats.made, stats.cache_hits, stats.cache_misses) == (1, 2, 1)


def test_services_name_why_they_cannot_be_pickled() -> None:
    import pickle

    for service in (AsyncImageService(), aioloader.ImageService()):
        with pytest.raises(TypeError, match="each process needs its own"):
            pickle.dumps(service)
