"""Coordinates of boxes after a crop, flip or resize of the image, or on a larger canvas. Pure.

Boxes are (n, 4 + k), floating: xmin, ymin, xmax, ymax and k columns that are kept. Every function returns a new array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from aioloader.foundation.types import Array

# An overlap thinner than this, in pixels, is rounding.
_LEAST_OVERLAP = 1e-3


def as_boxes(boxes: Any) -> Array:
    """Convert `boxes` to an array (n, 4 + k) of floats; integers become float32, an empty list has no boxes.

    Raises:
        ValueError: the array has another shape.
    """
    try:
        array = np.asarray(boxes)
        if array.dtype.kind != "f":
            array = array.astype(np.float32)
    except (TypeError, ValueError):
        raise ValueError(
            f"boxes must be an array (n, 4 or more) of numbers: xmin, ymin, xmax, ymax in pixels, got {type(boxes)}"
        ) from None
    if array.shape == (0,):
        array = array.reshape(0, 4)
    if array.ndim != 2 or array.shape[1] < 4:
        raise ValueError(
            f"boxes must be (n, 4 or more): xmin, ymin, xmax, ymax in pixels, got shape {array.shape}"
        )
    return array


def box_areas(boxes: Array) -> Array:
    """Return the areas of boxes; 0 if a box has no width or height.

    Args:
        boxes: (n, 4 + k), xmin, ymin, xmax, ymax in pixels.

    Returns:
        (n,), square pixels, in the dtype of `boxes`.
    """
    extents = np.maximum(boxes[:, 2:4] - boxes[:, 0:2], 0)
    areas: Array = extents[:, 0] * extents[:, 1]
    return areas


def _clipped(boxes: Array, rectangle: tuple[float, float, float, float]) -> Array:
    x, y, width, height = rectangle
    found = boxes.copy()
    found[:, 0:4:2] = np.clip(found[:, 0:4:2], x, x + width)
    found[:, 1:4:2] = np.clip(found[:, 1:4:2], y, y + height)
    return found


def box_coverages(boxes: Array, rectangle: tuple[float, float, float, float]) -> Array:
    """Return the share of each box's area inside a rectangle, (n,); 0 for a box without area.

    An overlap thinner than a thousandth of a pixel counts as none.

    Args:
        boxes: (n, 4 + k).
        rectangle: (x, y, width, height).
    """
    areas = box_areas(boxes)
    clipped = _clipped(boxes, rectangle)
    thin = (clipped[:, 2:4] - clipped[:, 0:2] < _LEAST_OVERLAP).any(axis=1)
    inside = box_areas(clipped)
    inside[thin] = 0
    return np.divide(inside, areas, out=np.zeros_like(areas), where=areas > 0)


def crop_boxes(
    boxes: Array, rectangle: tuple[float, float, float, float], min_coverage: float = 0.0
) -> Array:
    """Return the boxes in a rectangle that is cut out: clipped to it, and relative to its corner.

    Args:
        boxes: (n, 4 + k).
        rectangle: (x, y, width, height).
        min_coverage: a box is kept if more than this share of its area is inside.
    """
    stay = box_coverages(boxes, rectangle) > min_coverage
    return shift_boxes(_clipped(boxes, rectangle)[stay], -rectangle[0], -rectangle[1])


def shift_boxes(boxes: Array, x: float, y: float) -> Array:
    """Move the boxes to the right by `x` and down by `y`.

    Args:
        boxes: (n, 4 + k), xmin, ymin, xmax, ymax in pixels; not altered.
        x, y: pixels; negative: to the left, up.

    Returns:
        (n, 4 + k), a new array.
    """
    found = boxes.copy()
    found[:, 0:4:2] += x
    found[:, 1:4:2] += y
    return found


def resize_boxes(boxes: Array, before: tuple[float, float], after: tuple[float, float]) -> Array:
    """Return the boxes in an image that is resized.

    Args:
        boxes: (n, 4 + k).
        before, after: (width, height) of the image.
    """
    found = boxes.copy()
    for axis in (0, 1):
        # In double precision, and multiplied first: so a box that ends at the image's edge still does, and not beyond.
        edges = boxes[:, axis:4:2].astype(np.float64) * after[axis]
        found[:, axis:4:2] = edges / before[axis]
    return found


def flip_boxes(boxes: Array, extent: float, axis: int) -> Array:
    """Return the boxes in an image that is flipped.

    Args:
        boxes: (n, 4 + k).
        extent: of the image along `axis`.
        axis: 0 exchanges left and right (x), 1 top and bottom (y).
    """
    found = boxes.copy()
    found[:, axis] = extent - boxes[:, axis + 2]
    found[:, axis + 2] = extent - boxes[:, axis]
    return found
