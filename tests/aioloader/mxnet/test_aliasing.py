"""Tests of what shares memory in `mx.nd`, of dtypes and of operators: the rules of MXNet 1.9.1.

Its rules are those of its sources (python/mxnet/ndarray/ndarray.py): an index of integers and slices is a view where
the part is contiguous, operators return new arrays, and comparisons return the dtype of the array.
"""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aioloader.mxnet as mx
from aioloader.mxnet import nd
from tests.cases import with_cases

VIEWS: dict[str, Any] = {
    "row": lambda x: x[1],
    "last row": lambda x: x[-1],
    "rows": lambda x: x[0:1],
    "all": lambda x: x[:],
    "row and all": lambda x: x[1, :],
    "one element": lambda x: x[1, 2],
    "element of a row": lambda x: x[1][2],
    "part of a row": lambda x: x[1, 1:],
    "part of one row": lambda x: x[0:1, 1:3],
    "one element of a column": lambda x: x[0:1, 1],
    "ellipsis": lambda x: x[..., :],
    "reshape": lambda x: x.reshape((3, 2)),
    "as_in_context": lambda x: x.as_in_context(mx.cpu(1)),
    "astype without copy": lambda x: x.astype("float32", copy=False),
    "detach": lambda x: x.detach(),
    "iteration": lambda x: list(x)[1],
    "split_data": lambda x: mx.gluon.utils.split_data(x, 2)[1],
}
COPIES: dict[str, Any] = {
    "column": lambda x: x[:, 1],
    "columns": lambda x: x[:, 0:2],
    "steps": lambda x: x[:, ::2],
    "reversed": lambda x: x[::-1],
    "advanced": lambda x: x[nd.array([1, 0])],
    "mask": lambda x: x[np.array([True, False])],
    "T": lambda x: x.T,
    "transpose": lambda x: x.transpose(),
    "transpose axes": lambda x: x.transpose((1, 0)),
    "transpose by name": lambda x: x.transpose(axes=(1, 0)),
    "nd.transpose": lambda x: nd.transpose(x, axes=(1, 0)),
    "nd.reshape": lambda x: nd.reshape(x, shape=(3, 2)),
    "reshape_like": lambda x: x.reshape_like(nd.zeros((3, 2))),
    "expand_dims": lambda x: x.expand_dims(0),
    "nd.expand_dims": lambda x: nd.expand_dims(x, axis=0),
    "squeeze": lambda x: x.squeeze(),
    "flatten": lambda x: x.flatten(),
    "swapaxes": lambda x: x.swapaxes(dim1=0, dim2=1),
    "nd.swapaxes": lambda x: nd.swapaxes(x, dim1=0, dim2=1),
    "moveaxis": lambda x: nd.moveaxis(x, 0, 1),
    "split": lambda x: nd.split(x, 3)[1],
    "split in one": lambda x: x.split(1),
    "slice": lambda x: x.slice((0, 0), (1, 2)),
    "slice_axis": lambda x: nd.slice_axis(x, axis=0, begin=0, end=1),
    "take": lambda x: x.take(nd.array([0, 1])),
    "flip": lambda x: nd.flip(x, axis=1),
    "tile": lambda x: nd.tile(x, reps=(1, 1)),
    "repeat": lambda x: nd.repeat(x, repeats=1, axis=0),
    "sort": lambda x: x.sort(),
    "clip": lambda x: x.clip(a_min=0, a_max=9),
    "floor": lambda x: x.floor(),
    "broadcast_to": lambda x: x.broadcast_to((2, 3)),
    "concat": lambda x: nd.concat(x, dim=0),
    "stack": lambda x: nd.stack(x),
    "array": lambda x: nd.array(x),
    "astype": lambda x: x.astype("float32"),
    "copy": lambda x: x.copy(),
    "asnumpy": lambda x: x.asnumpy(),
    "arithmetic": lambda x: x + 0,
}


def example() -> Any:
    return nd.array(np.arange(6).reshape(2, 3))


@with_cases("name", [*VIEWS, *COPIES])
def test_what_shares_memory(name: str) -> None:
    array = example()
    before = array.asnumpy()
    part = {**VIEWS, **COPIES}[name](array)
    assert isinstance(part, np.ndarray)
    assert part.ndim
    part[:] = 99
    assert np.count_nonzero(array.asnumpy() != before) == (part.size if name in VIEWS else 0)


@pytest.mark.parametrize("shape", [(4,), (4, 1), (2, 2)])
def test_elements_are_views(shape: tuple[int, ...]) -> None:
    labels = nd.zeros(shape)
    labels[1][:] = 5
    labels[-1][0] = 2
    first = labels[0]
    first += 3
    expected = np.zeros(shape)
    expected[1], expected.reshape(-1)[-shape[-1] if len(shape) > 1 else -1] = 5, 2
    if len(shape) > 1:
        expected[-1] = 5 if shape[0] == 2 else 0
        expected[-1][0] = 2
    expected[0] = 3
    assert labels.asnumpy().tolist() == expected.tolist()


