"""Augmentation of `ImageDetRecordIter`: an image and its boxes, one step after the other.

Order (MXNet's): resize, colours, mirror, pad, crop, the final size, normalisation. Every step with a probability draws
once to decide whether it happens, regardless of its probability.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.mxnet.io.det_boxes import CropLimits, LabelPadError, ObjectLabel, Rect
from aioloader.rng import Rng, default_rng
from aioloader.transforms.color import shift_hls
from aioloader.transforms.geometry import RandomHorizontalFlip
from aioloader.transforms.gluon_geometry import Resize
from aioloader.transforms.interpolation import resize_image, settle
from aioloader.transforms.planes import ToPlanes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioloader.foundation.types import Array

# A canvas that is hardly larger than the image does not justify padding.
_LEAST_PADDING = 1.05
_LIMITS = ("overlaps", "sample_coverages", "object_coverages")


class DetectionAugment:
    """Transform of (image, label, ...) of a record to the delivered values; the rest of the sample is kept.

    Args:
        values: the iterator's arguments by name; tuples of the crop samplers are `num_crop_sampler` long.
        label_width: numbers of a padded label, without the four in front.
        mean: mean image, float32 (channels, height, width), or None.
    """

    def __init__(self, values: Mapping[str, Any], label_width: int, mean: Array | None = None) -> None:
        self._values = dict(values)
        self._label_width = label_width
        self._channels, self._height, self._width = values["data_shape"]
        self._interpolation = values["inter_method"]
        self._resize = (
            None if values["resize"] <= 0 else Resize(values["resize"], True, values["inter_method"])
        )
        self._flip = RandomHorizontalFlip(1.0)
        self._std = np.array([values[f"std_{c}"] or 1.0 for c in "rgba"], np.float32)
        means = [values[f"mean_{c}"] for c in "rgba"] if mean is None else mean
        self._finish = ToPlanes(means, scale=values["scale"])

    def __call__(self, image: Array, label: Array, *rest: Any, rng: Rng | None = None) -> tuple[Any, ...]:
        """Return the planes, float32 (channels, height, width), and the label row, float32 (4 + label_width,).

        Args:
            image: uint8 (height, width, channels); not altered.
            label: float32 (n,), see `ObjectLabel`.
            rest: passed on unchanged.
            rng: the sample's draws; None for a stream of this thread.
        """
        draws = default_rng() if rng is None else rng
        boxes = ObjectLabel(label)
        x = image if self._resize is None else self._resize.apply(image, draws)
        x = self._colours(x, draws)
        if self._happens("rand_mirror_prob", draws):
            x = self._flip.flip(x)
            boxes.mirror()
        x = self._pad(x, boxes, draws)
        x = self._crop(x, boxes, draws)
        x = self._sized(x, draws)
        return self._planes(x, draws), self._row(x, boxes), *rest

    def _happens(self, name: str, rng: Rng) -> bool:
        return rng.random() < float(self._values[name])

    def _colours(self, x: Array, rng: Rng) -> Array:
        shifts = []
        for name in ("hue", "saturation", "illumination"):
            most = self._values[f"max_random_{name}"]
            happens = self._happens(f"random_{name}_prob", rng)
            shifts.append(rng.integers(-most, most + 1) if happens else 0)
        happens = self._happens("random_contrast_prob", rng)
        most = self._values["max_random_contrast"]
        contrast = rng.uniform(-most, most) if happens else 0.0
        hue, saturation, light = shifts
        if hue or saturation or light:
            x = shift_hls(x, hue, light, saturation)
        if contrast:
            import cv2

            factor = np.float32(1 + contrast)
            x = cv2.LUT(x, np.clip(np.rint(np.arange(256) * factor), 0, 255).astype(np.uint8)).reshape(
                x.shape
            )
        return x

    def _pad(self, x: Array, boxes: ObjectLabel, rng: Rng) -> Array:
        if not self._happens("rand_pad_prob", rng):
            return x
        scale = rng.uniform(1.0, self._values["max_pad_scale"])
        left, top = rng.uniform(0.0, scale - 1), rng.uniform(0.0, scale - 1)
        if scale < _LEAST_PADDING:
            return x
        rows, columns, channels = x.shape
        result = np.full(
            (_nearest(scale * rows), _nearest(scale * columns), channels),
            self._values["fill_value"],
            np.uint8,
        )
        # The boxes follow the pixels, which are at whole places.
        column, row = _nearest(left * columns), _nearest(top * rows)
        result[row : row + rows, column : column + columns] = x
        height, width = result.shape[:2]
        boxes.frame(Rect(-column / columns, -row / rows, width / columns, height / rows))
        return result

    def _crop(self, x: Array, boxes: ObjectLabel, rng: Rng) -> Array:
        if not self._happens("rand_crop_prob", rng):
            return x
        values = self._values
        for number in rng.permutation(values["num_crop_sampler"]):
            limits = CropLimits(
                *(
                    (values[f"min_crop_{name}"][number], values[f"max_crop_{name}"][number])
                    for name in _LIMITS
                )
            )
            for _ in range(values["max_crop_trials"][number]):
                rect = self._crop_box(x.shape[1] / x.shape[0], number, rng)
                left, top, width, height = _in_pixels(rect, x.shape[1], x.shape[0])
                if not (width and height):
                    continue
                rows, columns = x.shape[:2]
                cut = Rect(left / columns, top / rows, width / columns, height / rows)
                if boxes.crop(rect, limits, values["crop_emit_mode"], values["emit_overlap_thresh"], cut):
                    return x[top : top + height, left : left + width]
        return x

    def _crop_box(self, shape: float, number: int, rng: Rng) -> Rect:
        """Return a rectangle of random scale, width/height and place.

        Args:
            shape: width/height of the image.
            number: of the crop sampler.
            rng: four draws.
        """
        values = self._values
        scale = rng.uniform(values["min_crop_scales"][number], values["max_crop_scales"][number]) + 1e-12
        least = max(values["min_crop_aspect_ratios"][number] / shape, scale * scale)
        greatest = min(values["max_crop_aspect_ratios"][number] / shape, 1 / (scale * scale))
        ratio = math.sqrt(rng.random() * (greatest - least) + least)
        width, height = min(1.0, scale * ratio), min(1.0, scale / ratio)
        return Rect(rng.random() * (1 - width), rng.random() * (1 - height), width, height)

    def _sized(self, x: Array, rng: Rng) -> Array:
        rows, columns = x.shape[:2]
        mode = self._values["resize_mode"]
        width, height = self._width, self._height
        if mode == "shrink" and rows <= height and columns <= width:
            return x
        if mode != "force":
            ratio = min(np.float32(height) / np.float32(rows), np.float32(width) / np.float32(columns))
            width = min(width, max(1, int(ratio * np.float32(columns))))
            height = min(height, max(1, int(ratio * np.float32(rows))))
        return resize_image(x, (height, width), settle(self._interpolation, rng))

    def _planes(self, x: Array, rng: Rng) -> Array:
        rows, columns, channels = x.shape
        if (rows, columns) != (self._height, self._width):
            whole = np.zeros((self._height, self._width, channels), np.uint8)
            whole[:rows, :columns] = x
            x = whole
        planes: Array = self._finish.apply(x, rng)
        # This order differs in the last bit from that of `ImageRecordIter`.
        if (self._std != 1).any():
            planes /= self._std[:channels, None, None]
        return planes

    def _row(self, x: Array, boxes: ObjectLabel) -> Array:
        label = boxes.values()
        if len(label) > self._label_width:
            raise LabelPadError(self._label_width, len(label))
        row = np.full(4 + self._label_width, self._values["label_pad_value"], np.float32)
        row[:4] = self._channels, x.shape[0], x.shape[1], len(label)
        row[4 : 4 + len(label)] = label
        return row


def _in_pixels(rect: Rect, columns: int, rows: int) -> tuple[int, int, int, int]:
    """Return (x, y, width, height) in whole pixels; an extent may be 0."""
    left, top = _nearest(rect.x * columns), _nearest(rect.y * rows)
    right, bottom = _nearest((rect.x + rect.width) * columns), _nearest((rect.y + rect.height) * rows)
    return left, top, right - left, bottom - top


def _nearest(value: float) -> int:
    # The same for all fractions, unlike `round`, so that a box that fits before fits afterwards.
    return math.floor(value + 0.5)
