"""Tests of tables, blur, policies, choices and orders without another library."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aioloader import transforms as t
from aioloader.rng import Rng
from aioloader.transforms.color import autocontrast, equalize
from tests.aioloader.transforms.chains import BYTES_ONLY, TRANSFORMS
from tests.aioloader.transforms.contract import Contract
from tests.cases import with_cases

IMAGE = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)
# Those of more options than the chains of all transforms have.
OTHERS = [
    *(t.GaussianBlur((3, 7), 1.5), t.RandomGrayscale(1.0), t.RandAugment(3, 20, 31, "bilinear", (1, 2, 3))),
    *(t.AutoAugment("cifar10", "bilinear", 3), t.AutoAugment(t.AutoAugmentPolicy.SVHN)),
    *(t.AugMix(10, 2, 4, 0.3, False, "nearest", (1, 2, 3)), t.RandomChoice([t.Grayscale(3)] * 2, p=[1, 3])),
]


@with_cases(("transform", "dtype"), [pytest.param(each, np.uint8, id=repr(each)) for each in OTHERS])
class TestOne(Contract):
    """Those of more options."""


@with_cases("transform", [*OTHERS, *(TRANSFORMS[name] for name in (*BYTES_ONLY, "sharpness", "blur"))])
def test_empty_and_small_images(transform: Any) -> None:
    for shape in ((1, 1, 3), (2, 3, 3), (3, 2, 3)):
        image = np.full(shape, 9, np.uint8)
        assert transform(image, rng=Rng(0)).shape == shape


def test_levels_are_stretched_and_spread() -> None:
    image = np.tile(np.arange(50, 150, dtype=np.uint8)[:, None, None], (1, 20, 3))
    found = autocontrast(image)
    assert found.min() == 0
    assert found.max() >= 254  # cut off, as torchvision does
    spread = equalize(image)
    assert (spread.min(), spread.max()) == (0, 255)
    flat = np.full((5, 5, 3), 77, np.uint8)
    np.testing.assert_array_equal(autocontrast(flat), flat)
    np.testing.assert_array_equal(equalize(flat), flat)


def test_channels_of_grayscale() -> None:
    assert t.Grayscale()(IMAGE).shape == (40, 50, 1)
    assert t.Grayscale(3)(IMAGE[:, :, :1]).shape == (40, 50, 3)
    np.testing.assert_array_equal(t.Grayscale()(IMAGE), t.Grayscale(3)(IMAGE)[:, :, :1])


def test_choices_follow_their_weights() -> None:
    marks = [lambda x, n=n: n for n in range(3)]
    choice = t.RandomChoice(marks, p=[1, 0, 3])
    found = [choice(None, rng=Rng(0, 0, n)) for n in range(2000)]
    assert 1 not in found
    assert 0.2 < found.count(0) / len(found) < 0.3
    assert {t.RandomChoice(marks)(None, rng=Rng(0, 0, n)) for n in range(100)} == {0, 1, 2}


def test_orders_are_all_drawn() -> None:
    steps = [lambda x, n=n: (*x, n) for n in range(3)]
    order = t.RandomOrder(steps)
    assert len({order((), rng=Rng(0, 0, n)) for n in range(200)}) == 6