@given(st.data())
def test_writes_reach_every_index(data: Any) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    array, plain = nd.zeros(shape), np.zeros(shape, np.float32)

    def one(length: int) -> Any:
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


def test_arrays_of_arrays_in_another_order_can_be_written_by_rows() -> None:
    array = nd.array(np.zeros((3, 2)).T)
    array[1][2] = 4
    assert array.asnumpy().tolist() == [[0, 0, 0], [0, 0, 4]]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8"])
def test_comparisons_have_the_dtype_of_the_array(dtype: str) -> None:
    array = nd.array([1, 2, 3], dtype=dtype)
    first, second = array > 1, array > 2
    for found in (first, second, array == 2, array != nd.array([1, 1, 1], dtype=dtype), array <= array):
        assert found.dtype == dtype
        assert isinstance(found, nd.NDArray)
    assert (first + second).asnumpy().tolist() == [0, 1, 2]
    assert ((first + second) > 1).asnumpy().tolist() == [0, 0, 1]
    assert (first * array).sum().asscalar() == 5


def test_a_number_of_any_type_leaves_the_dtype() -> None:
    array = nd.array([1.5, 2])
    for number in (
        2,
        2.0,
        np.float64(2),
        np.float32(2),
        np.int64(2),
        np.uint8(2),
        array.asnumpy().mean(dtype="f8"),
    ):
        for made in (
            array * number,
            number * array,
            array + number,
            number - array,
            array / number,
            array**number,
        ):
            assert made.dtype == np.float32
            assert isinstance(made, nd.NDArray)
    array *= np.float64(2)
    assert (array.dtype, array.asnumpy().tolist()) == (np.float32, [3, 4])


def test_take_takes_rows() -> None:
    array = example()
    assert array.take(nd.array([1, 0])).asnumpy().tolist() == [[3, 4, 5], [0, 1, 2]]
    assert nd.take(array, nd.array([[1], [0]])).shape == (2, 1, 3)
    assert nd.take(array, nd.array([2, -1]), axis=1).asnumpy().tolist() == [[2, 0], [5, 3]]
    assert nd.take(array, nd.array([4, -1]), axis=1, mode="wrap").asnumpy().tolist() == [[1, 2], [4, 5]]
    with pytest.raises(IndexError):
        nd.take(array, nd.array([4]), mode="raise")


def test_sorting_returns_new_arrays() -> None:
    array = nd.array([[3, 1, 2], [6, 5, 4]])
    assert array.sort().asnumpy().tolist() == [[1, 2, 3], [4, 5, 6]]
    assert nd.sort(array, axis=0, is_ascend=False).asnumpy().tolist() == [[6, 5, 4], [3, 1, 2]]
    assert array.asnumpy().tolist() == [[3, 1, 2], [6, 5, 4]]
    order = array.argsort()
    assert (order.dtype, order.asnumpy().tolist()) == (np.float32, [[1, 2, 0], [2, 1, 0]])
    assert nd.argsort(array, is_ascend=False, dtype="int32").asnumpy().tolist() == [[0, 2, 1], [0, 1, 2]]


