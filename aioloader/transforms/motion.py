"""Motion of an image: what a geometric transform, once drawn, does to pixels, masks and coordinates alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.transforms.base import Transform, check_image

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioloader.foundation.types import Array
    from aioloader.rng import Rng


@dataclass(frozen=True, slots=True)
class Motion:
    """A geometric transform of an image of known extents, with all its draws made.

    Attributes:
        size: (height, width) of the result.
        matrix: (3, 3), from places in the image to places in the result; x, then y, in pixels from the upper left
            corner, so that the centre of the first pixel is (0.5, 0.5).
        move_image: returns the image, (height, width, channels), at its new place; the second argument is an array that
            the result may be written to, or None.
        move_mask: the same for a mask, (height, width, n): no values are mixed, and places outside are 0.
        cuts: places inside the image may be outside of the result.
    """

    size: tuple[int, int]
    matrix: Array
    move_image: Callable[[Array, Array | None], Array]
    move_mask: Callable[[Array], Array]
    cuts: bool = False


class GeometricTransform(Transform):
    """Base of transforms that move pixels. A subclass defines `motion`, from which all else follows."""

    def motion(self, height: int, width: int, rng: Rng) -> Motion:
        """Draw a motion.

        Args:
            height, width: extents of the image in pixels.
            rng: source of the draws; those of `apply`, except that the interpolation "random" is drawn when the image
                is moved.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no motion()")

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        image = check_image(x, type(self).__name__)
        return self.motion(image.shape[0], image.shape[1], rng).move_image(image, out)


def no_motion(height: int, width: int) -> Motion:
    """Return the motion that leaves an image as it is."""
    return Motion((height, width), np.eye(3), lambda x, out: x, lambda mask: mask)


def scaling(scale_x: float, scale_y: float, x: float = 0.0, y: float = 0.0) -> Array:
    """Return the matrix (3, 3) of a scaling, and then a shift by (x, y) pixels of the result."""
    return np.array([[scale_x, 0.0, x], [0.0, scale_y, y], [0.0, 0.0, 1.0]])
