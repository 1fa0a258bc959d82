"""Crops, resize and flips, with the names, arguments and arithmetic of torchvision's transforms, version 2.

A crop chooses a rectangle (`box`) apart from cutting it (`cut`), so that a decoder can decode just that rectangle.
Random crops draw their rectangle first, then, for interpolation "random", the interpolation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from aioloader.foundation.native import native
from aioloader.foundation.types import Array, ArraySpec
from aioloader.transforms.base import (
    GeometricTransform,
    Motion,
    check_image,
    check_probability,
    check_range,
    check_size,
    no_motion,
    result_array,
    scaling,
)
from aioloader.transforms.interpolation import CODES, NEAREST, interpolation_name, resize_image, settle
from aioloader.transforms.padding import Fill, Sides, check_fill, check_mode, check_padding, pad_image

if TYPE_CHECKING:
    from aioloader.rng import Rng

Box: TypeAlias = tuple[int, int, int, int]
"""(x, y, width, height) of a rectangle in pixels, from the upper left corner."""

_TRIES = 10
_NO_SIDES = (0, 0, 0, 0)


def random_box(height: int, width: int, size: tuple[int, int], rng: Rng) -> Box:
    """Draw the place of a rectangle of `size` (height, width), which fits into the image: x, then y."""
    h, w = size
    x = rng.integers(width - w + 1)
    return x, rng.integers(height - h + 1), w, h


class BorderedBox(tuple[int, int, int, int]):
    """Rectangle inside the image, to which a border is added before a window of the result is cut.

    Attributes:
        sides: (top, bottom, left, right), pixels that are added.
        window: (x, y, width, height) of the crop in the rectangle with its border.
        fill, mode: see `aioloader.transforms.padding.pad_image`.
    """

    sides: Sides
    window: Box
    fill: Fill
    mode: str

    def cut(self, region: Array, out: Array | None = None) -> Array:
        """Return the crop, made from the pixels of the rectangle."""
        return self.cut_filled(region, self.fill, out)

    def cut_filled(self, region: Array, fill: Fill, out: Array | None = None) -> Array:
        """Return the crop with another value of constant pixels."""
        x, y, width, height = self.window
        whole = pad_image(region, self.sides, fill, self.mode, out)
        return whole[y : y + height, x : x + width]


def bordered_box(
    height: int, width: int, sides: Sides, window: Box, fill: Fill = 0, mode: str = "constant"
) -> Box:
    """Return the rectangle of an image that a window of the padded image needs.

    Args:
        height, width: extents of the image in pixels.
        sides: (top, bottom, left, right), pixels that are added to the image.
        window: (x, y, width, height) in the padded image.
        fill, mode: of the padding.
    """
    top, _, left, _ = sides
    x, y, w, h = window
    x0, x1 = max(x - left, 0), min(x - left + w, width)
    y0, y1 = max(y - top, 0), min(y - top + h, height)
    if x1 - x0 == w and y1 - y0 == h:
        return x0, y0, w, h
    if mode == "constant" and x0 < x1 and y0 < y1:
        # Only the window is filled, never the padded image.
        box = BorderedBox((x0, y0, x1 - x0, y1 - y0))
        before, above = x0 - (x - left), y0 - (y - top)
        box.sides = above, h - (y1 - y0) - above, before, w - (x1 - x0) - before
        box.window = 0, 0, w, h
    else:
        box = BorderedBox((0, 0, width, height))
        box.sides, box.window = sides, window
    box.fill, box.mode = fill, mode
    return box


class Crop(GeometricTransform):
    """Base of crops: a rectangle of the image, resized to `size`.

    A subclass defines `box`, and `fit` if more than a resize follows. No state is kept from one to the other except in
    the box itself: it may be of a class derived from tuple.

    Args:
        size: side of a square, or (height, width), in pixels.
        interpolation: a name, a member of torchvision's or Pillow's, or Pillow's number (see `interpolation_name`).
        antialias: filters grow where the image shrinks. None, in every transform that has this
            argument: all interpolations are exactly OpenCV's.
    """

    _reads = "crop"

    def __init__(
        self,
        size: int | Sequence[int],
        interpolation: int | str = "bilinear",
        antialias: bool | None = True,
    ) -> None:
        name = type(self).__name__
        self.size = check_size(size, name)
        self.interpolation = interpolation_name(interpolation, name, antialias=antialias)
        self.code = CODES[self.interpolation]
        self.antialias = None if antialias is None else bool(antialias)

    def box(self, height: int, width: int, rng: Rng) -> Box:
        """Choose the rectangle.

        Args:
            height, width: extents of the (upright) image in pixels.
            rng: source of the draws.

        Returns:
            (x, y, width, height), inside the image; a `BorderedBox` if a border is added to it.
        """
        raise NotImplementedError

    def draw_crops(
        self, images: list[Any], words: list[list[int]], most: int | None
    ) -> list[tuple[int, int, int, int, int] | None]:
        """Draw the crops of many raw images (RGB) by the compiled part, which takes a tenth of the time.

        Args:
            images: each bytes-like, or None.
            words: the first words of the stream of each image.
            most: most pixels of an image; None for no limit.

        Returns:
            for each image its crop's first byte, height, width, bytes from row to row, and the number of words drawn;
            None if it is another kind of image, if it has more pixels or too few words, and if the crop has the size of
            the result. An empty list without the compiled part, and for crops that it does not draw.
        """
        return []

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
        if isinstance(box, BorderedBox):
            region = box.cut(region, out)
        return resize_image(region, self.size, settle(self.code, rng), out, antialias=self.antialias)

    def motion(self, height: int, width: int, rng: Rng) -> Motion:
        box = self.box(height, width, rng)
        x, y, w, h = box
        if isinstance(box, BorderedBox):
            # Its window begins there, in the image.
            x, y = x - box.sides[2] + box.window[0], y - box.sides[0] + box.window[1]
            w, h = box.window[2:]
        scale_x, scale_y = self.size[1] / w, self.size[0] / h
        return Motion(
            self.size,
            scaling(scale_x, scale_y, -x * scale_x, -y * scale_y),
            lambda image, out: self.cut(image, box, rng, out),
            lambda mask: _cut_mask(mask, box, self.size),
            cuts=True,
        )

    def out_spec(self, spec: ArraySpec | None) -> ArraySpec | None:
        if spec is None or len(spec.shape) != 3:
            return None
        return ArraySpec((*self.size, spec.shape[2]), spec.dtype)


def _cut_mask(mask: Array, box: Box, size: tuple[int, int]) -> Array:
    x, y, w, h = box
    region = mask[y : y + h, x : x + w]
    if isinstance(box, BorderedBox):
        region = box.cut_filled(region, 0)
    return resize_image(region, size, NEAREST, antialias=False)


class CenterCrop(Crop):
    """The middle of the image; (height, width, channels) in and out, dtype kept. A view if the image is large enough.

    An image that is smaller is padded with zeros, odd rests to the right and below. No draws.

    Args:
        size: side of a square, or (height, width), in pixels.
    """

    def __init__(self, size: int | Sequence[int]) -> None:
        super().__init__(size)

    def box(self, height: int, width: int, rng: Rng) -> Box:
        h, w = self.size
        free_h, free_w = max(h - height, 0), max(w - width, 0)
        sides = free_h // 2, (free_h + 1) // 2, free_w // 2, (free_w + 1) // 2
        # `round` takes halves to even numbers; torchvision's rule was published in Python and depends on it.
        x, y = round((width + free_w - w) / 2.0), round((height + free_h - h) / 2.0)
        return bordered_box(height, width, sides, (x, y, w, h))


class RandomCrop(Crop):
    """A rectangle at a uniformly drawn place; (height, width, channels) in and out, dtype kept. Nothing is resized.

    Draws: x, then y.

    Args:
        size: side of a square, or (height, width), in pixels.
        padding: pixels added around the image before: one number, (left and right, top and bottom), or (left, top,
            right, bottom); None for none.
        pad_if_needed: where the (padded) image is smaller than the crop, what is missing is added on either side.
            Otherwise such an image is an error.
        fill: value of added pixels with ``padding_mode="constant"``: one number, or one per channel.
        padding_mode: "constant", "edge" (the last pixel), "reflect" (without the last pixel) or "symmetric" (with it).

    Raises:
        ValueError: an argument is not allowed, or, when it is applied, the image is smaller than the crop.
    """

    def __init__(
        self,
        size: int | Sequence[int],
        padding: int | Sequence[int] | None = None,
        pad_if_needed: bool = False,
        fill: float | Sequence[float] = 0,
        padding_mode: str = "constant",
    ) -> None:
        super().__init__(size)
        self.padding = padding
        self._sides = _NO_SIDES if padding is None else check_padding(padding, "RandomCrop")
        self.pad_if_needed = bool(pad_if_needed)
        self.fill = check_fill(fill, "RandomCrop")
        self.padding_mode = check_mode(padding_mode, "RandomCrop")

    def box(self, height: int, width: int, rng: Rng) -> Box:
        top, bottom, left, right = self._sides
        h, w = self.size
        if self.pad_if_needed:
            more_h = max(h - (top + height + bottom), 0)
            more_w = max(w - (left + width + right), 0)
            top, bottom, left, right = top + more_h, bottom + more_h, left + more_w, right + more_w
        padded_h, padded_w = top + height + bottom, left + width + right
        if padded_h < h or padded_w < w:
            raise ValueError(
                f"RandomCrop: an image of {padded_h} x {padded_w} pixels (height x width, with padding) is smaller "
                f"than the crop of {h} x {w}; pass pad_if_needed=True, or resize it first"
            )
        window = random_box(padded_h, padded_w, (h, w), rng)
        sides = top, bottom, left, right
        if sides == _NO_SIDES:
            return window
        return bordered_box(height, width, sides, window, self.fill, self.padding_mode)


class RandomResizedCrop(Crop):
    """A rectangle of drawn area, shape and place, resized to `size`; (height, width, channels), dtype kept.

    Draws: up to 10 tries of the share of the area, uniform in `scale`, and of width/height, log-uniform in `ratio`; the
    first that fits into the image draws x, then y. If none fits: the largest rectangle in the middle whose shape is
    within `ratio`.

    Args:
        size: side of a square, or (height, width), in pixels.
        scale: (least, greatest) share of the image's area.
        ratio: (least, greatest) width/height of the rectangle.
        interpolation: a name, a member of torchvision's or Pillow's, or Pillow's number (see `interpolation_name`).
        antialias: filters grow where the image shrinks. False: faster; the pixels are those of
            OpenCV's filter, which skips some of the image's.

    Raises:
        ValueError: `size`, `scale`, `ratio` or `interpolation` is not allowed.
    """

    def __init__(
        self,
        size: int | Sequence[int],
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3 / 4, 4 / 3),
        interpolation: int | str = "bilinear",
        antialias: bool | None = True,
    ) -> None:
        super().__init__(size, interpolation, antialias)
        self.scale = check_range(scale, "RandomResizedCrop: scale")
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
                return random_box(height, width, (h, w), rng)
        return self.fallback(height, width)

    def draw_crops(
        self, images: list[Any], words: list[list[int]], most: int | None
    ) -> list[tuple[int, int, int, int, int] | None]:
        if native is None or type(self) is not RandomResizedCrop:
            return []
        limit = (1 << 64) - 1 if most is None else most
        crops: list[tuple[int, int, int, int, int] | None] = native.draw_crops(
            images, words, limit, self.size, self.scale, self._logs, math.exp
        )
        return crops

    def fallback(self, height: int, width: int) -> Box:
        """Return the rectangle that is used if no drawn one fits."""
        narrowest, widest = self.ratio
        w, h = width, height
        if width < narrowest * height:
            h = max(1, round(w / narrowest))
        elif width > widest * height:
            w = max(1, round(h * widest))
        return (width - w) // 2, (height - h) // 2, w, h


class CropResize(GeometricTransform):
    """A fixed rectangle, resized if `size` is given; dtype kept.

    (height, width, channels) or (n, height, width, channels), in and out. A view if nothing is resized. No draws,
    except one for interpolation "random".

    Args:
        top, left: upper and left edge of the rectangle in pixels.
        height, width: its extents; it must be inside the image.
        size: side of a square, or (height, width), in pixels; None to leave the rectangle as it is.
        interpolation: a name, a member of torchvision's or Pillow's, or Pillow's number (see `interpolation_name`).
        antialias: filters grow where the image shrinks.

    Raises:
        ValueError: a number is out of its range, or the rectangle, when it is applied, is not inside the image.
    """

    _reads = "rectangle"

    def __init__(
        self,
        top: int,
        left: int,
        height: int,
        width: int,
        size: int | Sequence[int] | None = None,
        interpolation: int | str = "bilinear",
        antialias: bool | None = True,
    ) -> None:
        if top < 0 or left < 0 or width < 1 or height < 1:
            raise ValueError(
                "CropResize: top and left must be >= 0, height and width >= 1, "
                f"got top={top!r}, left={left!r}, height={height!r}, width={width!r}"
            )
        self.top, self.left, self.height, self.width = top, left, height, width
        self.size = None if size is None else check_size(size, "CropResize")
        self.interpolation = interpolation_name(interpolation, "CropResize", antialias=antialias)
        self.code = CODES[self.interpolation]
        self.antialias = None if antialias is None else bool(antialias)

    def fits(self, height: int, width: int) -> bool:
        """Return whether the rectangle is inside an image of these extents."""
        return self.left + self.width <= width and self.top + self.height <= height

    def fit(self, region: Array, rng: Rng, out: Array | None = None) -> Array:
        """Make the result from the rectangle's pixels; see `Crop.fit`."""
        code = settle(self.code, rng)
        return region if self.size is None else _resize(region, self.size, code, out, self.antialias)

    def motion(self, height: int, width: int, rng: Rng) -> Motion:
        self._check_fit(height, width)
        size = self.size or (self.height, self.width)
        box = self.left, self.top, self.width, self.height
        scale_x, scale_y = size[1] / self.width, size[0] / self.height
        return Motion(
            size,
            scaling(scale_x, scale_y, -self.left * scale_x, -self.top * scale_y),
            lambda image, out: self.apply(image, rng, out),
            lambda mask: _cut_mask(mask, box, size),
            cuts=True,
        )

    def _check_fit(self, height: int, width: int) -> None:
        if not self.fits(height, width):
            raise ValueError(
                f"CropResize: the rectangle x={self.left}, y={self.top}, {self.width} x {self.height} is not inside "
                f"an image of width {width} and height {height}"
            )

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        image = check_image(x, "CropResize", (3, 4))
        self._check_fit(image.shape[-3], image.shape[-2])
        view = image[..., self.top : self.top + self.height, self.left : self.left + self.width, :]
        return self.fit(view, rng, out)

    def out_spec(self, spec: ArraySpec | None) -> ArraySpec | None:
        if spec is None or len(spec.shape) not in (3, 4):
            return None
        height, width = self.size or (self.height, self.width)
        return ArraySpec((*spec.shape[:-3], height, width, spec.shape[-1]), spec.dtype)


