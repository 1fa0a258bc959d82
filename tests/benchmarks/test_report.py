"""Tests of the report of a given log: medians, ratios within a round, failures, goals, slow peers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.goals import judge_goals, mark_peers
from benchmarks.log import Log, read_log
from benchmarks.report import goal_found, render_markdown, write_report
from benchmarks.results import KeptSettings, Results, summarise
from tests.cases import with_cases

RUN = {
    "kind": "run",
    "command": "python -m benchmarks --data FOLDER",
    "date": "2026-01-01",
    "machine": {"cpu": "A <fast> CPU", "system": "Linux 6", "python": "3.11"},
    "cores": [0, 1],
    "cases": ["jpeg-uint8", "bytes"],
    "rounds": 3,
    "seconds": 4,
    "data": "3 photographs",
}


def measured(name: str, variant: str, rates: list[float], case: str = "jpeg-uint8", **more: Any) -> list[Any]:
    facts = {"cpu_s": 2.0, "peak_pss": 100_000_000, "first_batch_s": 0.2, "others_cpu_s": 0.01, **more}
    identity = {"name": name, "variant": variant, "case": case}
    return [
        {"kind": "chosen", **identity, "setting": {"workers": 2}},
        *(
            {
                "kind": "round",
                **identity,
                "round": number,
                "images_per_s": rate,
                "setting": {"workers": 2},
                **facts,
            }
            for number, rate in enumerate(rates)
        ),
    ]


LAG = {"p50_ms": 0.1, "p99_ms": 1.5, "max_ms": 9.0, "ticks": 1000}
RECORDS: list[dict[str, Any]] = [
    RUN,
    {"kind": "contender", "name": "aioloader", "versions": {"aioloader": "1.0"}, "python": "3.11"},
    *measured("aioloader", "process", [1800.0, 900.0, 2000.0], lag=LAG, explain="Decode is the limit."),
    *measured("aioloader", "thread", [1700.0, 850.0, 1900.0], lag=LAG),
    *measured("bare_loop", "", [1600.0, 800.0, 1500.0], first_batch_s=None),
    *measured("tf_data", "", [1400.0, 600.0, 1300.0]),
    *measured("grain", "", [500.0, 250.0, 500.0]),
    *measured("aioloader", "process", [900.0], "first-batch", first_batch_s=0.25),
    *measured("aioloader", "fork", [900.0], "first-batch", first_batch_s=0.3),
    *measured("torch", "opencv", [900.0], "first-batch", first_batch_s=0.1),
    *measured("bare_loop", "", [400_000.0], "bytes"),
    *measured("aioloader", "inline", [500_000.0], "bytes", lag=LAG),
    {
        "kind": "failure",
        "name": "ffcv",
        "variant": None,
        "case": None,
        "stage": "environment",
        "reason": "needs libopencv-dev | pkg-config",
        "log": "",
    },
    {
        "kind": "failure",
        "name": "dali",
        "variant": "reader",
        "case": "jpeg-uint8",
        "stage": "check",
        "reason": "images are float32, not uint8",
        "log": "",
    },
    {"kind": "declined", "name": "tf_data", "variant": "", "case": "bytes", "reason": "reads no records"},
]


@pytest.fixture
def results() -> Results:
    return summarise(RECORDS)


def test_rows_are_medians_and_ratios_are_formed_within_a_round(results: Results) -> None:
    row = results.row("jpeg-uint8", "tf_data")
    assert row is not None
    assert row.rate == (1300.0, 600.0, 1400.0)
    # Round by round 1400/1600, 600/800, 1300/1500: not 1300/1500 of the medians.
    assert row.of_bare == pytest.approx((1300 / 1500, 0.75, 0.875))
    assert row.ahead == pytest.approx((1.5, 1800 / 1400, 2000 / 1300))
    assert row.cpu_ms is not None
    assert row.cpu_ms.median == pytest.approx(2000 / 1300)


def test_the_fastest_comes_first_and_failures_last(results: Results) -> None:
    titles = [row.title for row in results.of_case("jpeg-uint8")]
    assert titles == [
        "aioloader/process",
        "aioloader/thread",
        "bare_loop",
        "tf_data",
        "grain",
        "dali/reader",
        "ffcv",
    ]
    assert results.row("jpeg-uint8", "dali") is None
    assert [row.status for row in results.of_case("bytes")] == ["measured", "measured", "failed", "declined"]


def test_a_peer_that_is_too_slow_is_marked_and_one_that_is_not_is_not(results: Results) -> None:
    mark_peers(results)
    notes = {row.title: row.notes for row in results.of_case("jpeg-uint8")}
    assert not notes["tf_data"]
    assert "below the expected rate" in notes["grain"][0]
    assert "1,616" in notes["bare_loop"][0]


def test_against_a_peer_that_is_too_slow_no_goal_is_reached(results: Results, tmp_path: Path) -> None:
    mark_peers(results)
    verdicts = {(o.goal.case, o.goal.text): o.verdict for o in judge_goals(results)}
    assert verdicts["jpeg-uint8", "times grain"] == "doubtful"  # 3.6 where 1.4 is required
    assert verdicts["jpeg-uint8", "times tf_data"] == "aim"
    write_report(RECORDS, tmp_path)
    assert "the peer is slower than expected" in (tmp_path / "report.md").read_text()


INDEXED = [
    *RECORDS,
    *measured("aioloader", "crop-index", [2800.0, 1200.0, 2600.0]),
    *measured("aioloader", "crop-index-blocking", [2000.0, 1000.0, 2000.0]),
]


def test_settings_with_a_crop_index_are_compared_apart_from_those_without() -> None:
    results = summarise(INDEXED)
    plain, indexed = (results.row("jpeg-uint8", "aioloader", indexed=flag) for flag in (False, True))
    assert plain is not None
    assert indexed is not None
    assert (plain.title, indexed.title) == ("aioloader/process", "aioloader/crop-index")
    peer = results.row("jpeg-uint8", "tf_data")
    assert peer is not None
    assert peer.ahead == pytest.approx((1.5, 1800 / 1400, 2000 / 1300))  # as if there were no index
    assert peer.ahead_indexed == pytest.approx((2.0, 2.0, 2.0))
    assert plain.ahead is None
    assert plain.ahead_indexed == pytest.approx((4 / 3, 1.3, 2800 / 1800))
    assert indexed.ahead_indexed is None
    found = {(o.goal.case, o.goal.text): o for o in judge_goals(results)}
    assert found["jpeg-uint8", "times tf_data"].found == pytest.approx((1.5, 1800 / 1400, 2000 / 1300))
    assert found["jpeg-uint8", "with a crop index, times tf_data"].verdict == "aim"
    assert found["jpeg-uint8", "with a crop index, times aioloader without an index"].verdict == "missed"
    assert ("large", "with a crop index, times tf_data") not in found


def test_the_report_names_which_ratio_is_with_a_crop_index(tmp_path: Path) -> None:
    write_report(INDEXED, tmp_path)
    text = (tmp_path / "report.md").read_text()
    head = next(line for line in text.splitlines() if line.startswith("| contender | setting | images/s"))
    line = next(line for line in text.splitlines() if line.startswith("| tf_data |"))
    cells = dict(zip(head.split(" | "), line.split(" | "), strict=True))
    assert cells["resize"] == "bilinear"
    assert cells["aioloader is"].startswith("1.50 ")
    assert cells["with crop index"].startswith("2.00")


def test_settings_are_read_from_results(tmp_path: Path) -> None:
    versions = {"kind": "contender", "name": "tf_data", "versions": {"tensorflow": "2"}, "python": "3.11"}
    write_report([*INDEXED, versions], tmp_path)
    kept = KeptSettings(tmp_path / "results.json")
    two, one = {"workers": 2}, {"workers": 1}
    ours, theirs = ("jpeg-uint8", "aioloader", "process"), ("jpeg-uint8", "tf_data", "")
    assert kept.find(*ours, {"aioloader": "2.0"}, [one, two]) == two
    assert kept.find(*ours, {}, [one]) is None  # no longer among them
    assert kept.find(*theirs, {"tensorflow": "2"}, [two]) == two
    assert kept.find(*theirs, {"tensorflow": "3"}, [two]) is None
    assert kept.find("jpeg-float32", *ours[1:], {}, [two]) is None
    assert kept.find("jpeg-uint8", "ffcv", "", {}, [two]) is None  # it failed
    published = {"parts": {"loaders": json.loads((tmp_path / "results.json").read_text())}}
    (tmp_path / "day.json").write_text(json.dumps(published))
    assert KeptSettings(tmp_path / "day.json").find(*ours, {}, [two]) == two
    for text in ("# Something else", "[]", '{"rows": []}'):
        (tmp_path / "other").write_text(text)
        with pytest.raises(ValueError, match="other has no results"):
            KeptSettings(tmp_path / "other")


def test_for_arrays_the_slower_of_async_and_blocking_counts() -> None:
    records = [
        RUN,
        *measured("aioloader", "inline", [900.0], "arrays"),
        *measured("aioloader", "blocking", [400.0], "arrays"),
        *measured("bare_loop", "", [1000.0], "arrays"),
    ]
    (outcome,) = [o for o in judge_goals(summarise(records)) if o.goal.text.endswith("times bare_loop")]
    assert outcome.found == pytest.approx((0.4, 0.4, 0.4))
    assert outcome.verdict == "missed"


def test_what_was_missed_by_little_does_not_look_reached() -> None:
    records = [
        RUN,
        *measured("aioloader", "process", [1498.0]),
        *measured("dali", "", [1000.0]),
        *measured("grain", "", [1498 / 1.397]),
    ]
    outcomes = {o.goal.text: o for o in judge_goals(summarise(records))}
    assert goal_found(outcomes["times dali"]) == "1.498x"
    assert goal_found(outcomes["times grain"]) == "1.397x"
    assert goal_found(outcomes["times tf_data"]) == ""


def test_goals_are_held_against_what_was_found(results: Results) -> None:
    verdicts = {(o.goal.case, o.goal.text): o.verdict for o in judge_goals(results)}
    assert verdicts["jpeg-uint8", "times tf_data"] == "aim"  # 1.5 where 1.3 is the aim
    assert verdicts["jpeg-uint8", "times dali"] == "not measured"
    assert verdicts["first-batch", "seconds, process"] == "aim"
    assert verdicts["first-batch", "fork, times torch's forked start"] == "missed"
    assert verdicts["jpeg-uint8", "loop lag p99, process"] == "aim"
    assert verdicts["bytes", "microseconds per record, inline"] == "aim"
    assert not any(case == "faces" for case, _ in verdicts)


def test_the_markdown_holds_figures_failures_and_the_command(tmp_path: Path) -> None:
    write_report(RECORDS, tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "    python -m benchmarks --data FOLDER" in text
    assert "| tf_data | workers 2 | 1,300 (600 to 1,400) |" in text
    assert "failed, check: images are float32, not uint8" in text
    assert r"failed, environment: needs libopencv-dev \| pkg-config" in text
    assert "Not in this case: tf_data (reads no records)." in text
    assert "2.00" in next(line for line in text.splitlines() if line.startswith("| **aioloader/inline**"))
    tables = [line for line in text.splitlines() if line.startswith("|")]
    width = 0
    for line, before in zip(tables, ["", *tables], strict=False):
        cells = line.replace(r"\|", "").count("|")
        width = cells if not before or line.startswith("| case") or line.startswith("| contender") else width
        assert cells == width, line


def test_of_starts_the_quickest_comes_first_and_seconds_are_shown(results: Results, tmp_path: Path) -> None:
    assert [row.title for row in results.of_case("first-batch")][:2] == ["torch/opencv", "aioloader/process"]
    row = results.row("first-batch", "torch")
    assert row is not None
    assert row.ahead == pytest.approx((0.4, 0.4, 0.4))  # ours starts at 0.4 of its speed
    write_report(RECORDS, tmp_path)
    assert "| torch/opencv | workers 2 | 0.10 |" in (tmp_path / "report.md").read_text()


def test_contenders_that_shared_the_machine_are_named(tmp_path: Path) -> None:
    quiet = measured("torch", "opencv", [1.0], others_cpu_s=0.02)
    write_report([RUN, *measured("aioloader", "process", [1.0], others_cpu_s=0.7), *quiet], tmp_path)
    report = (tmp_path / "report.md").read_text()
    assert "1 of 2 measurements" in report
    assert "do not rely on the figures of jpeg-uint8 aioloader/process (0.7)." in report
    write_report(RECORDS, tmp_path)
    assert "do not rely on" not in (tmp_path / "report.md").read_text()


@with_cases("count", range(len(RECORDS)), ids=str)
def test_any_beginning_of_a_log_makes_a_report(count: int) -> None:
    # A run can be interrupted anywhere.
    results = summarise(RECORDS[:count])
    mark_peers(results)
    outcomes = judge_goals(results)
    assert render_markdown(results, outcomes).startswith("# Benchmarks")


def test_a_log_is_continued_without_its_failures_and_its_torn_last_line(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    log = Log(path)
    log.add("round", name="a", round=0)
    log.add("failure", name="b")
    log.add("sweep", name="b", reason="crashed")
    log.add("sweep", name="a", images_per_s=1.0)
    log.close()
    path.write_text(path.read_text() + '{"kind": "rou')
    again = Log(path, resume=True)
    again.add("round", name="a", round=1)
    again.close()
    assert [(r["kind"], r.get("round")) for r in read_log(path)] == [
        ("round", 0),
        ("sweep", None),
        ("round", 1),
    ]
    assert again.find("round", round=0) is not None
    assert again.find("round", round=2) is None


def test_damage_in_the_middle_of_a_log_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"kind": "run"}\n{"ki\n{"kind": "round"}\n')
    with pytest.raises(ValueError, match="line 2"):
        read_log(path)
