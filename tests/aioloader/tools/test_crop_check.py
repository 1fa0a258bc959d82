"""Tests of crop indexes in `verify` and `inspect`: entries, those made again, and images that cannot be read."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import recordio
from aioloader.crop_index.layout import FOLDER, RECORDS, folder_key
from aioloader.crop_index.reader import CropIndex
from aioloader.crop_index.writer import CropIndexWriter, put
from aioloader.formats.inspection import may_be_indexed
from aioloader.formats.recordio.inspect import ValidRecords
from aioloader.jpeg.crop_entry import HEAD, EntryHead
from aioloader.tools.crops import CropCheck, check_index, images_of_folder
from aioloader.tools.inspect import inspect
from tests.aioloader.crop_index.samples import IMAGES, spoil_entries, write_image_folder, write_record_files
from tests.aioloader.tools.conftest import Run


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


def rewrite(
    path: Path, kind: int, change: dict[int, bytes | str] | None = None, *, drop: int = 0, add: int = 0
) -> None:
    """Write an index again with other entries, or reasons, at some places; without the first ones, or with more."""
    images = [
        (key, nbytes, made if isinstance(made, str) else bytes(made))
        for key, nbytes, made in CropIndex(str(path)).images()
    ]
    writer = CropIndexWriter(path, kind=kind)
    for place, (key, nbytes, made) in [*enumerate(images)][drop:]:
        put(writer, key, nbytes, (change or {}).get(place, made))
    for number in range(add):
        writer.put(2**60 + number, 10, b"entry")
    writer.finish()


def facts(run: Run, path: Path) -> tuple[int, Any]:
    code, out, _ = run("verify", path, "--num-workers", "0", "--json")
    (found,) = json.loads(out)["files"]
    assert found["ok"] is (code == 0)
    return code, found["crop_index"]


def test_verify_checks_the_crop_index_of_a_record_file(rec: Path, run: Run) -> None:
    count = len(IMAGES[::2])
    code, out, err = run("verify", rec, "--num-workers", "0")
    assert (code, err) == (0, "")
    assert f"{rec.with_suffix('.crops')}: {count} entries, all fit their images" in out
    spoil_entries(rec.parent)
    code, out, err = run("verify", rec, "--num-workers", "0")
    assert code == 1
    assert f"damaged entries: {count}\n" in err
    assert f"`aioloader index --crops {rec}`" in out


def test_verify_checks_the_crop_index_of_a_folder(folder: Path, run: Run) -> None:
    code, found = facts(run, folder)
    assert (code, found["entries"]) == (0, len(IMAGES))
    first, second = sorted(folder.rglob("*.jpg"))[:2]
    first.write_bytes(second.read_bytes())
    code, found = facts(run, folder)
    assert (code, found["entries"], found["stale"], found["damaged"]) == (1, len(IMAGES) - 1, 1, 0)
    first.unlink()
    code, found = facts(run, folder)
    assert (code, found["stale"], found["surplus"]) == (0, 0, 1)
    code, _, _ = run("verify", folder, "--decode", "--num-workers", "0")
    assert code == 0


def test_verify_counts_missing_refused_and_surplus_images(rec: Path, folder: Path, run: Run) -> None:
    for path, crops, kind, count in (
        (rec, rec.with_suffix(".crops"), RECORDS, len(IMAGES[::2])),
        (folder, folder / "images.crops", FOLDER, len(IMAGES)),
    ):
        rewrite(crops, kind, {1: "progressive"}, drop=1, add=3)
        code, found = facts(run, path)
        assert (code, found["missing"], found["refused"], found["surplus"]) == (1, 1, 1, 3)
        assert found["entries"] == count - 2


def test_verify_names_an_index_that_cannot_be_used(rec: Path, run: Run) -> None:
    rec.with_suffix(".crops").write_bytes(b"damaged")
    code, _, err = run("verify", rec, "--num-workers", "0")
    assert code == 1
    assert str(rec.with_suffix(".crops")) in err
    rec.with_suffix(".crops").unlink()
    code, out, err = run("verify", rec, "--num-workers", "0")
    assert (code, err) == (0, "")
    assert "crops" not in out


def test_inspect_describes_the_crop_index(rec: Path, folder: Path, run: Run) -> None:
    for path, crops in ((rec, rec.with_suffix(".crops")), (folder, folder / "images.crops")):
        found = inspect(path)
        assert found.crop_indexes is not None
        assert found.crop_indexes.files == 1
        assert found.crop_indexes.entries == found.crop_indexes.images == found.records
        assert found.crop_indexes.nbytes == crops.stat().st_size
        assert 0 < found.crop_indexes.share < 1
        json.dumps(found.facts(), allow_nan=False)
        _, out, _ = run("inspect", path)
        assert f"crop index   {found.records} entries for {found.records} images" in out
        crops.write_bytes(b"damaged")
        _, out, _ = run("inspect", path)
        assert "crop index   the crop index cannot be used" in out
        assert "aioloader index --crops" in out
        crops.unlink()
        _, out, _ = run("inspect", path)
        assert "crop index   no; " in out


def test_inspect_advises_to_index_photographs(photo_rec: Path, rec: Path) -> None:
    found = inspect(photo_rec)
    assert found.images is not None
    assert found.images.indexable > 0.8
    assert any("aioloader index --crops" in line for line in found.advice)
    rec.with_suffix(".crops").unlink()  # crops of these images leave out little
    assert not any("aioloader index --crops" in line for line in inspect(rec).advice)


def test_repair_says_that_the_copy_needs_a_separate_index(rec: Path, run: Run) -> None:
    copy = rec.with_name("copy.rec")
    code, _, err = run("repair", rec, copy)
    assert code == 0
    assert f"aioloader index --crops {copy}" in err
    rec.with_suffix(".crops").unlink()
    assert run("repair", rec, copy)[2] == ""


# -- entries made again ------------------------------------------------------------------------------------------------


def test_entries_that_are_made_again_are_the_same(
    rec: Path, folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioloader.tools.verify.native", object())
    assert check(rec, rebuild=True) == CropCheck(
        str(rec.with_suffix(".crops")), entries=len(IMAGES[::2]), rebuilt=True
    )
    assert check(folder, rebuild=True).entries == len(IMAGES)
    code, out, _ = run("verify", rec, "--decode", "--num-workers", "0")
    assert code == 0
    assert f"{len(IMAGES[::2])} entries, all fit their images and equal those made again" in out


def test_an_entry_with_right_checksums_and_wrong_values_is_found(
    rec: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioloader.tools.verify.native", object())
    crops = rec.with_suffix(".crops")
    rewrite(crops, RECORDS, {1: forged(IMAGES[2][2])})
    assert check(rec).ok
    found = check(rec, rebuild=True)
    assert (found.ok, found.different, found.entries) == (False, 1, len(IMAGES[::2]) - 1)
    code, out, err = run("verify", rec, "--decode", "--num-workers", "0")
    assert code == 1
    assert "entries that differ from those made again: 1\n" in err
    assert f"`aioloader index --crops --remake {rec}`" in out
    assert "wrong pixels" in out


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


def test_without_the_compiled_part_the_other_checks_are_made(
    rec: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioloader.tools.verify.native", None)
    code, out, _ = run("verify", rec, "--decode", "--num-workers", "0")
    assert code == 0
    assert "all fit their images" in out
    assert "the entries were not made again" in out


def test_images_that_cannot_be_read_are_reported(folder: Path, run: Run) -> None:
    first = min(folder.rglob("*.jpg"))
    first.unlink()
    first.symlink_to("nowhere")
    (error,) = check(folder).errors
    assert error.path == str(first)
    code, found = facts(run, folder)
    (reported,) = found["image_errors"]
    assert (code, reported["path"], found["missing"]) == (1, str(first), 0)
    code, _, err = run("verify", folder, "--num-workers", "0")
    assert (code, f"{first}: FileNotFoundError" in err) == (1, True)


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


def test_a_damaged_index_is_reported_once(rec: Path, run: Run, recwarn: pytest.WarningsRecorder) -> None:
    rec.with_suffix(".crops").write_bytes(b"damaged")
    assert run("verify", rec, "--decode", "--num-workers", "0")[0] == 1
    assert not [warning for warning in recwarn if "crop" in str(warning.message)]


def test_images_that_may_be_indexed() -> None:
    image = cv2.resize(np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8), (300, 200))

    def encoded(*flags: int) -> bytes:
        return bytes(cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 95, *flags])[1])

    assert may_be_indexed(encoded())
    assert not may_be_indexed(encoded(cv2.IMWRITE_JPEG_PROGRESSIVE, 1))
    assert not may_be_indexed(encoded(cv2.IMWRITE_JPEG_RST_INTERVAL, 3))
    assert not may_be_indexed(IMAGES[0][1])
