"""Tests of the errors of the image service: they survive pickling and copying with their facts."""

from __future__ import annotations

import copy
import pickle
import traceback
from typing import Any

import pytest

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
from tests.aioloader.service.images import number_of, numbered
from tests.cases import on_both_loops, with_cases


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


@pytest.mark.parametrize("executor", ["process", "thread"])
@on_both_loops
async def test_long_texts_of_a_processor_are_cut(executor: str) -> None:
    async with AsyncImageService(says_too_much, num_workers=1, executor=executor) as service:
        found = await service.gather([numbered(n) for n in range(1, 7)], on_error="return")
        names = ["ValueError", "KeyError", "Verbose", "ExceptionGroup", "noted", "RuntimeError"]
        for error, name in zip(found, names, strict=True):
            assert name in str(error)
            assert len("".join(traceback.format_exception(error))) < 100_000
            assert len(pickle.dumps(error)) < 100_000
