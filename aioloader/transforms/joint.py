"""Transforms of a sample that is a dict: the image, and the boxes, masks and keypoints in it, with one draw for all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.rng import Rng, default_rng
from aioloader.transforms.base import Compose, RandomApply, Transform, bind, check_image
from aioloader.transforms.boxes.base import ImageOnly, keeps_places
from aioloader.transforms.boxes.geometry import as_boxes, boxes_after, move_points
from aioloader.transforms.motion import GeometricTransform

if TYPE_CHECKING:
    from aioloader.foundation.types import Array
    from aioloader.transforms.motion import Motion

_PER_BOX = ("label", "labels", "masks", "keypoints")


class JointCompose(Transform):
    """Chain of transforms of a sample with the targets in its image; every draw is made once, for all of them.

    A sample is a dict; other fields than these are kept:

    - "image": (height, width, channels).
    - "boxes": (n, 4 + k), xmin, ymin, xmax, ymax in pixels from the upper left corner, the maxima exclusive, and
      columns that are kept. Where a transform cuts, boxes are clipped, and those of which too little remains are left
      out.
    - "masks": (height, width) or (n, height, width), any dtype. No values are mixed; places from outside are 0.
    - "keypoints": (n, k, 2) or (n, k, 3), x and y in pixels, the centre of the first pixel is (0.5, 0.5), and
      visibility, which becomes 0 for points outside of the image. Points are not clipped.

    Draws: those of the transforms, in order, as for an image alone.

    Args:
        transforms: geometric transforms of `aioloader.transforms`, which move image and targets; its colour transforms,
            `RandomErasing`, `Cast`, `ToTensor` and `Normalize`, which change the image; `RandomApply` of these; other
            callables within `ImageOnly`.
        min_coverage: a box is kept if more than this share of its area is in the result of each transform that cuts.
        per_box: fields with one row per box, which are left out with it: those that have as many rows as there are
            boxes, if there are boxes.

    Raises:
        TypeError: it is not known whether a transform moves pixels, or, when it is applied, a sample is not a dict.
        ValueError: `min_coverage` is not a share; or, when it is applied, a field has a wrong shape.
    """

    def __init__(
        self, transforms: Iterable[Any], min_coverage: float = 0.0, per_box: Sequence[str] = _PER_BOX
    ) -> None:
        self.transforms = tuple(inner for part in transforms for inner in _flat(part))
        for part in self.transforms:
            _check_part(part)
        if not 0.0 <= min_coverage < 1.0:
            raise ValueError(
                f"JointCompose: min_coverage must be a share, 0 <= min_coverage < 1, got {min_coverage!r}"
            )
        self.min_coverage = float(min_coverage)
        self.per_box = tuple(per_box)

    def __call__(self, x: Any, /, *, rng: Rng | None = None) -> Any:
        """Return the transformed sample, a new dict; `x` and its arrays are not altered."""
        return self.apply(x, default_rng() if rng is None else rng)

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        if not isinstance(x, Mapping) or "image" not in x:
            raise TypeError(
                f"JointCompose takes a dict with an image, as {{'image': ..., 'boxes': ...}}, got {type(x).__name__}; "
                "pass an image alone to Compose, and (image, boxes) to boxes.Compose"
            )
        sample = dict(x)
        if "boxes" in sample:
            sample["boxes"] = as_boxes(sample["boxes"])
        for part in self.transforms:
            self._step(part, sample, rng)
        return sample

    def _step(self, part: Any, sample: dict[str, Any], rng: Rng) -> None:
        if isinstance(part, RandomApply):
            if rng.random() < part.p:
                for inner in _flat(part.transforms):
                    self._step(inner, sample, rng)
        elif isinstance(part, GeometricTransform):
            image = check_image(sample["image"], type(part).__name__)
            height, width = image.shape[:2]
            _check_targets(sample, height, width)
            motion = part.motion(height, width, rng)
            sample["image"] = motion.move_image(image, None)
            self._move_targets(sample, motion)
        else:
            call = part.transform if isinstance(part, ImageOnly) else part
            sample["image"] = bind(call)(sample["image"], rng, None)

    def _move_targets(self, sample: dict[str, Any], motion: Motion) -> None:
        if "masks" in sample:
            sample["masks"] = move_masks(np.asarray(sample["masks"]), motion)
        if "keypoints" in sample:
            sample["keypoints"] = move_keypoints(np.asarray(sample["keypoints"]), motion)
        if "boxes" in sample:
            count = len(sample["boxes"])
            sample["boxes"], kept = boxes_after(sample["boxes"], motion, self.min_coverage)
            if not kept.all():
                for name in self.per_box:
                    rows: Any = sample.get(name)
                    if name == "masks" and np.ndim(rows) == 2:
                        continue
                    if rows is not None and np.ndim(rows) and len(rows) == count:
                        sample[name] = np.asarray(rows)[kept]

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


def _check_part(part: Any) -> None:
    if isinstance(part, RandomApply):
        for inner in _flat(part.transforms):
            _check_part(inner)
    elif not isinstance(part, (GeometricTransform, ImageOnly)) and not keeps_places(part):
        raise TypeError(
            f"JointCompose: it is not known whether {part!r} moves pixels; use a transform of aioloader.transforms, or "
            "boxes.ImageOnly(...) if it moves none"
        )


def _flat(part: Any) -> list[Any]:
    """Return the transforms of a chain, or the one transform."""
    if isinstance(part, Compose):
        return [inner for each in part.transforms for inner in _flat(each)]
    return [part]


def _check_targets(sample: Mapping[str, Any], height: int, width: int) -> None:
    """Raise ValueError if masks or keypoints cannot be those of an image of these extents."""
    if "masks" in sample:
        shape = np.shape(sample["masks"])
        if len(shape) not in (2, 3) or shape[-2:] != (height, width):
            raise ValueError(
                f"masks must be (height, width) or (n, height, width) of the image, ({height}, {width}), got shape "
                f"{shape}"
            )
    if "keypoints" in sample:
        shape = np.shape(sample["keypoints"])
        if len(shape) < 2 or shape[-1] not in (2, 3):
            raise ValueError(
                f"keypoints must be (n, k, 2) or (n, k, 3), x, y and visibility, got shape {shape}"
            )
