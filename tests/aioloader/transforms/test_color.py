"""Tests of colours against formulas in numpy, and of the distribution of draws."""

import colorsys
from functools import partial

import numpy as np
import pytest

from aioloader import transforms as t
from aioloader.rng import Rng
from aioloader.transforms.color import (
    adjust_brightness,
    adjust_contrast,
    adjust_hue,
    adjust_lighting,
    adjust_saturation,
    to_gray,
)
from tests.cases import with_cases

LUMA = np.array([0.299, 0.587, 0.114])
IMAGE = np.random.default_rng(3).integers(0, 256, (29, 31, 3), dtype=np.uint8)
FACTORS = [0.0, 0.3, 0.999, 1.0, 1.7, 3.0]


def brightness(x, a):
    return x * a


def contrast(x, a):
    return x * a + (1 - a) * (x @ LUMA).mean()


def saturation(x, a):
    return x * a + (1 - a) * (x @ LUMA)[..., None]


def hue(x, turns):
    result = np.empty_like(x)
    for place in np.ndindex(x.shape[:2]):
        h, s, v = colorsys.rgb_to_hsv(*x[place])
        result[place] = colorsys.hsv_to_rgb((h + turns) % 1.0, s, v)
    return result


def gray(x, _):
    return np.repeat((x @ LUMA)[..., None], 3, -1)


# Name: function, reference, amounts, greatest distance from the exact value in uint8 levels.
CASES = {
    "brightness": (adjust_brightness, brightness, FACTORS, 0.501),
    "contrast": (adjust_contrast, contrast, FACTORS, 0.501),
    "saturation": (adjust_saturation, saturation, FACTORS, 1.0),
    "hue": (adjust_hue, hue, [0.0, 0.1, 0.5, -0.25, 0.999, 1.0, 2.5], 0.51),
    "gray": (lambda x, _, out=None: to_gray(x, out), gray, [None], 0.51),
}


@with_cases(("function", "reference", "amounts", "near"), CASES.values(), ids=CASES)
def test_uint8_is_rounded_and_saturates_and_float32_is_not_clipped(function, reference, amounts, near):
    for amount in amounts:
        result, exact = function(IMAGE, amount), reference(IMAGE.astype(float), amount)
        assert result.dtype == np.uint8
        assert np.abs(result - np.clip(exact, 0, 255)).max() <= near
        result = function(IMAGE.astype(np.float32), amount)
        assert result.dtype == np.float32
        assert np.abs(result - exact).max() < 2e-3


def test_saturation_is_that_of_luma():
    # Not blue times 0.114, which is 22.8.
    pixel = np.array([[[100, 50, 200]]], np.float32)
    assert adjust_saturation(pixel, 0.0) == pytest.approx(np.full((1, 1, 3), 82.05))


@with_cases("dtype", [np.uint8, np.float32])
@with_cases("shape", [(150, 130, 3), (3, 9000, 3)])
def test_hue_of_a_large_image_is_that_of_its_rows(shape, dtype):
    x = np.random.default_rng(4).integers(0, 256, shape).astype(dtype)
    expected = np.concatenate([adjust_hue(x[row : row + 1], 0.3) for row in range(shape[0])])
    assert np.array_equal(adjust_hue(x, 0.3), expected)
    assert np.array_equal(adjust_hue(x, 0.3, x), expected)


@with_cases("dtype", [np.uint8, np.float32])
def test_lighting_adds_one_offset_per_channel(dtype):
    weights = np.array([0.3, -0.2, 0.5])
    vectors = np.array([[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]])
    offset = vectors @ (weights * [55.46, 4.794, 1.148])
    result = adjust_lighting(IMAGE.astype(dtype), weights)
    expected = IMAGE + offset
    if dtype == np.uint8:
        assert np.array_equal(result, np.clip(np.rint(expected), 0, 255))
    else:
        assert result == pytest.approx(expected, abs=1e-4)


def gray_level(transform, index):
    x = np.array([[[100, 50, 200]]], np.float32)
    return transform(x, rng=Rng(6, 1, index))


@pytest.mark.parametrize(
    ("make", "measure"),
    [
        pytest.param(t.RandomBrightness, lambda x: x[0, 0, 0] / 100, id="brightness"),
        pytest.param(t.RandomContrast, lambda x: (x[0, 0, 0] - 82.05) / 17.95, id="contrast"),
        pytest.param(t.RandomSaturation, lambda x: (x[0, 0, 0] - 82.05) / 17.95, id="saturation"),
    ],
)
@pytest.mark.parametrize(
    ("amount", "low", "high"), [(0.4, 0.6, 1.4), (2.0, 0.0, 3.0)], ids=["small", "large"]
)
def test_factors_are_uniform_and_never_negative(make, measure, amount, low, high):
    factors = np.array([measure(gray_level(make(amount), index)) for index in range(2000)])
    width = high - low
    assert low - 1e-4 <= factors.min() < low + 0.01 * width
    assert high - 0.01 * width < factors.max() <= high + 1e-4
    assert abs(factors.mean() - (low + high) / 2) < 5 * width / (12 * 2000) ** 0.5


