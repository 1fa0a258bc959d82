"""Tests of making crop indexes: what is in them, and that a run continues an earlier one."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import recordio
from aioloader.cli import main
from aioloader.crop_index import writer
from aioloader.crop_index.layout import folder_key
from aioloader.crop_index.reader import CropIndex
from aioloader.crop_index.writer import fits
from aioloader.errors import CropIndexBusyError, CropIndexWarning
from aioloader.jpeg import crop_scan
from aioloader.tools import crops
from aioloader.tools.crops import CropReport, images_of_folder, index_crops


def _jpeg(seed: int, *flags: int) -> bytes:
    rng = np.random.default_rng(seed)
    image = cv2.resize(rng.integers(0, 256, (40, 60, 3), dtype=np.uint8), (300, 200))
    return bytes(cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 92, *flags])[1])


PROGRESSIVE = _jpeg(100, cv2.IMWRITE_JPEG_PROGRESSIVE, 1)
JPEGS = [_jpeg(seed) for seed in range(10)]


def write_records(path: Path, images: list[bytes]) -> list[int]:
    with recordio.RecordWriter(path) as writer:
        for number, data in enumerate(images):
            writer.write(recordio.pack(recordio.IRHeader(0, 1.0, number, 0), data), number)
    return recordio.Index.open(path.with_suffix(".idx")).offsets.tolist()


def make(*paths: Path, **options: Any) -> list[CropReport]:
    options = {"num_workers": 0, "executor": "inline"} | options
    return index_crops([str(path) for path in paths], **options)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collect the sizes of the images whose entries are made."""
    sizes: list[int] = []
    real = crops.entry_or_reason

    def counted(data: Any) -> bytes | str:
        sizes.append(len(data))
        return real(data)

    monkeypatch.setattr(crops, "entry_or_reason", counted)
    return sizes


@pytest.fixture
def rec(tmp_path: Path) -> Path:
    write_records(tmp_path / "a.rec", [*JPEGS, PROGRESSIVE])
    return tmp_path / "a.rec"


def entries(path: Path) -> dict[int, bytes]:
    index = CropIndex(str(path))
    return {key: bytes(made) for key, _, made in index.images() if not isinstance(made, str)}


def test_every_baseline_jpeg_of_a_record_file_has_an_entry(rec: Path) -> None:
    (report,) = make(rec)
    assert (report.path, report.crops) == (str(rec), str(rec.with_suffix(".crops")))
    assert (report.images, report.indexed, report.kept, report.errors) == (11, 10, 0, [])
    (reason,) = report.refused
    assert "baseline" in reason
    assert report.jpeg_nbytes == sum(map(len, JPEGS))
    assert report.nbytes == os.path.getsize(report.crops)
    assert 0 < report.share < 0.2
    found = entries(Path(report.crops))
    offsets = recordio.Index.open(rec.with_suffix(".idx")).offsets.tolist()
    assert all(fits(found[offset], data) for offset, data in zip(offsets, JPEGS, strict=False))
    assert sorted(found) == offsets[:10]


def test_a_folder_is_indexed_at_any_depth(tmp_path: Path) -> None:
    names = ["a/1.jpg", "a/b/2.JPEG", "3.jpg"]
    for name, data in zip(names, JPEGS, strict=False):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(data)
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    (tmp_path / "notes.txt").write_bytes(b"no image")
    assert [path for path, _ in images_of_folder(str(tmp_path)).items] == [
        str(tmp_path / name) for name in sorted(names)
    ]
    (report,) = make(tmp_path)
    found = entries(tmp_path / "images.crops")
    assert report.indexed == 3
    assert all(fits(found[folder_key(name)], data) for name, data in zip(names, JPEGS, strict=False))


def test_a_second_run_makes_nothing_again(rec: Path, tmp_path: Path, built: list[int]) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    for number, data in enumerate(JPEGS[:4]):
        (folder / f"{number}.jpg").write_bytes(data)
    make(rec, folder)
    before = [path.read_bytes() for path in (rec.with_suffix(".crops"), folder / "images.crops")]
    assert len(built) == 15
    built.clear()
    reports = make(rec, folder)
    assert built == []
    assert [report.kept for report in reports] == [11, 4]
    assert [path.read_bytes() for path in (rec.with_suffix(".crops"), folder / "images.crops")] == before
    make(rec, folder, remake=True)
    assert len(built) == 15
    assert [path.read_bytes() for path in (rec.with_suffix(".crops"), folder / "images.crops")] == before


def test_only_changed_images_are_indexed_again_and_vanished_ones_are_dropped(
    tmp_path: Path, built: list[int]
) -> None:
    paths = [tmp_path / f"{number}.jpg" for number in range(5)]
    for path, data in zip(paths, JPEGS, strict=False):
        path.write_bytes(data)
    make(tmp_path)
    built.clear()
    paths[1].write_bytes(JPEGS[7])
    paths[2].unlink()
    (tmp_path / "new.jpg").write_bytes(JPEGS[8])
    (report,) = make(tmp_path)
    assert built == [len(JPEGS[7]), len(JPEGS[8])]
    assert (report.images, report.kept) == (5, 3)
    found = entries(tmp_path / "images.crops")
    assert folder_key("2.jpg") not in found
    assert fits(found[folder_key("1.jpg")], JPEGS[7])


