"""Crops, resize and rotation by the rules of MXNet: pairs of extents are MXNet's, (width, height).

The arithmetic is that of `mx.image.center_crop`, `random_crop` and `random_size_crop`: a requested rectangle larger
than the image becomes the largest one of its shape, enlarged. No filter antialiases.

Rotation is about the image's centre, of float32 images with channels first. Every pixel of the result is read from its
place in the source, between its four neighbours (bilinear); outside the image all values are zero. Extents are kept.
Positive angles are counter-clockwise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.transforms import geometry
from aioloader.transforms.base import Transform, check_sides, check_size, result_array
from aioloader.transforms.geometry import BorderedBox, Box, bordered_box, random_box
from aioloader.transforms.interpolation import interpolation_name_of_mxnet

if TYPE_CHECKING:
    from aioloader.foundation.types import Array, ArraySpec
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


_FLOAT32 = np.dtype(np.float32)


def rotate(
    x: Array, degrees: float, zoom_in: bool = False, zoom_out: bool = False, out: Array | None = None
) -> Array:
    """Rotate an image about its centre.

    Args:
        x: float32 (channels, height, width).
        degrees: angle, counter-clockwise.
        zoom_in: enlarge until no place outside the image is visible.
        zoom_out: shrink until all of the image is visible.
        out: as for `Transform.apply`.

    Raises:
        ValueError: both zooms are requested.
    """
    _check_zoom(zoom_in, zoom_out)
    channels, height, width = x.shape
    result = result_array(x, x.shape, x.dtype, out)
    if not x.size:
        return result
    angle = math.radians(degrees)
    cosine, sine = math.cos(angle), math.sin(angle)
    scale = _zoom(height, width, cosine, sine, out=zoom_out) if zoom_in or zoom_out else 1.0
    middle_x, middle_y = (width - 1) / 2, (height - 1) / 2
    columns = (np.arange(width) - middle_x) * scale
    rows = ((np.arange(height) - middle_y) * scale)[:, None]
    # Beyond one pixel from the edge all neighbours are zero, so places farther out are moved there.
    source_x = np.clip(columns * cosine - rows * sine + middle_x, -1, width)
    source_y = np.clip(columns * sine + rows * cosine + middle_y, -1, height)
    left, top = np.floor(source_x), np.floor(source_y)
    share_x, share_y = (source_x - left).astype(x.dtype), (source_y - top).astype(x.dtype)
    padded = np.zeros((channels, height + 3, width + 3), x.dtype)
    padded[:, 1:-2, 1:-2] = x
    stride = width + 3
    places = (top.astype(np.intp) + 1) * stride + left.astype(np.intp) + 1
    for plane, place in zip(padded.reshape(channels, -1), result, strict=True):
        upper, lower = plane[places], plane[places + stride]
        upper += (plane[places + 1] - upper) * share_x
        lower += (plane[places + stride + 1] - lower) * share_x
        place[...] = upper + (lower - upper) * share_y
    return result


def _zoom(height: int, width: int, cosine: float, sine: float, *, out: bool) -> float:
    """Return the pixels of the image per pixel of the result, zoomed out or in."""
    # Distance of the rotated corners, in half extents.
    reach_x = abs(width * cosine) + abs(height * sine)
    reach_y = abs(height * cosine) + abs(width * sine)
    if out:
        return max(reach_x / width, reach_y / height)
    return min(width / reach_x, height / reach_y)


def _check_zoom(zoom_in: bool, zoom_out: bool) -> None:
    if zoom_in and zoom_out:
        raise ValueError("`zoom_in` and `zoom_out` cannot be both True")


class _Rotation(Transform):
    def __init__(self, zoom_in: bool, zoom_out: bool) -> None:
        _check_zoom(zoom_in, zoom_out)
        self.zoom_in = bool(zoom_in)
        self.zoom_out = bool(zoom_out)

    def _check(self, x: Any) -> Array:
        if not isinstance(x, np.ndarray) or x.dtype != _FLOAT32:
            raise TypeError("This transformation only supports float32. Consider calling it after ToTensor")
        if x.ndim not in (3, 4):
            raise ValueError(
                f"{type(self).__name__} takes (channels, height, width), with n in front or not, got shape {x.shape}"
            )
        return x

    def _rotate(self, image: Array, angles: Sequence[float], out: Array | None) -> Array:
        if image.ndim == 3:
            return rotate(image, angles[0], self.zoom_in, self.zoom_out, out)
        result = result_array(image, image.shape, image.dtype, out)
        for one, angle, place in zip(image, angles, result, strict=True):
            rotate(one, angle, self.zoom_in, self.zoom_out, place)
        return result

    def out_spec(self, spec: ArraySpec | None) -> ArraySpec | None:
        return spec if spec is not None and spec.dtype == _FLOAT32 else None


class Rotate(_Rotation):
    """Rotation by a given angle; float32 (channels, height, width) or (n, channels, height, width), shape kept.

    No draws. Pixels from outside the image are zero. Use it after `ToTensor`.

    Args:
        rotation_degrees: angle, counter-clockwise.
        zoom_in: enlarge until no place outside the image is visible.
        zoom_out: shrink until all of the image is visible.

    Raises:
        ValueError: both zooms are requested.
    """

    def __init__(self, rotation_degrees: float, zoom_in: bool = False, zoom_out: bool = False) -> None:
        super().__init__(zoom_in, zoom_out)
        self.rotation_degrees = float(rotation_degrees)

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        image = self._check(x)
        return self._rotate(image, [self.rotation_degrees] * len(image), out)


class RandomRotation(_Rotation):
    """Rotation by a drawn angle; float32 (channels, height, width) or (n, channels, height, width), shape kept.

    Draws: one for the decision to rotate, then, if it does, one for the angle (of n images: one for each). Pixels from
    outside the image are zero. Use it after `ToTensor`.

    Args:
        angle_limits: (least, greatest) angle in degrees, counter-clockwise; drawn uniformly.
        zoom_in, zoom_out: see `Rotate`.
        rotate_with_proba: probability of a rotation, 0 to 1.

    Raises:
        ValueError: an argument is not allowed.
    """

    def __init__(
        self,
        angle_limits: Sequence[float],
        zoom_in: bool = False,
        zoom_out: bool = False,
        rotate_with_proba: float = 1.0,
    ) -> None:
        super().__init__(zoom_in, zoom_out)
        try:
            limits = tuple(map(float, angle_limits))
        except (TypeError, ValueError):
            limits = ()
        if len(limits) != 2 or not -math.inf < limits[0] < limits[1] < math.inf:
            raise ValueError(f"`angle_limits` must be an ordered tuple, in degrees, got {angle_limits!r}")
        if not 0.0 <= rotate_with_proba <= 1.0:
            raise ValueError(
                f"Probability of rotating the image should be between 0 and 1, got {rotate_with_proba!r}"
            )
        self.angle_limits = (limits[0], limits[1])
        self.rotate_with_proba = float(rotate_with_proba)

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        image = self._check(x)
        if rng.random() >= self.rotate_with_proba:
            return x
        count = 1 if image.ndim == 3 else len(image)
        return self._rotate(image, [rng.uniform(*self.angle_limits) for _ in range(count)], out)
