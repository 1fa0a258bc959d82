"""Tests of exported pages: complete, with working links, and never overwriting a user's files."""

from __future__ import annotations

import os
import re
import shutil
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import pytest

from aioloader.cli import main
from aioloader.tools.pack import pack
from aioloader.tools.view import open_collection
from aioloader.viewer.site import Options

pytest.importorskip("jinja2", reason="`aioloader view` needs pip install 'aioloader[view]'")

from aioloader.viewer.export import MARK, export
from tests.aioloader.format_sets import FORMATS
from tests.cases import with_cases

pytestmark = pytest.mark.usefixtures("own_cache")


def links(page: Path) -> set[str]:
    return {
        unquote(unescape(each)) for each in re.findall(r'(?:href|src)="([^"]*)"', page.read_text("utf-8"))
    }


@pytest.mark.parametrize(
    ("name", "records", "count"),
    [
        ("damaged.rec", 14, 60),
        ("boxes.rec", 6, 6),
        ("faces", 12, 12),
        ("folder", 14, 32),
        ("empty.rec", 0, 0),
        *(pytest.param(each.id, 6, 60, marks=each.marks) for each in FORMATS),
    ],
)
def test_every_link_of_an_export_leads_to_a_file(
    sets: Path, tmp_path: Path, name: str, records: int, count: int
) -> None:
    out = tmp_path / "out"
    options = Options(per_page=4, size=32)
    seen: list[tuple[int, int]] = []
    report = export(
        open_collection(sets / name),
        options,
        out,
        limit=6 if records == 6 else 14,
        tick=lambda *told: seen.append(told),
    )
    assert (report.records, report.count, report.start) == (records, count, str(out / "index.html"))
    assert seen == [(done, records) for done in range(1, records + 1)]
    assert report.nbytes == sum(p.stat().st_size for p in out.rglob("*") if p.is_file() and p.name != MARK)
    pages = sorted(out.glob("*.html"))
    assert len([page for page in pages if re.fullmatch(r"record-\d+\.html", page.name)]) == records
    reached = {"index.html"}
    for page in pages:
        assert "<script" not in page.read_text("utf-8")
        assert "<form" not in page.read_text("utf-8")
        for link in links(page):
            if not link.startswith("#"):
                assert not re.match(r"/|\w+:|\.\.", link), link
                assert (out / link).is_file(), (page, link)
                reached.add(link)
    everything = {p.relative_to(out).as_posix() for p in out.rglob("*") if p.is_file()}
    assert everything - reached == {MARK}
    assert not list(tmp_path.glob(".out*"))


def test_a_former_export_is_replaced_as_a_whole(sets: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(open_collection(sets / "plain.rec"), Options(size=32), out, limit=5)
    assert (out / "record-4.html").exists()
    export(open_collection(sets / "plain.rec"), Options(size=32), out, limit=2)
    assert not (out / "record-4.html").exists()
    assert [path.name for path in tmp_path.iterdir() if path.name != "cache"] == ["out"]


def test_what_is_no_export_is_left_alone(sets: Path, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "mine.txt").write_text("mine")
    file = tmp_path / "file"
    file.write_text("mine")
    link = tmp_path / "link"
    link.symlink_to(full)
    for place in (full, file, link):
        with pytest.raises(FileExistsError):
            export(open_collection(sets / "plain.rec"), Options(), place, limit=1)
    assert [path.name for path in full.iterdir()] == ["mine.txt"]
    assert file.read_text() == "mine"


def test_a_failure_leaves_the_former_export(sets: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(open_collection(sets / "plain.rec"), Options(size=32), out, limit=1)

    def fails(done: int, total: int) -> None:
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        export(open_collection(sets / "plain.rec"), Options(size=32), out, limit=3, tick=fails)
    assert (out / "record-0.html").exists()
    assert not list(tmp_path.glob(".out*"))


def test_the_command_exports(sets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    words = ["view", str(sets / "plain.rec"), "--export", str(out), "--limit", "3", "--size", "32"]
    assert main(words) == 0
    assert re.fullmatch(
        rf"{re.escape(str(out))}/index.html: 3 of 60 records, [\d.]+ kB\n", capsys.readouterr().out
    )
    assert main(["view", str(tmp_path / "nothing"), "--export", str(out)]) == 2
    assert main(["view", str(sets / "plain.rec"), "--export", str(tmp_path)]) == 1
    assert "contains files that are not an earlier export" in capsys.readouterr().err


@with_cases("option", ["--host=0.0.0.0", "--port=-1", "--port=70000", "--per-page=0", "--limit=x"])
def test_wrong_usage_is_2(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        main(["view", "a.rec", option])
    assert leaving.value.code == 2
    assert "usage: aioloader" in capsys.readouterr().err


def test_an_index_that_cannot_be_read_is_one_error(
    sets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rec = tmp_path / "a.rec"
    rec.write_bytes((sets / "plain.rec").read_bytes())
    rec.with_suffix(".idx").write_text("0\tnowhere\n")
    assert main(["view", str(rec), "--export", str(tmp_path / "out")]) == 1
    assert "a.idx, line 1: the offset is not an integer" in capsys.readouterr().err
    rec.with_suffix(".idx").write_text("")
    assert main(["view", str(rec), "--export", str(tmp_path / "out")]) == 1
    assert "the index is empty" in capsys.readouterr().err


def test_names_that_are_not_utf8_are_shown_with_escapes(sets: Path, tmp_path: Path) -> None:
    """A name of a file, of a class and of the folder itself may be any bytes on Linux."""
    root = os.fsencode(tmp_path) + b"/caf\xe9"
    for place, name in enumerate((b"caf\xe9", b"\xff\xfe")):
        os.makedirs(root + b"/" + name)
        image = sorted((sets / "folder").rglob("*.jpg"))[place]
        shutil.copy(image, os.fsdecode(root + b"/" + name + b"/a\xe9.jpg"))
    out = tmp_path / "out"
    report = export(open_collection(Path(os.fsdecode(root))), Options(size=32), out, limit=9)
    assert report.records == 2
    page = (out / "record-0.html").read_text("utf-8")
    assert "a\\xe9.jpg" in page
    assert "caf\\xe9" in (out / "labels.html").read_text("utf-8")
    assert "\\xff\\xfe" in (out / "labels.html").read_text("utf-8")
    for each in out.glob("*.html"):
        for link in links(each):
            assert (out / link.partition("#")[0]).exists()


def test_classes_and_files_of_a_record_file_are_shown_with_escapes_too(sets: Path, tmp_path: Path) -> None:
    """The packing report names the classes; a problem names the file."""
    root = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    folder = os.path.join(root, "images", os.fsdecode(b"\xff\xfe"))
    os.makedirs(folder)
    shutil.copy(min((sets / "folder").rglob("*.jpg")), os.path.join(folder, os.fsdecode(b"a\xe9.jpg")))
    rec = Path(root, os.fsdecode(b"packed\xff.rec"))
    pack(os.path.join(root, "images"), os.path.splitext(rec)[0], encoding="keep", num_workers=1)
    out = tmp_path / "out"
    for damaged in (False, True):
        if damaged:
            rec.with_suffix(".idx").unlink()
            with open(rec, "ab") as file:
                file.write(b"\xff" * 8)
        report = export(open_collection(rec), Options(size=32), out, limit=9)
        assert report.records == 1 + damaged  # the damaged place is shown as a record
        grid = (out / "index.html").read_text("utf-8")
        assert "\\xff\\xfe" in grid
        assert "packed\\xff.rec" in grid
        assert ("damaged at byte" in grid) == damaged
