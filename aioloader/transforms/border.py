"""An image on a larger canvas of one value."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from aioloader.foundation.types import ArraySpec
from aioloader.transforms.base import Transform, check_image, result_array

if TYPE_CHECKING:
    from aioloader.foundation.types import Array
    from aioloader.rng import Rng

__all__ = ("Border", "place_on_canvas")


def place_on_canvas(
    x: Array, height: int, width: int, left: int, top: int, value: Any, out: Array | None = None
) -> Array:
    """An image on a larger one.

    Args:
        x: (height, width, channels).
        height, width: extents of the result.
        left, top: where the image lies in it.
        value: of all other pixels: one number, or one per channel. Whole dtypes round it and stop at their ends.
        out: as for `Transform.apply`.

    Raises:
        ValueError: there are neither one value nor as many as channels.
    """
    rows, columns, channels = x.shape
    result = result_array(x, (height, width, channels), x.dtype, out)
    result[...] = _pixel(value, x.dtype, channels)
    result[top : top + rows, left : left + columns] = x
    return result


def _pixel(value: Any, dtype: np.dtype[Any], channels: int) -> Array:
    pixel = np.asarray(value, np.float64)
    if pixel.size != 1 and pixel.shape != (channels,):
        raise ValueError(
            f"the value of added pixels must be one number or one per channel ({channels}), got {value!r}"
        )
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        pixel = np.clip(np.rint(pixel), limits.min, limits.max)
    return pixel.ravel().astype(dtype)


class Border(Transform):
    """Pixels of one value added on all four sides; (height, width, channels), dtype kept. No draws.

    Args:
        pixels: how many on each side, at least 0.
        value: their value in every channel; whole dtypes round it and stop at their ends.
    """

    _fields: ClassVar[tuple[str, ...]] = ("pixels", "value")

    def __init__(self, pixels: int, value: float = 0) -> None:
        if operator.index(pixels) < 0:
            raise ValueError(f"Border: pixels must be at least 0, got {pixels!r}")
        self.pixels = pixels
        self.value = value

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        image = check_image(x, "Border")
        if not self.pixels:
            return image
        rows, columns = image.shape[:2]
        n = self.pixels
        return place_on_canvas(image, rows + 2 * n, columns + 2 * n, n, n, self.value, out)

    def out_spec(self, spec: ArraySpec | None) -> ArraySpec | None:
        if spec is None or len(spec.shape) != 3:
            return None
        height, width = (None if extent is None else extent + 2 * self.pixels for extent in spec.shape[:2])
        return ArraySpec((height, width, spec.shape[2]), spec.dtype)
