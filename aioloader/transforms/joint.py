"""Transforms of a sample that is a dict: the image, and the boxes, masks and keypoints in it, with one draw for all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.foundation.stacks import warn_caller
from aioloader.transforms.base import Transform, as_transform, bind, check_image, keeps_places, moves_pixels
from aioloader.transforms.boxes.base import (
    BOXES,
    KEYPOINTS,
    MASKS,
    PLACES,
    TARGETS,
    as_boxes,
    boxes_after,
    move_points,
    refers_to_pixels,
)

if TYPE_CHECKING:
    from aioloader.foundation.types import Array
    from aioloader.rng import Rng
    from aioloader.transforms.base import Motion

_PER_BOX = (
    *("label", "labels", "class_labels", "category_id", "category_ids", "iscrowd", "area"),
    *(*MASKS, *KEYPOINTS),
)


class JointCompose(Transform):
    """Chain of transforms of a sample with the targets in its image; every draw is made once, for all of them.

    A sample is a dict with these fields; others stay as they are:

    - "image": (height, width, channels).
    - "boxes" or "bboxes": (n, 4 + k), xmin, ymin, xmax, ymax in pixels from the upper left corner, the maxima
      exclusive, and columns that are kept. Where a transform cuts, boxes are clipped, and those of which too little
      remains are left out.
    - "mask", "masks", "segmentation": (height, width), (n, height, width) or (height, width, channels), any dtype, or
      a list of (height, width), also an empty one. No values are mixed; places from outside are 0.
    - "keypoints", "keypoint": (n, k, 2) or (n, k, 3), x and y in pixels, the centre of the first pixel is (0.5, 0.5),
      and visibility, which becomes 0 for points outside of the image; or an empty list. Points are not clipped.

    Draws: those of the transforms, in order, as for an image alone.

    Args:
        transforms: geometric transforms of `aioloader.transforms`, which move image and targets; its colour transforms,
            `RandomErasing`, `Cast`, `ToTensor` and `Normalize`, which change the image; `RandomApply` of these; other
            callables within `ImageOnly`.
        min_coverage: a box is kept if more than this share of its area is in the result of each transform that cuts.
        per_box: fields with one row per box, which are left out with it: those that have as many rows as there are
            boxes, if there are boxes. Another field with as many rows keeps them, with a warning.
        keep: fields that stay as they are although they seem to refer to the image's pixels: those named above, others
            such as "points" and "landmarks", arrays with its height and width, or with a half, a quarter or an eighth
            of them, and dicts of such fields. Without this, they are refused if a transform moves pixels.

    Raises:
        TypeError: it is not known whether a transform moves pixels, or, when it is applied, a sample is not a dict.
        ValueError: `min_coverage` is not a share; or, when it is applied, a field has a wrong shape, or would not move
            with the image and is not in `keep`.
    """

    def __init__(
        self,
        transforms: Iterable[Any],
        min_coverage: float = 0.0,
        per_box: str | Sequence[str] = _PER_BOX,
        keep: str | Sequence[str] = (),
    ) -> None:
        self.transforms = tuple(transforms)
        for part in self.transforms:
            _check_part(part)
        if not 0.0 <= min_coverage < 1.0:
            raise ValueError(
                f"JointCompose: min_coverage must be a share, 0 <= min_coverage < 1, got {min_coverage!r}"
            )
        self.min_coverage = float(min_coverage)
        self.per_box = (per_box,) if isinstance(per_box, str) else tuple(per_box)
        self.keep = (keep,) if isinstance(keep, str) else tuple(keep)
        self._moves = any(map(moves_pixels, self.transforms))
        self._moved = frozenset(("image", *self.keep, *TARGETS))

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        if not isinstance(x, Mapping) or "image" not in x:
            raise TypeError(
                f"JointCompose takes a dict with an image, as {{'image': ..., 'mask': ...}}, got {type(x).__name__}; "
                "pass an image alone to Compose, and (image, boxes) to boxes.Compose"
            )
        sample = dict(x)
        if self._moves:
            self._check_unmoved(sample)
        for name in self._fields(BOXES, sample):
            sample[name] = as_boxes(sample[name])
        for part in self.transforms:
            self._step(part, sample, rng)
        return sample

    def _fields(self, names: Sequence[str], sample: Mapping[str, Any]) -> list[str]:
        return [name for name in names if name in sample and name not in self.keep]

    def _check_unmoved(self, sample: Mapping[str, Any]) -> None:
        """Raise ValueError if a field refers to pixels and would not move with them."""
        height, width = check_image(sample["image"], "JointCompose").shape[:2]
        for name, value in sample.items():
            if name in self._moved:
                continue
            if name in PLACES or refers_to_pixels(value, height, width):
                raise ValueError(
                    f"JointCompose: the image moves, but {name!r}, which refers to its pixels, would not: name masks "
                    "'mask', 'masks' or 'segmentation', boxes 'boxes' or 'bboxes', keypoints 'keypoints' or "
                    f"'keypoint', next to 'image'; if it is to stay, pass keep=({name!r},)"
                )
        if len(self._fields(BOXES, sample)) > 1:
            raise ValueError(
                "JointCompose: the sample has both 'boxes' and 'bboxes': leave one out, or list it in keep"
            )

    def _step(self, part: Any, sample: dict[str, Any], rng: Rng) -> None:
        chain = part._chain()
        if chain is not None:
            for inner in chain if part._drawn(rng) else ():
                self._step(inner, sample, rng)
        elif part._geometric:
            image = check_image(sample["image"], type(part).__name__)
            height, width = image.shape[:2]
            motion = part.motion(height, width, rng)
            sample["image"] = motion.move_image(image, None)
            self._move_targets(sample, motion, (height, width))
        else:
            sample["image"] = bind(part)(sample["image"], rng, None)

    def _move_targets(self, sample: dict[str, Any], motion: Motion, size: tuple[int, int]) -> None:
        """Move the targets of an image of `size`, (height, width)."""
        of_image = set()  # masks of the whole image, not one for each object
        for name in self._fields(MASKS, sample):
            mask = _as_mask(sample[name], name, size)
            channels = (
                mask.ndim == 3 and mask.shape[:2] == size and (mask.shape[1:] != size or name == "mask")
            )
            if channels or mask.ndim == 2:
                of_image.add(name)
            moved = move_masks(mask.transpose(2, 0, 1) if channels else mask, motion)
            sample[name] = moved.transpose(1, 2, 0) if channels else moved
        for name in self._fields(KEYPOINTS, sample):
            sample[name] = move_keypoints(_as_keypoints(sample[name], name), motion)
        for name in self._fields(BOXES, sample):
            count = len(sample[name])
            sample[name], kept = boxes_after(sample[name], motion, self.min_coverage)
            if not kept.all():
                for field, rows in sample.items():
                    if field in ("image", *BOXES, *of_image, *self.keep) or not _has_rows(rows, count):
                        continue
                    if field in self.per_box:
                        sample[field] = np.asarray(rows)[kept]
                    else:
                        warn_caller(
                            f"JointCompose left boxes out, and {field!r}, which has as many rows as there were boxes, "
                            f"keeps all of them: pass per_box= with {field!r} and the other fields of boxes, or "
                            f"keep=({field!r},)",
                            UserWarning,
                        )

    def _parts(self) -> Sequence[Any]:
        return self.transforms


def move_masks(masks: Array, motion: Motion) -> Array:
    """Return masks, (height, width) or (n, height, width), after a motion of the image."""
    planes = masks[:, :, None] if masks.ndim == 2 else masks.transpose(1, 2, 0)
    number = masks.dtype == np.bool_
    if not planes.shape[2]:
        return np.zeros((0, *motion.size), masks.dtype)
    moved = motion.move_mask(planes.view(np.uint8) if number else planes)
    moved = moved.view(np.bool_) if number else moved
    return moved[:, :, 0] if masks.ndim == 2 else moved.transpose(2, 0, 1)


def move_keypoints(keypoints: Array, motion: Motion) -> Array:
    """Return keypoints, (..., 2) or (..., 3), after a motion of the image; floating dtypes are kept."""
    found = keypoints.astype(keypoints.dtype if keypoints.dtype.kind == "f" else np.float32)
    places = move_points(found[..., :2], motion.matrix)
    found[..., :2] = places
    if found.shape[-1] == 3:
        outside = (places < 0).any(-1) | (places >= motion.size[::-1]).any(-1)
        found[outside, 2] = 0
    return found


def _has_rows(value: Any, count: int) -> bool:
    """Return True if a value has a row for each of `count` boxes."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return bool(shape) and shape[0] == count
    return isinstance(value, (list, tuple)) and len(value) == count


