"""Tests of `aioloader index`, `verify`, `repair` and `inspect`: their output and their exit codes."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import recordio
from aioloader.cli import main
from aioloader.foundation.validation import size_text


def _code(*argv: object) -> int:
    """Return the exit code, also if argparse raises SystemExit."""
    try:
        return main([str(word) for word in argv])
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else -1


@pytest.fixture
def rec(photo_rec: Path, tmp_path: Path) -> Path:
    """Copy `photo_rec`, so that a test may damage it."""
    for path in (photo_rec, photo_rec.with_suffix(".idx")):
        shutil.copy(path, tmp_path)
    return tmp_path / photo_rec.name


def _offsets(rec: Path) -> list[int]:
    offsets: list[int] = recordio.Index.open(rec.with_suffix(".idx")).offsets.tolist()
    return offsets


def _spoil(rec: Path, offset: int, data: bytes) -> None:
    with open(rec, "r+b") as file:
        file.seek(offset)
        file.write(data)


def _json(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_verify_decodes_what_the_structure_does_not_show(
    rec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    offset, end = _offsets(rec)[4:6]
    _spoil(rec, end - 1000, bytes(1000))
    assert _code("verify", rec) == 0
    assert _code("verify", rec, "--decode", "--num-workers", "0") == 1
    captured = capsys.readouterr()
    assert f"{rec}: byte {offset}, key 4: " in captured.err
    assert "1 of them damaged" in captured.out
    assert _code("verify", rec, "--decode", "--json", "--num-workers", "0") == 1
    found = _json(capsys)
    (error,) = found["files"][0]["image_errors"]
    assert (found["ok"], found["files"][0]["ok"], found["files"][0]["problems"]) == (False, False, [])
    assert (error["key"], error["offset"], error["stage"]) == (4, offset, "decode")


def test_verify_takes_patterns_and_folders(rec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for ending in (".rec", ".idx"):
        shutil.copy(rec.with_suffix(ending), rec.with_name("other" + ending))
    for words in ((rec.parent,), (rec.parent / "*.rec",), (rec, rec.with_name("other.rec"))):
        assert _code("verify", *words, "--json") == 0
        assert [os.path.basename(each["path"]) for each in sorted(_json(capsys)["files"], key=str)] == [
            "other.rec",
            "photos.rec",
        ]
    _spoil(rec, 0, b"x")
    assert _code("verify", rec.parent) == 1
    assert "other.rec: " in capsys.readouterr().out


def test_verify_decodes_folders_of_images(
    photo_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(photo_folder, folder)
    first = sorted(folder.rglob("*.jpg"))[0]
    first.write_bytes(first.read_bytes()[:-100])
    assert _code("verify", folder, "--decode", "--num-workers", "0") == 1
    assert f"{first}: " in capsys.readouterr().err
    assert _code("verify", folder) == 2
    assert "--decode" in capsys.readouterr().err


@pytest.mark.parametrize("command", [("verify",), ("verify", "--decode"), ("inspect",), ("index",)])
def test_a_folder_of_other_files_is_described(
    command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a.xyz", "b.XYZ", "c", "d.dat"):
        (tmp_path / name).write_bytes(b"hello")
    (tmp_path / "empty").mkdir()
    assert _code(*command, tmp_path) == 1
    found = "a folder without a data set (1 folder, 2 .xyz, 1 without a suffix, 1 .dat): it needs"
    assert found in capsys.readouterr().err


def test_index_of_a_folder_of_images_names_the_option(
    photo_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _code("index", photo_folder) == 2
    assert "is a folder: pass its .rec files, or use --crops" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("nbytes", "text"), [(0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (13_480_230, "13.5 MB")]
)
def test_small_sizes_are_not_zero_megabytes(nbytes: int, text: str) -> None:
    assert size_text(nbytes) == text


def test_verify_does_not_take_other_records_for_images(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with recordio.RecordWriter(tmp_path / "a.rec", index=True) as writer:
        writer.write(b"plain", 0)
    assert _code("verify", tmp_path / "a.rec", "--decode") == 0
    assert "contains no images" in capsys.readouterr().out


def test_header_records_of_faces_are_no_damage(tmp_path: Path, photo_rec: Path) -> None:
    with recordio.RecordReader(photo_rec) as reader:
        image = reader[0]
    with recordio.RecordWriter(tmp_path / "train.rec", index=True) as writer:
        writer.write(recordio.pack((0, [2.0, 3.0], 0, 0), b""), 0)
        writer.write(image, 1)
        writer.write(recordio.pack((0, [1.0, 2.0], 2, 0), b""), 2)
    assert _code("verify", tmp_path / "train.rec", "--decode", "--num-workers", "0") == 0


def test_a_label_that_is_no_number_is_damage(
    tmp_path: Path, photo_rec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with recordio.RecordReader(photo_rec) as reader:
        _, body = recordio.unpack(reader[0])
    with recordio.RecordWriter(tmp_path / "a.rec", index=True) as writer:
        writer.write(recordio.pack((0, 1.0, 0, 0), body), 0)
        writer.write(recordio.pack((0, float("nan"), 1, 0), body), 1)
    assert _code("verify", tmp_path / "a.rec", "--decode", "--num-workers", "0") == 1
    assert "key 1: " in capsys.readouterr().err


def test_wrong_usage_of_verify_is_2(rec: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _code("verify", rec, rec.with_suffix(".idx"), "--index", "x.idx") == 2
    assert _code("verify", rec, "--index", tmp_path / "none.idx") == 2
    assert _code("verify", rec, tmp_path / "none.rec") == 2
    assert _code("verify", tmp_path / "none-*.rec") == 2
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("command", ["verify", "index", "inspect", "repair"])
def test_a_pipe_is_not_waited_for(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    words = (tmp_path / "out.rec",) if command == "repair" else ()
    assert _code(command, tmp_path / "pipe", *words) in (1, 2)
    assert "not a regular file" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pipe"]


def test_repair_reports_what_it_did(rec: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    offsets = _offsets(rec)
    _spoil(rec, offsets[3], b"x")
    lines = rec.with_suffix(".idx").read_text().splitlines(keepends=True)
    del lines[5]
    rec.with_suffix(".idx").write_text("".join(lines))
    out = tmp_path / "out"
    out.mkdir()
    assert _code("repair", rec, out / "copy.rec") == 1
    captured = capsys.readouterr()
    assert f"byte {offsets[3]}" in captured.err
    assert f"{len(offsets) - 1} records written" in captured.out
    assert f"those from byte {offsets[5]} of the source" in captured.out
    assert _code("repair", rec, out / "copy.rec", "--json") == 1
    assert _json(capsys)["keyless"] == [offsets[5]]
    assert _code("repair", out / "copy.rec", out / "again.rec") == 0
    assert (out / "again.rec").read_bytes() == (out / "copy.rec").read_bytes()
    for source, target in (
        (rec, rec),
        (rec, tmp_path / "none" / "x.rec"),
        (tmp_path / "none.rec", out / "x.rec"),
    ):
        assert _code("repair", source, target) == 2


def test_index_refuses_damage_and_its_own_source(rec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    offsets = _offsets(rec)
    assert _code("index", rec, "--out", rec.with_name("new.idx")) == 0
    assert recordio.Index.open(rec.with_name("new.idx")).offsets.tolist() == offsets
    assert _code("index", rec, "--out", rec) == 2
    _spoil(rec, offsets[2], b"x")
    assert _code("index", rec) == 1
    assert f"byte {offsets[2]}" in capsys.readouterr().err


def test_inspect_prints_text_or_json(
    rec: Path, photo_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _code("inspect", rec, "--sample", "5") == 0
    text = capsys.readouterr().out
    assert text.startswith(f"{rec}: packed images\n")
    for word in ("records, ", "classes", "a core decodes", "formats", "jpeg"):
        assert word in text
    assert "  histogram    0: 6, 1: 6" in text
    assert _code("inspect", rec, "--json", "--sample", "5", "--all") == 0
    found = _json(capsys)
    assert (found["kind"], found["images"]["looked_at"]) == ("packed images", 5)
    assert found["labels"]["counts"][0] == [0, 6]
    assert _code("inspect", photo_folder, "--sample", "3") == 0
    assert "image folder" in capsys.readouterr().out
    assert _code("inspect", rec.with_suffix(".idx")) == 1
    assert _code("inspect", rec.with_name("none")) == 2
    assert _code("inspect") == 2