@pytest.mark.parametrize("cls", [t.RandomBrightness, t.RandomContrast, t.RandomSaturation, t.RandomHue])
def test_a_derived_class_may_have_attributes_of_its_own(cls):
    class Named(cls):
        def __init__(self, amount, name):
            super().__init__(amount)
            self.name = name

    made = Named(0.4, "mine")
    assert np.array_equal(made(IMAGE, rng=Rng(3)), cls(0.4)(IMAGE, rng=Rng(3)))
    assert made.name == "mine"


def test_hue_turns_both_ways_equally():
    turns = []
    for index in range(2000):
        r, g, b = gray_level(t.RandomHue(0.25), index)[0, 0] / 255.0
        turn = colorsys.rgb_to_hsv(r, g, b)[0] - colorsys.rgb_to_hsv(100 / 255, 50 / 255, 200 / 255)[0]
        turns.append((turn + 0.5) % 1.0 - 0.5)
    assert -0.251 < min(turns) < -0.245
    assert 0.245 < max(turns) < 0.251
    assert abs(np.mean(turns)) < 5 * 0.5 / (12 * 2000) ** 0.5


def test_lighting_is_normal():
    offsets = np.array(
        [gray_level(t.RandomLighting(0.1), index)[0, 0] - (100, 50, 200) for index in range(2000)]
    )
    deviation = 0.1 * np.hypot.reduce(np.array([0.5675 * 55.46, 0.7192 * 4.794, 0.4009 * 1.148]))
    assert abs(offsets[:, 0].mean()) < 5 * deviation / 2000**0.5
    assert abs(offsets[:, 0].std() / deviation - 1) < 0.1


def test_gray_happens_with_its_probability():
    x = IMAGE[:2, :2]
    grays = sum(t.RandomGrayscale(0.3)(x, rng=Rng(1, 0, index)) is not x for index in range(2000))
    assert abs(grays - 600) < 5 * (2000 * 0.21) ** 0.5


def test_jitter_of_nothing_is_identity_and_draws_nothing():
    rng = Rng(0)
    assert t.ColorJitter()(IMAGE, rng=rng) is IMAGE
    assert rng.random() == Rng(0).random()


def test_jitter_is_its_parts_in_a_drawn_order():
    saturate = partial(adjust_saturation, truncate=True)
    adjust = {"brightness": adjust_brightness, "contrast": adjust_contrast, "saturation": saturate}
    orders = set()
    for index in range(100):
        rng = Rng(2, 0, index)
        order = list(adjust)
        rng.shuffle(order)
        orders.add(tuple(order))
        expected = IMAGE
        for what in order:
            expected = adjust[what](expected, rng.uniform(0.5, 1.5))
        assert np.array_equal(t.ColorJitter(0.5, 0.5, 0.5)(IMAGE, rng=Rng(2, 0, index)), expected)
    assert len(orders) == 6


GOLDEN = {
    "brightness": (t.RandomBrightness(0.5), (115.243, 57.622, 230.486)),
    "contrast": (t.RandomContrast(0.5), (102.736, 45.115, 217.979)),
    "saturation": (t.RandomSaturation(0.5), (102.736, 45.115, 217.979)),
    "hue": (t.RandomHue(0.3), (182.314, 50.0, 200.0)),
    "jitter": (t.ColorJitter(0.5, 0.5, 0.5, 0.2), (13.348, 200.117, 322.404)),
    "lighting": (t.RandomLighting(0.1), (98.985, 48.463, 198.219)),
}


@with_cases(("transform", "expected"), GOLDEN.values(), ids=GOLDEN)
def test_draws_stay_what_they_were(transform, expected):
    x = np.array([[[100, 50, 200]]], np.float32)
    assert transform(x, rng=Rng(7, 2, 0)).ravel() == pytest.approx(expected, abs=2e-3)


@with_cases("function", [adjust_brightness, adjust_contrast])
@with_cases("dtype", [np.uint8, np.float32])
def test_one_channel_has_brightness_and_contrast(function, dtype):
    x = IMAGE[..., :1].astype(dtype)
    three = function(np.repeat(x, 3, -1), 1.4)
    assert np.array_equal(function(x.copy(), 1.4), three[..., :1])
    out = np.empty_like(x)
    assert function(x, 1.4, out) is out


@with_cases("name", [name for name in CASES if name != "gray"])
def test_no_pixels_stay_no_pixels(name):
    x = np.zeros((0, 5, 3), np.uint8)
    assert CASES[name][0](x, 0.5).shape == (0, 5, 3)
