"""Gaussian blur and sharpness, as torchvision's (version 2): convolutions in float32, rounded at the end.

Images are uint8 or float32, (height, width, 1 or 3). uint8 results differ from torchvision's by one level at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.transforms.base import Transform, check_image, check_probability, drop_grey_axis, result_array

if TYPE_CHECKING:
    from aioloader.foundation.types import Array
    from aioloader.rng import Rng

_SHARP = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]], np.float32) / 13


def _check(x: Any, name: str) -> Array:
    image = check_image(x, name)
    if image.dtype not in (np.uint8, np.float32):
        raise TypeError(f"{name} takes uint8 or float32, got {image.dtype}")
    return image


def gaussian_blur(
    x: Any, kernel_size: Sequence[int], sigma: Sequence[float], out: Array | None = None
) -> Array:
    """Blur by a Gaussian kernel; at the edges the image is reflected without its outermost pixels.

    Args:
        x: the image.
        kernel_size: (width, height) of the kernel in pixels, odd.
        sigma: standard deviations (horizontal, vertical) in pixels, above 0.
        out: as for `Transform.apply`.
    """
    image = _check(x, "gaussian_blur")
    result = result_array(image, image.shape, image.dtype, out)
    if not image.size:
        return result
    import cv2

    exact = drop_grey_axis(image).astype(np.float32, copy=False)
    rows, columns = (_gaussian(size, deviation) for size, deviation in zip(kernel_size, sigma, strict=True))
    blurred = cv2.sepFilter2D(exact, -1, rows, columns, borderType=cv2.BORDER_REFLECT_101)
    result[...] = (np.rint(blurred) if image.dtype == np.uint8 else blurred).reshape(image.shape)
    return result


def _gaussian(size: int, sigma: float) -> Array:
    places = np.arange(size, dtype=np.float32) - np.float32((size - 1) / 2)
    weights = np.exp(-0.5 * (places / np.float32(sigma)) ** 2)
    kernel: Array = weights / weights.sum()
    return kernel


def adjust_sharpness(x: Any, factor: float, out: Array | None = None) -> Array:
    """Mix the image with a blurred one: 0 is the blurred image, 1 the image, 2 doubles what the blur takes away.

    The outermost pixels are kept, as in Pillow and torchvision; so is an image with a side of 2 pixels or less.

    Args:
        x: the image.
        factor: at least 0.
        out: as for `Transform.apply`.
    """
    image = _check(x, "adjust_sharpness")
    height, width = image.shape[:2]
    if factor == 1.0 or height <= 2 or width <= 2:
        return image
    import cv2

    result = result_array(image, image.shape, image.dtype, out)
    exact = drop_grey_axis(image).astype(np.float32, copy=False)
    blurred = cv2.filter2D(exact, -1, _SHARP)
    if image.dtype == np.uint8:
        np.rint(blurred, out=blurred)
    mixed = exact + (blurred - exact) * np.float32(1.0 - factor)
    if image.dtype == np.uint8:
        np.clip(mixed, 0, 255, out=mixed)
    inner = slice(1, -1), slice(1, -1)
    result[...] = image
    result[inner] = mixed[inner].reshape(height - 2, width - 2, image.shape[2])
    return result


class GaussianBlur(Transform):
    """Gaussian blur of a drawn deviation. One draw.

    Args:
        kernel_size: extent of the kernel in pixels, odd; or (width, height).
        sigma: the standard deviation in pixels, above 0; or the ends of a range in which it is drawn uniformly.

    Raises:
        ValueError: a size is not odd, or a deviation is not above 0.
    """

    def __init__(self, kernel_size: int | Sequence[int], sigma: float | Sequence[float] = (0.1, 2.0)) -> None:
        sizes = tuple(kernel_size) if isinstance(kernel_size, Sequence) else (kernel_size, kernel_size)
        if len(sizes) != 2 or any(size < 1 or size % 2 == 0 for size in sizes):
            raise ValueError(f"GaussianBlur: kernel_size must be odd, one number or two, got {kernel_size!r}")
        ends = tuple(sigma) if isinstance(sigma, Sequence) else (sigma, sigma)
        if len(ends) != 2 or not 0 < ends[0] <= ends[1]:
            raise ValueError(f"GaussianBlur: sigma must be above 0, a number or a range, got {sigma!r}")
        self.kernel_size = int(sizes[0]), int(sizes[1])
        self.sigma = float(ends[0]), float(ends[1])

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        sigma = rng.uniform(*self.sigma)
        return gaussian_blur(x, self.kernel_size, (sigma, sigma), out)

    def out_spec(self, spec: Any) -> Any:
        return spec


class RandomAdjustSharpness(Transform):
    """`adjust_sharpness` with probability `p`. One draw.

    Args:
        sharpness_factor: at least 0; 1 changes nothing.
        p: probability, 0 to 1.

    Raises:
        ValueError: the factor is negative, or `p` is not a probability.
    """

    def __init__(self, sharpness_factor: float, p: float = 0.5) -> None:
        if not sharpness_factor >= 0:
            raise ValueError(
                f"RandomAdjustSharpness: sharpness_factor must be at least 0, got {sharpness_factor!r}"
            )
        self.sharpness_factor = float(sharpness_factor)
        self.p = check_probability(p, "RandomAdjustSharpness")

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        return adjust_sharpness(x, self.sharpness_factor, out) if rng.random() < self.p else x

    def out_spec(self, spec: Any) -> Any:
        return spec
