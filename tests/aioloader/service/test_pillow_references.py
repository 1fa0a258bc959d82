"""Tests that a picture has the same pixels as bytes, as a file, as an item, and as a Pillow image, lazy or loaded."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aioloader import ImageService
from aioloader.errors import ImageReferenceError
from aioloader.transforms import Qwen2VLImageProcessor
from tests.aioloader.service.images import saved
from tests.cases import with_cases

Image = pytest.importorskip("PIL.Image")

COARSE = np.random.default_rng(0).integers(0, 256, (7, 9, 4), dtype=np.uint8)
RGBA = Image.fromarray(np.repeat(np.repeat(COARSE, 8, axis=0), 8, axis=1))
RGB = RGBA.convert("RGB")
RAMP = np.tile(np.linspace(0, 65535, 64).astype(np.uint16), (48, 1))


def transparent(image: Any, value: Any) -> Any:
    image = image.copy()
    image.info["transparency"] = value
    return image


MODES: dict[str, Callable[[], Any]] = {
    **{name: lambda name=name: RGBA.convert(name) for name in ("L", "1", "CMYK", "YCbCr", "HSV")},
    **{name: lambda name=name: RGBA.convert(name) for name in ("RGB", "RGBA", "LA", "PA", "RGBa")},
    "P": lambda: RGB.quantize(16),
    "P of RGBA": lambda: RGBA.quantize(16),
    "P, a colour transparent": lambda: transparent(RGB.quantize(16), 3),
    "P, alpha": lambda: transparent(RGB.quantize(16), bytes(range(0, 256, 16))),
    "RGB, a colour transparent": lambda: transparent(RGB, RGB.getpixel((0, 0))),
    "I;16": lambda: Image.fromarray(RAMP),
    "I": lambda: Image.fromarray(RAMP.astype(np.int32)),
    "La": lambda: RGBA.convert("LA").convert("La"),
}
# As what a mode is saved whose pixels no PNG has.
SAVED_AS = {
    **dict.fromkeys(("PA", "RGBa", "P of RGBA"), "RGBA"),
    "La": "LA",
    **dict.fromkeys(("CMYK", "YCbCr", "HSV"), "RGB"),
}
PROCESSORS = {
    "none": None,
    "qwen": Qwen2VLImageProcessor(max_pixels=56 * 56),
    "qwen drop": Qwen2VLImageProcessor(max_pixels=56 * 56, alpha="drop", exif="apply"),
}


class Items:
    """Dataset of Pillow images."""

    def __init__(self, image: Any) -> None:
        self.image = image

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Any:
        return self.image


def made(service: ImageService, ref: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # 16 bits become 8
        result = service.get(ref)
    return result["pixel_values"] if isinstance(result, dict) else result.astype(np.float32)


def loaded(data: bytes) -> Any:
    image = Image.open(io.BytesIO(data))
    image.load()
    return image


def service_in(folder: Path, processor: str, exif: str | None = None) -> ImageService:
    allow = ("bytes", "path", "pillow", "dataset")
    options: Any = {"executor": "thread", "num_workers": 1, "allow": allow, "root": folder, "exif": exif}
    return ImageService(PROCESSORS[processor], **options)


def check(service: ImageService, data: bytes, images: list[Any], within: float, path: Path) -> None:
    """Compare the results for encoded bytes and their file with those for Pillow images."""
    path.write_bytes(data)
    right = made(service, data)
    sizes = {info.size for info in map(service.probe, [data, *images])}
    assert len(sizes) == 1
    for ref in [path.name, *images, *[(Items(image), 0) for image in images]]:
        found = made(service, ref)
        assert found.shape == right.shape
        assert np.abs(found - right).max() <= within


@with_cases("processor", PROCESSORS)
def test_every_mode_has_the_same_pixels(processor: str, tmp_path: Path) -> None:
    # Premultiplied pixels are rounded, and palettes of RGBA keep colours that are not seen.
    within = 0.05 if processor != "none" else 1
    with service_in(tmp_path, processor) as service:
        for mode, make in MODES.items():
            image = make()
            data = saved(
                MODES["I;16"]() if mode == "I" else image.convert(SAVED_AS.get(mode, image.mode)), "PNG"
            )
            images = [Image.open(io.BytesIO(data)), loaded(data), image]
            check(service, data, images, within, tmp_path / mode)


@with_cases("processor", PROCESSORS)
@with_cases("exif", [None, "ignore"])
def test_every_orientation_has_the_same_pixels(exif: str | None, processor: str, tmp_path: Path) -> None:
    with service_in(tmp_path, processor, exif) as service:
        for kind, options in {"PNG": {}, "JPEG": {"quality": 95}, "WEBP": {"lossless": True}}.items():
            within = 0 if kind != "JPEG" else 2 if processor == "none" else 0.05
            for orientation in range(1, 9) if kind == "PNG" else (1, 4, 6):
                data = saved(RGB, kind, orientation, **options)
                images = [Image.open(io.BytesIO(data)), loaded(data), loaded(data).copy()]
                check(service, data, images, within, tmp_path / f"{kind}-{orientation}")


@with_cases("mode", ["F", "I"])
def test_pixels_without_a_scale_are_refused_by_name(mode: str) -> None:
    image = Image.new(mode, (5, 4), 70_000 if mode == "I" else 7)
    with ImageService(executor="thread", num_workers=1, allow=("pillow", "dataset")) as service:
        for ref in (image, (Items(image), 0)):
            with pytest.raises(ImageReferenceError, match=mode):
                service.get(ref)
