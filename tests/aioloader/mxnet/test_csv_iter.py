"""Tests of CSVIter: values, shapes and files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import aioloader.mxnet as mx


@pytest.mark.parametrize(
    ("dtype", "entry"), [("int32", 200000001), ("int64", 2147483648), ("float32", 1), (None, 1)]
)
def test_csv_values_and_types(tmp_path: Path, dtype: str | None, entry: int) -> None:
    # MXNet's test: integers are parsed as integers, not through float32.
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


def test_csv_labels_of_several_numbers(ten_rows: str) -> None:
    iterator = mx.io.CSVIter(
        data_csv=ten_rows, data_shape=(1, 2), label_csv=ten_rows, label_shape=(2,), batch_size=2
    )
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
