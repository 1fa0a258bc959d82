"""Crops and resize by the rules of MXNet, for `aioloader.mxnet`: pairs of extents are MXNet's, (width, height).

The arithmetic is that of `mx.image.center_crop`, `random_crop` and `random_size_crop`: a requested rectangle larger
than the image becomes the largest one of its shape, enlarged. No filter antialiases.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.transforms import geometry
from aioloader.transforms.base import check_sides, check_size
from aioloader.transforms.geometry import BorderedBox, Box, bordered_box, random_box
from aioloader.transforms.interpolation import interpolation_name_of_mxnet

if TYPE_CHECKING:
    from aioloader.foundation.types import Array
    from aioloader.rng import Rng

_ORDER = "(width, height)"


def scale_down(width: int, height: int, size: tuple[int, int]) -> tuple[int, int]:
    """Shrink `size` (width, height) to fit into the image, with its shape kept; both are at least one pixel."""
    w: float
    h: float
    w, h = size
    if height < h:
        w, h = w * height / h, height
    if width < w:
        w, h = width, h * width / w
    return max(1, int(w)), max(1, int(h))


def center_box(height: int, width: int, size: tuple[int, int]) -> Box:
    """Return the rectangle of `size` (width, height) in the middle, shrunk to fit; odd rests are right and below."""
    w, h = scale_down(width, height, size)
    return (width - w) // 2, (height - h) // 2, w, h


class GluonCrop(geometry.Crop):
    """Base of MXNet's crops.

    Args:
        size: side of a square, or (width, height), in pixels. The attribute is (height, width), as in every crop.
        interpolation: MXNet's number or a name (see `interpolation_name_of_mxnet`).
    """

    def __init__(self, size: int | Sequence[int], interpolation: int | str = 1) -> None:
        width, height = check_size(size, type(self).__name__, _ORDER)
        named = interpolation_name_of_mxnet(interpolation, type(self).__name__)
        super().__init__((height, width), named, None)

    def _arguments(self) -> dict[str, Any]:
        return {**vars(self), "size": self.size[::-1]}


class CenterCrop(GluonCrop):
    """The middle of the image; if it is smaller, the largest middle of that shape, enlarged. No draws.

    Args:
        size, interpolation: see `GluonCrop`.
    """

    def box(self, height: int, width: int, rng: Rng) -> Box:
        return center_box(height, width, (self.size[1], self.size[0]))


class RandomCrop(GluonCrop):
    """A rectangle at a uniformly drawn place. Draws: x, then y.

    Args:
        size, interpolation: see `GluonCrop`; a size larger than the (padded) image as for `CenterCrop`.
        pad: pixels added around the image before: one number, or (top, bottom, left, right); None for none.
        pad_value: value of added pixels: one number, or one per channel.
    """

    def __init__(
        self,
        size: int | Sequence[int],
        pad: int | Sequence[int] | None = None,
        pad_value: float | Sequence[float] = 0,
        interpolation: int | str = 1,
    ) -> None:
        super().__init__(size, interpolation)
        sides = check_sides(0 if pad is None else pad, "RandomCrop")
        self.pad = sides if any(sides) else None
        self.pad_value = pad_value

    def box(self, height: int, width: int, rng: Rng) -> Box:
        top, bottom, left, right = sides = self.pad or (0, 0, 0, 0)
        padded = top + height + bottom, left + width + right
        w, h = scale_down(padded[1], padded[0], (self.size[1], self.size[0]))
        window = random_box(*padded, (h, w), rng)
        return window if self.pad is None else bordered_box(height, width, sides, window, self.pad_value)

    def fit(self, region: Array, box: Box, rng: Rng, out: Array | None = None) -> Array:
        if isinstance(box, BorderedBox) and region.dtype.kind in "iu":
            # MXNet's arrays cut off the fraction, as numpy does.
            box.fill = tuple(np.trunc(np.atleast_1d(self.pad_value)).tolist())
        return super().fit(region, box, rng, out)


class RandomResizedCrop(GluonCrop, geometry.RandomResizedCrop):
    """A rectangle of drawn area, shape and place; if none fits, the middle as of `CenterCrop`. Draws: as there.

    Args:
        size, interpolation: see `GluonCrop`.
        scale: (least, greatest) share of the image's area; one number a means (a, 1.0).
        ratio: (least, greatest) width/height of the rectangle.
    """

    def __init__(
        self,
        size: int | Sequence[int],
        scale: float | Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3 / 4, 4 / 3),
        interpolation: int | str = 1,
    ) -> None:
        width, height = check_size(size, "RandomResizedCrop", _ORDER)
        share = scale if isinstance(scale, Sequence) else (scale, 1.0)
        named = interpolation_name_of_mxnet(interpolation, "RandomResizedCrop")
        geometry.RandomResizedCrop.__init__(self, (height, width), share, ratio, named, None)

    def fallback(self, height: int, width: int) -> Box:
        return center_box(height, width, (self.size[1], self.size[0]))


class CropResize(geometry.CropResize):
    """A fixed rectangle, resized if `size` is given.

    Args:
        x, y: left and upper edge of the rectangle in pixels.
        width, height: its extents.
        size: side of a square, or (width, height); None: no resizing.
        interpolation: MXNet's number or a name; None for bilinear.
    """

    def __init__(
        self,
        x: int,
        y: int,
        width: int,
        height: int,
        size: int | Sequence[int] | None = None,
        interpolation: int | str | None = None,
    ) -> None:
        if x < 0 or y < 0 or width < 1 or height < 1:
            raise ValueError(
                "CropResize: x and y must be >= 0, width and height >= 1, "
                f"got x={x!r}, y={y!r}, width={width!r}, height={height!r}"
            )
        pair = None if size is None else check_size(size, "CropResize", _ORDER)[::-1]
        named = interpolation_name_of_mxnet(1 if interpolation is None else interpolation, "CropResize")
        super().__init__(y, x, height, width, pair, named, None)

    def _arguments(self) -> dict[str, Any]:
        size = None if self.size is None else self.size[::-1]
        return {**vars(self), "x": self.left, "y": self.top, "size": size}


class Resize(geometry.Resize):
    """The whole image at another size.

    Args:
        size: side of a square, or (width, height), in pixels; with `keep_ratio` an int is the shorter side, and the
            longer one is rounded down.
        keep_ratio: keep height/width; applies only if `size` is an int.
        interpolation: MXNet's number or a name.
    """

    def __init__(
        self, size: int | Sequence[int], keep_ratio: bool = False, interpolation: int | str = 1
    ) -> None:
        width, height = check_size(size, "Resize", _ORDER)
        self._asked = (width, height) if isinstance(size, Sequence) else width
        self.keep_ratio = bool(keep_ratio)
        one = isinstance(self._asked, int) and self.keep_ratio
        named = interpolation_name_of_mxnet(interpolation, "Resize")
        super().__init__(width if one else (height, width), named, None, None)

    def target(self, height: int, width: int) -> tuple[int, int]:
        if isinstance(self.size, int):
            # A side of no pixels is an error of the image, not one pixel.
            side = self.size
            return (side * height // width, side) if height > width else (side, side * width // height)
        return super().target(height, width)

    def _arguments(self) -> dict[str, Any]:
        return {**vars(self), "size": self._asked}
