"""One image decoded and transformed by Pillow, for the contenders that leave this to the caller.

The crop is torchvision's RandomResizedCrop, drawn with the standard library's generator (which PyTorch's DataLoader
seeds in every worker) because a draw from torch's costs several microseconds.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from benchmarks.contenders.opencv import random_box

if TYPE_CHECKING:
    from benchmarks.cases import Case


def make_image(case: Case, opened: Any) -> Any:
    """Return the image that a case requires, uint8 (height, width, 3).

    Args:
        case: the case.
        opened: an image of Pillow's, decoded or not.
    """
    image = opened if opened.mode == "RGB" else opened.convert("RGB")
    size = case.shape[-1] if case.normalised else case.shape[0]
    if case.crop == "random":
        x, y, w, h = random_box(*image.size, random)
        image = image.resize((size, size), Image.Resampling.BILINEAR, box=(x, y, x + w, y + h))
    elif case.crop == "window":
        x, y = (random.randint(0, extent - size) for extent in image.size)
        image = image.crop((x, y, x + size, y + size))
    elif case.crop == "centre":
        width, height = (extent * 256 // min(image.size) for extent in image.size)
        image = image.resize((width, height), Image.Resampling.BILINEAR)
        left, top = (width - size) // 2, (height - size) // 2
        image = image.crop((left, top, left + size, top + size))
    if case.flip and random.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.array(image)
