"""Coordinates of boxes after a crop, flip or resize of the image, or on a larger canvas. Pure.

Boxes are (n, 4 + k), floating: xmin, ymin, xmax, ymax and k columns that are kept. Every function returns a new array.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from aioloader.foundation.types import Array
    from aioloader.transforms.motion import Motion

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
        before, after: (height, width) of the image.
    """
    found = boxes.copy()
    for axis in (0, 1):
        # In double precision, and multiplied first: so a box that ends at the image's edge still does, and not beyond.
        edges = boxes[:, axis:4:2].astype(np.float64) * after[1 - axis]
        found[:, axis:4:2] = edges / before[1 - axis]
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


def move_points(points: Array, matrix: Array) -> Array:
    """Return points at their places after a motion of the image.

    Args:
        points: (..., 2), x and y in pixels from the upper left corner: the centre of the first pixel is (0.5, 0.5).
        matrix: (3, 3), see `aioloader.transforms.motion.Motion`.

    Returns:
        float64 (..., 2), a new array.
    """
    moved = np.asarray(points, np.float64) @ matrix[:, :2].T + matrix[:, 2]
    found: Array = moved[..., :2] / moved[..., 2:]
    return found


def move_boxes(boxes: Array, matrix: Array) -> Array:
    """Return boxes after a motion of the image: those around the four moved corners.

    Args:
        boxes: (n, 4 + k).
        matrix: (3, 3), see `move_points`.

    Returns:
        (n, 4 + k), a new array of the same dtype; boxes may be outside of the image.
    """
    found = boxes.copy()
    corners = boxes[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2)
    moved = move_points(corners, matrix)
    found[:, 0:2], found[:, 2:4] = moved.min(1), moved.max(1)
    return found


def boxes_after(boxes: Array, motion: Motion, min_coverage: float = 0.0) -> tuple[Array, Array]:
    """Return the boxes in the result of a motion.

    If it cuts, boxes are clipped to the result, and those of which too little remains are left out.

    Args:
        boxes: (n, 4 + k).
        motion: of the image.
        min_coverage: a box is kept if more than this share of its area is inside.

    Returns:
        the boxes (m, 4 + k), and bool (n,): which ones are kept.
    """
    moved = move_boxes(boxes, motion.matrix)
    if not motion.cuts:
        return moved, np.ones(len(boxes), np.bool_)
    height, width = motion.size
    rectangle = (0, 0, width, height)
    kept: Array = box_coverages(moved, rectangle) > min_coverage
    return _clipped(moved, rectangle)[kept], kept
