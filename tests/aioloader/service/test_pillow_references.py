"""Tests that a picture has the same pixels as bytes, as a file, as an item, and as a Pillow image, lazy or loaded."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aioloader import ImageService
from aioloader.errors import ImageReferenceError
from aioloader.transforms import Qwen2VLImageProcessor

Image = pytest.importorskip("PIL.Image")

COARSE = np.random.default_rng(0).integers(0, 256, (7, 9, 4), dtype=np.uint8)
RGBA = Image.fromarray(np.repeat(np.repeat(COARSE, 8, axis=0), 8, axis=1))
RGB = RGBA.convert("RGB")
RAMP = np.tile(np.linspace(0, 65535, 64).astype(np.uint16), (48, 1))


def saved(image: Any, kind: str = "PNG", orientation: int = 1, **options: Any) -> bytes:
    exif = Image.Exif()
    if orientation != 1:
        exif[0x112] = orientation
        options["exif"] = exif
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def of_mode(mode: str) -> Any:
    if mode == "P, a colour transparent":
        image = RGB.quantize(16)
        image.info["transparency"] = 3
    elif mode == "P, alpha":
        image = RGB.quantize(16)
        image.info["transparency"] = bytes(range(0, 256, 16))
    elif mode == "RGB, a colour transparent":
        image = RGB.copy()
        image.info["transparency"] = image.getpixel((0, 0))
    elif mode == "P of RGBA":
        image = RGBA.quantize(16)
    elif mode == "P":
        image = RGB.quantize(16)
    elif mode == "I;16":
        image = Image.fromarray(RAMP)
    elif mode == "I":
        image = Image.fromarray(RAMP.astype(np.int32))
    elif mode == "La":
        image = RGBA.convert("LA").convert("La")
    else:
        image = RGBA.convert(mode)
    return image


WITH_ALPHA = ["RGBA", "LA", "PA", "La", "RGBa", "P of RGBA", "P, a colour transparent", "P, alpha"]
MODES = ["RGB", "L", "1", "P", "CMYK", "YCbCr", "HSV", "I;16", "I", "RGB, a colour transparent", *WITH_ALPHA]
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


def check(
    data: bytes, images: list[Any], processor: Any, exif: str | None, folder: Path, within: float
) -> None:
    """Compare the results for encoded bytes and their file with those for Pillow images."""
    (folder / "image").write_bytes(data)
    allow = ("bytes", "path", "pillow", "dataset")
    with ImageService(
        processor, executor="thread", num_workers=1, allow=allow, root=folder, exif=exif
    ) as service:
        right = made(service, data)
        sizes = {info.size for info in map(service.probe, [data, *images])}
        assert len(sizes) == 1
        for ref in ["image", *images, *[(Items(image), 0) for image in images]]:
            found = made(service, ref)
            assert found.shape == right.shape
            assert np.abs(found - right).max() <= within


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("mode", MODES)
def test_every_mode_has_the_same_pixels(mode: str, processor: str, tmp_path: Path) -> None:
    image = of_mode(mode)
    data = saved(of_mode("I;16") if mode == "I" else image.convert(SAVED_AS.get(mode, image.mode)))
    loaded = Image.open(io.BytesIO(data))
    loaded.load()
    # Premultiplied pixels are rounded, and palettes of RGBA keep colours that are not seen.
    within = 0.05 if processor != "none" else 1
    images = [Image.open(io.BytesIO(data)), loaded, image]
    check(data, images, PROCESSORS[processor], None, tmp_path, within)


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("exif", [None, "ignore"])
@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_every_orientation_has_the_same_pixels(
    kind: str, orientation: int, exif: str | None, processor: str, tmp_path: Path
) -> None:
    options = {"JPEG": {"quality": 95}, "WEBP": {"lossless": True}}.get(kind, {})
    data = saved(RGB, kind, orientation, **options)
    loaded = Image.open(io.BytesIO(data))
    loaded.load()
    images = [Image.open(io.BytesIO(data)), loaded, loaded.copy()]
    within = 0 if kind != "JPEG" else 2 if processor == "none" else 0.05
    check(data, images, PROCESSORS[processor], exif, tmp_path, within)


@pytest.mark.parametrize("mode", ["F", "I"])
def test_pixels_without_a_scale_are_refused_by_name(mode: str) -> None:
    image = Image.new(mode, (5, 4), 70_000 if mode == "I" else 7)
    with ImageService(executor="thread", num_workers=1, allow=("pillow", "dataset")) as service:
        for ref in (image, (Items(image), 0)):
            with pytest.raises(ImageReferenceError, match=mode):
                service.get(ref)
