"""Report of a run: Markdown, JSON, plots and an HTML page, all from the log."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from benchmarks.cases import CASES, resize_of
from benchmarks.goals import Outcome, judge_goals, mark_peers
from benchmarks.in_short import in_short
from benchmarks.page import render_page
from benchmarks.plots import draw_plots
from benchmarks.results import Results, Row, summarise
from benchmarks.text_format import (
    busy_warning,
    cpu_text,
    goal_figure,
    goal_found,
    goal_verdict,
    machine_line,
    rate_text,
    rate_unit,
    setting_text,
    settings_note,
    spread_text,
    versions_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from typing import Any

    from benchmarks.results import Spread

__all__ = ("case_lines", "render_json", "render_markdown", "target_lines", "version_lines", "write_report")

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


def write_report(records: Sequence[dict[str, Any]], folder: Path, markdown: Path | None = None) -> list[Path]:
    """Write all forms of the report.

    Args:
        records: of the log.
        folder: receives ``report.md``, ``results.json``, ``page.html`` and the plots.
        markdown: a further file for the Markdown, or None.

    Returns:
        the written files; without plots if matplotlib is not installed.
    """
    results = summarise(records)
    mark_peers(results)
    outcomes = judge_goals(results)
    folder.mkdir(parents=True, exist_ok=True)
    text = render_markdown(results, outcomes)
    written = {
        folder / "report.md": text,
        folder / "results.json": render_json(results, outcomes),
        folder / "page.html": render_page(results, outcomes, METHOD),
    }
    if markdown is not None:
        written[markdown] = text
    for path, content in written.items():
        path.write_text(content, encoding="utf-8")
    return [*written, *draw_plots(results, folder)]


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
    short = in_short(results)
    if short:
        yield from ("## In short", "", "| work | aioloader |", "| --- | --- |")
        yield from (f"| {work} | {text} |" for work, text in short)
        yield ""
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
        yield f"| {name} | {facts['python']} | {versions_text(facts['versions'])} |"


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
        rate_text(row),
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
