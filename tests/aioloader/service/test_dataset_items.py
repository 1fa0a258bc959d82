"""Tests of (dataset, index): the encoded images of datasets of any format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest

import aioloader
from aioloader.errors import ImageFetchError, ImageReferenceError, ImageTooLargeError
from aioloader.service.references import ReferenceReader, _OpenDataset
from aioloader.transforms import encode_raw
from tests.aioloader.format_sets import FORMATS, Sample, SetFormat
from tests.aioloader.service.images import jpeg
from tests.conftest import RunOn

IMAGES = [jpeg(20 + number, 30, number) for number in range(5)]


def read_all(run_on: RunOn, pairs: list[tuple[Any, int]], **options: Any) -> list[bytes]:
    async def main() -> list[bytes]:
        reader = ReferenceReader(allow=["dataset"], **options)
        found: dict[int, bytes] = {}

        async def one(number: int) -> None:
            found[number] = bytes((await reader.read(reader.accept(pairs[number]))).payload)

        try:
            async with anyio.create_task_group() as tasks:
                for number in range(len(pairs)):
                    tasks.start_soon(one, number)
        finally:
            await reader.aclose()
        return [found[number] for number in range(len(pairs))]

    return run_on(main)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, image in enumerate(IMAGES):
        path = tmp_path / "images" / f"class-{number % 2}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image)
    return tmp_path / "images"


def test_the_files_of_a_folder_are_read_as_they_are(
    run_on: RunOn, folder: Path, no_blocking: None, leftovers: object
) -> None:
    dataset = aioloader.ImageFolderDataset(folder)
    encoded = [IMAGES[number] for number in (0, 2, 4, 1, 3)]
    assert read_all(run_on, [(dataset, number) for number in range(5)] * 4) == encoded * 4
    assert read_all(run_on, [(dataset.take(2), 1), (dataset.shard(2, 1), 0)]) == [encoded[1], encoded[3]]


def test_the_images_of_records_are_read_without_their_headers(
    run_on: RunOn, photo_rec: Path, photo_folder: Path
) -> None:
    dataset = aioloader.ImageRecordDataset(str(photo_rec))
    first = sorted(path for path in photo_folder.rglob("*") if path.is_file())[0]
    assert read_all(run_on, [(dataset, 0)]) == [first.read_bytes()]


@pytest.mark.parametrize("made", FORMATS)
def test_the_images_of_every_format_of_shards_are_read(
    run_on: RunOn, tmp_path: Path, made: SetFormat
) -> None:
    samples = [Sample(key=f"{number:03}", image=image, label=number) for number, image in enumerate(IMAGES)]
    dataset = made.open(made.write(tmp_path / "set", samples))
    found = read_all(run_on, [(dataset, number) for number in range(5)])
    assert found == IMAGES


def test_pixels_of_other_datasets_are_read(run_on: RunOn) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 4, 5, 3), dtype=np.uint8)
    arrays = aioloader.ArrayDataset(pixels, np.arange(3))
    assert read_all(run_on, [(arrays, 1)]) == [encode_raw(pixels[1])]
    assert read_all(run_on, [([pixels[0], IMAGES[0]], 0), ([pixels[0], IMAGES[0]], 1)]) == [
        encode_raw(pixels[0]),
        IMAGES[0],
    ]


def test_transforms_of_a_dataset_are_applied(run_on: RunOn, folder: Path) -> None:
    dataset = aioloader.ImageFolderDataset(folder).transform_first(lambda image: image[:2, :3])
    (found,) = read_all(run_on, [(dataset, 0)])
    assert found == encode_raw(dataset[0][0])


@pytest.mark.parametrize("index", [-1, 5, 10**30])
def test_an_item_that_does_not_exist_is_a_named_error(run_on: RunOn, folder: Path, index: int) -> None:
    with pytest.raises(BaseExceptionGroup) as found:
        read_all(run_on, [(aioloader.ImageFolderDataset(folder), index)])
    assert found.group_contains(ImageReferenceError, match="no item")


@pytest.mark.parametrize("dataset", [[1.5], ["text"], [None], [np.zeros(3, np.uint8)]])
def test_an_item_that_is_not_an_image_is_a_named_error(run_on: RunOn, dataset: list[Any]) -> None:
    with pytest.raises(BaseExceptionGroup) as found:
        read_all(run_on, [(dataset, 0)])
    assert found.group_contains(ImageReferenceError, match="not an image")


def test_an_item_that_cannot_be_read_is_a_named_error(run_on: RunOn, folder: Path) -> None:
    dataset = aioloader.ImageFolderDataset(folder)
    (folder / "class-0" / "0.jpg").unlink()
    with pytest.raises(BaseExceptionGroup) as found:
        read_all(run_on, [(dataset, 0)])
    assert found.group_contains(ImageFetchError, match="FileNotFoundError")


def test_a_large_item_is_refused(run_on: RunOn, folder: Path) -> None:
    with pytest.raises(BaseExceptionGroup) as found:
        read_all(run_on, [(aioloader.ImageFolderDataset(folder), 0)], max_bytes=10)
    assert found.group_contains(ImageTooLargeError)


def test_sources_of_many_datasets_do_not_stay_open(run_on: RunOn, folder: Path, leftovers: Any) -> None:
    """More than stay open, all in use at the same time and in turns."""
    datasets = [aioloader.ImageFolderDataset(folder) for _ in range(40)]
    pairs = [(dataset, number) for number in range(3) for dataset in datasets]
    assert read_all(run_on, pairs) == [IMAGES[number] for number in (0, 2, 4) for _ in datasets]


def test_a_read_that_begins_after_the_source_was_closed_returns_the_encoded_image(
    folder: Path, leftovers: Any
) -> None:
    """It began late because its thread was busy; the pixels of the image would be another result."""
    opened = _OpenDataset(aioloader.ImageFolderDataset(folder))
    opened.close()
    for _ in range(2):
        assert opened.read(0, "item 0") == IMAGES[0]
        assert opened._source is None
