"""Tests of `ImageRecordIter`'s draws, derived from pixels: 2,000 images, one seed. Epochs differ, seeds agree."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aioloader.mxnet as mx
from aioloader.mxnet.io import UnusedParameterWarning
from tests.aioloader.mxnet.image_records import AUG, coordinates, make, write
from tests.aioloader.transforms.drawn import even, uniform

COUNT = 2000


def drawn(tmp_path: Path, image: Any, count: int = COUNT, **arguments: Any) -> Any:
    """Return the iterator's batch of many copies of one image."""
    path = write(tmp_path / "same.rec", [image] * count)
    values = {"batch_size": count, "seed": 1, "data_shape": (3, *image.shape[:2]), **arguments}
    return np.asarray(make(path, **values).next().data[0])


def gray(height: int = 2, width: int = 2, value: int = 100) -> Any:
    return np.full((height, width, 3), value, np.uint8)


def test_mirroring_is_a_coin(tmp_path: Path) -> None:
    red = drawn(tmp_path, coordinates(2, 8), rand_mirror=True)[:, 0, 0]
    turned = red[:, 0] == 7
    assert (red[~turned] == np.arange(8)).all()
    assert (red[turned] == np.arange(8)[::-1]).all()
    assert abs(turned.mean() - 0.5) < 0.04


def test_crops_lie_everywhere_as_often(tmp_path: Path) -> None:
    found = drawn(tmp_path, coordinates(12, 20), rand_crop=True, data_shape=(3, 5, 6)).astype(int)
    assert even(found[:, 0, 0, 0], 0, 14)
    assert even(found[:, 1, 0, 0], 0, 7)
    assert (found[:, 0, 0, -1] - found[:, 0, 0, 0] == 5).all()


def test_areas_and_ratios_of_crops(tmp_path: Path) -> None:
    found = drawn(
        tmp_path,
        coordinates(100, 100, 2),
        random_resized_crop=True,
        min_random_area=0.1,
        max_random_area=0.4,
        max_aspect_ratio=0.25,
        data_shape=(3, 25, 25),
        inter_method=0,
    )
    # The nearest pixels of 25 columns: from the first of the crop to the one that is 24/25 of the way.
    width = (found[:, 0, 0, -1] - found[:, 0, 0, 0]) / 2 * 25 / 24
    height = (found[:, 1, -1, 0] - found[:, 1, 0, 0]) / 2 * 25 / 24
    area = width * height / 10_000
    assert uniform(np.clip(area, 0.1, 0.4), 0.1, 0.4)
    ratio = np.maximum(width / height, height / width)
    assert 1.2 < ratio.max() < 1.45
    assert abs((width > height).mean() - 0.5) < 0.06


def test_squares_of_random_size(tmp_path: Path) -> None:
    found = drawn(
        tmp_path,
        coordinates(60, 80),
        max_crop_size=40,
        min_crop_size=20,
        rand_crop=True,
        data_shape=(3, 20, 20),
        inter_method=0,
    )
    side = (found[:, 0, 0, -1] - found[:, 0, 0, 0]) * 20 / 19
    assert 19 < side.min() < 22
    assert 38 < side.max() < 42
    assert abs(side.mean() - 30) < 1


def angles(found: Any) -> Any:
    """Return the degrees, counter-clockwise, by which an image of coordinates was rotated."""
    red = found[:, 0]
    right = (red[:, :, -1] - red[:, :, 0]).mean(1)
    down = (red[:, -1] - red[:, 0]).mean(1)
    return np.degrees(np.arctan2(-down, right))


def test_angles_are_whole_and_even(tmp_path: Path) -> None:
    shape = {"data_shape": (3, 21, 21)}
    found = angles(drawn(tmp_path, coordinates(40, 40, 6), max_rotate_angle=10, **shape))
    nearest = np.rint(found)
    assert np.abs(found - nearest).max() < 0.4
    assert even(nearest.astype(int), -10, 10)
    listed = np.rint(angles(drawn(tmp_path, coordinates(40, 40, 6), rotate_list="-20,0,15", **shape)))
    assert {int(angle): int((listed == angle).sum()) > 550 for angle in np.unique(listed)} == {
        -20: True,
        0: True,
        15: True,
    }
    with pytest.warns(UnusedParameterWarning, match="the angle is that of rotate"):
        fixed = angles(drawn(tmp_path, coordinates(40, 40, 6), 20, rotate=30, max_rotate_angle=10, **shape))
    assert np.abs(fixed - 30).max() < 0.4


