"""Tests of the command line: results on stdout, messages on stderr, one line per error, documented exit codes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import aioloader
import recordio
from aioloader.cli import main

ROOT = Path(__file__).parents[3]


def _code(*argv: str) -> int:
    """Return the exit code, also if argparse raises SystemExit."""
    try:
        return main(argv)
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else -1


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert _code("--version") == 0
    assert capsys.readouterr().out == f"aioloader {aioloader.__version__}\n"


def test_help_names_every_command_and_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert _code("--help") == 0
    text = capsys.readouterr().out
    for word in (
        "demo",
        "bench",
        "pack",
        "view",
        "index",
        "verify",
        "repair",
        "exit codes",
        "130",
        "NO_COLOR",
    ):
        assert word in text


@pytest.mark.parametrize(
    "argv",
    [
        (),
        ("nonsense",),
        ("demo", "--images", "0"),
        ("demo", "--num-workers", "-1"),
        ("demo", "--size", "big"),
        ("bench", "a.rec", "--seconds", "0"),
        ("pack",),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_2(argv: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert _code(*argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "usage: aioloader" in captured.err


@pytest.mark.parametrize(
    ("words", "name", "instead"),
    [
        ("PREFIX ROOT --list --recursive", "--list", "needs no list"),
        ("--recursive=1 PREFIX ROOT", "--recursive", "every sub-folder is one class"),
        ("--num-thread=4 PREFIX ROOT", "--num-thread", "--num-workers"),
        ("--num-thread 4 PREFIX ROOT", "--num-thread", "--num-workers"),
        ("PREFIX ROOT --pack-label", "--pack-label", "all labels"),
        ("PREFIX ROOT --exts .jpg .png", "--exts", "all images"),
        ("PREFIX ROOT --chunks 3", "--chunks", "--shards"),
        ("PREFIX ROOT --no-shuffle", "--no-shuffle", "unless --shuffle"),
    ],
)
def test_switches_of_im2rec_are_explained(
    words: str, name: str, instead: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _code("pack", *words.split()) == 2
    message = capsys.readouterr().err
    assert f"{name} is a switch of MXNet's im2rec.py" in message
    assert instead in message
    assert "python -m aioloader.tools.im2rec PREFIX ROOT" in message


def test_encodings_of_im2rec_are_taken(photo_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a" / "class").mkdir(parents=True)
    shutil.copy(next(photo_folder.rglob("*.jpg")), tmp_path / "a" / "class")
    assert _code("pack", str(tmp_path / "a"), str(tmp_path / "out"), "--encoding", ".png") == 0


@pytest.mark.parametrize("command", ["demo --path", "bench", "pack", "view --export out", "verify", "index"])
def test_a_missing_path_is_2_and_named_in_one_line(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    argv = [*command.split(), "/does/not/exist"] + (["out.rec"] if command == "pack" else [])
    assert _code(*argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "/does/not/exist" in captured.err
    assert len(captured.err.splitlines()) == 1


def test_a_file_of_another_kind_is_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "photo.jpg"
    path.write_bytes(b"")
    assert _code("demo", "--path", str(path)) == 1
    assert "neither a folder nor a .rec file" in capsys.readouterr().err


def test_a_file_without_records_is_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "empty.rec"
    path.write_bytes(b"")
    sheet = tmp_path / "sheet.png"
    assert _code("demo", "--path", str(path), "--out", str(sheet)) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert (
        captured.err
        == f"aioloader: error: {str(path)!r} contains no records, so there is nothing to stream\n"
    )
    assert not sheet.exists()


@pytest.mark.parametrize("command", ["verify", "index", "repair"])
def test_usage_names_the_command_that_was_typed(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _code(command) == 2
    assert _code(command, "--help") == 0
    captured = capsys.readouterr()
    assert captured.err.startswith(f"usage: aioloader {command}")
    assert captured.out.startswith(f"usage: aioloader {command}")
    assert "recordio" not in captured.err + captured.out


def test_pack_then_verify_then_index(
    photo_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "photos.rec")
    assert _code("pack", str(photo_folder), out) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(f"{out}: ")
    assert "packing: 100%" in captured.err
    assert _code("verify", out) == 0
    Path(out).with_suffix(".idx").unlink()
    assert _code("index", out) == 0
    assert Path(out).with_suffix(".idx").exists()


def test_ctrl_c_is_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("aioloader.tools.demo.demo", interrupted)
    assert _code("demo") == 130
    assert capsys.readouterr().err == "aioloader: interrupted\n"


def test_an_error_of_our_own_says_how_to_see_more(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("two\nlines")

    monkeypatch.setattr("aioloader.tools.demo.demo", broken)
    assert _code("demo") == 1
    assert capsys.readouterr().err == "aioloader: error: two lines (AIOLOADER_TRACEBACK=1 shows where)\n"
    monkeypatch.setenv("AIOLOADER_TRACEBACK", "1")
    with pytest.raises(RuntimeError):
        main(["demo"])


def test_demo_streams_measures_and_draws(photo_rec: Path, tmp_path: Path) -> None:
    # In a separate process without the test suite's set-up, and with the documented command.
    sheet = tmp_path / "sheet.png"
    command = [sys.executable, "-m", "aioloader", "demo", "--path", str(photo_rec)]
    command += ["--batch-size", "8", "--size", "64", "--num-workers", "1", "--out", str(sheet)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"},
    )
    assert done.returncode == 0, done.stderr
    records = len(recordio.RecordReader(photo_rec).keys)
    for epoch in range(2):
        assert f"epoch {epoch}: {records} images in " in done.stdout
        assert f"epoch {epoch}: 100% {records}/{records}" in done.stderr
    assert "event loop: " in done.stdout
    assert re.search(" (is|are) the limit", done.stdout)
    _, begin, end = done.stdout.partition(f"- a batch to look at: {sheet}\n")
    assert begin
    for line in (
        f"aioloader inspect {photo_rec} ",
        f"aioloader bench {photo_rec} ",
        f"images({str(photo_rec)!r}, ",
    ):
        assert line in end
    assert "`aioloader --help` lists all commands" in end
    assert "source distribution" not in end  # a wheel has no pages
    assert sheet.read_bytes().startswith(b"\x89PNG")


def test_demo_draws_its_own_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leftovers: object
) -> None:
    from aioloader.tools.demo import demo

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    report = demo(images=20, batch_size=8, epochs=2, size=32, num_workers=0, out=tmp_path / "sheet.png")
    assert [epoch.images for epoch in report.epochs] == [20, 20]
    assert [epoch.batches for epoch in report.epochs] == [3, 3]
    assert all(0 < epoch.first_batch_s <= epoch.seconds for epoch in report.epochs)
    assert report.shape == (32, 32, 3)
    assert report.lag.ticks > 0
    assert [path.name for path in tmp_path.iterdir()] == ["sheet.png"]


def test_a_reader_that_leaves_is_no_error(photo_folder: Path, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "aioloader", "pack", str(photo_folder), str(tmp_path / "out.rec")]
    try:
        done = subprocess.run(
            command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT
        )
    finally:
        os.close(writing)
    assert done.returncode == 0
    assert "Error" not in done.stderr
    assert (tmp_path / "out.rec").exists()


def test_a_damaged_image_is_named_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "class"
    folder.mkdir()
    (folder / "bad.jpg").write_bytes(b"\xff\xd8\xff\xe0 no image")
    assert _code("demo", "--path", str(tmp_path), "--num-workers", "1") == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    last = captured.err.splitlines()[-1]
    assert last.startswith(f"aioloader: error: folder: sample at index 0, path {folder / 'bad.jpg'}")
    assert "TaskGroup" not in captured.err


@pytest.mark.parametrize("offset", [2**64 - 1, 2**64 - 5, 2**63 - 1, 10**29, -5], ids=str)
def test_offsets_beyond_any_file_are_reported_and_mended(
    offset: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rec, idx, copy = (tmp_path / name for name in ("a.rec", "a.idx", "copy.rec"))
    with recordio.RecordWriter(rec) as writer:
        for _ in range(6):
            writer.write(b"x" * 10)
    recordio.build_index(rec)
    whole = idx.read_text()
    lines = whole.splitlines()
    idx.write_text("\n".join([*lines[:3], *(f"{key}\t{offset}" for key in (3, 4, 5))]) + "\n")
    assert _code("verify", str(rec)) == 1
    text = capsys.readouterr().out
    assert "6 records, 120 bytes, 6 problems" in text
    assert _code("inspect", str(rec)) == 0
    assert "damage" in capsys.readouterr().out
    assert _code("repair", str(rec), str(copy)) == 1
    assert len(recordio.RecordReader(copy, index=recordio.Index.scan(copy))) == 6
    assert copy.with_suffix(".idx").read_text().splitlines() == lines[:3]
    aioloader.images(rec)
    assert aioloader.RecordFileDataset(rec)[1] == b"x" * 10
    assert _code("index", str(rec)) == 0
    assert idx.read_text() == whole
