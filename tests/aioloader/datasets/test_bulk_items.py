"""Tests of bulk reads: the same pixels, labels, draws and errors as of single samples."""

import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aioloader
import recordio
from aioloader import ImageFolderDataset, ImageRecordDataset, RecordFileDataset, SimpleDataset
from aioloader.rng import seed_default_rng
from aioloader.transforms import Compose, Normalize, RandomHorizontalFlip, RandomResizedCrop, Resize, ToTensor
from tests.aioloader.datasets.faces import write_set
from tests.combinations import combinations


def foreign(image: Any) -> Any:
    return image[::-1].copy()


def pair(image: Any, label: Any) -> Any:
    return label, image.mean()


CHAINS = {
    "as they are": lambda data: data,
    "fused": lambda data: data.transform_first(Compose([RandomHorizontalFlip(), Resize((5, 5))])),
    "float": lambda data: data.transform_first(
        Compose([RandomResizedCrop(4), RandomHorizontalFlip(), ToTensor(), Normalize((0.5,) * 3, (0.5,) * 3)])
    ),
    "foreign between": lambda data: (
        data.transform_first(RandomHorizontalFlip())
        .transform_first(foreign)
        .transform_first(RandomResizedCrop(4))
    ),
    "whole samples": lambda data: data.transform_first(RandomResizedCrop(4)).transform(pair),
    "some": lambda data: data.take(6).transform_first(RandomHorizontalFlip()).shard(2, 0),
}


def same(first: Any, second: Any) -> bool:
    if isinstance(first, tuple):
        return len(first) == len(second) and all(map(same, first, second))
    return type(first) is type(second) and np.array_equal(first, second) and first.dtype == second.dtype


@pytest.mark.parametrize(("kind", "chain"), combinations(["records", "faces", "vectors"], CHAINS))
def test_they_are_what_one_after_the_other_is(
    kind: str, chain: Any, write_images: Any, tmp_path: Path, png: Any
) -> None:
    if kind == "faces":
        folder = write_set(tmp_path / "set", [png(n) for n in range(10)], [0] * 4 + [1] * 6, vectors=True)
        data: Any = aioloader.datasets.InsightFaceDataset(folder)
    else:
        data = ImageRecordDataset(write_images([[n, 1] if kind == "vectors" else n for n in range(10)]))
    dataset = chain(data)
    indices = [2, 0, -1, 1, np.int64(2), 0]
    seed_default_rng(3)
    expected = [dataset[index] for index in indices]
    for _ in range(2):
        seed_default_rng(3)
        found = dataset.__getitems__(indices)
        assert len(found) == len(expected)
        assert all(map(same, found, expected))
    assert dataset.__getitems__([]) == []
    assert len(dataset.__getitems__([1])) == 1


def test_samples_own_their_memory(write_images: Any) -> None:
    dataset = ImageRecordDataset(write_images(range(4))).transform_first(Resize((3, 3)))
    found = dataset.__getitems__([0, 1, 2, 3])
    before = [image.copy() for image, _ in found]
    dataset.__getitems__([3, 2, 1, 0])
    assert all(map(np.array_equal, before, [image for image, _ in found]))
    assert all(image.flags.writeable for image, _ in found)


def test_other_datasets_are_asked_one_by_one(write_rec: Any, write_images: Any, photo_folder: Path) -> None:
    assert RecordFileDataset(write_rec([b"a", b"b", b"c"])).__getitems__([2, 0]) == [b"c", b"a"]
    folder = ImageFolderDataset(photo_folder)
    assert same(folder.__getitems__([3, 1])[1], folder[1])
    assert SimpleDataset([1, 2, 3]).transform(lambda x: -x).__getitems__([2, 0]) == [-3, -1]

    class Mine(ImageRecordDataset):
        def __getitem__(self, index: int) -> Any:
            return "mine", index

    mine = Mine(write_images([1, 2], name="mine"))
    assert mine.__getitems__([1, 0]) == [("mine", 1), ("mine", 0)]
    assert mine.transform_first(str.upper).__getitems__([1, 0]) == [("MINE", 1), ("MINE", 0)]


def test_errors_are_those_of_the_first_index(write_images: Any) -> None:
    path = Path(write_images([1, 2, 3]))
    dataset = ImageRecordDataset(path)
    with pytest.raises(IndexError, match="index 3 is out of range"):
        dataset.__getitems__([0, 3])
    with pytest.raises(TypeError):
        dataset.__getitems__([0, "1"])
    data = bytearray(path.read_bytes())
    offset = int(path.with_suffix(".idx").read_text().splitlines()[1].split("\t")[1])
    data[offset : offset + 4] = b"\0\0\0\0"
    path.write_bytes(data)
    assert len(ImageRecordDataset(path).__getitems__([0, 2])) == 2
    with pytest.raises(recordio.CorruptRecordError) as caught:
        ImageRecordDataset(path).__getitems__([0, 1, 2])
    assert caught.value.offset == offset


def test_nothing_keeps_a_dataset_alive(write_images: Any) -> None:
    dataset = ImageRecordDataset(write_images([1, 2]))
    view = dataset.transform_first(Resize((3, 3)))
    assert len(view.__getitems__([0, 1])) == len(dataset.__getitems__([0, 1])) == 2
    gone = [weakref.ref(dataset), weakref.ref(view)]
    del dataset, view
    gc.collect()
    assert [each() for each in gone] == [None, None]