class Resize(GeometricTransform):
    """The whole image at another size; dtype kept.

    (height, width, channels) or (n, height, width, channels), in and out. No draws, except one for interpolation
    "random". An image that has the size already is returned unchanged.

    Args:
        size: the shorter side in pixels, the longer one keeps the image's shape and is rounded down; or (height,
            width). None: the longer side has `max_size`.
        interpolation: a name, a member of torchvision's or Pillow's, or Pillow's number (see `interpolation_name`).
        max_size: most pixels of the longer side, where `size` is one number; the shorter side becomes less for it.
        antialias: filters grow where the image shrinks. False: faster; the pixels are those of
            OpenCV's filter, which skips some of the image's.

    Raises:
        ValueError: an argument is not allowed.
    """

    _reads = "resize"

    def __init__(
        self,
        size: int | Sequence[int] | None,
        interpolation: int | str = "bilinear",
        max_size: int | None = None,
        antialias: bool | None = True,
    ) -> None:
        self.size: int | tuple[int, int] | None = None
        if size is not None:
            pair = check_size(size, "Resize")
            self.size = pair if isinstance(size, Sequence) and len(size) == 2 else pair[0]
        self.max_size = None if max_size is None else check_size(max_size, "Resize: max_size")[0]
        if self.size is None and self.max_size is None:
            raise ValueError("Resize: size=None needs max_size, the longer side in pixels")
        if self.max_size is not None and isinstance(self.size, tuple):
            raise ValueError(f"Resize: max_size is for a size of one number, got size={size!r}")
        if self.max_size is not None and isinstance(self.size, int) and self.max_size <= self.size:
            raise ValueError(
                f"Resize: max_size must be greater than size, the shorter side, got size={size!r} and "
                f"max_size={max_size!r}"
            )
        self.interpolation = interpolation_name(interpolation, "Resize", antialias=antialias)
        self.code = CODES[self.interpolation]
        self.antialias = None if antialias is None else bool(antialias)

    @property
    def depends(self) -> bool:
        """Return whether the extents of the result depend on those of the image."""
        return not isinstance(self.size, tuple)

    def target(self, height: int, width: int) -> tuple[int, int]:
        """Return (height, width) of the result for an image of these extents, each at least 1."""
        if isinstance(self.size, tuple):
            return self.size
        short, long = min(height, width), max(height, width)
        most = self.max_size
        if self.size is not None:
            new_short, new_long = self.size, self.size * long // short
            if most is not None and new_long > most:
                new_short, new_long = most * new_short // new_long, most
        else:
            assert most is not None
            new_short, new_long = most * short // long, most
        new_short = max(1, new_short)
        return (new_long, new_short) if width <= height else (new_short, new_long)

    def box(self, height: int, width: int, rng: Rng) -> Box:
        """Return the rectangle that the result is made from, (x, y, width, height): all of it. No draws."""
        return 0, 0, width, height

    def motion(self, height: int, width: int, rng: Rng) -> Motion:
        if not height or not width:
            raise ValueError(f"Resize: an image of {height} x {width} has no pixels to resize")
        size = self.target(height, width)
        return Motion(
            size,
            scaling(size[1] / width, size[0] / height),
            lambda image, out: self.apply(image, rng, out),
            lambda mask: resize_image(mask, size, NEAREST, antialias=False),
        )

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        image = check_image(x, "Resize", (3, 4))
        code = settle(self.code, rng)
        if 0 in image.shape[-3:-1]:
            raise ValueError(f"Resize: an image of shape {image.shape} has no pixels to resize")
        size = self.target(image.shape[-3], image.shape[-2])
        return _resize(image, size, code, out, self.antialias)

    def out_spec(self, spec: ArraySpec | None) -> ArraySpec | None:
        if spec is None or len(spec.shape) not in (3, 4):
            return None
        rows, columns = spec.shape[-3], spec.shape[-2]
        width: int | None = None
        height: int | None = None
        if not self.depends or (rows is not None and columns is not None):
            height, width = self.target(rows or 1, columns or 1)
        return ArraySpec((*spec.shape[:-3], height, width, spec.shape[-1]), spec.dtype)


