"""AutoAugment: pairs of operations that were found by search on a data set, with torchvision's tables."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, TypeAlias

from aioloader.transforms.policies import RAND_AUGMENT, Policy, Space

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioloader.foundation.types import Array
    from aioloader.rng import Rng

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
