"""Tests of `aioloader verify` and `inspect` on data with a crop index."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aioloader.cli import main
from aioloader.crop_index.layout import FOLDER, RECORDS
from aioloader.crop_index.reader import CropIndex
from aioloader.crop_index.writer import CropIndexWriter
from aioloader.formats.inspection import may_be_indexed
from aioloader.tools.inspect import inspect
from tests.aioloader.crop_index.samples import IMAGES, spoil_entries, write_image_folder, write_record_files


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def facts(capsys: pytest.CaptureFixture[str], path: Path) -> tuple[int, Any]:
    code, out, _ = run(capsys, "verify", path, "--num-workers", "0", "--json")
    (found,) = json.loads(out)["files"]
    assert found["ok"] is (code == 0)
    return code, found["crop_index"]


def rewritten(path: Path, kind: int, *, drop: int, refuse: int = 0, add: int = 0) -> None:
    """Write an index again without some of its images, and with some that do not exist."""
    images = list(CropIndex(str(path)).images())
    kept = [(key, nbytes, bytes(entry)) for key, nbytes, entry in images if not isinstance(entry, str)][drop:]
    writer = CropIndexWriter(path, kind=kind)
    for key, nbytes, entry in kept[refuse:]:
        writer.put(key, nbytes, entry)
    for key, nbytes, _ in kept[:refuse]:
        writer.refuse(key, nbytes, "progressive")
    for number in range(add):
        writer.put(2**60 + number, 10, b"entry")
    writer.finish()


@pytest.fixture
def rec(tmp_path: Path) -> Path:
    return write_record_files(tmp_path)[0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "images").mkdir()
    return write_image_folder(tmp_path / "images")


def test_verify_checks_the_crop_index_of_a_record_file(rec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    count = len(IMAGES[::2])
    code, out, err = run(capsys, "verify", rec, "--num-workers", "0")
    assert (code, err) == (0, "")
    assert f"{rec.with_suffix('.crops')}: {count} entries, all fit their images" in out
    spoil_entries(rec.parent)
    code, out, err = run(capsys, "verify", rec, "--num-workers", "0")
    assert code == 1
    assert f"damaged entries: {count}\n" in err
    assert f"`aioloader index --crops {rec}`" in out


def test_verify_checks_the_crop_index_of_a_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = facts(capsys, folder)
    assert (code, found["entries"]) == (0, len(IMAGES))
    first, second = sorted(folder.rglob("*.jpg"))[:2]
    first.write_bytes(second.read_bytes())
    code, found = facts(capsys, folder)
    assert (code, found["entries"], found["stale"], found["damaged"]) == (1, len(IMAGES) - 1, 1, 0)
    first.unlink()
    code, found = facts(capsys, folder)
    assert (code, found["stale"], found["surplus"]) == (0, 0, 1)
    code, _, _ = run(capsys, "verify", folder, "--decode", "--num-workers", "0")
    assert code == 0


def test_verify_counts_missing_refused_and_surplus_images(
    rec: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path, crops, kind, count in (
        (rec, rec.with_suffix(".crops"), RECORDS, len(IMAGES[::2])),
        (folder, folder / "images.crops", FOLDER, len(IMAGES)),
    ):
        rewritten(crops, kind, drop=1, refuse=1, add=3)
        code, found = facts(capsys, path)
        assert (code, found["missing"], found["refused"], found["surplus"]) == (1, 1, 1, 3)
        assert found["entries"] == count - 2
        rewritten(crops, kind, drop=0)


def test_verify_names_an_index_that_cannot_be_used(rec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rec.with_suffix(".crops").write_bytes(b"damaged")
    code, _, err = run(capsys, "verify", rec, "--num-workers", "0")
    assert code == 1
    assert str(rec.with_suffix(".crops")) in err
    rec.with_suffix(".crops").unlink()
    code, out, err = run(capsys, "verify", rec, "--num-workers", "0")
    assert (code, err) == (0, "")
    assert "crops" not in out


def test_inspect_describes_the_crop_index(
    rec: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path, crops in ((rec, rec.with_suffix(".crops")), (folder, folder / "images.crops")):
        found = inspect(path)
        assert found.crop_indexes is not None
        assert found.crop_indexes.files == 1
        assert found.crop_indexes.entries == found.crop_indexes.images == found.records
        assert found.crop_indexes.nbytes == crops.stat().st_size
        assert 0 < found.crop_indexes.share < 1
        json.dumps(found.facts(), allow_nan=False)
        _, out, _ = run(capsys, "inspect", path)
        assert f"crop index   {found.records} entries for {found.records} images" in out
        crops.write_bytes(b"damaged")
        _, out, _ = run(capsys, "inspect", path)
        assert "crop index   the crop index cannot be used" in out
        assert "aioloader index --crops" in out
        crops.unlink()
        _, out, _ = run(capsys, "inspect", path)
        assert "crop index   no; " in out


def test_inspect_advises_to_index_photographs(photo_rec: Path, rec: Path) -> None:
    found = inspect(photo_rec)
    assert found.images is not None
    assert found.images.indexable > 0.8
    assert any("aioloader index --crops" in line for line in found.advice)
    rec.with_suffix(".crops").unlink()  # crops of these images leave out little
    assert not any("aioloader index --crops" in line for line in inspect(rec).advice)


@pytest.mark.parametrize("numba", [True, False])
def test_inspect_says_how_to_install_the_maker_where_it_is_missing(
    photo_rec: Path, monkeypatch: pytest.MonkeyPatch, numba: bool
) -> None:
    monkeypatch.setattr("aioloader.tools.inspect.can_build", lambda: numba)
    (advice,) = (line for line in inspect(photo_rec).advice if "aioloader index --crops" in line)
    assert ("(`pip install 'aioloader[crops]'`, then `aioloader index" in advice) == (not numba)


def test_repair_says_that_the_copy_needs_a_separate_index(
    rec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = rec.with_name("copy.rec")
    code, _, err = run(capsys, "repair", rec, copy)
    assert code == 0
    assert f"aioloader index --crops {copy}" in err
    rec.with_suffix(".crops").unlink()
    assert run(capsys, "repair", rec, copy)[2] == ""


def test_images_that_may_be_indexed() -> None:
    import cv2
    import numpy as np

    image = cv2.resize(np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8), (300, 200))

    def encoded(*flags: int) -> bytes:
        return bytes(cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 95, *flags])[1])

    assert may_be_indexed(encoded())
    assert not may_be_indexed(encoded(cv2.IMWRITE_JPEG_PROGRESSIVE, 1))
    assert not may_be_indexed(encoded(cv2.IMWRITE_JPEG_RST_INTERVAL, 3))
    assert not may_be_indexed(IMAGES[0][1])
