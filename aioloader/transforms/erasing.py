"""Erasing of a rectangle."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.transforms.base import Transform, check_image, check_probability, check_range, result_array
from aioloader.transforms.padding import Fill, check_fill

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import Array
    from aioloader.rng import Rng

_TRIES = 10
_MOST_CHANNELS = 4


class RandomErasing(Transform):
    """A rectangle of drawn area, shape and place, erased with probability `p`; shape and dtype kept.

    It takes images as decoded, (height, width, channels), and after `ToTensor`, (channels, height, width): the axis of
    the channels is the last one, unless it has more than 4 values.

    Draws: one for the decision; then, if it is applied, up to 10 tries of the share of the area, uniform in `scale`,
    and of height/width, log-uniform in `ratio`; the first that is smaller than the image draws y, then x, then the
    values for "random". If none is, nothing is erased.

    Args:
        p: probability, 0 to 1.
        scale: (least, greatest) share of the image's area.
        ratio: (least, greatest) height/width of the rectangle.
        value: of the erased pixels: one number, or one per channel, in the image's units; or "random": normal numbers
            with mean 0 and standard deviation 1 for every value of floating images, uniform ones for others.

    Raises:
        ValueError: an argument is not allowed, or, when it is applied, the number of values is not that of the
            channels.
    """

    in_place = True

    def __init__(
        self,
        p: float = 0.5,
        scale: Sequence[float] = (0.02, 0.33),
        ratio: Sequence[float] = (0.3, 3.3),
        value: float | Sequence[float] | str = 0.0,
    ) -> None:
        self.p = check_probability(p, "RandomErasing")
        self.scale = check_range(scale, "RandomErasing: scale", exclusive=False)
        if self.scale[1] > 1:
            raise ValueError(f"RandomErasing: scale must be shares of the area, 0 to 1, got {scale!r}")
        self.ratio = check_range(ratio, "RandomErasing: ratio")
        if isinstance(value, str) and value != "random":
            raise ValueError(f"RandomErasing: value must be numbers or 'random', got {value!r}")
        self.value: Fill | str = value if isinstance(value, str) else check_fill(value, "RandomErasing")

    def rectangle(self, height: int, width: int, rng: Rng) -> tuple[int, int, int, int] | None:
        """Draw (top, left, height, width) in pixels; None if no try is smaller than the image."""
        low, high = math.log(self.ratio[0]), math.log(self.ratio[1])
        for _ in range(_TRIES):
            area = height * width * rng.uniform(*self.scale)
            ratio = math.exp(rng.uniform(low, high))
            h, w = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if h < height and w < width:
                return rng.integers(height - h + 1), rng.integers(width - w + 1), h, w
        return None

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        image = check_image(x, "RandomErasing")
        if rng.random() >= self.p:
            return x
        first = channels_first(image)
        height, width = image.shape[1:] if first else image.shape[:2]
        found = self.rectangle(height, width, rng)
        if found is None:
            return x
        top, left, h, w = found
        value: Any = self.value
        if isinstance(value, str):
            value = _noise(image.shape[0 if first else 2], h, w, image.dtype, rng)
            value = value if first else value.transpose(1, 2, 0)
        return erase_rectangle(image, top, left, h, w, value, out)


def channels_first(x: Array) -> bool:
    """Return whether an image is (channels, height, width): the last axis has too many values for channels."""
    return bool(x.shape[2] > _MOST_CHANNELS >= x.shape[0])


def erase_rectangle(
    x: Array, top: int, left: int, height: int, width: int, value: Any, out: Array | None = None
) -> Array:
    """Set the pixels of a rectangle.

    Args:
        x: (height, width, channels) or (channels, height, width), see `channels_first`.
        top, left, height, width: the rectangle in pixels.
        value: one number, one per channel, or an array of the rectangle's shape.
        out: as for `Transform.apply`; may be `x` itself.

    Raises:
        ValueError: the number of values is neither one nor that of the channels.
    """
    first = channels_first(x)
    values = np.asarray(value)
    channels = x.shape[0] if first else x.shape[2]
    if values.ndim == 1:
        if values.size not in (1, channels):
            raise ValueError(
                f"RandomErasing: value must be one number or one per channel ({channels}), got {value!r}"
            )
        if first:
            values = values[:, None, None]
    if x.dtype.kind in "iu" and values.dtype.kind == "f":
        limits = np.iinfo(x.dtype)
        values = np.clip(np.rint(values), limits.min, limits.max)
    result = result_array(x, x.shape, x.dtype, out, in_place=True)
    if result is not x:
        result[...] = x
    if first:
        result[:, top : top + height, left : left + width] = values
    else:
        result[top : top + height, left : left + width] = values
    return result


def _noise(channels: int, height: int, width: int, dtype: np.dtype[Any], rng: Rng) -> Array:
    """Draw values for a rectangle, (channels, height, width).

    They are normal for floating dtypes, uniform from 0 to 255 for others. Two words of the stream are drawn for each
    value, for every dtype.
    """
    words = rng.words(2 * channels * height * width).reshape(channels, height, width, 2)
    if dtype.kind != "f":
        return (words[..., 0] >> np.uint64(56)).astype(dtype)
    unit = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
    normal: Array = np.sqrt(-2 * np.log(1 - unit[..., 0])) * np.cos(2 * np.pi * unit[..., 1])
    return normal.astype(dtype)
