"""MixUp and CutMix of batches, by torchvision's names, arguments and results.

They are for batches: pass them to `aioloader.batchify.Compose`, which runs them in a worker. Each sample is mixed with
the one before it, the first with the last one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from aioloader.foundation.pytree import flatten, unflatten
from aioloader.foundation.validation import advises
from aioloader.rng import Rng, default_rng
from aioloader.transforms.base import Transform
from aioloader.transforms.boxes.base import TARGETS
from aioloader.transforms.erasing import channels_first

if TYPE_CHECKING:
    from aioloader.foundation.types import Array

LabelsGetter: TypeAlias = str | int | Callable[[Any], Any]
"""Place of the labels in a batch, a function that returns them, or "default"."""

_FLOAT32 = np.dtype(np.float32)
_HOW = "pass batchify_fn=batchify.Compose(batchify.Stack(), {name}(...)) to a loader"


_OTHERS = {
    "p": "every batch is mixed; for some of them, make the labels float32 (n, classes) and use RandomApply(..., p=p)",
    "inplace": "the loader decides when a batch may be altered; leave it out",
}
"""Arguments of the classes in torchvision's reference scripts, and what to use instead."""


class _Mixing(Transform, ABC):
    """Base of the two: what they do with labels, and how they find labels and images in a batch."""

    @advises(_OTHERS)
    def __init__(
        self, *, alpha: float = 1.0, num_classes: int | None = None, labels_getter: LabelsGetter = "default"
    ) -> None:
        name = type(self).__name__
        if not 0 < alpha < math.inf:
            raise ValueError(f"{name}: alpha must be above 0, got {alpha!r}")
        if num_classes is not None and num_classes < 1:
            raise ValueError(f"{name}: num_classes must be at least 1, got {num_classes!r}")
        self.alpha = float(alpha)
        self.num_classes = None if num_classes is None else int(num_classes)
        self.labels_getter = labels_getter

    def __call__(self, x: Any, /, *rest: Any, rng: Rng | None = None) -> Any:
        """Return the mixed batch.

        Args:
            x: the batch; not altered.
            *rest: if any, `x` and these are the elements of the batch, as in ``mixup(images, labels)``.
            rng: source of the draws; None: see `aioloader.rng.default_rng`.
        """
        return self.apply((x, *rest) if rest else x, default_rng() if rng is None else rng)

    def apply(self, x: Any, rng: Rng, out: Any = None) -> Any:
        """Return the mixed batch.

        Args:
            x: the batch; its images are altered only if they are in `out`.
            rng: source of the draws.
            out: a structure like the batch's, with the images if their memory may be written to, else None.
        """
        targets = [name for name in TARGETS if name in x] if isinstance(x, Mapping) else []
        if targets:
            raise ValueError(
                f"{type(self).__name__} mixes images and labels only, and the batch has {targets[0]!r}: leave it "
                "out of the samples"
            )
        structure, leaves = flatten(x)
        labels = self._labels(x)
        place = next(
            (place for place, leaf in enumerate(leaves) if leaf is not labels and np.ndim(leaf) >= 3), None
        )
        if place is None or not isinstance(leaves[place], np.ndarray):
            raise ValueError(
                f"{type(self).__name__} found no images in the batch: an array of at least three axes; if a sample is "
                f"a dict or has several arrays, the first one is taken as the images"
            )
        images = leaves[place]
        if len(images) != len(labels):
            raise ValueError(
                f"{type(self).__name__}: there are {len(images)} images and {len(labels)} labels; pass "
                "labels_getter= to say which field has the labels"
            )
        if images.dtype != np.uint8 and images.dtype.kind != "f":
            raise TypeError(f"{type(self).__name__} takes uint8 or floating images, got {images.dtype}")
        lent = None if out is None else flatten(out)[1][place]
        result, share = self._mix(images, rng, images if lent is images else None)
        mixed = mix_labels(labels, self.num_classes, share, type(self).__name__)
        found = [mixed if leaf is labels else result if leaf is images else leaf for leaf in leaves]
        return unflatten(structure, found)

    @abstractmethod
    def _mix(self, images: Array, rng: Rng, out: Array | None) -> tuple[Array, float]:
        """Return the images, and the share of each sample's own label.

        Args:
            images: uint8 or floating (n, ...).
            rng: source of the draws.
            out: the images, if they may be written over; else None.
        """

    def _labels(self, batch: Any) -> Array:
        name, getter = type(self).__name__, self.labels_getter
        if callable(getter):
            labels = getter(batch)
        elif getter != "default":
            labels = batch[getter]
        elif isinstance(batch, Mapping):
            keys = [key for key in batch if isinstance(key, str) and "label" in key.lower()]
            keys.sort(key=lambda key: key.lower() not in ("label", "labels"))
            labels = batch[keys[0]] if keys else None
        elif isinstance(batch, (tuple, list)) and len(batch) > 1:
            labels = batch[1]
        else:
            labels = None
        if not isinstance(labels, np.ndarray) or labels.ndim not in (1, 2):
            found = f"of shape {labels.shape}" if isinstance(labels, np.ndarray) else type(labels).__name__
            raise ValueError(
                f"{name} mixes batches, (images, labels) or a dict with 'label', and takes labels (n,) or "
                f"(n, classes), got {found}; {_HOW.format(name=name)}, and say where the labels are by labels_getter="
            )
        return labels


