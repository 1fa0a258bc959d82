"""Small images, processors and services for the tests of the image service."""

from __future__ import annotations

import base64
import io
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
import simplejpeg

from aioloader import AsyncImageService
from aioloader.transforms import encode_raw
from tests.conftest import DATA

RULES: dict[str, Any] = json.loads((DATA / "strangers.json").read_text("utf-8"))
"""Tables of the rules for references of strangers."""


def by_key(name: str) -> list[tuple[str, Any]]:
    """Return the cases of a table that is a mapping of lists: (key, element of its list)."""
    return [(key, each) for key, cases in RULES[name].items() for each in cases]


def service_of(processor: Any = None, **options: Any) -> AsyncImageService:
    """Return a service with one thread as its worker, unless the options say otherwise."""
    return AsyncImageService(processor, **{"num_workers": 1, "executor": "thread", **options})


async def until(condition: Any) -> None:
    """Wait until a condition holds."""
    with anyio.fail_after(30):
        while not condition():
            await anyio.sleep(0.001)


def numbered(number: int, side: int = 1) -> bytes:
    """Return an encoded image whose pixels tell a number below 65,536."""
    image = np.zeros((side, side, 3), np.uint8)
    image[:, :, 0], image[:, :, 1] = number % 256, number // 256
    return encode_raw(image)


def number_of(image: Any) -> int:
    """Return the number of such an image."""
    return int(image[0, 0, 0]) + 256 * int(image[0, 0, 1])


def jpeg(height: int = 40, width: int = 60, seed: int = 0) -> bytes:
    """Return a JPEG of smooth noise."""
    coarse = np.random.default_rng(seed).integers(
        0, 256, (-(-height // 8), -(-width // 8), 3), dtype=np.uint8
    )
    image = np.repeat(np.repeat(coarse, 8, axis=0), 8, axis=1)[:height, :width]
    return simplejpeg.encode_jpeg(np.ascontiguousarray(image), quality=90)


def saved(image: Any, kind: str, orientation: int = 1, **options: Any) -> bytes:
    """Return a Pillow image or an array in a format, with an orientation unless it is 1."""
    pillow = pytest.importorskip("PIL.Image", reason="needs Pillow")
    if orientation != 1:
        options["exif"] = pillow.Exif()
        options["exif"][0x112] = orientation
    file = io.BytesIO()
    (pillow.fromarray(image) if isinstance(image, np.ndarray) else image).save(file, kind, **options)
    return file.getvalue()


def data_uri(data: bytes) -> str:
    """Return a ``data:`` URI of an image."""
    return "data:image/jpeg;base64," + base64.b64encode(data).decode()


class Gate:
    """Processor in threads that waits for `open` where its number is closed, and notes what begins."""

    def __init__(self, closed: tuple[int, ...] = ()) -> None:
        self.closed = set(closed)
        self.begun: list[int] = []
        self._opened = threading.Event()

    def __call__(self, image: Any) -> int:
        number = number_of(image)
        self.begun.append(number)
        if number in self.closed:
            assert self._opened.wait(30)
        return number

    def open(self) -> None:
        """Let all images pass, now and later."""
        self._opened.set()


class KillsOnce:
    """Processor that kills its process the first time that it sees some number."""

    def __init__(self, folder: Path, number: int, always: bool = False) -> None:
        self.folder = str(folder)
        self.number = number
        self.always = always

    def __call__(self, image: Any) -> int:
        number = number_of(image)
        marker = os.path.join(self.folder, str(number))
        if number == self.number and (self.always or not os.path.exists(marker)):
            Path(marker).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return number


def ragged(image: Any) -> dict[str, Any]:
    """Process an image to arrays of different shapes and dtypes."""
    return {
        "mean": image.mean(axis=(0, 1)),
        "rows": image[:: 1 + number_of(image) % 3].astype(np.float32),
        "name": "x",
    }


def fails(image: Any) -> int:
    """Fail for odd numbers."""
    number = number_of(image)
    if number % 2:
        raise ValueError(f"{number} is odd")
    return number


def sleeps(image: Any) -> int:
    """Take as many milliseconds as the number says."""
    number = number_of(image)
    time.sleep(number / 1000)
    return number


HANGS = 60_000


def hangs(image: Any) -> int:
    """Never return for `HANGS`, and take as many milliseconds as the number says otherwise."""
    number = number_of(image)
    time.sleep(3600 if number == HANGS else number / 1000)
    return number


class NotesAndHangs:
    """Processor that never returns for `HANGS`, and makes a file before."""

    def __init__(self, marker: Path) -> None:
        self.marker = str(marker)

    def __call__(self, image: Any) -> int:
        if number_of(image) == HANGS:
            Path(self.marker).touch()
        return hangs(image)
