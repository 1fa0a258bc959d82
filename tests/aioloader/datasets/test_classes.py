"""Tests of torchvision's names, `classes`, `class_to_idx` and `targets`, and of labels that need no samples."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aioloader
import recordio
from aioloader import ConcatDataset, Dataset, ImageFolderDataset, ImageListDataset, SimpleDataset
from aioloader.datasets import CIFAR10, CIFAR100, MNIST, FashionMNIST


@pytest.fixture
def folder(tmp_path: Path, png: Callable[[int], bytes]) -> Path:
    for number, name in enumerate(["cat", "dog", "dog", "owl"]):
        (tmp_path / "set" / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / "set" / name / f"{number}.png").write_bytes(png(number))
    return tmp_path / "set"


def test_a_folder_has_torchvisions_names(folder: Path) -> None:
    dataset = ImageFolderDataset(folder)
    for view in (dataset, dataset.transform_first(np.copy), dataset.take(3)):
        assert view.classes == ["cat", "dog", "owl"] == dataset.synsets
        assert view.class_to_idx == {"cat": 0, "dog": 1, "owl": 2}
        assert view.targets == [0, 1, 1, 2][: len(view)]
        assert type(view.targets[0]) is int
    dataset.items = dataset.items[1:]
    assert dataset.targets == [1, 1, 2]


def test_a_list_has_the_names_of_its_folders(folder: Path) -> None:
    entries = [[1, "dog/1.png"], [0, "cat/0.png"], [1, "dog/2.png"]]
    dataset = ImageListDataset(folder, entries)
    assert dataset.classes == ["cat", "dog"]
    assert dataset.targets == [1, 0, 1]
    for others in ([[0, "cat/0.png"], [0, "dog/1.png"]], [[0.5, "cat/0.png"]], [[3, "cat/0.png"]]):
        assert not hasattr(ImageListDataset(folder, others), "classes")
    assert not hasattr(ImageListDataset(folder, [[0, 1, "cat/0.png"]]), "classes")


def test_records_have_targets(write_images: Callable[..., Path]) -> None:
    dataset = aioloader.ImageRecordDataset(write_images([3, 1]))
    assert dataset.targets == dataset.labels().tolist()
    with pytest.raises(AttributeError, match="no names of classes, only labels"):
        _ = dataset.classes
    with pytest.raises(AttributeError, match="names of classes"):
        _ = dataset.class_to_idx


@pytest.mark.parametrize("kind", [MNIST, FashionMNIST])
def test_small_sets_have_their_published_names(kind: Any, tmp_path: Path) -> None:
    pixels = struct.pack(">HBBIII", 0, 8, 3, 2, 28, 28) + bytes(2 * 28 * 28)
    for name, data in (
        ("images-idx3", pixels),
        ("labels-idx1", struct.pack(">HBBI", 0, 8, 1, 2) + b"\x03\x09"),
    ):
        (tmp_path / f"train-{name}-ubyte.gz").write_bytes(gzip.compress(data))
    dataset = kind(tmp_path)
    assert dataset.targets == [3, 9]
    assert dataset.class_to_idx[dataset.classes[9]] == 9
    assert dataset.classes[3] == ("3 - three" if kind is MNIST else "Dress")


def test_cifar_has_its_published_names(tmp_path: Path) -> None:
    for number in range(1, 6):
        (tmp_path / f"data_batch_{number}.bin").write_bytes(bytes([number]) + bytes(3072))
    dataset = CIFAR10(tmp_path)
    assert [dataset.classes[label] for label in dataset.targets] == [
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
    ]
    (tmp_path / "train.bin").write_bytes(bytes([4, 53]) + bytes(3072))
    for fine, name in ((True, "orange"), (False, "fruit_and_vegetables")):
        hundred = CIFAR100(tmp_path, fine_label=fine)
        assert [hundred.classes[label] for label in hundred.targets] == [name]
        assert len(hundred.classes) == (100 if fine else 20)


def test_parquet_has_the_names_of_a_class_label(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="Parquet files are written with pyarrow")
    from tests.aioloader.datasets.parquet_files import write_images

    dataset = aioloader.ParquetDataset(write_images(tmp_path / "a.parquet", 0, 4))
    assert dataset.targets == [0, 1, 2, 3]
    assert getattr(dataset, "classes", []) == dataset.synsets


def test_parts_that_agree_have_names_together(folder: Path) -> None:
    first, second = ImageFolderDataset(folder), ImageFolderDataset(folder)
    joined = first + second
    assert joined.classes == ["cat", "dog", "owl"]
    assert joined.targets == [0, 1, 1, 2] * 2
    other = ImageFolderDataset(folder, synsets=["owl", "dog", "cat"])
    assert not hasattr(first + other, "classes")
    assert (first + other).targets == [0, 1, 1, 2, 0, 1, 1, 2]


def test_a_dataset_may_have_names_of_its_own() -> None:
    class Mine(Dataset):
        def __init__(self) -> None:
            self.classes = ["a", "b"]
            self.class_to_idx = {"a": 1, "b": 0}
            self.targets = np.array([1, 0, 1])

        def __getitem__(self, index: int) -> Any:
            return index

        def __len__(self) -> int:
            return 3

    mine = Mine()
    assert mine.class_to_idx == {"a": 1, "b": 0}
    assert (mine + mine).classes == ["a", "b"]
    assert mine.take(2).targets == [1, 0]
    assert mine.transform(str).classes == ["a", "b"]


def test_parts_of_another_library_have_targets() -> None:
    class Other:
        classes = ("a", "b")
        targets = [1, 0]  # noqa: RUF012

        def __getitem__(self, index: int) -> Any:
            return index

        def __len__(self) -> int:
            return 2

    assert ConcatDataset([Other(), Other()]).targets == [1, 0, 1, 0]
    assert ConcatDataset([Other(), Other()]).classes == ["a", "b"]


def test_a_dataset_without_labels_has_neither() -> None:
    dataset = SimpleDataset(["a", "b"])
    assert not hasattr(dataset, "targets")
    assert not hasattr(dataset, "classes")
    with pytest.raises(AttributeError, match="no `targets`"):
        _ = dataset.targets


# -- labels without samples --------------------------------------------------------------------------------------------


def test_labels_of_datasets_and_views(photo_folder: Path, photo_rec: Path) -> None:
    folder = aioloader.ImageFolderDataset(photo_folder)
    records = aioloader.ImageRecordDataset(photo_rec)
    expected = [label for _, label in folder.items]
    assert folder.labels().tolist() == records.labels().tolist() == expected
    assert records.labels().dtype == np.int64
    assert records.transform_first(len).take(5).labels().tolist() == expected[:5]
    entries = [[label, path] for label, (path, _) in zip((3.5, 2), folder.items, strict=False)]
    listed = aioloader.ImageListDataset("/", [[label, path.lstrip("/")] for label, path in entries])
    assert listed.labels().tolist() == [3.5, 2]
    assert aioloader.ArrayDataset(np.zeros((3, 2)), [4, 5, 6]).labels().tolist() == [4, 5, 6]


def test_labels_that_are_unknown(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"SimpleDataset has no labels\(\)"):
        aioloader.SimpleDataset([1, 2]).transform(abs).labels()
    with recordio.RecordWriter(tmp_path / "a.rec", index=True) as writer:
        writer.write(recordio.pack(recordio.IRHeader(0, [1.0, 2.0], 0, 0), b""), 7)
    with pytest.raises(ValueError, match="key 7 has no single label"):
        aioloader.ImageRecordDataset(tmp_path / "a.rec").labels()
    with pytest.raises(ValueError, match="2 labels each"):
        aioloader.ImageListDataset(tmp_path, [[1, 2, "a.jpg"]]).labels()
