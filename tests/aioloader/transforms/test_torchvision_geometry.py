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

from aioloader import transforms as t
from aioloader.rng import Rng
from aioloader.transforms.geometry import CropResize
from tests.aioloader.jpeg.samples import make_image
from tests.cases import with_cases
from tests.torchvision_import import import_torchvision

tv = import_torchvision()
torch = pytest.importorskip("torch")
F = tv.functional

_SHAPES = [(375, 500), (333, 250), (97, 101), (256, 256), (40, 700)]


@cache
def photographs() -> list[Any]:
    folder = os.environ.get("AIOLOADER_TEST_PHOTOS")
    if folder:
        files = sorted(Path(folder).rglob("*.[jJ][pP]*"))[:100]
        return [t.decode_image(file.read_bytes()) for file in files]
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


@with_cases("antialias", [True, False])
@with_cases("interpolation", ["bilinear", "bicubic", "nearest", "nearest-exact"])
@with_cases(("size", "max_size"), SIZES)
def test_resize(size: Any, max_size: Any, interpolation: str, antialias: bool) -> None:
    mode = tv.InterpolationMode(interpolation)
    check(
        t.Resize(size, interpolation, max_size, antialias),
        lambda x: F.resize(x, size, mode, max_size, antialias),
    )
    assert (
        t.Resize(size, mode, max_size, antialias).interpolation
        == t.Resize(size, interpolation, max_size).interpolation
    )


@with_cases("number", [2, 3])
def test_numbers_mean_what_they_mean_in_torchvision(number: int) -> None:
    check(t.Resize((100, 224), number), lambda x: F.resize(x, (100, 224), number))


@with_cases("size", [224, (100, 300), (31, 30), (800, 20), (801, 1023)])
def test_center_crop(size: Any) -> None:
    check(t.CenterCrop(size), lambda x: F.center_crop(x, size), 1.0)


@with_cases("height", range(1, 8))
@with_cases("width", range(1, 8))
def test_center_crop_rounds_as_torchvision_for_any_extents(height: int, width: int) -> None:
    image = np.arange(height * width * 3, dtype=np.uint8).reshape(height, width, 3)
    tensor = torch.from_numpy(image).permute(2, 0, 1)
    for size in np.ndindex(9, 9):
        if min(size) == 0:
            continue
        expected = F.center_crop(tensor, size).permute(1, 2, 0).numpy()
        made = t.CenterCrop(size)(image)
        assert np.array_equal(made, expected)
        assert np.array_equal(t.functional.center_crop(image, size), expected)
        boxed, _ = t.boxes.CenterCrop(size)(image, np.array([[0.0, 0.0, width, height]]))
        assert np.array_equal(boxed, expected)
        assert np.shares_memory(made, image) == (size[0] <= height and size[1] <= width)


@with_cases("antialias", [True, False])
def test_resized_crop(antialias: bool) -> None:
    rectangle = (7, 13, 30, 61)
    check(
        CropResize(*rectangle, (32, 24), antialias=antialias),
        lambda x: F.resized_crop(x, *rectangle, (32, 24), antialias=antialias),
    )


@with_cases("mode", ["constant", "edge", "reflect", "symmetric"])
@with_cases("padding", [3, (5, 2), (1, 2, 3, 4)])
def test_pad(padding: Any, mode: str) -> None:
    check(
        t.Pad(padding, 7, mode),
        lambda x: F.pad(x, list(padding) if isinstance(padding, tuple) else padding, 7, mode),
        1.0,
    )


@with_cases("ratio", [(4.0, 5.0), (0.2, 0.25), (0.7, 1.9)])
def test_the_crop_that_is_taken_if_no_try_fits(ratio: Any) -> None:
    theirs = tv.RandomResizedCrop(10, (1.5, 1.6), ratio)
    for x in photographs():
        height, width = x.shape[:2]
        expected = theirs.make_params([torch.empty(3, height, width)])
        x, y, w, h = t.RandomResizedCrop(10, (1.5, 1.6), ratio).box(height, width, Rng(0))
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


