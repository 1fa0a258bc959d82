"""Flips, resize, pad and crops of an image with boxes; their draws are those of the transforms with the same names.

A crop clips boxes to its rectangle and leaves out those of which no more than `min_coverage` remains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from aioloader.transforms import geometry
from aioloader.transforms.base import Transform, check_sides
from aioloader.transforms.border import place_on_canvas
from aioloader.transforms.boxes.base import BoxTransform, image_extents
from aioloader.transforms.boxes.geometry import crop_boxes, flip_boxes, resize_boxes, shift_boxes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import Array
    from aioloader.rng import Rng


class _Flip(BoxTransform):
    """Base of flips with probability `p`; one draw for every `p`."""

    _axis = 0
    _image_flip: ClassVar[type[geometry.RandomFlipLeftRight | geometry.RandomFlipTopBottom]]

    def __init__(self, p: float = 0.5) -> None:
        self._flip = self._image_flip(p)
        self.p = self._flip.p

    def apply_boxes(self, x: Any, boxes: Array, rng: Rng) -> tuple[Any, Array]:
        height, width = image_extents(x, self)
        if rng.random() >= self.p:
            return x, boxes
        return self._flip.flip(x), flip_boxes(boxes, (width, height)[self._axis], self._axis)


class RandomFlipLeftRight(_Flip):
    """Flip of left and right with probability `p`. One draw.

    Args:
        p: probability, 0 to 1.
    """

    _axis = 0
    _image_flip = geometry.RandomFlipLeftRight


class RandomFlipTopBottom(_Flip):
    """Flip of top and bottom with probability `p`. One draw.

    Args:
        p: probability, 0 to 1.
    """

    _axis = 1
    _image_flip = geometry.RandomFlipTopBottom


class Resize(BoxTransform):
    """The whole image at another size. No draws, except one for interpolation "random".

    Args:
        size: side of a square, or (width, height), in pixels; with `keep_ratio` an int is the shorter side.
        keep_ratio: keep height/width; applies only if `size` is an int.
        interpolation: MXNet's number or a name.
    """

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
    """Base of crops: a rectangle that a transform for images draws and cuts."""

    def __init__(self, crop: geometry.Crop, min_coverage: float) -> None:
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

    def _arguments(self) -> dict[str, Any]:
        return {**vars(self.crop), **vars(self)}


class CenterCrop(_Crop):
    """The middle of the image. No draws, except one for interpolation "random".

    Args:
        size: side of a square, or (width, height), in pixels. If the image is smaller, the largest middle of that
            shape is taken and enlarged.
        min_coverage: a box is kept if more than this share of its area is in the crop.
        interpolation: MXNet's number or a name.
    """

    def __init__(
        self, size: int | Sequence[int], min_coverage: float = 0.0, interpolation: int | str = 1
    ) -> None:
        super().__init__(geometry.CenterCrop(size, interpolation), min_coverage)


class RandomCrop(_Crop):
    """A rectangle at a uniformly drawn place. Draws: x, then y.

    Args:
        size: side of a square, or (width, height), in pixels; larger than the image as for `CenterCrop`.
        min_coverage: a box is kept if more than this share of its area is in the crop.
        interpolation: MXNet's number or a name.
    """

    def __init__(
        self, size: int | Sequence[int], min_coverage: float = 0.0, interpolation: int | str = 1
    ) -> None:
        super().__init__(geometry.RandomCrop(size, interpolation=interpolation), min_coverage)


class RandomResizedCrop(_Crop):
    """A rectangle of drawn area, shape and place, resized to `size`. Draws: see the transform for images.

    Args:
        size: side of a square, or (width, height), in pixels.
        scale: (least, greatest) share of the image's area.
        ratio: (least, greatest) width/height of the rectangle.
        min_coverage: a box is kept if more than this share of its area is in the crop.
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
        super().__init__(geometry.RandomResizedCrop(size, scale, ratio, interpolation), min_coverage)


class Pad(BoxTransform):
    """A border around the image. No draws.

    Args:
        pad: pixels that are added: one number, or (top, bottom, left, right).
        value: of added pixels: one number, or one per channel.

    Raises:
        ValueError: `pad` is neither a number of at least 0 nor four of them.
    """

    def __init__(self, pad: int | Sequence[int], value: float | Sequence[float] = 0) -> None:
        self.pad = check_sides(pad, "Pad")
        self.value = value

    def apply_boxes(self, x: Any, boxes: Array, rng: Rng) -> tuple[Any, Array]:
        height, width = image_extents(x, self)
        top, bottom, left, right = self.pad
        height, width = top + height + bottom, left + width + right
        canvas = place_on_canvas(x, height=height, width=width, left=left, top=top, value=self.value)
        return canvas, shift_boxes(boxes, left, top)
