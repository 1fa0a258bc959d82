"""Transforms of one image: decode, crop, resize, flip, change colours, convert to a tensor, rotate.

`MixUp` and `CutMix` are for whole batches.

`boxes` has transforms of an image and the boxes in it, `albumentations` an adapter for compositions of that package,
`qwen2vl` an image processor of vision-language models.

The names are torchvision's. A transform is called with an image, and optionally with `rng`, the sample's draws; the
number of draws of each one, and their order, is part of its contract. Nothing heavy is imported before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioloader.foundation.lazy_names import lazy_names

if TYPE_CHECKING:
    from aioloader.foundation.validation import accepts_rng
    from aioloader.transforms import boxes, functional
    from aioloader.transforms.albumentations import Albumentations
    from aioloader.transforms.autoaugment import (
        AugMix,
        AutoAugment,
        AutoAugmentPolicy,
        RandAugment,
        TrivialAugmentWide,
    )
    from aioloader.transforms.base import (
        Compose,
        RandomApply,
        RandomChoice,
        RandomOrder,
        Transform,
        bind,
        is_native,
    )
    from aioloader.transforms.blur import GaussianBlur, RandomAdjustSharpness
    from aioloader.transforms.boxes.base import BoxTransform
    from aioloader.transforms.color import (
        ColorJitter,
        Grayscale,
        RandomAutocontrast,
        RandomBrightness,
        RandomContrast,
        RandomEqualize,
        RandomGrayscale,
        RandomHue,
        RandomInvert,
        RandomLighting,
        RandomPosterize,
        RandomSaturation,
        RandomSolarize,
    )
    from aioloader.transforms.decode import DEFAULT_MAX_PIXELS, decode_image
    from aioloader.transforms.erasing import RandomErasing
    from aioloader.transforms.formats import image_size
    from aioloader.transforms.geometry import (
        CenterCrop,
        CropResize,
        RandomCrop,
        RandomHorizontalFlip,
        RandomResizedCrop,
        RandomVerticalFlip,
        Resize,
    )
    from aioloader.transforms.joint import JointCompose
    from aioloader.transforms.lazy_image import Scratch
    from aioloader.transforms.mixing import CutMix, MixUp
    from aioloader.transforms.padding import Pad
    from aioloader.transforms.projective import RandomAffine, RandomPerspective, RandomRotation
    from aioloader.transforms.qwen2vl import PatchSpec, Qwen2VLImageProcessor
    from aioloader.transforms.raw import encode_raw, raw_image
    from aioloader.transforms.tensor import IMAGENET_MEAN, IMAGENET_STD, Cast, Normalize, ToDtype, ToTensor
    from aioloader.transforms.views import Views

__all__ = (
    "DEFAULT_MAX_PIXELS",
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "Albumentations",
    "AugMix",
    "AutoAugment",
    "AutoAugmentPolicy",
    "BoxTransform",
    "Cast",
    "CenterCrop",
    "ColorJitter",
    "Compose",
    "CropResize",
    "CutMix",
    "GaussianBlur",
    "Grayscale",
    "JointCompose",
    "MixUp",
    "Normalize",
    "Pad",
    "PatchSpec",
    "Qwen2VLImageProcessor",
    "RandAugment",
    "RandomAdjustSharpness",
    "RandomAffine",
    "RandomApply",
    "RandomAutocontrast",
    "RandomBrightness",
    "RandomChoice",
    "RandomContrast",
    "RandomCrop",
    "RandomEqualize",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomHue",
    "RandomInvert",
    "RandomLighting",
    "RandomOrder",
    "RandomPerspective",
    "RandomPosterize",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomSaturation",
    "RandomSolarize",
    "RandomVerticalFlip",
    "Resize",
    "Scratch",
    "ToDtype",
    "ToTensor",
    "Transform",
    "TrivialAugmentWide",
    "Views",
    "accepts_rng",
    "bind",
    "boxes",
    "decode_image",
    "encode_raw",
    "functional",
    "image_size",
    "is_native",
    "raw_image",
)

_get, __dir__ = lazy_names(
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
