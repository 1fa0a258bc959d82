"""AutoAugment: pairs of operations that were found by search on a data set, with torchvision's tables.

Policies of augmentation: RandAugment and TrivialAugmentWide, with torchvision's operations and magnitudes.

Each draws operations and magnitudes, and applies them one after the other. Images are uint8, (height, width, 3) RGB.

AugMix: an image mixed with the results of several chains of drawn operations, as torchvision's.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from aioloader.transforms import functional
from aioloader.transforms.base import Transform, check_image, result_array
from aioloader.transforms.blur import adjust_sharpness
from aioloader.transforms.color import (
    adjust_brightness,
    adjust_contrast,
    adjust_saturation,
    autocontrast,
    equalize,
    invert,
    posterize,
    solarize,
)
from aioloader.transforms.projective import is_bilinear

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioloader.foundation.types import Array
    from aioloader.rng import Rng


Magnitudes: TypeAlias = Callable[[int, int, int], Sequence[float]]
"""Returns the magnitudes of an operation for (number of bins, height, width)."""

_COLOURS = ("Brightness", "Color", "Contrast", "Sharpness")
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


def _bits(most: int, lost: int, bins: int, height: int, width: int) -> list[float]:
    found: list[float] = (most - np.round(np.arange(bins) / ((bins - 1) / lost))).tolist()
    return found


Space: TypeAlias = "Mapping[str, tuple[Magnitudes | None, bool]]"
"""Name of each operation, its magnitudes (None: it has none), and whether they may be negative."""


def _space(
    shear: float, across: Magnitudes, down: Magnitudes, angle: float, factor: float, lost_bits: int
) -> Space:
    return {
        "Identity": (None, False),
        "ShearX": (_up_to(shear), True),
        "ShearY": (_up_to(shear), True),
        "TranslateX": (across, True),
        "TranslateY": (down, True),
        "Rotate": (_up_to(angle), True),
        **dict.fromkeys(_COLOURS, (_up_to(factor), True)),
        "Posterize": (partial(_bits, 8, lost_bits), False),
        "Solarize": (lambda bins, height, width: evenly(1.0, 0.0, bins), False),
        "AutoContrast": (None, False),
        "Equalize": (None, False),
    }


RAND_AUGMENT = _space(
    0.3,
    lambda bins, height, width: evenly(0.0, 150.0 / 331.0 * width, bins),
    lambda bins, height, width: evenly(0.0, 150.0 / 331.0 * height, bins),
    30.0,
    0.9,
    4,
)
_TRIVIAL_AUGMENT = _space(0.99, _up_to(32.0), _up_to(32.0), 135.0, 0.99, 6)


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


_Operation: TypeAlias = tuple[str, float, int | None]

_BINS = 10


class AutoAugmentPolicy(enum.Enum):
    """Data set that the pairs of `AutoAugment` were found on; the names and values are torchvision's."""

    IMAGENET = "imagenet"
    CIFAR10 = "cifar10"
    SVHN = "svhn"