# Results by MXNet's documentation and its operators' tests.
RESULTS: dict[str, tuple[Any, Any]] = {
    "flatten": (lambda: nd.arange(24).reshape((2, 3, 4)).flatten().shape, (2, 12)),
    "clip": (lambda: nd.array([1, 5, 9]).clip(a_min=2, a_max=6), [2, 5, 6]),
    "where": (lambda: nd.where(nd.array([1, 0]), nd.array([1, 2]), nd.array([3, 4])), [1, 4]),
    "where rows": (lambda: nd.where(nd.array([1, 0]), nd.zeros((2, 2)), nd.ones((2, 2))), [[0, 0], [1, 1]]),
    "tile": (lambda: nd.tile(nd.array([1, 2]), reps=(2, 2)), [[1, 2, 1, 2], [1, 2, 1, 2]]),
    "repeat": (lambda: nd.repeat(nd.array([[1, 2], [3, 4]]), repeats=2), [1, 1, 2, 2, 3, 3, 4, 4]),
    "repeat rows": (lambda: nd.array([[1], [2]]).repeat(2, axis=0), [[1], [1], [2], [2]]),
    "flip": (lambda: nd.flip(nd.array([[1, 2], [3, 4]]), axis=0), [[3, 4], [1, 2]]),
    "squeeze": (lambda: nd.squeeze(nd.zeros((1, 3, 1))).shape, (3,)),
    "squeeze all": (lambda: nd.zeros((1, 1)).squeeze().shape, (1,)),
    "squeeze one": (lambda: nd.zeros((1, 3, 1)).squeeze(axis=2).shape, (1, 3)),
    "dot": (lambda: nd.dot(nd.array([[1, 2]]), nd.array([[3], [4]])), [[11]]),
    "dot of vectors": (lambda: nd.dot(nd.array([1, 2]), nd.array([3, 4])), [11]),
    "dot transposed": (lambda: nd.dot(nd.ones((3, 2)), nd.ones((3, 4)), transpose_a=True).shape, (2, 4)),
    "max": (lambda: nd.max(nd.array([[1, 5], [4, 2]]), axis=1), [5, 4]),
    "argmax": (lambda: nd.argmax(nd.array([[1, 5], [4, 2]]), axis=1), [1, 0]),
    "sum exclude": (lambda: nd.sum(nd.ones((2, 3, 4)), axis=1, exclude=True), [8, 8, 8]),
    "sum of all": (lambda: nd.sum(nd.ones((2, 3)), axis=()), [6]),
    "mean keepdims": (lambda: nd.mean(nd.ones((2, 3)), axis=0, keepdims=True).shape, (1, 3)),
    "floor": (lambda: nd.floor(nd.array([1.5, -1.5])), [1, -2]),
    "round": (lambda: nd.round(nd.array([0.5, 1.5, -0.5, 2.4])), [1, 2, -1, 2]),
    "one_hot": (lambda: nd.array([2, 0, 5]).one_hot(3), [[0, 0, 1], [1, 0, 0], [0, 0, 0]]),
    "broadcast_add": (lambda: nd.broadcast_add(nd.ones((2, 1)), nd.array([[1, 2]])), [[2, 3], [2, 3]]),
    "broadcast_greater": (lambda: nd.broadcast_greater(nd.array([1, 3]), nd.array([2, 2])), [0, 1]),
    "broadcast_to": (lambda: nd.array([[1], [2]]).broadcast_to((0, 2)), [[1, 1], [2, 2]]),
    "maximum": (lambda: nd.maximum(nd.array([1, 5]), 3), [3, 5]),
    "minimum of numbers": (lambda: [nd.minimum(2, 3)], [2]),
    "logical": (lambda: nd.logical_and(nd.array([1, 2, 0]), nd.array([0, 3, 1])), [0, 1, 0]),
    "not": (lambda: nd.logical_not(nd.array([0, 2])), [1, 0]),
    "norm": (lambda: nd.norm(nd.array([[3, 4]])), [5]),
    "L2Normalization": (
        lambda: nd.L2Normalization(nd.array([[3, 4], [0, 2]]), mode="instance"),
        [[0.6, 0.8], [0, 1]],
    ),
    "pad": (
        lambda: nd.pad(nd.ones((1, 1)), mode="constant", pad_width=(0, 1, 1, 0), constant_value=7),
        [[7, 1], [7, 7]],
    ),
    "add_n": (lambda: nd.add_n(nd.array([1]), nd.array([2]), nd.array([3])), [6]),
    "cast": (lambda: nd.cast(nd.array([1.7, 2]), dtype="int32"), [1, 2]),
    "linspace": (lambda: nd.linspace(0, 1, 3), [0, 0.5, 1]),
    "eye": (lambda: nd.eye(2), [[1, 0], [0, 1]]),
}


@with_cases("name", RESULTS)
def test_results_are_mxnets(name: str) -> None:
    make, expected = RESULTS[name]
    found = make()
    if isinstance(found, nd.NDArray):
        assert found.asnumpy() == pytest.approx(np.array(expected))
        assert found.shape == np.shape(expected)
    else:
        assert found == expected


def test_results_can_be_written_to_an_array() -> None:
    out = nd.zeros((2, 2))
    assert nd.stack(nd.array([1, 2]), nd.array([3, 4]), out=out) is out
    assert out.asnumpy().tolist() == [[1, 2], [3, 4]]
    assert nd.clip(out, a_min=2, a_max=3, out=out) is out
    assert out.asnumpy().tolist() == [[2, 2], [3, 3]]


def test_functions_of_numpy_find_numpys_methods() -> None:
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


def test_arrays_of_mx_np_keep_numpys_comparisons_and_methods() -> None:
    array = mx.np.array([3, 1, 2])
    assert (array > 1).dtype == bool
    assert array[array > 1].tolist() == [3, 2]
    assert array.sort() is None
    assert array.tolist() == [1, 2, 3]
    classic = array.as_nd_ndarray()
    assert (classic > 1).dtype == np.float32
    assert isinstance(classic.as_np_ndarray(), mx.np.ndarray)
    assert np.shares_memory(classic, array)
