"""Tests of LibSVMIter: sparse rows, labels and parts."""

import numpy as np
import pytest

import aioloader.mxnet as mx
from tests.cases import with_cases


@pytest.fixture
def sparse_rows(tmp_path):
    path = tmp_path / "data.t"
    path.write_text("1 0:0.5 2:1.2\n-2\n-3 0:0.6 1:2.4 2:1.2\n4 2:-1.2\n")
    return str(path)


DENSE = np.array([[0.5, 0, 1.2], [0, 0, 0], [0.6, 2.4, 1.2], [0, 0, -1.2]], np.float32)


def test_libsvm_rows_and_rounds(sparse_rows):
    iterator = mx.io.LibSVMIter(data_libsvm=sparse_rows, data_shape=(3,), batch_size=3)
    first = list(iterator)
    assert [batch.pad for batch in first] == [0, 2]
    assert [batch.data[0].stype for batch in first] == ["csr", "csr"]
    for batch, rows in zip(first, ([0, 1, 2], [3, 0, 1]), strict=True):
        batch.data[0].check_format(True)
        assert np.array_equal(batch.data[0].asnumpy(), DENSE[rows])
        assert batch.label[0].tolist() == [[1, -2, -3, 4][row] for row in rows]
        assert batch.index.tolist() == rows
    iterator.reset()
    (only,) = iterator  # measured with MXNet 1.9.1: the second epoch has one batch
    assert np.array_equal(only.data[0].tostype("default"), DENSE[[2, 3, 0]])
    assert only.pad == 1
    assert iterator.provide_data == [("data", (3, 3))]
    assert iterator.provide_label == [("softmax_label", (3,))]


def test_libsvm_without_rounds(sparse_rows):
    iterator = mx.io.LibSVMIter(data_libsvm=sparse_rows, data_shape=(3,), batch_size=3, round_batch=False)
    _, last = iterator
    assert last.pad == 2
    assert np.array_equal(last.data[0].asnumpy(), [DENSE[3], [0] * 3, [0] * 3])
    assert last.label[0].tolist() == [4, 0, 0]


def test_libsvm_label_file(sparse_rows, tmp_path):
    (tmp_path / "label.t").write_text("1 1:1\n-2 0:2\n-3 2:3 \n4 0:4 1:5\n")
    iterator = mx.io.LibSVMIter(
        data_libsvm=sparse_rows,
        label_libsvm=str(tmp_path / "label.t"),
        data_shape=(3,),
        label_shape=(3,),
        batch_size=2,
    )
    labels = [batch.label[0].asnumpy().tolist() for batch in iterator]
    assert labels == [[[0, 1, 0], [2, 0, 0]], [[0, 0, 3], [4, 5, 0]]]


def test_libsvm_parts_have_every_row_once(sparse_rows):
    rows = []
    for part in range(7):  # more parts than rows: some are empty
        iterator = mx.io.LibSVMIter(
            data_libsvm=sparse_rows, data_shape=(3,), batch_size=1, num_parts=7, part_index=part
        )
        rows += [int(n) for batch in iterator for n in batch.index]
    assert rows == [0, 1, 2, 3]


def test_libsvm_parts_are_mxnets(tmp_path):
    # Ten rows of twelve bytes; measured with MXNet 1.9.1.
    text = "".join(f"{n} {n % 3}:{n}.5 {3 + n % 2}:1\n" for n in range(10))
    (tmp_path / "all.t").write_text(text)
    (tmp_path / "a.t").write_text(text[:60])
    (tmp_path / "b.t").write_text(text[60:])

    def rows(uri, parts):
        return [
            [int(label) for batch in iterator for label in batch.label[0].tolist()]
            for part in range(parts)
            for iterator in [
                mx.io.LibSVMIter(
                    data_libsvm=uri, data_shape=(6,), batch_size=1, num_parts=parts, part_index=part
                )
            ]
        ]

    assert rows(str(tmp_path / "all.t"), 2) == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9]]
    assert rows(str(tmp_path / "all.t"), 3) == [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]
    # A part that begins at the start of a file.
    assert rows(f"{tmp_path}/a.t;{tmp_path}/b.t", 2) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


@with_cases(
    ("text", "said"),
    [
        ("1 3:1\n", "line 1.*not below 3"),
        ("1 0:1\nx 0:1\n", "line 2.*could not convert"),
        ("1 0:1:1\n", "line 1"),
        ("1 -1:1\n", "line 1"),
    ],
)
def test_libsvm_that_is_none(tmp_path, text, said):
    path = tmp_path / "bad.t"
    path.write_text(text)
    with pytest.raises(mx.MXNetError, match=said):
        mx.io.LibSVMIter(data_libsvm=str(path), data_shape=(3,), batch_size=1)


def test_libsvm_arguments(sparse_rows, tmp_path):
    common = {"data_libsvm": sparse_rows, "batch_size": 2}
    (tmp_path / "short.t").write_text("1 0:1\n")
    for extra, said in (
        ({"data_shape": (3, 1)}, "wrong dimensions, expected dimension=1"),
        ({"data_shape": (3,), "label_libsvm": sparse_rows}, "label_shape must be given"),
        (
            {"data_shape": (3,), "label_libsvm": str(tmp_path / "short.t"), "label_shape": (3,)},
            "only 1 of labels",
        ),
        ({"data_shape": (3,), "num_parts": 2, "part_index": 2}, "part_index 2 must be below"),
    ):
        with pytest.raises(mx.MXNetError, match=said):
            mx.io.LibSVMIter(**common, **extra)


def test_sparse_matrices_are_checked():
    matrix = mx.nd.sparse.CSRNDArray(
        np.ones(3, np.float32), np.array([0, 2, 1]), np.array([0, 2, 2, 3]), (3, 3)
    )
    matrix.check_format()
    assert repr(matrix) == "\n<CSRNDArray 3x3 @cpu(0)>"
    assert (len(matrix), matrix.dtype, matrix.context, matrix.tostype("csr")) == (
        3,
        np.float32,
        mx.cpu(),
        matrix,
    )
    assert matrix.asnumpy().tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    for indices, indptr in (([2, 0, 1], [0, 2, 2, 3]), ([0, 3, 1], [0, 2, 2, 3]), ([0, 2, 1], [0, 2, 1, 3])):
        wrong = mx.nd.sparse.CSRNDArray(np.ones(3), np.array(indices), np.array(indptr), (3, 3))
        with pytest.raises(mx.MXNetError, match="not a matrix of shape"):
            wrong.check_format()
    with pytest.raises(mx.MXNetError, match="row_sparse"):
        matrix.tostype("row_sparse")
