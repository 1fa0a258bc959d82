"""One image decoded and transformed by Pillow, for the contenders that leave this to the caller.

The crop is torchvision's RandomResizedCrop, drawn with the standard library's generator (which PyTorch's DataLoader
seeds in every worker) because a draw from torch's costs several microseconds.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from benchmarks.cases import Case


def make_image(case: Case, opened: Any) -> Any:
    """Return the image that a case requires, uint8 (height, width, 3).

    Args:
        case: the case.
        opened: an image of Pillow's, decoded or not.
    """
    image = opened.convert("RGB")
    size = side(case)
    if case.crop == "random":
        x, y, w, h = random_box(*image.size)
        image = image.resize((size, size), Image.Resampling.BILINEAR, box=(x, y, x + w, y + h))
    elif case.crop == "window":
        x, y = (random.randint(0, extent - size) for extent in image.size)
        image = image.crop((x, y, x + size, y + size))
    elif case.crop == "centre":
        width, height = short_side(*image.size, 256)
        image = image.resize((width, height), Image.Resampling.BILINEAR)
        left, top = (width - size) // 2, (height - size) // 2
        image = image.crop((left, top, left + size, top + size))
    if case.flip and random.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.array(image)


def side(case: Case) -> int:
    """Return the side of the case's square images, pixels."""
    return case.shape[-1] if case.normalised else case.shape[0]


def short_side(width: int, height: int, short: int) -> tuple[int, int]:
    """Return the extents after scaling the shorter side to `short`."""
    if width < height:
        return short, height * short // width
    return width * short // height, short


def random_box(width: int, height: int) -> tuple[int, int, int, int]:
    """Draw (x, y, width, height) as torchvision does."""
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1.0)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return random.randint(0, width - w), random.randint(0, height - h), w, h
    side = min(width, height)
    return (width - side) // 2, (height - side) // 2, side, side
