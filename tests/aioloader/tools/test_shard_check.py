"""Tests of checking shards, with a format of the tests: faults, samples, labels and the bounds of a report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg

from aioloader.datasets.shard_dataset import ShardDataset
from aioloader.errors import MissingFieldError, SampleFormatError
from aioloader.tools import verify as shard_check
from aioloader.tools.verify import ImageCheck, check_samples, check_shard
from tests.aioloader.datasets.toy_shards import LENGTHS, ToyDataset, toy_sample, write_shard

PICTURE: bytes = simplejpeg.encode_jpeg(np.full((16, 16, 3), 7, np.uint8))
OPTIONS: dict[str, Any] = {"num_workers": 0, "executor": "inline"}


def checked(tmp_path: Path, *samples: bytes, **options: Any) -> ImageCheck:
    path = write_shard(tmp_path / "a.toy", samples)
    (found,) = check_samples(ToyDataset(path, crop_index=None, **options), **OPTIONS)
    return found


def reasons(found: ImageCheck) -> dict[int, str]:
    return {error.index: error.reason for error in found.errors}


def test_faults_of_the_structure_are_reported(tmp_path: Path) -> None:
    damaged = LENGTHS.pack(3, 0) + b"{{{"
    paths = [
        write_shard(tmp_path / "a.toy", [toy_sample(label=1), damaged, toy_sample(label=2)]),
        write_shard(tmp_path / "b.toy", [toy_sample(label=1), b"cut"]),
        write_shard(tmp_path / "c.toy", [toy_sample(label=1)]),
    ]
    dataset = ToyDataset(paths)
    ticks: list[int] = []
    first, second, third = (check_shard(dataset, number, tick=ticks.append) for number in range(3))
    assert (first.ok, first.samples, first.nbytes) == (False, 2, paths[0].stat().st_size)
    (problem,) = first.facts()["problems"]
    assert (problem["offset"], problem["key"]) == (len(toy_sample(label=1)), "1")
    assert first.lines() == [str(first.faults[0])]
    assert first.summary().endswith("2 samples, 51 bytes, 1 problem")
    assert (second.ok, second.samples) == (False, 0)
    assert (third.ok, third.facts()["problems"], third.further) == (True, [], 0)
    assert third.summary().endswith("valid")
    assert ticks == [51, 20]
    assert json.dumps([each.facts() for each in (first, second, third)])
    fine, why = dataset.openable()
    assert fine == [0, 2]
    assert "ends inside a sample" in why[1]


def test_of_many_faults_the_first_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_check, "_MOST_FAULTS", 3)
    path = write_shard(tmp_path / "a.toy", [LENGTHS.pack(1, 0) + b"{"] * 10)
    report = check_shard(ToyDataset(path), 0)
    assert ([fault.key for fault in report.faults], report.further) == (["0", "1", "2"], 7)
    assert report.facts()["further_problems"] == 7
    assert report.lines()[-1].endswith("7 further problems")
    assert "10 problems" in report.summary()


def test_a_format_that_cannot_be_checked_is_named(tmp_path: Path) -> None:
    class Other(ToyDataset):
        check_shard = ShardDataset.check_shard

    with pytest.raises(ValueError, match="Other cannot be checked"):
        check_shard(Other(write_shard(tmp_path / "a.toy", [])), 0)


def test_every_field_of_every_sample_is_checked(tmp_path: Path) -> None:
    good = {"label": 1, "a.json": "[1]", "b.txt": "text", "c.cls": "7"}
    found = checked(
        tmp_path,
        toy_sample(PICTURE, **good),
        toy_sample(PICTURE[:100], **good),
        toy_sample(PICTURE, **good | {"a.json": "[1"}),
        toy_sample(PICTURE, **good | {"b.txt": "\xff"}),
        toy_sample(PICTURE, **good | {"c.cls": "seven"}),
        toy_sample(PICTURE, **good | {"label": float("nan")}),
        toy_sample(PICTURE, **good | {"label": "cat"}),
        toy_sample(PICTURE, **good),
    )
    assert found.images == 8
    why = reasons(found)
    assert sorted(why) == [1, 2, 3, 4, 5, 6]
    for place, text in (
        (2, "'a.json'"),
        (3, "'b.txt'"),
        (4, "'c.cls'"),
        (5, "not a finite number"),
        (6, "not a label"),
    ):
        assert text in why[place]
    assert [error.key for error in found.errors] == ["1", "2", "3", "4", "5", "6"]


def test_a_field_that_others_have_may_not_be_missing(tmp_path: Path) -> None:
    found = checked(tmp_path, toy_sample(PICTURE, label=1), toy_sample(PICTURE), toy_sample(label=3))
    assert sorted(reasons(found)) == [1, 2]
    causes = [error.__cause__ for error in found.errors]
    assert [cause.field for cause in causes if isinstance(cause, MissingFieldError)] == ["label", "image"]


def test_fields_that_no_sample_has_are_not_required(tmp_path: Path) -> None:
    found = checked(tmp_path, toy_sample(PICTURE, caption=1), toy_sample(PICTURE, caption=2))
    assert (found.images, found.errors) == (2, [])
    found = checked(tmp_path, toy_sample(text=1), toy_sample(text=2))
    assert (found.images, found.errors) == (0, [])
    found = checked(tmp_path)
    assert (found.images, found.errors) == (0, [])


@pytest.mark.parametrize("executor", ["inline", "process"])
def test_results_are_those_of_their_shards(tmp_path: Path, executor: str) -> None:
    paths = [
        write_shard(tmp_path / f"{number}.toy", [toy_sample(PICTURE, label=n) for n in range(count)])
        for number, count in enumerate((100, 0, 3))
    ]
    write_shard(paths[2], [toy_sample(PICTURE, label=1), toy_sample(b"no image", label=2)])
    ticks: list[int] = []
    found = check_samples(
        ToyDataset(paths, crop_index=None),
        num_workers=0 if executor == "inline" else 1,
        executor=executor,
        tick=ticks.append,
    )
    assert [(each.images, len(each.errors)) for each in found] == [(100, 0), (0, 0), (2, 1)]
    assert found[2].errors[0].path == str(paths[2])
    assert ticks[-1] == 102


def test_samples_with_wrong_lengths_are_faults(tmp_path: Path) -> None:
    path = write_shard(tmp_path / "a.toy", [toy_sample(PICTURE, label=1), toy_sample(PICTURE, label=2)])
    dataset = ToyDataset(path, crop_index=None)
    offset = dataset.location(1).offset
    assert offset is not None
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)
    (found,) = check_samples(dataset, **OPTIONS)
    assert found.images == 2
    assert isinstance(found.errors[0].__cause__, SampleFormatError)
