"""CSVIter, LibSVMIter and MNISTIter: values, rounds, pads, arguments and errors."""

from __future__ import annotations

import gzip
import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aioloader.mxnet as mx
from aioloader.mxnet.io import UnknownParameterWarning
from aioloader.mxnet.io.rounds import Rounds


@pytest.fixture
def ten(tmp_path: Path) -> str:
    """Ten rows of two numbers; the first of row i is 2 i."""
    path = tmp_path / "ten.csv"
    np.savetxt(path, np.arange(20).reshape(10, 2), delimiter=",")
    return str(path)


def passes(iterator: Any, count: int) -> list[list[tuple[list[float], int]]]:
    found = []
    for _ in range(count):
        found.append([(batch.data[0][:, 0].tolist(), batch.pad) for batch in iterator])
        iterator.reset()
    return found


# --- rounds ---


def test_a_pass_borrows_from_the_next(ten: str) -> None:
    iterator = mx.io.CSVIter(data_csv=ten, data_shape=(2,), batch_size=4)
    first = [([0, 2, 4, 6], 0), ([8, 10, 12, 14], 0), ([16, 18, 0, 2], 2)]
    second = [([4, 6, 8, 10], 0), ([12, 14, 16, 18], 0)]
    assert passes(iterator, 4) == [first, second, first, second]  # measured with MXNet 1.9.1


def test_without_rounds_zeros_fill_up(ten: str) -> None:
    iterator = mx.io.CSVIter(data_csv=ten, data_shape=(2,), batch_size=4, round_batch=False)
    only = [([0, 2, 4, 6], 0), ([8, 10, 12, 14], 0), ([16, 18, 0, 0], 2)]
    assert passes(iterator, 2) == [only, only]


def test_a_reset_before_the_end_goes_back(ten: str) -> None:
    iterator = mx.io.CSVIter(data_csv=ten, data_shape=(2,), batch_size=4)
    iterator.reset()  # straight after it was made
    assert passes(iterator, 1)[0][0] == ([0, 2, 4, 6], 0)
    iterator.next()  # of the second pass, which begins behind the borrowed rows
    iterator.reset()
    assert iterator.next().data[0][:, 0].tolist() == [0, 2, 4, 6]


def test_index_numbers_the_rows(ten: str) -> None:
    iterator = mx.io.CSVIter(data_csv=ten, data_shape=(2,), batch_size=4)
    indexes = [batch.index for batch in iterator]
    assert [index.tolist() for index in indexes] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1]]
    assert indexes[0].dtype == np.uint64


@given(st.integers(0, 30), st.integers(1, 12), st.booleans())
def test_rounds_give_every_row_once(length: int, size: int, round_batch: bool) -> None:
    if round_batch and 0 < length < size:
        with pytest.raises(mx.MXNetError, match="number of input must be bigger than batch size"):
            Rounds(length, size, round_batch)
        return
    rounds = Rounds(length, size, round_batch)
    borrowed = 0
    for _ in range(3):
        real: list[int] = []
        while (found := rounds.next()) is not None:
            assert len(found.rows) == size or not round_batch
            real += found.rows[: size - found.pad].tolist()
            filling = found.rows[size - found.pad :].tolist()
            assert filling == (list(range(found.pad)) if round_batch else [])
        assert real == list(range(borrowed, length))
        borrowed = -(length - borrowed) % size if round_batch and length else 0
        assert rounds.next() is None
        rounds.reset()


# --- the contract of these iterators ---


def test_getdata_is_the_array_and_next_a_list(ten: str) -> None:
    iterator = mx.io.CSVIter(data_csv=ten, data_shape=(2,), batch_size=5, data_name="x", label_name="y")
    assert isinstance(iterator, mx.io.MXDataIter)
    assert (iterator.provide_data, iterator.provide_label) == ([("x", (5, 2))], [("y", (5,))])
    with pytest.raises(RuntimeError, match="no current batch"):
        iterator.getdata()
    assert iterator.iter_next()
    assert iterator.getdata().shape == (5, 2)
    assert iterator.getlabel().tolist() == [0] * 5
    assert (iterator.getpad(), iterator.getindex().tolist()) == (0, [0, 1, 2, 3, 4])
    batch = iterator.next()
    assert [array.shape for array in batch.data + batch.label] == [(5, 2), (5,)]
    assert not iterator.iter_next()
    with pytest.raises(StopIteration):
        iterator.next()
    assert list(iterator) == []


