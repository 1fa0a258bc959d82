"""Report of a run: Markdown with plots, and JSON, all from the log."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from benchmarks.cases import CASES, resize_of
from benchmarks.charts import draw_page
from benchmarks.goals import Outcome, judge_goals, mark_peers
from benchmarks.report_tables import setting_text
from benchmarks.results import Results, Row, Spread, summarise

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from typing import Any

__all__ = ("case_lines", "render_json", "render_markdown", "target_lines", "version_lines", "write_report")

_BUSY_CORES = 0.15

METHOD = """\
Every contender runs in a separate environment with pinned versions, and every measurement in a fresh process that
is pinned to the cores named above. First all settings of each contender are tried to find its best one, and one whole
epoch is checked: every sample once, the right shape and dtype, and pixels that agree with a plain reference. Then
the rounds begin: in each, all contenders of a case take turns in a random order, so that a ratio compares measurements
that are close in time. Figures are medians over the rounds, with the minimum and the maximum in brackets; ratios are
formed within a round.

"aioloader is" compares with this project's best setting without a crop index, which needs no preparation. "With crop
index" compares with its best setting with an index, which `aioloader index --crops` makes once and stores next to the
same record file; the index counts as data. Both take turns with all others in the same rounds.

The *bare loop* does the same work in one process per core, without files, order, batches or transport. It decodes
whole images, so a loader that decodes less can be faster. First batch: from opening to the first batch, imports
excluded, files in the page cache. CPU: of all processes together. Memory: proportional set size of all processes, at
its peak. Data: the stored samples of an epoch. Lag: the delay of a task that wants to run every millisecond, in the
loader's event loop."""


def write_report(records: Sequence[dict[str, Any]], folder: Path) -> list[Path]:
    """Write all forms of the report.

    Args:
        records: of the log.
        folder: receives ``report.md``, its plots and ``results.json``.

    Returns:
        the written files.
    """
    results = summarise(records)
    mark_peers(results)
    outcomes = judge_goals(results)
    folder.mkdir(parents=True, exist_ok=True)
    report, figures = folder / "report.md", folder / "results.json"
    report.write_text(render_markdown(results, outcomes), encoding="utf-8")
    figures.write_text(render_json(results, outcomes), encoding="utf-8")
    return [report, figures, *draw_page(report, folder / "images" / "benchmarks")]


def render_json(results: Results, outcomes: Sequence[Outcome]) -> str:
    """Return all figures as JSON, for programs."""
    goals = [
        {
            "case": outcome.goal.case,
            "text": outcome.goal.text,
            "least": outcome.goal.least,
            "aim": outcome.goal.aim,
            "unit": outcome.goal.unit,
            "found": outcome.found,
            "verdict": outcome.verdict,
        }
        for outcome in outcomes
    ]
    return json.dumps({**asdict(results), "goals": goals}, indent=1)


def render_markdown(results: Results, outcomes: Sequence[Outcome]) -> str:
    """Return the report as Markdown tables."""
    return "\n".join(_lines(results, outcomes)).rstrip() + "\n"


def _lines(results: Results, outcomes: Sequence[Outcome]) -> Iterator[str]:
    run = results.run
    yield from ("# Benchmarks", "")
    yield f"{machine_line(run)}; {run.get('rounds', '?')} rounds of {run.get('seconds', '?')} s. Made by"
    yield from ("", f"    {run.get('command', 'python -m benchmarks')}", "")
    yield f"Data: {run.get('data', '')}.{settings_note(run)}"
    yield ""
    warning = busy_warning(results.rows)
    if warning:
        yield from (f"**{warning}**", "")
    yield from (METHOD, "")
    if outcomes:
        yield from target_lines(outcomes)
    for case in results.cases:
        yield from case_lines(results, case)
    yield from version_lines(results)