def test_entries_of_a_rewritten_record_file_are_kept_where_they_fit(rec: Path, built: list[int]) -> None:
    make(rec)
    built.clear()
    write_records(rec, [*JPEGS[:6], JPEGS[7], *JPEGS[:2]])
    (report,) = make(rec)
    assert built == [len(JPEGS[7]), len(JPEGS[0]), len(JPEGS[1])]
    assert (report.images, report.indexed, report.kept) == (9, 9, 6)


def test_records_that_a_new_idx_adds_are_added(rec: Path, built: list[int]) -> None:
    idx = rec.with_suffix(".idx")
    lines = idx.read_text().splitlines(keepends=True)
    idx.write_text("".join(lines[:4]))
    make(rec)
    assert len(built) == 4
    idx.write_text("".join(lines))
    (report,) = make(rec)
    assert len(built) == 11
    assert (report.images, report.kept, report.jpeg_nbytes) == (11, 4, sum(map(len, JPEGS)))


def test_damaged_and_old_entries_of_an_unchanged_record_file_are_made_again(
    rec: Path, built: list[int]
) -> None:
    make(rec)
    crops_file = rec.with_suffix(".crops")
    whole = crops_file.read_bytes()
    first, second, *_ = entries(crops_file).values()
    old = bytes((first[0] - 1,)) + first[1:-4]
    old += zlib.crc32(old).to_bytes(4, "little")
    crops_file.write_bytes(whole.replace(first, old).replace(second, second[:-1] + bytes((second[-1] ^ 1,))))
    built.clear()
    (report,) = make(rec)
    assert built == [len(JPEGS[0]), len(JPEGS[1])]
    assert (report.images, report.kept, report.jpeg_nbytes) == (11, 9, sum(map(len, JPEGS)))
    assert list(entries(crops_file).values())[:2] == [first, second]