def test_loading_can_be_skipped_to_measure(ten: str) -> None:
    iterator = mx.io.CSVIter(data_csv=ten, data_shape=(2,), batch_size=4)
    iterator.debug_skip_load()
    assert {iterator.next().data[0][0, 0].asscalar() for _ in range(9)} == {0}


def test_arguments_are_read_through_text(ten: str) -> None:
    iterator = mx.io.CSVIter(
        data_csv=ten,
        data_shape="(2,)",
        batch_size="5",
        round_batch="False",
        prefetch_buffer="1",
        ctx="cpu",
        dtype=None,
    )
    assert iterator.provide_data == [("data", (5, 2))]


@pytest.mark.parametrize("shape", [(np.int64(2),), [2], 2, np.int32(2)], ids=repr)
def test_shapes_may_be_of_numpys_numbers(ten: str, shape: Any) -> None:
    iterator = mx.io.CSVIter(data_csv=ten, data_shape=shape, batch_size=np.int64(5))
    assert iterator.provide_data == [("data", (5, 2))]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"batch_size": None}, "Required parameter batch_size of int (non-negative) is not presented"),
        ({"data_csv": None}, "Required parameter data_csv of string is not presented"),
        (
            {"batch_size": "abc"},
            "Invalid Parameter format for batch_size expect int (non-negative) but value='abc'",
        ),
        ({"batch_size": -1}, "value -1 for Parameter batch_size should be greater equal to 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, not 0"),
        (
            {"round_batch": "maybe"},
            "Invalid Parameter format for round_batch expect boolean but value='maybe'",
        ),
        ({"data_shape": "(2"}, "Invalid Parameter format for data_shape expect Shape(tuple) but value='(2'"),
        (
            {"data_shape": (-2,)},
            "Invalid Parameter format for data_shape expect Shape(tuple) but value='(-2,)'",
        ),
        ({"ctx": "tpu"}, "Invalid Input: 'tpu', valid values are: {'cpu', 'gpu'}"),
        ({"dtype": "float64"}, "float64 is not supported for CSVIter"),
        ({"batch_size": 40}, "number of input must be bigger than batch size"),
        ({"data_csv": "/nowhere/a.csv"}, "Cannot find any files that matches the URI pattern /nowhere/a.csv"),
        ({"data_shape": (3,)}, "specified shape=[3], the csv row-length=2"),
        ({"label_csv": "LESS"}, "fewer than the 10"),
    ],
)
def test_wrong_arguments(ten: str, tmp_path: Path, arguments: dict[str, Any], text: str) -> None:
    (tmp_path / "less.csv").write_text("1\n2\n")
    values = {"data_csv": ten, "data_shape": (2,), "batch_size": 4, **arguments}
    if values.get("label_csv") == "LESS":
        values["label_csv"] = str(tmp_path / "less.csv")
    given_values = {name: value for name, value in values.items() if value is not None}
    with pytest.raises(mx.MXNetError) as caught:
        mx.io.CSVIter(**given_values)
    assert text in str(caught.value)


def test_only_keywords(ten: str) -> None:
    with pytest.raises(mx.MXNetError, match="Required parameter"):
        mx.io.CSVIter(ten)
    with pytest.raises(TypeError, match="CSVIter can only accept keyword arguments"):
        mx.io.CSVIter(ten, data_csv=ten, data_shape=(2,), batch_size=4)


