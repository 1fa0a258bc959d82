"""`mx.image`, also `mx.img`: images (height, width, channels), RGB; sizes are (width, height).

- `decode`: encoded bytes to pixels
- `augmenter`: functions on an image, augmenters, which are such functions with their arguments, and the usual list
- `iterator`: `ImageIter`
- `detection`: the same for images with boxes

Random choices draw from Python's `random`, a few of them from `numpy.random`, as in MXNet. For new code,
`aioloader.transforms` has the same operations with their own draws.
"""

from __future__ import annotations

from typing import Any

from aioloader.mxnet.base import exported as _exported
from aioloader.mxnet.image import detection as detection
from aioloader.mxnet.image._sample_steps import BrokenImageError as BrokenImageError
from aioloader.mxnet.image.augmenter import Augmenter as Augmenter
from aioloader.mxnet.image.augmenter import BrightnessJitterAug as BrightnessJitterAug
from aioloader.mxnet.image.augmenter import CastAug as CastAug
from aioloader.mxnet.image.augmenter import CenterCropAug as CenterCropAug
from aioloader.mxnet.image.augmenter import ColorJitterAug as ColorJitterAug
from aioloader.mxnet.image.augmenter import ColorNormalizeAug as ColorNormalizeAug
from aioloader.mxnet.image.augmenter import ContrastJitterAug as ContrastJitterAug
from aioloader.mxnet.image.augmenter import CreateAugmenter as CreateAugmenter
from aioloader.mxnet.image.augmenter import ForceResizeAug as ForceResizeAug
from aioloader.mxnet.image.augmenter import HorizontalFlipAug as HorizontalFlipAug
from aioloader.mxnet.image.augmenter import HueJitterAug as HueJitterAug
from aioloader.mxnet.image.augmenter import LightingAug as LightingAug
from aioloader.mxnet.image.augmenter import RandomCropAug as RandomCropAug
from aioloader.mxnet.image.augmenter import RandomGrayAug as RandomGrayAug
from aioloader.mxnet.image.augmenter import RandomOrderAug as RandomOrderAug
from aioloader.mxnet.image.augmenter import RandomSizedCropAug as RandomSizedCropAug
from aioloader.mxnet.image.augmenter import ResizeAug as ResizeAug
from aioloader.mxnet.image.augmenter import SaturationJitterAug as SaturationJitterAug
from aioloader.mxnet.image.augmenter import SequentialAug as SequentialAug
from aioloader.mxnet.image.augmenter import _get_interp_method as _get_interp_method
from aioloader.mxnet.image.augmenter import center_crop as center_crop
from aioloader.mxnet.image.augmenter import color_normalize as color_normalize
from aioloader.mxnet.image.augmenter import copyMakeBorder as copyMakeBorder
from aioloader.mxnet.image.augmenter import fixed_crop as fixed_crop
from aioloader.mxnet.image.augmenter import imresize as imresize
from aioloader.mxnet.image.augmenter import imrotate as imrotate
from aioloader.mxnet.image.augmenter import random_crop as random_crop
from aioloader.mxnet.image.augmenter import random_rotate as random_rotate
from aioloader.mxnet.image.augmenter import random_size_crop as random_size_crop
from aioloader.mxnet.image.augmenter import resize_short as resize_short
from aioloader.mxnet.image.augmenter import scale_down as scale_down
from aioloader.mxnet.image.decode import ImageDecodeError as ImageDecodeError
from aioloader.mxnet.image.decode import imdecode as imdecode
from aioloader.mxnet.image.decode import imread as imread
from aioloader.mxnet.image.detection import CreateDetAugmenter as CreateDetAugmenter
from aioloader.mxnet.image.detection import CreateMultiRandCropAugmenter as CreateMultiRandCropAugmenter
from aioloader.mxnet.image.detection import DetAugmenter as DetAugmenter
from aioloader.mxnet.image.detection import DetBorrowAug as DetBorrowAug
from aioloader.mxnet.image.detection import DetectionLabelError as DetectionLabelError
from aioloader.mxnet.image.detection import DetHorizontalFlipAug as DetHorizontalFlipAug
from aioloader.mxnet.image.detection import DetRandomCropAug as DetRandomCropAug
from aioloader.mxnet.image.detection import DetRandomPadAug as DetRandomPadAug
from aioloader.mxnet.image.detection import DetRandomSelectAug as DetRandomSelectAug
from aioloader.mxnet.image.detection import ImageDetIter as ImageDetIter
from aioloader.mxnet.image.iterator import ImageIter as ImageIter
from aioloader.mxnet.outside import module_elsewhere as _module_elsewhere

det = detection

__all__ = _exported(globals(), "det", "detection")


def __getattr__(name: str) -> Any:
    return _module_elsewhere(__name__, name)
