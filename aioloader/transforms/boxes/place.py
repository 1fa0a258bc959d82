"""Flips, resize, pad and crops of an image with boxes; they draw what the transforms of these names for images draw.

A crop clips boxes to its rectangle and leaves out those of which no more than `min_coverage` remains.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from aioloader.transforms import crop, geometry
from aioloader.transforms.border import place_on_canvas
from aioloader.transforms.boxes.base import BoxTransform, image_extents
from aioloader.transforms.boxes.geometry import crop_boxes, flip_boxes, resize_boxes, shift_boxes

if TYPE_CHECKING:
    from aioloader.foundation.types import Array
    from aioloader.rng import Rng
    from aioloader.transforms.base import Transform

__all__ = (
    "CenterCrop",
    "Pad",
    "RandomCrop",
    "RandomFlipLeftRight",
    "RandomFlipTopBottom",
    "RandomResizedCrop",
    "Resize",
)


class _Flip(BoxTransform):
    """Flip with probability `p`; one draw, whatever `p` is."""

    _fields: ClassVar[tuple[str, ...]] = ("p",)
    _axis = 0
    _of: ClassVar[type[Any]]

    def __init__(self, p: float = 0.5) -> None:
        self._flip = self._of(p)
        self.p: float = self._flip.p

    def apply_boxes(self, x: Any, boxes: Array, rng: Rng) -> tuple[Any, Array]:
        height, width = image_extents(x, self)
        if rng.random() >= self.p:
            return x, boxes
        return self._flip.flip(x), flip_boxes(boxes, (width, height)[self._axis], self._axis)


class RandomFlipLeftRight(_Flip):
    """Exchange left and right with probability `p`. One draw.

    Args:
        p: probability, 0 to 1.
    """

    _axis = 0
    _of = geometry.RandomFlipLeftRight


class RandomFlipTopBottom(_Flip):
    """Exchange top and bottom with probability `p`. One draw.

    Args:
        p: probability, 0 to 1.
    """

    _axis = 1
    _of = geometry.RandomFlipTopBottom


class Resize(BoxTransform):
    """The whole image at another size. No draws, but one for interpolation "random".

    Args:
        size: side of a square, or (width, height), in pixels; with `keep_ratio` an int is the shorter side.
        keep_ratio: keep height/width; acts only where `size` is an int.
        interpolation: MXNet's number or a name.
    """

    _fields: ClassVar[tuple[str, ...]] = ("size", "keep_ratio", "interpolation")

    def __init__(
        self, size: int | Sequence[int], keep_ratio: bool = False, interpolation: int | str = 1
    ) -> None:
        self._resize = geometry.Resize(size, keep_ratio, interpolation)
        self.size = self._resize.size
        self.keep_ratio = self._resize.keep_ratio
        self.interpolation = self._resize.interpolation

    def apply_boxes(self, x: Any, boxes: Array, rng: Rng) -> tuple[Any, Array]:
        height, width = image_extents(x, self)
        image = self._resize.apply(x, rng)
        return image, resize_boxes(boxes, (width, height), (image.shape[1], image.shape[0]))


class _Crop(BoxTransform):
    """A rectangle, drawn and cut by a transform for images."""

    _fields: ClassVar[tuple[str, ...]] = ("crop", "min_coverage")

    def __init__(self, crop: Any, min_coverage: float) -> None:
        if not 0.0 <= min_coverage < 1.0:
            raise ValueError(
                f"{type(self).__name__}: min_coverage must be a share, 0 <= min_coverage < 1, got {min_coverage!r}"
            )
        self.crop = crop
        self.min_coverage = float(min_coverage)

    def apply_boxes(self, x: Any, boxes: Array, rng: Rng) -> tuple[Any, Array]:
        height, width = image_extents(x, self)
        rectangle = self.crop.box(height, width, rng)
        image = self.crop.cut(x, rectangle, rng)
        inside = crop_boxes(boxes, rectangle, self.min_coverage)
        return image, resize_boxes(inside, rectangle[2:], (image.shape[1], image.shape[0]))

    def _parts(self) -> Sequence[Transform]:
        return (self.crop,)


class CenterCrop(_Crop):
    """The middle of the image. No draws, but one for interpolation "random".

    Args:
        size: side of a square, or (width, height), in pixels. Where the image is smaller, the largest middle of that
            shape is taken and enlarged.
        min_coverage: a box stays if more than this share of its area is in the crop.
        interpolation: MXNet's number or a name.
    """

    def __init__(
        self, size: int | Sequence[int], min_coverage: float = 0.0, interpolation: int | str = 1
    ) -> None:
        super().__init__(crop.CenterCrop(size, interpolation), min_coverage)


class RandomCrop(_Crop):
    """A rectangle at a uniformly drawn place. Draws: x, then y.

    Args:
        size: side of a square, or (width, height), in pixels; larger than the image as for `CenterCrop`.
        min_coverage: a box stays if more than this share of its area is in the crop.
        interpolation: MXNet's number or a name.
    """

    def __init__(
        self, size: int | Sequence[int], min_coverage: float = 0.0, interpolation: int | str = 1
    ) -> None:
        super().__init__(crop.RandomCrop(size, interpolation=interpolation), min_coverage)


class RandomResizedCrop(_Crop):
    """A rectangle of drawn area, shape and place, resized to `size`. Draws: see the transform for images.

    Args:
        size: side of a square, or (width, height), in pixels.
        scale: (least, greatest) share of the image's area.
        ratio: (least, greatest) width/height of the rectangle.
        min_coverage: a box stays if more than this share of its area is in the crop.
        interpolation: MXNet's number or a name.
    """

    def __init__(
        self,
        size: int | Sequence[int],
        scale: float | Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3 / 4, 4 / 3),
        min_coverage: float = 0.0,
        interpolation: int | str = 1,
    ) -> None:
        super().__init__(crop.RandomResizedCrop(size, scale, ratio, interpolation), min_coverage)


class Pad(BoxTransform):
    """A border around the image. No draws.

    Args:
        pad: pixels that are added: one number, or (top, bottom, left, right).
        value: of added pixels: one number, or one per channel.

    Raises:
        ValueError: `pad` is neither a number of at least 0 nor four of them.
    """

    _fields: ClassVar[tuple[str, ...]] = ("pad", "value")

    def __init__(self, pad: int | Sequence[int], value: float | Sequence[float] = 0) -> None:
        try:
            sides = (
                tuple(operator.index(n) for n in pad)
                if isinstance(pad, Sequence)
                else (operator.index(pad),) * 4
            )
        except TypeError:
            sides = ()
        if len(sides) != 4 or min(sides) < 0:
            raise ValueError(
                f"Pad: pad must be an int >= 0 or four of them (top, bottom, left, right), got {pad!r}"
            )
        self.pad = sides
        self.value = value

    def apply_boxes(self, x: Any, boxes: Array, rng: Rng) -> tuple[Any, Array]:
        height, width = image_extents(x, self)
        top, bottom, left, right = self.pad
        canvas = place_on_canvas(x, top + height + bottom, left + width + right, left, top, self.value)
        return canvas, shift_boxes(boxes, left, top)
