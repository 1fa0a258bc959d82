"""Tests of the guide's statements on resizing: the libraries that average, and those that do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aioloader.transforms import Resize, decode_image


def differences(folder: Path, interpolation: str, theirs: Any) -> Any:
    """Return the differences of 8-bit values between `Resize` and `theirs`, a function of image and (width, height)."""
    found = []
    for path in sorted(folder.rglob("*.jpg"))[:4]:
        image = decode_image(path.read_bytes())
        own = Resize(64, interpolation=interpolation, antialias=False)(image)
        found.append(np.abs(own.astype(np.int16) - theirs(image, own.shape[1::-1])).ravel())
    return np.concatenate(found)


def test_area_is_nearer_to_pillow_than_bilinear(photo_folder: Path) -> None:
    image_of = pytest.importorskip("PIL.Image")

    def pillow(image: Any, size: tuple[int, int]) -> Any:
        return np.asarray(image_of.fromarray(image).resize(size, image_of.Resampling.BILINEAR))

    bilinear = differences(photo_folder, "bilinear", pillow).mean()
    assert differences(photo_folder, "area", pillow).mean() < 0.7 * bilinear


@pytest.mark.torch
def test_bilinear_is_torch_s_without_antialias(photo_folder: Path) -> None:
    torch = pytest.importorskip("torch")

    def by_torch(antialias: bool) -> Any:
        def resize(image: Any, size: tuple[int, int]) -> Any:
            planes = torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)))[None].float()
            options = {"mode": "bilinear", "antialias": antialias, "align_corners": False}
            made = torch.nn.functional.interpolate(planes, size[::-1], **options)
            return made[0].round().clamp(0, 255).byte().permute(1, 2, 0).numpy()

        return resize

    assert differences(photo_folder, "bilinear", by_torch(False)).max() <= 2
    assert differences(photo_folder, "bilinear", by_torch(True)).max() > 20
