"""Tests of `python -m recordio`."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from recordio import RecordReader, RecordWriter, pack, testing
from recordio.__main__ import main


@pytest.fixture
def rec(tmp_path: Path) -> Path:
    path = tmp_path / "a.rec"
    with RecordWriter(path, index=True) as writer:
        writer.write(b"plain", 5)
        writer.write(pack((0, 2.0, 7, 0), b"image"), 9)
        writer.write(pack((0, [1, 2], 8, 1), b"image"), 3)
    return path


def damage(path: Path) -> None:
    path.write_bytes(testing.flip(path.read_bytes(), 16))


def test_verify_distinguishes_valid_from_damaged(rec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(rec)]) == 0
    assert capsys.readouterr().out == f"{rec}: 3 records, {rec.stat().st_size} bytes, valid\n"
    damage(rec)
    assert main(["verify", str(rec)]) == 1
    out, err = capsys.readouterr()
    assert "2 records" in out
    assert "byte 16" in err
    assert "keys 9" in err


def test_index_writes_next_to_the_file_or_to_out(
    rec: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["index", str(rec), "--out", str(tmp_path / "x.idx")]) == 0
    assert main(["index", str(rec)]) == 0
    assert (tmp_path / "x.idx").read_bytes() == rec.with_suffix(".idx").read_bytes()
    assert "3 records" in capsys.readouterr().out
    damage(rec)
    assert main(["index", str(rec)]) == 1


def test_dump_lists_records(rec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dump", str(rec)]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert rows[1:] == [
        ["0", "5", "0", "5", "-", "-", "-", "-"],
        ["1", "9", "16", "29", "0", "2.0", "7", "0"],
        ["2", "3", "56", "37", "2", "[1.0, 2.0]", "8", "1"],
    ]
    assert main(["dump", str(rec), "--limit", "1"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_repair_copies_and_reports(rec: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(rec)
    assert main(["repair", str(rec), str(tmp_path / "copy.rec")]) == 1
    assert "2 records written" in capsys.readouterr().out
    assert list(RecordReader(tmp_path / "copy.rec").keys) == [5, 3]
    assert main(["repair", str(rec), str(rec)]) == 2


def test_missing_files_are_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("verify", "index", "dump"):
        assert main([command, str(tmp_path / "no.rec")]) == 2
    assert main(["repair", str(tmp_path / "no.rec"), str(tmp_path / "x.rec")]) == 2
    assert str(tmp_path / "no.rec") in capsys.readouterr().err


def test_it_runs_as_a_module_and_explains_its_exit_codes() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "recordio", "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert "exit codes" in done.stdout
    wrong = subprocess.run(
        [sys.executable, "-m", "recordio", "frob"], capture_output=True, text=True, check=False
    )
    assert wrong.returncode == 2


def test_importing_the_package_imports_nothing_heavy() -> None:
    check = (
        "import sys, recordio\n"
        "heavy = {'cv2', 'anyio', 'aiofiles', 'asyncio', 'trio', 'hypothesis', 'aioloader', 'mxnet'}\n"
        "sys.exit(' '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_interrupt_is_reported_in_one_word(
    rec: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    assert main(["repair", str(rec), str(rec.with_name("b.rec"))]) == 130
    assert capsys.readouterr().err == "interrupted\n"
    assert sorted(path.name for path in rec.parent.iterdir()) == ["a.idx", "a.rec"]


def test_a_full_disk_is_reported_with_the_name_of_the_copy(
    rec: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    assert main(["repair", str(rec), str(rec.with_name("b.rec"))]) == 2
    assert "b.rec" in capsys.readouterr().err
    assert sorted(path.name for path in rec.parent.iterdir()) == ["a.idx", "a.rec"]


def test_an_old_index_is_never_next_to_a_new_copy(rec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = rec.with_name("b.rec")
    copy.with_suffix(".idx").write_text("5\t0\n")
    seen = []
    replace = os.replace

    def watch(source: str, target: str) -> None:
        replace(source, target)
        seen.append((Path(target).name, copy.with_suffix(".idx").exists()))

    monkeypatch.setattr(os, "replace", watch)
    assert main(["repair", str(rec), str(copy)]) == 0
    assert seen == [("b.rec", False), ("b.idx", True)]
