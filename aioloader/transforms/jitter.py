"""Random colour transforms: they draw amounts for the functions of `aioloader.transforms.color`.

Images are (height, width, 3) RGB, uint8 or float32; shape and dtype are kept. Amounts are drawn before the image is
read, so the number of draws never depends on it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from aioloader.transforms.base import Transform, check_image, check_probability
from aioloader.transforms.color import (
    adjust_brightness,
    adjust_contrast,
    adjust_hue,
    adjust_lighting,
    adjust_saturation,
    to_gray,
)

if TYPE_CHECKING:
    from aioloader.foundation.types import Array
    from aioloader.rng import Rng

__all__ = (
    "RandomBrightness",
    "RandomColorJitter",
    "RandomContrast",
    "RandomGray",
    "RandomHue",
    "RandomLighting",
    "RandomSaturation",
)

# In the order of the parameters of `RandomColorJitter`, on which the draws depend.
_ADJUST = {
    "brightness": adjust_brightness,
    "contrast": adjust_contrast,
    "saturation": adjust_saturation,
    "hue": adjust_hue,
}


def _check_amount(value: float, name: str, what: str) -> float:
    if not 0.0 <= value < math.inf:
        raise ValueError(f"{name}: {what} must be a finite number >= 0, got {value!r}")
    return float(value)


def _draw(what: str, amount: float, rng: Rng) -> float:
    """Draw a factor in [max(0, 1 - amount), 1 + amount), or for hue a rotation in [-amount, amount)."""
    if what == "hue":
        return rng.uniform(-amount, amount)
    return rng.uniform(max(0.0, 1.0 - amount), 1.0 + amount)


class _RandomAdjust(Transform):
    in_place = True
    _what: ClassVar[str]

    def __init__(self, amount: float) -> None:
        self._amount = _check_amount(amount, type(self).__name__, self._what)

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        return _ADJUST[self._what](x, _draw(self._what, self._amount, rng), out)


class RandomBrightness(_RandomAdjust):
    """Multiplication of all values by a factor. One draw.

    Args:
        brightness: the factor is uniform in [max(0, 1 - brightness), 1 + brightness).
    """

    _what = "brightness"

    def __init__(self, brightness: float) -> None:
        super().__init__(brightness)
        self.brightness = self._amount


class RandomContrast(_RandomAdjust):
    """Change of the contrast by a factor, around the image's mean luma. One draw.

    Args:
        contrast: the factor is uniform in [max(0, 1 - contrast), 1 + contrast).
    """

    _what = "contrast"

    def __init__(self, contrast: float) -> None:
        super().__init__(contrast)
        self.contrast = self._amount


class RandomSaturation(_RandomAdjust):
    """Change of the saturation by a factor, around every pixel's luma. One draw.

    Args:
        saturation: the factor is uniform in [max(0, 1 - saturation), 1 + saturation).
    """

    _what = "saturation"

    def __init__(self, saturation: float) -> None:
        super().__init__(saturation)
        self.saturation = self._amount


class RandomHue(_RandomAdjust):
    """Rotation of the hue. One draw.

    Args:
        hue: the rotation is uniform in [-hue, hue) of the colour circle; 0.5 reaches every hue.
    """

    _what = "hue"

    def __init__(self, hue: float) -> None:
        super().__init__(hue)
        self.hue = self._amount


class RandomColorJitter(Transform):
    """Changes of brightness, contrast, saturation and hue by drawn amounts, in a drawn order; those of 0 are left out.

    Draws: with k amounts above 0, k - 1 for the order, then one for each in that order.

    Args:
        brightness, contrast, saturation, hue: as for `RandomBrightness`, `RandomContrast`, `RandomSaturation` and
            `RandomHue`. All 0: the image is returned unchanged.

    Raises:
        ValueError: an amount is negative, or not finite.
    """

    in_place = True

    def __init__(
        self, brightness: float = 0.0, contrast: float = 0.0, saturation: float = 0.0, hue: float = 0.0
    ) -> None:
        name = type(self).__name__
        self.brightness = _check_amount(brightness, name, "brightness")
        self.contrast = _check_amount(contrast, name, "contrast")
        self.saturation = _check_amount(saturation, name, "saturation")
        self.hue = _check_amount(hue, name, "hue")

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        image = check_image(x, "RandomColorJitter")
        amounts = vars(self)
        order = [what for what in _ADJUST if amounts[what] > 0.0]
        rng.shuffle(order)
        drawn = [(what, _draw(what, amounts[what], rng)) for what in order]
        result = image
        for what, amount in drawn:
            # From the second change on the memory belongs to this call, and is changed in place.
            result = _ADJUST[what](result, amount, out if result is image else result)
        return result


class RandomLighting(Transform):
    """Addition of ImageNet's principal colours with drawn weights (Krizhevsky et al., 2012). Three normal draws.

    On the scale 0 to 255, for uint8 and float32 alike.

    Args:
        alpha: standard deviation of the weights; 0.1 in the paper.

    Raises:
        ValueError: `alpha` is negative, or not finite.
    """

    in_place = True

    def __init__(self, alpha: float) -> None:
        self.alpha = _check_amount(alpha, type(self).__name__, "alpha")

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        weights = np.array([rng.normal(0.0, self.alpha) for _ in range(3)])
        return adjust_lighting(x, weights, out)


class RandomGray(Transform):
    """Replacement of the colours by their luma with probability `p`; 3 channels are kept. One draw.

    Args:
        p: probability, 0 to 1.

    Raises:
        ValueError: `p` is not a probability.
    """

    in_place = True

    def __init__(self, p: float = 0.5) -> None:
        self.p = check_probability(p, type(self).__name__)

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        return to_gray(x, out) if rng.random() < self.p else x
