"""AugMix: an image mixed with the results of several chains of drawn operations, as torchvision's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.transforms.base import result_array
from aioloader.transforms.policies import RAND_AUGMENT, Policy, Space, evenly

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import Array
    from aioloader.rng import Rng

_BINS = 10
_MOST_DRAWN = 3
_COLOURS = ("Brightness", "Color", "Contrast", "Sharpness")


def _posterize(bins: int, height: int, width: int) -> list[float]:
    found: list[float] = (4 - np.round(np.arange(bins) / ((bins - 1) / 4))).tolist()
    return found


_ALL: Space = {
    **{name: entry for name, entry in RAND_AUGMENT.items() if name not in ("Identity", *_COLOURS)},
    "TranslateX": (lambda bins, height, width: evenly(0.0, width / 3.0, bins), True),
    "TranslateY": (lambda bins, height, width: evenly(0.0, height / 3.0, bins), True),
    "Posterize": (_posterize, False),
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
        super().__init__(_BINS, interpolation, fill)
        if not 1 <= severity <= _BINS:
            raise ValueError(f"AugMix: severity must be 1 to {_BINS}, got {severity!r}")
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
