"""Tests of tables, blur, policies, choices and orders without another library."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from aioloader import transforms as t
from aioloader.rng import Rng
from aioloader.transforms.tone import autocontrast, equalize
from tests.cases import with_cases

IMAGE = np.random.default_rng(0).integers(0, 256, (40, 50, 3), dtype=np.uint8)
ALL = [
    t.RandomInvert(1.0),
    t.RandomPosterize(3, 1.0),
    t.RandomSolarize(128, 1.0),
    t.RandomAutocontrast(1.0),
    t.RandomEqualize(1.0),
    t.RandomAdjustSharpness(2.0, 1.0),
    t.GaussianBlur(5),
    t.GaussianBlur((3, 7), 1.5),
    t.Grayscale(3),
    t.RandomGrayscale(1.0),
    t.ColorJitter(0.4, (0.5, 1.5), 0.3, 0.1),
    t.RandAugment(),
    t.RandAugment(3, 20, 31, "bilinear", (1, 2, 3)),
    t.TrivialAugmentWide(),
    t.AutoAugment(),
    t.AutoAugment("cifar10", "bilinear", 3),
    t.AutoAugment(t.AutoAugmentPolicy.SVHN),
    t.AugMix(),
    t.AugMix(10, 2, 4, 0.3, False, "nearest", (1, 2, 3)),
    t.RandomChoice([t.RandomInvert(1.0), t.Grayscale(3)], p=[1, 3]),
    t.RandomOrder([t.RandomInvert(1.0), t.RandomPosterize(2, 1.0)]),
]


@with_cases("transform", ALL, ids=repr)
def test_the_input_is_not_altered_and_draws_decide(transform: Any) -> None:
    before = IMAGE.copy()
    first = transform(IMAGE, rng=Rng(1, 2, 3))
    np.testing.assert_array_equal(IMAGE, before)
    assert (first.dtype, first.shape) == (IMAGE.dtype, IMAGE.shape)
    again = pickle.loads(pickle.dumps(transform))
    np.testing.assert_array_equal(again(IMAGE, rng=Rng(1, 2, 3)), first)
    out = np.empty_like(IMAGE)
    np.testing.assert_array_equal(transform.apply(IMAGE, Rng(1, 2, 3), out), first)
    assert t.is_native(transform)
    assert eval(repr(transform), vars(t)).__class__ is type(transform)


@with_cases("transform", ALL, ids=repr)
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


@with_cases(
    ("make", "text"),
    [
        (lambda: t.RandomPosterize(9), "bits must be 0 to 8"),
        (lambda: t.RandomInvert(1.5), "probability"),
        (lambda: t.RandomAdjustSharpness(-1), "at least 0"),
        (lambda: t.GaussianBlur(4), "must be odd"),
        (lambda: t.GaussianBlur(3, 0), "above 0"),
        (lambda: t.Grayscale(2), "1 or 3"),
        (lambda: t.ColorJitter(hue=0.6), "within -0.5 and 0.5"),
        (lambda: t.ColorJitter(contrast=(2, 1)), "within 0.0 and inf"),
        (lambda: t.ColorJitter(contrast=(1, 2, 3)), "a range of two"),
        (lambda: t.RandAugment(magnitude=31), "magnitude must be 0 to 30"),
        (lambda: t.RandAugment(interpolation="area"), "'nearest' or 'bilinear'"),
        (lambda: t.TrivialAugmentWide(1), "at least 2"),
        (lambda: t.TrivialAugmentWide(interpolation="none"), "interpolation must be"),
        (lambda: t.AutoAugment("imagenet21k"), "one of 'imagenet', 'cifar10', 'svhn'"),
        (lambda: t.AugMix(0), "severity must be 1 to 10"),
        (lambda: t.AugMix(mixture_width=0), "mixture_width must be at least 1"),
        (lambda: t.AugMix(alpha=0), "alpha must be above 0"),
        (lambda: t.RandomChoice([]), "at least one transform"),
        (lambda: t.RandomChoice([t.Grayscale()], p=[0]), "one above 0"),
    ],
)
def test_what_is_not_allowed_is_named(make: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make()


def test_policies_take_bytes() -> None:
    for policy in (t.RandAugment(), t.TrivialAugmentWide(), t.AutoAugment(), t.AugMix()):
        with pytest.raises(TypeError, match=r"takes uint8 \(height, width, 3\)"):
            policy(IMAGE.astype(np.float32))
