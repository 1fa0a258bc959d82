"""Tests of wrong arguments, images and executors: each is a named error of its own image, and of no other."""

from __future__ import annotations

import copy
import pickle
import time
import traceback
from collections.abc import Callable
from typing import Any

import anyio
import numpy as np
import pytest

import aioloader
from aioloader import AsyncImageService
from aioloader.errors import (
    BitDepthWarning,
    ImageError,
    ImageFetchError,
    ImageNotAllowedError,
    ImageReferenceError,
    ImageTimeoutError,
    ImageTooLargeError,
    ServiceClosedError,
    ServiceMemoryError,
    ServiceOverloadedError,
)
from aioloader.executors import ProcessExecutor, ThreadExecutor
from tests.aioloader.service.images import fails, jpeg, number_of, numbered, service_of
from tests.cases import on_both_loops, with_cases


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


@with_cases("executor", ["process", "thread"])
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


@with_cases(
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
    async with service_of() as service:
        with pytest.raises(error, match=text):
            await service.get(numbered(1), **options)
        with pytest.raises(error, match=text):
            await service.gather([numbered(1)], **options)
        with pytest.raises(error, match=text):
            await anext(service.map([1], refs=numbered, **options))
        assert service.stats().pending == 0


@on_both_loops
async def test_a_pillow_image_without_pixels_is_a_named_error() -> None:
    pillow = pytest.importorskip("PIL.Image")

    async with service_of(allow=("pillow",)) as service:
        for size in ((0, 0), (5, 0), (0, 5)):
            with pytest.raises(ImageReferenceError, match="no pixels"):
                await service.get(pillow.new("RGB", size))


@with_cases("error", [ValueError, ZeroDivisionError, KeyError])
@on_both_loops
async def test_a_size_that_the_processor_refuses_is_an_image_error_everywhere(error: type[Exception]) -> None:
    async with service_of(Refusing(error)) as service:
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
    async with service_of(allow=("dataset",), timeout=0.2) as service:
        with pytest.raises(ImageTimeoutError, match=r"Sleeping\[1\]") as caught:
            await service.probe((Sleeping(), 1))
        assert (caught.value.timeout, caught.value.phase) == (0.2, "read")


def test_services_name_why_they_cannot_be_pickled() -> None:
    for service in (AsyncImageService(), aioloader.ImageService()):
        with pytest.raises(TypeError, match="each process needs its own"):
            pickle.dumps(service)


# -- executors of the caller -------------------------------------------------------------------------------------------


@with_cases("kind", [ThreadExecutor, ProcessExecutor])
async def test_an_executor_serves_one_service(kind: Callable[[int], Any]) -> None:
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


@with_cases("first", ["loader", "service"])
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


# -- errors that travel ------------------------------------------------------------------------------------------------


@with_cases(
    "error",
    [
        ImageError("an image", "decode", "it is damaged"),
        ImageFetchError("https://host/a", "status 404", status=404, kind="https"),
        ImageNotAllowedError("/etc/passwd", "outside", kind="path"),
        ImageReferenceError("x", "malformed"),
        ImageTimeoutError("x", 1.5, "queue"),
        ImageTooLargeError("x", "bytes", 10, 11, kind="bytes"),
        ServiceClosedError("closed"),
        ServiceMemoryError(10, 20, 15),
        ServiceOverloadedError(3, 3),
        ServiceOverloadedError(3, 5, 2),
        BitDepthWarning(16, format="png", path="deep.png"),
    ],
    ids=lambda error: type(error).__name__,
)
@with_cases("repeat", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))], ids=["copy", "pickle"])
def test_an_error_keeps_its_facts(error: Any, repeat: Any) -> None:
    again = repeat(error)
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_all_errors_of_an_image_service_are_names_of_the_package() -> None:
    import aioloader

    waiting, found = [aioloader.ImageServiceError], set()
    while waiting:
        kind = waiting.pop()
        found.add(kind.__name__)
        waiting += kind.__subclasses__()
    for name in found:
        assert getattr(aioloader, name).__name__ == name
    assert found <= set(aioloader.__all__)


class Verbose(Exception):
    """Error with a text that is none of its arguments."""

    def __str__(self) -> str:
        return "all pixels: " + "1" * 5_000_000


def says_too_much(image: Any) -> Any:
    number = number_of(image)
    if number == 1:
        raise ValueError("all pixels: " + "1" * 5_000_000)
    if number == 2:
        raise KeyError(b"1" * 5_000_000)
    if number == 3:
        raise Verbose
    if number == 4:
        raise ExceptionGroup("several", [ValueError("3" * 5_000_000), ExceptionGroup("more", [Verbose()])])
    if number == 5:
        error = ValueError("noted")
        error.add_note("4" * 5_000_000)
        raise error
    raise RuntimeError("short") from ValueError("2" * 5_000_000)


@with_cases("executor", ["process", "thread"])
async def test_long_texts_of_a_processor_are_cut(executor: str) -> None:
    async with AsyncImageService(says_too_much, num_workers=1, executor=executor) as service:
        found = await service.gather([numbered(n) for n in range(1, 7)], on_error="return")
        names = ["ValueError", "KeyError", "Verbose", "ExceptionGroup", "noted", "RuntimeError"]
        for error, name in zip(found, names, strict=True):
            assert name in str(error)
            assert len("".join(traceback.format_exception(error))) < 100_000
            assert len(pickle.dumps(error)) < 100_000
