"""Tests of datasets with a crop index: the same samples by entries, and a warning of entries that do not fit."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import aioloader
from aioloader import DataLoader, ImageFolderDataset, ImageListDataset, ImageRecordDataset, transforms
from aioloader.crop_index.layout import RECORDS, CropFiles, shard_index
from aioloader.crop_index.reader import CropIndex
from aioloader.crop_index.writer import CropIndexWriter
from aioloader.datasets import InsightFaceDataset
from aioloader.datasets.resolve import fingerprint
from aioloader.errors import CropIndexError, CropIndexWarning
from aioloader.tools.crops import check_index, index_crops
from aioloader.transforms import lazy_image
from tests.aioloader.crop_index.samples import IMAGES, spoil_entries, write_image_folder, write_record_files
from tests.aioloader.datasets.batches import assert_same, copies, labels_in
from tests.aioloader.datasets.toy_shards import ToyDataset, toy_sample, write_shard
from tests.combinations import combinations
from tests.executors import pool

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


def _shards(folder: Path, **options: Any) -> aioloader.Dataset:
    paths = [folder / f"part-{part}.toy" for part in range(2)]
    for part, path in enumerate(paths):
        if path.exists():
            continue
        images = IMAGES[part::2]
        write_shard(path, [toy_sample(data, label=n, name=name) for n, (name, data, _) in enumerate(images)])
        writer = CropIndexWriter(shard_index(str(path)), kind=RECORDS)
        offsets = ToyDataset(path, crop_index=None).tables.offset.tolist()
        for offset, (_, data, entry) in zip(offsets, images, strict=True):
            writer.put(offset, len(data), entry)
        writer.finish()
    return ToyDataset(paths, **options)


KINDS: list[Callable[..., aioloader.Dataset]] = [_records, _folder, _list, _shards]


def _batches(dataset: aioloader.Dataset, executor: str = "inline") -> tuple[list[Any], dict[str, int]]:
    options = {"shuffle": True, "seed": 3, **pool(executor, 1)}
    with DataLoader(dataset.transform_first(CROP), 4, **options) as loader:
        return [*copies(loader), *copies(loader)], dict(loader.stats().bad_entries)


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


@pytest.mark.parametrize(
    ("kind", "executor"), combinations({kind.__name__: kind for kind in KINDS}, ["thread", "process"])
)
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
    assert_same(found, expected)
    used = [path for path in indexes if path in bad]
    assert used
    assert sum(bad.values()) == 2 * len(IMAGES)
    assert sorted(str(note.message).partition(": ")[0] for note in caught) == used
    assert all("aioloader index --crops" in str(note.message) for note in caught)


def test_a_warning_that_is_an_error_loses_no_batch(tmp_path: Path) -> None:
    _folder(tmp_path)
    spoil_entries(tmp_path)
    dataset = ImageFolderDataset(tmp_path / "images").transform_first(CROP)
    with warnings.catch_warnings(), DataLoader(dataset, 4, num_workers=0) as loader:
        warnings.simplefilter("error")
        batches = iter(loader)
        labels = labels_in([next(batches)])
        with pytest.raises(CropIndexWarning):
            next(batches)
        assert len(labels + labels_in(batches)) == len(IMAGES)
    (tmp_path / "images" / "images.crops").write_bytes(b"damaged")
    dataset = ImageFolderDataset(tmp_path / "images").transform_first(CROP)
    with warnings.catch_warnings(), DataLoader(dataset, 4, num_workers=0) as loader:
        warnings.simplefilter("error")
        with pytest.raises(CropIndexWarning, match="no crop index is used"):
            iter(loader)
        assert len(labels_in(loader)) == len(IMAGES)


def test_bulk_reads_use_the_index_and_warn_once(tmp_path: Path, cuts: list[object]) -> None:
    dataset = _records(tmp_path).transform_first(transforms.CenterCrop(8))
    expected = _records(tmp_path, crop_index=None).transform_first(transforms.CenterCrop(8))
    indices = list(range(len(IMAGES)))
    assert_same(dataset.__getitems__(indices), expected.__getitems__(indices))
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
    assert_same(found, _batches(expected)[0])
    assert cuts
    assert bad == {}


def test_an_item_is_read_without_a_look_at_the_others(tmp_path: Path) -> None:
    class Items(list[tuple[str, int]]):
        listed = 0

        def __iter__(self) -> Iterator[tuple[str, int]]:
            Items.listed += 1
            return super().__iter__()

    dataset = _folder(tmp_path)
    dataset.items = Items(dataset.items)
    dataset[0]  # opens the files and the index
    before = Items.listed
    dataset[1], dataset[2]
    assert Items.listed == before


def test_a_path_that_was_asked_for_is_checked_at_once(tmp_path: Path) -> None:
    _records(tmp_path)
    first = tmp_path / "part-0.rec"
    with pytest.raises(FileNotFoundError, match="aioloader index --crops"):
        ImageRecordDataset(first, crop_index=tmp_path / "none.crops")
    with pytest.raises(CropIndexError, match="index of a record file"):
        _folder(tmp_path, crop_index=first.with_suffix(".crops"))
    with pytest.raises(CropIndexError, match="not a crop index"):
        _list(tmp_path, crop_index=first)
    with pytest.raises(TypeError):
        ImageRecordDataset(first, crop_index=True)  # type: ignore[arg-type]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    first.with_suffix(".crops").rename(elsewhere / "part-0.crops")
    assert _batches(ImageRecordDataset([first, first], crop_index=elsewhere))[1] == {}
    assert InsightFaceDataset(first, crop_index=elsewhere / "part-0.crops")._open_crops() is not None


def test_a_damaged_index_costs_one_warning_and_no_pixel(tmp_path: Path) -> None:
    expected, _ = _batches(_records(tmp_path, crop_index=None))
    (tmp_path / "part-1.crops").write_bytes(b"damaged")
    dataset = _records(tmp_path)
    with pytest.warns(CropIndexWarning, match=r"part-1\.crops") as caught:
        found, bad = _batches(dataset)
    assert len(caught) == 1
    assert bad == {}
    assert_same(found, expected)


@pytest.mark.parametrize("damage", ["index", "entries"])
def test_a_warning_names_the_line_of_the_caller(damage: str, tmp_path: Path) -> None:
    _folder(tmp_path)
    if damage == "index":
        (tmp_path / "images" / "images.crops").write_bytes(b"damaged")
    else:
        spoil_entries(tmp_path)

    async def count() -> int:
        dataset = ImageFolderDataset(tmp_path / "images").transform_first(CROP)
        async with aioloader.AsyncDataLoader(dataset, 4, num_workers=0) as loader:
            return sum([len(labels) async for _, labels in loader])

    with pytest.warns(CropIndexWarning) as caught:
        assert asyncio.run(count()) == len(IMAGES)
    assert [warning.filename for warning in caught] == [__file__]
    dataset = ImageFolderDataset(tmp_path / "images").transform_first(CROP)
    with pytest.warns(CropIndexWarning) as caught:
        list(DataLoader(dataset, 4, num_workers=0))
    assert [warning.filename for warning in caught] == [__file__]


# -- shards ------------------------------------------------------------------------------------------------------------

INLINE: dict[str, Any] = {"num_workers": 0, "executor": "inline"}


def test_an_index_of_shards_is_found_at_a_place_that_is_named(tmp_path: Path, cuts: list[object]) -> None:
    expected, _ = _batches(_shards(tmp_path, crop_index=None))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for path in sorted(tmp_path.glob("*.toy")):
        place = Path(shard_index(str(path)))
        place.rename(CropFiles(RECORDS, ()).place(str(path), str(elsewhere)))
    found, _ = _batches(_shards(tmp_path, crop_index=elsewhere))
    assert_same(found, expected)
    assert len(cuts) > len(IMAGES)
    with pytest.raises(FileNotFoundError, match="aioloader index --crops"):
        _shards(tmp_path, crop_index=tmp_path / "nowhere")
    with pytest.raises(ValueError, match="directory"):
        _shards(tmp_path, crop_index=next(elsewhere.iterdir()))
    other = write_shard(tmp_path / "other.toy", [toy_sample(label=n) for n in range(3)])
    with pytest.raises(CropIndexError, match="no sample"):
        ToyDataset([other], crop_index=elsewhere / "part-1.toy.crops")


def test_samples_that_are_dicts_use_no_index(tmp_path: Path, cuts: list[object]) -> None:
    sample = _shards(tmp_path, fields=("image", "name"))[0]
    assert (sample["name"], sample["image"].ndim, cuts) == (IMAGES[0][0], 3, [])


def large_jpeg(seed: int) -> bytes:
    """Return a JPEG of 300 x 200 pixels, which is large enough for an entry."""
    pixels = np.random.default_rng(seed).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    return bytes(cv2.imencode(".jpg", cv2.resize(pixels, (300, 200)), [cv2.IMWRITE_JPEG_QUALITY, 92])[1])


def test_indexes_of_shards_are_made_and_kept(tmp_path: Path, cuts: list[object]) -> None:
    shards = [
        write_shard(tmp_path / f"{part}.toy", [toy_sample(large_jpeg(n), label=n) for n in range(part, 5, 2)])
        for part in range(2)
    ]
    dataset = ToyDataset(shards, crop_index=None)
    expected, _ = _batches(dataset)
    reports = index_crops([dataset], **INLINE)
    assert [report.crops for report in reports] == [f"{path}.crops" for path in shards]
    assert [(each.images, each.indexed, each.kept) for each in reports] == [(3, 3, 0), (2, 2, 0)]
    assert_same(_batches(ToyDataset(shards))[0], expected)
    assert len(cuts) == 10
    assert [report.kept for report in index_crops([dataset], **INLINE)] == [3, 2]
    # Another field of the same samples needs other entries.
    index_crops([ToyDataset(shards, image="other", crop_index=None)], **INLINE)
    assert not CropIndex(reports[0].crops).tables().lengths.any()


def test_samples_without_an_image_have_a_reason(tmp_path: Path) -> None:
    samples = [toy_sample(large_jpeg(1), label=1), toy_sample(label=2), toy_sample(b"no image", label=3)]
    path = write_shard(tmp_path / "a.toy", samples)
    (report,) = index_crops([ToyDataset(path, crop_index=None)], **INLINE)
    assert (report.images, report.indexed, report.errors) == (3, 1, [])
    assert report.refused["no encoded image in the sample"] == 1
    assert sum(report.refused.values()) == 2


def test_an_index_of_a_shard_is_checked(tmp_path: Path) -> None:
    _shards(tmp_path)
    shard = tmp_path / "part-0.toy"

    def check(**facts: object) -> None:
        found = check_index(ToyDataset(shard, crop_index=None), **INLINE)
        assert found is not None
        assert {name: getattr(found, name) for name in facts} == facts

    check(ok=True, entries=len(IMAGES[::2]), missing=0)
    rest = [toy_sample(data, label=n, name=name) for n, (name, data, _) in enumerate(IMAGES[::2])][1:]
    for first in (toy_sample(IMAGES[1][1], label=9), toy_sample(label=0)):
        write_shard(shard, [first, *rest])
        check(ok=False)
    Path(shard_index(str(shard))).write_bytes(b"damaged")
    found = check_index(ToyDataset(shard, crop_index=None), **INLINE)
    assert found is not None
    assert found.fault
    Path(shard_index(str(shard))).unlink()
    assert check_index(ToyDataset(shard, crop_index=None), **INLINE) is None
