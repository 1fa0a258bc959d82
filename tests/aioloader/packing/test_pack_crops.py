"""Tests of `pack` with crop indexes: each entry belongs to its record, also after interruptions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import recordio
from aioloader import ImageRecordDataset
from aioloader.cli import main
from aioloader.crop_index.reader import CropIndex
from aioloader.crop_index.writer import fits
from aioloader.packing import encoding
from aioloader.tools.crops import index_crops
from aioloader.tools.pack import PackReport, pack
from tests.executors import pool

COUNT = 9


def _jpeg(seed: int, *flags: int) -> bytes:
    rng = np.random.default_rng(seed)
    image = cv2.resize(rng.integers(0, 256, (40, 60, 3), dtype=np.uint8), (300, 200))
    return bytes(cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 92, *flags])[1])


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("images")
    for number in range(COUNT):
        path = root / f"class{number % 2}" / f"{number}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(_jpeg(number))
    (root / "class1" / "progressive.jpg").write_bytes(_jpeg(50, cv2.IMWRITE_JPEG_PROGRESSIVE, 1))
    return root


def check(report: PackReport, refused: int = 1) -> None:
    """Check that the entry of every record belongs to the record's image."""
    found = 0
    for file in report.files:
        assert file.crops == file.rec.with_suffix(".crops")
        index = CropIndex(str(file.crops))
        records = recordio.RecordReader(file.rec)
        offsets = recordio.Index.open(file.rec.with_suffix(".idx")).offsets.tolist()
        assert len(index) == len(offsets) == file.records
        for number, offset in enumerate(offsets):
            entry = index.find(offset)
            if entry is not None:
                assert fits(entry, recordio.unpack(records[number])[1])
                found += 1
        records.close()
    assert found == report.indexed == report.records - refused
    assert sum(report.unindexed.values()) == refused


@pytest.mark.parametrize(
    "options",
    [
        {"executor": "inline", "shards": 3, "shuffle": True, "train_ratio": 0.5},
        {"resize": 180},
        {"encoding": "jpg", "quality": 95},
        {"pass_through": True, **pool("process", 1)},
    ],
    ids=["keep", "resize", "jpg", "process"],
)
def test_every_record_has_its_entry(images: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    report = pack(images, tmp_path / "set", crops=True, **options)
    # Encoding again makes baseline JPEGs.
    check(report, refused=0 if {"resize", "encoding"} & options.keys() else 1)
    assert not list(tmp_path.glob("*.partial"))
    dataset = ImageRecordDataset([file.rec for file in report.files], crop_index=tmp_path)
    assert len(dataset) == COUNT + 1


def test_the_records_are_those_without_an_index(images: Path, tmp_path: Path) -> None:
    for name, crops in (("with", True), ("without", False)):
        pack(images, tmp_path / name, crops=crops)
    assert (tmp_path / "with.rec").read_bytes() == (tmp_path / "without.rec").read_bytes()
    assert not (tmp_path / "without.crops").exists()
    assert "crops" not in (tmp_path / "without.json").read_text()


def test_the_index_of_an_earlier_file_is_named(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pack(images, tmp_path / "set", crops=True).old_indexes == ()
    assert main(["pack", str(images), str(tmp_path / "set")]) == 0
    err = capsys.readouterr().err
    assert f"({tmp_path / 'set.crops'})" in err
    assert f"`aioloader index --crops {tmp_path / 'set.rec'}`" in err
    (tmp_path / "set.crops").unlink()
    assert pack(images, tmp_path / "set").old_indexes == ()


def test_the_index_command_keeps_the_entries(images: Path, tmp_path: Path) -> None:
    report = pack(images, tmp_path / "set", crops=True)
    (made,) = index_crops([str(report.rec)], num_workers=0, executor="inline")
    assert (made.kept, made.indexed, made.images) == (COUNT, COUNT, COUNT + 1)


@pytest.mark.parametrize("shards", [None, 3])
def test_an_interrupted_packing_is_resumed(images: Path, tmp_path: Path, shards: int | None) -> None:
    expected = pack(images, tmp_path / "whole" / "set", crops=True, shards=shards)
    out = tmp_path / "set"
    for stop_at in (3, 4, 7, COUNT + 1):

        def stop(done: int, stop_at: int = stop_at) -> None:
            if done == stop_at:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            pack(images, out, crops=True, shards=shards, sync_s=0, tick=stop)
        assert not list(tmp_path.glob("*.crops"))
    begun = []
    report = pack(
        images, out, crops=True, shards=shards, sync_s=0, begin=lambda done, *rest: begun.append(done)
    )
    assert begun[0] > 3
    check(report)
    assert (report.indexed, report.index_nbytes) == (expected.indexed, expected.index_nbytes)
    for file, whole in zip(report.files, expected.files, strict=True):
        assert file.crops is not None
        assert whole.crops is not None
        assert file.crops.read_bytes() == whole.crops.read_bytes()


def test_an_image_that_replaces_another_has_an_entry_for_each_record(images: Path, tmp_path: Path) -> None:
    root = tmp_path / "images"
    for path in images.rglob("*.jpg"):
        place = root / path.relative_to(images)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(path.read_bytes())
    (root / "class0" / "0.jpg").write_bytes(b"")
    report = pack(root, tmp_path / "set", crops=True, on_error="replace")
    assert report.replaced == 1
    check(report)


def test_options_that_make_no_jpegs_are_refused(images: Path, tmp_path: Path) -> None:
    for name in ("raw", "png", "webp"):
        with pytest.raises(ValueError, match="crop index"):
            encoding.Encoding(name, crops=True)
    with pytest.raises(ValueError, match="crop index"):
        pack(images, tmp_path / "set", crops=True, encoding="raw")


def test_the_command_and_the_report_name_the_index(
    images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pack", str(images), str(tmp_path / "set"), "--crops"]) == 0
    out = capsys.readouterr().out
    assert f"{COUNT} in the crop index" in out
    assert "1 not in the crop index: " in out
    found = json.loads((tmp_path / "set.json").read_text())
    assert found["files"][0]["crops"] == "set.crops"
    assert found["counts"]["in_crop_index"] == COUNT
    assert sum(found["counts"]["not_in_crop_index"].values()) == 1
    assert found["options"]["crops"] is True
