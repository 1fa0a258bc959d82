"""Tests of the counts of how images were decoded, and why they were not cut by a crop index."""

from __future__ import annotations

import os
import signal
import zlib
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import recordio
from aioloader import DataLoader, ImageRecordDataset, SimpleDataset, transforms
from aioloader.crop_index.layout import RECORDS
from aioloader.crop_index.writer import CropIndexWriter
from aioloader.foundation.types import WorkCounters
from aioloader.jpeg.turbojpeg import library_path
from aioloader.transforms import encode_raw
from aioloader.transforms.lazy_image import LazyImageReader
from tests.aioloader.executors.test_ray_messages import ByValue
from tests.aioloader.jpeg.entries import golden
from tests.aioloader.jpeg.samples import make_image

FILES = {name: (data, entry) for name, data, entry in golden()}
PIXELS = make_image(131, 93)
PROGRESSIVE = cv2.imencode(".jpg", PIXELS, [cv2.IMWRITE_JPEG_PROGRESSIVE, 1])[1].tobytes()
PNG = cv2.imencode(".png", PIXELS)[1].tobytes()
# The crop leaves out enough of an image to decode a rectangle of it.
PART = "early stop" if library_path() is None else "rectangle"
CROP = transforms.CenterCrop(24)


def _of_version_9(entry: bytes) -> bytes:
    body = bytes((9,)) + entry[1:-4]
    return body + zlib.crc32(body).to_bytes(4, "little")


Item = tuple[bytes, Any, tuple[str, str]]

# Image, its entry (None: not in the index, a str: refused), and (way, reason).
INDEXED: list[Item] = [
    (*FILES["420"], ("cut", "indexed")),
    (*FILES["444"], ("cut", "indexed")),
    (FILES["422"][0], None, (PART, "not in index")),
    (FILES["440"][0], "it is odd", (PART, "refused: it is odd")),
    (FILES["420"][0], FILES["420"][1][:-1] + b"x", (PART, "damaged entry")),
    (FILES["420"][0], FILES["444"][1], (PART, "entry of other bytes")),
    (FILES["420"][0], _of_version_9(FILES["420"][1]), (PART, "entry of another version")),
    (PROGRESSIVE, "it has several scans", ("whole", "refused: it has several scans")),
    (PROGRESSIVE, None, ("whole", "decoded whole only")),
    (PNG, None, ("whole", "not a JPEG")),
    (encode_raw(PIXELS), None, ("raw", "not a JPEG")),
]
NOT_INDEXED: list[Item] = [
    (FILES["420"][0], None, (PART, "no index")),
    (PROGRESSIVE, None, ("whole", "decoded whole only")),
]


def _write(path: Path, items: list[Item]) -> None:
    with recordio.RecordWriter(path) as writer:
        for number, (data, _, _) in enumerate(items):
            writer.write(recordio.pack(recordio.IRHeader(0, number, number, 0), data), number)
    if all(entry is None for _, entry, _ in items):
        return
    crops = CropIndexWriter(path.with_suffix(".crops"), kind=RECORDS)
    offsets = recordio.Index.open(path.with_suffix(".idx")).offsets.tolist()
    for (data, entry, _), offset in zip(items, offsets, strict=True):
        if isinstance(entry, str):
            crops.refuse(offset, len(data), entry)
        elif entry is not None:
            crops.put(offset, len(data), entry)
    crops.finish()


def _expected(items: list[Item]) -> dict[tuple[str, str], int]:
    counts: dict[tuple[str, str], int] = {}
    for _, _, key in items:
        counts[key] = counts.get(key, 0) + 1
    return counts


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("counts")
    _write(folder / "part-0.rec", INDEXED)
    _write(folder / "part-1.rec", NOT_INDEXED)
    return str(folder / "part-*.rec")


@pytest.mark.filterwarnings("ignore::aioloader.errors.CropIndexWarning")
@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 0},
        {"num_workers": 2, "executor": "process"},
        {"executor": ByValue()},
    ],
    ids=["inline", "process", "by value"],
)
def test_each_way_and_reason_is_counted(files: str, options: dict[str, Any]) -> None:
    dataset = ImageRecordDataset(files).transform_first(CROP)
    with DataLoader(dataset, 3, **options) as loader:
        for _ in range(2):
            assert sum(len(labels) for _, labels in loader) == len(INDEXED) + len(NOT_INDEXED)
        stats = loader.stats()
    expected = _expected([*INDEXED, *NOT_INDEXED])
    assert stats.decodes == {key: 2 * count for key, count in expected.items()}
    # The middle 24 rows of 93, and a row of chroma: an early stop ends there.
    assert (stats.measured_crops, stats.crop_pixels) == (2, 2 * 24 * 24)
    assert stats.read_pixels == 2 * 131 * (34 + 24 + 2)
    assert stats.decode_ways["cut"] == 4
    assert sum(stats.bad_entries.values()) == 2 * 3
    assert stats.uncut["refused"] == 4
    assert sum(stats.decode_ways.values()) == sum(stats.uncut.values()) + 4 == 2 * len(dataset)


