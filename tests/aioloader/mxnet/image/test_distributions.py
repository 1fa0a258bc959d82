"""Tests of the draws of `mx.image`'s augmenters, thousands from a fixed seed: ranges, means and shares."""

from __future__ import annotations

import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aioloader.mxnet as mx

DRAWS = 2000


@pytest.fixture(autouse=True)
def _seeded() -> None:
    random.seed(2024)
    np.random.seed(2024)


def _places(height: int, width: int) -> Any:
    """Return an image whose pixels encode their column and row."""
    image = np.zeros((height, width, 3), np.float32)
    image[..., 0], image[..., 1] = np.arange(width), np.arange(height)[:, None]
    return image


def _check_uniform(found: Any, low: float, high: float, slack: float = 0.0) -> None:
    """Check the range, that both ends are almost reached, and the mean and variance of a uniform distribution."""
    found, width = np.asarray(found, float), high - low
    assert found.min() >= low - slack
    assert found.max() <= high + slack
    assert found.min() < low + 0.01 * width + slack
    assert found.max() > high - 0.01 * width - slack
    deviation = width / math.sqrt(12)
    assert abs(found.mean() - (low + high) / 2) < 4 * deviation / math.sqrt(len(found)) + slack
    assert abs(found.std() / deviation - 1) < 0.06


def _check_share(count: int, p: float) -> None:
    assert abs(count / DRAWS - p) <= 4 * math.sqrt(p * (1 - p) / DRAWS)


# --- places ---


def test_random_crop_is_uniform_over_all_places() -> None:
    image = _places(9, 12)
    boxes = [mx.image.random_crop(image, (8, 6))[1] for _ in range(DRAWS)]
    assert {box[2:] for box in boxes} == {(8, 6)}
    for axis, count in ((0, 5), (1, 4)):
        shares = Counter(box[axis] for box in boxes)
        assert sorted(shares) == list(range(count))
        for found in shares.values():
            _check_share(found, 1 / count)


@pytest.mark.parametrize("area", [(0.08, 1.0), (0.3, 0.6), 0.5])
def test_random_size_crop_keeps_area_and_ratio(area: Any) -> None:
    image = _places(200, 200)
    least, greatest = (area, 1.0) if isinstance(area, float) else area
    ratio = (3 / 4, 4 / 3)
    boxes = np.array([mx.image.random_size_crop(image, (4, 4), area, ratio, 0)[1] for _ in range(DRAWS)])
    width, height = boxes[:, 2].astype(float), boxes[:, 3].astype(float)
    slack = (width + height + 1) / 2 / 200**2
    shares = width * height / 200**2
    assert (shares >= least - slack).all()
    assert (shares <= greatest + slack).all()
    ratios = width / height
    assert (ratios >= ratio[0] * (1 - 0.02)).all()
    assert (ratios <= ratio[1] * (1 + 0.02)).all()
    assert (boxes[:, :2] >= 0).all()
    assert (boxes[:, :2] + boxes[:, 2:] <= 200).all()
    if greatest <= 0.7:
        # Every draw fits, so nothing distorts the distributions.
        _check_uniform(shares, least, greatest, 0.005)
        _check_uniform(np.log(ratios), math.log(ratio[0]), math.log(ratio[1]), 0.02)


def test_det_random_crop_keeps_area_and_ratio() -> None:
    image, label = _places(100, 120), np.array([[0, 0.0, 0.0, 1.0, 1.0]], np.float32)
    augment = mx.image.DetRandomCropAug(0.0, (0.75, 1.33), (0.3, 0.6), 0.0)
    made = [augment(image, label) for _ in range(DRAWS)]
    shapes = np.array([crop.shape[:2] for crop, _ in made], float)
    assert (shapes != (100, 120)).any(axis=1).all()
    ratios, shares = shapes[:, 1] / shapes[:, 0], shapes.prod(axis=1) / 12_000
    assert ratios.min() > 0.75 - 0.02
    assert ratios.max() < 1.33 + 0.02
    assert shares.min() >= 0.3 - 0.01
    assert shares.max() <= 0.6 + 0.01
    assert ratios.min() < 0.77
    assert ratios.max() > 1.31
    assert shares.min() < 0.32
    assert shares.max() > 0.58
    corners = {tuple(np.asarray(crop)[0, 0, :2]) for crop, _ in made}
    assert len(corners) > 500


