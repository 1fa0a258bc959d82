"""Rotation about the image's centre by Gluon's rules, for `aioloader.mxnet`: float32 images, channels first.

Every pixel of the result is read from its place in the source, between its four neighbours (bilinear); outside the
image all values are zero. Extents are kept. Positive angles are counter-clockwise.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.transforms.base import Transform, result_array

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import Array, ArraySpec
    from aioloader.rng import Rng

_FLOAT32 = np.dtype(np.float32)


def rotate(
    x: Array, degrees: float, zoom_in: bool = False, zoom_out: bool = False, out: Array | None = None
) -> Array:
    """Rotate an image about its centre.

    Args:
        x: float32 (channels, height, width).
        degrees: angle, counter-clockwise.
        zoom_in: enlarge until no place outside the image is visible.
        zoom_out: shrink until all of the image is visible.
        out: as for `Transform.apply`.

    Raises:
        ValueError: both zooms are requested.
    """
    _check_zoom(zoom_in, zoom_out)
    channels, height, width = x.shape
    result = result_array(x, x.shape, x.dtype, out)
    if not x.size:
        return result
    angle = math.radians(degrees)
    cosine, sine = math.cos(angle), math.sin(angle)
    scale = _zoom(height, width, cosine, sine, out=zoom_out) if zoom_in or zoom_out else 1.0
    middle_x, middle_y = (width - 1) / 2, (height - 1) / 2
    columns = (np.arange(width) - middle_x) * scale
    rows = ((np.arange(height) - middle_y) * scale)[:, None]
    # Beyond one pixel from the edge all neighbours are zero, so places farther out are moved there.
    source_x = np.clip(columns * cosine - rows * sine + middle_x, -1, width)
    source_y = np.clip(columns * sine + rows * cosine + middle_y, -1, height)
    left, top = np.floor(source_x), np.floor(source_y)
    share_x, share_y = (source_x - left).astype(x.dtype), (source_y - top).astype(x.dtype)
    padded = np.zeros((channels, height + 3, width + 3), x.dtype)
    padded[:, 1:-2, 1:-2] = x
    stride = width + 3
    places = (top.astype(np.intp) + 1) * stride + left.astype(np.intp) + 1
    for plane, place in zip(padded.reshape(channels, -1), result, strict=True):
        upper, lower = plane[places], plane[places + stride]
        upper += (plane[places + 1] - upper) * share_x
        lower += (plane[places + stride + 1] - lower) * share_x
        place[...] = upper + (lower - upper) * share_y
    return result


def _zoom(height: int, width: int, cosine: float, sine: float, *, out: bool) -> float:
    """Return the pixels of the image per pixel of the result, zoomed out or in."""
    # Distance of the rotated corners, in half extents.
    reach_x = abs(width * cosine) + abs(height * sine)
    reach_y = abs(height * cosine) + abs(width * sine)
    if out:
        return max(reach_x / width, reach_y / height)
    return min(width / reach_x, height / reach_y)


def _check_zoom(zoom_in: bool, zoom_out: bool) -> None:
    if zoom_in and zoom_out:
        raise ValueError("`zoom_in` and `zoom_out` cannot be both True")


class _Rotation(Transform):
    def __init__(self, zoom_in: bool, zoom_out: bool) -> None:
        _check_zoom(zoom_in, zoom_out)
        self.zoom_in = bool(zoom_in)
        self.zoom_out = bool(zoom_out)

    def _check(self, x: Any) -> Array:
        if not isinstance(x, np.ndarray) or x.dtype != _FLOAT32:
            raise TypeError("This transformation only supports float32. Consider calling it after ToTensor")
        if x.ndim not in (3, 4):
            raise ValueError(
                f"{type(self).__name__} takes (channels, height, width), with n in front or not, got shape {x.shape}"
            )
        return x

    def _rotate(self, image: Array, angles: Sequence[float], out: Array | None) -> Array:
        if image.ndim == 3:
            return rotate(image, angles[0], self.zoom_in, self.zoom_out, out)
        result = result_array(image, image.shape, image.dtype, out)
        for one, angle, place in zip(image, angles, result, strict=True):
            rotate(one, angle, self.zoom_in, self.zoom_out, place)
        return result

    def out_spec(self, spec: ArraySpec | None) -> ArraySpec | None:
        return spec if spec is not None and spec.dtype == _FLOAT32 else None


class Rotate(_Rotation):
    """Rotation by a given angle; float32 (channels, height, width) or (n, channels, height, width), shape kept.

    No draws. Pixels from outside the image are zero. Use it after `ToTensor`.

    Args:
        rotation_degrees: angle, counter-clockwise.
        zoom_in: enlarge until no place outside the image is visible.
        zoom_out: shrink until all of the image is visible.

    Raises:
        ValueError: both zooms are requested.
    """

    def __init__(self, rotation_degrees: float, zoom_in: bool = False, zoom_out: bool = False) -> None:
        super().__init__(zoom_in, zoom_out)
        self.rotation_degrees = float(rotation_degrees)

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        image = self._check(x)
        return self._rotate(image, [self.rotation_degrees] * len(image), out)


class RandomRotation(_Rotation):
    """Rotation by a drawn angle; float32 (channels, height, width) or (n, channels, height, width), shape kept.

    Draws: one for the decision to rotate, then, if it does, one for the angle (of n images: one for each). Pixels from
    outside the image are zero. Use it after `ToTensor`.

    Args:
        angle_limits: (least, greatest) angle in degrees, counter-clockwise; drawn uniformly.
        zoom_in, zoom_out: see `Rotate`.
        rotate_with_proba: probability of a rotation, 0 to 1.

    Raises:
        ValueError: an argument is not allowed.
    """

    def __init__(
        self,
        angle_limits: Sequence[float],
        zoom_in: bool = False,
        zoom_out: bool = False,
        rotate_with_proba: float = 1.0,
    ) -> None:
        super().__init__(zoom_in, zoom_out)
        try:
            limits = tuple(map(float, angle_limits))
        except (TypeError, ValueError):
            limits = ()
        if len(limits) != 2 or not -math.inf < limits[0] < limits[1] < math.inf:
            raise ValueError(f"`angle_limits` must be an ordered tuple, in degrees, got {angle_limits!r}")
        if not 0.0 <= rotate_with_proba <= 1.0:
            raise ValueError(
                f"Probability of rotating the image should be between 0 and 1, got {rotate_with_proba!r}"
            )
        self.angle_limits = (limits[0], limits[1])
        self.rotate_with_proba = float(rotate_with_proba)

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        image = self._check(x)
        if rng.random() >= self.rotate_with_proba:
            return x
        count = 1 if image.ndim == 3 else len(image)
        return self._rotate(image, [rng.uniform(*self.angle_limits) for _ in range(count)], out)
