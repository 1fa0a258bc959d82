"""Tests of `python -m recordio`."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from recordio import RecordReader, RecordWriter, pack, testing
from recordio.__main__ import main


@pytest.fixture
def rec(tmp_path):
    path = tmp_path / "a.rec"
    with RecordWriter(path, index=True) as writer:
        writer.write(b"plain", 5)
        writer.write(pack((0, 2.0, 7, 0), b"image"), 9)
        writer.write(pack((0, [1, 2], 8, 1), b"image"), 3)
    return path


def damage(path):
    path.write_bytes(testing.flip(path.read_bytes(), 16))


def test_verify_distinguishes_valid_from_damaged(rec, capsys):
    assert main(["verify", str(rec)]) == 0
    assert capsys.readouterr().out == f"{rec}: 3 records, {rec.stat().st_size} bytes, valid\n"
    damage(rec)
    assert main(["verify", str(rec)]) == 1
    out, err = capsys.readouterr()
    assert "2 records" in out
    assert "byte 16" in err
    assert "keys 9" in err


def test_index_writes_next_to_the_file_or_to_out(rec, tmp_path, capsys):
    assert main(["index", str(rec), "--out", str(tmp_path / "x.idx")]) == 0
    assert main(["index", str(rec)]) == 0
    assert (tmp_path / "x.idx").read_bytes() == rec.with_suffix(".idx").read_bytes()
    assert "3 records" in capsys.readouterr().out
    damage(rec)
    assert main(["index", str(rec)]) == 1


def test_dump_lists_records(rec, capsys):
    assert main(["dump", str(rec)]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert rows[1:] == [
        ["0", "5", "0", "5", "-", "-", "-", "-"],
        ["1", "9", "16", "29", "0", "2.0", "7", "0"],
        ["2", "3", "56", "37", "2", "[1.0, 2.0]", "8", "1"],
    ]
    assert main(["dump", str(rec), "--limit", "1"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_repair_copies_and_reports(rec, tmp_path, capsys):
    damage(rec)
    assert main(["repair", str(rec), str(tmp_path / "copy.rec")]) == 1
    assert "2 records written" in capsys.readouterr().out
    assert list(RecordReader(tmp_path / "copy.rec").keys) == [5, 3]
    assert main(["repair", str(rec), str(rec)]) == 2


def test_missing_files_are_exit_code_2(tmp_path, capsys):
    for command in ("verify", "index", "dump"):
        assert main([command, str(tmp_path / "no.rec")]) == 2
    assert main(["repair", str(tmp_path / "no.rec"), str(tmp_path / "x.rec")]) == 2
    assert str(tmp_path / "no.rec") in capsys.readouterr().err


def test_exit_codes_are_explained(capsys):
    for words, status in ((["--help"], 0), (["frob"], 2)):
        with pytest.raises(SystemExit) as caught:
            main(words)
        assert caught.value.code == status
    assert "exit codes" in capsys.readouterr().out


def test_it_runs_as_a_module_and_imports_nothing_heavy():
    check = (
        "import sys, recordio, runpy\n"
        "heavy = {'cv2', 'anyio', 'aiofiles', 'asyncio', 'trio', 'hypothesis', 'aioloader', 'mxnet'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "assert recordio.aio.AsyncRecordReader.__name__ == 'AsyncRecordReader'\n"
        "sys.argv = ['recordio', 'frob']\n"
        "runpy.run_module('recordio', run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr


def test_an_interrupt_is_reported_in_one_word(rec, monkeypatch, capsys):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    assert main(["repair", str(rec), str(rec.with_name("b.rec"))]) == 130
    assert capsys.readouterr().err == "interrupted\n"
    assert sorted(path.name for path in rec.parent.iterdir()) == ["a.idx", "a.rec"]


def test_a_full_disk_is_reported_with_the_name_of_the_copy(rec, monkeypatch, capsys):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    assert main(["repair", str(rec), str(rec.with_name("b.rec"))]) == 2
    assert "b.rec" in capsys.readouterr().err
    assert sorted(path.name for path in rec.parent.iterdir()) == ["a.idx", "a.rec"]


def test_an_old_index_is_never_next_to_a_new_copy(rec, monkeypatch):
    copy = rec.with_name("b.rec")
    copy.with_suffix(".idx").write_text("5\t0\n")
    seen = []
    replace = os.replace

    def watch(source, target):
        replace(source, target)
        seen.append((Path(target).name, copy.with_suffix(".idx").exists()))

    monkeypatch.setattr(os, "replace", watch)
    assert main(["repair", str(rec), str(copy)]) == 0
    assert seen == [("b.rec", False), ("b.idx", True)]