def target_lines(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield the section of the targets."""
    yield from ("## Targets", "")
    yield "| case | this project | target | higher target | found | |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for outcome in outcomes:
        yield _goal_line(outcome)
    yield ""


def version_lines(results: Results) -> Iterator[str]:
    """Yield the section of the versions."""
    yield from ("## Versions", "", "| contender | Python | packages |", "| --- | --- | --- |")
    for name, facts in sorted(results.contenders.items()):
        packages = ", ".join(f"{package} {version}" for package, version in facts["versions"].items())
        yield f"| {name} | {facts['python']} | {packages} |"


def _goal_line(outcome: Outcome) -> str:
    goal = outcome.goal
    sign = "" if goal.upwards else "at most "
    found = goal_found(outcome)
    if outcome.found is not None and outcome.found[1] != outcome.found[2]:
        found += f" ({outcome.found[1]:.2f} to {outcome.found[2]:.2f})"
    verdict = "**missed**" if outcome.verdict == "missed" else goal_verdict(outcome)
    least, aim = goal_figure(outcome, goal.least), goal_figure(outcome, goal.aim)
    return f"| {goal.case} | {goal.text} | {sign}{least} | {aim} | {found} | {verdict} |"


def case_lines(results: Results, case: str) -> Iterator[str]:
    """Yield the section of a case."""
    rows = results.of_case(case)
    has_lag = any(row.lag_p99_ms for row in rows)
    has_index = any(row.indexed and row.measured for row in rows)
    columns = [
        *("contender", "setting", rate_unit(case)),
        *(["resize"] if CASES[case].resize else []),
        *("of the bare loop", "aioloader is"),
        *(["with crop index"] if has_index else []),
        *("first batch, s", "CPU, µs a sample", "memory, MB", "data, MB"),
        *(["lag p50, p99, ms"] if has_lag else []),
    ]
    if case == "bytes":
        columns.insert(3, "µs a record")
    yield from (f"## {case}: {CASES[case].title}", "")
    yield f"| {' | '.join(columns)} |"
    yield f"|{' --- |' * len(columns)}"
    marks: list[str] = []
    for row in rows:
        if row.status == "declined":
            continue
        mark = "".join(f" [{number}]" for number in _numbered(row, marks))
        cells = [f"**{row.title}**{mark}" if row.name == "aioloader" else f"{row.title}{mark}"]
        cells += [setting_text(row.setting), *_figures(row, has_index)]
        if has_lag:
            lag = ", ".join(
                f"{spread.median:.2f}" for spread in (row.lag_p50_ms, row.lag_p99_ms) if spread is not None
            )
            cells.append(lag)
        yield f"| {' | '.join(cells)} |"
    yield ""
    for number, note in enumerate(marks, 1):
        yield f"[{number}] {note}  "
    declined = [f"{row.title} ({row.reason})" for row in rows if row.status == "declined"]
    if declined:
        yield f"Not in this case: {'; '.join(declined)}."
    yield ""


def _numbered(row: Row, marks: list[str]) -> list[int]:
    for note in row.notes:
        if note not in marks:
            marks.append(note)
    return [marks.index(note) + 1 for note in row.notes]


def _figures(row: Row, has_index: bool) -> list[str]:
    more = [] if row.case != "bytes" else [f"{1e6 / row.rate.median:.2f}" if row.rate else ""]
    if CASES[row.case].resize:
        more = [resize_of(CASES[row.case], row.name, row.variant)]
    by_index = [_times(row.ahead_indexed)] if has_index else []
    empty = ["" for _ in (*more, *by_index)]
    if row.status == "failed":
        reason = row.reason.replace("|", "\\|")
        return [f"failed, {reason}", *empty, "", "", "", "", "", ""]
    if row.status == "pending":
        return ["not reached", *empty, "", "", "", "", "", ""]
    return [
        spread_text(shown_rate(row), ".2f" if CASES[row.case].start else ",.0f"),
        *more,
        spread_text(row.of_bare, ".2f"),
        _times(row.ahead),
        *by_index,
        spread_text(row.first_batch_s, ".2f"),
        cpu_text(row),
        f"{row.peak_pss.median / 1e6:,.0f}" if row.peak_pss else "",
        f"{row.stored_nbytes / 1e6:,.0f}" if row.stored_nbytes else "",
    ]


def _times(spread: Spread | None) -> str:
    return f"{spread_text(spread, '.2f')}x" if spread else ""


# -- figures as text ---------------------------------------------------------------------------------------------------


def rate_unit(case: str) -> str:
    """Return the unit of a case's figures, mostly a rate per second."""
    if CASES[case].start:
        return "seconds, less is better"
    return {"arrays": "batches/s", "bytes": "records/s"}.get(CASES[case].store, "images/s")


def shown_rate(row: Row) -> Spread | None:
    """Return the rate of a row in its case's unit."""
    if row.rate is None:
        return None
    if CASES[row.case].start:
        return Spread(1 / row.rate.median, 1 / row.rate.high, 1 / row.rate.low)
    per = CASES[row.case].batch_size if CASES[row.case].store == "arrays" else 1
    return Spread(*(value / per for value in row.rate))


def spread_text(spread: Spread | tuple[float, float, float] | None, form: str, scale: float = 1.0) -> str:
    """Return "median (least to greatest)", or "" for None."""
    if spread is None:
        return ""
    middle, low, high = (format(value * scale, form) for value in spread)
    return middle if low == high else f"{middle} ({low} to {high})"


def cpu_text(row: Row) -> str:
    """Return CPU microseconds per sample."""
    if row.cpu_ms is None:
        return ""
    return f"{row.cpu_ms.median * 1e3:{',.0f' if row.cpu_ms.median >= 0.01 else '.2f'}}"


def goal_found(outcome: Outcome) -> str:
    """Return a goal's figure with its unit, with enough digits that a missed goal does not look reached."""
    if outcome.found is None:
        return ""
    value, digits = outcome.found[0], 2
    while (
        outcome.verdict == "missed"
        and digits < 6
        and f"{value:.{digits}f}" == f"{outcome.goal.least:.{digits}f}"
    ):
        digits += 1
    return goal_figure(outcome, value, digits)


def goal_verdict(outcome: Outcome) -> str:
    """Return the verdict on a goal as text."""
    return {
        "aim": "higher target reached",
        "met": "reached",
        "doubtful": "the peer is slower than expected",
    }.get(outcome.verdict, outcome.verdict)


def goal_figure(outcome: Outcome, value: float | None, digits: int = 2) -> str:
    """Return a goal's minimum or aim with its unit."""
    if value is None:
        return ""
    unit = outcome.goal.unit
    return f"{value:.{digits}f}{unit if unit == 'x' else ' ' + unit.replace('us', 'µs')}"


def machine_line(run: dict[str, Any]) -> str:
    """Return a description of the run's machine in one line."""
    machine = run.get("machine", {})
    cores = len(run.get("cores", ()))
    return (
        f"{cores} core{'' if cores == 1 else 's'} of {machine.get('cpu', 'an unknown CPU')}, "
        f"{machine.get('system', '')}, Python {machine.get('python', '')}, {run.get('date', '')}"
    )


def settings_note(run: dict[str, Any]) -> str:
    """Return a sentence on the settings that were taken from an earlier run, after a space, or ""."""
    report = run.get("settings")
    if not report:
        return ""
    return (
        f" The best setting of each loader, of this project's too, was taken from an earlier report ({report}) and not "
        "searched again, if its packages still have the same versions."
    )


def busy_warning(rows: list[Row]) -> str:
    """Return a warning that names the contenders during whose measurements other programs were busy, or ""."""
    measured = [row for row in rows if row.others_cpu_s is not None]
    busy = [
        f"{row.case} {row.title} ({row.others_cpu_s.median:.1f})"
        for row in measured
        if row.others_cpu_s is not None and row.others_cpu_s.median >= _BUSY_CORES
    ]
    if not busy:
        return ""
    return (
        f"Other programs kept {_BUSY_CORES} cores or more busy during {len(busy)} of {len(measured)} measurements "
        f"(medians of the rounds): do not rely on the figures of {', '.join(busy)}."
    )
