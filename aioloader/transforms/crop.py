"""Crops: choose a rectangle, cut it as a view, and resize the view to the wanted size.

The choice is apart from the cut (`box`, `cut`), so that a decoder can decode just that rectangle. The arithmetic is
MXNet's (`mx.image.center_crop`, `random_crop`, `random_size_crop`): a wanted rectangle larger than the image becomes
the largest one of its shape, enlarged. Random crops draw their rectangle first, then, for interpolation "random",
the interpolation.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from aioloader.foundation.types import ArraySpec
from aioloader.transforms.base import Transform, check_image, check_size, result_array
from aioloader.transforms.interpolation import interpolation_code, resize_image, settle

if TYPE_CHECKING:
    from aioloader.foundation.types import Array
    from aioloader.rng import Rng

__all__ = ("CenterCrop", "Crop", "CropResize", "RandomCrop", "RandomResizedCrop")

Box: TypeAlias = tuple[int, int, int, int]
"""(x, y, width, height) of a rectangle in pixels, from the upper left corner."""

_TRIES = 10


def scale_down(width: int, height: int, size: tuple[int, int]) -> tuple[int, int]:
    """`size` (width, height), shrunk to fit into the image with its shape kept; at least one pixel each way."""
    w: float
    h: float
    w, h = size
    if height < h:
        w, h = w * height / h, height
    if width < w:
        w, h = width, h * width / w
    return max(1, int(w)), max(1, int(h))


def center_box(height: int, width: int, size: tuple[int, int]) -> Box:
    """The rectangle of `size` (width, height) in the middle, shrunk to fit; odd rests fall to the right and below."""
    w, h = scale_down(width, height, size)
    return (width - w) // 2, (height - h) // 2, w, h


class Crop(Transform):
    """Base of crops: a rectangle of the image, resized to `size`.

    A subclass defines `box`, and `fit` where more than a resize follows. Nothing is kept between the two but what
    the box itself knows: it may be of a class of its own derived from tuple.

    Args:
        size: side of a square, or (width, height), in pixels.
        interpolation: MXNet's number or a name.
    """

    _fields: ClassVar[tuple[str, ...]] = ("size", "interpolation")

    def __init__(self, size: int | Sequence[int], interpolation: int | str) -> None:
        name = type(self).__name__
        self.size = check_size(size, name)
        self.interpolation = interpolation_code(interpolation, name)

    def box(self, height: int, width: int, rng: Rng) -> Box:
        """Choose the rectangle.

        Args:
            height, width: extents of the (upright) image in pixels.
            rng: where draws are taken from.

        Returns:
            (x, y, width, height), inside the image.
        """
        raise NotImplementedError

    def cut(self, x: Array, box: Box, rng: Rng, out: Array | None = None) -> Array:
        """Cut a rectangle and resize it to `size`: what `apply` does after `box`.

        Args:
            x: (height, width, channels).
            box: (x, y, width, height), inside `x`.
            rng: one draw if the interpolation is "random", else none.
            out: as for `apply`.
        """
        left, top, width, height = box
        return self.fit(x[top : top + height, left : left + width], box, rng, out)

    def fit(self, region: Array, box: Box, rng: Rng, out: Array | None = None) -> Array:
        """Make the result of the rectangle's pixels.

        Args:
            region: (height, width, channels), what `box` encloses; a decoder may give it in a smaller size.
            box: what `box` gave.
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
    """The middle of the image; (height, width, channels) in and out, dtype kept. A view where nothing is resized.

    No draws, but one for interpolation "random".

    Args:
        size: side of a square, or (width, height), in pixels. Where the image is smaller, the largest middle of that
            shape is taken and enlarged.
        interpolation: MXNet's number or a name (see `interpolation_code`).
    """

    def __init__(self, size: int | Sequence[int], interpolation: int | str = 1) -> None:
        super().__init__(size, interpolation)

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

    _fields: ClassVar[tuple[str, ...]] = ("size", "pad", "pad_value", "interpolation")

    def __init__(
        self,
        size: int | Sequence[int],
        pad: int | Sequence[int] | None = None,
        pad_value: float | Sequence[float] = 0,
        interpolation: int | str = 1,
    ) -> None:
        super().__init__(size, interpolation)
        sides: tuple[int, ...]
        try:
            if pad is None:
                sides = (0, 0, 0, 0)
            elif isinstance(pad, Sequence):
                sides = tuple(operator.index(n) for n in pad)
            else:
                sides = (operator.index(pad),) * 4
        except TypeError:
            sides = ()
        if len(sides) != 4 or min(sides) < 0:
            raise ValueError(
                f"RandomCrop: pad must be None, an int >= 0 or four of them (top, bottom, left, right), got {pad!r}"
            )
        self.pad: tuple[int, ...] | None = sides if any(sides) else None
        self.pad_value = pad_value

    def box(self, height: int, width: int, rng: Rng) -> Box:
        """Choose the rectangle; with `pad` its place is that in the padded image (the padding of the left and the top
        side is counted). Otherwise as `CenterCrop.box`.
        """
        if self.pad is not None:
            top, bottom, left, right = self.pad
            height += top + bottom
            width += left + right
        w, h = scale_down(width, height, self.size)
        x = rng.integers(width - w + 1)
        return x, rng.integers(height - h + 1), w, h

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

    Draws: up to 10 tries of area share, uniform in `scale`, and ratio width/height, log-uniform in `ratio`; the first
    that fits into the image draws x, then y. If none fits: the middle of the image, as `CenterCrop` takes it.

    Args:
        size: side of a square, or (width, height), in pixels.
        scale: (least, greatest) share of the image's area; one number a means (a, 1.0).
        ratio: (least, greatest) width/height of the rectangle.
        interpolation: MXNet's number or a name.

    Raises:
        ValueError: `size`, `scale`, `ratio` or `interpolation` is not allowed.
    """

    _fields: ClassVar[tuple[str, ...]] = ("size", "scale", "ratio", "interpolation")

    def __init__(
        self,
        size: int | Sequence[int],
        scale: float | Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3 / 4, 4 / 3),
        interpolation: int | str = 1,
    ) -> None:
        super().__init__(size, interpolation)
        share = _floats(scale if isinstance(scale, Sequence) else (scale, 1.0))
        if len(share) != 2 or not 0.0 < share[0] <= share[1]:
            raise ValueError(
                f"RandomResizedCrop: scale must be (least, greatest) with 0 < least <= greatest, got {scale!r}"
            )
        shape = _floats(ratio)
        if len(shape) != 2 or not 0.0 < shape[0] <= shape[1] < math.inf:
            raise ValueError(
                f"RandomResizedCrop: ratio must be (least, greatest) with 0 < least <= greatest, got {ratio!r}"
            )
        self.scale = (share[0], share[1])
        self.ratio = (shape[0], shape[1])
        self._logs = (math.log(shape[0]), math.log(shape[1]))

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
                x = rng.integers(width - w + 1)
                return x, rng.integers(height - h + 1), w, h
        return center_box(height, width, self.size)


def _floats(values: Any) -> tuple[float, ...]:
    """The numbers as floats; () for what is no row of numbers."""
    try:
        return tuple(map(float, values))
    except (TypeError, ValueError):
        return ()


class CropResize(Transform):
    """A fixed rectangle, resized if `size` is given; dtype kept.

    (height, width, channels) or (n, height, width, channels), in and out. A view where nothing is resized. No draws,
    but one for interpolation "random".

    Args:
        x, y: left and top edge of the rectangle in pixels.
        width, height: its extents; it must lie inside the image.
        size: side of a square, or (width, height), in pixels; None to leave the rectangle as it is.
        interpolation: MXNet's number or a name; None for bilinear.

    Raises:
        ValueError: a number is out of its range, or the rectangle, when it is applied, lies outside of the image.
    """

    _fields: ClassVar[tuple[str, ...]] = ("x", "y", "width", "height", "size", "interpolation")

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
                f"CropResize: the rectangle x={self.x}, y={self.y}, {self.width} x {self.height} does not lie inside "
                f"an image of width {columns} and height {rows}"
            )
        code = settle(self.interpolation, rng)
        view = image[..., self.y : self.y + self.height, self.x : self.x + self.width, :]
        return view if self.size is None else resize_any(view, self.size, code, out)

    def out_spec(self, spec: ArraySpec | None) -> ArraySpec | None:
        if spec is None or len(spec.shape) not in (3, 4):
            return None
        width, height = self.size or (self.width, self.height)
        return ArraySpec((*spec.shape[:-3], height, width, spec.shape[-1]), spec.dtype)


def resize_any(x: Array, size: tuple[int, int], code: int, out: Array | None) -> Array:
    """`resize_image` for one image or for n of them, (n, height, width, channels)."""
    if x.ndim == 3:
        return resize_image(x, size, code, out)
    width, height = size
    if x.shape[1:3] == (height, width):
        return x
    result = result_array(x, (x.shape[0], height, width, x.shape[3]), x.dtype, out)
    for image, place in zip(x, result, strict=True):
        resize_image(image, size, code, place)
    return result
