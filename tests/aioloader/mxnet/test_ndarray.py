"""Tests of `mx.nd`, numpy arrays with MXNet's methods; test_nd_against_mxnet.py has values, dtypes and aliasing."""

import builtins
import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import aioloader.mxnet as mx
from aioloader.mxnet import nd
from tests.cases import with_cases


def test_prints_like_mxnet():
    assert repr(mx.nd.array([[1, 2], [3, 4]])) == "\n[[1. 2.]\n [3. 4.]]\n<NDArray 2x2 @cpu(0)>"
    assert str(mx.nd.zeros(3)) == "\n[0. 0. 0.]\n<NDArray 3 @cpu(0)>"


def test_array_copies_and_from_numpy_does_not():
    source = np.zeros(3, np.float32)
    copied, shared = mx.nd.array(source), mx.nd.from_numpy(source)
    source[0] = 7
    assert copied[0].asscalar() == 0
    assert shared[0].asscalar() == 7
    assert mx.nd.from_numpy(source, zero_copy=False).base is not source


def test_elements_and_sums_are_arrays_of_one():
    array = mx.nd.array([3, 1, 2])
    for one in (array[0], array.sum(), array.mean(), array.max(), array.min(), array.argmax(), array.prod()):
        assert one.shape == (1,)
        assert isinstance(one, mx.nd.NDArray)
        assert isinstance(one.asscalar(), np.generic)
    assert (int(array[0]), float(array[1]), bool(array[2])) == (3, 1.0, True)
    assert array.sum().asscalar() == 6
    assert array.std().asscalar() == pytest.approx(array.asnumpy().std())
    assert array.var().asscalar() == pytest.approx(array.asnumpy().var())
    assert ["a", "b", "c"][mx.nd.array([2], dtype="int32")[0]] == "c"
    assert f"{array[0]:.2f} {array[1]:.0f}" == "3.00 1"
    assert array.any()


def test_only_one_element_is_a_scalar():
    with pytest.raises(ValueError, match="The current array is not a scalar"):
        mx.nd.zeros(2).asscalar()
    with pytest.raises(ValueError, match="ambiguous"):
        bool(mx.nd.zeros(2))


# Shapes measured with MXNet 1.9.1.
@with_cases(
    ("old", "asked", "new"),
    [
        ((2, 3, 4), (-4, 1, 2, -2), (1, 2, 3, 4)),
        ((2, 3, 4), (-3, 0), (6, 4)),
        ((6, 2), (-4, -1, 3, 0), (2, 3, 2)),
        ((2, 3, 4), (4, 6), (4, 6)),
    ],
)
def test_reshape_knows_mxnet_s_codes(old, asked, new):
    array = mx.nd.zeros(old)
    assert array.reshape(asked).shape == new
    assert array.reshape(*asked).shape == new
    assert array.reshape(shape=asked).shape == new
    assert mx.nd.reshape(array, asked).shape == new


def test_reshape_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="more axes"):
        mx.nd.zeros((2, 3)).reshape((0, 0, 0))
    with pytest.raises(ValueError, match="cannot reshape"):
        mx.nd.zeros((2, 3)).reshape((4,))


def test_waiting_and_kinds():
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
def test_it_is_a_numpy_array(plain):
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


@with_cases(
    "copied",
    [copy.copy, copy.deepcopy, lambda array: pickle.loads(pickle.dumps(array))],
    ids=["copy", "deep", "pickle"],
)
def test_copies_stay_ndarrays(copied):
    array = mx.nd.array([[1, 2]])
    other = copied(array)
    assert isinstance(other, mx.nd.NDArray)
    assert np.array_equal(other, array)
    assert not np.shares_memory(other, array)


def test_shuffles_as_numpy_does():
    plain, array = np.arange(10.0), mx.nd.arange(10)
    np.random.seed(3)
    np.random.shuffle(plain)
    np.random.seed(3)
    np.random.shuffle(array)
    assert array.asnumpy().tolist() == plain.tolist()


def test_a_difference_can_be_shown():
    with pytest.raises(AssertionError, match="1 / 3"):
        np.testing.assert_array_equal(mx.nd.array([1, 2, 3]).asnumpy(), mx.nd.array([1, 2, 4]).asnumpy())
    with pytest.raises(AssertionError, match="Mismatched"):
        np.testing.assert_array_equal(mx.nd.array([1, 2, 3]), mx.nd.array([1, 2, 4]))


@with_cases("combine", [np.bitwise_and, np.bitwise_or, np.bitwise_xor])
def test_a_mask_is_combined_with_a_comparison(combine):
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


def test_contexts_are_names_of_this_host():
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


@with_cases(
    "use",
    [
        lambda: mx.nd.zeros(2).as_in_context(mx.gpu()),
        lambda: mx.nd.array([1], ctx=mx.gpu()),
        lambda: mx.random.uniform(ctx=mx.gpu()),
    ],
    ids=["as_in_context", "array", "uniform"],
)
def test_a_gpu_is_refused_with_what_to_do(use):
    with pytest.raises(mx.MXNetError, match=r'gpu\(0\).*torch\.from_numpy\(x\)\.to\("cuda:0"\)'):
        use()


