"""Tests of CSVIter, LibSVMIter and MNISTIter: values, rounds, pads, arguments and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aioloader.mxnet as mx
from aioloader.mxnet.io import UnknownParameterWarning
from aioloader.mxnet.io.backend_iter import ArrayBatches
from tests.aioloader.mxnet.rounds import passes


def test_a_pass_borrows_from_the_next(ten_rows: str) -> None:
    iterator = mx.io.CSVIter(data_csv=ten_rows, data_shape=(2,), batch_size=4)
    first = [([0, 2, 4, 6], 0), ([8, 10, 12, 14], 0), ([16, 18, 0, 2], 2)]
    second = [([4, 6, 8, 10], 0), ([12, 14, 16, 18], 0)]
    assert passes(iterator, 4) == [first, second, first, second]  # measured with MXNet 1.9.1


def test_without_rounds_zeros_fill_up(ten_rows: str) -> None:
    iterator = mx.io.CSVIter(data_csv=ten_rows, data_shape=(2,), batch_size=4, round_batch=False)
    only = [([0, 2, 4, 6], 0), ([8, 10, 12, 14], 0), ([16, 18, 0, 0], 2)]
    assert passes(iterator, 2) == [only, only]


def test_a_reset_before_the_end_goes_back(ten_rows: str) -> None:
    iterator = mx.io.CSVIter(data_csv=ten_rows, data_shape=(2,), batch_size=4)
    iterator.reset()  # directly after its construction
    assert passes(iterator, 1)[0][0] == ([0, 2, 4, 6], 0)
    iterator.next()  # of the second epoch, which begins after the borrowed rows
    iterator.reset()
    assert iterator.next().data[0][:, 0].tolist() == [0, 2, 4, 6]


def test_index_numbers_the_rows(ten_rows: str) -> None:
    iterator = mx.io.CSVIter(data_csv=ten_rows, data_shape=(2,), batch_size=4)
    indexes = [batch.index for batch in iterator]
    assert [index.tolist() for index in indexes] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1]]
    assert indexes[0].dtype == np.uint64


@given(st.integers(0, 30), st.integers(1, 12), st.booleans())
def test_every_row_comes_once(length: int, size: int, round_batch: bool) -> None:
    rows = np.arange(length, dtype=np.float32)
    if round_batch and 0 < length < size:
        with pytest.raises(mx.MXNetError, match="number of input must be bigger than batch size"):
            ArrayBatches(rows, rows, batch_size=size, round_batch=round_batch)
        return
    batches = ArrayBatches(rows, rows, batch_size=size, round_batch=round_batch)
    borrowed = 0
    for _ in range(3):
        real: list[int] = []
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


def test_getdata_is_the_array_and_next_a_list(ten_rows: str) -> None:
    iterator = mx.io.CSVIter(data_csv=ten_rows, data_shape=(2,), batch_size=5, data_name="x", label_name="y")
    assert isinstance(iterator, mx.io.MXDataIter)
    assert (iterator.provide_data, iterator.provide_label) == ([("x", (5, 2))], [("y", (5,))])
    # As in MXNet, the first batch is there before it is asked for.
    assert (iterator.getdata().shape, iterator.getpad(), iterator.getindex().tolist()) == ((5, 2), 0, [0] * 5)
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
    with pytest.raises(RuntimeError, match="no current batch"):
        iterator.getdata()


def test_loading_can_be_skipped_to_measure(ten_rows: str) -> None:
    iterator = mx.io.CSVIter(data_csv=ten_rows, data_shape=(2,), batch_size=4)
    iterator.debug_skip_load()
    assert {iterator.next().data[0][0, 0].asscalar() for _ in range(9)} == {0}


def test_arguments_are_read_through_text(ten_rows: str) -> None:
    iterator = mx.io.CSVIter(
        data_csv=ten_rows,
        data_shape="(2,)",
        batch_size="5",
        round_batch="False",
        prefetch_buffer="1",
        ctx="cpu",
        dtype=None,
    )
    assert iterator.provide_data == [("data", (5, 2))]


@pytest.mark.parametrize("shape", [(np.int64(2),), [2], 2, np.int32(2)], ids=repr)
def test_shapes_may_be_of_numpys_numbers(ten_rows: str, shape: Any) -> None:
    iterator = mx.io.CSVIter(data_csv=ten_rows, data_shape=shape, batch_size=np.int64(5))
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
def test_wrong_arguments(ten_rows: str, tmp_path: Path, arguments: dict[str, Any], text: str) -> None:
    (tmp_path / "less.csv").write_text("1\n2\n")
    values = {"data_csv": ten_rows, "data_shape": (2,), "batch_size": 4, **arguments}
    if values.get("label_csv") == "LESS":
        values["label_csv"] = str(tmp_path / "less.csv")
    given_values = {name: value for name, value in values.items() if value is not None}
    with pytest.raises(mx.MXNetError) as caught:
        mx.io.CSVIter(**given_values)
    assert text in str(caught.value)


def test_only_keywords(ten_rows: str) -> None:
    with pytest.raises(mx.MXNetError, match="Required parameter"):
        mx.io.CSVIter(ten_rows)
    with pytest.raises(TypeError, match="CSVIter can only accept keyword arguments"):
        mx.io.CSVIter(ten_rows, data_csv=ten_rows, data_shape=(2,), batch_size=4)


def test_unknown_arguments_are_reported(ten_rows: str) -> None:
    with pytest.warns(UnknownParameterWarning, match=r"batch_sise \(did you mean batch_size") as caught:
        iterator = mx.io.CSVIter(data_csv=ten_rows, data_shape=(2,), batch_size=4, batch_sise=5)
    assert caught[0].filename == __file__
    assert iterator.batch_size == 4
    with pytest.raises(TypeError, match="does not know the argument"):
        mx.io.CSVIter(data_csv=ten_rows, data_shape=(2,), batch_size=4, other=5, strict=True)
