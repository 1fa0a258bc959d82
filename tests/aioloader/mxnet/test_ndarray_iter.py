"""Tests of `NDArrayIter`: rows, orders, pads and names exactly as MXNet's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aioloader.mxnet as mx
from tests.cases import with_cases


def passes(iterator, count):
    """Return (rows, pad) of every batch of some epochs; the value of a row is its number."""
    found = []
    for _ in range(count):
        found.append([(batch.data[0].astype(int).ravel().tolist(), batch.pad) for batch in iterator])
        iterator.reset()
    return found


# --- orders measured with MXNet 1.9.1: 10 rows, batches of 3, numpy.random.seed(0), three epochs ---

MEASURED = {
    ("pad", False): [[([0, 1, 2], 0), ([3, 4, 5], 0), ([6, 7, 8], 0), ([9, 0, 1], 2)]] * 3,
    ("pad", True): [
        [([2, 8, 4], 0), ([9, 1, 6], 0), ([7, 3, 0], 0), ([5, 2, 8], 2)],
        [([5, 7, 0], 0), ([1, 6, 2], 0), ([4, 3, 9], 0), ([8, 5, 7], 2)],
        [([9, 6, 1], 0), ([2, 5, 4], 0), ([8, 0, 7], 0), ([3, 9, 6], 2)],
    ],
    ("discard", False): [[([0, 1, 2], 0), ([3, 4, 5], 0), ([6, 7, 8], 0)]] * 3,
    ("discard", True): [
        [([2, 8, 4], 0), ([9, 1, 6], 0), ([7, 3, 0], 0)],
        [([5, 7, 0], 0), ([1, 6, 2], 0), ([4, 3, 9], 0)],
        [([9, 6, 1], 0), ([2, 5, 4], 0), ([8, 0, 7], 0)],
    ],
    ("roll_over", False): [
        [([0, 1, 2], 0), ([3, 4, 5], 0), ([6, 7, 8], 0)],
        [([9, 0, 1], 1), ([2, 3, 4], 0), ([5, 6, 7], 0)],
        [([8, 9, 0], 2), ([1, 2, 3], 0), ([4, 5, 6], 0), ([7, 8, 9], 0)],
    ],
    ("roll_over", True): [
        [([2, 8, 4], 0), ([9, 1, 6], 0), ([7, 3, 0], 0)],
        [([5, 5, 7], 1), ([0, 1, 6], 0), ([2, 4, 3], 0)],
        [([9, 8, 9], 2), ([6, 1, 2], 0), ([5, 4, 8], 0), ([0, 7, 3], 0)],
    ],
}


@with_cases(("handle", "shuffle"), MEASURED)
def test_rows_are_mxnet_s(handle, shuffle):
    np.random.seed(0)
    iterator = mx.io.NDArrayIter(np.arange(10), None, 3, shuffle, handle, pad_counts_rolled=True)
    assert passes(iterator, 3) == MEASURED[handle, shuffle]


def test_rows_rolled_over_are_no_filling():
    iterator = mx.io.NDArrayIter(np.arange(10), None, 3, last_batch_handle="roll_over")
    assert {pad for batches in passes(iterator, 3) for _, pad in batches} == {0}


@given(
    st.integers(1, 12), st.integers(1, 15), st.sampled_from(["pad", "discard", "roll_over"]), st.booleans()
)
def test_every_row_comes_as_often_as_it_should(length, size, handle, shuffle):
    labels = np.arange(length)
    iterator = mx.io.NDArrayIter(np.stack([labels, -labels], 1), labels, size, shuffle, handle)
    kept = []
    for _ in range(4):
        order = iterator.idx.tolist()
        assert sorted(order) == list(range(length))
        rows = []
        for batch in iterator:
            assert batch.data[0].shape == (size, 2)
            assert np.array_equal(batch.data[0][:, 0], batch.label[0])
            assert np.array_equal(batch.data[0][:, 1], -batch.label[0])
            assert batch.index is None
            rows += batch.label[0].astype(int).tolist()[: size - batch.pad]
        with pytest.raises(StopIteration):
            iterator.next()
        whole = kept + order
        if handle != "pad":
            whole = whole[: len(whole) // size * size]
        assert rows == whole
        kept = (kept + order)[len(whole) :] if handle == "roll_over" else []
        iterator.reset()


# --- sources, names, types ---


def test_sources_are_sorted_by_name_and_numpy_becomes_float32():
    data = {"b": np.zeros((6, 2)), "a": mx.nd.array([1, 2, 3, 4, 5, 6], dtype="int32")}
    iterator = mx.io.NDArrayIter(data, [np.arange(6), np.arange(6)], 4)
    assert [(d.name, d.shape, d.dtype, d.layout) for d in iterator.provide_data] == [
        ("a", (4,), np.int32, "NCHW"),
        ("b", (4, 2), np.float32, "NCHW"),
    ]
    assert iterator.provide_label == [("_0_softmax_label", (4,)), ("_1_softmax_label", (4,))]
    assert repr(iterator.provide_label[0]) == "DataDesc[_0_softmax_label,(4,),<class 'numpy.float32'>,NCHW]"
    assert (iterator.num_source, iterator.num_data, iterator.cursor) == (4, 6, -4)
    assert [name for name, _ in iterator.data] == ["a", "b"]
    assert len(iterator.data_list) == 4
    batch = iterator.next()
    assert [array.dtype for array in batch.data + batch.label] == [np.int32] + [np.float32] * 3
    assert iterator.cursor == 0


def test_ten_sources_are_sorted_as_text():
    iterator = mx.io.NDArrayIter([np.full((2,), n) for n in range(11)], None, 2)
    assert [name for name, _ in iterator.data] == [f"_{n}_data" for n in (0, 10, 1, *range(2, 10))]
    assert [int(array[0]) for array in iterator.next().data] == [0, 10, 1, *range(2, 10)]


def test_one_source_in_a_list_has_the_plain_name():
    iterator = mx.io.NDArrayIter([np.zeros(2)], {"y": [1, 2]}, 2, data_name="x")
    assert (iterator.provide_data, iterator.provide_label) == ([("x", (2,))], [("y", (2,))])


def test_types_can_be_kept():
    iterator = mx.io.NDArrayIter(np.zeros((4, 3), np.uint8), np.arange(4), 2, dtype=None)
    batch = iterator.next()
    assert (batch.data[0].dtype, batch.label[0].dtype) == (np.uint8, np.int64)


@with_cases("layout", ["CN", "NC"])
def test_the_layout_says_where_the_batch_is(layout):
    axis = layout.index("N")
    rows = np.moveaxis(np.arange(10).reshape(5, 2), 0, axis)
    iterator = mx.io.NDArrayIter(rows, None, 3, layout=layout)
    batches = [np.moveaxis(batch.data[0], axis, 0)[:, 0].tolist() for batch in iterator]
    assert batches == [[0, 2, 4], [6, 8, 0]]
    assert iterator.provide_data[0].shape == ((3, 2) if axis == 0 else (2, 3))


@with_cases("shuffle", [False, True])
def test_a_batch_is_the_caller_s_own(shuffle):
    source = mx.nd.ones((4, 2))
    iterator = mx.io.NDArrayIter(source, None, 2, shuffle)
    for batch in iterator:
        batch.data[0][:] = 7
    assert (source == 1).all()


def test_the_source_may_change_after_numpy_was_given():
    source = np.zeros((2, 1))
    iterator = mx.io.NDArrayIter(source, None, 2)
    source[:] = 9
    assert (iterator.next().data[0] == 0).all()


# --- continuing and resetting ---


@with_cases("handle", ["pad", "discard", "roll_over"])
def test_a_reset_in_the_middle_goes_back_to_the_start(handle):
    iterator = mx.io.NDArrayIter(np.arange(10), None, 3, last_batch_handle=handle)
    iterator.next()
    iterator.next()
    iterator.reset()
    assert iterator.next().data[0].tolist() == [0, 1, 2]


def test_a_hard_reset_forgets_what_was_rolled_over():
    iterator = mx.io.NDArrayIter(np.arange(5), None, 3, last_batch_handle="roll_over")
    assert len(list(iterator)) == 1
    with pytest.raises(StopIteration):
        iterator.next()  # a repeated call loses nothing
    iterator.reset()
    assert iterator.next().data[0].tolist() == [3, 4, 0]
    iterator.hard_reset()
    assert iterator.next().data[0].tolist() == [0, 1, 2]


def test_the_functions_of_a_data_iter():
    iterator = mx.io.NDArrayIter(np.arange(3), np.arange(3), 2)
    seen = []
    while iterator.iter_next():
        seen.append((iterator.getdata()[0].tolist(), iterator.getlabel()[0].tolist(), iterator.getpad()))
        assert iterator.getindex() is None
    assert seen == [([0, 1], [0, 1], 0), ([2, 0], [2, 0], 1)]
    assert iterator.batch_size == 2


# --- refused arguments ---


@with_cases(
    ("arguments", "kind", "text"),
    [
        (([],), AssertionError, "no data"),
        ((None,), ValueError, "no data"),
        (("text",), TypeError, "Input must be NDArray"),
        (({"a": "text"},), TypeError, "Invalid type '<class 'str'>' for a"),
        (({"a": 5},), TypeError, "Invalid type"),
        ((np.zeros(2), np.zeros(3)), ValueError, "same number of rows.*'data': 2, 'softmax_label': 3"),
        *(
            ((np.zeros(6), None, size), ValueError, "batch_size must be at least 1 and a whole number")
            for size in (0, -1, 2.5, "4", None)
        ),
        ((np.zeros(2), None, 1, False, "keep"), ValueError, "last_batch_handle must be one of"),
        ((np.zeros((2, 2)), None, 1, False, "pad", "data", "label", "HW"), ValueError, "no 'N'"),
    ],
)
def test_refusals(arguments, kind, text):
    with pytest.raises(kind, match=text):
        mx.io.NDArrayIter(*arguments)


SPARSE = np.array([[0, 1, 0], [0, 0, 0], [2, 0, 3], [0, 4, 0], [5, 0, 0]], np.float32)


def sparse_matrix(kind):
    if kind == "scipy":
        return pytest.importorskip("scipy.sparse").coo_matrix(SPARSE.astype(np.float64))
    columns = [np.flatnonzero(row) for row in SPARSE]
    ends = np.cumsum([0, *map(len, columns)])
    return mx.nd.sparse.CSRNDArray(SPARSE[SPARSE != 0], np.concatenate(columns), ends, SPARSE.shape)


@pytest.mark.parametrize("kind", ["csr", "scipy"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_sparse_matrices(kind, shuffle):
    matrix = sparse_matrix(kind)
    for handle in ("pad", "roll_over"):
        with pytest.raises(NotImplementedError, match="set to `discard`"):
            mx.io.NDArrayIter({"data": matrix}, SPARSE, 2, last_batch_handle=handle)
    iterator = mx.io.NDArrayIter(
        {"csr": matrix, "dense": SPARSE}, None, 2, shuffle, last_batch_handle="discard"
    )
    assert iterator.provide_data == [("csr", (2, 3)), ("dense", (2, 3))]
    assert iterator.provide_data[0].dtype is np.float32
    batches = list(iterator)
    assert len(batches) == 2
    for batch in batches:
        batch.data[0].check_format()
        assert kind == "csr" or np.array_equal(batch.data[0].asscipy().toarray(), batch.data[1])
        assert np.array_equal(batch.data[0].asnumpy(), batch.data[1])
        assert batch.label == []


def test_datasets_of_h5py(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        rows = file.create_dataset("rows", data=np.arange(20, dtype=np.int16).reshape(10, 2))
        iterator = mx.io.NDArrayIter(rows, {"y": rows}, 4, shuffle=True)
        assert iterator.provide_data[0].dtype is np.int16
        order = [int(n) for batch in iterator for n in batch.data[0][:, 0] // 2]
        assert order == [*iterator.idx, *iterator.idx[:2]]
