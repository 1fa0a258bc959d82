"""Tests of splits and shards: every image is in exactly one file, at its place, for all ratios."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from aioloader import DataLoader, ImageRecordDataset
from aioloader.cli import main
from aioloader.packing.options import PackOptions
from aioloader.packing.run import Plan, make_plan
from aioloader.tools.pack import PackReport, list_images, pack
from tests.aioloader.packing.sample_sets import bodies, records, write_folder
from tests.cases import with_cases

OUT = Path("set.rec")


def members(plan: Plan) -> dict[str, list[int]]:
    """Return the images of each part, in order, after a check that its files cover it."""
    found: dict[str, list[int]] = {}
    place = 0
    for output in plan.outputs:
        assert output.start == place < output.stop
        place = output.stop
        found.setdefault(output.part, []).extend(plan.order[output.start : output.stop].tolist())
    assert place == len(plan.order)
    return found


@given(
    count=st.integers(1, 300),
    seed=st.integers(0, 2**64 - 1),
    shuffle=st.booleans(),
    train=st.none() | st.floats(0.05, 0.95),
    test=st.none() | st.floats(0.05, 0.95),
    shards=st.none() | st.integers(1, 9),
)
def test_every_image_is_in_one_place(
    count: int, seed: int, shuffle: bool, train: float | None, test: float | None, shards: int | None
) -> None:
    options: dict[str, Any] = {"train_ratio": train, "test_ratio": test, "shards": shards, "seed": seed}
    try:
        plan = make_plan(count, OUT, PackOptions(shuffle=shuffle, **options))
    except ValueError:
        assume(False)
    found = members(plan)
    assert sorted(np.concatenate(list(found.values())).tolist()) == list(range(count))
    if train is not None:
        assert len(found["train"]) >= int(count * train)
        assert abs(len(found["train"]) - count * train) <= 2
    if test is not None:
        assert len(found["test"]) == int(count * test)
    assert set(found) <= {"", "train", "test", "val"}
    sizes = [output.stop - output.start for output in plan.outputs]
    if shards is not None:
        assert len(sizes) == shards * len(found)
        for number in range(len(found)):
            each = sizes[number * shards : (number + 1) * shards]
            assert sorted(each, reverse=True) == each
            assert max(each) - min(each) <= 1
    # The assignment to parts does not depend on the order within them.
    other = members(make_plan(count, OUT, PackOptions(shuffle=not shuffle, **options)))
    assert {part: sorted(each) for part, each in found.items()} == {
        p: sorted(each) for p, each in other.items()
    }
    if not shuffle:
        assert all(each == sorted(each) for each in found.values())


@with_cases(
    ("options", "names"),
    [
        ({}, ["set"]),
        ({"shards": 1}, ["set-00000-of-00001"]),
        ({"shards": 2}, ["set-00000-of-00002", "set-00001-of-00002"]),
        ({"train_ratio": 0.5}, ["set_train", "set_val"]),
        ({"test_ratio": 0.5}, ["set_test", "set_train"]),
        ({"train_ratio": 0.5, "test_ratio": 0.5}, ["set_test", "set_train"]),
        ({"train_ratio": 0.5, "test_ratio": 0.2}, ["set_test", "set_train", "set_val"]),
        (
            {"train_ratio": 0.5, "shards": 2},
            [f"set_{part}-0000{n}-of-00002" for part in ("train", "val") for n in (0, 1)],
        ),
    ],
)
def test_names_of_files(options: dict[str, Any], names: list[str]) -> None:
    plan = make_plan(10, OUT, PackOptions(**options))
    assert [output.rec.name for output in plan.outputs] == [f"{name}.rec" for name in names]
    assert [output.idx and output.idx.name for output in plan.outputs] == [f"{name}.idx" for name in names]


def test_shards_of_parts_hold_every_image_once_and_read_back_as_one(tmp_path: Path) -> None:
    source = write_folder(tmp_path / "in", set(), 40)
    report = pack(source, tmp_path / "set", train_ratio=0.7, test_ratio=0.1, shards=3)
    wanted = sorted(path.read_bytes() for path, _ in list_images(source)[1])
    for file in report.files:
        assert file.records == len(file.lst.read_text().splitlines())  # type: ignore[union-attr]
        assert file.nbytes == file.rec.stat().st_size
    assert sorted(body for file in report.files for body in bodies(file.rec)) == wanted
    assert (report.records, report.labels) == (40, {0.0: 20, 1.0: 20})
    # The shards of a part are numbered consecutively.
    parts = sorted(tmp_path.glob("set_train-*.rec"))
    assert [header.id for place in parts for header, _ in records(place)] == list(range(28))
    dataset = ImageRecordDataset(tmp_path / "set_train-*.rec")
    assert len(dataset) == 28
    labels: list[int] = []
    with DataLoader(dataset, 8, num_workers=0) as loader:
        for _, found in loader:
            labels += found.tolist()
    lines = [
        line.split("\t")
        for place in sorted(tmp_path.glob("set_train-*.lst"))
        for line in place.read_text().splitlines()
    ]
    assert labels == [int(float(label)) for _, label, _ in lines]


def test_a_replacement_never_comes_from_another_part(tmp_path: Path) -> None:
    source = write_folder(tmp_path / "in", set(), 40)
    options: dict[str, Any] = {"encoding": "raw", "train_ratio": 0.5, "test_ratio": 0.25, "shards": 2}

    def names_of(report: PackReport, part: str) -> list[str]:
        lists = [file.lst.read_text() for file in report.files if file.part == part and file.lst]
        return [line.split("\t")[2] for text in lists for line in text.splitlines()]

    whole = pack(source, tmp_path / "whole", **options)
    parts = {part: names_of(whole, part) for part in ("train", "test", "val")}
    # The first images of each part wait for a later one, the last ones have none but earlier ones.
    bad = {name for names in parts.values() for name in (*names[:2], names[5], *names[-2:])}
    for name in bad:
        (source / name).write_bytes(b"no image")
    report = pack(source, tmp_path / "set", on_error="replace", **options)
    for part, names in parts.items():
        files = [file for file in report.files if file.part == part]
        assert [file.records for file in files] == [len(names) // 2, len(names) // 2]
        assert set(names_of(report, part)) == {*names} - bad
    assert report.replaced == len(bad) == 15
    skipped = pack(source, tmp_path / "few", on_error="skip", **options)
    assert skipped.records == 25
    assert sum(skipped.labels.values()) == 25


def test_the_command_names_every_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_folder(tmp_path / "in", set(), 40)
    words = ["pack", str(source), str(tmp_path / "set"), "--train-ratio", "0.5", "--shards", "8", "--shuffle"]
    assert main(words) == 0
    told = capsys.readouterr().out
    assert f"16 files in {tmp_path}: 40 records of 2 classes" in told
    assert "set_train-00000-of-00008.rec: 3 records" in told
    assert "and 4 more, see " in told
    found = json.loads((tmp_path / "set.json").read_text())
    assert [file["part"] for file in found["files"]] == ["train"] * 8 + ["val"] * 8
    assert sum(file["records"] for file in found["files"]) == found["records"] == 40


def test_files_of_an_output_without_a_folder_are_in_the_current_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_folder(tmp_path / "in", set(), 4)
    monkeypatch.chdir(tmp_path)
    assert main(["pack", str(source), "set", "--shards", "2"]) == 0
    assert "2 files in .: 4 records" in capsys.readouterr().out


def test_classes_that_training_does_not_have_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_folder(tmp_path / "in", set(), 12)
    image = (source / "cat" / "000.jpg").read_bytes()
    for name in "abcdef":
        (source / name).mkdir()
        (source / name / "1.jpg").write_bytes(image)
    words = ["pack", str(source), str(tmp_path / "set"), "--train-ratio", "0.5"]
    assert main(words) == 0
    told = capsys.readouterr().err
    report = json.loads((tmp_path / "set.json").read_text())
    lines = (tmp_path / "set_train.lst").read_text().splitlines()
    trained = {int(float(line.split("\t")[1])) for line in lines}
    names = [each["name"] for each in report["classes"] if each["label"] not in trained]
    assert names
    assert (
        f"{len(names)} classes of the part val have no image in the part train ({', '.join(names)})" in told
    )

    assert main(["pack", str(source), str(tmp_path / "one"), "--shards", "2"]) == 0
    assert "part train" not in capsys.readouterr().err
