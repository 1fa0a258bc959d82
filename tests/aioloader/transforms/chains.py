"""Chains of every transform, some with several sets of options."""

from __future__ import annotations

from typing import Any

from aioloader import transforms as t

H, W = 37, 41

# All of them map (H, W, 3) to (H, W, 3) or to a form that the following transforms may refuse.
TRANSFORMS: dict[str, Any] = {
    "cast": t.Cast("float32"),
    "resize": t.Resize((H, W)),
    "resize-longer-side": t.Resize(20, "bicubic", max_size=22),
    "resize-plain": t.Resize((11, 60), antialias=False),
    "pad": t.Pad((1, 2), 9),
    "pad-symmetric": t.Pad((1, 2, 50, 4), padding_mode="symmetric"),
    "resize-smaller": t.Resize((24, 24), interpolation="area"),
    "resize-keep-ratio": t.Resize(30, interpolation="random"),
    "center-crop": t.CenterCrop((20, 24)),
    "center-crop-padded": t.CenterCrop(60),
    "random-crop": t.RandomCrop(24),
    "random-crop-padded": t.RandomCrop((H, W), padding=4, fill=7),
    "random-crop-reflected": t.RandomCrop((H, W), padding=(4, 9), padding_mode="reflect"),
    "random-crop-padded-if-needed": t.RandomCrop((50, 20), pad_if_needed=True),
    "random-resized-crop": t.RandomResizedCrop((H, W)),
    "random-resized-crop-plain": t.RandomResizedCrop((H, W), interpolation="cubic", antialias=False),
    "crop-resize": t.CropResize(4, 3, 16, 20, (H, W), "cubic"),
    "crop-only": t.CropResize(4, 3, 16, 20),
    "flip-left-right": t.RandomHorizontalFlip(),
    "flip-top-bottom": t.RandomVerticalFlip(1.0),
    "brightness": t.RandomBrightness(0.5),
    "contrast": t.RandomContrast(0.5),
    "saturation": t.RandomSaturation(0.5),
    "hue": t.RandomHue(0.2),
    "jitter": t.ColorJitter(0.4, 0.4, 0.4, 0.1),
    "jitter-nothing": t.ColorJitter(),
    "jitter-ranges": t.ColorJitter((0.5, 1.5), (0.8, 1.2), 0.3, (-0.1, 0.2)),
    "grayscale": t.Grayscale(3),
    "blur": t.GaussianBlur(3),
    "invert": t.RandomInvert(0.7),
    "posterize": t.RandomPosterize(3, 0.7),
    "solarize": t.RandomSolarize(100, 0.7),
    "autocontrast": t.RandomAutocontrast(0.7),
    "equalize": t.RandomEqualize(0.7),
    "sharpness": t.RandomAdjustSharpness(2.0, 0.7),
    "rand-augment": t.RandAugment(),
    "trivial-augment": t.TrivialAugmentWide(),
    "choice": t.RandomChoice([t.RandomInvert(1.0), t.Grayscale(3)]),
    "order": t.RandomOrder([t.RandomInvert(0.5), t.RandomPosterize(2, 0.5)]),
    "lighting": t.RandomLighting(0.5),
    "gray": t.RandomGrayscale(),
    "apply": t.RandomApply([t.RandomBrightness(0.5), t.RandomHorizontalFlip(1.0)]),
    "to-tensor": t.ToTensor(),
    "random-rotation": t.RandomRotation(40, "bilinear", fill=7),
    "random-rotation-expanded": t.RandomRotation((20, 90), expand=True, center=(3, 4)),
    "random-affine": t.RandomAffine((0, 9), (0.1, 0.2), (0.7, 1.4), (1, 5, -4, 9)),
    "random-perspective": t.RandomPerspective(),
    "random-erasing": t.RandomErasing(0.8, value="random"),
    "random-erasing-value": t.RandomErasing(value=9.4),
    "auto-augment": t.AutoAugment("cifar10"),
    "aug-mix": t.AugMix(5, 2, 2),
    "to-dtype": t.ToDtype("float32"),
    "to-dtype-scaled": t.ToDtype("float32", scale=True),
    "normalize": t.Normalize((1.0,), 2.0),
    "compose": t.Compose(
        [
            t.RandomResizedCrop(24),
            t.RandomHorizontalFlip(),
            t.ToTensor(),
            t.Normalize(t.IMAGENET_MEAN, t.IMAGENET_STD),
        ]
    ),
}

# The names of those that take uint8 only.
BYTES_ONLY = frozenset(
    (
        *("invert", "posterize", "solarize", "autocontrast", "equalize"),
        *("rand-augment", "trivial-augment", "auto-augment", "aug-mix", "choice", "order"),
    )
)
