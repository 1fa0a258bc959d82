"""`mx.image`, also `mx.img`: images (height, width, channels), RGB; sizes are (width, height).

- `decode`: encoded bytes to pixels
- `augmenter`: functions on an image, and augmenters, which are such functions with their arguments
- `create`: the usual list of augmenters
- `iterator`: `ImageIter`
- `det_augmenter`, `det_iterator`: the same for images with boxes

Random choices draw from Python's `random`, a few of them from `numpy.random`, as in MXNet. For new code,
`aioloader.transforms` has the same operations with their own draws.
"""

from __future__ import annotations

from typing import Any

from aioloader.mxnet.image import detection
from aioloader.mxnet.image._sample_steps import BrokenImageError
from aioloader.mxnet.image.augmenter import (
    Augmenter,
    BrightnessJitterAug,
    CastAug,
    CenterCropAug,
    ColorJitterAug,
    ColorNormalizeAug,
    ContrastJitterAug,
    CreateAugmenter,
    ForceResizeAug,
    HorizontalFlipAug,
    HueJitterAug,
    LightingAug,
    RandomCropAug,
    RandomGrayAug,
    RandomOrderAug,
    RandomSizedCropAug,
    ResizeAug,
    SaturationJitterAug,
    SequentialAug,
    center_crop,
    color_normalize,
    copyMakeBorder,
    fixed_crop,
    imresize,
    imrotate,
    random_crop,
    random_rotate,
    random_size_crop,
    resize_short,
    scale_down,
)
from aioloader.mxnet.image.augmenter import _get_interp_method as _get_interp_method
from aioloader.mxnet.image.decode import ImageDecodeError, imdecode, imread
from aioloader.mxnet.image.detection import (
    CreateDetAugmenter,
    CreateMultiRandCropAugmenter,
    DetAugmenter,
    DetBorrowAug,
    DetectionLabelError,
    DetHorizontalFlipAug,
    DetRandomCropAug,
    DetRandomPadAug,
    DetRandomSelectAug,
    ImageDetIter,
)
from aioloader.mxnet.image.iterator import ImageIter
from aioloader.mxnet.outside import module_elsewhere

det = detection


def __getattr__(name: str) -> Any:
    return module_elsewhere(__name__, name)


__all__ = (
    "Augmenter",
    "BrightnessJitterAug",
    "BrokenImageError",
    "CastAug",
    "CenterCropAug",
    "ColorJitterAug",
    "ColorNormalizeAug",
    "ContrastJitterAug",
    "CreateAugmenter",
    "CreateDetAugmenter",
    "CreateMultiRandCropAugmenter",
    "DetAugmenter",
    "DetBorrowAug",
    "DetHorizontalFlipAug",
    "DetRandomCropAug",
    "DetRandomPadAug",
    "DetRandomSelectAug",
    "DetectionLabelError",
    "ForceResizeAug",
    "HorizontalFlipAug",
    "HueJitterAug",
    "ImageDecodeError",
    "ImageDetIter",
    "ImageIter",
    "LightingAug",
    "RandomCropAug",
    "RandomGrayAug",
    "RandomOrderAug",
    "RandomSizedCropAug",
    "ResizeAug",
    "SaturationJitterAug",
    "SequentialAug",
    "center_crop",
    "color_normalize",
    "copyMakeBorder",
    "det",
    "detection",
    "fixed_crop",
    "imdecode",
    "imread",
    "imresize",
    "imrotate",
    "random_crop",
    "random_rotate",
    "random_size_crop",
    "resize_short",
    "scale_down",
)
