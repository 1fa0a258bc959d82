"""Tests of Cast, ToTensor and Normalize against numpy."""

import numpy as np
import pytest

from aioloader.foundation.types import ArraySpec
from aioloader.rng import Rng
from aioloader.transforms import IMAGENET_MEAN, IMAGENET_STD, Cast, Compose, Normalize, ToTensor
from tests.cases import with_cases

IMAGE = np.random.default_rng(2).integers(0, 256, (13, 11, 3), dtype=np.uint8)
ALL_LEVELS = np.arange(768, dtype=np.uint16).astype(np.uint8).reshape(16, 16, 3)


@with_cases("channels", [1, 2, 3, 4, 5])
@with_cases("dtype", [np.uint8, np.int8, np.uint16, np.int64, np.bool_, np.float16, np.float32, np.float64])
def test_to_tensor_divides_and_moves_channels_first(dtype, channels):
    x = np.random.default_rng(2).integers(0, 100, (7, 9, channels)).astype(dtype)
    expected = (x.transpose(2, 0, 1).astype(np.float64) / 255.0).astype(np.float32)
    result = ToTensor()(x)
    assert result.dtype == np.float32
    assert result.flags.c_contiguous
    assert result == pytest.approx(expected, rel=1e-6)


def test_to_tensor_is_exact_division():
    expected = ALL_LEVELS.transpose(2, 0, 1).astype(np.float32) / np.float32(255)
    assert np.array_equal(ToTensor()(ALL_LEVELS), expected)
    assert np.array_equal(ToTensor()(ALL_LEVELS.astype(np.float32)), expected)


def test_to_tensor_does_not_clip():
    assert ToTensor()(np.full((1, 1, 1), 510.0))[0, 0, 0] == 2.0
    assert ToTensor()(np.full((1, 1, 1), -255))[0, 0, 0] == -1.0


def test_to_tensor_of_no_pixels():
    assert ToTensor()(np.zeros((0, 4, 3), np.uint8)).shape == (3, 0, 4)


@with_cases("many", [False, True], ids=["one", "many"])
@with_cases(
    ("mean", "std"),
    [(0.0, 1.0), (0.5, 0.25), (IMAGENET_MEAN, IMAGENET_STD), (np.array(IMAGENET_MEAN), [0.5])],
)
def test_normalize_subtracts_and_divides(mean, std, many):
    x = ToTensor()(IMAGE)
    x = np.stack([x, x[:, ::-1]]) if many else x
    column = (np.asarray(value, np.float32).reshape(-1, 1, 1) for value in (mean, std))
    expected = (x - next(column)) / next(column)
    assert np.array_equal(Normalize(mean, std)(x), expected)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_normalize_keeps_floats(dtype):
    assert Normalize(0.5, 0.5)(np.ones((3, 2, 2), dtype)).dtype == dtype


def test_normalize_makes_integers_float32():
    # Not uint8, which would wrap.
    result = Normalize(100.0, 50.0)(np.full((1, 2, 2), 50, np.uint8))
    assert result.dtype == np.float32
    assert (result == -1.0).all()


def test_normalize_works_in_place_where_it_may():
    x = ToTensor()(IMAGE)
    expected = Normalize(0.5, 0.5)(x)
    assert Normalize(0.5, 0.5).apply(x, Rng(0), x) is x
    assert np.array_equal(x, expected)


def test_cast_converts_as_numpy_does():
    x = IMAGE.astype(np.float32) * 1.7 - 100
    assert np.array_equal(Cast("int32")(x), x.astype(np.int32))
    assert Cast(np.float32)(x) is x
    assert Cast("float64").apply(IMAGE, Rng(0), out := np.empty(IMAGE.shape)) is out
    assert Cast()(3).dtype == np.float32


def test_the_usual_end_writes_one_row():
    transform = Compose([ToTensor(), Normalize(IMAGENET_MEAN, IMAGENET_STD)])
    row = np.empty((3, 13, 11), np.float32)
    assert transform.apply(IMAGE, Rng(0), row) is row
    assert np.array_equal(row, transform(IMAGE))
    spec = transform.out_spec(ArraySpec(IMAGE.shape, IMAGE.dtype))
    assert spec == ArraySpec((3, 13, 11), np.dtype(np.float32))
