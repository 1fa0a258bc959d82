"""Tests of `mx.nd`, numpy arrays with MXNet's methods; test_nd_against_mxnet.py has values, dtypes and aliasing."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import aioloader.mxnet as mx


def test_prints_like_mxnet() -> None:
    assert repr(mx.nd.array([[1, 2], [3, 4]])) == "\n[[1. 2.]\n [3. 4.]]\n<NDArray 2x2 @cpu(0)>"
    assert str(mx.nd.zeros(3)) == "\n[0. 0. 0.]\n<NDArray 3 @cpu(0)>"


def test_array_copies_and_from_numpy_does_not() -> None:
    source = np.zeros(3, np.float32)
    copied, shared = mx.nd.array(source), mx.nd.from_numpy(source)
    source[0] = 7
    assert copied[0].asscalar() == 0
    assert shared[0].asscalar() == 7
    assert mx.nd.from_numpy(source, zero_copy=False).base is not source


def test_elements_and_sums_are_arrays_of_one() -> None:
    array = mx.nd.array([3, 1, 2])
    for one in (array[0], array.sum(), array.mean(), array.max(), array.min(), array.argmax(), array.prod()):
        assert one.shape == (1,)
        assert isinstance(one, mx.nd.NDArray)
        assert isinstance(one.asscalar(), np.generic)
    assert (int(array[0]), float(array[1]), bool(array[2])) == (3, 1.0, True)
    assert array.sum().asscalar() == 6
    assert array.std().asscalar() == pytest.approx(array.asnumpy().std())
    assert array.var().asscalar() == pytest.approx(array.asnumpy().var())
    assert array.argmin().asscalar() == 1
    assert array.reshape((3, 1)).sum(axis=0).shape == (1,)
    assert ["a", "b", "c"][mx.nd.array([2], dtype="int32")[0]] == "c"
    assert f"{array[0]:.2f} {array[1]:.0f}" == "3.00 1"
    assert array.any()


def test_only_one_element_is_a_scalar() -> None:
    with pytest.raises(ValueError, match="The current array is not a scalar"):
        mx.nd.zeros(2).asscalar()
    with pytest.raises(ValueError, match="ambiguous"):
        bool(mx.nd.zeros(2))


# Shapes measured with MXNet 1.9.1.
@pytest.mark.parametrize(
    ("old", "asked", "new"),
    [
        ((2, 3, 4), (0, -1), (2, 12)),
        ((2, 3, 4), (-4, 1, 2, -2), (1, 2, 3, 4)),
        ((2, 3, 4), (-3, 0), (6, 4)),
        ((2, 2), (-3,), (4,)),
        ((6, 2), (-4, -1, 3, 0), (2, 3, 2)),
        ((2, 3, 4), (4, 6), (4, 6)),
        ((0, 3), (0, 3), (0, 3)),
    ],
)
def test_reshape_knows_mxnet_s_codes(
    old: tuple[int, ...], asked: tuple[int, ...], new: tuple[int, ...]
) -> None:
    array = mx.nd.zeros(old)
    assert array.reshape(asked).shape == new
    assert array.reshape(*asked).shape == new
    assert array.reshape(shape=asked).shape == new
    assert mx.nd.reshape(array, asked).shape == new


def test_reshape_refuses_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="more axes"):
        mx.nd.zeros((2, 3)).reshape((0, 0, 0))
    with pytest.raises(ValueError, match="cannot reshape"):
        mx.nd.zeros((2, 3)).reshape((4,))


def test_arguments_that_are_lists_or_have_other_places() -> None:
    one = mx.nd.array([1, 2, 3])
    assert mx.nd.stack([one, one]).shape == (2, 3)
    assert mx.nd.concat(one.reshape((1, 3)), one.reshape((1, 3))).shape == (1, 6)
    assert mx.nd.transpose(mx.nd.zeros((2, 3, 4)), (0, 2, 1)).shape == (2, 4, 3)
    assert mx.nd.expand_dims(one, 0).shape == one.expand_dims(0).shape == (1, 3)
    assert mx.nd.array(one, dtype="int64").dtype == np.int64
    assert mx.nd.random_normal(shape=(3, 2)).shape == mx.nd.random_uniform(0, 1, (3, 2)).shape == (3, 2)


def test_waiting_and_kinds() -> None:
    array = mx.nd.zeros(2)
    array.wait_to_read()
    mx.nd.waitall()
    assert array.stype == "default"
    assert np.array_equal(array.tostype("default"), array)
    assert mx.nd.zeros((2, 2)).tostype("csr").stype == "csr"
    assert np.shares_memory(array.detach(), array)
    with pytest.raises(mx.MXNetError, match="sparse"):
        array.tostype("row_sparse")
    with pytest.raises(mx.MXNetError, match="training is outside"):
        array.attach_grad()
    with pytest.raises(mx.MXNetError, match="training is outside"):
        array.backward()
    with pytest.raises(mx.MXNetError, match=r"mx\.nd\.softmax\(\): training is outside .* torch\.from_numpy"):
        mx.nd.softmax(array)
    with pytest.raises(AttributeError, match=r"use numpy\.median"):
        _ = mx.nd.median


@given(
    arrays.arrays(
        st.sampled_from([np.uint8, np.float32, np.int64]),
        arrays.array_shapes(max_dims=3),
        elements=st.integers(0, 100),
    )
)
def test_it_is_a_numpy_array(plain: np.ndarray) -> None:  # type: ignore[type-arg]
    array = mx.nd.from_numpy(plain)
    results = (
        array + 1,
        array[:1],
        -array,
        array.T,
        array.copy(),
        np.stack([array, array]),
        np.sqrt(abs(array)),
    )
    expected = (plain + 1, plain[:1], -plain, plain.T, plain, np.stack([plain, plain]), np.sqrt(abs(plain)))
    for result, wanted in zip(results, expected, strict=True):
        assert isinstance(result, np.ndarray)
        assert result.dtype == wanted.dtype
        np.testing.assert_array_equal(result, wanted)
    assert array.sum().asscalar() == plain.sum()
    assert np.mean(array) == plain.mean()
    assert np.unique(array).tolist() == np.unique(plain).tolist()
    assert array.tolist() == plain.tolist()


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda array: pickle.loads(pickle.dumps(array))],
    ids=["copy", "deep", "pickle"],
)
def test_copies_stay_ndarrays(copied: object) -> None:
    array = mx.nd.array([[1, 2]])
    other = copied(array)  # type: ignore[operator]
    assert isinstance(other, mx.nd.NDArray)
    assert np.array_equal(other, array)
    assert not np.shares_memory(other, array)


def test_shuffles_as_numpy_does() -> None:
    plain, array = np.arange(10.0), mx.nd.arange(10)
    np.random.seed(3)
    np.random.shuffle(plain)
    np.random.seed(3)
    np.random.shuffle(array)
    assert array.asnumpy().tolist() == plain.tolist()


def test_a_difference_can_be_shown() -> None:
    with pytest.raises(AssertionError, match="1 / 3"):
        np.testing.assert_array_equal(mx.nd.array([1, 2, 3]).asnumpy(), mx.nd.array([1, 2, 4]).asnumpy())
    with pytest.raises(AssertionError, match="Mismatched"):
        np.testing.assert_array_equal(mx.nd.array([1, 2, 3]), mx.nd.array([1, 2, 4]))


@pytest.mark.parametrize("combine", [np.bitwise_and, np.bitwise_or, np.bitwise_xor])
def test_a_mask_is_combined_with_a_comparison(combine: np.ufunc) -> None:
    """A comparison has the dtype of its array; functions of numpy expect booleans."""
    array = mx.nd.array([1, 2, 3])
    mask = np.array([True, True, False])
    expected = combine(mask, np.array([False, True, True]))
    assert combine(mask, array > 1).tolist() == expected.tolist()
    assert (
        combine(array > 1, np.bool_(True)).tolist() == combine(np.array([False, True, True]), True).tolist()
    )
    combine(mask, array > 1, out=mask)
    assert mask.tolist() == expected.tolist()
    with pytest.raises(TypeError):
        combine(array, array)


def test_contexts_are_names_of_this_host() -> None:
    array = mx.nd.zeros(2)
    assert array.context == array.ctx == mx.cpu() == mx.cpu(0) == mx.Context("cpu")
    assert array.as_in_context(mx.cpu()) is array
    moved = array.as_in_context(mx.cpu(1))
    assert moved.context == moved[0].context == mx.cpu(1)
    assert np.shares_memory(moved, array)
    assert repr(mx.nd.zeros(1, ctx=mx.cpu_pinned())).endswith("<NDArray 1 @cpu_pinned(0)>")
    assert array.copyto(mx.cpu(1)).context == mx.cpu(1)
    target = mx.nd.ones(2)
    assert array.copyto(target).asnumpy().tolist() == target.asnumpy().tolist() == [0, 0]


@pytest.mark.parametrize(
    "use",
    [
        lambda: mx.nd.zeros(2).as_in_context(mx.gpu()),
        lambda: mx.nd.array([1], ctx=mx.gpu()),
        lambda: mx.random.uniform(ctx=mx.gpu()),
    ],
    ids=["as_in_context", "array", "uniform"],
)
def test_a_gpu_is_refused_with_what_to_do(use: object) -> None:
    with pytest.raises(mx.MXNetError, match=r'gpu\(0\).*torch\.from_numpy\(x\)\.to\("cuda:0"\)'):
        use()  # type: ignore[operator]
