"""`color_normalize`, and the augmenters that change colours.

Images (height, width, 3), RGB. Whole numbers become float32; results are not clipped to 0..255. Amounts come from
Python's `random`, those of `LightingAug` from `numpy.random`, as in MXNet.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.mxnet.image._arrays import as_float, own
from aioloader.mxnet.image.augmenter import Augmenter, RandomOrderAug
from aioloader.mxnet.ndarray import NDArray, from_numpy

if TYPE_CHECKING:
    from aioloader.foundation.types import Array

_LUMA = np.array([0.299, 0.587, 0.114], np.float32)
# RGB to YIQ and back, in MXNet's figures.
_TO_YIQ = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]])
_FROM_YIQ = np.array([[1.0, 0.956, 0.621], [1.0, -0.272, -0.647], [1.0, -1.107, 1.705]])
_GRAY = np.array([0.21, 0.72, 0.07], np.float32)


def color_normalize(src: Any, mean: Any, std: Any = None) -> NDArray:
    """Return ``(src - mean) / std``, a new array.

    Args:
        src: (height, width, channels); whole numbers become float32.
        mean, std: one number, one per channel, or None to omit that part.
    """
    image = as_float(src)
    if mean is not None:
        image = image - np.asarray(mean, image.dtype)
    if std is not None:
        image = image / np.asarray(std, image.dtype)
    return own(image, src)


def _luma(image: Array, weights: Any) -> Array:
    luma: Array = image @ np.asarray(weights, image.dtype).ravel()
    return luma


def _factor(amount: float) -> float:
    """Draw uniformly from [1 - amount, 1 + amount)."""
    return 1.0 + random.uniform(-amount, amount)


class BrightnessJitterAug(Augmenter):
    """Multiplication by a random factor.

    Args:
        brightness: the factor is uniform in [1 - brightness, 1 + brightness].
    """

    def __init__(self, brightness: float) -> None:
        super().__init__(brightness=brightness)
        self.brightness = brightness

    def __call__(self, src: Any) -> NDArray:
        """Return the brighter or darker image."""
        image = as_float(src)
        return from_numpy(image * image.dtype.type(_factor(self.brightness)))


class ContrastJitterAug(Augmenter):
    """Stretch by a random factor around the mean luma of the image.

    Args:
        contrast: the factor is uniform in [1 - contrast, 1 + contrast].
    """

    def __init__(self, contrast: float) -> None:
        super().__init__(contrast=contrast)
        self.contrast = contrast
        self.coef: Any = from_numpy(_LUMA[None, None].copy())

    def __call__(self, src: Any) -> NDArray:
        """Return the image with more or less contrast."""
        image, factor = as_float(src), _factor(self.contrast)
        mean = float(_luma(image, self.coef).mean(dtype=np.float64))
        return from_numpy(image * image.dtype.type(factor) + image.dtype.type((1.0 - factor) * mean))


class SaturationJitterAug(Augmenter):
    """Stretch of every pixel by a random factor around its own luma.

    Args:
        saturation: the factor is uniform in [1 - saturation, 1 + saturation].
    """

    def __init__(self, saturation: float) -> None:
        super().__init__(saturation=saturation)
        self.saturation = saturation
        self.coef: Any = from_numpy(_LUMA[None, None].copy())

    def __call__(self, src: Any) -> NDArray:
        """Return the image with stronger or weaker colours."""
        image, factor = as_float(src), _factor(self.saturation)
        kind = image.dtype.type
        return from_numpy(image * kind(factor) + _luma(image, self.coef)[..., None] * kind(1.0 - factor))


class HueJitterAug(Augmenter):
    """Turn of the hue in YIQ.

    Args:
        hue: the turn is uniform in [-hue, hue], in half circles.
    """

    def __init__(self, hue: float) -> None:
        super().__init__(hue=hue)
        self.hue = hue
        self.tyiq, self.ityiq = _TO_YIQ, _FROM_YIQ

    def __call__(self, src: Any) -> NDArray:
        """Return the image with turned colours."""
        angle = random.uniform(-self.hue, self.hue) * math.pi
        cosine, sine = math.cos(angle), math.sin(angle)
        turn = np.array([[1.0, 0.0, 0.0], [0.0, cosine, -sine], [0.0, sine, cosine]])
        image = as_float(src)
        return from_numpy(image @ (self.ityiq @ turn @ self.tyiq).T.astype(image.dtype))


class ColorJitterAug(RandomOrderAug):
    """Brightness, contrast and saturation by random amounts, in a random order; amounts of 0 are omitted.

    Args:
        brightness, contrast, saturation: see the augmenters of these names.
    """

    def __init__(self, brightness: float, contrast: float, saturation: float) -> None:
        parts: list[Augmenter] = []
        if brightness > 0:
            parts.append(BrightnessJitterAug(brightness))
        if contrast > 0:
            parts.append(ContrastJitterAug(contrast))
        if saturation > 0:
            parts.append(SaturationJitterAug(saturation))
        super().__init__(parts)


class LightingAug(Augmenter):
    """Addition of the principal colours of a set of images with random weights (Krizhevsky et al., 2012).

    Args:
        alphastd: standard deviation of the weights.
        eigval: (3,) eigenvalues.
        eigvec: (3, 3) eigenvectors, in columns.
    """

    def __init__(self, alphastd: float, eigval: Any, eigvec: Any) -> None:
        super().__init__(alphastd=alphastd, eigval=eigval, eigvec=eigvec)
        self.alphastd = alphastd
        self.eigval = eigval
        self.eigvec = eigvec

    def __call__(self, src: Any) -> NDArray:
        """Return the image in another light."""
        weights = np.random.normal(0.0, self.alphastd, 3)
        image = as_float(src)
        offset = (np.asarray(self.eigvec) * weights) @ np.asarray(self.eigval)
        return from_numpy(image + offset.astype(image.dtype))


class ColorNormalizeAug(Augmenter):
    """`color_normalize`.

    Args:
        mean, std: one number, one per channel, or None.
    """

    def __init__(self, mean: Any, std: Any) -> None:
        super().__init__(mean=mean, std=std)
        self.mean = mean
        self.std = std

    def __call__(self, src: Any) -> NDArray:
        """Return the normalised image."""
        return color_normalize(src, self.mean, self.std)


class RandomGrayAug(Augmenter):
    """Random replacement of the colours by grey, 0.21 R + 0.72 G + 0.07 B, with probability `p`; 3 channels stay.

    Args:
        p: probability, 0 to 1.
    """

    def __init__(self, p: float) -> None:
        super().__init__(p=p)
        self.p = p
        self.mat: Any = from_numpy(np.repeat(_GRAY[:, None], 3, axis=1))

    def __call__(self, src: Any) -> Any:
        """Return the image, grey or unchanged."""
        if random.random() < self.p:
            image = as_float(src)
            return from_numpy(image @ np.asarray(self.mat, image.dtype))
        return src