def test_det_random_pad_keeps_area_and_ratio() -> None:
    image, label = _places(60, 60) + 1, np.array([[0, 0.0, 0.0, 1.0, 1.0]], np.float32)
    augment = mx.image.DetRandomPadAug((0.75, 1.33), (1.0, 3.0), pad_val=0)
    made = [augment(image, label) for _ in range(DRAWS)]
    shapes = np.array([canvas.shape[:2] for canvas, _ in made], float)
    ratios, shares = shapes[:, 1] / shapes[:, 0], shapes.prod(axis=1) / 3600
    assert 0.73 < ratios.min() < 0.78
    assert 1.30 < ratios.max() < 1.35
    assert 1.0 < shares.min() < 1.2
    assert 2.9 < shares.max() < 3.05
    assert (shapes >= 62).all()
    # The image is at a uniformly random place of the canvas.
    free = np.array([[canvas.shape[1] - 60, canvas.shape[0] - 60] for canvas, _ in made])
    corners = np.array([boxes[0, 1:3] * (canvas.shape[1], canvas.shape[0]) for canvas, boxes in made])
    assert np.abs((corners / free).mean(axis=0) - 0.5).max() < 0.03


@pytest.mark.parametrize("p", [0.0, 0.3, 0.5, 1.0])
def test_share_of_mirrored_images(p: float) -> None:
    image = _places(3, 4)
    label = np.array([[0, 0.0, 0.0, 0.25, 1.0]], np.float32)
    single, both = mx.image.HorizontalFlipAug(p), mx.image.DetHorizontalFlipAug(p)
    _check_share(sum(float(np.asarray(single(image))[0, 0, 0]) == 3 for _ in range(DRAWS)), p)
    made = [both(image, label) for _ in range(DRAWS)]
    mirrored = [float(np.asarray(flipped)[0, 0, 0]) == 3 for flipped, _ in made]
    assert mirrored == [float(boxes[0, 1]) == 0.75 for _, boxes in made]
    _check_share(sum(mirrored), p)


def test_share_of_augmenters_that_are_selected() -> None:
    image, label = _places(3, 4), np.array([[0, 0.0, 0.0, 0.25, 1.0]], np.float32)

    class Mark(mx.image.DetAugmenter):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

        def __call__(self, src: Any, label: Any) -> Any:
            return self.number, label

    chosen = mx.image.DetRandomSelectAug([Mark(0), Mark(1)], 0.4)
    found = Counter(made if isinstance(made := chosen(image, label)[0], int) else -1 for _ in range(DRAWS))
    _check_share(found[-1], 0.4)
    _check_share(found[0], 0.3)
    _check_share(found[1], 0.3)


