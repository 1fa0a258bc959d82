"""Tests of `ImageRecordIter`: failed records, damaged files, and its loader."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import aioloader.mxnet as mx
from aioloader.errors import DecodeError, LoaderClosedError, SampleError
from tests.aioloader.mxnet.image_records import make, numbered, write

# --- errors of records ---


def test_a_damaged_image_is_named(tmp_path):
    images = numbered(6)
    images[4] = b"\xff\xd8\xff never an image"
    path = write(tmp_path / "bad.rec", images, index=True)
    iterator = make(path, batch_size=2)
    found = [iterator.next().index.tolist(), iterator.next().index.tolist()]
    assert found == [[0, 1], [2, 3]]
    with pytest.raises(mx.MXNetError, match="decode") as caught:
        iterator.next()
    error = caught.value
    assert isinstance(error, SampleError)
    assert isinstance(error.__cause__, DecodeError)
    assert (error.key, error.path) == (4, path)
    assert error.offset is not None
    with pytest.raises(StopIteration):
        iterator.next()
    iterator.reset()
    assert iterator.next().index.tolist() == [0, 1]


def test_a_damaged_file_is_an_error_with_its_place(tmp_path):
    path = write(tmp_path / "a.rec", numbered(3))
    data = bytearray(Path(path).read_bytes())
    Path(path).write_bytes(data[:-3])
    with pytest.raises(mx.MXNetError, match=r"a\.rec"):
        make(path, batch_size=1)
    (tmp_path / "none.rec").write_bytes(b"this is not a record file at all")
    with pytest.raises(mx.MXNetError, match=r"none\.rec"):
        make(str(tmp_path / "none.rec"), batch_size=1)


def test_an_image_smaller_than_the_crop_is_named(ten):
    with pytest.raises(mx.MXNetError, match="input image size smaller than max_crop_size"):
        make(ten, max_crop_size=5, min_crop_size=5)


def test_an_empty_file_has_no_batches(tmp_path):
    (tmp_path / "empty.rec").write_bytes(b"")
    assert list(make(str(tmp_path / "empty.rec"))) == []


# --- the loader ---


def test_nothing_is_left_behind(ten, leftovers):
    dropped = make(ten, executor="thread", preprocess_threads=2)
    assert dropped.next().pad == 0
    del dropped
    iterator = make(ten, executor="process", preprocess_threads=1)
    batch = iterator.next()
    iterator.close()
    iterator.close()
    assert batch.index.tolist() == [100, 101, 102, 103]
    assert list(iterator) == []
    with pytest.raises(LoaderClosedError):
        iterator.reset()
    gc.collect()


class Failing:
    """Iterator whose first batch fails."""

    batch_size = 1
    errors: Sequence[Exception] = ()
    data_desc = label_desc = ((1,), np.dtype(np.float32))
    closed = False

    def next(self):
        raise mx.MXNetError("the first batch failed")

    def reset(self):
        pass

    def close(self):
        self.closed = True


def test_a_first_batch_that_fails_keeps_no_workers():
    batches = Failing()
    with pytest.raises(mx.MXNetError, match="the first batch failed"):
        mx.io.MXDataIter(batches)
    assert batches.closed


def test_iterators_of_arrays_can_be_closed_too(tmp_path):
    (tmp_path / "a.csv").write_text("1,2\n3,4\n")
    (tmp_path / "a.svm").write_text("1 0:2\n0 1:3\n")
    for iterator in (
        mx.io.CSVIter(data_csv=str(tmp_path / "a.csv"), data_shape=(2,), batch_size=1),
        mx.io.LibSVMIter(data_libsvm=str(tmp_path / "a.svm"), data_shape=(2,), batch_size=1),
    ):
        iterator.close()
        assert len(list(iterator)) == 2
        assert iterator.errors == []
