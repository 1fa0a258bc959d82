"""Geometric transforms beside torchvision's, version 2: the same images, the same parameters.

Rule: bytes differ by at most one level in 99.9 % of the values. Photographs are those of the folder that
AIOLOADER_TEST_PHOTOS names; without it they are made, with edges and noise.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pytest

from aioloader.rng import Rng
from aioloader.transforms import (
    CenterCrop,
    Pad,
    RandomAffine,
    RandomCrop,
    RandomErasing,
    RandomPerspective,
    RandomResizedCrop,
    RandomRotation,
    Resize,
    boxes,
    decode_image,
    functional,
)
from aioloader.transforms.geometry import CropResize
from tests.aioloader.jpeg.samples import make_image
from tests.torchvision_import import import_torchvision

if TYPE_CHECKING:
    from collections.abc import Sequence

tv = import_torchvision()
torch = pytest.importorskip("torch")
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


@pytest.mark.parametrize("number", [2, 3])
def test_numbers_mean_what_they_mean_in_torchvision(number: int) -> None:
    check(Resize((100, 224), number), lambda x: F.resize(x, (100, 224), number))


@pytest.mark.parametrize("size", [224, (100, 300), (31, 30), (800, 20), (801, 1023)])
def test_center_crop(size: Any) -> None:
    check(CenterCrop(size), lambda x: F.center_crop(x, size), 1.0)


@pytest.mark.parametrize("height", range(1, 8))
@pytest.mark.parametrize("width", range(1, 8))
def test_center_crop_rounds_as_torchvision_for_any_extents(height: int, width: int) -> None:
    image = np.arange(height * width * 3, dtype=np.uint8).reshape(height, width, 3)
    tensor = torch.from_numpy(image).permute(2, 0, 1)
    for size in np.ndindex(9, 9):
        if min(size) == 0:
            continue
        expected = F.center_crop(tensor, size).permute(1, 2, 0).numpy()
        made = CenterCrop(size)(image)
        assert np.array_equal(made, expected)
        assert np.array_equal(functional.center_crop(image, size), expected)
        boxed, _ = boxes.CenterCrop(size)(image, np.array([[0.0, 0.0, width, height]]))
        assert np.array_equal(boxed, expected)
        assert np.shares_memory(made, image) == (size[0] <= height and size[1] <= width)


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


ROTATIONS = [
    (0, False),
    (90, False),
    (90, True),
    (180, False),
    (270, True),
    (-450, True),
    (33.3, False),
    (-12, True),
]


@pytest.mark.parametrize("fill", [None, 0, 200, (7, 90, 255)], ids=str)
@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
@pytest.mark.parametrize(("angle", "expand"), ROTATIONS)
def test_rotate(angle: float, expand: bool, interpolation: str, fill: Any) -> None:
    mode = tv.InterpolationMode(interpolation)
    check(
        lambda x: functional.rotate(x, angle, interpolation, expand, None, fill),
        lambda x: F.rotate(x, angle, mode, expand, None, None if fill is None else _list(fill)),
    )


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
@pytest.mark.parametrize("center", [(0.0, 0.0), (30.0, 12.5)])
def test_rotate_about_a_point(center: Any, interpolation: str) -> None:
    mode = tv.InterpolationMode(interpolation)
    check(
        lambda x: functional.rotate(x, 21.0, interpolation, False, center, 3),
        lambda x: F.rotate(x, 21.0, mode, False, list(center), 3),
    )


AFFINES = {
    "moved": (0.0, (5, -3), 1.0, (0.0, 0.0)),
    "larger": (0.0, (0, 0), 1.7, (0.0, 0.0)),
    "smaller": (12.0, (4, 4), 0.6, (0.0, 0.0)),
    "sheared": (0.0, (0, 0), 1.0, (20.0, -11.0)),
    "all": (-40.0, (9, 2), 1.2, (7.0, 3.0)),
}


@pytest.mark.parametrize("fill", [None, 0, (7, 90, 255)], ids=str)
@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
@pytest.mark.parametrize("arguments", AFFINES.values(), ids=AFFINES)
def test_affine(arguments: Any, interpolation: str, fill: Any) -> None:
    mode = tv.InterpolationMode(interpolation)
    angle, translate, scale, shear = arguments
    check(
        lambda x: functional.affine(x, *arguments, interpolation, fill),
        lambda x: F.affine(
            x, angle, list(translate), scale, list(shear), mode, None if fill is None else _list(fill)
        ),
    )


@pytest.mark.parametrize("fill", [None, 0, (7, 90, 255)], ids=str)
@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
@pytest.mark.parametrize("strength", [0.1, 0.4])
def test_perspective(strength: float, interpolation: str, fill: Any) -> None:
    mode = tv.InterpolationMode(interpolation)

    def points(height: int, width: int) -> Any:
        corners = [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]
        drawn = RandomPerspective(strength).endpoints(height, width, Rng(5))
        return corners, [list(place) for place in drawn]

    check(
        lambda x: functional.perspective(x, *points(*x.shape[:2]), interpolation, fill),
        lambda x: F.perspective(x, *points(*x.shape[1:]), mode, None if fill is None else _list(fill)),
    )


@pytest.mark.parametrize("value", [0, 255, (1, 2, 3)], ids=str)
def test_erase(value: Any) -> None:
    values = torch.tensor(value, dtype=torch.uint8).reshape(-1, 1, 1)
    check(lambda x: functional.erase(x, 3, 5, 9, 7, value), lambda x: F.erase(x, 3, 5, 9, 7, values), 1.0)


def test_crops_and_borders_with_given_parameters() -> None:
    for place in ((3, 4, 20, 30), (-5, -2, 30, 30), (20, 10, 700, 20)):
        check(
            lambda x, place=place: functional.crop(x, *place), lambda x, place=place: F.crop(x, *place), 1.0
        )
        check(
            lambda x, place=place: functional.resized_crop(x, *place, (20, 31)),
            lambda x, place=place: F.resized_crop(x, *place, (20, 31), antialias=True),
        )
    check(lambda x: functional.resize(x, 64), lambda x: F.resize(x, 64))
    check(lambda x: functional.center_crop(x, 64), lambda x: F.center_crop(x, 64), 1.0)
    check(lambda x: functional.pad(x, (1, 2), 3), lambda x: F.pad(x, [1, 2], 3), 1.0)


def _list(fill: Any) -> Any:
    return list(map(float, fill)) if isinstance(fill, tuple) else fill


def torchvision_parameters(transform: Any, names: Sequence[str], height: int, width: int) -> Any:
    torch.manual_seed(3)
    image = torch.empty(3, height, width)
    drawn = (transform.make_params([image]) for _ in range(10_000))
    return np.array([np.hstack([np.ravel(found[name]) for name in names]) for found in drawn])


def same_distribution(ours: Any, expected: Any) -> None:
    """Compare every column by the two-sample test of Kolmogorov and Smirnov."""
    stats = pytest.importorskip("scipy.stats", reason="compares distributions")
    assert ours.shape == expected.shape
    for mine, other in zip(ours.T.astype(float), expected.T.astype(float), strict=True):
        if mine.min() == mine.max() == other.min() == other.max():
            continue
        assert stats.ks_2samp(mine, other).pvalue > 1e-4


@pytest.mark.slow
class TestDistributions:
    """10,000 draws of each."""

    def test_random_resized_crop(self) -> None:
        crop = RandomResizedCrop(10, (0.2, 0.9), (0.5, 3.0))
        boxes = [crop.box(300, 400, Rng(1, 0, index)) for index in range(10_000)]
        names = ("left", "top", "width", "height")
        theirs = tv.RandomResizedCrop(10, (0.2, 0.9), (0.5, 3.0))
        same_distribution(np.array(boxes), torchvision_parameters(theirs, names, 300, 400))

    @pytest.mark.parametrize("padding", [None, 11])
    def test_random_crop(self, padding: int | None) -> None:
        crop = RandomCrop((100, 150), padding)
        ours = []
        for index in range(10_000):
            matrix = crop.motion(300, 400, Rng(1, 0, index)).matrix
            ours.append((padding or 0) - matrix[:2, 2])
        theirs = torchvision_parameters(tv.RandomCrop((100, 150), padding), ("left", "top"), 300, 400)
        same_distribution(np.array(ours), theirs)

    def test_random_rotation(self) -> None:
        rotation = RandomRotation((-10, 70))
        ours = []
        for index in range(10_000):
            matrix = rotation.motion(30, 40, Rng(1, 0, index)).matrix
            ours.append([np.degrees(np.arctan2(matrix[0, 1], matrix[0, 0]))])
        expected = torchvision_parameters(tv.RandomRotation((-10, 70)), ("angle",), 30, 40)
        same_distribution(np.array(ours), expected)

    def test_random_affine(self) -> None:
        arguments = ((-30, 30), (0.1, 0.3), (0.5, 1.5))
        ours = []
        for index in range(10_000):
            matrix = RandomAffine(*arguments).motion(30, 40, Rng(1, 0, index)).matrix
            scale = float(np.hypot(matrix[0, 0], matrix[1, 0]))
            angle = np.degrees(np.arctan2(matrix[1, 0], matrix[0, 0]))
            moved = matrix @ (20, 15, 1) - (20, 15, 1)
            ours.append([angle, *np.rint(moved[:2]), scale])
        expected = torchvision_parameters(
            tv.RandomAffine(*arguments), ("angle", "translate", "scale"), 30, 40
        )
        same_distribution(np.array(ours), expected)

    def test_random_perspective(self) -> None:
        ours = []
        for index in range(10_000):
            motion = RandomPerspective(0.5, 1.0).motion(60, 80, Rng(1, 0, index))
            inverse = np.linalg.inv(motion.matrix)
            ours.append((inverse / inverse[2, 2]).ravel()[:8])
        expected = torchvision_parameters(tv.RandomPerspective(0.5, 1.0), ("coefficients",), 60, 80)
        same_distribution(np.array(ours), expected)

    def test_random_erasing(self) -> None:
        erasing = RandomErasing(1.0)
        ours = [erasing.rectangle(60, 80, Rng(1, 0, index)) or (0, 0, 60, 80) for index in range(10_000)]
        expected = torchvision_parameters(tv.RandomErasing(1.0), ("i", "j", "h", "w"), 60, 80)
        same_distribution(np.array(ours), expected)
