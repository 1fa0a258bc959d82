"""Tests of InsightFace's sets: samples, labels and identities as in its readers; datasets, loaders and samplers."""

import asyncio
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recordio
from aioloader import AsyncDataLoader, DataLoader, abc, images
from aioloader.datasets import InsightFaceDataset
from aioloader.formats.insightface.dataset import insightface_file
from aioloader.formats.recordio import dataset as record
from aioloader.formats.recordio.heads import read_heads
from aioloader.samplers import ClassBalancedSampler, PKSampler
from aioloader.transforms import Resize
from tests.aioloader.datasets.batches import copies
from tests.aioloader.datasets.faces import LABELS, Reader, numbers_record, plain_set, write_records


@pytest.mark.parametrize(
    ("order", "vectors"), [("header first", False), ("header last", True), ("mixed", False)]
)
def test_samples_are_those_of_insightfaces_reader(faces: Any, png: Any, order: str, vectors: bool) -> None:
    folder = faces(order=order, vectors=vectors)
    dataset = InsightFaceDataset(folder)
    reader = Reader(folder)

    assert isinstance(dataset, abc.ByteDataset)
    assert len(pickle.dumps(dataset)) < 1000
    assert len(pickle.loads(pickle.dumps(dataset)).identities) == 4
    assert len(dataset) == len(reader) == 10
    for index in range(10):
        image, label = dataset[index]
        body, expected = reader[index]
        assert body == png(index)
        assert image[0, 0, 0] == index
        assert (label, label.dtype) == (expected, np.int64)
        assert dataset.location(index).key == index + 1
    assert dataset.labels().tolist() == LABELS
    assert dataset.labels().dtype == np.int64
    assert list(dataset.identities) == [range(0, 3), range(3, 5), range(5, 9), range(9, 10)]
    assert dataset.num_classes == 4
    assert dataset.image_size == (6, 8)
    reader.close()


@pytest.mark.parametrize("vectors", [False, True], ids=["scalars", "vectors"])
def test_a_loader_gives_the_same_with_fused_transforms(faces: Any, vectors: bool) -> None:
    dataset = InsightFaceDataset(faces(vectors=vectors)).transform_first(Resize((4, 4)))
    with DataLoader(dataset, 4, num_workers=1) as loader:
        found = [pair for images, labels in copies(loader) for pair in zip(images, labels, strict=True)]
    for (image, label), (other, expected) in zip(found, dataset, strict=True):
        np.testing.assert_array_equal(image, other)
        assert (label, label.dtype) == (expected, np.int64)


def test_the_rec_file_stands_for_its_folder_and_may_have_another_name(faces: Any) -> None:
    folder = faces()
    assert len(InsightFaceDataset(str(folder / "train.rec"))) == 10
    for suffix in ("rec", "idx"):
        (folder / f"train.{suffix}").rename(folder / f"other.{suffix}")
    assert InsightFaceDataset(folder / "other.rec").num_classes == 4