def test_unknown_arguments_are_told(ten: str) -> None:
    with pytest.warns(UnknownParameterWarning, match="batch_sise; did you mean batch_size") as caught:
        iterator = mx.io.CSVIter(data_csv=ten, data_shape=(2,), batch_size=4, batch_sise=5)
    assert caught[0].filename == __file__
    assert iterator.batch_size == 4
    with pytest.raises(TypeError, match="does not know the argument"):
        mx.io.CSVIter(data_csv=ten, data_shape=(2,), batch_size=4, other=5, strict=True)


# --- CSVIter ---


@pytest.mark.parametrize(
    ("dtype", "entry"), [("int32", 200000001), ("int64", 2147483648), ("float32", 1), (None, 1)]
)
def test_csv_values_and_types(tmp_path: Path, dtype: str | None, entry: int) -> None:
    # MXNet's own test: integers are parsed as integers, not by way of float32.
    data, label = tmp_path / "data.t", tmp_path / "label.t"
    data.write_text((",".join([str(entry)] * 64) + "\n") * 100)
    label.write_text("0\n" * 100)
    iterator = mx.io.CSVIter(
        data_csv=str(data), data_shape=(8, 8), label_csv=str(label), batch_size=10, dtype=dtype
    )
    expected = mx.nd.ones((10, 8, 8), dtype=dtype or "float32") * entry
    count = 0
    for batch in iter(iterator):
        found = iterator.getdata().asnumpy()
        assert np.array_equal(found, expected)
        assert found.dtype == iterator.provide_data[0].dtype == expected.dtype
        assert batch.label[0].dtype == expected.dtype
        count += 1
    assert count == 10


def test_csv_text_may_be_loose(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("\ufeff1, 2\n\n 3 ,4e0 \n5,-6")
    iterator = mx.io.CSVIter(data_csv=str(path), data_shape=(2,), batch_size=3)
    assert iterator.next().data[0].tolist() == [[1, 2], [3, 4], [5, -6]]


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "1,2\n3\n", "1,2\n3,x\n", "1;2\n"])
def test_csv_that_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(mx.MXNetError, match=r"a\.csv"):
        mx.io.CSVIter(data_csv=str(path), data_shape=(2,), batch_size=1)


def test_csv_without_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("\n")
    iterator = mx.io.CSVIter(data_csv=str(path), data_shape=(2,), batch_size=4)
    assert list(iterator) == []
    assert iterator.provide_data == [("data", (4, 2))]


def test_csv_labels_of_several_numbers(ten: str) -> None:
    iterator = mx.io.CSVIter(data_csv=ten, data_shape=(1, 2), label_csv=ten, label_shape=(2,), batch_size=2)
    batch = iterator.next()
    assert batch.data[0].shape == (2, 1, 2)
    assert batch.label[0].tolist() == [[0, 1], [2, 3]]
    assert iterator.provide_label == [("softmax_label", (2, 2))]


@pytest.mark.parametrize(
    "uri", ["{0}/a.csv;{0}/b.csv", "{0}", "{0}/.*\\.csv", "file://{0}/a.csv;{0}/b.csv#cache"]
)
def test_several_files(tmp_path: Path, uri: str) -> None:
    (tmp_path / "a.csv").write_text("1\n2\n")
    (tmp_path / "b.csv").write_text("3\n")
    (tmp_path / "c.empty").write_text("")
    iterator = mx.io.CSVIter(data_csv=uri.format(tmp_path), data_shape=(1,), batch_size=3)
    assert iterator.next().data[0].ravel().tolist() == [1, 2, 3]


def test_no_file_matches(tmp_path: Path) -> None:
    for uri in (tmp_path / "[", tmp_path, tmp_path / "none" / "a.csv"):
        with pytest.raises(mx.MXNetError, match="Cannot find any files"):
            mx.io.CSVIter(data_csv=str(uri), data_shape=(1,), batch_size=3)


# --- LibSVMIter ---


@pytest.fixture
def sparse_rows(tmp_path: Path) -> str:
    path = tmp_path / "data.t"
    path.write_text("1 0:0.5 2:1.2\n-2\n-3 0:0.6 1:2.4 2:1.2\n4 2:-1.2\n")
    return str(path)


