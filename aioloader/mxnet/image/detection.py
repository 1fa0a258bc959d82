"""`mx.image.detection`, also `mx.image.det`: augmenters and the iterator for images with boxes."""

from aioloader.mxnet.image.det_augmenter import (
    CreateDetAugmenter,
    CreateMultiRandCropAugmenter,
    DetAugmenter,
    DetBorrowAug,
    DetHorizontalFlipAug,
    DetRandomCropAug,
    DetRandomPadAug,
    DetRandomSelectAug,
)
from aioloader.mxnet.image.det_iterator import ImageDetIter
from aioloader.mxnet.io.augment import DetectionLabelError

__all__ = (
    "CreateDetAugmenter",
    "CreateMultiRandCropAugmenter",
    "DetAugmenter",
    "DetBorrowAug",
    "DetHorizontalFlipAug",
    "DetRandomCropAug",
    "DetRandomPadAug",
    "DetRandomSelectAug",
    "DetectionLabelError",
    "ImageDetIter",
)