class MixUp(_Mixing):
    """Batch whose samples are mixed, each with the one before it, with one drawn weight (Zhang et al., 2017).

    Floating images are computed as torchvision's, bit for bit. uint8 images, which torchvision refuses, are summed up
    in float32 and rounded to the nearest level. Labels become float32 (n, num_classes), or keep the dtype if they are
    floating already.

    Draws: the weight, of a beta distribution (see `aioloader.rng.Rng.beta`).

    Args:
        alpha: both parameters of the distribution, above 0.
        num_classes: number of classes; None only for labels (n, classes).
        labels_getter: key or place of the labels in the batch, or a function that returns them of it; "default": the
            second element, or the field of a dict whose name has "label" in it.

    Raises:
        ValueError: an argument is out of its range; or, when it is applied, there are no images or labels in the batch,
            or a label is not below `num_classes`.
        TypeError: when it is applied, images are neither uint8 nor floating.
    """

    def _mix(self, images: Array, rng: Rng, out: Array | None) -> tuple[Array, float]:
        share = rng.beta(self.alpha, self.alpha)
        return mix_images(images, share, out), share


class CutMix(_Mixing):
    """Batch in which a drawn rectangle of each image is that of the image before it (Yun et al., 2019).

    The results are torchvision's. Labels are mixed by the rectangle's share of the area, and become float32
    (n, num_classes), or keep the dtype if they are floating already. Images may be (n, height, width, channels) or
    (n, channels, height, width): the axis of the channels is the last one, unless it has more than 4 values.

    Draws: the rectangle's share, of a beta distribution, then x and y of its centre.

    Args:
        alpha: both parameters of the distribution, above 0.
        num_classes: number of classes; None only for labels (n, classes).
        labels_getter: key or place of the labels in the batch, or a function that returns them of it; "default": the
            second element, or the field of a dict whose name has "label" in it.

    Raises:
        ValueError: an argument is out of its range; or, when it is applied, there are no images or labels in the batch,
            or a label is not below `num_classes`.
        TypeError: when it is applied, images are neither uint8 nor floating.
    """

    def _mix(self, images: Array, rng: Rng, out: Array | None) -> tuple[Array, float]:
        if images.ndim < 4:
            raise ValueError(f"CutMix takes images (n, height, width, channels), got shape {images.shape}")
        first = channels_first(images.reshape(-1, *images.shape[-3:])[0]) if images.size else False
        height, width = images.shape[-2:] if first else images.shape[-3:-1]
        box = self.rectangle(height, width, rng)
        left, top, right, bottom = box
        share = 1.0 - (right - left) * (bottom - top) / (width * height)
        rows, columns = slice(top, bottom), slice(left, right)
        place = (..., rows, columns) if first else (..., rows, columns, slice(None))
        result = images.copy() if out is None else out
        last = images[-1:][place].copy()[0]
        # From the last one on: the one before is still what it was.
        for number in range(len(images) - 1, 0, -1):
            result[number][place] = images[number - 1][place]
        result[0][place] = last
        return result, share

    def rectangle(self, height: int, width: int, rng: Rng) -> tuple[int, int, int, int]:
        """Draw (left, top, right, bottom) in pixels, the latter two exclusive; it may be empty."""
        half = 0.5 * math.sqrt(1.0 - rng.beta(self.alpha, self.alpha))
        x, y = rng.integers(width), rng.integers(height)
        wide, high = int(half * width), int(half * height)
        return max(0, x - wide), max(0, y - high), min(width, x + wide), min(height, y + high)


