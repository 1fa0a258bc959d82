"""Small images and processors for the tests of the image service."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import simplejpeg

from aioloader.transforms import encode_raw


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
