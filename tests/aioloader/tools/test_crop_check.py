"""Tests of checking a crop index by making its entries again, and of images that cannot be read."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import recordio
from aioloader.cli import main
from aioloader.crop_index import writer as building
from aioloader.crop_index.layout import FOLDER, RECORDS, folder_key
from aioloader.crop_index.reader import CropIndex
from aioloader.crop_index.writer import CropIndexWriter
from aioloader.formats.recordio.inspect import ValidRecords
from aioloader.jpeg.crop_entry import HEAD, EntryHead
from aioloader.tools.crops import CropCheck, check_index, images_of_folder
from tests.aioloader.crop_index.samples import IMAGES, write_image_folder, write_record_files

needs_numba = pytest.mark.skipif(not building.can_build(), reason="numba makes entries again")


@pytest.fixture
def rec(tmp_path: Path) -> Path:
    return write_record_files(tmp_path)[0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    return write_image_folder(tmp_path / "images")


def check(path: Path, **options: Any) -> CropCheck:
    options = {"num_workers": 0, "executor": "inline"} | options
    found = (
        check_index(images_of_folder(str(path)), **options)
        if path.is_dir()
        else check_index(ValidRecords(recordio.verify(path), str(path)), **options)
    )
    assert found is not None
    return found


def forged(entry: bytes) -> bytes:
    """Return an entry with another DC value, whose checksums are right."""
    head = EntryHead._make(HEAD.unpack_from(entry))
    body = bytearray(entry[:-4])
    # The lowest bit of luma's DC value of the first point.
    place = head.points_at + (head.nbits >> 3)
    body[place] ^= 1 << (head.nbits & 7)
    return bytes(body) + zlib.crc32(body).to_bytes(4, "little")


def rewrite(path: Path, kind: int, change: dict[int, bytes | str]) -> None:
    """Write an index again with other entries, or reasons, of some of its images, by their places."""
    images = [
        (key, nbytes, made if isinstance(made, str) else bytes(made))
        for key, nbytes, made in CropIndex(str(path)).images()
    ]
    writer = CropIndexWriter(path, kind=kind)
    for place, (key, nbytes, made) in enumerate(images):
        building.put(writer, key, nbytes, change.get(place, made))
    writer.finish()


@needs_numba
def test_entries_that_are_made_again_are_the_same(
    rec: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(rec, rebuild=True) == CropCheck(
        str(rec.with_suffix(".crops")), entries=len(IMAGES[::2]), rebuilt=True
    )
    assert check(folder, rebuild=True).entries == len(IMAGES)
    assert main(["verify", str(rec), "--decode", "--num-workers", "0"]) == 0
    assert (
        f"{len(IMAGES[::2])} entries, all fit their images and equal those made again"
        in capsys.readouterr().out
    )


@needs_numba
def test_an_entry_with_right_checksums_and_wrong_values_is_found(
    rec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    crops = rec.with_suffix(".crops")
    rewrite(crops, RECORDS, {1: forged(IMAGES[2][2])})
    assert check(rec).ok
    found = check(rec, rebuild=True)
    assert (found.ok, found.different, found.entries) == (False, 1, len(IMAGES[::2]) - 1)
    assert main(["verify", str(rec), "--decode", "--num-workers", "0"]) == 1
    captured = capsys.readouterr()
    assert "entries that differ from those made again: 1\n" in captured.err
    assert f"`aioloader index --crops --remake {rec}`" in captured.out
    assert "wrong pixels" in captured.out


@needs_numba
def test_images_that_were_refused_are_tried_again(folder: Path) -> None:
    first, second, *_ = sorted(folder.rglob("*.jpg"))
    pixels = cv2.resize(np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8), (300, 200))
    first.write_bytes(cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, 92])[1])
    second.write_bytes(b"no image")
    keys = [key for key, _, _ in CropIndex(str(folder / "images.crops")).images()]
    places = [keys.index(folder_key(path.relative_to(folder).as_posix())) for path in (first, second)]
    rewrite(folder / "images.crops", FOLDER, dict.fromkeys(places, "it is progressive"))
    assert (check(folder).ok, check(folder).refused) == (True, 2)
    found = check(folder, rebuild=True)
    assert (found.ok, found.missing, found.refused, found.entries) == (False, 1, 1, len(IMAGES) - 2)


def test_without_numba_the_other_checks_are_made(
    rec: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "can_build", lambda: False)
    assert main(["verify", str(rec), "--decode", "--num-workers", "0"]) == 0
    out = capsys.readouterr().out
    assert "all fit their images" in out
    assert "the entries were not made again" in out


def test_images_that_cannot_be_read_are_reported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = min(folder.rglob("*.jpg"))
    first.unlink()
    first.symlink_to("nowhere")
    (error,) = check(folder).errors
    assert error.path == str(first)
    assert main(["verify", str(folder), "--num-workers", "0", "--json"]) == 1
    (facts,) = json.loads(capsys.readouterr().out)["files"]
    (reported,) = facts["crop_index"]["image_errors"]
    assert (reported["path"], facts["crop_index"]["missing"]) == (str(first), 0)
    assert main(["verify", str(folder), "--num-workers", "0"]) == 1
    assert f"{first}: FileNotFoundError" in capsys.readouterr().err


def test_errors_of_records_name_the_place_in_a_damaged_file_without_an_idx(rec: Path) -> None:
    offsets = recordio.Index.open(rec.with_suffix(".idx")).offsets.tolist()
    rec.with_suffix(".idx").unlink()
    with open(rec, "r+b") as file:
        file.seek(offsets[1])
        file.write(bytes(8))
    report = recordio.verify(rec)
    with open(rec, "r+b") as file:  # after the report was made
        file.seek(offsets[3])
        file.write(bytes(8))
    found = check_index(ValidRecords(report, str(rec)), num_workers=0, executor="inline")
    assert found is not None
    (error,) = found.errors
    assert (error.path, error.offset) == (str(rec), offsets[3])
    assert (found.entries, found.surplus) == (len(IMAGES[::2]) - 2, 1)


def test_a_damaged_index_is_reported_once(rec: Path, recwarn: pytest.WarningsRecorder) -> None:
    rec.with_suffix(".crops").write_bytes(b"damaged")
    assert main(["verify", str(rec), "--decode", "--num-workers", "0"]) == 1
    assert not [warning for warning in recwarn if "crop" in str(warning.message)]
