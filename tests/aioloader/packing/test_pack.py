"""Tests of packing a folder: bytes unchanged, labels by sorted class, and never a half-written .rec."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import recordio
from aioloader.cli import main
from aioloader.packing.lists import read_lines
from aioloader.tools.pack import list_images, pack
from tests.aioloader.packing.sample_sets import records


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "source"
    for name, content in {
        "b/2.jpg": b"b2",
        "b/deep/1.JPEG": b"deep",
        "a/x.png": b"\xce\xd7\x23\x0a in the payload",
        "b/notes.txt": b"no image",
        "b/.hidden.jpg": b"no",
        "a/.checkpoints/x.png": b"no",
        ".git/c.jpg": b"no",
        "outside.jpg": b"no",
    }.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return root


def test_records_are_the_files_in_sorted_order(folder: Path, tmp_path: Path) -> None:
    report = pack(folder, tmp_path / "out" / "set.rec")
    assert [(header.label, header.id, payload) for header, payload in records(report.rec)] == [
        (0, 0, b"\xce\xd7\x23\x0a in the payload"),
        (1, 1, b"b2"),
        (1, 2, b"deep"),
    ]
    assert (
        report.lst.read_text() == "0\t0.000000\ta/x.png\n1\t1.000000\tb/2.jpg\n2\t1.000000\tb/deep/1.JPEG\n"
    )
    assert (report.records, report.classes) == (3, ("a", "b"))
    assert (report.outside, report.empty) == (1, ())
    assert report.nbytes == report.rec.stat().st_size
    assert recordio.verify(report.rec).ok


def test_the_ending_is_added(folder: Path, tmp_path: Path) -> None:
    assert pack(folder, tmp_path / "set.v2").rec == tmp_path / "set.v2.rec"
    assert sorted(p.name for p in tmp_path.glob("set*")) == [
        f"set.v2.{ending}" for ending in ("idx", "json", "lst", "rec")
    ]


def test_what_is_not_packed_is_reported(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "annotations").mkdir()
    assert pack(folder, tmp_path / "set").empty == ("annotations",)
    assert main(["pack", str(folder), str(tmp_path / "set")]) == 0
    told = capsys.readouterr().out
    assert "1 outside the classes' folders" in told
    assert "1 classes without images: annotations" in told


def test_names_that_are_no_text_are_listed(tmp_path: Path) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    name = os.fsdecode(b"caf\xe9.jpg")
    try:
        (folder / name).write_bytes(b"any")
    except OSError:
        pytest.skip("this file system refuses such names")
    report = pack(folder, tmp_path / "set")
    assert report.lst.read_bytes() == b"0\t0.000000\tcaf\xe9.jpg\n"
    assert [image.path for image in read_lines(str(report.lst), lambda *bad: pytest.fail(str(bad)))] == [name]


@pytest.mark.parametrize("name", ["a\tb.jpg", "a\nb.jpg"])
def test_names_that_a_list_cannot_hold_are_refused(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "source"
    folder.mkdir()
    try:
        (folder / name).write_bytes(b"any")
    except OSError:
        pytest.skip("this file system refuses such names")
    with pytest.raises(ValueError, match="rename the file"):
        pack(folder, tmp_path / "set")
    assert list(tmp_path.iterdir()) == [folder]


def test_a_folder_without_classes_has_one_label(tmp_path: Path) -> None:
    (tmp_path / "b.jpg").write_bytes(b"b")
    (tmp_path / "a.jpg").write_bytes(b"a")
    (tmp_path / "empty").mkdir()
    assert list_images(tmp_path) == ((), [(tmp_path / "a.jpg", 0), (tmp_path / "b.jpg", 0)])


def test_a_failure_leaves_what_was_there(folder: Path, tmp_path: Path) -> None:
    report = pack(folder, tmp_path / "set.rec")
    assert report.json is not None
    before = {path: path.read_bytes() for path in (report.rec, report.idx, report.lst, report.json)}

    def tick(done: int) -> None:
        if done == 2:
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        pack(folder, tmp_path / "set.rec", tick=tick)
    assert {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


def test_no_moment_shows_a_new_rec_with_an_old_index(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = pack(folder, tmp_path / "set.rec")
    old_index = report.idx.read_bytes()
    (folder / "a" / "a.jpg").write_bytes(b"one more")
    moments = []

    def watch(original: Callable[..., object]) -> Callable[..., object]:
        def wrapped(self: Path, *args: object, **options: object) -> object:
            done = original(self, *args, **options)
            moments.append(
                (report.rec.read_bytes(), report.idx.read_bytes() if report.idx.exists() else None)
            )
            return done

        return wrapped

    old_rec = report.rec.read_bytes()
    for name in ("replace", "unlink"):
        monkeypatch.setattr(Path, name, watch(getattr(Path, name)))
    pack(folder, tmp_path / "set.rec")
    assert moments
    assert not [1 for rec, idx in moments if (rec != old_rec) and idx == old_index]


def test_a_folder_without_images_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="an empty folder"):
        pack(tmp_path, tmp_path / "out.rec")
    with pytest.raises(FileNotFoundError, match="there is no file or folder"):
        pack(tmp_path / "missing", tmp_path / "out.rec")
    assert list(tmp_path.iterdir()) == []
