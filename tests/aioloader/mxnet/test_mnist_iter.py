"""Tests of MNISTIter: values, order, parts and files."""

from __future__ import annotations

import gzip
import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aioloader.mxnet as mx


@pytest.fixture
def mnist(tmp_path: Path) -> dict[str, str]:
    """Write 25 images of 28 x 28; every pixel of image i is i, its label is i % 10."""
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
    assert len(batches) == 2  # an incomplete batch is dropped
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
    # MXNet's test: iter_next and getlabel, with resets in the middle.
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
    with pytest.raises(mx.MXNetError, match="is not an IDX file of bytes with 3 axes"):
        mx.io.MNISTIter(image=mnist["label"], label=mnist["label"])
    Path(mnist["label"]).write_bytes(struct.pack(">2I", 0x801, 1) + b"\0")
    with pytest.raises(mx.MXNetError, match="25 images and 1 labels"):
        mx.io.MNISTIter(**mnist)


def test_nothing_is_warned_about(ten_rows: str, mnist: dict[str, str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mx.io.CSVIter(data_csv=ten_rows, data_shape=(2,), batch_size=4)
        mx.io.MNISTIter(**mnist, batch_size=5, silent=True)
