"""Geometric operations with given parameters, by torchvision's names: no draws.

Every function takes an image (height, width, channels) of any dtype that the transform of that name takes, and returns
a new array, or the image or a view of it where nothing changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioloader.rng import Rng
from aioloader.transforms import geometry, projective
from aioloader.transforms import padding as padding_transforms
from aioloader.transforms.base import check_image
from aioloader.transforms.erasing import erase_rectangle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import Array
    from aioloader.transforms.base import Motion

__all__ = (
    "affine",
    "center_crop",
    "crop",
    "erase",
    "pad",
    "perspective",
    "resize",
    "resized_crop",
    "rotate",
)

# Passed where nothing is drawn.
_NO_DRAWS = Rng(0)


def resize(
    image: Any,
    size: int | Sequence[int] | None,
    interpolation: int | str = "bilinear",
    max_size: int | None = None,
    antialias: bool = True,
) -> Array:
    """Resize an image; the arguments are those of `aioloader.transforms.Resize`."""
    found: Array = geometry.Resize(size, interpolation, max_size, antialias).apply(image, _NO_DRAWS)
    return found


def center_crop(image: Any, output_size: int | Sequence[int]) -> Array:
    """Cut the middle of an image; see `aioloader.transforms.CenterCrop`."""
    found: Array = geometry.CenterCrop(output_size).apply(image, _NO_DRAWS)
    return found


def crop(image: Any, top: int, left: int, height: int, width: int) -> Array:
    """Cut a rectangle, in pixels; what is outside of the image is 0.

    Raises:
        ValueError: an extent is below 1.
    """
    x = check_image(image, "crop")
    if height < 1 or width < 1:
        raise ValueError(f"crop: height and width must be >= 1, got {height!r} and {width!r}")
    rows, columns = x.shape[:2]
    sides = max(-top, 0), max(top + height - rows, 0), max(-left, 0), max(left + width - columns, 0)
    padded = padding_transforms.pad_image(x, sides)
    top, left = top + sides[0], left + sides[2]
    return padded[top : top + height, left : left + width]


def resized_crop(
    image: Any,
    top: int,
    left: int,
    height: int,
    width: int,
    size: int | Sequence[int],
    interpolation: int | str = "bilinear",
    antialias: bool = True,
) -> Array:
    """Cut a rectangle, in pixels, and resize it to `size`, (height, width) or the side of a square."""
    part = crop(image, top, left, height, width)
    pair = (size, size) if isinstance(size, int) else size
    return resize(part, pair, interpolation, None, antialias)


def pad(
    image: Any,
    padding: int | Sequence[int],
    fill: float | Sequence[float] = 0,
    padding_mode: str = "constant",
) -> Array:
    """Add a border; the arguments are those of `aioloader.transforms.Pad`."""
    found: Array = padding_transforms.Pad(padding, fill, padding_mode).apply(image, _NO_DRAWS)
    return found


def rotate(
    image: Any,
    angle: float,
    interpolation: int | str = "nearest",
    expand: bool = False,
    center: Sequence[float] | None = None,
    fill: float | Sequence[float] | None = None,
) -> Array:
    """Rotate an image counter-clockwise.

    Args:
        image: (height, width, channels).
        angle: degrees.
        interpolation, expand, center: see `aioloader.transforms.RandomRotation`.
        fill: value of places outside: one number, or one per channel. None: 0, and bilinear values near the edge are
            mixed with it once, not twice.
    """
    bilinear = projective.is_bilinear(interpolation, "rotate")
    return _moved(
        image,
        lambda h, w: projective.rotation(
            h, w, angle, bilinear=bilinear, expand=expand, center=center, fill=fill
        ),
    )


def affine(
    image: Any,
    angle: float,
    translate: Sequence[float],
    scale: float,
    shear: Sequence[float],
    interpolation: int | str = "nearest",
    fill: float | Sequence[float] | None = None,
    center: Sequence[float] | None = None,
) -> Array:
    """Rotate, move, scale and shear an image.

    Args:
        image: (height, width, channels).
        angle: degrees, clockwise.
        translate: (x, y) in pixels, to the right and down.
        scale: factor, above 0.
        shear: (x, y) in degrees.
        interpolation, fill, center: see `rotate`.
    """
    bilinear = projective.is_bilinear(interpolation, "affine")
    return _moved(
        image,
        lambda h, w: projective.affine(
            h, w, angle, translate, scale, shear, bilinear=bilinear, center=center, fill=fill
        ),
    )


def perspective(
    image: Any,
    startpoints: Sequence[Sequence[float]],
    endpoints: Sequence[Sequence[float]],
    interpolation: int | str = "bilinear",
    fill: float | Sequence[float] | None = None,
) -> Array:
    """Show an image in perspective.

    Args:
        image: (height, width, channels).
        startpoints, endpoints: (x, y) in pixels of four points, and of their places in the result; upper left, upper
            right, lower right, lower left.
        interpolation, fill: see `rotate`.

    Raises:
        ValueError: there is no such map.
    """
    bilinear = projective.is_bilinear(interpolation, "perspective")
    return _moved(
        image,
        lambda h, w: projective.perspective(h, w, startpoints, endpoints, bilinear=bilinear, fill=fill),
    )


def erase(image: Any, i: int, j: int, h: int, w: int, v: Any) -> Array:
    """Set the pixels of a rectangle.

    Args:
        image: (height, width, channels), or (channels, height, width) with more than 4 columns.
        i, j: its upper and left edge in pixels.
        h, w: its extents.
        v: one number, one per channel, or an array of the rectangle's shape.
    """
    return erase_rectangle(check_image(image, "erase"), i, j, h, w, v)


def _moved(image: Any, motion: Any) -> Array:
    x = check_image(image, "a geometric operation")
    drawn: Motion = motion(*x.shape[:2])
    return drawn.move_image(x, None)
