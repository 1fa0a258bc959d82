"""Random colour transforms: draw an amount, then do what `color` says. Images (height, width, 3) RGB, uint8 or float32;
shape and dtype kept. Amounts are drawn before the image is looked at, so the number of draws never depends on it.
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
    from aioloader.foundation.types import Array, ArraySpec
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
    """A factor in [max(0, 1 - amount), 1 + amount), or for hue a turn in [-amount, amount)."""
    if what == "hue":
        return rng.uniform(-amount, amount)
    return rng.uniform(max(0.0, 1.0 - amount), 1.0 + amount)


class _Colour(Transform):
    in_place = True

    def out_spec(self, spec: ArraySpec | None) -> ArraySpec | None:
        return spec


class _RandomAdjust(_Colour):
    _what = ""

    def _set(self, amount: float) -> None:
        setattr(self, self._what, _check_amount(amount, type(self).__name__, self._what))

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        amount = _draw(self._what, getattr(self, self._what), rng)
        return _ADJUST[self._what](x, amount, out)


class RandomBrightness(_RandomAdjust):
    """Multiply by a factor. One draw.

    Args:
        brightness: the factor is uniform in [max(0, 1 - brightness), 1 + brightness).
    """

    _fields: ClassVar[tuple[str, ...]] = ("brightness",)
    _what = "brightness"

    def __init__(self, brightness: float) -> None:
        self._set(brightness)


class RandomContrast(_RandomAdjust):
    """Stretch by a factor around the image's mean luma. One draw.

    Args:
        contrast: the factor is uniform in [max(0, 1 - contrast), 1 + contrast).
    """

    _fields: ClassVar[tuple[str, ...]] = ("contrast",)
    _what = "contrast"

    def __init__(self, contrast: float) -> None:
        self._set(contrast)


class RandomSaturation(_RandomAdjust):
    """Stretch every pixel by a factor around its own luma. One draw.

    Args:
        saturation: the factor is uniform in [max(0, 1 - saturation), 1 + saturation).
    """

    _fields: ClassVar[tuple[str, ...]] = ("saturation",)
    _what = "saturation"

    def __init__(self, saturation: float) -> None:
        self._set(saturation)


class RandomHue(_RandomAdjust):
    """Turn the hue. One draw.

    Args:
        hue: the turn is uniform in [-hue, hue) of the colour circle; 0.5 reaches every hue.
    """

    _fields: ClassVar[tuple[str, ...]] = ("hue",)
    _what = "hue"

    def __init__(self, hue: float) -> None:
        self._set(hue)


class RandomColorJitter(_Colour):
    """Brightness, contrast, saturation and hue, each by a drawn amount, in a drawn order; those of 0 are left out.

    Draws: with k amounts above 0, k - 1 for the order, then one for each in that order.

    Args:
        brightness, contrast, saturation, hue: as for `RandomBrightness`, `RandomContrast`, `RandomSaturation` and
            `RandomHue`. All 0: the image is returned as it is.

    Raises:
        ValueError: an amount is negative, or not finite.
    """

    _fields: ClassVar[tuple[str, ...]] = ("brightness", "contrast", "saturation", "hue")

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
        order = [what for what in self._fields if getattr(self, what) > 0.0]
        rng.shuffle(order)
        drawn = [(what, _draw(what, getattr(self, what), rng)) for what in order]
        result = image
        for what, amount in drawn:
            # From the second change on the memory is ours, and is changed in place.
            result = _ADJUST[what](result, amount, out if result is image else result)
        return result


class RandomLighting(_Colour):
    """Add ImageNet's principal colours with drawn weights (Krizhevsky et al., 2012). Three draws of the normal.

    On the scale 0 to 255, for uint8 and float32 alike.

    Args:
        alpha: standard deviation of the weights; 0.1 in the paper.

    Raises:
        ValueError: `alpha` is negative, or not finite.
    """

    _fields: ClassVar[tuple[str, ...]] = ("alpha",)

    def __init__(self, alpha: float) -> None:
        self.alpha = _check_amount(alpha, type(self).__name__, "alpha")

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        weights = np.array([rng.normal(0.0, self.alpha) for _ in range(3)])
        return adjust_lighting(x, weights, out)


class RandomGray(_Colour):
    """Replace the colours by their luma with probability `p`; 3 channels stay. One draw.

    Args:
        p: probability, 0 to 1.

    Raises:
        ValueError: `p` is no probability.
    """

    _fields: ClassVar[tuple[str, ...]] = ("p",)

    def __init__(self, p: float = 0.5) -> None:
        self.p = check_probability(p, type(self).__name__)

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        return to_gray(x, out) if rng.random() < self.p else x
