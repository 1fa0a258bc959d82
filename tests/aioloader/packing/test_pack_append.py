"""Tests of appending to record files: old records stay, keys, lists and classes go on, and nothing is lost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import recordio
from aioloader import ImageRecordDataset
from aioloader.cli import main
from aioloader.packing import run as run_module
from aioloader.tools.pack import pack
from recordio import _partial_files
from tests.aioloader.packing import sample_sets


def folder_of(root: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Return a packed set of two classes."""
    source = folder_of(tmp_path / "old", {"cat/1.jpg": b"c1", "cat/2.jpg": b"c2", "owl/1.jpg": b"o1"})
    return pack(source, tmp_path / "set", pass_through=True).rec


@pytest.fixture
def more(tmp_path: Path) -> Path:
    """Return new images: of a class that is there, and of new ones."""
    return folder_of(tmp_path / "more", {"ant/1.jpg": b"a1", "dog/1.jpg": b"d1", "owl/2.jpg": b"o2"})


def records(rec: Path) -> list[tuple[int, int, bytes]]:
    """Return (key, label, payload) of each record, by a scan, after a check of the index."""
    assert recordio.verify(rec).ok
    return [(header.id, int(header.label), image) for header, image in sample_sets.records(rec)]


def state(folder: Path, stem: str = "set") -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob(f"{stem}*")}


EXPECTED = [(0, 0, b"c1"), (1, 0, b"c2"), (2, 1, b"o1"), (3, 2, b"a1"), (4, 3, b"d1"), (5, 1, b"o2")]


def test_new_records_are_behind_the_old_ones(out: Path, more: Path) -> None:
    before, lines = out.read_bytes(), out.with_suffix(".lst").read_text()
    report = pack(more, out, append=True, pass_through=True)
    assert records(out) == EXPECTED
    assert out.read_bytes().startswith(before)
    assert out.with_suffix(".lst").read_text().startswith(lines)
    assert out.with_suffix(".lst").read_text()[len(lines) :].split() == [
        *("3", "2.000000", "ant/1.jpg"),
        *("4", "3.000000", "dog/1.jpg"),
        *("5", "1.000000", "owl/2.jpg"),
    ]
    assert (report.records, report.classes) == (6, ("cat", "owl", "ant", "dog"))
    assert report.labels == {0.0: 2, 1.0: 2, 2.0: 1, 3.0: 1}
    written = json.loads(out.with_suffix(".json").read_text())
    assert [(each["name"], each["records"]) for each in written["classes"]] == [
        ("cat", 2),
        ("owl", 2),
        ("ant", 1),
        ("dog", 1),
    ]
    assert (written["files"][0]["records"], written["files"][0]["appended"]) == (6, 3)
    assert ImageRecordDataset(out).targets == [0, 0, 1, 2, 3, 1]


def test_appending_again_goes_on(out: Path, more: Path, tmp_path: Path) -> None:
    pack(more, out, append=True, pass_through=True)
    third = folder_of(tmp_path / "third", {"dog/9.jpg": b"d9", "cat/9.jpg": b"c9"})
    pack(third, out, append=True, pass_through=True)
    assert records(out) == [*EXPECTED, (6, 0, b"c9"), (7, 3, b"d9")]


def test_keys_of_a_list_go_on_too(tmp_path: Path) -> None:
    root = folder_of(tmp_path / "photos", {f"{n}.jpg": b"x%d" % n for n in range(4)})
    (tmp_path / "a.lst").write_text("7\t1\t0.jpg\n20\t0\t1.jpg\n")
    (tmp_path / "b.lst").write_text("8\t2\t2.jpg\n30\t1\t3.jpg\n")
    out = tmp_path / "set"
    pack(tmp_path / "a.lst", out, root=root, pass_through=True)
    pack(tmp_path / "b.lst", out, root=root, pass_through=True, append=True)
    assert records(tmp_path / "set.rec") == [(7, 1, b"x0"), (20, 0, b"x1"), (8, 2, b"x2"), (30, 1, b"x3")]
    with pytest.raises(ValueError, match="key 8 already"):
        pack(tmp_path / "b.lst", out, root=root, pass_through=True, append=True)


