"""Crops, resize, flips, and images on a larger canvas.

A crop chooses a rectangle (`box`) apart from cutting it (`cut`), so that a decoder can decode just that rectangle. The
arithmetic is MXNet's (`mx.image.center_crop`, `random_crop`, `random_size_crop`): a requested rectangle larger than the
image becomes the largest one of its shape, enlarged. Random crops draw their rectangle first, then, for interpolation
"random", the interpolation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from aioloader.foundation.types import Array, ArraySpec
from aioloader.transforms.base import (
    Transform,
    check_image,
    check_probability,
    check_range,
    check_sides,
    check_size,
    result_array,
)
from aioloader.transforms.interpolation import interpolation_code, resize_image, settle

if TYPE_CHECKING:
    from aioloader.rng import Rng

Box: TypeAlias = tuple[int, int, int, int]
"""(x, y, width, height) of a rectangle in pixels, from the upper left corner."""

_TRIES = 10


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


def random_box(height: int, width: int, size: tuple[int, int], rng: Rng) -> Box:
    """Draw the place of a rectangle of `size` (width, height), which fits into the image: x, then y."""
    w, h = size
    x = rng.integers(width - w + 1)
    return x, rng.integers(height - h + 1), w, h


class Crop(Transform):
    """Base of crops: a rectangle of the image, resized to `size`.

    A subclass defines `box`, and `fit` if more than a resize follows. No state is kept from one to the other except in
    the box itself: it may be of a class derived from tuple.

    Args:
        size: side of a square, or (width, height), in pixels.
        interpolation: MXNet's number or a name (see `interpolation_code`).
    """

    def __init__(self, size: int | Sequence[int], interpolation: int | str = 1) -> None:
        name = type(self).__name__
        self.size = check_size(size, name)
        self.interpolation = interpolation_code(interpolation, name)

    def box(self, height: int, width: int, rng: Rng) -> Box:
        """Choose the rectangle.

        Args:
            height, width: extents of the (upright) image in pixels.
            rng: source of the draws.

        Returns:
            (x, y, width, height), inside the image.
        """
        raise NotImplementedError

    def cut(self, x: Array, box: Box, rng: Rng, out: Array | None = None) -> Array:
        """Cut a rectangle and resize it to `size`: the part of `apply` after `box`.

        Args:
            x: (height, width, channels).
            box: (x, y, width, height), inside `x`.
            rng: one draw if the interpolation is "random", else none.
            out: as for `apply`.
        """
        left, top, width, height = box
        return self.fit(x[top : top + height, left : left + width], box, rng, out)

    def fit(self, region: Array, box: Box, rng: Rng, out: Array | None = None) -> Array:
        """Make the result from the rectangle's pixels.

        Args:
            region: (height, width, channels), the pixels inside `box`; from a decoder they may be fewer.
            box: the result of `box`.
            rng: one draw if the interpolation is "random", else none.
            out: as for `apply`.
        """
        return resize_image(region, self.size, settle(self.interpolation, rng), out)

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        image = check_image(x, type(self).__name__)
        return self.cut(image, self.box(image.shape[0], image.shape[1], rng), rng, out)

    def out_spec(self, spec: ArraySpec | None) -> ArraySpec | None:
        if spec is None or len(spec.shape) != 3:
            return None
        return ArraySpec((self.size[1], self.size[0], spec.shape[2]), spec.dtype)


class CenterCrop(Crop):
    """The middle of the image; (height, width, channels) in and out, dtype kept. A view if nothing is resized.

    No draws, except one for interpolation "random".

    Args:
        size: side of a square, or (width, height), in pixels. If the image is smaller, the largest middle of that
            shape is taken and enlarged.
        interpolation: MXNet's number or a name (see `interpolation_code`).
    """

    def box(self, height: int, width: int, rng: Rng) -> Box:
        return center_box(height, width, self.size)


class RandomCrop(Crop):
    """A rectangle at a uniformly drawn place; (height, width, channels) in and out, dtype kept.

    Draws: x, then y.

    Args:
        size: side of a square, or (width, height), in pixels; larger than the (padded) image as for `CenterCrop`.
        pad: pixels added around the image before: one number, or (top, bottom, left, right); None for none.
        pad_value: value of added pixels: one number, or one per channel.
        interpolation: MXNet's number or a name.

    Raises:
        ValueError: `size`, `pad` or `interpolation` is not allowed.
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
        """Choose the rectangle as `Crop.box`; with `pad` its place is relative to the padded image."""
        if self.pad is not None:
            top, bottom, left, right = self.pad
            height += top + bottom
            width += left + right
        return random_box(height, width, scale_down(width, height, self.size), rng)

    def cut(self, x: Array, box: Box, rng: Rng, out: Array | None = None) -> Array:
        if self.pad is None:
            return super().cut(x, box, rng, out)
        rows, columns, channels = x.shape
        left, top, width, height = box
        left -= self.pad[2]
        top -= self.pad[0]
        code = settle(self.interpolation, rng)
        x0, x1 = max(left, 0), min(left + width, columns)
        y0, y1 = max(top, 0), min(top + height, rows)
        if x1 - x0 == width and y1 - y0 == height:
            return resize_image(x[y0:y1, x0:x1], self.size, code, out)
        # Only the rectangle is filled, never the padded image.
        region = result_array(x, (height, width, channels), x.dtype, out)
        region[...] = self.pad_value
        if x0 < x1 and y0 < y1:
            region[y0 - top : y1 - top, x0 - left : x1 - left] = x[y0:y1, x0:x1]
        return resize_image(region, self.size, code, out)