def test_a_chain_without_a_crop_cuts_nothing(files: str) -> None:
    dataset = ImageRecordDataset(files).transform_first(transforms.Resize((32, 32)))
    with DataLoader(dataset, 5, num_workers=0) as loader:
        list(loader)
        assert loader.stats().uncut == {"no crop": len(dataset)}
        assert loader.stats().decode_ways["whole"] == len(dataset) - 1


@pytest.mark.parametrize(
    ("fn", "options", "measured"),
    [
        (CROP, {}, True),
        (transforms.RandomHorizontalFlip(), {}, True),
        (transforms.Views({"a": (CROP, 2)}), {}, True),
        (CROP, {"dct_scaling": True}, False),
    ],
    ids=["crop", "flip", "views", "scaled"],
)
def test_the_size_of_an_image_of_each_chunk_is_counted(
    tmp_path: Path, fn: Any, options: Any, measured: bool
) -> None:
    _write(tmp_path / "a.rec", [(*FILES["420"], ("cut", "indexed"))] * 4)
    dataset = ImageRecordDataset(tmp_path / "a.rec", **options).transform_first(fn)
    with DataLoader(dataset, 2, num_workers=0) as loader:
        list(loader)
        stats = loader.stats()
    assert (stats.measured_images > 0) is measured
    assert stats.image_nbytes == stats.measured_images * PIXELS.nbytes


def test_an_image_that_fails_is_not_counted(tmp_path: Path) -> None:
    _write(tmp_path / "a.rec", INDEXED[:2])
    with DataLoader(
        ImageRecordDataset(tmp_path / "a.rec", max_pixels=100).transform_first(CROP),
        2,
        num_workers=0,
        on_error="skip",
    ) as loader:
        assert list(loader) == []
        assert loader.stats().decodes == {}


def _counts(reader: LazyImageReader) -> dict[tuple[str, str], int]:
    work = WorkCounters()
    reader.timer.count_decodes(work)
    return work.decodes


@pytest.mark.parametrize("method", ["region", "frame"])
def test_the_way_depends_on_the_crop_and_the_library(method: str) -> None:
    data, entry = FILES["420"]
    whole, small, lowest = (0, 0, 131, 93), (40, 40, 20, 20), (100, 80, 20, 13)
    wide = (0, 0, 131, 40)

    def count(box: tuple[int, int, int, int], *, rectangles: bool = True, **options: Any) -> Any:
        reader = LazyImageReader()
        if not rectangles:
            reader.rectangles = None
        image = reader.open(data, **options)
        getattr(image, method)(box)
        (key,) = _counts(reader)
        return key

    assert count(small, entry=entry) == ("cut", "indexed")
    assert count(small, entry=entry, rectangles=False) == ("cut", "indexed")
    assert count(whole, entry=entry) == ("whole", "nearly all needed")
    assert count(whole) == ("whole", "no index")
    assert count(small, rectangles=False) == ("early stop", "no index")
    assert count(wide) == ("early stop", "no index")
    assert count(lowest, rectangles=False) == ("whole", "no index")
    if library_path() is not None:
        assert count(small) == count(lowest) == ("rectangle", "no index")


@pytest.mark.parametrize("entry", [FILES["420"][1], "no index"], ids=["entry", "none"])
def test_a_part_that_the_decoder_complains_about_is_decoded_whole(entry: Any) -> None:
    def complain(*args: Any, **options: Any) -> None:
        raise ValueError("Corrupt JPEG data")

    reader = LazyImageReader()
    reader.rectangles = None
    reader.decode_jpeg = complain
    image = reader.open(FILES["420"][0], entry=entry)
    image.region((40, 40, 20, 20))
    assert _counts(reader) == {("whole", "complaint"): 1}
    image.frame((40, 40, 20, 20))
    assert _counts(reader) == {("whole", "complaint"): 2}


def test_counts_of_a_failed_worker_are_lost_with_its_times(tmp_path: Path) -> None:
    """A chunk whose worker dies is decoded again, and each delivered sample counts once at most."""
    items = [(*FILES["420"], ("cut", "indexed"))] * 24
    _write(tmp_path / "a.rec", items)
    marker = tmp_path / "died"

    def die_once(image: Any, label: Any) -> Any:
        if label == 13 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return image, label

    dataset = ImageRecordDataset(tmp_path / "a.rec").transform_first(CROP).transform(die_once)
    with DataLoader(dataset, 8, num_workers=2) as loader:
        assert sorted(int(n) for _, labels in loader for n in labels) == list(range(24))
        stats = loader.stats()
    assert stats.restarts == 1
    assert 24 - 8 <= stats.decode_ways["cut"] <= 24


def test_other_datasets_count_no_images() -> None:
    with DataLoader(SimpleDataset([np.zeros(3)] * 8), 4, num_workers=0) as loader:
        list(loader)
        assert (loader.stats().decodes, loader.stats().uncut) == ({}, {})