def test_scales_are_uniform(tmp_path: Path) -> None:
    found = drawn(
        tmp_path, coordinates(60, 60, 4), max_random_scale=1.5, min_random_scale=0.75, data_shape=(3, 21, 21)
    )
    steps = (found[:, 0, :, -1] - found[:, 0, :, 0]).mean(1) / 20
    assert uniform(np.clip(4 / steps, 0.75, 1.5), 0.75, 1.5)


def test_aspect_ratios_are_uniform(tmp_path: Path) -> None:
    found = drawn(tmp_path, coordinates(60, 60, 4), max_aspect_ratio=0.5, data_shape=(3, 21, 21))
    along_x = 80 / (found[:, 0, :, -1] - found[:, 0, :, 0]).mean(1)
    along_y = 80 / (found[:, 1, -1] - found[:, 1, 0]).mean(1)
    assert uniform(np.clip(along_y / along_x, 0.5, 1.5), 0.5, 1.5)


def test_shears_are_uniform(tmp_path: Path) -> None:
    found = drawn(tmp_path, coordinates(60, 60, 4), max_shear_ratio=0.3, data_shape=(3, 41, 21))
    down = (found[:, 0, -1] - found[:, 0, 0]).mean(1) / 160
    assert uniform(np.clip(down, -0.3, 0.3), -0.3, 0.3)


def test_brightness_and_contrast_are_uniform(tmp_path: Path) -> None:
    assert uniform(drawn(tmp_path, gray(), brightness=0.4)[:, 0, 0, 0], 60, 140)
    halves = np.concatenate((gray(2, 1, 60), gray(2, 1, 140)), axis=1)
    spread = drawn(tmp_path, halves, contrast=0.5)
    assert np.abs(spread.mean((1, 2, 3)) - 100).max() <= 1
    assert uniform((spread[:, 0, 0, 1] - spread[:, 0, 0, 0]) / 80, 0.5, 1.5)


def test_saturation_is_uniform(tmp_path: Path) -> None:
    colour = gray()
    colour[..., 0] = 160
    found = drawn(tmp_path, colour, saturation=0.5)
    assert uniform(np.clip((found[:, 0, 0, 0] - found[:, 1, 0, 0]) / 60, 0.5, 1.5), 0.5, 1.5)


def test_principal_colours_have_their_spread(tmp_path: Path) -> None:
    found = drawn(tmp_path, gray(), pca_noise=0.2)[:, :, 0, 0] - 100
    values = np.array([55.46, 4.794, 1.148])
    vectors = np.array([[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]])
    expected = 0.2 * np.sqrt(((vectors * values) ** 2).sum(1))
    assert np.abs(found.mean(0)).max() < 0.6
    assert np.allclose(found.std(0), expected, rtol=0.06)
    assert np.corrcoef(found.T).min() > 0.95


def test_hue_lightness_and_saturation(tmp_path: Path) -> None:
    light = drawn(tmp_path, gray(), random_l=40)[:, 0, 0, 0] - 100
    assert -40 <= light.min() < -34
    assert 34 < light.max() <= 40
    assert abs(light.std() - 80 * np.sqrt(17 / 300)) < 1.2
    colour = gray()
    colour[..., 0] = 180
    hues = drawn(tmp_path, colour, random_h=30)
    assert len(np.unique(hues[:, 1, 0, 0])) > 20
    dull = drawn(tmp_path, colour, random_s=60)
    assert (dull.max(1) - dull.min(1)).std() > 5


def test_contrast_and_illumination(tmp_path: Path) -> None:
    found = drawn(tmp_path, gray(), max_random_illumination=20, scale=0.5)[:, 0, 0, 0]
    assert uniform(found, 40, 60)
    found = drawn(tmp_path, gray(), max_random_contrast=0.3, mean_r=50)[:, 0, 0, 0]
    assert uniform(found, 35, 65)


