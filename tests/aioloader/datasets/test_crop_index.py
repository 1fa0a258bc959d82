"""Tests of datasets with a crop index: the same samples by entries, and a warning of entries that do not fit."""

from __future__ import annotations

import asyncio
import pickle
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aioloader
from aioloader import DataLoader, ImageFolderDataset, ImageListDataset, ImageRecordDataset, transforms
from aioloader.datasets import InsightFaceDataset
from aioloader.datasets.resolve import fingerprint
from aioloader.errors import CropIndexError, CropIndexWarning
from aioloader.transforms import lazy_image
from tests.aioloader.crop_index.samples import IMAGES, spoil_entries, write_image_folder, write_record_files

CROP = transforms.Compose(
    [transforms.RandomResizedCrop(24, scale=(0.05, 0.3)), transforms.RandomHorizontalFlip()]
)


def _records(folder: Path, **options: Any) -> aioloader.Dataset:
    if not (folder / "part-0.rec").exists():
        write_record_files(folder)
    return ImageRecordDataset(str(folder / "part-*.rec"), **options)


def _folder(folder: Path, **options: Any) -> aioloader.Dataset:
    root = folder / "images"
    if not root.exists():
        root.mkdir()
        write_image_folder(root)
    return ImageFolderDataset(root, **options)


def _list(folder: Path, **options: Any) -> aioloader.Dataset:
    _folder(folder)
    entries = [[n % 3, 0.5, f"./class{n % 3}/{name}.jpg"] for n, (name, _, _) in enumerate(IMAGES)]
    return ImageListDataset(folder / "images", entries, **options)


KINDS: list[Callable[..., aioloader.Dataset]] = [_records, _folder, _list]


def _batches(dataset: aioloader.Dataset, executor: str = "inline", **options: Any) -> list[Any]:
    workers = 0 if executor == "inline" else 1
    with DataLoader(
        dataset.transform_first(CROP),
        4,
        shuffle=True,
        seed=3,
        executor=executor,
        num_workers=None if executor == "inline" else workers,
        **options,
    ) as loader:
        batches = [*loader, *loader]
        return [batches, dict(loader.stats().bad_entries)]


def _assert_same(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected) > 2
    for some, others in zip(found, expected, strict=True):
        for one, other in zip(some, others, strict=True):
            assert one.dtype == other.dtype
            assert np.array_equal(one, other)


