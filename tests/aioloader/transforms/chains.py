"""Chains of every transform, some with several sets of options."""

from __future__ import annotations

from typing import Any

from aioloader.transforms import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Cast,
    CenterCrop,
    Compose,
    CropResize,
    Normalize,
    RandomApply,
    RandomBrightness,
    RandomColorJitter,
    RandomContrast,
    RandomCrop,
    RandomFlipLeftRight,
    RandomFlipTopBottom,
    RandomGray,
    RandomHue,
    RandomLighting,
    RandomResizedCrop,
    RandomRotation,
    RandomSaturation,
    Resize,
    Rotate,
    ToTensor,
)

H, W = 37, 41

# All of them map (H, W, 3) to (H, W, 3) or to a form that the following transforms may refuse.
TRANSFORMS: dict[str, Any] = {
    "cast": Cast("float32"),
    "resize": Resize((W, H)),
    "resize-smaller": Resize(24, interpolation="area"),
    "resize-keep-ratio": Resize(30, keep_ratio=True, interpolation="random"),
    "center-crop": CenterCrop((20, 24)),
    "center-crop-enlarges": CenterCrop(60),
    "random-crop": RandomCrop(24),
    "random-crop-padded": RandomCrop((W, H), pad=4, pad_value=7),
    "random-resized-crop": RandomResizedCrop((W, H)),
    "crop-resize": CropResize(3, 4, 20, 16, (W, H), "cubic"),
    "crop-only": CropResize(3, 4, 20, 16),
    "flip-left-right": RandomFlipLeftRight(),
    "flip-top-bottom": RandomFlipTopBottom(1.0),
    "brightness": RandomBrightness(0.5),
    "contrast": RandomContrast(0.5),
    "saturation": RandomSaturation(0.5),
    "hue": RandomHue(0.2),
    "jitter": RandomColorJitter(0.4, 0.4, 0.4, 0.1),
    "jitter-nothing": RandomColorJitter(),
    "lighting": RandomLighting(0.5),
    "gray": RandomGray(),
    "apply": RandomApply([RandomBrightness(0.5), RandomFlipLeftRight(1.0)]),
    "to-tensor": ToTensor(),
    "rotate": Compose([ToTensor(), Rotate(33.0, zoom_in=True)]),
    "rotation-random": Compose([ToTensor(), RandomRotation((-40.0, 40.0), rotate_with_proba=0.7)]),
    "normalize": Normalize((1.0,), 2.0),
    "compose": Compose(
        [RandomResizedCrop(24), RandomFlipLeftRight(), ToTensor(), Normalize(IMAGENET_MEAN, IMAGENET_STD)]
    ),
}