# Pairs of (operation, probability, number of its magnitude out of ten; None: it has none).
_IMAGENET: tuple[tuple[_Operation, _Operation], ...] = (
    (("Posterize", 0.4, 8), ("Rotate", 0.6, 9)),
    (("Solarize", 0.6, 5), ("AutoContrast", 0.6, None)),
    (("Equalize", 0.8, None), ("Equalize", 0.6, None)),
    (("Posterize", 0.6, 7), ("Posterize", 0.6, 6)),
    (("Equalize", 0.4, None), ("Solarize", 0.2, 4)),
    (("Equalize", 0.4, None), ("Rotate", 0.8, 8)),
    (("Solarize", 0.6, 3), ("Equalize", 0.6, None)),
    (("Posterize", 0.8, 5), ("Equalize", 1.0, None)),
    (("Rotate", 0.2, 3), ("Solarize", 0.6, 8)),
    (("Equalize", 0.6, None), ("Posterize", 0.4, 6)),
    (("Rotate", 0.8, 8), ("Color", 0.4, 0)),
    (("Rotate", 0.4, 9), ("Equalize", 0.6, None)),
    (("Equalize", 0.0, None), ("Equalize", 0.8, None)),
    (("Invert", 0.6, None), ("Equalize", 1.0, None)),
    (("Color", 0.6, 4), ("Contrast", 1.0, 8)),
    (("Rotate", 0.8, 8), ("Color", 1.0, 2)),
    (("Color", 0.8, 8), ("Solarize", 0.8, 7)),
    (("Sharpness", 0.4, 7), ("Invert", 0.6, None)),
    (("ShearX", 0.6, 5), ("Equalize", 1.0, None)),
    (("Color", 0.4, 0), ("Equalize", 0.6, None)),
    (("Equalize", 0.4, None), ("Solarize", 0.2, 4)),
    (("Solarize", 0.6, 5), ("AutoContrast", 0.6, None)),
    (("Invert", 0.6, None), ("Equalize", 1.0, None)),
    (("Color", 0.6, 4), ("Contrast", 1.0, 8)),
    (("Equalize", 0.8, None), ("Equalize", 0.6, None)),
)
_CIFAR10: tuple[tuple[_Operation, _Operation], ...] = (
    (("Invert", 0.1, None), ("Contrast", 0.2, 6)),
    (("Rotate", 0.7, 2), ("TranslateX", 0.3, 9)),
    (("Sharpness", 0.8, 1), ("Sharpness", 0.9, 3)),
    (("ShearY", 0.5, 8), ("TranslateY", 0.7, 9)),
    (("AutoContrast", 0.5, None), ("Equalize", 0.9, None)),
    (("ShearY", 0.2, 7), ("Posterize", 0.3, 7)),
    (("Color", 0.4, 3), ("Brightness", 0.6, 7)),
    (("Sharpness", 0.3, 9), ("Brightness", 0.7, 9)),
    (("Equalize", 0.6, None), ("Equalize", 0.5, None)),
    (("Contrast", 0.6, 7), ("Sharpness", 0.6, 5)),
    (("Color", 0.7, 7), ("TranslateX", 0.5, 8)),
    (("Equalize", 0.3, None), ("AutoContrast", 0.4, None)),
    (("TranslateY", 0.4, 3), ("Sharpness", 0.2, 6)),
    (("Brightness", 0.9, 6), ("Color", 0.2, 8)),
    (("Solarize", 0.5, 2), ("Invert", 0.0, None)),
    (("Equalize", 0.2, None), ("AutoContrast", 0.6, None)),
    (("Equalize", 0.2, None), ("Equalize", 0.6, None)),
    (("Color", 0.9, 9), ("Equalize", 0.6, None)),
    (("AutoContrast", 0.8, None), ("Solarize", 0.2, 8)),
    (("Brightness", 0.1, 3), ("Color", 0.7, 0)),
    (("Solarize", 0.4, 5), ("AutoContrast", 0.9, None)),
    (("TranslateY", 0.9, 9), ("TranslateY", 0.7, 9)),
    (("AutoContrast", 0.9, None), ("Solarize", 0.8, 3)),
    (("Equalize", 0.8, None), ("Invert", 0.1, None)),
    (("TranslateY", 0.7, 9), ("AutoContrast", 0.9, None)),
)
_SVHN: tuple[tuple[_Operation, _Operation], ...] = (
    (("ShearX", 0.9, 4), ("Invert", 0.2, None)),
    (("ShearY", 0.9, 8), ("Invert", 0.7, None)),
    (("Equalize", 0.6, None), ("Solarize", 0.6, 6)),
    (("Invert", 0.9, None), ("Equalize", 0.6, None)),
    (("Equalize", 0.6, None), ("Rotate", 0.9, 3)),
    (("ShearX", 0.9, 4), ("AutoContrast", 0.8, None)),
    (("ShearY", 0.9, 8), ("Invert", 0.4, None)),
    (("ShearY", 0.9, 5), ("Solarize", 0.2, 6)),
    (("Invert", 0.9, None), ("AutoContrast", 0.8, None)),
    (("Equalize", 0.6, None), ("Rotate", 0.9, 3)),
    (("ShearX", 0.9, 4), ("Solarize", 0.3, 3)),
    (("ShearY", 0.8, 8), ("Invert", 0.7, None)),
    (("Equalize", 0.9, None), ("TranslateY", 0.6, 6)),
    (("Invert", 0.9, None), ("Equalize", 0.6, None)),
    (("Contrast", 0.3, 3), ("Rotate", 0.8, 4)),
    (("Invert", 0.8, None), ("TranslateY", 0.0, 2)),
    (("ShearY", 0.7, 6), ("Solarize", 0.4, 8)),
    (("Invert", 0.6, None), ("Rotate", 0.8, 4)),
    (("ShearY", 0.3, 7), ("TranslateX", 0.9, 3)),
    (("ShearX", 0.1, 6), ("Invert", 0.6, None)),
    (("Solarize", 0.7, 2), ("TranslateY", 0.6, 7)),
    (("ShearY", 0.8, 4), ("Invert", 0.8, None)),
    (("ShearX", 0.7, 9), ("TranslateY", 0.8, 3)),
    (("ShearY", 0.8, 5), ("AutoContrast", 0.7, None)),
    (("ShearX", 0.7, 2), ("Invert", 0.1, None)),
)
POLICIES: Mapping[AutoAugmentPolicy, tuple[tuple[_Operation, _Operation], ...]] = {
    AutoAugmentPolicy.IMAGENET: _IMAGENET,
    AutoAugmentPolicy.CIFAR10: _CIFAR10,
    AutoAugmentPolicy.SVHN: _SVHN,
}
"""The pairs of operations of each policy."""

