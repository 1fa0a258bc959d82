"""Decoding of an image with OpenCV, for contenders that leave decoding to their users. Not a contender itself.

OpenCV's bilinear resize does not antialias, so Pillow resizes where a case requires that. The environments of the
contenders import this module: standard library, numpy, OpenCV and Pillow only.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

import cv2
import numpy as np
from PIL import Image

from benchmarks.cases import MEAN, STD

if TYPE_CHECKING:
    from benchmarks.cases import Case


_GREY_LEVELS = np.arange(256, dtype=np.float32)
_TABLES = [
    ((_GREY_LEVELS / 255 - mean) / std).astype(np.float32) for mean, std in zip(MEAN, STD, strict=True)
]
_LOG_RATIO = math.log(4 / 3)

cv2.setNumThreads(0)  # contenders have their own workers


class Draws(Protocol):
    """Protocol of a random generator of the standard library or of numpy."""

    def random(self) -> float:
        """Draw uniformly from [0, 1)."""


def make_image(case: Case, jpeg: bytes, draws: Draws) -> Any:
    """Decode, crop, resize, mirror and normalise an image as a case requires.

    "Resize 256, centre crop 224" is one crop of 224/256 of the shorter side and one resize, which costs less.

    Args:
        case: the task.
        jpeg: a JPEG file.
        draws: generator for the crop and the mirroring.

    Returns:
        one row of a batch, contiguous.
    """
    flags = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
    image = cv2.imdecode(np.frombuffer(jpeg, np.uint8), flags)
    if case.crop == "window":
        x, y, w, h = window_box(case, image.shape[1], image.shape[0], draws)
        image = image[y : y + h, x : x + w]
    elif case.crop != "none":
        height, width = image.shape[:2]
        box = random_box(width, height, draws) if case.crop == "random" else centre_box(width, height)
        x, y, w, h = box
        image = image[y : y + h, x : x + w]
        if case.antialias:
            image = np.asarray(Image.fromarray(image).resize((224, 224), Image.Resampling.BILINEAR))
        else:
            image = cv2.resize(image, (224, 224), interpolation=cv2.INTER_LINEAR)
    if case.flip and draws.random() < 0.5:
        image = cv2.flip(image, 1)
    return normalise(image) if case.normalised else np.ascontiguousarray(image)


def random_box(width: int, height: int, draws: Draws) -> tuple[int, int, int, int]:
    """Draw (x, y, width, height) as torchvision's RandomResizedCrop does."""
    for _ in range(10):
        area = width * height * (0.08 + 0.92 * draws.random())
        ratio = math.exp(_LOG_RATIO * (2 * draws.random() - 1))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            x, y = int(draws.random() * (width - w + 1)), int(draws.random() * (height - h + 1))
            return x, y, w, h
    side = min(width, height)
    return (width - side) // 2, (height - side) // 2, side, side


def window_box(case: Case, width: int, height: int, draws: Draws) -> tuple[int, int, int, int]:
    """Draw (x, y, width, height) of a window of the case's shape, uniformly."""
    h, w = case.shape[:2]
    return int(draws.random() * (width - w + 1)), int(draws.random() * (height - h + 1)), w, h


def centre_box(width: int, height: int) -> tuple[int, int, int, int]:
    """Return (x, y, width, height) of the centre: 224/256 of the shorter side."""
    side = round(min(width, height) * 224 / 256)
    return (width - side) // 2, (height - side) // 2, side, side


def normalise(image: Any, place: Any = None) -> Any:
    """Move channels first, subtract the mean and divide by the standard deviation.

    One table look-up per channel takes half the time of arithmetic, and runs without the interpreter's lock.

    Args:
        image: uint8 (height, width, 3).
        place: float32 (3, height, width), written to; None: a new one.

    Returns:
        float32 (3, height, width).
    """
    result = np.empty((image.shape[2], *image.shape[:2]), np.float32) if place is None else place
    for plane, table, row in zip(cv2.split(image), _TABLES, result, strict=True):
        cv2.LUT(plane, table, dst=row)
    return result
