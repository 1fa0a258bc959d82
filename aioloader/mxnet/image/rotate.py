"""Rotation of images: `imrotate`, `random_rotate`. float32, channels first."""

from __future__ import annotations

import numbers
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.mxnet.ndarray import from_numpy
from aioloader.transforms.rotation import rotate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import Array
    from aioloader.mxnet.ndarray import NDArray

__all__ = ("imrotate", "random_rotate")


def _check(src: Any, zoom_in: bool, zoom_out: bool) -> Array:
    if zoom_in and zoom_out:
        raise ValueError("`zoom_in` and `zoom_out` cannot be both True")
    if not isinstance(src, np.ndarray) or src.dtype != np.float32:
        raise TypeError("Only `float32` images are supported by this function")
    if src.ndim not in (3, 4):
        raise ValueError("Only 3D and 4D are supported by this function")
    return np.asarray(src)


def imrotate(src: Any, rotation_degrees: Any, zoom_in: bool = False, zoom_out: bool = False) -> NDArray:
    """Rotate around the centre, counter-clockwise; bilinear, zero outside, the same extents.

    Args:
        src: float32 (channels, height, width), or (n, channels, height, width).
        rotation_degrees: one number; for n images also one for each.
        zoom_in: enlarge until no outside pixel is visible.
        zoom_out: shrink until the whole image is visible.

    Raises:
        TypeError: the dtype is another one, or one image has several angles.
        ValueError: both zooms, another number of axes, or another number of angles than images.
    """
    images = _check(src, zoom_in, zoom_out)
    if images.ndim == 3:
        if not isinstance(rotation_degrees, numbers.Real):
            raise TypeError(
                f"When a single image is passed the rotation angle is required to be a scalar, got {rotation_degrees!r}"
            )
        return from_numpy(rotate(images, float(rotation_degrees), zoom_in, zoom_out))
    angles = np.asarray(rotation_degrees, np.float64)
    if angles.ndim == 0:
        angles = np.full(len(images), angles)
    if angles.shape != (len(images),):
        raise ValueError(
            f"The number of images must be equal to the number of rotation angles: {len(images)} and {angles.size}"
        )
    result = np.empty_like(images)
    for image, angle, place in zip(images, angles.tolist(), result, strict=True):
        rotate(image, angle, zoom_in, zoom_out, place)
    return from_numpy(result)


def random_rotate(
    src: Any, angle_limits: Sequence[float], zoom_in: bool = False, zoom_out: bool = False
) -> NDArray:
    """Rotate by a random angle, of n images each by its own; see `imrotate`. Draws from `numpy.random`.

    Args:
        src: as for `imrotate`.
        angle_limits: (least, greatest) angle in degrees, drawn uniformly.
        zoom_in, zoom_out: as for `imrotate`.
    """
    images = _check(src, zoom_in, zoom_out)
    least, greatest = angle_limits
    if images.ndim == 3:
        return imrotate(src, float(np.random.uniform(least, greatest)), zoom_in, zoom_out)
    return imrotate(src, np.random.uniform(least, greatest, len(images)), zoom_in, zoom_out)
