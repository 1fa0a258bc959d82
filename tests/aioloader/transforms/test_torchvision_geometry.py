"""Geometric transforms beside torchvision's, version 2: the same images, the same parameters.

Rule: bytes differ by at most one level in 99.9 % of the values. Photographs are those of the folder that
AIOLOADER_TEST_PHOTOS names; without it they are made, with edges and noise.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from aioloader.rng import Rng
from aioloader.transforms import CenterCrop, Pad, RandomResizedCrop, Resize, decode_image
from aioloader.transforms.geometry import CropResize
from tests.aioloader.jpeg.samples import make_image

torch = pytest.importorskip("torch", reason="compares with torchvision")
tv = pytest.importorskip("torchvision.transforms.v2", reason="compares with torchvision")
F = tv.functional

_SHAPES = [(375, 500), (333, 250), (97, 101), (256, 256), (40, 700)]


@cache
def photographs() -> list[Any]:
    folder = os.environ.get("AIOLOADER_TEST_PHOTOS")
    if folder:
        files = sorted(Path(folder).rglob("*.[jJ][pP]*"))[:100]
        return [decode_image(file.read_bytes()) for file in files]
    return [made(height, width) for height, width in _SHAPES]


def made(height: int, width: int) -> Any:
    """Return an image with smooth surfaces, edges and a little noise, as a photograph has."""
    soft = cv2.resize(make_image(width // 8, height // 8, blocks=False), (width, height))
    soft[height // 3 : height // 2, width // 4 : width // 2] //= 3
    noise = make_image(width, height, blocks=False) // 16
    return soft // 2 + 40 + noise


def theirs(function: Any, x: Any) -> Any:
    planes = torch.from_numpy(np.ascontiguousarray(x.transpose(2, 0, 1)))
    return function(planes).numpy().transpose(1, 2, 0)


def check(ours: Any, function: Any, share: float = 0.999) -> None:
    """Compare over all photographs; `share` of the values differ by at most one level."""
    near = total = 0
    for x in photographs():
        expected = theirs(function, x)
        found = ours(x)
        assert found.shape == expected.shape
        assert found.dtype == np.uint8
        difference = np.abs(found.astype(np.int16) - expected)
        near += int((difference <= 1).sum())
        total += difference.size
    assert near >= share * total, near / total


SIZES = [
    (224, None),
    (64, 70),
    ([20], None),
    ((100, 224), None),
    ((500, 30), None),
    (None, 90),
    ((700, 900), None),
]


@pytest.mark.parametrize("antialias", [True, False])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic", "nearest", "nearest-exact"])
@pytest.mark.parametrize(("size", "max_size"), SIZES)
def test_resize(size: Any, max_size: Any, interpolation: str, antialias: bool) -> None:
    mode = tv.InterpolationMode(interpolation)
    check(
        Resize(size, interpolation, max_size, antialias),
        lambda x: F.resize(x, size, mode, max_size, antialias),
    )
    assert (
        Resize(size, mode, max_size, antialias).interpolation
        == Resize(size, interpolation, max_size).interpolation
    )


@pytest.mark.parametrize("size", [224, (100, 300), (31, 30), (800, 20), (801, 1023)])
def test_center_crop(size: Any) -> None:
    check(CenterCrop(size), lambda x: F.center_crop(x, size), 1.0)


@pytest.mark.parametrize("antialias", [True, False])
def test_resized_crop(antialias: bool) -> None:
    rectangle = (7, 13, 30, 61)
    check(
        CropResize(*rectangle, (32, 24), antialias=antialias),
        lambda x: F.resized_crop(x, *rectangle, (32, 24), antialias=antialias),
    )


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
@pytest.mark.parametrize("padding", [3, (5, 2), (1, 2, 3, 4)])
def test_pad(padding: Any, mode: str) -> None:
    check(
        Pad(padding, 7, mode),
        lambda x: F.pad(x, list(padding) if isinstance(padding, tuple) else padding, 7, mode),
        1.0,
    )


@pytest.mark.parametrize("ratio", [(4.0, 5.0), (0.2, 0.25), (0.7, 1.9)])
def test_the_crop_that_is_taken_if_no_try_fits(ratio: Any) -> None:
    theirs = tv.RandomResizedCrop(10, (1.5, 1.6), ratio)
    for x in photographs():
        height, width = x.shape[:2]
        expected = theirs.make_params([torch.empty(3, height, width)])
        x, y, w, h = RandomResizedCrop(10, (1.5, 1.6), ratio).box(height, width, Rng(0))
        assert (y, x, h, w) == tuple(expected[name] for name in ("top", "left", "height", "width"))
