"""The head of a fused chain: pixels of an opened picture, cropped and resized on the way.

Rule: `decode` draws what has to be known beforehand and makes the pixels, `finish` does the rest; together they are the
transforms that they stand for, draw for draw and bit for bit. A head keeps what it drew between its two calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from aioloader.jpeg import scale_for
from aioloader.transforms.base import is_native
from aioloader.transforms.crop import Crop, CropResize, RandomCrop
from aioloader.transforms.geometry import Resize
from aioloader.transforms.interpolation import AREA, AUTO, RANDOM, resize_image, settle

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.foundation.types import Array
    from aioloader.rng import Rng
    from aioloader.transforms.lazy_image import LazyImage
    from aioloader.transforms.scratch import Scratch

__all__ = ("Head", "head_of")

# Source pixels around the place of a resized one that any interpolation looks at (Lanczos: 4), and two for rounding.
_REACH = 6


class Head:
    """The first steps of a fused chain; one per thread.

    Attributes:
        size: (width, height) of the result; None before `decode` if it depends on the picture, or is the picture's.
    """

    size: tuple[int, int] | None = None

    def decode(self, picture: LazyImage, rng: Rng, out: Array | None) -> Array:
        """Make the pixels that are needed.

        Args:
            picture: of which they are.
            rng: the sample's draws.
            out: where they may be put if nothing is left to be done to them, uint8; None for nowhere.

        Raises:
            DecodeError: as `decode_image`.
        """
        raise NotImplementedError

    def finish(self, pixels: Array, rng: Rng, out: Array | None) -> Array:
        """Do what is left to be done to the pixels; gives a result that may be `pixels`, or in `out`."""
        raise NotImplementedError


class _Whole(Head):
    """Decode the whole picture, straight to where it is wanted."""

    def decode(self, picture: LazyImage, rng: Rng, out: Array | None) -> Array:
        if out is not None and out.shape == (picture.height, picture.width, picture.channels):
            return picture.whole(out)
        return picture.whole()

    def finish(self, pixels: Array, rng: Rng, out: Array | None) -> Array:
        return pixels


class _Cropped(Head):
    """Draw a crop, decode its rectangle only, and resize it."""

    def __init__(self, crop: Crop) -> None:
        self._draw = crop.box
        self._fit = crop.fit
        self._box = (0, 0, 0, 0)
        self.size = self._size = crop.size
        self._code = crop.interpolation
        # What `resize_image` does for colour and a settled interpolation, without its questions.
        import cv2

        self._plain = type(crop).fit is Crop.fit and self._code not in (AREA, AUTO, RANDOM)
        self._shape = (crop.size[1], crop.size[0], 3)
        self._resize = cv2.resize

    def decode(self, picture: LazyImage, rng: Rng, out: Array | None) -> Array:
        self._box = box = self._draw(picture.height, picture.width, rng)
        return picture.region(box, scale_for(box[2:], self._size) if picture.shrinks else 1)

    def finish(self, pixels: Array, rng: Rng, out: Array | None) -> Array:
        if (
            self._plain
            and out is not None
            and out.shape == self._shape
            and pixels.shape[2] == 3
            and pixels.shape != self._shape
        ):
            self._resize(pixels, self._size, out, 0, 0, self._code)
            return out
        return self._fit(pixels, self._box, rng, out)


class _CutOut(Head):
    """A fixed rectangle: decode it only, and resize it if that is wanted."""

    def __init__(self, crop: CropResize) -> None:
        self._crop = crop
        self.size = crop.size
        self._inside = False

    def decode(self, picture: LazyImage, rng: Rng, out: Array | None) -> Array:
        crop = self._crop
        self._inside = crop.x + crop.width <= picture.width and crop.y + crop.height <= picture.height
        if not self._inside:
            return picture.whole()
        size = crop.size if picture.shrinks else None
        shrink = 1 if size is None else scale_for((crop.width, crop.height), size)
        return picture.region((crop.x, crop.y, crop.width, crop.height), shrink)

    def finish(self, pixels: Array, rng: Rng, out: Array | None) -> Array:
        crop = self._crop
        if not self._inside:
            return cast("Array", crop.apply(pixels, rng, out))  # it says what is wrong
        code = settle(crop.interpolation, rng)
        return pixels if crop.size is None else resize_image(pixels, crop.size, code, out)


class _Resized(Head):
    """Resize the whole picture; then cut a crop, if one follows, for which not all of it need be decoded."""

    def __init__(self, resize: Resize, crop: Crop | None, scratch: Scratch) -> None:
        self._resize = resize
        self._crop = crop
        self._scratch = scratch
        self.size = None if crop is None else crop.size
        # What was drawn: (width, height) of the resized picture, the crop in it, the interpolation.
        self._whole = (0, 0)
        self._box = (0, 0, 0, 0)
        self._code = 0

    def decode(self, picture: LazyImage, rng: Rng, out: Array | None) -> Array:
        height, width = picture.height, picture.width
        self._whole = columns, rows = self._resize.target(height, width)
        shrink = scale_for((width, height), self._whole) if picture.shrinks else 1
        self._code = settle(self._resize.interpolation, rng)
        if self._crop is None:
            self.size = self._whole
            return picture.frame((0, 0, width, height), shrink) if shrink > 1 else picture.whole()
        self._box = x, y, w, h = self._crop.box(rows, columns, rng)
        reach = _REACH * shrink
        left, right = _source(x, w, columns, width, reach)
        top, bottom = _source(y, h, rows, height, reach)
        return picture.frame((left, top, right - left, bottom - top), shrink)

    def finish(self, pixels: Array, rng: Rng, out: Array | None) -> Array:
        if self._crop is None:
            return resize_image(pixels, self._whole, self._code, out)
        (width, height), channels = self._whole, pixels.shape[2]
        place = self._scratch.take(height * width * channels).reshape(height, width, channels)
        # All of it: OpenCV has no way to resize a part with the weights that it has in the whole.
        return self._crop.cut(resize_image(pixels, self._whole, self._code, place), self._box, rng, out)


def _source(start: int, length: int, resized: int, extent: int, reach: int) -> tuple[int, int]:
    """From where to where an axis of `extent` pixels is looked at to make a part of its `resized` ones."""
    stop = -(-(start + length) * extent // resized)
    return max(0, start * extent // resized - reach), min(extent, stop + reach)


def head_of(transforms: Sequence[Callable[..., Any]], scratch: Scratch) -> tuple[Head, int]:
    """The head of a chain.

    Args:
        transforms: the chain, taken apart.
        scratch: memory for what stands between decoding and the result.

    Returns:
        (head, number of the transforms that it stands for).
    """
    first, second = [*transforms[:2], None, None][:2]
    kind = type(first)
    if _is_crop(first):
        return _Cropped(cast("Crop", first)), 1
    if kind is CropResize:
        return _CutOut(cast("CropResize", first)), 1
    if kind is Resize:
        resize = cast("Resize", first)
        if _is_crop(second):
            return _Resized(resize, cast("Crop", second), scratch), 2
        return _Resized(resize, None, scratch), 1
    return _Whole(), 0


def _is_crop(fn: Any) -> bool:
    # What is added around an image is no part of the picture, so its rectangle cannot be asked for.
    padded = isinstance(fn, RandomCrop) and fn.pad is not None
    return isinstance(fn, Crop) and is_native(fn) and not padded