_SPACE: Space = {
    **{name: entry for name, entry in RAND_AUGMENT.items() if name != "Identity"},
    "Invert": (None, False),
}


class AutoAugment(Policy):
    """A drawn pair of operations, each applied with its own probability (Cubuk et al., 2018), as torchvision's.

    Draws: one for the pair; then two for each of its operations: whether it is applied, and the sign of its magnitude.

    Args:
        policy: `AutoAugmentPolicy` or its value, or torchvision's constant of the same name.
        interpolation: "nearest" or "bilinear", of operations that move pixels; or torchvision's constant.
        fill: value of pixels from outside of the image, one or one for each channel; None: 0.

    Raises:
        ValueError: there is no such policy, or the interpolation is not one of these.
    """

    _space = _SPACE

    def __init__(
        self,
        policy: AutoAugmentPolicy | str = AutoAugmentPolicy.IMAGENET,
        interpolation: Any = "nearest",
        fill: Any = None,
    ) -> None:
        super().__init__(_BINS, interpolation, fill)
        value: Any = policy.value if isinstance(policy, enum.Enum) else policy
        try:
            self.policy = AutoAugmentPolicy(value)
        except ValueError:
            names = ", ".join(repr(each.value) for each in AutoAugmentPolicy)
            raise ValueError(f"AutoAugment: policy must be one of {names}, got {policy!r}") from None

    def _arguments(self) -> dict[str, Any]:
        return {**vars(self), "policy": self.policy.value}

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        image = self._check(x)
        for operation, probability, bin_number in rng.choice(POLICIES[self.policy]):
            applied, sign = rng.random() < probability, rng.random()
            if applied:
                image = self._apply_one(image, operation, bin_number or 0, sign)
        return image


_SEVERITY_BINS = 10
_MOST_DRAWN = 3


