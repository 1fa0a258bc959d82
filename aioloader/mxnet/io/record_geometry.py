"""Geometric transforms of MXNet's record iterator: an affine warp, a border, and crops of a window.

They are for `aioloader.mxnet`: pairs of extents are MXNet's, (width, height). Shear, rotation, scale and aspect ratio
are one warp.

Rule of the crops (`ImageRecordIter`): an image lower than the window is enlarged to its height, then, if it is
narrower, to its width, each time with its shape kept and the other side rounded down. The window is in the middle, odd
rests to the right and below, or at a drawn place. The two other crops choose a rectangle that is resized to the window.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.foundation.types import Array, ArraySpec
from aioloader.mxnet.gluon_geometry import GluonCrop
from aioloader.transforms.base import Transform, check_image, check_range, drop_grey_axis, result_array
from aioloader.transforms.geometry import Box, random_box
from aioloader.transforms.interpolation import (
    AREA,
    CODES,
    LINEAR,
    NEAREST,
    interpolation_name_of_mxnet,
    resize_image,
    settle,
    settle_auto,
)
from aioloader.transforms.padding import place_on_canvas

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.rng import Rng

_TRIES = 10
Range = tuple[float, float]

# Fixed point: bits of a pixel in full precision, and of the places within a pixel that are distinguished.
_BITS = 10
_STEP_BITS = 5
# Places in full precision that no image reaches: whole pixels have 16 bits. And the largest that can be summed.
_FAR = 1 << 15 + _BITS
_LARGEST = 1 << 61


class RandomAffine(Transform):
    """The image sheared, rotated and scaled about its centre; uint8 (height, width, channels), dtype kept.

    The extents become `scale` times the image's, rounded down and kept within `extents`; `ratio` stretches the
    content only. Pixels from outside the image have the value `fill`. Draws: shear, angle, scale, ratio, even if a
    range has one value only, then one for interpolation "random".

    Args:
        shear: the shear is uniform in [-shear, shear).
        max_angle: the angle in degrees, counter-clockwise, is a whole number, uniform in [-max_angle, max_angle].
        angles: angles in degrees of which one is drawn instead; empty to use `max_angle`.
        scale: (least, greatest) scale, uniform.
        ratio: (least, greatest) ratio of the scale along y to that along x, uniform.
        extents: (least, greatest) width and height of the result in pixels.
        fill: value of pixels from outside the image, 0 to 255, in every channel.
        interpolation: MXNet's number or a name. Area counts as bilinear, as everywhere in OpenCV's warps.
    """

    def __init__(
        self,
        *,
        shear: float = 0.0,
        max_angle: int = 0,
        angles: Sequence[float] = (),
        scale: Range = (1.0, 1.0),
        ratio: Range = (1.0, 1.0),
        extents: Range = (0.0, math.inf),
        fill: int = 255,
        interpolation: int | str = 1,
    ) -> None:
        if not 0.0 <= shear < math.inf or max_angle < 0:
            raise ValueError(
                f"RandomAffine: shear and max_angle must be >= 0, got shear={shear!r}, max_angle={max_angle!r}"
            )
        self.shear = float(shear)
        self.max_angle = int(max_angle)
        self.angles = tuple(angles)
        self.scale = check_range(scale, "RandomAffine: scale")
        self.ratio = check_range(ratio, "RandomAffine: ratio")
        self.extents = check_range(extents, "RandomAffine: extents", exclusive=False, finite=False)
        self.fill = fill
        self.interpolation = interpolation_name_of_mxnet(interpolation, "RandomAffine")

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        image = check_image(x, "RandomAffine")
        shear = rng.uniform(-self.shear, self.shear)
        angle = rng.choice(self.angles) if self.angles else rng.integers(-self.max_angle, self.max_angle + 1)
        scale, ratio = rng.uniform(*self.scale), rng.uniform(*self.ratio)
        code = settle(CODES[self.interpolation], rng)
        rows, columns, channels = image.shape
        if not image.size:
            raise ValueError(f"RandomAffine: an image of shape {image.shape} has no pixels to rotate")
        width, height = self._extent(scale * columns), self._extent(scale * rows)
        matrix = _matrix(shear, angle, scale, ratio)
        # The centre of the image is mapped to the centre of the result.
        centre = matrix[:, 0] * np.float32(columns) + matrix[:, 1] * np.float32(rows)
        matrix[:, 2] = (np.array([width, height], np.float32) - centre) / 2
        size = int(height), int(width)
        result = result_array(image, (*size, channels), image.dtype, out)
        code = settle_auto(code, size, (rows, columns))
        # OpenCV's warps have no interpolation by areas.
        _warp(image, matrix, LINEAR if code == AREA else code, self.fill, result)
        return result

    def _extent(self, extent: float) -> np.float32:
        least, greatest = self.extents
        return np.float32(max(1.0, least, min(greatest, float(np.float32(extent)))))

    def out_spec(self, spec: ArraySpec | None) -> ArraySpec | None:
        if spec is None or len(spec.shape) != 3:
            return None
        return ArraySpec((None, None, spec.shape[2]), spec.dtype)


def _matrix(shear: float, angle: float, scale: float, ratio: float) -> Array:
    """Compute the (2, 3) matrix without its shift; in single precision, which affects the rounding of pixels."""
    single = np.float32
    cosine, sine = single(math.cos(math.radians(angle))), single(math.sin(math.radians(angle)))
    along_x = single(2) * single(scale) / (single(1) + single(ratio))
    along_y = single(ratio) * along_x
    slant = single(shear)
    return np.array(
        [
            [along_x * cosine - slant * sine * along_y, along_x * sine + slant * cosine * along_y, 0],
            [-sine * along_y, cosine * along_y, 0],
        ],
        np.float32,
    )


def _warp(x: Array, matrix: Array, code: int, fill: int, result: Array) -> None:
    """Read every pixel of the result from its place in the source.

    Places are whole multiples of 1/32 pixel, as in OpenCV's `warpAffine` before version 5: so results are the same
    with every version.
    """
    import cv2

    m = matrix.astype(np.float64)
    inverse = 1 / (m[0, 0] * m[1, 1] - m[0, 1] * m[1, 0])
    along = np.array([m[1, 1], -m[1, 0]]) * inverse
    down = np.array([-m[0, 1], m[0, 0]]) * inverse
    shift = -(along * m[0, 2] + down * m[1, 2])
    rows, columns = result.shape[:2]
    nearest = code == NEAREST
    half = 1 << (_BITS - 1 if nearest else _BITS - _STEP_BITS - 1)
    columns_at = _fixed(along[:, None] * np.arange(columns)) + half
    rows_at = _fixed(down[:, None] * np.arange(rows) + shift[:, None])
    least, most = (rows_at.min(1) + columns_at.min(1)).min(), (rows_at.max(1) + columns_at.max(1)).max()
    if -_FAR <= least <= most < _FAR:
        places = rows_at.astype(np.int32)[:, :, None] + columns_at.astype(np.int32)[:, None]
    else:
        places = np.clip(rows_at[:, :, None] + columns_at[:, None], -_FAR, _FAR - 1).astype(np.int32)
    share = None
    if not nearest:
        places >>= _BITS - _STEP_BITS
        parts = places & (1 << _STEP_BITS) - 1
        share = ((parts[1] << _STEP_BITS) + parts[0]).astype(np.uint16)
    integers = np.empty((rows, columns, 2), np.int16)
    np.right_shift(
        places, _BITS if nearest else _STEP_BITS, out=integers.transpose(2, 0, 1), casting="unsafe"
    )
    cv2.remap(
        drop_grey_axis(x),
        integers,
        share,
        code,
        dst=drop_grey_axis(result),
        borderMode=cv2.BORDER_CONSTANT,
        borderValue=(fill,) * 4,
    )


def _fixed(places: Array) -> Array:
    """Convert places in pixels to fixed point."""
    found: Array = np.clip(np.rint(places * (1 << _BITS)), -_LARGEST, _LARGEST).astype(np.int64)
    return found


class Border(Transform):
    """Pixels of one value added on all four sides; (height, width, channels), dtype kept. No draws.

    Args:
        pixels: number of pixels on each side, at least 0.
        value: their value in every channel; integer dtypes round and saturate it.
    """

    def __init__(self, pixels: int, value: float = 0) -> None:
        if operator.index(pixels) < 0:
            raise ValueError(f"Border: pixels must be at least 0, got {pixels!r}")
        self.pixels = pixels
        self.value = value

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        image = check_image(x, "Border")
        n = self.pixels
        if not n:
            return image
        rows, columns = image.shape[:2]
        return place_on_canvas(
            image, height=rows + 2 * n, width=columns + 2 * n, left=n, top=n, value=self.value, out=out
        )

    def out_spec(self, spec: ArraySpec | None) -> ArraySpec | None:
        if spec is None or len(spec.shape) != 3:
            return None
        height, width = (None if extent is None else extent + 2 * self.pixels for extent in spec.shape[:2])
        return ArraySpec((height, width, spec.shape[2]), spec.dtype)


class _Enlarged(tuple[int, int, int, int]):
    """All of an image that is too small, the sizes that it is enlarged to, and the window's place in the last one.

    Attributes:
        sizes: (height, width) in pixels, one after the other.
        place: (x, y) of the window in the last one.
    """

    sizes: list[tuple[int, int]]
    place: tuple[int, int]


class WindowCrop(GluonCrop):
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
        wanted_height, wanted_width = self.size
        if height >= wanted_height and width >= wanted_width:
            x, y = self.place(width - wanted_width, height - wanted_height, rng)
            return x, y, wanted_width, wanted_height
        enlarged = _Enlarged((0, 0, width, height))
        sizes = []
        if height < wanted_height:
            # In single precision, which affects the rounding of the other side.
            width = int(np.float32(wanted_height) / np.float32(height) * np.float32(width))
            height = wanted_height
            sizes.append((height, width))
        if width < wanted_width:
            height = int(np.float32(wanted_width) / np.float32(width) * np.float32(height))
            width = wanted_width
            sizes.append((height, width))
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
            region = resize_image(region, size, settle(self.code, rng))
        x, y = box.place
        height, width = self.size
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
                return random_box(height, width, (h, w), rng)
        return super().box(height, width, rng)


def _rounded(value: float) -> int:
    # Halves upwards, as in C.
    return math.floor(value + 0.5)
