"""Rotation, affine and perspective transforms, with torchvision's names, arguments, draws and pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.transforms.base import check_probability, check_range
from aioloader.transforms.interpolation import interpolation_name
from aioloader.transforms.motion import GeometricTransform, Motion, no_motion
from aioloader.transforms.padding import Fill, check_fill
from aioloader.transforms.warp import affine_matrix, centred, expanded_size, perspective_matrix, warp

if TYPE_CHECKING:
    from aioloader.foundation.types import Array, ArraySpec
    from aioloader.rng import Rng

_NO_CENTER = (0.0, 0.0)


def rotation(
    height: int,
    width: int,
    angle: float,
    *,
    bilinear: bool = False,
    expand: bool = False,
    center: Sequence[float] | None = None,
    fill: Fill | None = 0,
) -> Motion:
    """Return the motion of a rotation.

    Args:
        height, width: extents of the image in pixels.
        angle: degrees, counter-clockwise.
        bilinear: see `aioloader.transforms.warp.warp`.
        expand: the result shows all of the image; otherwise it has the image's extents.
        center: (x, y) of the fixed point in pixels from the upper left corner; None: the centre of the image.
        fill: see `aioloader.transforms.warp.warp`.
    """
    turned = angle % 360
    quarters = int(turned // 90) if center is None and turned % 90 == 0 else None
    if quarters is not None and (quarters % 2 == 0 or expand or height == width):
        return _quarters(height, width, quarters)
    fixed = _NO_CENTER if center is None else (center[0] - 0.5 * width, center[1] - 0.5 * height)
    matrix = affine_matrix(fixed, -turned, (0, 0), 1.0, (0, 0))
    size = expanded_size(matrix, height, width) if expand else (height, width)
    return _warping(centred(matrix, (height, width), size), size, bilinear, fill)


def _quarters(height: int, width: int, quarters: int) -> Motion:
    """Return the motion of a rotation by quarters of a circle: no pixel is changed."""
    size = (width, height) if quarters % 2 else (height, width)
    matrix = centred(affine_matrix(_NO_CENTER, -90.0 * quarters, (0, 0), 1.0, (0, 0)), (height, width), size)

    def turn(x: Array, out: Array | None = None) -> Array:
        return np.rot90(x, quarters) if quarters else x

    return Motion(size, np.linalg.inv(matrix), turn, turn)


def affine(
    height: int,
    width: int,
    angle: float,
    translate: Sequence[float],
    scale: float,
    shear: Sequence[float],
    *,
    bilinear: bool = False,
    center: Sequence[float] | None = None,
    fill: Fill | None = 0,
) -> Motion:
    """Return the motion of an affine map; the extents stay.

    Args:
        height, width: extents of the image in pixels.
        angle: rotation in degrees, clockwise.
        translate: (x, y) in pixels, to the right and down.
        scale: factor, above 0.
        shear: (x, y) in degrees.
        bilinear, center, fill: see `rotation`.
    """
    fixed = _NO_CENTER if center is None else (center[0] - 0.5 * width, center[1] - 0.5 * height)
    size = height, width
    matrix = centred(affine_matrix(fixed, angle, translate, scale, shear), size, size)
    return _warping(matrix, size, bilinear, fill)


def perspective(
    height: int,
    width: int,
    startpoints: Sequence[Sequence[float]],
    endpoints: Sequence[Sequence[float]],
    *,
    bilinear: bool = True,
    fill: Fill | None = 0,
) -> Motion:
    """Return the motion of a perspective map; the extents stay.

    Args:
        height, width: extents of the image in pixels.
        startpoints, endpoints: (x, y) in pixels of four points, and of their places in the result; upper left, upper
            right, lower right, lower left.
        bilinear, fill: see `rotation`.

    Raises:
        ValueError: there is no such map.
    """
    # In single precision, as torchvision has the coefficients.
    matrix = perspective_matrix(startpoints, endpoints).astype(np.float32).astype(np.float64)
    return _warping(matrix, (height, width), bilinear, fill)


def _warping(matrix: Array, size: tuple[int, int], bilinear: bool, fill: Fill | None) -> Motion:
    return Motion(
        size,
        np.linalg.inv(matrix),
        lambda x, out: warp(x, matrix, size, bilinear=bilinear, fill=fill, out=out),
        lambda mask: warp(mask, matrix, size, bilinear=False),
        cuts=True,
    )


def is_bilinear(interpolation: Any, name: str) -> bool:
    """Return whether an interpolation of a warp is bilinear, not nearest.

    Raises:
        ValueError: it is neither.
    """
    found = interpolation_name(interpolation, name)
    if found not in ("nearest", "nearest-exact", "bilinear"):
        raise ValueError(f"{name}: interpolation must be 'nearest' or 'bilinear', got {interpolation!r}")
    return found == "bilinear"


class _Warp(GeometricTransform):
    """Base of the transforms: arguments that all have."""

    def __init__(self, interpolation: int | str, fill: float | Sequence[float]) -> None:
        name = type(self).__name__
        self._bilinear = is_bilinear(interpolation, name)
        self.interpolation = "bilinear" if self._bilinear else "nearest"
        self.fill = check_fill(fill, name)

    def out_spec(self, spec: ArraySpec | None) -> ArraySpec | None:
        return spec if spec is not None and len(spec.shape) == 3 else None


class RandomRotation(_Warp):
    """Rotation by a drawn angle; (height, width, channels), dtype kept. One draw.

    Args:
        degrees: (least, greatest) angle, counter-clockwise, drawn uniformly; one number d means (-d, d).
        interpolation: "nearest" or "bilinear".
        expand: the result becomes as large as it takes to show all of the image.
        center: (x, y) of the fixed point in pixels from the upper left corner; None: the centre of the image.
        fill: value of places outside: one number, or one per channel.

    Raises:
        ValueError: an argument is not allowed.
    """

    def __init__(
        self,
        degrees: float | Sequence[float],
        interpolation: int | str = "nearest",
        expand: bool = False,
        center: Sequence[float] | None = None,
        fill: float | Sequence[float] = 0,
    ) -> None:
        super().__init__(interpolation, fill)
        self.degrees = _angles(degrees, "RandomRotation: degrees")
        self.expand = bool(expand)
        self.center = _center(center, "RandomRotation")

    def motion(self, height: int, width: int, rng: Rng) -> Motion:
        angle = rng.uniform(*self.degrees)
        return rotation(
            height,
            width,
            angle,
            bilinear=self._bilinear,
            expand=self.expand,
            center=self.center,
            fill=self.fill,
        )

    def out_spec(self, spec: ArraySpec | None) -> ArraySpec | None:
        return None if self.expand else super().out_spec(spec)


class RandomAffine(_Warp):
    """Rotation, translation, scale and shear by drawn amounts; (height, width, channels), shape and dtype kept.

    Draws: the angle; x and y of the translation, if there is one; the scale, if there is one; the shear along x, if
    there is one, and along y, if it has four numbers.

    Args:
        degrees: (least, greatest) angle, clockwise; one number d means (-d, d).
        translate: greatest share of the width and of the height by which the image is moved, either way, rounded to
            whole pixels; None: it stays.
        scale: (least, greatest) factor; None: 1.
        shear: (least, greatest) angle in degrees along x, or four numbers, along x and y; one number d means (-d, d)
            along x. None: none.
        interpolation: "nearest" or "bilinear".
        fill: value of places outside: one number, or one per channel.
        center: (x, y) of the fixed point in pixels from the upper left corner; None: the centre of the image.

    Raises:
        ValueError: an argument is not allowed.
    """

    def __init__(
        self,
        degrees: float | Sequence[float],
        translate: Sequence[float] | None = None,
        scale: Sequence[float] | None = None,
        shear: float | Sequence[float] | None = None,
        interpolation: int | str = "nearest",
        fill: float | Sequence[float] = 0,
        center: Sequence[float] | None = None,
    ) -> None:
        super().__init__(interpolation, fill)
        self.degrees = _angles(degrees, "RandomAffine: degrees")
        self.translate = None if translate is None else _numbers(translate, (2,), "RandomAffine: translate")
        if self.translate is not None and not all(0 <= share <= 1 for share in self.translate):
            raise ValueError(f"RandomAffine: translate must be two shares, 0 to 1, got {translate!r}")
        self.scale = None if scale is None else check_range(scale, "RandomAffine: scale")
        self.shear = None if shear is None else _angles(shear, "RandomAffine: shear", (2, 4))
        self.center = _center(center, "RandomAffine")

    def motion(self, height: int, width: int, rng: Rng) -> Motion:
        angle = rng.uniform(*self.degrees[:2])
        x = y = 0
        if self.translate is not None:
            most_x, most_y = self.translate[0] * width, self.translate[1] * height
            x, y = round(rng.uniform(-most_x, most_x)), round(rng.uniform(-most_y, most_y))
        scale = 1.0 if self.scale is None else rng.uniform(*self.scale)
        shear_x = 0.0 if self.shear is None else rng.uniform(*self.shear[:2])
        shear_y = 0.0 if self.shear is None or len(self.shear) == 2 else rng.uniform(*self.shear[2:])
        return affine(
            height,
            width,
            angle,
            (x, y),
            scale,
            (shear_x, shear_y),
            bilinear=self._bilinear,
            center=self.center,
            fill=self.fill,
        )


class RandomPerspective(_Warp):
    """View from a drawn direction with probability `p`; (height, width, channels), shape and dtype kept.

    Draws: one for the decision; then, if it is applied, x and y of the new place of the upper left, upper right, lower
    right and lower left corner.

    Args:
        distortion_scale: greatest way of a corner, as a share of half of the image's width and height.
        p: probability, 0 to 1.
        interpolation: "nearest" or "bilinear".
        fill: value of places outside: one number, or one per channel.

    Raises:
        ValueError: an argument is not allowed.
    """

    def __init__(
        self,
        distortion_scale: float = 0.5,
        p: float = 0.5,
        interpolation: int | str = "bilinear",
        fill: float | Sequence[float] = 0,
    ) -> None:
        super().__init__(interpolation, fill)
        if not 0 <= distortion_scale <= 1:
            raise ValueError(
                f"RandomPerspective: distortion_scale must be a share, 0 to 1, got {distortion_scale!r}"
            )
        self.distortion_scale = float(distortion_scale)
        self.p = check_probability(p, "RandomPerspective")

    def motion(self, height: int, width: int, rng: Rng) -> Motion:
        if rng.random() >= self.p:
            return no_motion(height, width)
        startpoints = (0, 0), (width - 1, 0), (width - 1, height - 1), (0, height - 1)
        endpoints = self.endpoints(height, width, rng)
        try:
            return perspective(height, width, startpoints, endpoints, bilinear=self._bilinear, fill=self.fill)
        except (ValueError, np.linalg.LinAlgError):
            # An image of one row or column has no corners to move.
            return no_motion(height, width)

    def endpoints(self, height: int, width: int, rng: Rng) -> list[tuple[int, int]]:
        """Draw the new places, (x, y), of the corners of an image; see the order of the draws."""
        high = int(self.distortion_scale * (height // 2)) + 1
        wide = int(self.distortion_scale * (width // 2)) + 1
        left, right, top, bottom = (0, wide), (width - wide, width), (0, high), (height - high, height)
        corners = (left, top), (right, top), (right, bottom), (left, bottom)
        return [(rng.integers(*x), rng.integers(*y)) for x, y in corners]


def _numbers(values: Any, counts: tuple[int, ...], name: str) -> tuple[float, ...]:
    """Return finite numbers as floats.

    Raises:
        ValueError: `values` is something else.
    """
    try:
        found = tuple(map(float, values))
    except (TypeError, ValueError):
        found = ()
    if len(found) not in counts or not all(map(math.isfinite, found)):
        wanted = " or ".join(map(str, counts))
        raise ValueError(f"{name} must be {wanted} numbers, got {values!r}")
    return found


def _angles(values: Any, name: str, counts: tuple[int, ...] = (2,)) -> tuple[float, ...]:
    if not isinstance(values, Sequence):
        (most,) = _numbers((values,), (1,), name)
        if most < 0:
            raise ValueError(f"{name}: one number must be at least 0, got {values!r}")
        return -most, most
    found = _numbers(values, counts, name)
    if any(low > high for low, high in zip(found[::2], found[1::2], strict=True)):
        raise ValueError(f"{name} must be (least, greatest), got {values!r}")
    return found


def _center(center: Any, name: str) -> tuple[float, ...] | None:
    return None if center is None else _numbers(center, (2,), f"{name}: center")