@with_cases("fill", [None, 200, (7, 90, 255)], ids=str)
@with_cases("interpolation", ["nearest", "bilinear"])
@with_cases(("angle", "expand"), ROTATIONS)
def test_rotate(angle: float, expand: bool, interpolation: str, fill: Any) -> None:
    mode = tv.InterpolationMode(interpolation)
    check(
        lambda x: t.functional.rotate(x, angle, interpolation, expand, None, fill),
        lambda x: F.rotate(x, angle, mode, expand, None, None if fill is None else _list(fill)),
    )


@with_cases("interpolation", ["nearest", "bilinear"])
@with_cases("center", [(0.0, 0.0), (30.0, 12.5)])
def test_rotate_about_a_point(center: Any, interpolation: str) -> None:
    mode = tv.InterpolationMode(interpolation)
    check(
        lambda x: t.functional.rotate(x, 21.0, interpolation, False, center, 3),
        lambda x: F.rotate(x, 21.0, mode, False, list(center), 3),
    )


AFFINES = {
    "moved": (0.0, (5, -3), 1.0, (0.0, 0.0)),
    "larger": (0.0, (0, 0), 1.7, (0.0, 0.0)),
    "smaller": (12.0, (4, 4), 0.6, (0.0, 0.0)),
    "sheared": (0.0, (0, 0), 1.0, (20.0, -11.0)),
    "all": (-40.0, (9, 2), 1.2, (7.0, 3.0)),
}


@with_cases("fill", [None, (7, 90, 255)], ids=str)
@with_cases("interpolation", ["nearest", "bilinear"])
@with_cases("arguments", AFFINES.values(), ids=AFFINES)
def test_affine(arguments: Any, interpolation: str, fill: Any) -> None:
    mode = tv.InterpolationMode(interpolation)
    angle, translate, scale, shear = arguments
    check(
        lambda x: t.functional.affine(x, *arguments, interpolation, fill),
        lambda x: F.affine(
            x, angle, list(translate), scale, list(shear), mode, None if fill is None else _list(fill)
        ),
    )


@with_cases("fill", [None, (7, 90, 255)], ids=str)
@with_cases("interpolation", ["nearest", "bilinear"])
@with_cases("strength", [0.1, 0.4])
def test_perspective(strength: float, interpolation: str, fill: Any) -> None:
    mode = tv.InterpolationMode(interpolation)

    def points(height: int, width: int) -> Any:
        corners = [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]
        drawn = t.RandomPerspective(strength).endpoints(height, width, Rng(5))
        return corners, [list(place) for place in drawn]

    check(
        lambda x: t.functional.perspective(x, *points(*x.shape[:2]), interpolation, fill),
        lambda x: F.perspective(x, *points(*x.shape[1:]), mode, None if fill is None else _list(fill)),
    )


@with_cases("value", [0, 255, (1, 2, 3)], ids=str)
def test_erase(value: Any) -> None:
    values = torch.tensor(value, dtype=torch.uint8).reshape(-1, 1, 1)
    check(lambda x: t.functional.erase(x, 3, 5, 9, 7, value), lambda x: F.erase(x, 3, 5, 9, 7, values), 1.0)


def test_crops_and_borders_with_given_parameters() -> None:
    for place in ((3, 4, 20, 30), (-5, -2, 30, 30), (20, 10, 700, 20)):
        check(
            lambda x, place=place: t.functional.crop(x, *place), lambda x, place=place: F.crop(x, *place), 1.0
        )
        check(
            lambda x, place=place: t.functional.resized_crop(x, *place, (20, 31)),
            lambda x, place=place: F.resized_crop(x, *place, (20, 31), antialias=True),
        )
    check(lambda x: t.functional.resize(x, 64), lambda x: F.resize(x, 64))
    check(lambda x: t.functional.center_crop(x, 64), lambda x: F.center_crop(x, 64), 1.0)
    check(lambda x: t.functional.pad(x, (1, 2), 3), lambda x: F.pad(x, [1, 2], 3), 1.0)


