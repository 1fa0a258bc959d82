"""Transforms of one image: decode, crop, resize, flip, change colours, convert to a tensor, rotate.

`MixUp` and `CutMix` are for whole batches.

`boxes` has transforms of an image and the boxes in it, `albumentations` an adapter for compositions of that package,
`qwen2vl` an image processor of vision-language models.

The names are torchvision's. A transform is called with an image, and optionally with `rng`, the sample's draws; the
number of draws of each one, and their order, is part of its contract. Nothing heavy is imported before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recordio._lazy_names import lazy_names

if TYPE_CHECKING:
    from aioloader.foundation.validation import accepts_rng as accepts_rng
    from aioloader.transforms import boxes as boxes
    from aioloader.transforms import functional as functional
    from aioloader.transforms.albumentations import Albumentations as Albumentations
    from aioloader.transforms.autoaugment import AugMix as AugMix
    from aioloader.transforms.autoaugment import AutoAugment as AutoAugment
    from aioloader.transforms.autoaugment import AutoAugmentPolicy as AutoAugmentPolicy
    from aioloader.transforms.autoaugment import RandAugment as RandAugment
    from aioloader.transforms.autoaugment import TrivialAugmentWide as TrivialAugmentWide
    from aioloader.transforms.base import Compose as Compose
    from aioloader.transforms.base import RandomApply as RandomApply
    from aioloader.transforms.base import RandomChoice as RandomChoice
    from aioloader.transforms.base import RandomOrder as RandomOrder
    from aioloader.transforms.base import Transform as Transform
    from aioloader.transforms.base import bind as bind
    from aioloader.transforms.base import is_native as is_native
    from aioloader.transforms.blur import GaussianBlur as GaussianBlur
    from aioloader.transforms.blur import RandomAdjustSharpness as RandomAdjustSharpness
    from aioloader.transforms.boxes.base import BoxTransform as BoxTransform
    from aioloader.transforms.color import ColorJitter as ColorJitter
    from aioloader.transforms.color import Grayscale as Grayscale
    from aioloader.transforms.color import RandomAutocontrast as RandomAutocontrast
    from aioloader.transforms.color import RandomBrightness as RandomBrightness
    from aioloader.transforms.color import RandomContrast as RandomContrast
    from aioloader.transforms.color import RandomEqualize as RandomEqualize
    from aioloader.transforms.color import RandomGrayscale as RandomGrayscale
    from aioloader.transforms.color import RandomHue as RandomHue
    from aioloader.transforms.color import RandomInvert as RandomInvert
    from aioloader.transforms.color import RandomLighting as RandomLighting
    from aioloader.transforms.color import RandomPosterize as RandomPosterize
    from aioloader.transforms.color import RandomSaturation as RandomSaturation
    from aioloader.transforms.color import RandomSolarize as RandomSolarize
    from aioloader.transforms.decode import DEFAULT_MAX_PIXELS as DEFAULT_MAX_PIXELS
    from aioloader.transforms.decode import decode_image as decode_image
    from aioloader.transforms.erasing import RandomErasing as RandomErasing
    from aioloader.transforms.formats import image_size as image_size
    from aioloader.transforms.geometry import CenterCrop as CenterCrop
    from aioloader.transforms.geometry import CropResize as CropResize
    from aioloader.transforms.geometry import RandomCrop as RandomCrop
    from aioloader.transforms.geometry import RandomHorizontalFlip as RandomHorizontalFlip
    from aioloader.transforms.geometry import RandomResizedCrop as RandomResizedCrop
    from aioloader.transforms.geometry import RandomVerticalFlip as RandomVerticalFlip
    from aioloader.transforms.geometry import Resize as Resize
    from aioloader.transforms.joint import JointCompose as JointCompose
    from aioloader.transforms.lazy_image import Scratch as Scratch
    from aioloader.transforms.mixing import CutMix as CutMix
    from aioloader.transforms.mixing import MixUp as MixUp
    from aioloader.transforms.padding import Pad as Pad
    from aioloader.transforms.projective import RandomAffine as RandomAffine
    from aioloader.transforms.projective import RandomPerspective as RandomPerspective
    from aioloader.transforms.projective import RandomRotation as RandomRotation
    from aioloader.transforms.qwen2vl import PatchSpec as PatchSpec
    from aioloader.transforms.qwen2vl import Qwen2VLImageProcessor as Qwen2VLImageProcessor
    from aioloader.transforms.raw import encode_raw as encode_raw
    from aioloader.transforms.raw import raw_image as raw_image
    from aioloader.transforms.tensor import IMAGENET_MEAN as IMAGENET_MEAN
    from aioloader.transforms.tensor import IMAGENET_STD as IMAGENET_STD
    from aioloader.transforms.tensor import Cast as Cast
    from aioloader.transforms.tensor import Normalize as Normalize
    from aioloader.transforms.tensor import ToDtype as ToDtype
    from aioloader.transforms.tensor import ToTensor as ToTensor
    from aioloader.transforms.views import Views as Views

_get, __dir__, __all__ = lazy_names(
    __name__,
    {
        "aioloader.foundation.validation": "accepts_rng",
        "aioloader.transforms.autoaugment": (
            "AugMix AutoAugment AutoAugmentPolicy RandAugment TrivialAugmentWide"
        ),
        "aioloader.transforms.base": "Compose RandomApply RandomChoice RandomOrder Transform bind is_native",
        "aioloader.transforms.blur": "GaussianBlur RandomAdjustSharpness",
        "aioloader.transforms.color": (
            "ColorJitter Grayscale RandomAutocontrast RandomBrightness RandomContrast RandomEqualize "
            "RandomGrayscale RandomHue RandomInvert RandomLighting RandomPosterize RandomSaturation "
            "RandomSolarize"
        ),
        "aioloader.transforms.decode": "DEFAULT_MAX_PIXELS decode_image",
        "aioloader.transforms.erasing": "RandomErasing",
        "aioloader.transforms.formats": "image_size",
        "aioloader.transforms.geometry": (
            "CenterCrop CropResize RandomCrop RandomHorizontalFlip RandomResizedCrop RandomVerticalFlip "
            "Resize"
        ),
        "aioloader.transforms.lazy_image": "Scratch",
        "aioloader.transforms.mixing": "CutMix MixUp",
        "aioloader.transforms.padding": "Pad",
        "aioloader.transforms.projective": "RandomAffine RandomPerspective RandomRotation",
        "aioloader.transforms.raw": "encode_raw raw_image",
        "aioloader.transforms.tensor": "IMAGENET_MEAN IMAGENET_STD Cast Normalize ToDtype ToTensor",
        "aioloader.transforms.views": "Views",
        "aioloader.transforms.albumentations": "Albumentations",
        "aioloader.transforms.boxes.base": "BoxTransform",
        "aioloader.transforms.joint": "JointCompose",
        "aioloader.transforms.qwen2vl": "PatchSpec Qwen2VLImageProcessor",
    },
    "boxes functional",
)

_ARRAYS = "leave it out, images are arrays from the start"
_OTHERS = {
    **dict.fromkeys(("PILToTensor", "ToImage", "ToPureTensor", "ToPILImage", "ToCVImage"), _ARRAYS),
    "ConvertImageDtype": "use ToTensor(), or ToDtype(numpy.float32, scale=True) without moving the channels",
    "InterpolationMode": "pass its value, as in interpolation='bicubic'; torchvision's members are accepted too",
    **dict.fromkeys(("RandomMixup", "RandomMixUp"), "use MixUp"),
    **dict.fromkeys(("RandomCutmix", "RandomCutMix"), "use CutMix"),
}
"""Names of torchvision and of its reference scripts, and what to use instead."""


def __getattr__(name: str) -> Any:
    try:
        return _get(name)
    except AttributeError as error:
        if name in _OTHERS:
            raise AttributeError(f"{error}: {_OTHERS[name]}") from None
        raise
