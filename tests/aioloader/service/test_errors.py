"""Tests of the errors of the image service: they survive pickling and copying with their facts."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from aioloader.errors import (
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


@pytest.mark.parametrize(
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
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize(
    "repeat", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))], ids=["copy", "pickle"]
)
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