COPIES = {
    "mask": lambda x: x[np.array([True, False])],
    "tile": lambda x: nd.tile(x, reps=(1, 1)),
    "repeat": lambda x: nd.repeat(x, repeats=1, axis=0),
    "concat": lambda x: nd.concat(x, dim=0),
}


def example():
    return nd.array(np.arange(6).reshape(2, 3))


@given(st.data())
def test_writes_reach_every_index(data):
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    array, plain = nd.zeros(shape), np.zeros(shape, np.float32)

    def one(length):
        places = st.integers(-length, length - 1)
        ends = st.none() | places
        return places | st.builds(builtins.slice, ends, ends, st.none() | st.sampled_from([1, 2, -1]))

    key = tuple(data.draw(one(length)) for length in shape[: data.draw(st.integers(1, len(shape)))])
    key = key[0] if len(key) == 1 and data.draw(st.booleans()) else key
    array[key] = 7
    plain[key] = 7
    assert np.array_equal(array.asnumpy(), plain)
    wanted = np.atleast_1d(plain[key])
    found = array[key]
    assert (found.shape, found.asnumpy().tolist()) == (wanted.shape, wanted.tolist())


@with_cases("name", COPIES)
def test_what_is_a_copy(name):
    array = example()
    part = COPIES[name](array)
    part[:] = 99
    assert np.array_equal(array, example())


def test_arrays_of_arrays_in_another_order_can_be_written_by_rows():
    array = nd.array(np.zeros((3, 2)).T)
    array[1][2] = 4
    assert array.asnumpy().tolist() == [[0, 0, 0], [0, 0, 4]]


def test_sorting_returns_new_arrays():
    array = nd.array([[3, 1, 2], [6, 5, 4]])
    assert array.sort().asnumpy().tolist() == [[1, 2, 3], [4, 5, 6]]
    assert nd.sort(array, axis=0, is_ascend=False).asnumpy().tolist() == [[6, 5, 4], [3, 1, 2]]
    assert array.asnumpy().tolist() == [[3, 1, 2], [6, 5, 4]]
    order = array.argsort()
    assert (order.dtype, order.asnumpy().tolist()) == (np.float32, [[1, 2, 0], [2, 1, 0]])
    assert nd.argsort(array, is_ascend=False, dtype="int32").asnumpy().tolist() == [[0, 2, 1], [0, 1, 2]]


# Results by MXNet's documentation and its operators' tests.
RESULTS = {
    "squeeze": (lambda: nd.squeeze(nd.zeros((1, 3, 1))).shape, (3,)),
    "squeeze all": (lambda: nd.zeros((1, 1)).squeeze().shape, (1,)),
    "squeeze one": (lambda: nd.zeros((1, 3, 1)).squeeze(axis=2).shape, (1, 3)),
    "floor": (lambda: nd.floor(nd.array([1.5, -1.5])), [1, -2]),
    "round": (lambda: nd.round(nd.array([0.5, 1.5, -0.5, 2.4])), [1, 2, -1, 2]),
    "minimum of numbers": (lambda: [nd.minimum(2, 3)], [2]),
    "logical": (lambda: nd.logical_and(nd.array([1, 2, 0]), nd.array([0, 3, 1])), [0, 1, 0]),
}


@with_cases("name", RESULTS)
def test_results_are_mxnets(name):
    make, expected = RESULTS[name]
    found = make()
    if isinstance(found, nd.NDArray):
        assert found.asnumpy() == pytest.approx(np.array(expected))
        assert found.shape == np.shape(expected)
    else:
        assert found == expected


def test_places_beyond_the_end_can_be_an_error():
    with pytest.raises(IndexError):
        nd.take(example(), nd.array([4]), mode="raise")


def test_results_can_be_written_to_an_array():
    out = nd.zeros((2, 2))
    assert nd.stack(nd.array([1, 2]), nd.array([3, 4]), out=out) is out
    assert out.asnumpy().tolist() == [[1, 2], [3, 4]]
    assert nd.clip(out, a_min=2, a_max=3, out=out) is out
    assert out.asnumpy().tolist() == [[2, 2], [3, 3]]


def test_functions_of_numpy_find_numpys_methods():
    array = nd.array([[3, 1, 2], [6, 5, 4]])
    for work in (
        np.sort,
        np.unique,
        np.ravel,
        np.take,
        np.median,
        np.argsort,
        np.flip,
        np.transpose,
        np.squeeze,
    ):
        options = {"indices": [4]} if work is np.take else {}
        expected = work(array.asnumpy(), **options)
        assert np.array_equal(work(array, **options), expected)
    assert isinstance(np.concatenate([array, array]), nd.NDArray)
    assert np.where(array > 2, 1, 0).sum() == 4
    assert len({array, array[0]}) == 2


def test_arrays_of_mx_np_keep_numpys_comparisons_and_methods():
    array = mx.np.array([3, 1, 2])
    assert (array > 1).dtype == bool
    assert array[array > 1].tolist() == [3, 2]
    assert array.sort() is None
    assert array.tolist() == [1, 2, 3]
    classic = array.as_nd_ndarray()
    assert (classic > 1).dtype == np.float32
    assert isinstance(classic.as_np_ndarray(), mx.np.ndarray)
    assert np.shares_memory(classic, array)