DENSE = np.array([[0.5, 0, 1.2], [0, 0, 0], [0.6, 2.4, 1.2], [0, 0, -1.2]], np.float32)


def test_libsvm_rows_and_rounds(sparse_rows: str) -> None:
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
    (only,) = iterator  # measured with MXNet 1.9.1: the second pass has one batch
    assert np.array_equal(only.data[0].tostype("default"), DENSE[[2, 3, 0]])
    assert only.pad == 1
    assert iterator.provide_data == [("data", (3, 3))]
    assert iterator.provide_label == [("softmax_label", (3,))]


def test_libsvm_without_rounds(sparse_rows: str) -> None:
    iterator = mx.io.LibSVMIter(data_libsvm=sparse_rows, data_shape=(3,), batch_size=3, round_batch=False)
    _, last = iterator
    assert last.pad == 2
    assert np.array_equal(last.data[0].asnumpy(), [DENSE[3], [0] * 3, [0] * 3])
    assert last.label[0].tolist() == [4, 0, 0]


def test_libsvm_label_file(sparse_rows: str, tmp_path: Path) -> None:
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


def test_libsvm_parts_have_every_row_once(sparse_rows: str) -> None:
    rows: list[int] = []
    for part in range(7):  # more parts than rows: some are empty
        iterator = mx.io.LibSVMIter(
            data_libsvm=sparse_rows, data_shape=(3,), batch_size=1, num_parts=7, part_index=part
        )
        rows += [int(n) for batch in iterator for n in batch.index]
    assert rows == [0, 1, 2, 3]