class RandomResizedCrop(Crop):
    """A rectangle of drawn area, shape and place, resized to `size`; (height, width, channels), dtype kept.

    Draws: up to 10 tries of the share of the area, uniform in `scale`, and of width/height, log-uniform in `ratio`; the
    first that fits into the image draws x, then y. If none fits: the middle of the image, as `CenterCrop` takes it.

    Args:
        size: side of a square, or (width, height), in pixels.
        scale: (least, greatest) share of the image's area; one number a means (a, 1.0).
        ratio: (least, greatest) width/height of the rectangle.
        interpolation: MXNet's number or a name.

    Raises:
        ValueError: `size`, `scale`, `ratio` or `interpolation` is not allowed.
    """

    def __init__(
        self,
        size: int | Sequence[int],
        scale: float | Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3 / 4, 4 / 3),
        interpolation: int | str = 1,
    ) -> None:
        super().__init__(size, interpolation)
        share = scale if isinstance(scale, Sequence) else (scale, 1.0)
        self.scale = check_range(share, "RandomResizedCrop: scale")
        self.ratio = check_range(ratio, "RandomResizedCrop: ratio")
        self._logs = (math.log(self.ratio[0]), math.log(self.ratio[1]))

    def box(self, height: int, width: int, rng: Rng) -> Box:
        pixels = height * width
        least, greatest = self.scale
        low, high = self._logs
        for _ in range(_TRIES):
            area = rng.uniform(least, greatest) * pixels
            ratio = math.exp(rng.uniform(low, high))
            w = round(math.sqrt(area * ratio))
            h = round(math.sqrt(area / ratio))
            if 0 < w <= width and 0 < h <= height:
                return random_box(height, width, (w, h), rng)
        return center_box(height, width, self.size)


