"""Crops and borders that depend on the boxes, of SSD's kind (Liu et al., 2016), with MXNet's rules of visibility.

The rectangle is drawn apart from the cut (`rectangle`), by any object with the methods `uniform` and `integers` of
`Rng`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from aioloader.transforms.base import check_range
from aioloader.transforms.border import place_on_canvas
from aioloader.transforms.boxes.base import BoxTransform, image_extents
from aioloader.transforms.boxes.geometry import box_coverages, crop_boxes, shift_boxes
from aioloader.transforms.geometry import random_box

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import Array
    from aioloader.rng import Rng

# A narrower border would hardly change the image.
_LEAST_GROWTH = 2


def _about(width: int, height: int, least: float, greatest: float) -> bool:
    """Return True if an area is in a range, with tolerance for extents that are rounded to whole pixels."""
    slack = (width + height + 1) / 2
    return least - slack <= width * height <= greatest + slack


class RandomObjectCrop(BoxTransform):
    """A rectangle of drawn shape, size and place that shows enough of the objects; the image is not resized.

    A rectangle is accepted if it touches at least one box, if every box that it touches has more than
    `min_object_covered` of its area inside, and if at least one box is kept. In an image without boxes any rectangle is
    accepted. If `max_attempts` find none, image and boxes stay unchanged.

    Draws, for each attempt: width/height, the height, then x and y, until the attempt fails.

    Args:
        min_object_covered: share of a touched box that has to be inside, exclusive.
        aspect_ratio_range: (least, greatest) width/height, drawn uniformly.
        area_range: (least, greatest) share of the image's area, up to half a pixel in each direction; more than 1
            counts as 1.
        min_eject_coverage: a box is kept if more than this share of its area is inside.
        max_attempts: number of rectangles that are tried.

    Raises:
        ValueError: a range is empty or negative.
    """

    def __init__(
        self,
        min_object_covered: float = 0.1,
        aspect_ratio_range: Sequence[float] = (0.75, 1.33),
        area_range: Sequence[float] = (0.05, 1.0),
        min_eject_coverage: float = 0.3,
        max_attempts: int = 50,
    ) -> None:
        self.min_object_covered = min_object_covered
        self.aspect_ratio_range = check_range(aspect_ratio_range, "RandomObjectCrop: aspect_ratio_range")
        self.area_range = check_range(area_range, "RandomObjectCrop: area_range", exclusive=False)
        if not self.area_range[1]:
            raise ValueError(f"RandomObjectCrop: area_range must not be all 0, got {area_range!r}")
        self.min_eject_coverage = min_eject_coverage
        self.max_attempts = max_attempts

    def rectangle(self, height: int, width: int, boxes: Array, rng: Rng) -> tuple[int, int, int, int] | None:
        """Choose the rectangle.

        Args:
            height, width: extents of the image in pixels.
            boxes: (n, 4 + k).
            rng: source of the draws.

        Returns:
            (x, y, width, height), inside the image, or None if none was found.
        """
        pixels = height * width
        least, greatest = self.area_range[0] * pixels, min(1.0, self.area_range[1]) * pixels
        for _ in range(self.max_attempts):
            ratio = rng.uniform(*self.aspect_ratio_range)
            # Heights for which area and width are allowed.
            low = max(1, round(math.sqrt(least / ratio)))
            high = min(height, round(math.sqrt(greatest / ratio)), math.floor((width + 0.5) / ratio))
            if low > high:
                continue
            tall = rng.integers(low, high + 1)
            wide = round(tall * ratio)
            if not (1 <= wide <= width and _about(wide, tall, least, greatest)):
                continue
            box = random_box(height, width, (wide, tall), rng)
            if self._shows_enough(boxes, box):
                return box
        return None

    def _shows_enough(self, boxes: Array, rectangle: tuple[int, int, int, int]) -> bool:
        if not len(boxes):
            return True
        coverages = box_coverages(boxes, rectangle)
        touched = coverages[coverages > 0]
        return bool(
            len(touched)
            and touched.min() > self.min_object_covered
            and touched.max() > self.min_eject_coverage
        )

    def apply_boxes(self, x: Any, boxes: Array, rng: Rng) -> tuple[Any, Array]:
        height, width = image_extents(x, self)
        found = self.rectangle(height, width, boxes, rng)
        if found is None:
            return x, boxes
        left, top, wide, tall = found
        return x[top : top + tall, left : left + wide], crop_boxes(boxes, found, self.min_eject_coverage)


class RandomExpand(BoxTransform):
    """A larger canvas of drawn shape and size with the image at a drawn place, so that objects become smaller.

    The canvas is at least 2 pixels wider and higher than the image; if `max_attempts` find none, the image stays
    unchanged.

    Draws, for each attempt: width/height, the height, then x and y, until the attempt fails.

    Args:
        aspect_ratio_range: (least, greatest) width/height of the canvas, drawn uniformly.
        area_range: (least, greatest) area of the canvas, in areas of the image, at least 1.
        max_attempts: number of canvases that are tried.
        value: of added pixels: one number, or one per channel.

    Raises:
        ValueError: a range is empty, or allows a canvas smaller than the image.
    """

    def __init__(
        self,
        aspect_ratio_range: Sequence[float] = (0.75, 1.33),
        area_range: Sequence[float] = (1.0, 3.0),
        max_attempts: int = 50,
        value: float | Sequence[float] = 128,
    ) -> None:
        self.aspect_ratio_range = check_range(aspect_ratio_range, "RandomExpand: aspect_ratio_range")
        self.area_range = check_range(area_range, "RandomExpand: area_range", 1.0, exclusive=False)
        self.max_attempts = max_attempts
        self.value = value

    def canvas(self, height: int, width: int, rng: Rng) -> tuple[int, int, int, int] | None:
        """Choose the canvas.

        Args:
            height, width: extents of the image in pixels.
            rng: source of the draws.

        Returns:
            (x, y) of the image on it, and its (width, height); None if none was found.
        """
        pixels = height * width
        least, greatest = self.area_range[0] * pixels, self.area_range[1] * pixels
        for _ in range(self.max_attempts):
            ratio = rng.uniform(*self.aspect_ratio_range)
            # Heights for which area and both extents are allowed.
            low = max(
                height + _LEAST_GROWTH,
                math.ceil((width + _LEAST_GROWTH - 0.5) / ratio),
                round(math.sqrt(least / ratio)),
            )
            high = round(math.sqrt(greatest / ratio))
            if low > high:
                continue
            tall = rng.integers(low, high + 1)
            wide = round(tall * ratio)
            if wide < width + _LEAST_GROWTH or not _about(wide, tall, least, greatest):
                continue
            x, y, _, _ = random_box(tall, wide, (width, height), rng)
            return x, y, wide, tall
        return None

    def apply_boxes(self, x: Any, boxes: Array, rng: Rng) -> tuple[Any, Array]:
        height, width = image_extents(x, self)
        found = self.canvas(height, width, rng)
        if found is None:
            return x, boxes
        left, top, wide, tall = found
        image = place_on_canvas(x, height=tall, width=wide, left=left, top=top, value=self.value)
        return image, shift_boxes(boxes, left, top)
