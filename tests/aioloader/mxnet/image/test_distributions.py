"""Tests of the draws of `mx.image`'s augmenters, thousands from a fixed seed: ranges, means and shares."""

import math
import random
from collections import Counter

import numpy as np
import pytest

import aioloader.mxnet as mx
from tests.cases import with_cases

DRAWS = 2000


@pytest.fixture(autouse=True)
def _seeded():
    random.seed(2024)
    np.random.seed(2024)


def _places(height, width):
    """Return an image whose pixels encode their column and row."""
    image = np.zeros((height, width, 3), np.float32)
    image[..., 0], image[..., 1] = np.arange(width), np.arange(height)[:, None]
    return image


def _check_share(count, p):
    assert abs(count / DRAWS - p) <= 4 * math.sqrt(p * (1 - p) / DRAWS)


def test_det_random_crop_keeps_area_and_ratio():
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


def test_det_random_pad_keeps_area_and_ratio():
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


@with_cases("p", [0.0, 0.3, 0.5, 1.0])
def test_share_of_mirrored_and_of_grey_images(p):
    image = _places(3, 4)
    label = np.array([[0, 0.0, 0.0, 0.25, 1.0]], np.float32)
    single, both = mx.image.HorizontalFlipAug(p), mx.image.DetHorizontalFlipAug(p)
    _check_share(sum(float(np.asarray(single(image))[0, 0, 0]) == 3 for _ in range(DRAWS)), p)
    made = [both(image, label) for _ in range(DRAWS)]
    mirrored = [float(np.asarray(flipped)[0, 0, 0]) == 3 for flipped, _ in made]
    assert mirrored == [float(boxes[0, 1]) == 0.75 for _, boxes in made]
    _check_share(sum(mirrored), p)
    gray = mx.image.RandomGrayAug(p)
    _check_share(sum(float(np.asarray(gray(image))[0, 3, 0]) != 3 for _ in range(DRAWS)), p)


def test_share_of_augmenters_that_are_selected():
    image, label = _places(3, 4), np.array([[0, 0.0, 0.0, 0.25, 1.0]], np.float32)

    class Mark(mx.image.DetAugmenter):
        def __init__(self, number):
            super().__init__()
            self.number = number

        def __call__(self, src, label):
            return self.number, label

    chosen = mx.image.DetRandomSelectAug([Mark(0), Mark(1)], 0.4)
    found = Counter(made if isinstance(made := chosen(image, label)[0], int) else -1 for _ in range(DRAWS))
    _check_share(found[-1], 0.4)
    _check_share(found[0], 0.3)
    _check_share(found[1], 0.3)


def test_all_orders_are_as_likely():
    seen = []
    parts = [lambda image, n=n: (seen.append(n), image)[1] for n in range(3)]
    augment = mx.image.RandomOrderAug(parts)
    for _ in range(DRAWS):
        augment(_places(2, 2))
    orders = Counter(tuple(seen[at : at + 3]) for at in range(0, len(seen), 3))
    assert len(orders) == 6
    for count in orders.values():
        _check_share(count, 1 / 6)