def test_opening_reads_no_more_than_the_header(faces: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = InsightFaceDataset(faces(labels=sorted(range(200))))
    read = []
    real = os.preadv

    def preadv(fd: int, buffers: Any, offset: int, *flags: Any) -> int:
        read.append(sum(len(buffer) for buffer in buffers))
        return real(fd, buffers, offset, *flags)

    monkeypatch.setattr(os, "preadv", preadv)
    assert len(dataset) == 200
    assert dataset.decoder.first_label
    assert sum(read) <= 64


def test_labels_read_two_images_of_an_identity(faces: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = InsightFaceDataset(faces(labels=[0] * 50 + [1] * 50))
    assert len(dataset.identities) == 2
    asked: list[int] = []

    def read(path: str, offsets: Any, **options: Any) -> Any:
        asked.extend(offsets.tolist())
        return read_heads(path, offsets, **options)

    monkeypatch.setattr(record, "read_heads", read)
    assert dataset.labels().tolist() == [0] * 50 + [1] * 50
    assert len(asked) == 4


def test_labels_are_the_images_own_where_identities_disagree(tmp_path: Path, png: Any) -> None:
    folder = tmp_path / "odd"
    folder.mkdir()
    records = [(key, recordio.pack((0, key % 3, key, 0), png(key))) for key in range(1, 8)]
    write_records(folder / "train", [(0, numbers_record(8, 9, 0)), *records, (8, numbers_record(2, 6, 8))])
    dataset = InsightFaceDataset(folder)
    assert list(dataset.identities) == [range(1, 5)]
    assert dataset.labels().tolist() == [key % 3 for key in range(1, 8)]
    assert [int(label) for _, label in dataset] == [key % 3 for key in range(1, 8)]


def test_identities_and_labels_feed_samplers(faces: Any) -> None:
    dataset = InsightFaceDataset(faces())
    with DataLoader(dataset, 6, sampler=PKSampler(dataset, p=3, k=2), num_workers=0) as loader:
        for _, labels in loader:
            assert [labels[i] == labels[i + 1] for i in (0, 2, 4)] == [True] * 3
            assert len(set(labels.tolist())) == 3
    view = dataset.transform_first(Resize((4, 4)))
    assert len(ClassBalancedSampler(view)) == 10
    kept = [index for identity in dataset.identities if len(identity) >= 2 for index in identity]
    assert kept == list(range(9))
    assert dataset.identities[-1] == range(9, 10)
    assert list(dataset.identities[1:3]) == [range(3, 5), range(5, 9)]
    assert repr(dataset.identities) == "<4 identities with 10 images>"
    with pytest.raises(IndexError, match="no identity 4: the set has 4"):
        dataset.identities[4]


@pytest.mark.parametrize("header", [True, False])
def test_images_without_labels_still_have_identities(
    header: bool, faces: Any, tmp_path: Path, png: Any
) -> None:
    folder = faces() if header else plain_set(tmp_path / "plain", png, LABELS)
    dataset = InsightFaceDataset(folder, label=None)
    assert dataset[0].shape == (6, 8, 3)
    assert len(dataset.identities) == 4
    with pytest.raises(ValueError, match="label=None"):
        dataset.labels()


def test_opening_does_not_hold_up_the_loop(faces: Any, no_blocking: None) -> None:
    dataset = InsightFaceDataset(faces())

    async def count() -> int:
        async with AsyncDataLoader(dataset, 4, num_workers=1, executor="thread") as loader:
            return sum([len(labels) async for _, labels in loader])

    assert asyncio.run(count()) == 10


@pytest.mark.parametrize(
    ("order", "shown"), [("header first", None), ("header last", "count")], ids=["no-property", "property"]
)
def test_images_serves_no_header(faces: Any, order: str, shown: str | None) -> None:
    folder = faces(order=order, shown=shown)
    for path in (folder, folder / "train.rec"):
        with images(path, 4, batch_size=16, train=False, blocking=True, num_workers=0) as loader:
            ((pixels, labels),) = list(loader)
        assert pixels.shape == (10, 4, 4, 3)
        assert labels.tolist() == LABELS
        assert insightface_file(path) == str(folder / "train.rec")


def test_other_paths_are_no_such_sets(tmp_path: Path, write_images: Any, png: Any) -> None:
    assert insightface_file(write_images([1, 2], name="train")) is None
    assert insightface_file(write_images([[1, 2], [3, 4]], name="vectors")) is None
    assert insightface_file(write_images([1, 2, 3], keys=[5, 0, 2], name="shuffled")) is None
    assert insightface_file(write_images([1], keys=["a"], name="text")) is None
    assert insightface_file(write_images([], name="nothing")) is None
    assert insightface_file(tmp_path) is None
    assert insightface_file(tmp_path / "gone") is None
    (tmp_path / "train.idx").write_text("garbage")
    assert insightface_file(tmp_path) is None
