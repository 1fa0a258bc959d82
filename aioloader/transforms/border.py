"""Images on a larger canvas of one value."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.foundation.types import Array, ArraySpec
from aioloader.transforms.base import Transform, check_image, result_array

if TYPE_CHECKING:
    from aioloader.rng import Rng


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
