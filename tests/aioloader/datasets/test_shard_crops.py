"""Tests of crop indexes of shards: crops by entries are those without, and foreign or stale entries change none."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from aioloader import DataLoader, transforms
from aioloader.crop_index.layout import RECORDS, given_index, shard_index
from aioloader.crop_index.reader import CropIndex
from aioloader.crop_index.writer import CropIndexWriter, can_build
from aioloader.errors import CropIndexError, CropIndexWarning
from aioloader.foundation.decodes import CUT
from aioloader.tools import crops as tool
from aioloader.tools.crops import check_index, index_crops
from tests.aioloader.crop_index.samples import IMAGES, spoil_entries
from tests.aioloader.datasets.toy_shards import ToyDataset, toy_sample, write_shard

CROP = transforms.Compose(
    [transforms.RandomResizedCrop(24, scale=(0.05, 0.3)), transforms.RandomHorizontalFlip()]
)
needs_numba = pytest.mark.skipif(not can_build(), reason="numba makes crop indexes")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep sample indexes in a directory of the test."""
    monkeypatch.setenv("AIOLOADER_CACHE_DIR", str(tmp_path / "user-cache"))


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    """Write two shards of the golden images with their crop indexes, without numba."""
    paths = []
    for part in range(2):
        images = IMAGES[part::2]
        path = write_shard(
            tmp_path / f"part-{part}.toy",
            [toy_sample(data, label=number, name=name) for number, (name, data, _) in enumerate(images)],
        )
        writer = CropIndexWriter(shard_index(str(path)), kind=RECORDS)
        offsets = ToyDataset(path, crop_index=None).tables.offset.tolist()
        for offset, (_, data, entry) in zip(offsets, images, strict=True):
            writer.put(offset, len(data), entry)
        writer.finish()
        paths.append(path)
    return paths


def jpeg(seed: int) -> bytes:
    """Return a JPEG of 300 x 200 pixels, which is large enough for an entry."""
    pixels = np.random.default_rng(seed).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    return bytes(cv2.imencode(".jpg", cv2.resize(pixels, (300, 200)), [cv2.IMWRITE_JPEG_QUALITY, 92])[1])


def batches(dataset: Any, executor: str = "inline") -> tuple[list[Any], Any]:
    """Return the batches of two epochs of random crops, and the statistics."""
    with DataLoader(
        dataset.transform_first(CROP),
        4,
        shuffle=True,
        seed=3,
        executor=executor,
        num_workers=0 if executor == "inline" else 2,
    ) as loader:
        found = [(images.copy(), labels.copy()) for _ in range(2) for images, labels in loader]
        return found, loader.stats()


def cuts(stats: Any) -> int:
    """Return the number of images that were cut by their entries."""
    return sum(count for (way, _), count in stats.decodes.items() if way == CUT)


def assert_same(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected) > 2
    for some, others in zip(found, expected, strict=True):
        for one, other in zip(some, others, strict=True):
            assert one.dtype == other.dtype
            assert np.array_equal(one, other)


def test_an_index_is_found_at_a_place_that_is_named(shards: list[Path], tmp_path: Path) -> None:
    expected, _ = batches(ToyDataset(shards, crop_index=None))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for path in shards:
        place = Path(shard_index(str(path)))
        place.rename(given_index(str(elsewhere), str(path), is_record_file=False))
    found, stats = batches(ToyDataset(shards, crop_index=elsewhere))
    assert_same(found, expected)
    assert cuts(stats) > len(IMAGES)
    with pytest.raises(FileNotFoundError, match="aioloader index --crops"):
        ToyDataset(shards, crop_index=tmp_path / "nowhere")
    with pytest.raises(ValueError, match="directory"):
        ToyDataset(shards, crop_index=next(elsewhere.iterdir()))
    other = write_shard(tmp_path / "other.toy", [toy_sample(label=n) for n in range(3)])
    with pytest.raises(CropIndexError, match="no sample"):
        ToyDataset([other], crop_index=elsewhere / "part-1.toy.crops")


