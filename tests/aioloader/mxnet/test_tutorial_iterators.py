"""Tests of the data code in MXNet's tutorial on data iterators and RecordIO, run with this package.

Only the import line differs; images come from a folder made here, and training is replaced by shapes or by a linear
classifier that must learn. test_tutorial_images.py has the image iterators.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aioloader.mxnet as mx


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_reading_data_in_memory() -> None:
    data = np.random.rand(100, 3)
    label = np.random.randint(0, 10, (100,))
    data_iter = mx.io.NDArrayIter(data=data, label=label, batch_size=30)
    printed = []
    for batch in data_iter:
        printed.append(str([batch.data, batch.label, batch.pad]))
    assert [text.rsplit(", ", 1)[1] for text in printed] == ["0]", "0]", "0]", "20]"]
    assert all("<NDArray 30x3 @cpu(0)>" in text and "<NDArray 30 @cpu(0)>" in text for text in printed)


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


def learn(data_iter: Any, classes: int, passes: int) -> Callable[[Any], Any]:
    """Train a linear classifier by softmax regression: rows in, class numbers out."""
    weight = np.zeros((data_iter.provide_data[0][1][1], classes))
    for _ in range(passes):
        data_iter.reset()
        for batch in data_iter:
            data, label = batch.data[0].asnumpy(), batch.label[0].asnumpy().astype(int)
            score = np.exp(data @ weight)
            score /= score.sum(1, keepdims=True)
            score[np.arange(len(label)), label] -= 1
            weight -= data.T @ score / len(label)
    return lambda data: (data @ weight).argmax(1)


def test_a_classifier_learns_from_the_iterator() -> None:
    rng = np.random.default_rng(5)
    label = rng.integers(0, 4, 200)
    data = np.eye(4)[label] + rng.normal(0, 0.2, (200, 4))
    predict = learn(mx.io.NDArrayIter(data, label, 32, shuffle=True), 4, 20)
    assert (predict(data) == label).mean() > 0.95


def test_training_names_say_where_to_go() -> None:
    with pytest.raises(mx.MXNetError, match="training is outside aioloader"):
        mx.sym.FullyConnected(data=None, name="fc1", num_hidden=64)


def test_record_io() -> None:
    record = mx.recordio.MXRecordIO("tmp.rec", "w")
    for i in range(5):
        record.write("record_%d" % i)  # noqa: UP031
    record.close()

    record = mx.recordio.MXRecordIO("tmp.rec", "r")
    found = []
    while True:
        item = record.read()
        if not item:
            break
        found.append(item)
    record.close()
    assert found == [b"record_0", b"record_1", b"record_2", b"record_3", b"record_4"]


def test_indexed_record_io() -> None:
    record = mx.recordio.MXIndexedRecordIO("tmp.idx", "tmp.rec", "w")
    for i in range(5):
        record.write_idx(i, "record_%d" % i)  # noqa: UP031
    record.close()

    record = mx.recordio.MXIndexedRecordIO("tmp.idx", "tmp.rec", "r")
    assert record.read_idx(3) == b"record_3"
    assert record.keys == [0, 1, 2, 3, 4]
    record.close()


def test_packing_binary_data() -> None:
    data = "data"
    header1 = mx.recordio.IRHeader(flag=0, label=1.0, id=1, id2=0)
    s1 = mx.recordio.pack(header1, data)
    header2 = mx.recordio.IRHeader(flag=0, label=[1.0, 2.0, 3.0], id=2, id2=0)
    s2 = mx.recordio.pack(header2, data)
    # The bytes that the tutorial prints.
    assert s1 == b"\x00\x00\x00\x00\x00\x00\x80?\x01" + bytes(15) + b"data"
    assert s2 == b"\x03" + bytes(7) + b"\x02" + bytes(15) + b"\x00\x00\x80?\x00\x00\x00@\x00\x00@@data"
    assert mx.recordio.unpack(s1) == ((0, 1.0, 1, 0), b"data")
    header, body = mx.recordio.unpack(s2)
    assert (header.flag, header.label.tolist(), header.id, header.id2, body) == (3, [1, 2, 3], 2, 0, b"data")
    assert header.label.dtype == np.float32


def test_packing_image_data() -> None:
    data = np.ones((3, 3, 1), dtype=np.uint8)
    header = mx.recordio.IRHeader(flag=0, label=1.0, id=0, id2=0)
    s = mx.recordio.pack_img(header, data, quality=100, img_fmt=".jpg")
    header, image = mx.recordio.unpack_img(s)
    assert header == (0, 1.0, 0, 0)
    assert image.tolist() == [[1, 1, 1]] * 3


def test_loading_and_transforming_raw_images(photo_folder: Path) -> None:
    path = next((photo_folder).glob("*/*.jpg"))
    for _ in range(3):
        with open(path, "rb") as file:
            img = mx.image.imdecode(file.read())
    mx.nd.waitall()
    assert img.asnumpy().dtype == np.uint8
    assert img.shape[2] == 3
    # resize to w x h
    tmp = mx.image.imresize(img, 100, 70)
    assert tmp.asnumpy().shape == (70, 100, 3)
    # crop a random w x h region from image
    tmp, coord = mx.image.random_crop(img, (40, 50))
    assert tmp.asnumpy().shape == (50, 40, 3)
    assert coord[2:] == (40, 50)
