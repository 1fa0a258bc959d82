"""Tests of the data code in MXNet's tutorial on data iterators and RecordIO, run with this package.

Only the import line differs; images come from a folder made here, and training is replaced by shapes or by a linear
classifier that must learn. test_tutorial_images.py has the image iterators.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aioloader.mxnet as mx


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_reading_data_from_csv_files() -> None:
    data = np.random.rand(100, 3)
    np.savetxt("data.csv", data, delimiter=",")
    data_iter = mx.io.CSVIter(data_csv="data.csv", data_shape=(3,), batch_size=30)
    batches = [(batch.data[0], batch.pad) for batch in data_iter]
    assert [(rows.shape, pad) for rows, pad in batches] == [((30, 3), 0)] * 3 + [((30, 3), 20)]
    assert np.array_equal(np.concatenate([rows for rows, _ in batches])[:100], data.astype(np.float32))


class SimpleBatch(mx.io.DataBatch):
    def __init__(self, data: Any, label: Any, pad: int = 0) -> None:
        self.data = data
        self.label = label
        self.pad = pad


class SimpleIter(mx.io.DataIter):
    def __init__(
        self,
        data_names: Any,
        data_shapes: Any,
        data_gen: Any,
        label_names: Any,
        label_shapes: Any,
        label_gen: Any,
        num_batches: int = 10,
    ) -> None:
        # A list around zip: the tutorial was written for Python 2, in which zip returned a list.
        self._provide_data = list(zip(data_names, data_shapes, strict=True))
        self._provide_label = list(zip(label_names, label_shapes, strict=True))
        self.num_batches = num_batches
        self.data_gen = data_gen
        self.label_gen = label_gen
        self.cur_batch = 0

    def __iter__(self) -> Any:
        return self

    def reset(self) -> None:
        self.cur_batch = 0

    def __next__(self) -> Any:
        return self.next()

    @property
    def provide_data(self) -> Any:
        return self._provide_data

    @property
    def provide_label(self) -> Any:
        return self._provide_label

    def next(self) -> Any:
        if self.cur_batch < self.num_batches:
            self.cur_batch += 1
            data = [mx.nd.array(g(d[1])) for d, g in zip(self._provide_data, self.data_gen, strict=True)]
            label = [mx.nd.array(g(d[1])) for d, g in zip(self._provide_label, self.label_gen, strict=True)]
            return SimpleBatch(data, label)
        raise StopIteration


def test_a_custom_iterator() -> None:
    n, num_classes = 32, 10
    data_iter = SimpleIter(
        ["data"],
        [(n, 100)],
        [lambda s: np.random.uniform(-1, 1, s)],
        ["softmax_label"],
        [(n,)],
        [lambda s: np.random.randint(0, num_classes, s)],
    )
    for _ in range(5):
        batches = list(data_iter)
        assert len(batches) == 10
        for batch in batches:
            assert [array.shape for array in batch.data] == [shape for _, shape in data_iter.provide_data]
            assert [array.shape for array in batch.label] == [shape for _, shape in data_iter.provide_label]
            assert batch.data[0].dtype == np.float32
        data_iter.reset()