def _list(fill: Any) -> Any:
    return list(map(float, fill)) if isinstance(fill, tuple) else fill


def moved(matrix: Any) -> list[Any]:
    """Return angle, whole shift and scale of an affine map of 30 rows and 40 columns."""
    shift = matrix @ (20, 15, 1) - (20, 15, 1)
    scale = float(np.hypot(matrix[0, 0], matrix[1, 0]))
    return [np.degrees(np.arctan2(matrix[1, 0], matrix[0, 0])), *np.rint(shift[:2]), scale]


AFFINE = (-30, 30), (0.1, 0.3), (0.5, 1.5)
# Name: a function that draws ours, torchvision's transform, the names of its parameters, height and width.
DRAWS: dict[str, tuple[Any, Any, tuple[str, ...], tuple[int, int]]] = {
    "resized crop": (
        lambda rng: t.RandomResizedCrop(10, (0.2, 0.9), (0.5, 3.0)).box(300, 400, rng),
        *(tv.RandomResizedCrop(10, (0.2, 0.9), (0.5, 3.0)), ("left", "top", "width", "height"), (300, 400)),
    ),
    "crop": (
        lambda rng: -t.RandomCrop((100, 150)).motion(300, 400, rng).matrix[:2, 2],
        *(tv.RandomCrop((100, 150)), ("left", "top"), (300, 400)),
    ),
    "padded crop": (
        lambda rng: 11 - t.RandomCrop((100, 150), 11).motion(300, 400, rng).matrix[:2, 2],
        *(tv.RandomCrop((100, 150), 11), ("left", "top"), (300, 400)),
    ),
    "rotation": (
        lambda rng: [-moved(t.RandomRotation((-10, 70)).motion(30, 40, rng).matrix)[0]],
        *(tv.RandomRotation((-10, 70)), ("angle",), (30, 40)),
    ),
    "affine": (
        lambda rng: moved(t.RandomAffine(*AFFINE).motion(30, 40, rng).matrix),
        *(tv.RandomAffine(*AFFINE), ("angle", "translate", "scale"), (30, 40)),
    ),
    "perspective": (
        lambda rng: coefficients(t.RandomPerspective(0.5, 1.0).motion(60, 80, rng).matrix),
        *(tv.RandomPerspective(0.5, 1.0), ("coefficients",), (60, 80)),
    ),
    "erasing": (
        lambda rng: t.RandomErasing(1.0).rectangle(60, 80, rng) or (0, 0, 60, 80),
        *(tv.RandomErasing(1.0), ("i", "j", "h", "w"), (60, 80)),
    ),
}


def coefficients(matrix: Any) -> Any:
    inverse = np.linalg.inv(matrix)
    return (inverse / inverse[2, 2]).ravel()[:8]


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWS)
def test_10_000_draws_are_distributed_like_torchvisions(name: str) -> None:
    """Compare every column by the two-sample test of Kolmogorov and Smirnov."""
    stats = pytest.importorskip("scipy.stats", reason="compares distributions")
    draw, other, names, extents = DRAWS[name]
    ours = np.array([draw(Rng(1, 0, index)) for index in range(10_000)])
    torch.manual_seed(3)
    drawn = (other.make_params([torch.empty(3, *extents)]) for _ in range(10_000))
    expected = np.array([np.hstack([np.ravel(found[name]) for name in names]) for found in drawn])
    assert ours.shape == expected.shape
    for mine, theirs in zip(ours.T.astype(float), expected.T.astype(float), strict=True):
        if not mine.min() == mine.max() == theirs.min() == theirs.max():
            assert stats.ks_2samp(mine, theirs).pvalue > 1e-4