def _resize(x: Array, size: tuple[int, int], code: int, out: Array | None, antialias: bool | None) -> Array:
    """Resize one image, or n of them, (n, height, width, channels); see `resize_image`."""
    if x.ndim == 3:
        return resize_image(x, size, code, out, antialias=antialias)
    if x.shape[1:3] == size:
        return x
    result = result_array(x, (x.shape[0], *size, x.shape[3]), x.dtype, out)
    for image, place in zip(x, result, strict=True):
        resize_image(image, size, code, place, antialias=antialias)
    return result


class _RandomFlip(GeometricTransform):
    """Base of flips with probability `p`; one draw for every `p`."""

    in_place = True
    axis = 0

    def __init__(self, p: float = 0.5) -> None:
        self.p = check_probability(p, type(self).__name__)

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        image = check_image(x, type(self).__name__, (3, 4))
        return self.flip(image, out) if rng.random() < self.p else x

    def motion(self, height: int, width: int, rng: Rng) -> Motion:
        if rng.random() >= self.p:
            return no_motion(height, width)
        matrix = scaling(-1, 1, width, 0) if self.axis == 1 else scaling(1, -1, 0, height)
        return Motion((height, width), matrix, self.flip, self.flip)

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
            cv2.flip(source, self.axis, dst=place)
        else:
            # numpy handles the overlap of flipping in place, by a copy.
            result[...] = x[:, ::-1] if self.axis == 1 else x[::-1]
        return result


class RandomHorizontalFlip(_RandomFlip):
    """Flip of left and right with probability `p`; shape and dtype kept.

    (height, width, channels) or (n, height, width, channels), all n alike. One draw.

    Args:
        p: probability, 0 to 1.
    """

    axis = 1


class RandomVerticalFlip(_RandomFlip):
    """Flip of top and bottom with probability `p`; shape and dtype kept.

    (height, width, channels) or (n, height, width, channels), all n alike. One draw.

    Args:
        p: probability, 0 to 1.
    """

    axis = 0
