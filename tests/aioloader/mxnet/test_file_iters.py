"""Tests of CSVIter and MNISTIter: values, rounds, pads, order, files, arguments and errors."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aioloader.mxnet as mx
from aioloader.mxnet.io import UnknownParameterWarning
from aioloader.mxnet.io.backend_iter import ArrayBatches
from tests.cases import with_cases


def passes(iterator, count):
    found = []
    for _ in range(count):
        found.append([(batch.data[0][:, 0].tolist(), batch.pad) for batch in iterator])
        iterator.reset()
    return found


def test_a_pass_borrows_from_the_next(ten_rows):
    iterator = mx.io.CSVIter(data_csv=ten_rows, data_shape=(2,), batch_size=4)
    first = [([0, 2, 4, 6], 0), ([8, 10, 12, 14], 0), ([16, 18, 0, 2], 2)]
    second = [([4, 6, 8, 10], 0), ([12, 14, 16, 18], 0)]
    assert passes(iterator, 4) == [first, second, first, second]  # measured with MXNet 1.9.1


def test_a_reset_before_the_end_goes_back(ten_rows):
    iterator = mx.io.CSVIter(data_csv=ten_rows, data_shape=(2,), batch_size=4)
    iterator.reset()  # directly after its construction
    assert passes(iterator, 1)[0][0] == ([0, 2, 4, 6], 0)
    iterator.next()  # of the second epoch, which begins after the borrowed rows
    iterator.reset()
    assert iterator.next().data[0][:, 0].tolist() == [0, 2, 4, 6]


@given(st.integers(0, 30), st.integers(1, 12), st.booleans())
def test_every_row_comes_once(length, size, round_batch):
    rows = np.arange(length, dtype=np.float32)
    if round_batch and 0 < length < size:
        with pytest.raises(mx.MXNetError, match="number of input must be bigger than batch size"):
            ArrayBatches(rows, rows, batch_size=size, round_batch=round_batch)
        return
    batches = ArrayBatches(rows, rows, batch_size=size, round_batch=round_batch)
    borrowed = 0
    for _ in range(3):
        real = []
        while (found := batches.next()) is not None:
            assert len(found.data) == size
            assert len(found.index) == (size if round_batch else size - found.pad)
            real += found.data[: size - found.pad].tolist()
            filling = found.data[size - found.pad :].tolist()
            assert filling == (list(range(found.pad)) if round_batch else [0] * found.pad)
        assert real == list(range(borrowed, length))
        borrowed = -(length - borrowed) % size if round_batch and length else 0
        assert batches.next() is None
        batches.reset()


# --- the contract of these iterators ---


def test_getdata_is_the_array_and_next_a_list(ten_rows):
    iterator = mx.io.CSVIter(data_csv=ten_rows, data_shape=(2,), batch_size=5, data_name="x", label_name="y")
    assert isinstance(iterator, mx.io.MXDataIter)
    assert (iterator.provide_data, iterator.provide_label) == ([("x", (5, 2))], [("y", (5,))])
    # As in MXNet, the first batch is there before it is asked for.
    assert (iterator.getdata().shape, iterator.getpad(), iterator.getindex().tolist()) == ((5, 2), 0, [0] * 5)
    assert iterator.iter_next()
    assert iterator.getdata().shape == (5, 2)
    assert iterator.getlabel().tolist() == [0] * 5
    assert (iterator.getpad(), iterator.getindex().tolist()) == (0, [0, 1, 2, 3, 4])
    assert iterator.getindex().dtype == np.uint64
    batch = iterator.next()
    assert [array.shape for array in batch.data + batch.label] == [(5, 2), (5,)]
    assert not iterator.iter_next()
    with pytest.raises(StopIteration):
        iterator.next()
    assert list(iterator) == []
    with pytest.raises(RuntimeError, match="no current batch"):
        iterator.getdata()


def test_loading_can_be_skipped_to_measure(ten_rows):
    iterator = mx.io.CSVIter(data_csv=ten_rows, data_shape=(2,), batch_size=4)
    iterator.debug_skip_load()
    assert {iterator.next().data[0][0, 0].asscalar() for _ in range(9)} == {0}


@with_cases("shape", [(np.int64(2),), [2], 2, np.int32(2), "(2,)"])
def test_arguments_are_read_through_text(ten_rows, shape):
    text = {"round_batch": "False", "prefetch_buffer": "1", "ctx": "cpu", "dtype": None}
    for size in (np.int64(5), "5"):
        iterator = mx.io.CSVIter(data_csv=ten_rows, data_shape=shape, batch_size=size, **text)
        assert iterator.provide_data == [("data", (5, 2))]


@with_cases(
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
def test_wrong_arguments(ten_rows, tmp_path, arguments, text):
    (tmp_path / "less.csv").write_text("1\n2\n")
    values = {"data_csv": ten_rows, "data_shape": (2,), "batch_size": 4, **arguments}
    if values.get("label_csv") == "LESS":
        values["label_csv"] = str(tmp_path / "less.csv")
    given_values = {name: value for name, value in values.items() if value is not None}
    with pytest.raises(mx.MXNetError) as caught:
        mx.io.CSVIter(**given_values)
    assert text in str(caught.value)


def test_only_keywords(ten_rows):
    with pytest.raises(mx.MXNetError, match="Required parameter"):
        mx.io.CSVIter(ten_rows)
    with pytest.raises(TypeError, match="CSVIter can only accept keyword arguments"):
        mx.io.CSVIter(ten_rows, data_csv=ten_rows, data_shape=(2,), batch_size=4)


def test_unknown_arguments_are_reported(ten_rows):
    with pytest.warns(UnknownParameterWarning, match=r"batch_sise \(did you mean batch_size") as caught:
        iterator = mx.io.CSVIter(data_csv=ten_rows, data_shape=(2,), batch_size=4, batch_sise=5)
    assert caught[0].filename == __file__
    assert iterator.batch_size == 4
    with pytest.raises(TypeError, match="does not know the argument"):
        mx.io.CSVIter(data_csv=ten_rows, data_shape=(2,), batch_size=4, other=5, strict=True)


@with_cases(("dtype", "entry"), [("int32", 200000001), ("int64", 2147483648), ("float32", 1), (None, 1)])
def test_csv_values_and_types(tmp_path, dtype, entry):
    # MXNet's test: integers are parsed as integers, not through float32.
    data, label = tmp_path / "data.t", tmp_path / "label.t"
    data.write_text((",".join([str(entry)] * 64) + "\n") * 20)
    label.write_text("0\n" * 20)
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
    assert count == 2


def test_csv_text_may_be_loose(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("\ufeff1, 2\n\n 3 ,4e0 \n5,-6")
    iterator = mx.io.CSVIter(data_csv=str(path), data_shape=(2,), batch_size=3)
    assert iterator.next().data[0].tolist() == [[1, 2], [3, 4], [5, -6]]


@with_cases("text", ["a,b\n1,2\n", "1,2\n3\n", "1,2\n3,x\n", "1;2\n"])
def test_csv_that_is_none(tmp_path, text):
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(mx.MXNetError, match=r"a\.csv"):
        mx.io.CSVIter(data_csv=str(path), data_shape=(2,), batch_size=1)


def test_csv_without_rows(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("\n")
    iterator = mx.io.CSVIter(data_csv=str(path), data_shape=(2,), batch_size=4)
    assert list(iterator) == []
    assert iterator.provide_data == [("data", (4, 2))]


def test_csv_labels_of_several_numbers(ten_rows):
    iterator = mx.io.CSVIter(
        data_csv=ten_rows, data_shape=(1, 2), label_csv=ten_rows, label_shape=(2,), batch_size=2
    )
    batch = iterator.next()
    assert batch.data[0].shape == (2, 1, 2)
    assert batch.label[0].tolist() == [[0, 1], [2, 3]]
    assert iterator.provide_label == [("softmax_label", (2, 2))]


@with_cases("uri", ["{0}/a.csv;{0}/b.csv", "{0}", "{0}/.*\\.csv", "file://{0}/a.csv;{0}/b.csv#cache"])
def test_several_files(tmp_path, uri):
    (tmp_path / "a.csv").write_text("1\n2\n")
    (tmp_path / "b.csv").write_text("3\n")
    (tmp_path / "c.empty").write_text("")
    iterator = mx.io.CSVIter(data_csv=uri.format(tmp_path), data_shape=(1,), batch_size=3)
    assert iterator.next().data[0].ravel().tolist() == [1, 2, 3]


def test_no_file_matches(tmp_path):
    for uri in (tmp_path / "[", tmp_path, tmp_path / "none" / "a.csv"):
        with pytest.raises(mx.MXNetError, match="Cannot find any files"):
            mx.io.CSVIter(data_csv=str(uri), data_shape=(1,), batch_size=3)


@pytest.fixture
def mnist(tmp_path):
    """Write 25 images of 28 x 28; every pixel of image i is i, its label is i % 10."""
    images = np.repeat(np.arange(25, dtype=np.uint8), 784)
    paths = tmp_path / "images", tmp_path / "labels"
    paths[0].write_bytes(struct.pack(">4I", 0x803, 25, 28, 28) + images.tobytes())
    paths[1].write_bytes(struct.pack(">2I", 0x801, 25) + (np.arange(25) % 10).astype(np.uint8).tobytes())
    return {"image": str(paths[0]), "label": str(paths[1])}


def numbers(batch):
    found = [int(n) for n in batch.data[0].reshape(len(batch.data[0]), -1)[:, 0] * 256]
    assert batch.label[0].tolist() == [n % 10 for n in found]
    return found


def test_mnist_values(mnist):
    assert mx.io.MNISTIter(**mnist, batch_size=5, flat=True, silent=True).next().data[0].shape == (5, 784)
    iterator = mx.io.MNISTIter(**mnist, batch_size=10, shuffle=False)
    batches = list(iterator)
    assert len(batches) == 2  # an incomplete batch is dropped
    assert batches[0].data[0].shape == (10, 1, 28, 28)
    assert batches[0].data[0].dtype == batches[0].label[0].dtype == np.float32
    assert batches[1].data[0][3, 0, 5, 5].asscalar() == np.float32(13 / 256)
    assert batches[1].label[0].tolist() == list(range(10))
    assert [batch.pad for batch in batches] == [0, 0]
    assert iterator.provide_data == [("data", (10, 1, 28, 28))]
    assert iterator.provide_label == [("softmax_label", (10,))]


def test_mnist_order_is_that_of_the_seed_in_every_pass(mnist):
    def order(seed):
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


def test_mnist_parts(mnist):
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


def test_mnist_files_may_be_gzipped(mnist):
    for path in mnist.values():
        Path(f"{path}.gz").write_bytes(gzip.compress(Path(path).read_bytes()))
        Path(path).unlink()
    assert len(list(mx.io.MNISTIter(**mnist, batch_size=5))) == 5


def test_mnist_files_that_are_none(mnist, tmp_path):
    with pytest.raises(mx.MXNetError, match="not downloaded"):
        mx.io.MNISTIter(image=str(tmp_path / "none"), label=mnist["label"])
    with pytest.raises(mx.MXNetError, match="is not an IDX file of bytes with 3 axes"):
        mx.io.MNISTIter(image=mnist["label"], label=mnist["label"])
    Path(mnist["label"]).write_bytes(struct.pack(">2I", 0x801, 1) + b"\0")
    with pytest.raises(mx.MXNetError, match="25 images and 1 labels"):
        mx.io.MNISTIter(**mnist)