@pytest.fixture
def cuts(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Collect the cuts that are made by entries in this process."""
    made: list[object] = []
    real = lazy_image.cut_by_entry

    def counted(*args: Any, **options: Any) -> Any:
        made.append(real(*args, **options))
        return made[-1]

    monkeypatch.setattr(lazy_image, "cut_by_entry", counted)
    return made


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("executor", ["thread", "process"])
def test_workers_find_entries_and_count_those_that_do_not_fit(
    kind: Callable[..., aioloader.Dataset], executor: str, tmp_path: Path
) -> None:
    """Stale entries are counted only if they were found, so the count shows that workers look them up."""
    kind(tmp_path)
    spoil_entries(tmp_path)
    expected, _ = _batches(kind(tmp_path, crop_index=None))
    indexes = sorted(map(str, tmp_path.rglob("*.crops")))
    with pytest.warns(CropIndexWarning) as caught:
        found, bad = _batches(kind(tmp_path), executor)
    _assert_same(found, expected)
    used = [path for path in indexes if path in bad]
    assert used
    assert sum(bad.values()) == 2 * len(IMAGES)
    assert sorted(str(note.message).partition(": ")[0] for note in caught) == used
    assert all("aioloader index --crops" in str(note.message) for note in caught)


def test_replaced_images_are_decoded_as_without_an_index(tmp_path: Path) -> None:
    root = tmp_path / "images"
    _folder(tmp_path)
    names = sorted(root.rglob("*.jpg"))
    contents = [name.read_bytes() for name in names]
    for name, data in zip(names, [*contents[1:], contents[0]], strict=True):
        name.write_bytes(data)
    expected, _ = _batches(ImageFolderDataset(root, crop_index=None))
    with pytest.warns(CropIndexWarning) as caught:
        found, bad = _batches(ImageFolderDataset(root))
    _assert_same(found, expected)
    assert bad == {str(root / "images.crops"): 2 * len(IMAGES)}
    assert len(caught) == 1


def test_a_warning_that_is_an_error_loses_no_batch(tmp_path: Path) -> None:
    _folder(tmp_path)
    spoil_entries(tmp_path)
    dataset = ImageFolderDataset(tmp_path / "images").transform_first(CROP)
    with warnings.catch_warnings(), DataLoader(dataset, 4, num_workers=0) as loader:
        warnings.simplefilter("error")
        batches = iter(loader)
        sizes = [len(next(batches)[1])]
        with pytest.raises(CropIndexWarning):
            next(batches)
        sizes += [len(labels) for _, labels in batches]
    assert sum(sizes) == len(IMAGES)


def test_batches_for_torch_use_the_index_and_warn_once(tmp_path: Path, cuts: list[object]) -> None:
    dataset = _records(tmp_path).transform_first(transforms.CenterCrop(8))
    expected = _records(tmp_path, crop_index=None).transform_first(transforms.CenterCrop(8))
    indices = list(range(len(IMAGES)))
    for (found, label), (image, other) in zip(
        dataset.__getitems__(indices), expected.__getitems__(indices), strict=True
    ):
        assert np.array_equal(found, image)
        assert label == other
    assert len(cuts) == len(IMAGES)
    spoil_entries(tmp_path)
    dataset = _records(tmp_path).transform_first(transforms.CenterCrop(8))
    with pytest.warns(CropIndexWarning) as caught:
        [dataset.__getitems__(indices) for _ in range(3)]
    assert len(caught) == 2  # one for each file


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_does_not_change_the_dataset(kind: Callable[..., aioloader.Dataset], tmp_path: Path) -> None:
    """A saved position stays valid when an index is added."""
    with_index, without = kind(tmp_path), kind(tmp_path, crop_index=None)
    samples = [with_index[n] for n in range(len(with_index))]  # opens the index
    assert fingerprint(with_index) == fingerprint(without)
    for (image, label), (other, same) in zip(samples, [without[n] for n in range(len(without))], strict=True):
        assert np.array_equal(image, other)
        assert type(label) is type(same)
        assert np.array_equal(label, same)
    if kind is not _list:
        assert np.array_equal(with_index.labels(), without.labels())  # type: ignore[attr-defined]


def test_the_index_in_a_folder_is_no_reason_for_a_warning(tmp_path: Path) -> None:
    _folder(tmp_path)
    (tmp_path / "images" / "images.crops.partial").write_bytes(b"")
    assert len(ImageFolderDataset(tmp_path / "images")) == len(IMAGES)


def test_items_may_be_replaced(tmp_path: Path, cuts: list[object]) -> None:
    _folder(tmp_path)
    dataset = ImageFolderDataset(tmp_path / "images")
    expected = ImageFolderDataset(tmp_path / "images", crop_index=None)
    _batches(dataset)
    dataset.items = dataset.items[3:]
    expected.items = expected.items[3:]
    cuts.clear()
    found, bad = _batches(dataset)
    _assert_same(found, _batches(expected)[0])
    assert cuts
    assert bad == {}


@pytest.mark.parametrize("crop_index", ["auto", None])
def test_an_item_is_read_without_a_look_at_the_others(crop_index: str | None, tmp_path: Path) -> None:
    class Items(list[tuple[str, int]]):
        listed = 0

        def __iter__(self) -> Iterator[tuple[str, int]]:
            Items.listed += 1
            return super().__iter__()

    dataset = _folder(tmp_path, crop_index=crop_index)
    dataset.items = Items(dataset.items)
    dataset[0]  # opens the files and the index
    before = Items.listed
    dataset[1], dataset[2]
    assert Items.listed == before


def test_a_pickled_dataset_uses_the_index(tmp_path: Path, cuts: list[object]) -> None:
    for kind in KINDS:
        dataset = pickle.loads(pickle.dumps(kind(tmp_path)))
        _batches(dataset)
        again = pickle.loads(pickle.dumps(dataset))
        cuts.clear()
        _batches(again)
        assert cuts


def test_transforms_without_a_crop_do_not_look_for_entries(tmp_path: Path) -> None:
    _records(tmp_path)
    spoil_entries(tmp_path)
    with DataLoader(
        _records(tmp_path).transform_first(transforms.Resize((24, 24))), 4, num_workers=0
    ) as loader:
        assert sum(len(labels) for _, labels in loader) == len(IMAGES)
        assert loader.stats().bad_entries == {}


def test_a_path_that_was_asked_for_is_checked_at_once(tmp_path: Path) -> None:
    _records(tmp_path)
    _folder(tmp_path)
    first, second = (tmp_path / f"part-{part}.rec" for part in range(2))
    records, images = first.with_suffix(".crops"), tmp_path / "images" / "images.crops"
    with pytest.raises(FileNotFoundError, match="aioloader index --crops"):
        ImageRecordDataset(first, crop_index=tmp_path / "none.crops")
    with pytest.raises(CropIndexError, match="index of a folder"):
        ImageRecordDataset(first, crop_index=images)
    with pytest.raises(CropIndexError, match="index of a record file"):
        ImageFolderDataset(tmp_path / "images", crop_index=records)
    with pytest.raises(CropIndexError, match="not a crop index"):
        ImageListDataset(tmp_path / "images", [[0, "class0/411.jpg"]], crop_index=first)
    with pytest.raises(TypeError):
        ImageRecordDataset(first, crop_index=True)  # type: ignore[arg-type]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    records.rename(elsewhere / "part-0.crops")
    _, bad = _batches(ImageRecordDataset([first, first], crop_index=elsewhere))
    assert bad == {}
    assert InsightFaceDataset(first, crop_index=elsewhere / "part-0.crops")._open_crops() is not None
    assert second.exists()


def test_a_damaged_index_costs_one_warning_and_no_pixel(tmp_path: Path) -> None:
    expected, _ = _batches(_records(tmp_path, crop_index=None))
    (tmp_path / "part-1.crops").write_bytes(b"damaged")
    dataset = _records(tmp_path)
    with pytest.warns(CropIndexWarning, match=r"part-1\.crops") as caught:
        found, bad = _batches(dataset)
    assert len(caught) == 1
    assert bad == {}
    _assert_same(found, expected)


def test_a_warning_of_a_damaged_index_names_the_line_of_the_caller(tmp_path: Path) -> None:
    dataset = _folder(tmp_path).transform_first(CROP)
    (tmp_path / "images" / "images.crops").write_bytes(b"damaged")
    with pytest.warns(CropIndexWarning) as caught:
        list(DataLoader(dataset, 4, num_workers=0))
    assert [warning.filename for warning in caught] == [__file__]
    dataset = ImageFolderDataset(tmp_path / "images").transform_first(CROP)

    async def count() -> int:
        async with aioloader.AsyncDataLoader(dataset, 4, num_workers=0) as loader:
            return sum([len(labels) async for _, labels in loader])

    with pytest.warns(CropIndexWarning) as caught:
        assert asyncio.run(count()) == len(IMAGES)
    assert [warning.filename for warning in caught] == [__file__]


def test_a_warning_of_a_damaged_index_can_be_an_error(tmp_path: Path) -> None:
    dataset = _folder(tmp_path).transform_first(CROP)
    (tmp_path / "images" / "images.crops").write_bytes(b"damaged")
    with DataLoader(dataset, 4, num_workers=0) as loader:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(CropIndexWarning, match="no crop index is used"):
                list(loader)
        assert sum(len(labels) for _, labels in loader) == len(IMAGES)


def test_a_warning_of_bad_entries_names_the_line_of_the_caller(tmp_path: Path) -> None:
    dataset = _folder(tmp_path).transform_first(CROP)
    spoil_entries(tmp_path)

    async def count() -> int:
        async with aioloader.AsyncDataLoader(dataset, 4, num_workers=0) as loader:
            return sum([len(labels) async for _, labels in loader])

    with pytest.warns(CropIndexWarning) as caught:
        assert asyncio.run(count()) == len(IMAGES)
    assert [warning.filename for warning in caught] == [__file__]
    with pytest.warns(CropIndexWarning) as caught:
        list(DataLoader(dataset, 4, num_workers=0))
    assert [warning.filename for warning in caught] == [__file__]
