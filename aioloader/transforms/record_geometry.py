"""Crops of MXNet's record iterator: a window of the requested size, from an image that is enlarged if it is too small.

Rule (`ImageRecordIter`): an image lower than the window is enlarged to its height, then, if it is narrower, to its
width, each time with its shape kept and the other side rounded down. The window is in the middle, odd rests to the
right and below, or at a drawn place. The two other crops choose a rectangle that is resized to the window.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from aioloader.transforms.base import check_range
from aioloader.transforms.geometry import Box, Crop, random_box
from aioloader.transforms.interpolation import resize_image, settle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import Array
    from aioloader.rng import Rng

_TRIES = 10


class _Enlarged(tuple[int, int, int, int]):
    """All of an image that is too small, the sizes that it is enlarged to, and the window's place in the last one."""

    sizes: list[tuple[int, int]]
    place: tuple[int, int]


class WindowCrop(Crop):
    """A window of exactly `size`, cut out and not resized; (height, width, channels) in and out, dtype kept.

    Draws: x, then y, if `random`; one more per enlargement for interpolation "random".

    Args:
        size: side of a square, or (width, height), in pixels.
        random: at a place that is drawn uniformly; False: in the middle.
        interpolation: for enlarging: MXNet's number or a name.
    """

    def __init__(self, size: int | Sequence[int], random: bool = False, interpolation: int | str = 1) -> None:
        super().__init__(size, interpolation)
        self.random = bool(random)

    def box(self, height: int, width: int, rng: Rng) -> Box:
        wanted_width, wanted_height = self.size
        if height >= wanted_height and width >= wanted_width:
            x, y = self.place(width - wanted_width, height - wanted_height, rng)
            return x, y, wanted_width, wanted_height
        enlarged = _Enlarged((0, 0, width, height))
        sizes = []
        if height < wanted_height:
            # In single precision, which affects the rounding of the other side.
            width = int(np.float32(wanted_height) / np.float32(height) * np.float32(width))
            height = wanted_height
            sizes.append((width, height))
        if width < wanted_width:
            height = int(np.float32(wanted_width) / np.float32(width) * np.float32(height))
            width = wanted_width
            sizes.append((width, height))
        enlarged.sizes = sizes
        enlarged.place = self.place(width - wanted_width, height - wanted_height, rng)
        return enlarged

    def place(self, free_width: int, free_height: int, rng: Rng) -> tuple[int, int]:
        """Choose left and top edge of a rectangle that is this many pixels smaller than the image."""
        if self.random:
            return random_box(free_height, free_width, (0, 0), rng)[:2]
        return free_width // 2, free_height // 2

    def fit(self, region: Array, box: Box, rng: Rng, out: Array | None = None) -> Array:
        if not isinstance(box, _Enlarged):
            return super().fit(region, box, rng, out)
        for size in box.sizes:
            region = resize_image(region, size, settle(self.interpolation, rng))
        x, y = box.place
        width, height = self.size
        return region[y : y + height, x : x + width]


class SquareCrop(WindowCrop):
    """A square of drawn size, resized to `size`; (height, width, channels), dtype kept.

    Draws: the side, then x and y if `random`, then one for interpolation "random".

    Args:
        size: side of a square, or (width, height), in pixels.
        sides: (least, greatest) side of the square in pixels, both possible. No image may be smaller than the
            greatest.
        random: at a place that is drawn uniformly; False: in the middle.
        interpolation: MXNet's number or a name.
    """

    def __init__(
        self,
        size: int | Sequence[int],
        sides: tuple[int, int],
        random: bool = False,
        interpolation: int | str = 1,
    ) -> None:
        super().__init__(size, random, interpolation)
        least, greatest = sides
        if not 1 <= least <= greatest:
            raise ValueError(
                f"SquareCrop: sides must be (least, greatest) with 1 <= least <= greatest, got {sides!r}"
            )
        self.sides = (least, greatest)

    def box(self, height: int, width: int, rng: Rng) -> Box:
        least, greatest = self.sides
        if height < greatest or width < greatest:
            raise ValueError(
                f"SquareCrop: input image size smaller than max_crop_size: {width} x {height} pixels are less than "
                f"{greatest} x {greatest}"
            )
        side = rng.integers(least, greatest + 1)
        x, y = self.place(width - side, height - side, rng)
        return x, y, side, side


class AreaCrop(WindowCrop):
    """A rectangle of drawn area and shape, at a drawn place, resized to `size`; (height, width, channels), dtype kept.

    Draws: up to 10 tries of area share and ratio, each uniform, and one to exchange the sides; the first that fits
    into the image draws x, then y. If none fits: the window in the middle, as `WindowCrop` takes it.

    Args:
        size: side of a square, or (width, height), in pixels.
        area: (least, greatest) share of the image's area.
        ratio: (least, greatest) width/height of the rectangle, or height/width: each as often.
        interpolation: MXNet's number or a name.
    """

    def __init__(
        self,
        size: int | Sequence[int],
        area: tuple[float, float] = (1.0, 1.0),
        ratio: tuple[float, float] = (1.0, 1.0),
        interpolation: int | str = 1,
    ) -> None:
        super().__init__(size, False, interpolation)
        self.area = check_range(area, "AreaCrop: area")
        self.ratio = check_range(ratio, "AreaCrop: ratio")

    def box(self, height: int, width: int, rng: Rng) -> Box:
        for _ in range(_TRIES):
            pixels = rng.uniform(*self.area) * (height * width)
            ratio = rng.uniform(*self.ratio)
            w, h = _rounded(math.sqrt(pixels * ratio)), _rounded(math.sqrt(pixels / ratio))
            if rng.random() < 0.5:
                w, h = h, w
            if 0 < w <= width and 0 < h <= height:
                return random_box(height, width, (w, h), rng)
        return super().box(height, width, rng)


def _rounded(value: float) -> int:
    # Halves upwards, as in C.
    return math.floor(value + 0.5)
