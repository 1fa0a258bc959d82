"""Rotation, affine and perspective transforms, with torchvision's names, arguments, draws and pixels.

Matrices of affine and perspective maps, and the sampling of an image by one, as torchvision does both. Pure.

A map is a matrix (3, 3) from places in the result to places in the source, in pixels from the upper left corner: the
centre of the first pixel is (0.5, 0.5). A pixel of the result is read at the place of its centre. Places outside the
source have the value `fill`; a bilinear value near the edge is a mixture with it.

OpenCV's warps are not used for bilinear values: they know 32 places within a pixel, which is a difference of several
levels at an edge. It only gathers pixels here, at whole places.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.transforms.base import (
    GeometricTransform,
    Motion,
    check_probability,
    check_range,
    drop_grey_axis,
    no_motion,
    result_array,
)
from aioloader.transforms.interpolation import interpolation_name
from aioloader.transforms.padding import Fill, check_fill, fill_pixel

if TYPE_CHECKING:
    from aioloader.foundation.types import Array, ArraySpec
    from aioloader.rng import Rng


_MOST_OF_OPENCV = 1 << 15  # its whole places are int16
_GATHERED = frozenset("BHhfd")


def affine_matrix(
    center: Sequence[float],
    angle: float,
    translate: Sequence[float],
    scale: float,
    shear: Sequence[float],
) -> Array:
    """Compute the inverse of an affine map: rotation, scale and shear about a centre, then translation.

    Args:
        center: (x, y) of the fixed point, in any coordinates; the matrix is for the same ones.
        angle: rotation in degrees, clockwise.
        translate: (x, y), to the right and down.
        scale: factor, above 0.
        shear: (x, y) in degrees: the angles by which the axes are turned against each other.

    Returns:
        float64 (3, 3), from the result to the source.
    """
    turn, slant_x, slant_y = math.radians(angle), math.radians(shear[0]), math.radians(shear[1])
    a = math.cos(turn - slant_y) / math.cos(slant_y)
    b = -math.cos(turn - slant_y) * math.tan(slant_x) / math.cos(slant_y) - math.sin(turn)
    c = math.sin(turn - slant_y) / math.cos(slant_y)
    d = -math.sin(turn - slant_y) * math.tan(slant_x) / math.cos(slant_y) + math.cos(turn)
    matrix = np.array([[d, -b, 0.0], [-c, a, 0.0], [0.0, 0.0, 1.0]])
    matrix[:2] /= scale
    before = np.array([center[0] + translate[0], center[1] + translate[1]])
    matrix[:2, 2] = np.array(center, np.float64) - matrix[:2, :2] @ before
    return matrix


def centred(matrix: Array, source: tuple[int, int], result: tuple[int, int]) -> Array:
    """Convert a map whose coordinates begin at the centres of both images to one from their corners.

    Args:
        matrix: (3, 3).
        source, result: (height, width) in pixels.
    """
    to_centre, from_centre = np.eye(3), np.eye(3)
    to_centre[:2, 2] = -0.5 * result[1], -0.5 * result[0]
    from_centre[:2, 2] = 0.5 * source[1], 0.5 * source[0]
    found: Array = from_centre @ matrix @ to_centre
    return found


def expanded_size(matrix: Array, height: int, width: int) -> tuple[int, int]:
    """Return the (height, width) that shows all of a rotated image.

    Args:
        matrix: (3, 3), about the image's centre.
        height, width: extents of the image, pixels.
    """
    half = np.array([0.5 * width, 0.5 * height], np.float32)
    corners = np.array([[-1, -1], [-1, 1], [1, 1], [1, -1]], np.float32) * half
    theta = matrix[:2].astype(np.float32)
    places = corners @ theta[:, :2].T + theta[:, 2] + half
    # A ten thousandth of a pixel is rounding.
    most = np.ceil(np.trunc(places.max(0) * np.float32(1e4)) * np.float32(1e-4))
    least = np.floor(np.trunc(places.min(0) * np.float32(1e4)) * np.float32(1e-4))
    wide, tall = (most - least).astype(int).tolist()
    return tall, wide


def perspective_matrix(startpoints: Sequence[Sequence[float]], endpoints: Sequence[Sequence[float]]) -> Array:
    """Compute the map that moves four points of the source to four places in the result.

    Args:
        startpoints: (x, y) of the upper left, upper right, lower right and lower left point in the source.
        endpoints: their places in the result.

    Returns:
        float64 (3, 3), from the result to the source.

    Raises:
        ValueError: there are not four points each, or three of them are on a line.
    """
    start, end = np.asarray(startpoints, np.float64), np.asarray(endpoints, np.float64)
    if start.shape != (4, 2) or end.shape != (4, 2):
        raise ValueError(
            f"a perspective map needs four points (x, y) each, got {startpoints!r} and {endpoints!r}"
        )
    rows = np.zeros((8, 8))
    rows[0::2, 0:2] = rows[1::2, 3:5] = end
    rows[0::2, 2] = rows[1::2, 5] = 1
    rows[0::2, 6:] = -start[:, :1] * end
    rows[1::2, 6:] = -start[:, 1:] * end
    try:
        solved = np.linalg.solve(rows, start.ravel())
    except np.linalg.LinAlgError:
        raise ValueError(f"no perspective map moves {startpoints!r} to {endpoints!r}") from None
    return np.append(solved, 1.0).reshape(3, 3)


def warp(
    x: Array,
    matrix: Array,
    size: tuple[int, int],
    *,
    bilinear: bool,
    fill: Fill | None = 0,
    out: Array | None = None,
) -> Array:
    """Sample an image by a map.

    Args:
        x: (height, width, channels), not empty.
        matrix: (3, 3), from places in the result to places in the source.
        size: (height, width) of the result.
        bilinear: mixtures of the four nearest pixels, rounded for integers; otherwise the nearest pixel.
        fill: value of places outside: one number, or one per channel. None: 0, and bilinear values near the edge are
            mixed with it once, not twice.
        out: as for `Transform.apply`.

    Raises:
        ValueError: the image has no pixels, or the number of values of `fill` is not that of the channels.
    """
    if not x.size:
        raise ValueError(f"an image of shape {x.shape} has no pixels to move")
    height, width = size
    rows, columns, channels = x.shape
    if bilinear or matrix[2, 0] or matrix[2, 1]:
        place_x, place_y = _places(matrix, height, width)
        place_x -= 0.5
        place_y -= 0.5
    else:
        place_x, place_y = _nearest_places(matrix, (rows, columns), size)
    # Beyond two pixels from the edge nothing is seen.
    np.clip(place_x, -2, columns + 1, out=place_x)
    np.clip(place_y, -2, rows + 1, out=place_y)
    result = result_array(x, (height, width, channels), x.dtype, out)
    pixel = fill_pixel(0 if fill is None else fill, channels, x.dtype)
    if not bilinear:
        result[...] = _gather(x, np.rint(place_x), np.rint(place_y), pixel)
        return result
    left, top = np.floor(place_x), np.floor(place_y)
    share_x, share_y = (place_x - left).astype(np.float32), (place_y - top).astype(np.float32)
    precise = np.float64 if x.dtype == np.float64 else np.float32
    total = np.zeros((height, width, channels), precise)
    inside = np.zeros((height, width), np.float32)
    nothing = np.zeros(1, x.dtype)
    for step_y in (0, 1):
        for step_x in (0, 1):
            weight = (share_x if step_x else 1 - share_x) * (share_y if step_y else 1 - share_y)
            at_x, at_y = left + step_x, top + step_y
            total += _gather(x, at_x, at_y, nothing) * weight[..., None]
            inside += weight * ((at_x >= 0) & (at_x < columns) & (at_y >= 0) & (at_y < rows))
    if fill is not None and (inside < 1).any():
        # As torchvision does: the pixels are mixed with zeros at the edge, and once more with the fill.
        values = np.asarray(fill, precise).ravel()
        total -= values
        total *= inside[..., None]
        total += values
    if x.dtype.kind in "iu":
        limits = np.iinfo(x.dtype)
        np.rint(total, out=total)
        np.clip(total, limits.min, limits.max, out=total)
    result[...] = total
    return result


def _places(matrix: Array, height: int, width: int) -> tuple[Any, Any]:
    """Return x and y in the source of the centre of every pixel of the result, float64 (height, width)."""
    across = np.arange(width) + 0.5
    down = (np.arange(height) + 0.5)[:, None]
    x = across * matrix[0, 0] + (down * matrix[0, 1] + matrix[0, 2])
    y = across * matrix[1, 0] + (down * matrix[1, 1] + matrix[1, 2])
    if matrix[2, 0] or matrix[2, 1]:
        depth = across * matrix[2, 0] + (down * matrix[2, 1] + matrix[2, 2])
        # A place at infinity is outside.
        depth[depth == 0] = 1e-12
        x /= depth
        y /= depth
    return x, y


def _nearest_places(matrix: Array, source: tuple[int, int], result: tuple[int, int]) -> tuple[Any, Any]:
    """Return x and y in the source of every pixel of an affine map; 0 is the centre of the first pixel.

    They are computed as torch does, in single precision and in halves of the image, because that decides which of two
    equally near pixels is taken: with a scale about the centre, or a quarter of a circle, these are whole rows.
    """
    half = np.array([0.5 * source[1], 0.5 * source[0]])
    linear = matrix[:2, :2]
    shift = np.round(matrix[:2, 2] - half + linear @ (0.5 * result[1], 0.5 * result[0]), 9)
    turn = linear.astype(np.float32) / half.astype(np.float32)[:, None]
    move = shift.astype(np.float32) / half.astype(np.float32)
    across = np.arange(result[1], dtype=np.float32) + np.float32(0.5 - 0.5 * result[1])
    down = (np.arange(result[0], dtype=np.float32) + np.float32(0.5 - 0.5 * result[0]))[:, None]
    scale = half.astype(np.float32)
    x, y = (
        (across * turn[axis, 0] + down * turn[axis, 1] + move[axis] + np.float32(1)) * scale[axis]
        - np.float32(0.5)
        for axis in (0, 1)
    )
    return x, y


def _gather(x: Array, left: Array, top: Array, pixel: Array) -> Array:
    """Return the pixels at whole places, and `pixel` for those outside.

    Args:
        x: (height, width, channels).
        left, top: whole numbers of any dtype, (h, w).
        pixel: (1,) or (channels,), of the dtype of `x`.
    """
    rows, columns, channels = x.shape
    if channels <= 4 and max(rows, columns) < _MOST_OF_OPENCV - 2 and x.dtype.char in _GATHERED:
        import cv2

        places = np.empty((*left.shape, 2), np.int16)
        places[..., 0], places[..., 1] = left, top
        value = np.broadcast_to(pixel, (channels,)).astype(np.float64).tolist()
        found: Any = cv2.remap(
            drop_grey_axis(x),
            places,
            None,
            cv2.INTER_NEAREST,
            borderMode=cv2.BORDER_CONSTANT,
            borderValue=(*value, 0, 0, 0)[:4],
        )
        return np.asarray(found).reshape(*left.shape, channels)
    at_x, at_y = left.astype(np.intp), top.astype(np.intp)
    outside = (at_x < 0) | (at_x >= columns) | (at_y < 0) | (at_y >= rows)
    taken: Array = x[np.clip(at_y, 0, rows - 1), np.clip(at_x, 0, columns - 1)]
    taken[outside] = pixel
    return taken


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
        bilinear: see `aioloader.transforms.projective.warp`.
        expand: the result shows all of the image; otherwise it has the image's extents.
        center: (x, y) of the fixed point in pixels from the upper left corner; None: the centre of the image.
        fill: see `aioloader.transforms.projective.warp`.
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