def test_stale_entries_are_counted_and_change_no_crop(shards: list[Path]) -> None:
    expected, _ = batches(ToyDataset(shards, crop_index=None))
    spoil_entries(shards[0].parent)
    with pytest.warns(CropIndexWarning):
        found, stats = batches(ToyDataset(shards))
    assert_same(found, expected)
    assert sum(stats.bad_entries.values()) == 2 * len(IMAGES)


def test_an_index_of_other_samples_changes_no_crop(shards: list[Path]) -> None:
    first, second = (Path(shard_index(str(path))) for path in shards)
    second.write_bytes(first.read_bytes())
    expected, _ = batches(ToyDataset(shards, crop_index=None))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CropIndexWarning)
        found, _ = batches(ToyDataset(shards))
    assert_same(found, expected)


def test_samples_that_are_dicts_use_no_index(shards: list[Path]) -> None:
    dataset = ToyDataset(shards, fields=("image", "name"))
    assert dataset[0]["name"] == IMAGES[0][0]
    assert dataset[0]["image"].ndim == 3


@needs_numba
def test_indexes_of_shards_are_made_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    real = tool.entry_or_reason

    def counted(data: Any) -> bytes | str:
        made.append(len(data))
        return real(data)

    monkeypatch.setattr(tool, "entry_or_reason", counted)
    shards = [
        write_shard(tmp_path / f"{part}.toy", [toy_sample(jpeg(n), label=n) for n in range(part, 9, 2)])
        for part in range(2)
    ]
    expected, _ = batches(ToyDataset(shards, crop_index=None))
    dataset = ToyDataset(shards, crop_index=None)
    options: dict[str, Any] = {"num_workers": 0, "executor": "inline"}
    reports = index_crops([dataset], **options)
    assert [report.crops for report in reports] == [f"{path}.crops" for path in shards]
    assert [(report.images, report.indexed) for report in reports] == [(5, 5), (4, 4)]
    assert len(made) == 9
    found, stats = batches(ToyDataset(shards))
    assert_same(found, expected)
    assert cuts(stats) == 18
    assert [report.kept for report in index_crops([dataset], **options)] == [5, 4]
    assert len(made) == 9
    # Another field of the same samples needs other entries.
    index_crops([ToyDataset(shards, image="other", crop_index=None)], **options)
    assert not CropIndex(reports[0].crops).tables().lengths.any()


@needs_numba
def test_samples_without_an_image_have_a_reason(tmp_path: Path) -> None:
    samples = [toy_sample(jpeg(1), label=1), toy_sample(label=2), toy_sample(b"no image", label=3)]
    path = write_shard(tmp_path / "a.toy", samples)
    (report,) = index_crops([ToyDataset(path, crop_index=None)], num_workers=0, executor="inline")
    assert (report.images, report.indexed, report.errors) == (3, 1, [])
    assert report.refused["no encoded image in the sample"] == 1
    assert sum(report.refused.values()) == 2


def test_an_index_of_a_shard_is_checked(shards: list[Path]) -> None:
    dataset = ToyDataset(shards[0], crop_index=None)
    options: dict[str, Any] = {"num_workers": 0, "executor": "inline"}
    found = check_index(dataset, **options)
    assert found is not None
    assert (found.ok, found.entries, found.missing) == (True, len(IMAGES[::2]), 0)
    samples = [toy_sample(data, label=n, name=name) for n, (name, data, _) in enumerate(IMAGES[::2])]
    write_shard(shards[0], [toy_sample(IMAGES[1][1], label=9), *samples[1:]])
    found = check_index(ToyDataset(shards[0], crop_index=None), **options)
    assert found is not None
    assert not found.ok
    assert found.stale + found.missing > 0
    write_shard(shards[0], [toy_sample(label=0), *samples[1:]])
    found = check_index(ToyDataset(shards[0], crop_index=None), **options)
    assert found is not None
    assert not found.ok
    Path(shard_index(str(shards[0]))).write_bytes(b"damaged")
    found = check_index(dataset, **options)
    assert found is not None
    assert found.fault
    Path(shard_index(str(shards[0]))).unlink()
    assert check_index(dataset, **options) is None
