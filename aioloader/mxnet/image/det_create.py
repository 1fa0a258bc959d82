"""`CreateDetAugmenter` and `CreateMultiRandCropAugmenter`: lists of augmenters for detection from a few numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.foundation.validation import require
from aioloader.mxnet.image.augmenter import ForceResizeAug, ResizeAug
from aioloader.mxnet.image.create import finishing
from aioloader.mxnet.image.det_augmenter import (
    DetBorrowAug,
    DetHorizontalFlipAug,
    DetRandomCropAug,
    DetRandomPadAug,
    DetRandomSelectAug,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.mxnet.image.det_augmenter import DetAugmenter

__all__ = ("CreateDetAugmenter", "CreateMultiRandCropAugmenter")


def CreateMultiRandCropAugmenter(
    min_object_covered: Any = 0.1,
    aspect_ratio_range: Any = (0.75, 1.33),
    area_range: Any = (0.05, 1.0),
    min_eject_coverage: Any = 0.3,
    max_attempts: Any = 50,
    skip_prob: float = 0,
) -> DetRandomSelectAug:
    """Return a random choice between several `DetRandomCropAug`, drawn for each image.

    Args:
        min_object_covered, aspect_ratio_range, area_range, min_eject_coverage, max_attempts: as for `DetRandomCropAug`;
            a list has one value for each of them, anything else (a tuple too) is the value for all.
        skip_prob: probability that the image is not cropped.

    Raises:
        ValueError: lists of different lengths (an AssertionError too).
    """
    given = (min_object_covered, aspect_ratio_range, area_range, min_eject_coverage, max_attempts)
    lists = [value if isinstance(value, list) else [value] for value in given]
    count = max(map(len, lists))
    require(
        all(len(values) in (1, count) for values in lists),
        f"lists must have one length, or one value for all, got {[len(values) for values in lists]}",
    )
    aligned = [values * count if len(values) == 1 else values for values in lists]
    return DetRandomSelectAug([DetRandomCropAug(*row) for row in zip(*aligned, strict=True)], skip_prob)


def CreateDetAugmenter(
    data_shape: Sequence[int],
    resize: int = 0,
    rand_crop: float = 0,
    rand_pad: float = 0,
    rand_gray: float = 0,
    rand_mirror: bool = False,
    mean: Any = None,
    std: Any = None,
    brightness: float = 0,
    contrast: float = 0,
    saturation: float = 0,
    pca_noise: float = 0,
    hue: float = 0,
    inter_method: int = 2,
    min_object_covered: Any = 0.1,
    aspect_ratio_range: Any = (0.75, 1.33),
    area_range: Any = (0.05, 3.0),
    min_eject_coverage: Any = 0.3,
    max_attempts: Any = 50,
    pad_val: Any = (127, 127, 127),
) -> list[DetAugmenter]:
    """Return augmenters: resize, crop, mirror, pad, resize to `data_shape`, cast to float32, colours, normalise.

    Args:
        data_shape: (channels, height, width) of the result.
        resize: pixels of the shorter side before all other steps; 0: do not resize.
        rand_crop, rand_pad: probability of a crop and of a larger canvas; 0: never.
        rand_gray: probability of `RandomGrayAug`.
        rand_mirror: exchange left and right with probability 0.5.
        mean, std: True for ImageNet's, or 1 or 3 numbers; None: no normalisation.
        brightness, contrast, saturation, pca_noise, hue: amounts of the augmenters of these names; 0: without.
        inter_method: as for `imresize`.
        min_object_covered, min_eject_coverage: see `CreateMultiRandCropAugmenter`.
        aspect_ratio_range, max_attempts: the same, also for the canvas.
        area_range: the same; the greatest is that of the canvas too.
        pad_val: see `DetRandomPadAug`.
    """
    found: list[DetAugmenter] = []
    if resize > 0:
        found.append(DetBorrowAug(ResizeAug(resize, inter_method)))
    if rand_crop > 0:
        found.append(
            CreateMultiRandCropAugmenter(
                min_object_covered,
                aspect_ratio_range,
                area_range,
                min_eject_coverage=min_eject_coverage,
                max_attempts=max_attempts,
                skip_prob=1 - rand_crop,
            )
        )
    if rand_mirror:
        found.append(DetHorizontalFlipAug(0.5))
    if rand_pad > 0:
        pad = DetRandomPadAug(
            _widest(aspect_ratio_range), (1.0, _widest(area_range)[1]), _most(max_attempts), pad_val
        )
        found.append(DetRandomSelectAug([pad], 1 - rand_pad))
    size = (int(data_shape[2]), int(data_shape[1]))
    borrowed = [
        ForceResizeAug(size, inter_method),
        *finishing(
            brightness=brightness,
            contrast=contrast,
            saturation=saturation,
            hue=hue,
            pca_noise=pca_noise,
            rand_gray=rand_gray,
            mean=mean,
            std=std,
            dtype=np.float64,
        ),
    ]
    return [*found, *map(DetBorrowAug, borrowed)]


def _widest(ranges: Any) -> tuple[float, float]:
    """Return the range that contains all ranges of a list; a single number is both of its ends."""
    pairs = [
        pair if isinstance(pair, tuple | list) else (pair, pair)
        for pair in (ranges if isinstance(ranges, list) and not _is_pair(ranges) else [ranges])
    ]
    return min(low for low, _ in pairs), max(high for _, high in pairs)


def _is_pair(value: list[Any]) -> bool:
    return len(value) == 2 and not any(isinstance(part, tuple | list) for part in value)


def _most(attempts: Any) -> int:
    return max(attempts) if isinstance(attempts, list) else int(attempts)
