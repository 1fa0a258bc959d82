"""Chains of every transform, some with several sets of options."""

from __future__ import annotations

from typing import Any

from aioloader.transforms import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Cast,
    CenterCrop,
    ColorJitter,
    Compose,
    CropResize,
    GaussianBlur,
    Grayscale,
    Normalize,
    Pad,
    RandAugment,
    RandomAdjustSharpness,
    RandomAffine,
    RandomApply,
    RandomAutocontrast,
    RandomBrightness,
    RandomChoice,
    RandomContrast,
    RandomCrop,
    RandomEqualize,
    RandomErasing,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomHue,
    RandomInvert,
    RandomLighting,
    RandomOrder,
    RandomPerspective,
    RandomPosterize,
    RandomResizedCrop,
    RandomRotation,
    RandomSaturation,
    RandomSolarize,
    RandomVerticalFlip,
    Resize,
    ToTensor,
    TrivialAugmentWide,
)

H, W = 37, 41

# All of them map (H, W, 3) to (H, W, 3) or to a form that the following transforms may refuse.
TRANSFORMS: dict[str, Any] = {
    "cast": Cast("float32"),
    "resize": Resize((H, W)),
    "resize-longer-side": Resize(20, "bicubic", max_size=22),
    "resize-plain": Resize((11, 60), antialias=False),
    "pad": Pad((1, 2), 9),
    "pad-symmetric": Pad((1, 2, 50, 4), padding_mode="symmetric"),
    "resize-smaller": Resize((24, 24), interpolation="area"),
    "resize-keep-ratio": Resize(30, interpolation="random"),
    "center-crop": CenterCrop((20, 24)),
    "center-crop-padded": CenterCrop(60),
    "random-crop": RandomCrop(24),
    "random-crop-padded": RandomCrop((H, W), padding=4, fill=7),
    "random-crop-reflected": RandomCrop((H, W), padding=(4, 9), padding_mode="reflect"),
    "random-crop-padded-if-needed": RandomCrop((50, 20), pad_if_needed=True),
    "random-resized-crop": RandomResizedCrop((H, W)),
    "random-resized-crop-plain": RandomResizedCrop((H, W), interpolation="cubic", antialias=False),
    "crop-resize": CropResize(4, 3, 16, 20, (H, W), "cubic"),
    "crop-only": CropResize(4, 3, 16, 20),
    "flip-left-right": RandomHorizontalFlip(),
    "flip-top-bottom": RandomVerticalFlip(1.0),
    "brightness": RandomBrightness(0.5),
    "contrast": RandomContrast(0.5),
    "saturation": RandomSaturation(0.5),
    "hue": RandomHue(0.2),
    "jitter": ColorJitter(0.4, 0.4, 0.4, 0.1),
    "jitter-nothing": ColorJitter(),
    "jitter-ranges": ColorJitter((0.5, 1.5), (0.8, 1.2), 0.3, (-0.1, 0.2)),
    "grayscale": Grayscale(3),
    "blur": GaussianBlur(3),
    "invert": RandomInvert(0.7),
    "posterize": RandomPosterize(3, 0.7),
    "solarize": RandomSolarize(100, 0.7),
    "autocontrast": RandomAutocontrast(0.7),
    "equalize": RandomEqualize(0.7),
    "sharpness": RandomAdjustSharpness(2.0, 0.7),
    "rand-augment": RandAugment(),
    "trivial-augment": TrivialAugmentWide(),
    "choice": RandomChoice([RandomInvert(1.0), Grayscale(3)]),
    "order": RandomOrder([RandomInvert(0.5), RandomPosterize(2, 0.5)]),
    "lighting": RandomLighting(0.5),
    "gray": RandomGrayscale(),
    "apply": RandomApply([RandomBrightness(0.5), RandomHorizontalFlip(1.0)]),
    "to-tensor": ToTensor(),
    "random-rotation": RandomRotation(40, "bilinear", fill=7),
    "random-rotation-expanded": RandomRotation((20, 90), expand=True, center=(3, 4)),
    "random-affine": RandomAffine((0, 9), (0.1, 0.2), (0.7, 1.4), (1, 5, -4, 9)),
    "random-perspective": RandomPerspective(),
    "random-erasing": RandomErasing(0.8, value="random"),
    "random-erasing-value": RandomErasing(value=9.4),
    "normalize": Normalize((1.0,), 2.0),
    "compose": Compose(
        [RandomResizedCrop(24), RandomHorizontalFlip(), ToTensor(), Normalize(IMAGENET_MEAN, IMAGENET_STD)]
    ),
}

# The names of those that take uint8 only.
BYTES_ONLY = frozenset(
    (
        *("invert", "posterize", "solarize", "autocontrast", "equalize"),
        *("rand-augment", "trivial-augment", "choice", "order"),
    )
)
