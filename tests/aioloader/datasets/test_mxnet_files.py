"""Tests of files that real MXNet wrote (tests/data/mxnet): they are read as it wrote them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aioloader.datasets import ImageFolderDataset, ImageRecordDataset, RecordFileDataset

DATA = Path(__file__).parents[2] / "data" / "mxnet"


def test_payloads_without_an_index_are_those_that_were_written() -> None:
    dataset = RecordFileDataset(DATA / "plain.rec")

    assert len(dataset) == 30
    assert all(isinstance(payload, bytes) for payload in dataset)


@pytest.mark.parametrize("name", ["images", "folder", "aug"])
def test_scalar_labels_are_whole_numbers(name: str) -> None:
    dataset = ImageRecordDataset(DATA / f"{name}.rec")

    assert {label.dtype for _, label in dataset if label.ndim == 0} == {np.dtype(np.int64)}
    assert all(image.dtype == np.uint8 and image.shape[2] == 3 for image, _ in dataset)


def test_label_arrays_are_kept() -> None:
    labels = [label.tolist() for _, label in ImageRecordDataset(DATA / "multilabel.rec")]

    assert labels == [[0, 10, 0.5], [1, 11, 0.25], [2, 12, 0.125]]


@pytest.mark.filterwarnings("ignore:Ignoring")
def test_a_packed_folder_equals_the_folder() -> None:
    packed = ImageRecordDataset(DATA / "folder.rec")
    folder: Any = ImageFolderDataset(DATA / "im2rec_src")

    assert len(packed) == len(folder)
    for (image, label), (other, number) in zip(packed, folder, strict=True):
        assert np.array_equal(image, other)
        assert label == number