def test_random_rotate_is_uniform_over_its_angles() -> None:
    image = mx.nd.from_numpy(_places(9, 9).transpose(2, 0, 1)[:1])  # one plane that encodes its column
    found = []
    for _ in range(DRAWS // 4):
        turned = np.asarray(mx.image.random_rotate(image, (-20.0, 35.0)), float)[0]
        # Bilinear sampling of a plane is exact: its slopes determine the angle.
        found.append(math.degrees(math.atan2(turned[3, 4] - turned[5, 4], turned[4, 5] - turned[4, 3])))
    batch = mx.nd.stack(*[image] * 4)
    for _ in range(DRAWS // 4):
        turned = np.asarray(mx.image.random_rotate(batch, (-20.0, 35.0)), float)[:, 0]
        slopes = zip(turned[:, 3, 4] - turned[:, 5, 4], turned[:, 4, 5] - turned[:, 4, 3], strict=True)
        found += [math.degrees(math.atan2(down, right)) for down, right in slopes]
    assert len(found) >= DRAWS
    _check_uniform(found, -20.0, 35.0, 0.01)


# --- colours ---

PIXELS = np.array([[[200.0, 60.0, 20.0], [10.0, 120.0, 240.0]]], np.float32)
LUMA = np.array([0.299, 0.587, 0.114])


@pytest.mark.parametrize("amount", [0.2, 0.5])
def test_brightness_factors(amount: float) -> None:
    augment = mx.image.BrightnessJitterAug(amount)
    factors = [np.asarray(augment(PIXELS))[0, 0, 0] / 200 for _ in range(DRAWS)]
    _check_uniform(factors, 1 - amount, 1 + amount, 1e-5)


@pytest.mark.parametrize("amount", [0.2, 0.5])
def test_contrast_factors(amount: float) -> None:
    augment = mx.image.ContrastJitterAug(amount)
    made = [np.asarray(augment(PIXELS), float) for _ in range(DRAWS)]
    _check_uniform([m[0, 0, 0] - m[0, 0, 2] for m in made] / np.float64(180), 1 - amount, 1 + amount, 1e-5)
    mean = (PIXELS @ LUMA).mean()
    assert np.allclose([(m @ LUMA).mean() for m in made], mean, atol=1e-3)


@pytest.mark.parametrize("amount", [0.2, 0.5])
def test_saturation_factors(amount: float) -> None:
    augment = mx.image.SaturationJitterAug(amount)
    made = [np.asarray(augment(PIXELS), float) for _ in range(DRAWS)]
    _check_uniform([m[0, 0, 0] - m[0, 0, 2] for m in made] / np.float64(180), 1 - amount, 1 + amount, 1e-5)
    assert np.allclose([m @ LUMA for m in made], PIXELS @ LUMA, atol=1e-3)


@pytest.mark.parametrize("amount", [0.1, 0.5])
def test_hue_turns(amount: float) -> None:
    to_iq = np.array([[0.596, -0.274, -0.321], [0.211, -0.523, 0.311]])
    augment = mx.image.HueJitterAug(amount)
    before = np.arctan2(*(to_iq @ PIXELS[0, 0])[::-1])
    turns = [
        np.arctan2(*(to_iq @ np.asarray(augment(PIXELS), float)[0, 0])[::-1]) - before for _ in range(DRAWS)
    ]
    wrapped = (np.array(turns) + math.pi) % (2 * math.pi) - math.pi
    _check_uniform(wrapped / math.pi, -amount, amount, 0.01)


def test_lighting_weights() -> None:
    augment = mx.image.LightingAug(0.5, np.ones(3), np.eye(3))
    offsets = np.array([np.asarray(augment(PIXELS), float)[0, 0] - PIXELS[0, 0] for _ in range(DRAWS)])
    assert np.abs(offsets.mean(axis=0)).max() < 4 * 0.5 / math.sqrt(DRAWS)
    assert np.abs(offsets.std(axis=0) - 0.5).max() < 0.04
    assert np.abs(np.corrcoef(offsets.T) - np.eye(3)).max() < 0.1


@pytest.mark.parametrize("p", [0.2, 0.7])
def test_share_of_grey_images(p: float) -> None:
    augment = mx.image.RandomGrayAug(p)
    made = [np.asarray(augment(PIXELS)) for _ in range(DRAWS)]
    _check_share(sum(m[0, 0, 0] == m[0, 0, 1] for m in made), p)


def test_all_orders_are_as_likely() -> None:
    seen: list[int] = []
    parts = [lambda image, n=n: (seen.append(n), image)[1] for n in range(3)]
    augment = mx.image.RandomOrderAug(parts)
    for _ in range(DRAWS):
        augment(PIXELS)
    orders = Counter(tuple(seen[at : at + 3]) for at in range(0, len(seen), 3))
    assert len(orders) == 6
    for count in orders.values():
        _check_share(count, 1 / 6)


def test_jitter_takes_each_amount_from_its_own_range() -> None:
    augment = mx.image.ColorJitterAug(0.3, 0, 0)
    _check_uniform([np.asarray(augment(PIXELS))[0, 0, 0] / 200 for _ in range(DRAWS)], 0.7, 1.3, 1e-5)


# --- iterators ---


def test_shares_in_an_iterator(tmp_path: Path) -> None:
    images = [
        np.random.RandomState(number).randint(0, 256, (24, 24, 3)).astype(np.uint8) for number in range(16)
    ]
    paths = {name: str(tmp_path / f"a.{name}") for name in ("rec", "idx")}
    record = mx.recordio.MXIndexedRecordIO(paths["idx"], paths["rec"], "w")
    for number, image in enumerate(images):
        header = (0, float(number), number, 0)
        record.write_idx(number, mx.recordio.pack_img(header, image[..., ::-1], img_fmt=".bmp"))
    record.close()
    iterator = mx.image.ImageIter(
        16, (3, 24, 24), path_imgrec=paths["rec"], path_imgidx=paths["idx"], rand_mirror=True, shuffle=True
    )
    mirrored = 0
    for _ in range(DRAWS // 16):
        (batch,) = iterator
        for row, label in zip(batch.data[0].asnumpy(), batch.label[0].asnumpy(), strict=True):
            image = images[int(label)].transpose(2, 0, 1)
            flipped = not np.array_equal(row, image)
            assert np.array_equal(row, image[:, :, ::-1] if flipped else image)
            mirrored += flipped
        iterator.reset()
    _check_share(mirrored, 0.5)