EVERYTHING: dict[str, dict[str, Any]] = {
    "mirror": {"rand_mirror": True},
    "crop": {"rand_crop": True},
    "area": {"random_resized_crop": True, "min_random_area": 0.2},
    "square": {"max_crop_size": 20, "min_crop_size": 10},
    "rotate": {"max_rotate_angle": 30},
    "list": {"rotate_list": (0, 20, 40)},
    "shear": {"max_shear_ratio": 0.3},
    "scale": {"max_random_scale": 1.5, "min_random_scale": 0.5},
    "aspect": {"max_aspect_ratio": 0.4},
    "brightness": {"brightness": 0.4},
    "contrast": {"contrast": 0.4},
    "saturation": {"saturation": 0.4},
    "pca": {"pca_noise": 0.3},
    "hls": {"random_h": 20, "random_s": 30, "random_l": 40},
    "illumination": {"max_random_illumination": 9},
    "max-contrast": {"max_random_contrast": 0.4},
    "interpolation": {"inter_method": 10, "resize": 17},
}


@pytest.mark.parametrize("name", EVERYTHING)
def test_epochs_differ_and_seeds_agree(tmp_path: Path, name: str) -> None:
    image = np.random.default_rng(0).integers(0, 256, (24, 30, 3), np.uint8)
    path = write(tmp_path / "a.rec", [image] * 12)

    def passes(seed: int) -> list[Any]:
        iterator = make(path, data_shape=(3, 16, 16), batch_size=12, seed=seed, **EVERYTHING[name])
        found = []
        for _ in range(2):
            found.append(np.asarray(iterator.next().data[0]))
            iterator.reset()
        return found

    first, second = passes(4)
    assert not np.array_equal(first, second)
    assert all(map(np.array_equal, passes(4), (first, second)))
    assert not np.array_equal(passes(5)[0], first)
    # Rows of one batch do not share their draws.
    assert len({row.tobytes() for row in first}) > 1


# --- seeds ---

RANDOM = {
    "rand_crop": True,
    "rand_mirror": True,
    "max_random_scale": 1.3,
    "max_random_illumination": 3,
    "max_rotate_angle": 10,
    "random_l": 50,
    "random_s": 40,
    "random_h": 10,
    "max_shear_ratio": 2,
}


def pixels(**arguments: Any) -> list[np.ndarray[Any, Any]]:
    """Return two epochs over the golden images."""
    values = {"data_shape": (3, 20, 20), "batch_size": 2, "executor": "inline", **RANDOM, **arguments}
    values = {name: value for name, value in values.items() if value is not None}
    iterator = mx.io.ImageRecordIter(path_imgrec=AUG, **values)
    passes = []
    for _ in range(2):
        passes.append(np.concatenate([batch.data[0] for batch in iterator]))
        iterator.reset()
    return passes


def test_seeds_decide_what_is_drawn() -> None:
    first, second = pixels(seed_aug=3)
    assert not np.array_equal(first, second)  # MXNet repeats the same crops in every epoch
    assert all(map(np.array_equal, pixels(seed_aug=3), (first, second)))
    assert all(map(np.array_equal, pixels(seed_aug=3, seed=9), (first, second)))
    assert not np.array_equal(pixels(seed_aug=4)[0], first)
    by_seed = pixels(seed=5)
    assert all(map(np.array_equal, pixels(seed=5), by_seed))
    assert not np.array_equal(pixels(seed=6)[0], by_seed[0])
    unsigned = {"dtype": "uint8", "max_random_illumination": None}
    assert all(map(np.array_equal, pixels(seed_aug=3, **unsigned), pixels(seed_aug=3, **unsigned)))


def test_a_record_that_is_borrowed_is_drawn_again(tmp_path: Path) -> None:
    image = np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)
    path = write(tmp_path / "a.rec", [image])
    iterator = make(path, batch_size=2, rand_crop=True, seed=1)
    batch = iterator.next()
    assert batch.pad == 1
    assert not np.array_equal(batch.data[0][0], batch.data[0][1])


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_workers_change_nothing(executor: str, leftovers: Any) -> None:
    expected = pixels(seed=2, shuffle=True)
    found = pixels(seed=2, shuffle=True, executor=executor, preprocess_threads=2, prefetch_buffer=2)
    assert all(map(np.array_equal, found, expected))
    gc.collect()
