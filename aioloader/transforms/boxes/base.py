"""Base class of transforms of an image and its boxes, those that consist of others, and coordinates of boxes.

Boxes are (n, 4 + k), floating: xmin, ymin, xmax, ymax and k columns that are kept. Every function returns a new array.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from aioloader.rng import Rng, default_rng
from aioloader.transforms.base import (
    BindingTransform,
    GeometricTransform,
    Transform,
    as_transform,
    bind,
    check_image,
    check_probability,
    keeps_places,
    moves_pixels,
)
from aioloader.transforms.pillow import is_pillow_image

if TYPE_CHECKING:
    from aioloader.foundation.types import Array
    from aioloader.transforms.base import Motion


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
        matrix: (3, 3), see `aioloader.transforms.base.Motion`.

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


_NO_BOXES = np.zeros((0, 4), np.float32)

MASKS = ("mask", "masks", "segmentation")
BOXES = ("boxes", "bboxes")
KEYPOINTS = ("keypoints", "keypoint")
TARGETS = (*MASKS, *BOXES, *KEYPOINTS)
"""Names of fields that refer to the pixels of an image, as torchvision, albumentations and COCO use them."""
PLACES = frozenset(
    (*TARGETS, "box", "bbox", "polygon", "polygons", "point", "points", "landmark", "landmarks", "joints")
)
"""These, and others whose format differs from one dataset to the next."""
# A longer list has many parts of one kind.
_PARTS_LOOKED_AT = 16
# Maps of an image are often its half, a quarter or an eighth; what has fewer rows or columns is a table of numbers.
_SCALES = (2, 4, 8)
_LEAST_SIDE = 8


class BoxTransform(Transform):
    """Base of transforms of (image, boxes). A subclass defines `apply_boxes`.

    It is a `Transform` too: called with an image alone, it returns the image. As in every transform, the input is never
    altered, the result may be a view of it, and all draws are taken from ``rng``, in the same order with and without
    boxes unless the class documents otherwise.
    """

    _takes_boxes = True

    def __call__(self, x: Any, boxes: Any = None, /, *rest: Any, rng: Rng | None = None) -> Any:
        """Return the transformed image and boxes.

        Args:
            x: the image, (height, width, channels); not altered.
            boxes: (n, 4 + k): xmin, ymin, xmax, ymax in pixels, and columns that are kept; not altered. None:
                there are none, and the result is the image alone.
            *rest: other fields of the sample; passed on.
            rng: source of the draws; None: see `aioloader.rng.default_rng`.

        Returns:
            (image, boxes, *rest), or the image.

        Raises:
            ValueError: `boxes` has another shape; or another field, such as a mask, would not move with the image.
        """
        draws = default_rng() if rng is None else rng
        if boxes is None and not rest:
            return self.apply(x, draws)
        if isinstance(x, np.ndarray) and x.ndim > 1 and moves_pixels(self):
            _check_elements(type(self).__name__, x, boxes, *rest)
        return (*self.apply_boxes(x, as_boxes(boxes), draws), *rest)

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        return self.apply_boxes(x, _NO_BOXES, rng)[0]

    def apply_boxes(self, x: Any, boxes: Array, rng: Rng, /) -> tuple[Any, Array]:
        """Return the transformed image and boxes; the loaders call this method.

        Args:
            x: the image; not altered.
            boxes: (n, 4 + k), floating; not altered.
            rng: source of the draws.

        Returns:
            the image and its boxes.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no apply_boxes()")


class ImageOnly(BoxTransform, BindingTransform):
    """A transform of the image that moves no pixel: the boxes stay unchanged. Draws: those of the transform.

    Args:
        transform: any callable of one argument; one with a parameter named ``rng`` is passed the draws.
    """

    def __init__(self, transform: Callable[..., Any]) -> None:
        self.transform = transform
        self._bind()

    def _bind(self) -> None:
        self._bound = bind(self.transform)

    def apply_boxes(self, x: Any, boxes: Array, rng: Rng) -> tuple[Any, Array]:
        return self._bound(x, rng, None), boxes

    def _parts(self) -> Sequence[Any]:
        return (self.transform,)

    def _moves_pixels(self) -> bool:
        return False


class Moved(BoxTransform):
    """A geometric transform of images, applied to the image and the boxes. Draws: those of the transform.

    Args:
        transform: a crop, flip, resize, border, rotation, affine or perspective transform of `aioloader.transforms`.
        min_coverage: a box is kept if more than this share of its area is in the result, where the transform cuts.

    Raises:
        ValueError: `min_coverage` is not a share.
    """

    def __init__(self, transform: GeometricTransform, min_coverage: float = 0.0) -> None:
        if not 0.0 <= min_coverage < 1.0:
            raise ValueError(
                f"{type(self).__name__}: min_coverage must be a share, 0 <= min_coverage < 1, got {min_coverage!r}"
            )
        self.transform = transform
        self.min_coverage = float(min_coverage)

    def apply_boxes(self, x: Any, boxes: Array, rng: Rng) -> tuple[Any, Array]:
        height, width = image_extents(x, self)
        motion = self.transform.motion(height, width, rng)
        return motion.move_image(x, None), boxes_after(boxes, motion, self.min_coverage)[0]

    def _parts(self) -> Sequence[Any]:
        return (self.transform,)

    def _arguments(self) -> dict[str, Any]:
        own = {"transform": self.transform, "min_coverage": self.min_coverage}
        return own if type(self) is Moved else {**self.transform._arguments(), **own}