def test_records_without_a_list_stay_without(out: Path, more: Path) -> None:
    out.with_suffix(".lst").unlink()
    report = pack(more, out, append=True, pass_through=True)
    assert records(out) == EXPECTED
    assert not out.with_suffix(".lst").exists()
    assert report.labels == {}


def test_samples_of_another_format_are_appended(out: Path, tmp_path: Path) -> None:
    source = folder_of(tmp_path / "x", {"k/1.jpg": b"k1"})
    other = pack(source, tmp_path / "other", pass_through=True).rec
    shutil.copy(other, tmp_path / "plain.rec")
    shutil.copy(other.with_suffix(".idx"), tmp_path / "plain.idx")
    pack(tmp_path / "plain.rec", out, append=True, pass_through=True)
    assert records(out)[3:] == [(3, 0, b"k1")]


class Stop(BaseException):
    """Interrupt."""


@pytest.mark.parametrize("at", [1, 2, 3])
def test_an_interrupted_run_leaves_the_old_file_and_goes_on(
    at: int, out: Path, more: Path, tmp_path: Path
) -> None:
    before = state(tmp_path)

    def tick(done: int) -> None:
        if done == at:
            raise Stop

    with pytest.raises(Stop):
        pack(more, out, append=True, pass_through=True, tick=tick, sync_s=0)
    assert {name: data for name, data in state(tmp_path).items() if "partial" not in name} == before
    assert records(out) == EXPECTED[:3]
    resumed: list[int] = []
    pack(
        more,
        out,
        append=True,
        pass_through=True,
        begin=lambda done, count, reason: resumed.append(done),
    )
    assert records(out) == EXPECTED
    assert resumed[0] > 0
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize("renames", [0, 1, 2, 3])
def test_a_run_that_ends_while_it_renames_appends_once(
    renames: int, out: Path, more: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = 0
    replace = Path.replace

    def stopping(self: Path, target: Any) -> Path:
        nonlocal done
        if done == renames:
            raise Stop
        done += 1
        return replace(self, target)

    with monkeypatch.context() as patched:
        patched.setattr(_partial_files.Path, "replace", stopping)
        with pytest.raises(Stop):
            pack(more, out, append=True, pass_through=True)
    pack(more, out, append=True, pass_through=True)
    assert records(out) == EXPECTED
    assert run_module.can_go_on(out) is False


def test_a_failed_run_leaves_nothing(out: Path, tmp_path: Path) -> None:
    before = state(tmp_path)
    bad = folder_of(tmp_path / "bad", {"cat/3.jpg": b"no image"})
    with pytest.raises(ValueError, match="cannot pack"):
        pack(bad, out, append=True, resize=8)
    assert state(tmp_path) == before


def test_what_cannot_be_appended_is_refused(
    out: Path, more: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = state(tmp_path)
    options: dict[str, Any]
    for options, text in (
        ({"shards": 2}, "shards makes several"),
        ({"train_ratio": 0.5}, "train_ratio makes several"),
        ({"test_ratio": 0.5}, "test_ratio makes several"),
    ):
        with pytest.raises(ValueError, match=text):
            pack(more, out, append=True, **options)
    with pytest.raises(FileNotFoundError, match="to append to"):
        pack(more, tmp_path / "none", append=True)
    with pytest.raises(ValueError, match="the list of what is in"):
        pack(out.with_suffix(".lst"), out, append=True, root=tmp_path / "old")
    assert main(["pack", str(more), str(tmp_path / "none"), "--append"]) == 2
    assert "to append to" in capsys.readouterr().err
    assert state(tmp_path) == before
    with pytest.raises(ValueError, match="pack into another URL"):
        pack(more, "s3://bucket/set.rec", append=True)


def test_a_file_without_what_is_needed_is_refused(out: Path, more: Path) -> None:
    fields = out.with_suffix(".fields.jsonl")
    fields.write_text("")
    with pytest.raises(ValueError, match="has fields of its samples"):
        pack(more, out, append=True)
    fields.unlink()
    out.with_suffix(".json").unlink()
    with pytest.raises(ValueError, match="have no names"):
        pack(more, out, append=True)
    out.with_suffix(".idx").write_text("a\t0\n")
    with pytest.raises(ValueError, match="not all numbers"):
        pack(more, out, append=True)
    out.with_suffix(".idx").unlink()
    with pytest.raises(FileNotFoundError, match="has no index"):
        pack(more, out, append=True)