def mix_images(images: Array, share: float, out: Array | None = None) -> Array:
    """Mix each image with the one before it, the first with the last one.

    Args:
        images: uint8 or floating (n, ...).
        share: weight of each image; that of the other one is 1 - share.
        out: the images themselves, to be written over, or None.
    """
    result = np.empty_like(images) if out is None else out
    if not images.size:
        return result
    last = images[-1].copy() if result is images else images[-1]
    blend = _blend_levels if images.dtype == np.uint8 else _blend_numbers
    # From the last one on: the one before is still what it was.
    for place in range(len(images) - 1, 0, -1):
        blend(images[place], images[place - 1], share, result[place])
    blend(images[0], last, share, result[0])
    return result


def _blend_numbers(x: Array, other: Array, share: float, out: Array) -> None:
    # Each product is rounded, and then the sum, as torch does; half precision is computed with more.
    wide = x.dtype if x.dtype.itemsize >= 4 else _FLOAT32
    part = np.multiply(other, wide.type(1.0 - share), dtype=wide).astype(x.dtype, copy=False)
    own = np.multiply(x, wide.type(share), dtype=wide).astype(x.dtype, copy=False)
    np.add(part, own, out=out)


def _blend_levels(x: Array, other: Array, share: float, out: Array) -> None:
    import cv2

    x, other = (np.ascontiguousarray(each).reshape(len(each), -1) for each in (x, other))
    mixed = cv2.addWeighted(x, share, other, 1.0 - share, 0.0)
    out[...] = mixed.reshape(out.shape)


def mix_labels(labels: Array, num_classes: int | None, share: float, name: str = "MixUp") -> Array:
    """Return the probabilities of the classes after mixing each sample with the one before it.

    Args:
        labels: whole numbers (n,), or (n, classes).
        num_classes: number of classes; None only for labels (n, classes).
        share: weight of each sample's own label.
        name: the transform's name, for errors.

    Raises:
        ValueError: a label is not a class, or the number of classes is missing or wrong.
    """
    if labels.ndim == 1:
        if num_classes is None:
            raise ValueError(f"{name}: num_classes must be passed for labels that are numbers of classes")
        if labels.dtype.kind not in "iu":
            raise ValueError(f"{name}: labels (n,) must be whole numbers, the classes, got {labels.dtype}")
        if len(labels) and not 0 <= labels.min() <= labels.max() < num_classes:
            wrong = labels[(labels < 0) | (labels >= num_classes)][0]
            raise ValueError(f"{name}: label {wrong} is not below num_classes={num_classes}")
        chosen = np.zeros((len(labels), num_classes), np.float32)
        chosen[np.arange(len(labels)), labels] = 1
        labels = chosen
    elif num_classes is not None and labels.shape[1] != num_classes:
        raise ValueError(f"{name}: labels have {labels.shape[1]} classes, and num_classes is {num_classes}")
    elif labels.dtype.kind != "f":
        labels = labels.astype(np.float32)
    result = np.empty_like(labels)
    if len(labels):
        _blend_numbers(labels, np.roll(labels, 1, 0), share, result)
    return result
