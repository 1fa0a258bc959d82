"""Policies of augmentation: RandAugment and TrivialAugmentWide, with torchvision's operations and magnitudes.

Each draws operations and magnitudes, and applies them one after the other. Images are uint8, (height, width, 3) RGB.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from aioloader.transforms import functional
from aioloader.transforms.base import Transform, check_image
from aioloader.transforms.blur import adjust_sharpness
from aioloader.transforms.color import adjust_brightness, adjust_contrast, adjust_saturation
from aioloader.transforms.projective import is_bilinear
from aioloader.transforms.tone import autocontrast, equalize, invert, posterize, solarize

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioloader.foundation.types import Array
    from aioloader.rng import Rng

Magnitudes: TypeAlias = Callable[[int, int, int], Sequence[float]]
"""Returns the magnitudes of an operation for (number of bins, height, width)."""

_ROTATIONS = ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate")


def evenly(start: float, stop: float, count: int) -> list[float]:
    """Return float32 numbers at even distances from `start` to `stop`, rounded as torch's.

    A threshold of `solarize` may lie just above or just below a level.
    """
    first, last = np.float32(start), np.float32(stop)
    step = float((last - first) / np.float32(max(1, count - 1)))
    places = np.arange(count, dtype=np.float64)
    # Products are not rounded: torch fuses them with the sums.
    found = np.where(places < count // 2, first + step * places, last - step * places[::-1])
    return found.astype(np.float32).tolist()  # type: ignore[no-any-return]


def _up_to(most: float) -> Magnitudes:
    return lambda bins, height, width: evenly(0.0, most, bins)


def _bits(bins: int, lost: int) -> list[float]:
    return (8 - np.round(np.arange(bins) / ((bins - 1) / lost))).tolist() if bins > 1 else [8.0]


Space: TypeAlias = "Mapping[str, tuple[Magnitudes | None, bool]]"
"""Name of each operation, its magnitudes (None: it has none), and whether they may be negative."""

RAND_AUGMENT: Space = {
    "Identity": (None, False),
    "ShearX": (_up_to(0.3), True),
    "ShearY": (_up_to(0.3), True),
    "TranslateX": (lambda bins, height, width: evenly(0.0, 150.0 / 331.0 * width, bins), True),
    "TranslateY": (lambda bins, height, width: evenly(0.0, 150.0 / 331.0 * height, bins), True),
    "Rotate": (_up_to(30.0), True),
    "Brightness": (_up_to(0.9), True),
    "Color": (_up_to(0.9), True),
    "Contrast": (_up_to(0.9), True),
    "Sharpness": (_up_to(0.9), True),
    "Posterize": (lambda bins, height, width: _bits(bins, 4), False),
    "Solarize": (lambda bins, height, width: evenly(1.0, 0.0, bins), False),
    "AutoContrast": (None, False),
    "Equalize": (None, False),
}
_TRIVIAL_AUGMENT: Space = {
    "Identity": (None, False),
    "ShearX": (_up_to(0.99), True),
    "ShearY": (_up_to(0.99), True),
    "TranslateX": (_up_to(32.0), True),
    "TranslateY": (_up_to(32.0), True),
    "Rotate": (_up_to(135.0), True),
    "Brightness": (_up_to(0.99), True),
    "Color": (_up_to(0.99), True),
    "Contrast": (_up_to(0.99), True),
    "Sharpness": (_up_to(0.99), True),
    "Posterize": (lambda bins, height, width: _bits(bins, 6), False),
    "Solarize": (lambda bins, height, width: evenly(1.0, 0.0, bins), False),
    "AutoContrast": (None, False),
    "Equalize": (None, False),
}


def augment(
    image: Array, operation: str, magnitude: float, *, interpolation: str = "nearest", fill: Any = None
) -> Array:
    """Apply one operation of a policy.

    Args:
        image: uint8 (height, width, 3) RGB.
        operation: "Identity", "ShearX", "ShearY" (magnitude: the tangent), "TranslateX", "TranslateY" (pixels),
            "Rotate" (degrees, against the clock), "Brightness", "Color", "Contrast", "Sharpness" (the change of a
            factor of 1), "Posterize" (bits), "Solarize" (threshold as a share of 255), "AutoContrast", "Equalize" or
            "Invert".
        magnitude: of the operation.
        interpolation: "nearest" or "bilinear", for those that move pixels.
        fill: value of pixels from outside of the image, one or one for each channel.

    Raises:
        ValueError: there is no such operation.
    """
    if operation in _ROTATIONS:
        return _moved(image, operation, magnitude, interpolation, fill)
    factors: dict[str, Callable[..., Array]] = {
        "Brightness": adjust_brightness,
        "Color": partial(adjust_saturation, truncate=True),
        "Contrast": adjust_contrast,
        "Sharpness": adjust_sharpness,
    }
    if operation in factors:
        return factors[operation](image, 1.0 + magnitude)
    if operation == "Posterize":
        return posterize(image, int(magnitude))
    if operation == "Solarize":
        return solarize(image, 255.0 * magnitude)
    plain: dict[str, Callable[..., Array]] = {
        "AutoContrast": autocontrast,
        "Equalize": equalize,
        "Invert": invert,
    }
    if operation in plain:
        return plain[operation](image)
    if operation != "Identity":
        raise ValueError(f"there is no operation {operation!r}")
    return image


def _moved(image: Array, operation: str, magnitude: float, interpolation: str, fill: Any) -> Array:
    if operation == "Rotate":
        return functional.rotate(image, magnitude, interpolation=interpolation, fill=fill)
    translate, shear, center = [0.0, 0.0], [0.0, 0.0], None
    axis = operation.endswith("Y")
    if operation.startswith("Shear"):
        shear[axis] = math.degrees(math.atan(magnitude))
        center = [0.0, 0.0]
    else:
        translate[axis] = float(int(magnitude))
    return functional.affine(
        image, 0.0, translate, 1.0, shear, interpolation=interpolation, fill=fill, center=center
    )


class Policy(Transform):
    """Base of policies: drawn operations of one table.

    Args:
        num_magnitude_bins: magnitudes of each operation.
        interpolation: "nearest" or "bilinear", or torchvision's constants of these names.
        fill: value of pixels from outside of the image.

    Raises:
        ValueError: a number is out of its range, or the interpolation is not one of these.
    """

    _space: Space

    def __init__(self, num_magnitude_bins: int, interpolation: Any, fill: Any) -> None:
        name = type(self).__name__
        if num_magnitude_bins < 2:
            raise ValueError(f"{name}: num_magnitude_bins must be at least 2, got {num_magnitude_bins}")
        self.num_magnitude_bins = int(num_magnitude_bins)
        self.interpolation = "bilinear" if is_bilinear(interpolation, name) else "nearest"
        self.fill = fill

    def out_spec(self, spec: Any) -> Any:
        return spec

    def _check(self, x: Any) -> Array:
        image = check_image(x, type(self).__name__)
        if image.dtype != np.uint8 or image.shape[2] != 3:
            raise TypeError(
                f"{type(self).__name__} takes uint8 (height, width, 3), got {image.dtype} {image.shape}"
            )
        return image

    def _apply_one(self, image: Array, operation: str, bin_number: int, sign: float) -> Array:
        """Apply an operation with one of its magnitudes, negative if it may be and `sign` is below a half."""
        magnitudes, signed = self._space[operation]
        magnitude = 0.0
        if magnitudes is not None:
            magnitude = magnitudes(self.num_magnitude_bins, *image.shape[:2])[bin_number]
        if signed and sign < 0.5:
            magnitude = -magnitude
        return augment(image, operation, magnitude, interpolation=self.interpolation, fill=self.fill)


class RandAugment(Policy):
    """Some drawn operations of one magnitude, one after the other (Cubuk et al., 2019), as torchvision's.

    Draws: two for each operation: which one, and the sign of its magnitude.

    Args:
        num_ops: operations that are applied.
        magnitude: number of the magnitude, 0 up to `num_magnitude_bins` - 1.
        num_magnitude_bins: magnitudes of each operation.
        interpolation: "nearest" or "bilinear", of operations that move pixels.
        fill: value of pixels from outside of the image, one or one for each channel; None: 0.

    Raises:
        ValueError: a number is out of its range, or the interpolation is not one of these.
    """

    _space = RAND_AUGMENT

    def __init__(
        self,
        num_ops: int = 2,
        magnitude: int = 9,
        num_magnitude_bins: int = 31,
        interpolation: Any = "nearest",
        fill: Any = None,
    ) -> None:
        super().__init__(num_magnitude_bins, interpolation, fill)
        if num_ops < 0:
            raise ValueError(f"RandAugment: num_ops must be at least 0, got {num_ops}")
        if not 0 <= magnitude < num_magnitude_bins:
            raise ValueError(
                f"RandAugment: magnitude must be 0 to {num_magnitude_bins - 1}, the last bin, got {magnitude}"
            )
        self.num_ops = int(num_ops)
        self.magnitude = int(magnitude)

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        image = self._check(x)
        for _ in range(self.num_ops):
            operation, sign = rng.choice(tuple(self._space)), rng.random()
            image = self._apply_one(image, operation, self.magnitude, sign)
        return image


class TrivialAugmentWide(Policy):
    """One drawn operation of a drawn magnitude (Müller and Hutter, 2021), with wide magnitudes, as torchvision's.

    Draws: three: the operation, the number of its magnitude, and its sign.

    Args:
        num_magnitude_bins: magnitudes of each operation.
        interpolation: "nearest" or "bilinear", of operations that move pixels.
        fill: value of pixels from outside of the image, one or one for each channel; None: 0.

    Raises:
        ValueError: a number is out of its range, or the interpolation is not one of these.
    """

    _space = _TRIVIAL_AUGMENT

    def __init__(
        self, num_magnitude_bins: int = 31, interpolation: Any = "nearest", fill: Any = None
    ) -> None:
        super().__init__(num_magnitude_bins, interpolation, fill)

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        image = self._check(x)
        operation, bin_number = rng.choice(tuple(self._space)), rng.integers(self.num_magnitude_bins)
        return self._apply_one(image, operation, bin_number, rng.random())
