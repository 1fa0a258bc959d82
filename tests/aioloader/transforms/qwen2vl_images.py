"""Images for the processor of Qwen2-VL, made from random numbers alone, and what other programs make of them.

``python -m tests.aioloader.transforms.qwen2vl_images`` writes the expected results again; it needs transformers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

EXPECTED = Path(__file__).parents[2] / "data" / "qwen2vl" / "expected.json"

MODES = ("RGB", "L", "LA", "P", "P-transparent", "RGBA", "RGB-transparent", "CMYK", "1", "RGBX")
OPTIONS: tuple[dict[str, int], ...] = (
    {},
    {"min_pixels": 28 * 28, "max_pixels": 20 * 28 * 28},
    {"min_pixels": 40 * 28 * 28, "max_pixels": 60 * 28 * 28},
    {"patch_size": 16, "max_pixels": 40 * 32 * 32},
    {"merge_size": 1, "temporal_patch_size": 1, "min_pixels": 1, "max_pixels": 200 * 14 * 14},
)
# Extents that the rule treats in its own way: single pixels, the largest aspect ratio, halves of a token.
SPECIAL = (
    (1, 1),
    (1, 200),
    (200, 1),
    (5, 1000),
    (27, 29),
    (28, 28),
    (14, 42),
    (42, 70),
    (56, 56),
    (900, 1300),
)
COUNT = 50  # each mode with each of the options


def make_image(mode: str, height: int, width: int, seed: int = 0) -> Image.Image:
    """Return an image of a mode; neighbouring pixels are alike in one half of it."""
    rng = np.random.default_rng([seed, height, width])
    pixels = rng.integers(0, 256, (height, width, 4)).astype(np.uint8)
    pixels[: height // 2] = np.linspace(0, 255, width).astype(np.uint8)[:, None] // (1, 2, 3, 1)
    planes = [Image.fromarray(np.ascontiguousarray(pixels[:, :, channel])) for channel in range(4)]
    if mode in ("L", "1"):
        return planes[0].convert(mode, dither=Image.Dither.NONE)
    if mode == "LA":
        return Image.merge("LA", planes[:2])
    if mode.startswith("P"):
        image = planes[0]
        image.putpalette(rng.integers(0, 256, 768).astype(np.uint8).tobytes())
        if mode == "P-transparent":
            image.info["transparency"] = rng.integers(0, 256, 256).astype(np.uint8).tobytes()
        return image
    if mode.startswith("RGB-") or mode == "RGB":
        image = Image.merge("RGB", planes[:3])
        if mode == "RGB-transparent":
            image.info["transparency"] = tuple(pixels[-1, -1, :3].tolist())
        return image
    return Image.merge(mode, planes)


def cases() -> Iterator[tuple[str, Image.Image, dict[str, int], bool]]:
    """Yield (name, image, options of the processor, whether its EXIF orientation is applied) of each image."""
    rng = np.random.default_rng(22)
    for number in range(COUNT):
        mode = MODES[number % len(MODES)]
        options = OPTIONS[number // len(MODES) % len(OPTIONS)]
        if number < len(SPECIAL):
            height, width = SPECIAL[number]
        else:
            height = int(np.exp(rng.uniform(np.log(3), np.log(500))))
            width = int(np.clip(height * np.exp(rng.normal(0, 1)), 3, 600))
        image = make_image(mode, height, width, number)
        turned = number % 3 == 1
        if number % 3:
            image.getexif()[0x0112] = 1 + number % 8
        name = f"{number}-{mode}-{image.height}x{image.width}"
        yield name, image, options, turned


def summary(made: dict[str, Any]) -> list[Any]:
    """Return the grid, the shape and a digest of a processor's result."""
    values = np.ascontiguousarray(made["pixel_values"], "<f4")
    grid = np.asarray(made["image_grid_thw"]).tolist()[0]
    return [*grid, *values.shape, hashlib.sha256(values.tobytes()).hexdigest()[:16]]


def published(options: dict[str, int]) -> Any:
    """Return the published processor, with Pillow as its backend."""
    from transformers import Qwen2VLImageProcessorPil

    return Qwen2VLImageProcessorPil(**options)


def main() -> None:
    """Write the expected results by the published processor."""
    lines = []
    for name, image, options, turned in cases():
        made = published(options)([ImageOps.exif_transpose(image) if turned else image])
        lines.append(f" {json.dumps(name)}: {json.dumps(summary(made), separators=(',', ':'))}")
    EXPECTED.parent.mkdir(exist_ok=True)
    EXPECTED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