def test_an_index_stays_if_no_image_can_be_read(
    rec: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(rec)
    before = rec.with_suffix(".crops").read_bytes()
    offsets = recordio.Index.open(rec.with_suffix(".idx")).offsets.tolist()
    # The index of a.idx, as of a.rec, is a.crops.
    (report,) = make(rec.with_suffix(".idx"))
    assert (report.written, report.images, len(report.errors)) == (False, 0, len(offsets))
    assert main(["index", "--crops", str(rec.with_suffix(".idx")), "--num-workers", "0"]) == 1
    captured = capsys.readouterr()
    assert f"{rec.with_suffix('.crops')}: not written" in captured.out
    assert captured.err.count("\n") >= len(offsets)
    assert "_Records" not in captured.err
    assert rec.with_suffix(".crops").read_bytes() == before
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize("kind", ["records", "folder"])
def test_an_interrupted_run_is_continued(
    kind: str, tmp_path: Path, built: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crops, "_BATCH", 2)
    source = tmp_path / "a.rec"
    if kind == "records":
        write_records(source, JPEGS)
    else:
        source = tmp_path / "images"
        source.mkdir()
        for number, data in enumerate(JPEGS):
            (source / f"{number}.jpg").write_bytes(data)
    (expected,) = make(source, out=tmp_path / "whole.crops")
    built.clear()

    def stop(done: int) -> None:
        if done == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make(source, tick=stop)
    assert not [path for path in tmp_path.rglob("*.crops") if path.name != "whole.crops"]
    again = len(built) - 6
    built.clear()
    (report,) = make(source)
    assert len(built) == 4
    assert again <= 4  # made ahead, and lost
    assert report.kept == 6
    assert Path(report.crops).read_bytes() == Path(expected.crops).read_bytes()


def test_a_killed_run_is_continued(rec: Path, built: list[int]) -> None:
    script = (
        "import os, signal, sys\n"
        "from aioloader.tools import crops\n"
        "crops._BATCH = 2\n"
        "kill = lambda done: os.kill(os.getpid(), signal.SIGKILL) if done >= 6 else None\n"
        "crops.index_crops([sys.argv[1]], num_workers=0, executor='inline', tick=kill)\n"
    )
    assert subprocess.run([sys.executable, "-c", script, str(rec)], check=False).returncode == -9
    (report,) = make(rec)
    assert report.kept >= 6
    assert len(built) == 11 - report.kept
    assert report.indexed == 10


def test_several_files_get_an_index_each(tmp_path: Path) -> None:
    for number in range(3):
        write_records(tmp_path / f"s-{number}.rec", JPEGS[number : number + 3])
    out = tmp_path / "out"
    with pytest.raises(ValueError, match="must be a directory"):
        make(tmp_path / "s-*.rec", out=out)
    out.mkdir()
    reports = make(tmp_path / "s-*.rec", out=out)
    assert [Path(report.crops).name for report in reports] == ["s-0.crops", "s-1.crops", "s-2.crops"]
    assert [report.indexed for report in reports] == [3, 3, 3]
    for number, report in enumerate(reports):
        assert fits(entries(Path(report.crops))[0], JPEGS[number])
    assert [report.kept for report in make(tmp_path, out=out)] == [3, 3, 3]
    assert [path.name for path in out.iterdir() if path.suffix == ".partial"] == []


def test_workers_make_the_same_index(rec: Path, tmp_path: Path) -> None:
    make(rec)
    make(rec, out=tmp_path / "other.crops", executor="process", num_workers=1)
    assert (tmp_path / "other.crops").read_bytes() == rec.with_suffix(".crops").read_bytes()


def test_images_that_cannot_be_read_are_reported_and_the_others_are_indexed(
    rec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    offsets = recordio.Index.open(rec.with_suffix(".idx")).offsets.tolist()
    with open(rec, "r+b") as file:
        file.seek(offsets[3])
        file.write(bytes(8))
    (report,) = make(rec)
    assert (report.images, report.indexed) == (10, 9)
    (error,) = report.errors
    assert (error.path, error.offset) == (str(rec), offsets[3])
    assert main(["index", "--crops", str(rec), "--num-workers", "0"]) == 1
    captured = capsys.readouterr()
    assert f"{rec}" in captured.err
    assert "1 could not be read" in captured.out


def test_records_without_images_are_refused(tmp_path: Path) -> None:
    with recordio.RecordWriter(tmp_path / "a.rec") as writer:
        writer.write(recordio.pack(recordio.IRHeader(2, [1.0, 5.0], 0, 0), b""), 0)
        writer.write(recordio.pack(recordio.IRHeader(0, 1.0, 1, 0), b"no image at all"), 1)
        writer.write(recordio.pack(recordio.IRHeader(2, [1.0, 2.0], 2, 0), JPEGS[0]), 2)
    (report,) = make(tmp_path / "a.rec")
    assert (report.images, report.indexed) == (3, 1)
    assert sum(report.refused.values()) == 2


def test_two_processes_do_not_make_one_index(rec: Path) -> None:
    def again(done: int) -> None:
        with pytest.raises(CropIndexBusyError):
            make(rec)

    make(rec, tick=again)


def test_a_place_that_cannot_be_written_leads_to_out(rec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: object, **options: object) -> None:
        raise PermissionError(errno.EROFS, "Read-only file system", "x")

    monkeypatch.setattr(crops, "CropIndexWriter", refused)
    with pytest.raises(OSError, match="--out") as caught:
        make(rec)
    assert caught.value.errno == errno.EROFS
    assert caught.value.filename == str(rec.with_suffix(".crops"))


def test_an_out_in_a_folder_that_does_not_exist_is_named(rec: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="--out") as caught:
        make(rec, out=tmp_path / "none" / "a.crops")
    assert caught.value.filename == str(tmp_path / "none" / "a.crops")


def test_without_the_compiled_part_a_warning_says_that_it_takes_long(
    rec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make(rec)
    entries = Path(made[0].crops).read_bytes()
    monkeypatch.setattr(writer, "native", None)
    monkeypatch.setattr(crop_scan, "scan_mcus", crop_scan.scan_mcus_in_python)
    with pytest.warns(CropIndexWarning, match="a hundred times as slowly"):
        assert make(rec, remake=True, num_workers=0) == made
    assert Path(made[0].crops).read_bytes() == entries


def test_options_that_do_not_go_together_are_wrong_usage(rec: Path, tmp_path: Path) -> None:
    write_records(tmp_path / "b.rec", JPEGS[:1])
    for words in ([tmp_path, "--out", tmp_path / "one.crops"], [rec, "--out", "s3://bucket/a.crops"]):
        with pytest.raises(SystemExit) as caught:
            main(["index", "--crops", *map(str, words)])
        assert caught.value.code == 2


def test_missing_data_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        make(tmp_path / "none.rec")
    with pytest.raises(FileNotFoundError, match="no images"):
        make(tmp_path)
    with pytest.raises(ValueError, match="local file"):
        make(tmp_path, out="s3://bucket/a.crops")


def test_the_command_reports_in_words_and_as_json(rec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["index", "--crops", str(rec), "--num-workers", "0"]) == 0
    out = capsys.readouterr().out
    assert f"{rec.with_suffix('.crops')}: 10 of 11 images" in out
    assert "1 without an entry: " in out
    assert main(["index", "--crops", str(rec), "--num-workers", "0", "--json"]) == 0
    (facts,) = json.loads(capsys.readouterr().out)["files"]
    assert (facts["images"], facts["indexed"], facts["kept"]) == (11, 10, 11)
    assert main(["index", str(rec)]) == 0  # without --crops as ever
    other = rec.with_name("other.rec")
    other.write_bytes(rec.read_bytes())
    assert main(["index", str(rec), str(other)]) == 0
    assert other.with_suffix(".idx").read_bytes() == rec.with_suffix(".idx").read_bytes()
    for words in (["index", str(rec), str(other), "--out", "a.idx"], ["index", str(rec), "--json"]):
        with pytest.raises(SystemExit) as caught:
            main(words)
        assert caught.value.code == 2
