"""Tests of packing damaged images: their replacements, their limit, and their reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aioloader import DecodeError, SampleError, TooManyErrorsError
from aioloader.cli import main
from aioloader.tools.pack import PackError, PackReport, pack
from tests.aioloader.packing.sample_sets import bodies, records, write_folder


def packed(report: PackReport) -> list[tuple[int, float, str]]:
    """Return key, label and file of every record, compared with the .lst."""
    lines = [line.split("\t") for line in report.lst.read_text().splitlines()]
    assert [(int(key), float(label)) for key, label, _ in lines] == [
        (header.id, header.label) for header, _ in records(report.rec)
    ]
    return [(int(key), float(label), Path(path).stem) for key, label, path in lines]


def test_the_next_valid_image_is_the_replacement_with_its_own_label(tmp_path: Path) -> None:
    source = write_folder(tmp_path / "in", {1, 3, 6, 7})
    report = pack(source, tmp_path / "out", encoding="raw", on_error="replace")
    names = ["000", "002", "002", "004", "004", "005", "000", "000"]
    labels = [0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0]
    assert packed(report) == [(key, labels[key], names[key]) for key in range(8)]
    assert (report.records, report.replaced, report.skipped) == (8, 4, [])
    assert [(error.index, error.replaced_by) for error in report.errors] == [(1, 2), (3, 4), (6, 0), (7, 0)]
    images = bodies(report.rec)
    assert images[1] == images[2]
    assert images[6] == images[7] == images[0]


def test_what_stands_in_depends_on_the_order_alone(tmp_path: Path) -> None:
    source = write_folder(tmp_path / "in", {0, 4, 5}, 12)
    options = {"encoding": "raw", "on_error": "replace", "shuffle": True, "seed": 3}
    one = pack(source, tmp_path / "one", num_workers=1, **options)  # type: ignore[arg-type]
    many = pack(source, tmp_path / "many", num_workers=4, **options)  # type: ignore[arg-type]
    assert one.rec.read_bytes() == many.rec.read_bytes()
    assert {error.index for error in one.errors} == {0, 4, 5}  # places in the folder, not in the mixed order
    assert one.records == 12


def test_every_failure_is_recorded_with_its_cause_and_the_report_is_json(tmp_path: Path) -> None:
    source = write_folder(tmp_path / "in", {2})
    report = pack(source, tmp_path / "out", encoding="raw", on_error="skip")
    (error,) = report.errors
    assert isinstance(error, SampleError)
    assert isinstance(error.__cause__, DecodeError)
    found = json.loads(json.dumps(report.error_report()))
    assert (found["count"], found["by_reason"]) == (1, {"DecodeError": 1})
    (facts,) = found["errors"]
    assert facts["path"] == str(source / "cat" / "002.jpg")
    assert (facts["index"], facts["stage"], facts["replaced_by"]) == (2, "encode", None)
    assert "cannot decode" in facts["reason"]


@pytest.mark.parametrize("policy", ["skip", "replace"])
@pytest.mark.parametrize("limit", [1, 0.2])
def test_too_many_failures_end_it_and_leave_what_was_there(tmp_path: Path, policy: str, limit: float) -> None:
    source = write_folder(tmp_path / "in", {2, 5})
    with pytest.raises(TooManyErrorsError, match=r"2.* samples failed.*00[25]\.jpg") as caught:
        pack(source, tmp_path / "out", encoding="raw", on_error=policy, max_errors=limit)
    assert (caught.value.count, caught.value.samples) == (2, None if limit == 1 else 8)
    assert isinstance(caught.value.__cause__, SampleError)
    assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize("limit", [2, 0.25, None])
def test_as_many_as_are_allowed_may_fail(tmp_path: Path, limit: float | None) -> None:
    source = write_folder(tmp_path / "in", {2, 5})
    assert pack(source, tmp_path / "out", encoding="raw", on_error="skip", max_errors=limit).records == 6


@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_without_a_valid_image_nothing_is_packed(tmp_path: Path, policy: str) -> None:
    source = write_folder(tmp_path / "in", set(range(8)))
    with pytest.raises(PackError, match="none of the 8 images could be packed"):
        pack(source, tmp_path / "out", encoding="raw", on_error=policy)
    assert not list(tmp_path.glob("out*"))


def test_the_command_replaces_reports_and_gives_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_folder(tmp_path / "in", {2, 5})
    listed = tmp_path / "failed.json"
    argv = ["pack", str(source), str(tmp_path / "out"), "--encoding", "raw", "--on-error", "replace"]
    assert main([*argv, "--error-report", str(listed)]) == 0
    captured = capsys.readouterr()
    assert "2 replaced by the next valid image" in captured.out
    assert f"replaced {source / 'cat' / '002.jpg'}: " in captured.err
    assert [error["replaced_by"] for error in json.loads(listed.read_text())["errors"]] == [3, 6]
    again = tmp_path / "again.json"
    assert main([*argv, "--max-errors", "1", "--error-report", str(again)]) == 1
    assert "2 samples failed, more than max_errors=1" in capsys.readouterr().err
    assert [error["path"][-7:] for error in json.loads(again.read_text())["errors"]] == ["002.jpg", "005.jpg"]
    assert main([*argv, "--max-errors", "0.25"]) == 0
    for wrong in ("1.5", "-1", "few"):
        with pytest.raises(SystemExit) as caught:
            main([*argv, f"--max-errors={wrong}"])
        assert caught.value.code == 2
