"""A border around an image: of one value, or of the image's own pixels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from aioloader.foundation.types import Array, ArraySpec
from aioloader.transforms.base import (
    GeometricTransform,
    Motion,
    drop_grey_axis,
    result_array,
    scaling,
    whole_numbers,
)

if TYPE_CHECKING:
    from aioloader.rng import Rng

Sides: TypeAlias = tuple[int, int, int, int]
"""(top, bottom, left, right), pixels that are added."""
Fill: TypeAlias = float | Sequence[float]
"""Value of added pixels: one number, or one per channel."""

# The names are torchvision's: what numpy calls them, and OpenCV.
_BORDERS = {"edge": "BORDER_REPLICATE", "reflect": "BORDER_REFLECT_101", "symmetric": "BORDER_REFLECT"}


def check_padding(padding: Any, name: str) -> Sides:
    """Return (top, bottom, left, right) of torchvision's argument.

    Args:
        padding: one number, (left and right, top and bottom), or (left, top, right, bottom), in pixels.
        name: the transform's name, for the error.

    Raises:
        ValueError: it is none of these, or a number is negative.
    """
    sides = () if isinstance(padding, bool) else whole_numbers(padding, 4)
    if len(sides) == 1:
        sides *= 4
    elif len(sides) == 2:
        sides *= 2
    if len(sides) != 4 or min(sides) < 0:
        raise ValueError(
            f"{name}: padding must be an int >= 0, (left and right, top and bottom) or (left, top, right, bottom), "
            f"got {padding!r}"
        )
    left, top, right, bottom = sides
    return top, bottom, left, right


def check_mode(mode: Any, name: str) -> str:
    """Return the name of a way to make a border; raise ValueError for an unknown one."""
    if mode != "constant" and mode not in _BORDERS:
        raise ValueError(
            f"{name}: padding_mode must be 'constant', 'edge', 'reflect' or 'symmetric', got {mode!r}"
        )
    return str(mode)


def check_fill(fill: Any, name: str) -> Fill:
    """Return the value of added pixels, a number or a tuple of one per channel; None is 0.

    Raises:
        ValueError: it is neither.
    """
    if fill is None:
        return 0
    try:
        array = np.asarray(fill, np.float64)
    except (TypeError, ValueError):
        array = np.zeros((0, 0))
    if array.ndim > 1 or not array.size:
        raise ValueError(f"{name}: fill must be one number or one per channel, got {fill!r}")
    return tuple(fill) if array.ndim else fill


def fill_pixel(value: Any, channels: int, dtype: np.dtype[Any]) -> Array:
    """Return the pixel of added places, (1,) or (channels,) in `dtype`; integers are rounded and clamped.

    Raises:
        ValueError: the number of values is neither one nor the number of channels.
    """
    pixel = np.asarray(value, np.float64)
    if pixel.size != 1 and pixel.shape != (channels,):
        raise ValueError(
            f"the value of added pixels must be one number or one per channel ({channels}), got {value!r}"
        )
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        pixel = np.clip(np.rint(pixel), limits.min, limits.max)
    return pixel.ravel().astype(dtype)


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
    result[...] = fill_pixel(value, channels, x.dtype)
    result[top : top + rows, left : left + columns] = x
    return result


def pad_image(
    x: Array, sides: Sides, fill: Fill = 0, mode: str = "constant", out: Array | None = None
) -> Array:
    """Add a border.

    Args:
        x: (height, width, channels).
        sides: (top, bottom, left, right), pixels.
        fill: of "constant": one number, or one per channel. Integer dtypes round and saturate it.
        mode: "constant", "edge" (the last pixel repeated), "reflect" (without the last pixel) or "symmetric" (with it).
        out: as for `Transform.apply`.

    Returns:
        (top + height + bottom, left + width + right, channels); `x` itself if nothing is added.

    Raises:
        ValueError: the number of values of `fill` is not that of the channels, or `x` has no pixels to repeat.
    """
    top, bottom, left, right = sides
    if not any(sides):
        return x
    height, width = top + x.shape[0] + bottom, left + x.shape[1] + right
    if mode == "constant":
        return place_on_canvas(x, height=height, width=width, left=left, top=top, value=fill, out=out)
    if not x.size:
        raise ValueError(f"an image of shape {x.shape} has no pixels to repeat")
    import cv2

    if x.dtype.char in "BbHhifd" and x.shape[2] <= 4:
        made = cv2.copyMakeBorder(drop_grey_axis(x), top, bottom, left, right, getattr(cv2, _BORDERS[mode]))
        return np.asarray(made).reshape(height, width, x.shape[2])
    where = ((top, bottom), (left, right), (0, 0))
    if mode == "edge":
        return np.pad(x, where, mode="edge")
    return np.pad(x, where, mode="reflect" if mode == "reflect" else "symmetric")


class Pad(GeometricTransform):
    """A border around the image; (height, width, channels), dtype kept. No draws.

    Args:
        padding: pixels that are added: one number, (left and right, top and bottom), or (left, top, right, bottom).
        fill: value of added pixels with ``padding_mode="constant"``: one number, or one per channel; integer dtypes
            round and saturate it.
        padding_mode: "constant", "edge" (the last pixel), "reflect" (without the last pixel) or "symmetric" (with it).

    Raises:
        ValueError: an argument is not allowed.
    """

    def __init__(
        self,
        padding: int | Sequence[int],
        fill: float | Sequence[float] = 0,
        padding_mode: str = "constant",
    ) -> None:
        self.sides = check_padding(padding, "Pad")
        self.padding = padding
        self.fill = check_fill(fill, "Pad")
        self.padding_mode = check_mode(padding_mode, "Pad")

    def motion(self, height: int, width: int, rng: Rng) -> Motion:
        top, bottom, left, right = self.sides
        return Motion(
            (top + height + bottom, left + width + right),
            scaling(1, 1, left, top),
            lambda x, out: pad_image(x, self.sides, self.fill, self.padding_mode, out),
            lambda mask: pad_image(mask, self.sides, 0, self.padding_mode),
        )

    def out_spec(self, spec: ArraySpec | None) -> ArraySpec | None:
        if spec is None or len(spec.shape) != 3:
            return None
        top, bottom, left, right = self.sides
        rows, columns, channels = spec.shape
        height = None if rows is None else rows + top + bottom
        width = None if columns is None else columns + left + right
        return ArraySpec((height, width, channels), spec.dtype)
