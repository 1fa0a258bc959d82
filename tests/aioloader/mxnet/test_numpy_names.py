"""Tests of `mx.np`, `mx.npx` and `mx.util`: numpy's names, and switches without effect."""

import numpy
import pytest

import aioloader.mxnet as mx
from aioloader.mxnet import np, npx
from tests.cases import with_cases

# Expression in np: dtype and shape of the result.
MADE = {
    "np.array([1, 2])": ("float32", (2,)),
    "np.array(numpy.zeros(3))": ("float64", (3,)),
    "np.array(7)": ("float32", ()),
    "np.array([1, 2], dtype='uint8', ctx=mx.cpu(1))": ("uint8", (2,)),
    "np.zeros((2, 3))": ("float32", (2, 3)),
    "np.ones(4, dtype=np.int64)": ("int64", (4,)),
    "np.empty((0, 2))": ("float32", (0, 2)),
    "np.full((2, 1), 255)": ("float32", (2, 1)),
    "np.arange(6).reshape((2, 3))": ("float32", (2, 3)),
    "np.arange(1, 7, 2, dtype='int32')": ("int32", (3,)),
    "np.transpose(np.zeros((2, 3)), (1, 0))": ("float32", (3, 2)),
    "np.concatenate([np.zeros(2), np.ones(3)])": ("float32", (5,)),
    "np.zeros_like(np.ones((2, 2)))": ("float32", (2, 2)),
    "np.random.uniform(0, 255, (4, 3, 3)).astype(np.uint8)": ("uint8", (4, 3, 3)),
    "np.random.normal(size=(3, 2))": ("float32", (3, 2)),
    "np.random.randint(5, size=7)": ("int64", (7,)),
    "np.random.rand(2, 2)": ("float32", (2, 2)),
    "np.random.randn(3)": ("float32", (3,)),
    "np.random.uniform()": ("float32", ()),
    "np.split(np.zeros((4, 2)), 2)[1]": ("float32", (2, 2)),
}


@with_cases("expression", MADE)
def test_results_are_ndarrays(expression):
    made = eval(expression)
    assert isinstance(made, np.ndarray)
    assert isinstance(made, mx.nd.NDArray)
    assert (made.dtype, made.shape) == MADE[expression]
    assert type(made.asnumpy()) is numpy.ndarray


def test_values_are_numpys():
    assert np.arange(1, 7, 2).tolist() == [1, 3, 5]
    assert np.full(2, 9).tolist() == [9, 9]
    assert np.maximum(np.array([1, 5]), 3).tolist() == [3, 5]
    assert np.pi is numpy.pi
    assert np.uint8 is numpy.uint8
    assert np.array_equal(np.ones(2), numpy.ones(2)) is True
    with pytest.raises(AttributeError, match="nothing"):
        _ = np.nothing
    with pytest.raises(AttributeError, match=r"use numpy\.random\.poisson"):
        _ = np.random.poisson


def test_draws_follow_the_seed():
    def draw():
        rows = np.arange(20)
        np.random.shuffle(rows)
        return [rows.tolist(), np.random.randint(3, 9, 5).tolist(), np.random.uniform(2, 3, 4).tolist()]

    mx.random.seed(5)
    first = draw()
    np.random.seed(5)
    assert draw() == first
    npx.seed(5)
    assert draw() == first
    assert sorted(first[0]) == list(range(20))
    assert first[0] != sorted(first[0])
    assert all(3 <= number < 9 for number in first[1])
    assert all(2 <= number < 3 for number in first[2])
    assert {*np.random.randint(5, size=200).tolist()} == {*range(5)}


def test_shuffled_copies():
    mx.random.seed(1)
    rows = mx.nd.array([[n, n] for n in range(9)], dtype="int32")
    mixed = mx.nd.random.shuffle(rows)
    assert mixed.dtype == np.int32
    assert sorted(mixed[:, 0].tolist()) == rows[:, 0].tolist() == list(range(9))
    assert (mixed[:, 0] == mixed[:, 1]).all()
    assert mixed.tolist() != rows.tolist()


def test_the_switches_are_there():
    for module in (npx, mx.util):
        module.set_np()
        assert (module.is_np_array(), module.is_np_shape()) == (False, True)
        module.reset_np()
    assert mx.set_np_shape(True) is True

    @mx.util.use_np
    def double(x):
        return 2 * x

    with mx.np_shape(), mx.np_array(False):
        assert mx.use_np_shape(double)(4) == 8


def test_operators_are_outside():
    assert npx.image is mx.nd.image
    with pytest.raises(mx.MXNetError, match=r"mx\.npx\.relu.*outside aioloader"):
        npx.relu(np.zeros(2))
