"""Tests of the prepared data: the crop index next to the record file of a case."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from aioloader import ImageRecordDataset
from aioloader.crop_index.reader import CropIndex
from aioloader.tools.crops import index_crops
from aioloader.tools.draw import draw_folder
from benchmarks.cases import CASES
from benchmarks.contenders.contract import RecFile
from benchmarks.prepare import absent_reason, make_source


def test_every_sample_has_the_entry_that_the_command_makes(tmp_path: Path) -> None:
    photos = draw_folder(tmp_path / "photos", count=3)
    case = dataclasses.replace(CASES["jpeg-uint8"], batch_size=4, samples=8)
    source = make_source(case, photos, tmp_path / "scratch", lambda text: None)
    assert absent_reason(source, "crops") is None
    index = CropIndex(str(source.folder / "images.crops"))
    offsets = RecFile(source.rec).offsets.tolist()
    index_crops([str(source.rec)], out=tmp_path / "other.crops", executor="inline")
    other = CropIndex(str(tmp_path / "other.crops"))
    assert len(index) == len(other) == len(offsets) == 8
    for offset in offsets:
        entry, expected = index.find(offset), other.find(offset)
        assert entry is not None
        assert expected is not None
        assert bytes(entry) == bytes(expected)
    assert ImageRecordDataset(source.rec, crop_index=source.folder / "images.crops")