_ALL: Space = {
    **{name: entry for name, entry in RAND_AUGMENT.items() if name not in ("Identity", *_COLOURS)},
    "TranslateX": (lambda bins, height, width: evenly(0.0, width / 3.0, bins), True),
    "TranslateY": (lambda bins, height, width: evenly(0.0, height / 3.0, bins), True),
    "Posterize": (partial(_bits, 4, 4), False),
    **{name: RAND_AUGMENT[name] for name in _COLOURS},
}
_PARTIAL: Space = {name: entry for name, entry in _ALL.items() if name not in _COLOURS}


class AugMix(Policy):
    """The image mixed with the results of chains of drawn operations (Hendrycks et al., 2020), as torchvision's.

    Values are summed up in float32, and fractions are cut off.

    Draws: the weights, of two Dirichlet distributions (see `aioloader.rng.Rng.dirichlet`): of the image and of all
    chains together, and of each chain among them; then for each chain its length if that is drawn, and for each
    operation three: which one, the number of its magnitude, and its sign.

    Args:
        severity: the magnitude of each operation is one of the first `severity` of ten, drawn; 1 to 10.
        mixture_width: number of chains.
        chain_depth: operations of each chain; 0 or less: 1 to 3, drawn.
        alpha: parameter of the distributions of the weights, above 0.
        all_ops: also change brightness, colour, contrast and sharpness.
        interpolation: "nearest" or "bilinear", of operations that move pixels; or torchvision's constant.
        fill: value of pixels from outside of the image, one or one for each channel; None: 0.

    Raises:
        ValueError: a number is out of its range, or the interpolation is not one of these.
    """

    def __init__(
        self,
        severity: int = 3,
        mixture_width: int = 3,
        chain_depth: int = -1,
        alpha: float = 1.0,
        all_ops: bool = True,
        interpolation: Any = "bilinear",
        fill: Any = None,
    ) -> None:
        super().__init__(_SEVERITY_BINS, interpolation, fill)
        if not 1 <= severity <= _SEVERITY_BINS:
            raise ValueError(f"AugMix: severity must be 1 to {_SEVERITY_BINS}, got {severity!r}")
        if mixture_width < 1:
            raise ValueError(f"AugMix: mixture_width must be at least 1, got {mixture_width!r}")
        if not alpha > 0:
            raise ValueError(f"AugMix: alpha must be above 0, got {alpha!r}")
        self.severity = int(severity)
        self.mixture_width = int(mixture_width)
        self.chain_depth = int(chain_depth)
        self.alpha = float(alpha)
        self.all_ops = bool(all_ops)

    @property
    def _space(self) -> Space:  # type: ignore[override]
        return _ALL if self.all_ops else _PARTIAL

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        image = self._check(x)
        own, together = rng.dirichlet((self.alpha, self.alpha))
        shares = rng.dirichlet((self.alpha,) * self.mixture_width)
        names = tuple(self._space)
        made = []
        for _ in range(self.mixture_width):
            depth = self.chain_depth if self.chain_depth > 0 else 1 + rng.integers(_MOST_DRAWN)
            changed = image
            for _ in range(depth):
                operation, bin_number, sign = rng.choice(names), rng.integers(self.severity), rng.random()
                changed = self._apply_one(changed, operation, bin_number, sign)
            made.append(changed)
        return mixed(image, own, made, [together * share for share in shares], out)


def mixed(
    image: Array, own: float, others: Sequence[Array], weights: Sequence[float], out: Array | None
) -> Array:
    """Return a weighted sum of images, fractions cut off.

    Args:
        image: uint8 (height, width, 3).
        own: its weight.
        others, weights: more images of its shape, and their weights; all weights together are at most 1.
        out: as for `Transform.apply`.
    """
    result = result_array(image, image.shape, image.dtype, out)
    if not image.size:
        return result
    total = np.multiply(image, np.float32(own), dtype=np.float32)
    part = np.empty_like(total)
    for other, weight in zip(others, weights, strict=True):
        np.multiply(other, np.float32(weight), out=part, dtype=np.float32)
        np.add(total, part, out=total)
    np.copyto(result, total, casting="unsafe")
    return result
