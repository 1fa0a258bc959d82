"""Changes of levels by tables: invert, posterize, solarize, autocontrast, equalize, as torchvision's (version 2).

Images are uint8, (height, width, 1 or 3). A result is exact: the same bytes as torchvision's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.transforms.base import Transform, check_image, check_probability, result_array

if TYPE_CHECKING:
    from aioloader.foundation.types import Array
    from aioloader.rng import Rng

_LEVELS = np.arange(256, dtype=np.uint8)


def _check(x: Any, name: str) -> Array:
    image = check_image(x, name)
    if image.dtype != np.uint8:
        raise TypeError(f"{name} takes uint8, got {image.dtype}")
    return image


def _looked_up(image: Array, table: Array, out: Array | None) -> Array:
    """Return the image with each level replaced by that of a table (256,) or (256, channels)."""
    result = result_array(image, image.shape, image.dtype, out, in_place=True)
    if image.size:
        import cv2

        channels = image.shape[2]
        columns = np.broadcast_to(table.reshape(256, -1), (256, channels))
        cv2.LUT(image, np.ascontiguousarray(columns)[None], dst=result)
    return result


def invert(x: Any, out: Array | None = None) -> Array:
    """Compute ``255 - x``."""
    return _looked_up(_check(x, "invert"), 255 - _LEVELS, out)


def posterize(x: Any, bits: int, out: Array | None = None) -> Array:
    """Keep the highest bits of each value.

    Args:
        x: the image.
        bits: how many, 0 to 8.
        out: as for `Transform.apply`.

    Raises:
        ValueError: `bits` is out of its range.
    """
    image = _check(x, "posterize")
    if not 0 <= bits <= 8:
        raise ValueError(f"posterize: bits must be 0 to 8, got {bits!r}")
    return _looked_up(image, _LEVELS & np.uint8(256 - (1 << (8 - int(bits)))), out)


def solarize(x: Any, threshold: float, out: Array | None = None) -> Array:
    """Invert the values from `threshold` (0 to 255) on."""
    image = _check(x, "solarize")
    # Compared in float32, as torch does.
    limit = np.float32(threshold)
    return _looked_up(image, np.where(limit <= _LEVELS, 255 - _LEVELS, _LEVELS).astype(np.uint8), out)


def autocontrast(x: Any, out: Array | None = None) -> Array:
    """Stretch the levels of each channel from its darkest and brightest value to 0 and 255; one level is kept."""
    image = _check(x, "autocontrast")
    if not image.size:
        return image
    # Whole rows first, which is many times as fast as both axes at once.
    low = image.min(0).min(0).astype(np.float32)
    scale = (image.max(0).max(0) - low) * np.float32(1 / 255)
    flat = scale == 0
    low[flat], scale[flat] = 0, 1
    table = (_LEVELS[:, None].astype(np.float32) - low) / scale
    return _looked_up(image, np.clip(table, 0, 255).astype(np.uint8), out)


def equalize(x: Any, out: Array | None = None) -> Array:
    """Spread the levels of each channel so that all are about equally frequent.

    Rule (Pillow's and torchvision's): with n values below the brightest level and ``step = n // 255``, a level becomes
    ``(values below it + step // 2) // step``; a channel whose step is 0 is kept.
    """
    image = _check(x, "equalize")
    if not image.size:
        return image
    tables = [
        _equalizing(np.bincount(image[:, :, channel].ravel(), minlength=256))
        for channel in range(image.shape[2])
    ]
    return _looked_up(image, np.stack(tables, 1), out)


def _equalizing(counts: Array) -> Array:
    step = int(counts.sum() - counts[np.flatnonzero(counts)[-1]]) // 255
    if not step:
        return _LEVELS
    below = np.concatenate([[0], np.cumsum(counts)[:-1]])
    table: Array = np.clip((below + step // 2) // step, 0, 255).astype(np.uint8)
    return table


class _RandomTone(Transform):
    """Base of the changes that are made with probability `p`. One draw."""

    in_place = True

    def __init__(self, p: float = 0.5) -> None:
        self.p = check_probability(p, type(self).__name__)

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        return self._change(x, out) if rng.random() < self.p else x

    def _change(self, x: Any, out: Array | None) -> Array:
        raise NotImplementedError


class RandomInvert(_RandomTone):
    """`invert` with probability `p`. uint8. One draw.

    Args:
        p: probability, 0 to 1.

    Raises:
        ValueError: `p` is not a probability.
    """

    def _change(self, x: Any, out: Array | None) -> Array:
        return invert(x, out)


class RandomAutocontrast(_RandomTone):
    """`autocontrast` with probability `p`. uint8. One draw.

    Args:
        p: probability, 0 to 1.

    Raises:
        ValueError: `p` is not a probability.
    """

    def _change(self, x: Any, out: Array | None) -> Array:
        return autocontrast(x, out)


class RandomEqualize(_RandomTone):
    """`equalize` with probability `p`. uint8. One draw.

    Args:
        p: probability, 0 to 1.

    Raises:
        ValueError: `p` is not a probability.
    """

    def _change(self, x: Any, out: Array | None) -> Array:
        return equalize(x, out)


class RandomPosterize(_RandomTone):
    """`posterize` with probability `p`. uint8. One draw.

    Args:
        bits: bits that are kept, 0 to 8.
        p: probability, 0 to 1.

    Raises:
        ValueError: `bits` is out of its range, or `p` is not a probability.
    """

    def __init__(self, bits: int, p: float = 0.5) -> None:
        super().__init__(p)
        if not 0 <= bits <= 8:
            raise ValueError(f"RandomPosterize: bits must be 0 to 8, got {bits!r}")
        self.bits = int(bits)

    def _change(self, x: Any, out: Array | None) -> Array:
        return posterize(x, self.bits, out)


class RandomSolarize(_RandomTone):
    """`solarize` with probability `p`. uint8. One draw.

    Args:
        threshold: values from here on are inverted, 0 to 255.
        p: probability, 0 to 1.

    Raises:
        ValueError: `p` is not a probability.
    """

    def __init__(self, threshold: float, p: float = 0.5) -> None:
        super().__init__(p)
        self.threshold = float(threshold)

    def _change(self, x: Any, out: Array | None) -> Array:
        return solarize(x, self.threshold, out)
