"""Tests of resolved datasets: the samples do not change, and no user's ``__getitem__`` is bypassed."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.datasets import (
    MNIST,
    ArrayDataset,
    Dataset,
    ImageFolderDataset,
    ImageRecordDataset,
    RecordFileDataset,
    SimpleDataset,
)
from aioloader.datasets.resolve import Resolved, fingerprint, resolve
from aioloader.rng import Rng
from aioloader.samplers import RandomSampler
from tests.cases import with_cases


def items(resolved: Resolved) -> list[Any]:
    """Return the samples of a resolved dataset in a loader."""
    remap = range(len(resolved.base)) if resolved.remap is None else resolved.remap.tolist()
    samples = []
    for index in remap:
        sample = resolved.base[index]
        for stage in resolved.stages:
            sample = stage.apply(sample, Rng(0))
        samples.append(sample)
    return samples


VIEWS: list[Callable[[Dataset], Dataset]] = [
    lambda dataset: dataset.transform(lambda x: x * 3),
    lambda dataset: dataset.transform_first(lambda x: x + 1),
    lambda dataset: dataset.filter(lambda x: x % 3 != 0),
    lambda dataset: dataset.shard(2, 1),
    lambda dataset: dataset.take(4),
    lambda dataset: dataset.sample(RandomSampler(len(dataset), seed=1)),
]


@given(st.lists(st.sampled_from(range(len(VIEWS))), max_size=6))
def test_any_chain_of_views_means_the_same_taken_apart(chain: list[int]) -> None:
    dataset: Dataset = SimpleDataset([n * 7 % 31 for n in range(20)])
    for place in chain:
        dataset = VIEWS[place](dataset)

    resolved = resolve(dataset)

    assert items(resolved) == list(dataset)
    assert len(resolved.stages) == sum(place < 2 for place in chain)
    assert type(resolved.base) is not type(dataset) or not chain


class Own(Dataset):
    def __getitem__(self, index: int) -> Any:
        return index

    def __len__(self) -> int:
        return 3


class OddRecords(RecordFileDataset):
    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index)[::-1]


class Labelled(RecordFileDataset):
    label = "x"


class Doubled(ArrayDataset):
    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index) * 2


class Upper(SimpleDataset):
    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index).upper()


class HasArrays(Own):
    @property
    def arrays(self) -> list[str]:
        return ["not an array"]


@with_cases(
    ("make", "kind"),
    [
        (lambda path: RecordFileDataset(path), "bytes"),
        (lambda path: ImageRecordDataset(path), "bytes"),
        (lambda path: Labelled(path), "bytes"),
        (lambda path: OddRecords(path), "foreign"),
        (lambda path: Own(), "foreign"),
        (lambda path: HasArrays(), "foreign"),
        (lambda path: ["a", "b"], "foreign"),
        (lambda path: [1, "b"], "foreign"),
        (lambda path: [2**63, 1], "foreign"),
        (lambda path: SimpleDataset(["a"]), "foreign"),
        (lambda path: Upper(["a"]), "foreign"),
        (lambda path: ArrayDataset(["a"], [1]), "foreign"),
        (lambda path: ArrayDataset([1, 2.5]), "foreign"),
        (lambda path: ArrayDataset(np.array([None])), "foreign"),
        (lambda path: Doubled(np.arange(3)), "foreign"),
        (lambda path: ArrayDataset(np.arange(3), [1, 2, 3]), "gather"),
        (lambda path: SimpleDataset(np.arange(3)), "gather"),
        (lambda path: np.zeros((3, 2)), "gather"),
        (lambda path: [1, 2, 3], "gather"),
        (lambda path: SimpleDataset(SimpleDataset(np.arange(3)).take(2)), "gather"),
    ],
)
def test_the_kind_of_the_innermost_dataset(make: Any, kind: str, write_rec: Any) -> None:
    dataset = make(write_rec([b"abc"]))
    resolved = resolve(dataset)

    assert resolved.base_kind == kind
    if kind == "foreign":
        assert resolved.base is dataset
    if kind == "gather":
        gathered = list(resolved.base.arrays)
        assert all(isinstance(array, np.ndarray) and len(array) == len(resolved.base) for array in gathered)


def test_a_view_with_a_getitem_of_its_own_is_not_looked_into() -> None:
    view = type("Mine", (type(Own().take(2)),), {"__getitem__": lambda self, index: "mine"})(
        Own(), np.arange(2)
    )

    assert resolve(view).base is view


@with_cases(
    ("data", "dtype"),
    [([1, 2], np.int64), ([1.0, 2.0], np.float64), ([True, False], np.bool_), ((1, 2), np.int64)],
)
def test_lists_of_plain_numbers_are_gathered_with_the_dtype_of_their_batches(data: Any, dtype: Any) -> None:
    assert resolve(ArrayDataset(data)).base.arrays[0].dtype == dtype


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_deprecated_argument_is_the_first_stage_and_acts_once(write_images: Any) -> None:
    dataset = ImageRecordDataset(write_images([3, 4]), 1, lambda image, label: (image[0, 0, 1], label * 10))

    assert dataset[1] == (100, 40)
    resolved = resolve(dataset.transform(lambda pixel, label: label + 1))
    assert [stage.first for stage in resolved.stages] == [False, False]
    assert resolved.base_kind == "bytes"
    assert resolved.stages[0].apply((np.full((1, 1, 3), 7), 2), Rng(0)) == (7, 20)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_in_memory_sets_with_the_deprecated_argument_are_transformed_once(tmp_path: Path) -> None:
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(
        bytes((0, 0, 8, 3)) + bytes((0, 0, 0, 2)) * 3 + bytes(8)
    )
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(
        bytes((0, 0, 8, 1)) + bytes((0, 0, 0, 2)) + bytes((3, 4))
    )
    dataset = MNIST(tmp_path, train=False, transform=lambda image, label: (image, label + 1))

    assert [int(label) for _, label in dataset] == [4, 5]
    assert [int(label) for _, label in items(resolve(dataset))] == [4, 5]


# -- fingerprint -------------------------------------------------------------------------------------------------------


def test_a_fingerprint_is_the_same_for_the_same_data_elsewhere(write_images: Any, tmp_path: Path) -> None:
    path = Path(write_images(range(5)))
    other = tmp_path / "elsewhere"
    other.mkdir()
    for suffix in (".rec", ".idx"):
        (other / path.with_suffix(suffix).name).write_bytes(path.with_suffix(suffix).read_bytes())

    assert fingerprint(ImageRecordDataset(path)) == fingerprint(ImageRecordDataset(other / path.name))
    assert len(fingerprint(ImageRecordDataset(path))) == 16


def test_a_fingerprint_ignores_transforms_and_distinguishes_everything_else(
    write_images: Any, tmp_path: Path
) -> None:
    records = ImageRecordDataset(write_images(range(6)))
    (tmp_path / "folder" / "a").mkdir(parents=True)
    (tmp_path / "folder" / "a" / "1.jpg").write_bytes(b"x")
    folder = ImageFolderDataset(tmp_path / "folder")
    datasets: list[Any] = [
        records,
        records.take(5),
        records.shard(2, 0),
        records.shard(2, 1),
        RecordFileDataset(write_images(range(6))),
        ImageRecordDataset(write_images(range(7), name="data")),
        ImageRecordDataset(write_images(range(6), name="other")),
        folder,
        ArrayDataset(np.arange(6)),
        ArrayDataset(np.arange(6, dtype=np.int32)),
        ArrayDataset(np.arange(1, 7)),
        ArrayDataset(np.arange(6), np.arange(6)),
        ["a"] * 6,
        ["a"] * 7,
        Own(),
        [],
    ]
    found = [fingerprint(dataset) for dataset in datasets]

    assert len(set(found)) == len(found)
    assert fingerprint(ArrayDataset(np.arange(6)).transform(str)) == fingerprint(ArrayDataset(np.arange(6)))


def test_a_fingerprint_of_a_folder_notices_other_files(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.jpg").write_bytes(b"x")
    before = fingerprint(ImageFolderDataset(tmp_path))
    (tmp_path / "a" / "1.jpg").write_bytes(b"xy")
    size = fingerprint(ImageFolderDataset(tmp_path))
    (tmp_path / "a" / "1.jpg").rename(tmp_path / "a" / "2.jpg")

    assert len({before, size, fingerprint(ImageFolderDataset(tmp_path))}) == 3


def test_a_fingerprint_is_cheap_for_large_sets() -> None:
    dataset = ArrayDataset(np.zeros((1_300_000, 4), np.uint8)).sample(RandomSampler(1_300_000, seed=0))
    start = time.thread_time()
    fingerprint(dataset)

    assert time.thread_time() - start < 0.1  # measured: under 1 ms
