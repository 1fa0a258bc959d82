"""What is done to one image: decode, crop, resize, flip, change colours, make a tensor, turn.

The names are Gluon's. A transform is called with an image, and optionally with `rng`, the sample's draws; how many
draws each one takes, and in what order, is part of its contract. Nothing heavy is imported before it is used.
"""

from aioloader.transforms.base import Transform, accepts_rng, bind, is_native
from aioloader.transforms.compose import Compose, RandomApply
from aioloader.transforms.crop import CenterCrop, CropResize, RandomCrop, RandomResizedCrop
from aioloader.transforms.decode import DEFAULT_MAX_PIXELS, decode_image
from aioloader.transforms.formats import image_size
from aioloader.transforms.geometry import RandomFlipLeftRight, RandomFlipTopBottom, Resize
from aioloader.transforms.jitter import (
    RandomBrightness,
    RandomColorJitter,
    RandomContrast,
    RandomGray,
    RandomHue,
    RandomLighting,
    RandomSaturation,
)
from aioloader.transforms.raw import encode_raw, raw_image
from aioloader.transforms.rotation import RandomRotation, Rotate
from aioloader.transforms.scratch import Scratch
from aioloader.transforms.tensor import IMAGENET_MEAN, IMAGENET_STD, Cast, Normalize, ToTensor

__all__ = (
    "DEFAULT_MAX_PIXELS",
    "IMAGENET_MEAN",
    "IMAGENET_STD",
    "Cast",
    "CenterCrop",
    "Compose",
    "CropResize",
    "Normalize",
    "RandomApply",
    "RandomBrightness",
    "RandomColorJitter",
    "RandomContrast",
    "RandomCrop",
    "RandomFlipLeftRight",
    "RandomFlipTopBottom",
    "RandomGray",
    "RandomHue",
    "RandomLighting",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomSaturation",
    "Resize",
    "Rotate",
    "Scratch",
    "ToTensor",
    "Transform",
    "accepts_rng",
    "bind",
    "decode_image",
    "encode_raw",
    "image_size",
    "is_native",
    "raw_image",
)
