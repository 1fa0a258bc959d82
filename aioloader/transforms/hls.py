"""Random shifts of hue, lightness and saturation, as in MXNet's record iterator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.transforms.base import Transform, check_image, result_array

if TYPE_CHECKING:
    from aioloader.foundation.types import Array
    from aioloader.rng import Rng

_LIMITS = (180, 255, 255)


def shift_hls(x: Array, hue: int, lightness: int, saturation: int, out: Array | None = None) -> Array:
    """Add to hue, lightness and saturation; each saturates at its limits.

    Args:
        x: uint8 (height, width, 3) RGB.
        hue: in steps of 2 degrees, on a scale of 0 to 180 that does not wrap around.
        lightness, saturation: on the scale 0 to 255.
        out: as for `Transform.apply`; may be `x` itself.

    Raises:
        TypeError, ValueError: not a uint8 image of 3 channels.
    """
    image = check_image(x, "shift_hls")
    if image.dtype != np.uint8:
        raise TypeError(f"shift_hls takes uint8, got {image.dtype}")
    if image.shape[2] != 3:
        raise ValueError(f"shift_hls takes an image of 3 channels (RGB), got shape {image.shape}")
    if not (hue or lightness or saturation) or not image.size:
        return image
    import cv2

    result = result_array(image, image.shape, image.dtype, out, in_place=True)
    levels = np.arange(256)[:, None] + np.array([hue, lightness, saturation])
    table = np.clip(levels, 0, _LIMITS).astype(np.uint8)[None]
    colours = cv2.cvtColor(image, cv2.COLOR_RGB2HLS)
    cv2.LUT(colours, table, dst=colours)
    cv2.cvtColor(colours, cv2.COLOR_HLS2RGB, dst=result)
    return result


class RandomHLS(Transform):
    """Shifts of hue, lightness and saturation by drawn amounts; uint8 (height, width, 3) RGB, shape and dtype kept.

    Each amount is a whole number in [-v, v]: ``2 * v * u - v``, rounded towards 0, where u is a uniform number plus
    four times another one, divided by 5. Draws: two for each, in the order hue, saturation, lightness.

    Args:
        hue: greatest shift, in steps of 2 degrees.
        saturation, lightness: greatest shift, on the scale 0 to 255.
    """

    in_place = True

    def __init__(self, hue: int = 0, saturation: int = 0, lightness: int = 0) -> None:
        self.hue, self.saturation, self.lightness = hue, saturation, lightness

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        hue, saturation, lightness = (
            _amount(most, rng) for most in (self.hue, self.saturation, self.lightness)
        )
        return shift_hls(x, hue, lightness, saturation, out)


def _amount(most: int, rng: Rng) -> int:
    first = rng.random()
    return int((first + 4 * rng.random()) / 5 * most * 2 - most)