def _check_part(part: Any) -> None:
    known = as_transform(part)
    chain = known._chain()
    if chain is not None:
        for inner in chain:
            _check_part(inner)
    elif not known._geometric and not keeps_places(part):
        raise TypeError(
            f"JointCompose: it is not known whether {part!r} moves pixels; use a transform of aioloader.transforms, or "
            "boxes.ImageOnly(...) if it moves none"
        )


def shaped(value: Any) -> Array:
    """Return a value as an array; one of shape () if its parts differ in shape."""
    try:
        return np.asarray(value)
    except ValueError:
        return np.zeros(())


def _as_mask(value: Any, name: str, size: tuple[int, int]) -> Array:
    """Return masks of an image of `size` as an array.

    Raises:
        ValueError: they have another shape.
    """
    mask = shaped(value)
    if mask.shape == (0,):
        return np.zeros((0, *size), np.uint8)
    if mask.ndim not in (2, 3) or size not in (mask.shape[-2:], mask.shape[:2]):
        raise ValueError(
            f"{name} must be (height, width), (n, height, width) or (height, width, channels) of the image, "
            f"{size}, got {_described(value, mask)}"
        )
    return mask


def _as_keypoints(value: Any, name: str) -> Array:
    """Return keypoints as an array.

    Raises:
        ValueError: they have another shape.
    """
    points = shaped(value)
    if points.shape == (0,):
        return np.zeros((0, 2), np.float32)
    if points.ndim < 2 or points.shape[-1] not in (2, 3):
        raise ValueError(
            f"{name} must be (n, k, 2) or (n, k, 3), x, y and visibility, got {_described(value, points)}"
        )
    return points


def _described(value: Any, array: Array) -> str:
    return f"shape {array.shape}" if array.ndim else f"a {type(value).__name__}"