class CropResize(Transform):
    """A fixed rectangle, resized if `size` is given; dtype kept.

    (height, width, channels) or (n, height, width, channels), in and out. A view if nothing is resized. No draws,
    except one for interpolation "random".

    Args:
        x, y: left and top edge of the rectangle in pixels.
        width, height: its extents; it must be inside the image.
        size: side of a square, or (width, height), in pixels; None to leave the rectangle as it is.
        interpolation: MXNet's number or a name; None for bilinear.

    Raises:
        ValueError: a number is out of its range, or the rectangle, when it is applied, is not inside the image.
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
        self.x, self.y, self.width, self.height = x, y, width, height
        self.size = None if size is None else check_size(size, "CropResize")
        self.interpolation = interpolation_code(1 if interpolation is None else interpolation, "CropResize")

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        image = check_image(x, "CropResize", (3, 4))
        rows, columns = image.shape[-3], image.shape[-2]
        if self.x + self.width > columns or self.y + self.height > rows:
            raise ValueError(
                f"CropResize: the rectangle x={self.x}, y={self.y}, {self.width} x {self.height} is not inside an "
                f"image of width {columns} and height {rows}"
            )
        code = settle(self.interpolation, rng)
        view = image[..., self.y : self.y + self.height, self.x : self.x + self.width, :]
        return view if self.size is None else _resize(view, self.size, code, out)

    def out_spec(self, spec: ArraySpec | None) -> ArraySpec | None:
        if spec is None or len(spec.shape) not in (3, 4):
            return None
        width, height = self.size or (self.width, self.height)
        return ArraySpec((*spec.shape[:-3], height, width, spec.shape[-1]), spec.dtype)


class Resize(Transform):
    """The whole image at another size; dtype kept.

    (height, width, channels) or (n, height, width, channels), in and out. No draws, except one for interpolation
    "random". An image that has the size already is returned unchanged.

    Args:
        size: side of a square, or (width, height), in pixels; with `keep_ratio` an int is the shorter side, and the
            longer one is rounded down.
        keep_ratio: keep height/width; applies only if `size` is an int.
        interpolation: MXNet's number or a name (see `interpolation_code`).
    """

    def __init__(
        self, size: int | Sequence[int], keep_ratio: bool = False, interpolation: int | str = 1
    ) -> None:
        pair = check_size(size, "Resize")
        self.size: int | tuple[int, int] = pair if isinstance(size, Sequence) else pair[0]
        self.keep_ratio = bool(keep_ratio)
        self.interpolation = interpolation_code(interpolation, "Resize")

    def target(self, height: int, width: int) -> tuple[int, int]:
        """Return (width, height) of the result for an image of these extents."""
        if not isinstance(self.size, int):
            return self.size
        if not self.keep_ratio:
            return self.size, self.size
        if height > width:
            return self.size, self.size * height // width
        return self.size * width // height, self.size

    def box(self, height: int, width: int, rng: Rng) -> Box:
        """Return the rectangle that the result is made from, (x, y, width, height): all of it. No draws."""
        return 0, 0, width, height

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        image = check_image(x, "Resize", (3, 4))
        code = settle(self.interpolation, rng)
        if 0 in image.shape[-3:-1]:
            raise ValueError(f"Resize: an image of shape {image.shape} has no pixels to resize")
        return _resize(image, self.target(image.shape[-3], image.shape[-2]), code, out)

    def out_spec(self, spec: ArraySpec | None) -> ArraySpec | None:
        if spec is None or len(spec.shape) not in (3, 4):
            return None
        rows, columns = spec.shape[-3], spec.shape[-2]
        depends = isinstance(self.size, int) and self.keep_ratio
        width: int | None = None
        height: int | None = None
        if not depends or (rows is not None and columns is not None):
            width, height = self.target(rows or 1, columns or 1)
        return ArraySpec((*spec.shape[:-3], height, width, spec.shape[-1]), spec.dtype)


def _resize(x: Array, size: tuple[int, int], code: int, out: Array | None) -> Array:
    """Resize one image, or n of them, (n, height, width, channels); see `resize_image`."""
    if x.ndim == 3:
        return resize_image(x, size, code, out)
    width, height = size
    if x.shape[1:3] == (height, width):
        return x
    result = result_array(x, (x.shape[0], height, width, x.shape[3]), x.dtype, out)
    for image, place in zip(x, result, strict=True):
        resize_image(image, size, code, place)
    return result


def place_on_canvas(
    x: Array, *, height: int, width: int, left: int, top: int, value: Any, out: Array | None = None
) -> Array:
    """Place an image on a larger canvas.

    Args:
        x: (height, width, channels).
        height, width: extents of the canvas.
        left, top: place of the image on it.
        value: of all other pixels: one number, or one per channel. Integer dtypes round and saturate it.
        out: as for `Transform.apply`.

    Raises:
        ValueError: the number of values is neither one nor the number of channels.
    """
    rows, columns, channels = x.shape
    result = result_array(x, (height, width, channels), x.dtype, out)
    pixel = np.asarray(value, np.float64)
    if pixel.size != 1 and pixel.shape != (channels,):
        raise ValueError(
            f"the value of added pixels must be one number or one per channel ({channels}), got {value!r}"
        )
    if x.dtype.kind in "iu":
        limits = np.iinfo(x.dtype)
        pixel = np.clip(np.rint(pixel), limits.min, limits.max)
    result[...] = pixel.ravel().astype(x.dtype)
    result[top : top + rows, left : left + columns] = x
    return result


class _RandomFlip(Transform):
    """Base of flips with probability `p`; one draw for every `p`."""

    in_place = True
    _axis = 0

    def __init__(self, p: float = 0.5) -> None:
        self.p = check_probability(p, type(self).__name__)

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        image = check_image(x, type(self).__name__, (3, 4))
        return self.flip(image, out) if rng.random() < self.p else x

    def flip(self, x: Array, out: Array | None = None) -> Array:
        """Flip, without a draw."""
        result = result_array(x, x.shape, x.dtype, out, in_place=True)
        if x.size == 0:
            return result
        if x.ndim == 4:
            for image, place in zip(x, result, strict=True):
                self.flip_into(image, place)
        else:
            self.flip_into(x, result)
        return result

    def flip_into(self, x: Array, result: Array) -> Array:
        """Flip, without a draw, into an array of the same shape and dtype, which may be `x` itself.

        Args:
            x: (height, width, channels), not empty.
            result: array for the result.
        """
        import cv2

        if x.dtype.char in "BbHhifd" and x.shape[2] <= 512:
            # OpenCV drops the axis of a single channel. Its code for a flip is the axis too.
            source, place = (x[:, :, 0], result[:, :, 0]) if x.shape[2] == 1 else (x, result)
            cv2.flip(source, self._axis, dst=place)
        else:
            # numpy handles the overlap of flipping in place, by a copy.
            result[...] = x[:, ::-1] if self._axis == 1 else x[::-1]
        return result


class RandomFlipLeftRight(_RandomFlip):
    """Flip of left and right with probability `p`; shape and dtype kept.

    (height, width, channels) or (n, height, width, channels), all n alike. One draw.

    Args:
        p: probability, 0 to 1.
    """

    _axis = 1


class RandomFlipTopBottom(_RandomFlip):
    """Flip of top and bottom with probability `p`; shape and dtype kept.

    (height, width, channels) or (n, height, width, channels), all n alike. One draw.

    Args:
        p: probability, 0 to 1.
    """

    _axis = 0