def refers_to_pixels(value: Any, height: int, width: int) -> bool:
    """Return True if a value is wrong once the pixels of an image move.

    It is or contains an array with the height and width of the image, or a half, a quarter or an eighth of them, or a
    dict with a field for boxes, masks, keypoints or polygons.
    """
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return any(
            _are_extents(shape[axis], shape[axis + 1], height, width) for axis in range(len(shape) - 1)
        )
    if isinstance(value, (str, int, float)):
        return False
    if isinstance(value, (tuple, list)):
        if len(value) == height > 0 and isinstance(value[0], (tuple, list)) and len(value[0]) == width:
            return True
        return any(refers_to_pixels(part, height, width) for part in value[:_PARTS_LOOKED_AT])
    if isinstance(value, Mapping):
        return not PLACES.isdisjoint(value) or any(
            refers_to_pixels(part, height, width) for part in value.values()
        )
    return is_pillow_image(value) and value.size == (width, height)


def _are_extents(rows: int, columns: int, height: int, width: int) -> bool:
    if rows == height and columns == width:
        return True
    return min(rows, columns) >= _LEAST_SIDE and any(
        height // scale <= rows <= -(-height // scale) and width // scale <= columns <= -(-width // scale)
        for scale in _SCALES
    )


def _check_elements(name: str, image: Array, boxes: Any, *rest: Any) -> None:
    """Raise ValueError if an element of a sample, except the boxes, refers to pixels."""
    height, width = image.shape[:2]
    # Of an image of few columns an array of its extents may be boxes, which have four or more.
    may_be_boxes = isinstance(boxes, Mapping) or width < _LEAST_SIDE
    for place, value in enumerate((boxes, *rest), 1):
        if not (place == 1 and may_be_boxes) and refers_to_pixels(value, height, width):
            raise ValueError(
                f"{name}: the image moves, but element {place} of the sample, which refers to its pixels, would not: "
                "make the sample a dict {'image': ..., 'boxes': ..., 'mask': ...} and use transforms.JointCompose; if "
                "the element is to stay, pass it around this transform in a function of yours"
            )


def _part(fn: Any, name: str) -> BoxTransform:
    known: Any = as_transform(fn)
    if known._takes_boxes:
        return cast("BoxTransform", fn)
    if known._geometric:
        return Moved(fn)
    if keeps_places(fn):
        return ImageOnly(fn)
    raise TypeError(
        f"{name}: {fn!r} does not transform boxes; use a geometric transform of aioloader.transforms, or "
        "ImageOnly(...) if it moves no pixel"
    )


class Compose(BoxTransform):
    """Chain of transforms, applied one after the other. Draws: those of the parts, in order.

    Args:
        transforms: `BoxTransform`s; geometric transforms of `aioloader.transforms` are applied to the boxes too, its
            colour transforms, `Cast`, `ToTensor` and `Normalize` to the image.

    Raises:
        TypeError: one of them is something else, whose effect on boxes is unknown.
    """

    def __init__(self, transforms: Iterable[Any]) -> None:
        self.transforms = tuple(_part(fn, "Compose") for fn in transforms)

    def apply_boxes(self, x: Any, boxes: Array, rng: Rng) -> tuple[Any, Array]:
        for part in self.transforms:
            x, boxes = part.apply_boxes(x, boxes, rng)
        return x, boxes

    def _parts(self) -> Sequence[Any]:
        return self.transforms

    def _moves_pixels(self) -> bool:
        return any(map(moves_pixels, self.transforms))

    def __repr__(self) -> str:
        return f"Compose([{', '.join(map(repr, self.transforms))}])"


class RandomApply(BoxTransform):
    """Transform that is applied with probability `p`. One draw, then those of the transform if it is applied.

    Args:
        transforms: a transform, or a sequence of them, applied together; see `Compose`.
        p: probability, 0 to 1.
    """

    def __init__(self, transforms: Any, p: float = 0.5) -> None:
        self.transforms: BoxTransform = (
            Compose(transforms) if isinstance(transforms, Sequence) else _part(transforms, "RandomApply")
        )
        self.p = check_probability(p, "RandomApply")

    def apply_boxes(self, x: Any, boxes: Array, rng: Rng) -> tuple[Any, Array]:
        return self.transforms.apply_boxes(x, boxes, rng) if rng.random() < self.p else (x, boxes)

    def _parts(self) -> Sequence[Any]:
        return (self.transforms,)


def image_extents(x: Any, transform: object) -> tuple[int, int]:
    """Return (height, width) of an image.

    Raises:
        TypeError, ValueError: `x` is not an image.
    """
    height, width = check_image(x, type(transform).__name__).shape[:2]
    return height, width
