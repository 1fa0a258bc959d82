"""Flips, resize, pad, crops and expansion of an image with boxes.

The draws of transforms that have a counterpart for images are those of the counterpart. A crop clips boxes to its
rectangle and leaves out those of which no more than `min_coverage` remains.

`RandomObjectCrop` and `RandomExpand` depend on the boxes, of SSD's kind (Liu et al., 2016), with MXNet's rules of
visibility. Their rectangle is drawn apart from the cut (`rectangle`, `canvas`), by any object with the methods
`uniform` and `integers` of `Rng`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from aioloader.transforms import geometry
from aioloader.transforms import padding as padding_transforms
from aioloader.transforms.base import check_range
from aioloader.transforms.boxes.base import (
    BoxTransform,
    Moved,
    box_coverages,
    crop_boxes,
    image_extents,
    shift_boxes,
)
from aioloader.transforms.geometry import random_box
from aioloader.transforms.padding import place_on_canvas

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aioloader.foundation.types import Array
    from aioloader.rng import Rng

# A narrower border would hardly change the image.
_LEAST_GROWTH = 2


class RandomHorizontalFlip(Moved):
    """Flip of left and right with probability `p`. One draw.

    Args:
        p: probability, 0 to 1.
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(geometry.RandomHorizontalFlip(p))


class RandomVerticalFlip(Moved):
    """Flip of top and bottom with probability `p`. One draw.

    Args:
        p: probability, 0 to 1.
    """

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(geometry.RandomVerticalFlip(p))


class Resize(Moved):
    """The whole image at another size. No draws, except one for interpolation "random".

    Args:
        size, interpolation, max_size, antialias: as for the transform of images.
    """

    def __init__(
        self,
        size: int | Sequence[int] | None,
        interpolation: int | str = "bilinear",
        max_size: int | None = None,
        antialias: bool | None = True,
    ) -> None:
        super().__init__(geometry.Resize(size, interpolation, max_size, antialias))


class CenterCrop(Moved):
    """The middle of the image; a smaller one is padded with zeros. No draws.

    Args:
        size: side of a square, or (height, width), in pixels.
        min_coverage: a box is kept if more than this share of its area is in the crop.
    """

    def __init__(self, size: int | Sequence[int], min_coverage: float = 0.0) -> None:
        super().__init__(geometry.CenterCrop(size), min_coverage)


class RandomCrop(Moved):
    """A rectangle at a uniformly drawn place. Draws: x, then y.

    Args:
        size, padding, pad_if_needed, fill, padding_mode: as for the transform of images.
        min_coverage: a box is kept if more than this share of its area is in the crop.
    """

    def __init__(
        self,
        size: int | Sequence[int],
        padding: int | Sequence[int] | None = None,
        pad_if_needed: bool = False,
        fill: float | Sequence[float] = 0,
        padding_mode: str = "constant",
        min_coverage: float = 0.0,
    ) -> None:
        super().__init__(geometry.RandomCrop(size, padding, pad_if_needed, fill, padding_mode), min_coverage)


class RandomResizedCrop(Moved):
    """A rectangle of drawn area, shape and place, resized to `size`. Draws: see the transform for images.

    Args:
        size, scale, ratio, interpolation, antialias: as for the transform of images.
        min_coverage: a box is kept if more than this share of its area is in the crop.
    """

    def __init__(
        self,
        size: int | Sequence[int],
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3 / 4, 4 / 3),
        interpolation: int | str = "bilinear",
        antialias: bool | None = True,
        min_coverage: float = 0.0,
    ) -> None:
        super().__init__(
            geometry.RandomResizedCrop(size, scale, ratio, interpolation, antialias), min_coverage
        )


class Pad(Moved):
    """A border around the image. No draws.

    Args:
        padding, fill, padding_mode: as for the transform of images.

    Raises:
        ValueError: an argument is not allowed.
    """

    def __init__(
        self,
        padding: int | Sequence[int],
        fill: float | Sequence[float] = 0,
        padding_mode: str = "constant",
    ) -> None:
        super().__init__(padding_transforms.Pad(padding, fill, padding_mode))


def _about(width: int, height: int, least: float, greatest: float) -> bool:
    """Return True if an area is in a range, with tolerance for extents that are rounded to whole pixels."""
    slack = (width + height + 1) / 2
    return least - slack <= width * height <= greatest + slack


class _RandomShape(BoxTransform):
    """Base of transforms that draw the shape of a rectangle until one is accepted."""

    aspect_ratio_range: tuple[float, float]
    max_attempts: int

    def _shapes(self, rng: Rng, heights: Callable[[float], tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Iterate over up to `max_attempts` drawn shapes, (width, height).

        Args:
            rng: source of the draws: width/height, then the height.
            heights: returns the least and the greatest height for a width/height; an attempt without any is skipped.
        """
        for _ in range(self.max_attempts):
            ratio = rng.uniform(*self.aspect_ratio_range)
            low, high = heights(ratio)
            if low <= high:
                tall = rng.integers(low, high + 1)
                yield round(tall * ratio), tall


class RandomObjectCrop(_RandomShape):
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

        def heights(ratio: float) -> tuple[int, int]:
            # Those for which area and width are allowed.
            low = max(1, round(math.sqrt(least / ratio)))
            return low, min(height, round(math.sqrt(greatest / ratio)), math.floor((width + 0.5) / ratio))

        for wide, tall in self._shapes(rng, heights):
            if 1 <= wide <= width and _about(wide, tall, least, greatest):
                box = random_box(height, width, (tall, wide), rng)
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


class RandomExpand(_RandomShape):
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
        least_width, least_height = width + _LEAST_GROWTH, height + _LEAST_GROWTH

        def heights(ratio: float) -> tuple[int, int]:
            # Those for which area and both extents are allowed.
            low = max(least_height, math.ceil((least_width - 0.5) / ratio), round(math.sqrt(least / ratio)))
            return low, round(math.sqrt(greatest / ratio))

        for wide, tall in self._shapes(rng, heights):
            if wide >= least_width and _about(wide, tall, least, greatest):
                x, y, _, _ = random_box(tall, wide, (height, width), rng)
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
