"""Tests of `image_costs`: the extents are those that the dataset delivers, from the headers alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aioloader
from aioloader import DataLoader, ImageFolderDataset, ImageRecordDataset, SampleError, image_costs
from aioloader.batchify import Patches
from aioloader.samplers import BudgetBatchSampler
from aioloader.tools.pack import pack
from aioloader.transforms import Qwen2VLImageProcessor
from tests.aioloader.format_sets import MDS, TAR, Sample
from tests.aioloader.transforms.test_decode import oriented
from tests.cases import with_cases


def area(height: int, width: int) -> int:
    return 10_000 * height + width


def expected(dataset: Any) -> list[int]:
    return [area(*dataset[index][0].shape[:2]) for index in range(len(dataset))]


@with_cases("exif", ["apply", "ignore"])
def test_records_and_folders(photo_rec: Path, photo_folder: Path, exif: str, leftovers: Any) -> None:
    for dataset in (ImageRecordDataset(photo_rec, exif=exif), ImageFolderDataset(photo_folder, exif=exif)):
        costs = image_costs(dataset, area)
        assert costs.dtype == np.int64
        assert costs.tolist() == expected(dataset)


def test_views_and_transforms(photo_rec: Path) -> None:
    dataset = ImageRecordDataset(photo_rec)
    whole = image_costs(dataset, area)
    part = dataset.take(20).shard(2, 1).transform_first(lambda image: image[:1])
    assert image_costs(part, area).tolist() == whole[10:20].tolist()


@pytest.mark.parametrize("written", [TAR, MDS], ids=["tar", "mds"])
def test_other_formats(written: Any, photo_folder: Path, tmp_path: Path) -> None:
    paths = sorted(photo_folder.rglob("*.jpg"))[:6]
    samples = [
        Sample(key=f"{number:06}", image=path.read_bytes(), label=number) for number, path in enumerate(paths)
    ]
    dataset = aioloader.open_dataset(written.write(tmp_path / "set", samples, shards=2))
    assert image_costs(dataset, area).tolist() == expected(dataset)


@pytest.mark.parametrize("name", ["jpeg", "png", "png-exif-last", "webp", "tiff"])
def test_large_images_of_all_formats_are_upright(name: str, tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (100, 150, 3), dtype=np.uint8)
    folder = tmp_path / "images" / "class"
    folder.mkdir(parents=True)
    for orientation in (1, 6):
        (folder / f"{orientation}.png").write_bytes(oriented(name, orientation, noise))
    pack(tmp_path / "images", tmp_path / "set.rec")
    for dataset in (ImageFolderDataset(tmp_path / "images"), ImageRecordDataset(tmp_path / "set.rec")):
        assert image_costs(dataset, area).tolist() == [area(100, 150), area(150, 100)]


def test_only_the_header_of_a_file_is_read(photo_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "class").mkdir()
    path = tmp_path / "class" / "huge.jpg"
    path.write_bytes(sorted(photo_folder.rglob("*.jpg"))[0].read_bytes())
    os.truncate(path, 1 << 40)  # a hole: reading it whole would need all memory
    (cost,) = image_costs(ImageFolderDataset(tmp_path), area).tolist()
    image, _ = ImageFolderDataset(photo_folder)[0]
    assert cost == area(*image.shape[:2])


def test_a_long_header_is_read_whole(photo_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "class").mkdir()
    data = sorted(photo_folder.rglob("*.jpg"))[0].read_bytes()
    comment = b"\xff\xfe" + (60_000).to_bytes(2, "big") + bytes(59_998)
    (tmp_path / "class" / "a.jpg").write_bytes(data[:2] + comment + data[2:])
    dataset = ImageFolderDataset(tmp_path)
    assert image_costs(dataset, area).tolist() == expected(dataset)


def test_a_damaged_image_is_named_or_has_the_cost_given(photo_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "class"
    folder.mkdir()
    good = sorted(photo_folder.rglob("*.jpg"))[0].read_bytes()
    for name, data in (("a", good), ("b", b"no image"), ("c", b""), ("d", good)):
        (folder / f"{name}.jpg").write_bytes(data)
    dataset = ImageFolderDataset(tmp_path)
    with pytest.raises(SampleError, match=r"index 1.*DecodeError") as caught:
        image_costs(dataset, area)
    assert (caught.value.index, caught.value.path) == (1, str(folder / "b.jpg"))
    assert isinstance(caught.value.__cause__, aioloader.DecodeError)
    costs = image_costs(dataset, area, damaged=7).tolist()
    assert costs[1:3] == [7, 7]
    assert costs[0] == costs[3] != 7
    (folder / "a.jpg").unlink()
    with pytest.raises(SampleError, match="No such file") as caught:
        image_costs(dataset, area)
    assert (caught.value.index, caught.value.stage) == (0, "fetch")


def test_extents_that_a_function_refuses_are_errors_of_their_image(photo_rec: Path) -> None:
    def refuse(height: int, width: int) -> int:
        raise ValueError("too flat")

    with pytest.raises(SampleError, match=r"index 0.*too flat"):
        image_costs(ImageRecordDataset(photo_rec), refuse)
    with pytest.raises(TypeError):
        image_costs(ImageRecordDataset(photo_rec), lambda height, width: height / width)  # type: ignore[arg-type, return-value]


def test_samples_that_are_no_images_are_refused() -> None:
    with pytest.raises(TypeError, match=r"are not images and labels from files.*pass an array"):
        image_costs(aioloader.SimpleDataset([1, 2]), area)


def test_batches_of_patches_within_a_budget_of_tokens(photo_rec: Path) -> None:
    processor = Qwen2VLImageProcessor(max_pixels=28 * 28 * 32)
    dataset = ImageRecordDataset(photo_rec)
    costs = image_costs(dataset, processor)
    sampler = BudgetBatchSampler(costs, 100)
    with DataLoader(
        dataset.transform_first(processor), batch_sampler=sampler, batchify_fn=Patches(), num_workers=1
    ) as loader:
        tokens = [len(images.pixel_values) // 4 for images, _ in loader]
    assert tokens == [int(costs[batch.indices].sum()) for batch in sampler.batches(0, 0)]
    assert max(tokens) <= 100