def test_libsvm_parts_are_mxnets(tmp_path: Path) -> None:
    # Ten rows of twelve bytes; measured with MXNet 1.9.1.
    text = "".join(f"{n} {n % 3}:{n}.5 {3 + n % 2}:1\n" for n in range(10))
    (tmp_path / "all.t").write_text(text)
    (tmp_path / "a.t").write_text(text[:60])
    (tmp_path / "b.t").write_text(text[60:])

    def rows(uri: str, parts: int) -> list[list[int]]:
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
    # A part that begins where a file does.
    assert rows(f"{tmp_path}/a.t;{tmp_path}/b.t", 2) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 3:1\n", "line 1.*not below 3"),
        ("1 0:1\nx 0:1\n", "line 2.*could not convert"),
        ("1 0:1:1\n", "line 1"),
        ("1 -1:1\n", "line 1"),
    ],
)
def test_libsvm_that_is_none(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bad.t"
    path.write_text(text)
    with pytest.raises(mx.MXNetError, match=said):
        mx.io.LibSVMIter(data_libsvm=str(path), data_shape=(3,), batch_size=1)


def test_libsvm_arguments(sparse_rows: str, tmp_path: Path) -> None:
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


def test_sparse_matrices_are_checked() -> None:
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
        with pytest.raises(mx.MXNetError, match="no matrix of shape"):
            wrong.check_format()
    with pytest.raises(mx.MXNetError, match="row_sparse"):
        matrix.tostype("row_sparse")


# --- MNISTIter ---


@pytest.fixture
def mnist(tmp_path: Path) -> dict[str, str]:
    """25 images of 28 x 28; every pixel of image i is i, its label is i % 10."""
    images = np.repeat(np.arange(25, dtype=np.uint8), 784)
    paths = tmp_path / "images", tmp_path / "labels"
    paths[0].write_bytes(struct.pack(">4I", 0x803, 25, 28, 28) + images.tobytes())
    paths[1].write_bytes(struct.pack(">2I", 0x801, 25) + (np.arange(25) % 10).astype(np.uint8).tobytes())
    return {"image": str(paths[0]), "label": str(paths[1])}


def numbers(batch: Any) -> list[int]:
    return [int(n) for n in batch.data[0].reshape(len(batch.data[0]), -1)[:, 0] * 256]


def test_mnist_values(mnist: dict[str, str]) -> None:
    iterator = mx.io.MNISTIter(**mnist, batch_size=10, shuffle=False)
    batches = list(iterator)
    assert len(batches) == 2  # what does not fill a batch is dropped
    assert batches[0].data[0].shape == (10, 1, 28, 28)
    assert batches[0].data[0].dtype == batches[0].label[0].dtype == np.float32
    assert batches[1].data[0][3, 0, 5, 5].asscalar() == np.float32(13 / 256)
    assert batches[1].label[0].tolist() == list(range(10))
    assert [batch.pad for batch in batches] == [0, 0]
    assert iterator.provide_data == [("data", (10, 1, 28, 28))]
    assert iterator.provide_label == [("softmax_label", (10,))]


def test_mnist_is_flat_when_asked(mnist: dict[str, str]) -> None:
    iterator = mx.io.MNISTIter(**mnist, batch_size=5, flat=True, silent=True)
    assert iterator.next().data[0].shape == (5, 784)


def test_mnist_order_is_that_of_the_seed_in_every_pass(mnist: dict[str, str]) -> None:
    def order(seed: int) -> list[int]:
        iterator = mx.io.MNISTIter(**mnist, batch_size=5, seed=seed)
        first = [n for batch in iterator for n in numbers(batch)]
        iterator.reset()
        assert [n for batch in iterator for n in numbers(batch)] == first
        iterator.reset()
        assert [int(n) for batch in iterator for n in batch.index] == first
        assert sorted(first) == list(range(25))
        return first

    assert order(0) == order(0) != order(1)
    assert order(0) != list(range(25))


def test_mnist_labels_repeat_after_a_reset(mnist: dict[str, str]) -> None:
    # MXNet's own test: iter_next and getlabel, with resets in the middle.
    iterator = mx.io.MNISTIter(**mnist, data_shape=(784,), batch_size=5, shuffle=1, flat=1, silent=0, seed=10)
    assert sum(1 for _ in iterator) == 5
    iterator.reset()
    iterator.iter_next()
    first = iterator.getlabel().asnumpy().flatten()
    for _ in range(3):
        iterator.iter_next()
    iterator.reset()
    iterator.iter_next()
    assert np.array_equal(iterator.getlabel().asnumpy().flatten(), first)


def test_mnist_parts(mnist: dict[str, str]) -> None:
    parts = [
        [
            n
            for batch in mx.io.MNISTIter(**mnist, batch_size=1, shuffle=False, num_parts=3, part_index=part)
            for n in batch.index.tolist()
        ]
        for part in range(3)
    ]
    assert parts == [list(range(8)), list(range(8, 16)), list(range(16, 25))]
    with pytest.raises(mx.MXNetError, match="part_index 3 must be below num_parts 3"):
        mx.io.MNISTIter(**mnist, num_parts=3, part_index=3)


def test_mnist_files_may_be_gzipped(mnist: dict[str, str]) -> None:
    for path in mnist.values():
        Path(f"{path}.gz").write_bytes(gzip.compress(Path(path).read_bytes()))
        Path(path).unlink()
    assert len(list(mx.io.MNISTIter(**mnist, batch_size=5))) == 5


def test_mnist_files_that_are_none(mnist: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(mx.MXNetError, match="not downloaded"):
        mx.io.MNISTIter(image=str(tmp_path / "none"), label=mnist["label"])
    with pytest.raises(mx.MXNetError, match="no IDX file of 3 axes"):
        mx.io.MNISTIter(image=mnist["label"], label=mnist["label"])
    Path(mnist["label"]).write_bytes(struct.pack(">2I", 0x801, 1) + b"\0")
    with pytest.raises(mx.MXNetError, match="25 images and 1 labels"):
        mx.io.MNISTIter(**mnist)


def test_nothing_is_warned_about(ten: str, mnist: dict[str, str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mx.io.CSVIter(data_csv=ten, data_shape=(2,), batch_size=4)
        mx.io.MNISTIter(**mnist, batch_size=5, silent=True)
