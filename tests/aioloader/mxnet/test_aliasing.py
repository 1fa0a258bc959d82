"""Tests of what shares memory in `mx.nd`, and of results, beyond those of test_nd_against_mxnet.py.

MXNet's rules are those of its sources (python/mxnet/ndarray/ndarray.py): an index of integers and slices is a view
where the part is contiguous, and operators return new arrays.
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
    "row and all": lambda x: x[1, :],
    "one element": lambda x: x[1, 2],
    "ellipsis": lambda x: x[..., :],
    "as_in_context": lambda x: x.as_in_context(mx.cpu(1)),
}
COPIES: dict[str, Any] = {
    "mask": lambda x: x[np.array([True, False])],
    "tile": lambda x: nd.tile(x, reps=(1, 1)),
    "repeat": lambda x: nd.repeat(x, repeats=1, axis=0),
    "concat": lambda x: nd.concat(x, dim=0),
}


def example() -> Any:
    return nd.array(np.arange(6).reshape(2, 3))


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


@with_cases("name", [*VIEWS, *COPIES])
def test_what_shares_memory(name: str) -> None:
    array = example()
    before = array.asnumpy()
    part = {**VIEWS, **COPIES}[name](array)
    assert isinstance(part, np.ndarray)
    assert part.ndim
    part[:] = 99
    assert np.count_nonzero(array.asnumpy() != before) == (part.size if name in VIEWS else 0)


def test_arrays_of_arrays_in_another_order_can_be_written_by_rows() -> None:
    array = nd.array(np.zeros((3, 2)).T)
    array[1][2] = 4
    assert array.asnumpy().tolist() == [[0, 0, 0], [0, 0, 4]]


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
    "squeeze": (lambda: nd.squeeze(nd.zeros((1, 3, 1))).shape, (3,)),
    "squeeze all": (lambda: nd.zeros((1, 1)).squeeze().shape, (1,)),
    "squeeze one": (lambda: nd.zeros((1, 3, 1)).squeeze(axis=2).shape, (1, 3)),
    "floor": (lambda: nd.floor(nd.array([1.5, -1.5])), [1, -2]),
    "round": (lambda: nd.round(nd.array([0.5, 1.5, -0.5, 2.4])), [1, 2, -1, 2]),
    "broadcast_to": (lambda: nd.array([[1], [2]]).broadcast_to((0, 2)), [[1, 1], [2, 2]]),
    "minimum of numbers": (lambda: [nd.minimum(2, 3)], [2]),
    "logical": (lambda: nd.logical_and(nd.array([1, 2, 0]), nd.array([0, 3, 1])), [0, 1, 0]),
    "argmax": (lambda: nd.argmax(nd.array([[1, 5], [4, 2]]), axis=1), [1, 0]),
    "cast": (lambda: nd.cast(nd.array([1.7, 2]), dtype="int32"), [1, 2]),
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


def test_places_beyond_the_end_can_be_an_error() -> None:
    with pytest.raises(IndexError):
        nd.take(example(), nd.array([4]), mode="raise")


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
