"""Tests of the published figures: no figure is outside of the run, and the pages follow from its results file."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import publish
from benchmarks.figures import costs, plain_tables, ratios, spread, value_text, write_figures
from benchmarks.measurement import taken
from benchmarks.published_pages import ROOT, fill_page, render_tables, write_pages
from benchmarks.published_parts import PARTS, Part
from benchmarks.published_results import Published, compact, latest, restore, revision
from benchmarks.published_tables import NOT_DONE, OTHERWISE, SLOWER, judged, missed, summary
from benchmarks.results import summarise
from tests.benchmarks.test_report import INDEXED, RECORDS, measured

RUN: dict[str, Any] = {"kind": "run"}
FACTS = {"machine": {"cpu": "A CPU", "system": "Linux 6", "python": "3.11"}, "cores": [0, 1]}
WINDOWS = {
    "window": "1,024",
    "stretches in 1,000": 15.62,
    "moved": 0.33,
    "neighbours, %": 99.9,
    "classes of a batch": 17.1,
    "again, in 1,000": 13.12,
}


def _part(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"command": PARTS[name].command, "date": "2026-01-01", "seconds": 1.0, "rows": rows}


def _copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "README.md", tmp_path)
    return tmp_path


def test_the_pages_are_those_of_the_results_file(tmp_path: Path) -> None:
    path = latest()
    published = None if path is None else Published(path)
    facts, parts = (published.facts, published.parts) if published else ({}, {})
    assert write_pages(facts, parts, _copy(tmp_path)) == [], "run python -m benchmarks.publish --pages"


def test_each_mark_of_a_page_is_known_and_each_part_has_a_page() -> None:
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md")]
    marks = [mark for text in pages for mark in re.findall(r"<!-- figures: (\S+) -->", text)]
    assert sorted(marks) == ["cpu", "executors", "missed", "resume-proof", "summary"]
    assert sum(text.count("<!-- end of figures -->") for text in pages) == len(marks)


def test_a_run_becomes_tables_plots_and_a_summary(tmp_path: Path) -> None:
    root = _copy(tmp_path)
    found = {**_part("photographs", []), **compact(summarise(INDEXED))}
    again = {**_part("raw-area", []), **compact(summarise([RUN, *measured("ffcv", "", [2.0], "raw-area")]))}
    parts = {name: json.loads(json.dumps(found)) for name in ("photographs", "loaders")} | {"raw-area": again}
    changed = write_pages(FACTS, parts, root)
    assert {path.name for path in changed} == {
        "README.md",
        "benchmarks-tables.md",
        "benchmarks.md",
        "executors.md",
    }
    tables = (root / "docs" / "benchmarks-tables.md").read_text()
    assert tables.count("\n## jpeg-uint8: ") == 1
    assert "\n## raw-area: " not in tables  # its part has a heading
    assert "## Packing" not in tables
    page = (root / "docs" / "benchmarks.md").read_text()
    line, cpu = (line for line in page.splitlines() if line.startswith("| photographs, random resi"))
    assert " | 1.50 | " in line
    assert cpu.count(" | ") == line.count(" | ")
    assert "| with a crop index | 2,600 images/s | 1.73 | 2.00 | " in page
    assert "1.50" in (root / "docs" / "images" / "benchmarks" / "jpeg-uint8.svg").read_text()
    assert write_pages(FACTS, parts, root) == []


def test_results_are_kept_whole() -> None:
    results = summarise(RECORDS)
    again = restore(json.loads(json.dumps(compact(results))))
    for row, kept in zip(results.rows, again.rows, strict=True):
        for name in ("title", "case", "status", "notes"):
            assert getattr(kept, name) == getattr(row, name)
        assert kept.rounds == pytest.approx(row.rounds, rel=1e-4)
        assert kept.rate == (None if row.rate is None else pytest.approx(row.rate, rel=1e-4))


def test_a_peer_that_is_slower_than_expected_is_not_in_the_summary() -> None:
    photographs = [
        *measured("aioloader", "process", [1616.0]),
        *measured("bare_loop", "", [1616.0]),
        *measured("tf_data", "", [500.0]),
        *measured("grain", "", [1200.0]),
        *measured("ffcv", "", [1000.0]),
    ]
    parts = {"loaders": {**_part("loaders", []), **compact(summarise([RUN, *photographs]))}}
    (line,) = summary(judged(parts)[0])[2:]
    work = "photographs, random resized crop 224, not antialiased"
    start = f"| {work} | 1,616 images/s | 1.00 | {SLOWER} | 1.35 | {NOT_DONE} | 1.62{OTHERWISE} |"
    assert line.startswith(start)


def test_the_cpu_time_stands_next_to_the_rate_and_in_the_cells_of_the_ratios() -> None:
    photographs = [
        *measured("aioloader", "process", [1600.0], cpu_s=1.6),
        *measured("bare_loop", "", [1000.0]),
        *measured("grain", "", [1000.0]),
        *measured("ffcv", "", [500.0]),
        *measured("dali", "", [700.0], cpu_s=None),  # as in a results file that does not have it
        *measured("mxnet", "gluon", [250.0]),
        *measured("mxnet", "ImageRecordIter", [500.0], cpu_s=1.0),
    ]
    parts = {"loaders": {**_part("loaders", []), **compact(summarise([RUN, *photographs]))}}
    parts = json.loads(json.dumps(parts))
    (line,) = summary(judged(parts)[0], cpu=True)[2:]
    _, _, ours, bare, tf_data, grain, dali, ffcv, *_, mxnet, _ = line.split("|")
    cells = [cell.strip() for cell in (ours, bare, tf_data, grain, dali, ffcv, mxnet)]
    assert cells == ["1,000", "2,000", NOT_DONE, "2,000", "", f"4,000{OTHERWISE}", "2,000"]
    page = render_tables(FACTS, parts)
    assert "| contender | setting | images/s | CPU, µs a sample |" in page
    assert "| dali | workers 2 | 700 |  |" in page


def test_cpu_time_of_a_way_includes_its_processes() -> None:
    def burn() -> int:
        subprocess.run([sys.executable, "-c", "sum(range(3_000_000))"], check=True)
        return 4

    rate, cpu_s = taken(burn)
    assert rate > 0
    assert cpu_s * 4 >= 0.01
    assert costs([(2.0, 0.5), (4.0, 0.25), (3.0, 1e-3)], "torch", "a sample") == {
        "torch, samples/s": [3.0, 2.0, 4.0],
        "torch, CPU, µs a sample": [250_000.0, 1000.0, 500_000.0],
    }


def test_rows_become_a_section() -> None:
    parts = {name: _part(name, [WINDOWS]) for name in ("packing", "windows")}
    tables = render_tables(FACTS, parts)
    assert "    python -m benchmarks.windows\n\nRandomness of `RandomSampler(shuffle_window=...)`" in tables
    assert "| 1,024 | 15.6 |" in tables
    assert tables.index("## Packing") < tables.index("## Shuffle windows")


def test_a_marked_part_of_a_page_is_filled_again() -> None:
    parts = {"loaders": {**_part("loaders", []), **compact(summarise(RECORDS))}}
    page = "before\n\n<!-- figures: executors -->\n\n| old |\n\n<!-- end of figures -->\n\nafter\n"
    filled = fill_page(page, parts)
    assert "|  | process | thread | inline |" in filled
    assert "old" not in filled
    assert filled.startswith("before\n")
    assert filled.endswith("\nafter\n")
    assert fill_page(filled, parts) == filled
    assert fill_page(page, {}) == page


def test_resumes_are_shown_with_the_batch_of_all_ranks_kept() -> None:
    rows = [
        {"contender": "webdataset", "batch": batch, "2 → 2": "1 once", "4 → 3": cell, "draws kept": "2 of 3"}
        for batch, cell in (("60 of all ranks", "4 lost"), ("12 of a rank", "5 lost"))
    ]
    page = "<!-- figures: resume-proof -->\n<!-- end of figures -->\n"
    assert "| WebDataset | 1 once | 4 lost |  | 5 lost | 2 of 3 |" in fill_page(
        page, {"resume-proof": _part("resume-proof", rows)}
    )
    assert fill_page(page, {}) == page


def test_a_case_that_was_measured_again_is_judged_and_shown_by_that_run() -> None:
    both = ("aioloader", "process"), ("ffcv", "")
    runs = [
        [
            RUN,
            *(
                record
                for each, rate in zip(both, rates, strict=True)
                for record in measured(*each, [rate], "raw-area")
            ),
        ]
        for rates in ((300.0, 100.0), (120.0, 100.0))
    ]
    parts = {
        name: {**_part(name, []), **compact(summarise(run))}
        for name, run in zip(("loaders", "raw-area"), runs, strict=True)
    }
    results, (outcome,) = judged(parts)
    assert outcome.found == pytest.approx((1.2, 1.2, 1.2))
    (line,) = summary(results)[2:]
    assert " | 1.20 | " in line
    assert missed([outcome], parts)[2:] == ["| raw-area | times ffcv | 1.50x | 1.20x |"]


def test_targets_of_other_parts_are_listed_where_they_were_missed() -> None:
    rows = [{"part": "faults", "data": "payloads", "to the clean run": [0.84, 0.8, 0.9]}]
    assert missed([], {"remote-faults": _part("remote-faults", rows)})[2:] == (
        ["| remote-faults | times the same without faults | 0.85x | 0.84x |"]
    )
    tars = {
        "loader": "aioloader",
        "format": "tar",
        "times": "webdataset",
        "whole epoch": [0.4, 0.3, 0.5],
        "target": 3.0,
    }
    assert missed([], {"remote-formats": _part("remote-formats", [tars])})[2:] == (
        ["| remote-formats | tar, times WebDataset | 3.00x | 0.40x |"]
    )
    rows[0]["to the clean run"] = [0.85, 0.8, 0.9]
    assert missed([], {"remote-faults": _part("remote-faults", rows)})[2:] == []


def test_a_new_day_begins_with_the_parts_of_the_same_machine(tmp_path: Path) -> None:
    facts = {"machine": "a", "data": "b"}
    first = Published(tmp_path / "2026-01-01.json", facts)
    first.add("windows", _part("windows", [WINDOWS]))
    assert list(Published(tmp_path / "2026-01-02.json", facts).parts) == ["windows"]
    assert Published(tmp_path / "2026-01-02.json", {**facts, "machine": "c"}).parts == {}


def test_the_revision_says_whether_files_differ_from_it(tmp_path: Path) -> None:
    assert revision(tmp_path) == ""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    (tmp_path / "aioloader").mkdir()
    (tmp_path / "aioloader" / "a.py").write_text("")
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "a"]):
        subprocess.run([*git, *words], check=True)
    clean = revision(tmp_path)
    assert re.fullmatch("[0-9a-f]{12}", clean)
    (tmp_path / "aioloader" / "a.py").write_text("a = 1\n")
    assert revision(tmp_path) == f"{clean}+"
    page = render_tables(FACTS, {"windows": {**_part("windows", [WINDOWS]), "revision": clean}})
    assert f"Revision of the code: `{clean}`." in page


def test_figures_are_written_with_five_digits(tmp_path: Path) -> None:
    rows = [{"way": "a", "rate": spread([1.0, 3.0, 2.0]), "ratio": ratios([1.0], [3.0]), "n": 123_456_789}]
    write_figures(tmp_path / "rows.json", rows)
    write_figures(None, rows)
    (row,) = json.loads((tmp_path / "rows.json").read_text())
    assert row == {"way": "a", "rate": [2.0, 1.0, 3.0], "ratio": [0.33333] * 3, "n": 123_456_789}
    assert list(plain_tables([row, {"way": "b"}])) == [
        "| way | rate | ratio | n |",
        "| --- | --- | --- | --- |",
        "| a | 2.00 (1.00 to 3.00) | 0.33 | 123,456,789 |",
        "| b |  |  |  |",
        "",
    ]
    assert [value_text(value) for value in (None, "x", 5, 0.0123, 12.34, 1234.5)] == [
        *("", "x", "5", "0.012", "12.3", "1,234"),
    ]


def test_a_run_is_continued_and_names_what_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    parts = {
        "windows": Part("windows", "Shuffle windows", "benchmarks.windows", 1),
        "broken": Part("broken", "Broken", "benchmarks.windows --wrong", 1, smoke="--wrong"),
    }
    commands = []

    def call(command: list[str]) -> int:
        commands.append(command[1:])
        if "--wrong" in command:
            return 2
        Path(command[-1]).write_text(json.dumps([WINDOWS]))
        return 0

    monkeypatch.setattr(publish, "PARTS", parts)
    monkeypatch.setattr(publish, "call", call)
    words = ["--smoke", "--scratch", str(tmp_path), "--date", "2026-01-01"]
    path = tmp_path / "2026-01-01" / "results" / "2026-01-01.json"
    assert publish.main(words) == 1
    assert "failed: broken" in capfd.readouterr().err
    assert commands[0][:4] == ["-m", "benchmarks.windows", "--smoke", "--json"]
    content = json.loads(path.read_text())
    assert list(content["parts"]) == ["windows"]
    assert content["parts"]["windows"]["command"] == "python -m benchmarks.windows"
    assert content["parts"]["windows"]["rows"] == [WINDOWS]
    assert content["parts"]["windows"]["revision"] == revision()
    assert content["versions"]["numpy"]
    assert publish.main([*words, "--parts", "windows"]) == 0
    assert "0 of 1 parts" in capfd.readouterr().out
    assert publish.main([*words, "--parts", "windows", "--again"]) == 0
    assert len(commands) == 3
    content["machine"] = {"cpu": "another"}
    path.write_text(json.dumps(content))
    assert publish.main(words) == 2
    assert "has another machine" in capfd.readouterr().err


def test_the_list_names_each_part_with_its_estimate(capsys: pytest.CaptureFixture[str]) -> None:
    assert publish.main(["--list", "--date", "1999-01-01"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [*PARTS, "together"]
    assert publish.main(["--parts", "nothing"]) == 2
    assert publish.main(["--parts", "fill", "--date", "1999-01-01"]) == 2  # a folder is missing


NEEDS = {"viewing": "uvicorn", "torch-adapter": "torch", "recipes": "torchvision"}
# Those that .ci/run starts, or that need a server, are left out; the runs and the soak have tests.
ELSEWHERE = {"main-job", "image-service", "small-images", "soak"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        name
        for name, part in PARTS.items()
        if not (part.is_run or name in ELSEWHERE or name.startswith("remote"))
    ],
)
def test_a_part_writes_its_figures_and_the_pages(name: str, tmp_path: Path) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    root = _copy(tmp_path / "site")
    words = ["--smoke", "--scratch", str(tmp_path), "--pages-root", str(root)]
    assert publish.main([*words, "--parts", name]) == 0
    tables = root / "docs" / "benchmarks-tables.md"
    written = tables.read_text()
    assert f"## {PARTS[name].title}\n" in written
    tables.write_text("")
    assert publish.main([*words, "--pages", "--results", str(next(tmp_path.glob("*-*-*/results")))]) == 0
    assert tables.read_text() == written
