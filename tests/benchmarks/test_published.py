"""Tests of the published figures: no figure is outside of the run, and the pages follow from its results file."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from benchmarks import publish
from benchmarks.figures import plain_tables, ratios, spread, value_text, write_figures
from benchmarks.published_figures import NOT_OF_THE_RUN, PRINTED, find_figures, places_of
from benchmarks.published_pages import ROOT, fill_page, render_tables, write_pages
from benchmarks.published_parts import PARTS, Part
from benchmarks.published_results import Published, compact, latest, restore, revision
from benchmarks.published_tables import (
    NOT_DONE,
    OTHERWISE,
    SLOWER,
    TABLES,
    missed,
    summary,
)
from benchmarks.report_tables import KeptSettings, read_case_tables, read_rows
from benchmarks.results import summarise
from tests.benchmarks.test_report import INDEXED, RECORDS

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


def test_each_printed_figure_has_its_part_of_the_run() -> None:
    found = list(find_figures(ROOT))
    assert len(found) > 50
    unnamed = [str(figure) for figure in found if not figure.part]
    assert not unnamed, "name their parts in benchmarks/published_figures.py:\n" + "\n".join(unnamed)
    known = {*PARTS, *NOT_OF_THE_RUN}
    assert {figure.part for figure in found} <= known
    assert {part for patterns in PRINTED.values() for _, part in patterns} <= known


def test_each_pattern_names_the_part_of_some_line() -> None:
    unused = [
        (page, word)
        for page, patterns in PRINTED.items()
        for pattern, _ in patterns
        for word in re.split(r"(?<!\\)\|(?![^(]*\))", pattern)
        if not any(re.search(word, place) for place, found in places_of(ROOT, page) if found == pattern)
    ]
    assert unused == []


def test_no_page_waits_for_a_figure() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert [path.name for path in pages if re.search(r"\bXX\b", path.read_text(encoding="utf-8"))] == []


def test_each_mark_of_a_page_is_known_and_each_table_has_a_page() -> None:
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md")]
    marks = [mark for text in pages for mark in re.findall(r"<!-- figures: (\S+) -->", text)]
    assert sorted(marks) == sorted({*TABLES, "summary", "missed"})
    assert sum(text.count("<!-- end of figures -->") for text in pages) == len(marks)
    assert {part for parts, _ in TABLES.values() for part in parts} <= set(PARTS)


def test_the_pages_are_those_of_the_results_file(tmp_path: Path) -> None:
    path = latest()
    published = None if path is None else Published(path)
    facts, parts = (published.facts, published.parts) if published else ({}, {})
    assert write_pages(facts, parts, _copy(tmp_path)) == [], "run python -m benchmarks.publish --pages"


def test_a_run_becomes_tables_plots_a_summary_and_settings(tmp_path: Path) -> None:
    root = _copy(tmp_path)
    found = {**_part("photographs", []), **compact(summarise(INDEXED))}
    parts = {name: json.loads(json.dumps(found)) for name in ("photographs", "loaders")}
    changed = write_pages(FACTS, parts, root)
    assert {path.name for path in changed} == {"benchmarks-tables.md", "benchmarks.md", "executors.md"}
    tables = (root / "docs" / "benchmarks-tables.md").read_text()
    cases = {case.case: case for case in read_case_tables(tables)}
    assert "jpeg-uint8" in cases
    assert "eval" not in cases
    line = next(
        line for line in summary(tables) if line.startswith("| photographs, random") and "not" in line
    )
    assert " | 1.50 | " in line
    indexed = next(line for line in summary(tables) if line.startswith("| with a crop index"))
    assert " | 2.00 | " in indexed
    assert line in (root / "docs" / "benchmarks.md").read_text()
    assert "1.50" in (root / "docs" / "images" / "benchmarks" / "jpeg-uint8.svg").read_text()
    kept = KeptSettings(root / "docs" / "benchmarks-tables.md")
    assert kept.find("jpeg-uint8", "aioloader/process", {}, [{"workers": 2, "threads": 0}]) is not None
    assert "## Packing" in tables, "sections of parts that were not measured stay"
    assert write_pages(FACTS, parts, root) == []


def test_results_are_kept_whole() -> None:
    results = summarise(RECORDS)
    again = restore(json.loads(json.dumps(compact(results))))
    for row, kept in zip(results.rows, again.rows, strict=True):
        assert (kept.title, kept.case, kept.status, kept.notes) == (
            row.title,
            row.case,
            row.status,
            row.notes,
        )
        assert kept.rounds == pytest.approx(row.rounds, rel=1e-4)
        assert (kept.rate is None) == (row.rate is None)
        if row.rate is not None:
            assert kept.rate == pytest.approx(row.rate, rel=1e-4)


def test_a_peer_that_is_slower_than_expected_is_not_in_the_summary() -> None:
    text = (
        "\n## jpeg-uint8: photographs\n\n"
        "| contender | setting | images/s | resize | of the bare loop | aioloader is |\n"
        "| --- | --- | --- | --- | --- | --- |\n"
        "| **aioloader/process** |  | 1,500 | bilinear | 1.00 |  |\n"
        "| tf_data [1] |  | 500 | bilinear | 0.33 | 3.00 (2.00 to 4.00)x |\n"
        "| grain |  | 1,000 | bilinear | 0.67 | 1.50 (1.40 to 1.60)x |\n"
        "| ffcv |  | 1,000 | area | 0.67 | 1.50 (1.40 to 1.60)x |\n\n"
        "[1] below the expected rate: 0.33 of the bare loop  \n\n## Targets\n"
    )
    (line,) = summary(text)[2:]
    work = "photographs, random resized crop 224, not antialiased"
    start = f"| {work} | 1,500 images/s | 1.00 | {SLOWER} | 1.50 | {NOT_DONE} | 1.50{OTHERWISE} |"
    assert line.startswith(start)


def test_rows_become_a_section_and_a_table_of_a_page() -> None:
    parts = {"windows": _part("windows", [WINDOWS])}
    tables = render_tables("<!-- part: packing -->\n\n## Packing\n\nkept\n", FACTS, parts)
    assert "    python -m benchmarks.windows\n" in tables
    assert "| 1,024 | 15.6 |" in tables
    assert tables.index("## Packing") < tables.index("## Shuffle windows")
    page = "before\n\n<!-- figures: windows -->\n\n| old |\n\n<!-- end of figures -->\n\nafter\n"
    filled = fill_page(page, parts, tables)
    assert "| 1,024 | 15.6 | 99.9 % | 17 | 13.12 in 1,000 |" in filled
    assert "old" not in filled
    assert filled.startswith("before\n")
    assert filled.endswith("\nafter\n")
    assert fill_page(filled, parts, tables) == filled
    assert fill_page(page, {}, tables) == page


def test_a_case_that_was_measured_again_is_judged_and_shown_by_that_run() -> None:
    published = Published(latest() or Path())
    tables = (ROOT / "docs" / "benchmarks-tables.md").read_text(encoding="utf-8")
    rounds = {row["name"]: row["rounds"] for row in published.parts["raw-area"]["rows"] if "rounds" in row}
    ratio = median(rate / rounds["ffcv"][number] for number, rate in rounds["aioloader"].items())
    assert len(rounds["ffcv"]) == 5
    (target,) = (row for row in read_rows(tables, "Targets") if row[0] == "raw-area")
    assert target[4].startswith(f"{ratio:.2f}x (")
    (line,) = (line for line in summary(tables) if "resized by area" in line)
    assert f" | {ratio:.2f} | " in line


def test_the_gain_of_a_crop_index_is_that_within_rounds() -> None:
    tables = (ROOT / "docs" / "benchmarks-tables.md").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "crop-index.md").read_text(encoding="utf-8")
    for case, text in (
        ("jpeg-antialias", "{} times as fast with"),
        ("jpeg-uint8", "{} times\nwithout antialiasing"),
        ("jpeg-float32", "{} times with the same"),
        ("large", "{} times with crops of 512"),
    ):
        (table,) = (each for each in read_case_tables(tables) if each.case == case)
        best = next(row for row in table.rows if row["aioloader is"] == "" and row["with crop index"])
        assert text.format(f"{float(best['with crop index'].partition(' ')[0]):.1f}") in page


def test_targets_of_other_parts_are_listed_where_they_were_missed() -> None:
    rows = [{"part": "faults", "data": "payloads", "to the clean run": [0.84, 0.8, 0.9]}]
    heads = "| case | this project | target | higher target | found | verdict |"
    page = f"## Targets\n\n{heads}\n| --- | --- | --- | --- | --- | --- |\n"
    assert missed(page, {}) == missed(page, {"remote-faults": _part("remote-faults", [])})
    assert missed(page, {"remote-faults": _part("remote-faults", rows)})[-1] == (
        "| remote-faults | times the same without faults | 0.85x | 0.84x |"
    )
    tars = {"loader": "aioloader", "format": "tar", "whole epoch": [0.4, 0.3, 0.5], "target": 3.0}
    assert missed(page, {"remote-formats": _part("remote-formats", [tars])})[-1] == (
        "| remote-formats | tar, times WebDataset | 3.00x | 0.40x |"
    )
    rows[0]["to the clean run"] = [0.85, 0.8, 0.9]
    assert missed(page, {"remote-faults": _part("remote-faults", rows)}) == missed(page, {})


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
    page = render_tables("", FACTS, {"windows": {**_part("windows", [WINDOWS]), "revision": clean}})
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


@pytest.mark.slow
def test_parts_write_their_figures_and_the_pages(tmp_path: Path) -> None:
    root = _copy(tmp_path / "site")
    words = ["--smoke", "--scratch", str(tmp_path), "--pages-root", str(root), "--parts"]
    names = (
        "fill",
        "buckets",
        "windows",
        "scale",
        "first-batch",
        "many-workers",
        "packing",
        "tracing",
        "internal-costs",
        *(["crop-index"] if importlib.util.find_spec("numba") else []),
        "ragged",
        "large-results",
    )
    assert publish.main([*words, *names]) == 0
    tables = (root / "docs" / "benchmarks-tables.md").read_text()
    for name in names:
        assert f"<!-- part: {name} -->" in tables
    assert publish.main([*words[:-1], "--pages", "--results", str(next(tmp_path.glob("*-*-*/results")))]) == 0
