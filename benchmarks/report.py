"""Report of a run: Markdown with plots, and JSON, all from the log."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from benchmarks.cases import CASES, resize_of
from benchmarks.charts import chart_of, draw_cases
from benchmarks.figures import table
from benchmarks.goals import Outcome, judge_goals, mark_peers
from benchmarks.results import Results, Row, Spread, cpu_text, rate_text, rate_unit, spread_text, summarise

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from typing import Any

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
    figures.write_text(json.dumps(asdict(results), indent=1), encoding="utf-8")
    return [report, figures, *draw_cases(results, folder / "images" / "benchmarks")]


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
    heads = ("case", "this project", "target", "higher target", "found", "")
    yield from (*table(heads, map(_goal_cells, outcomes)), "")


def version_lines(results: Results) -> Iterator[str]:
    """Yield the section of the versions."""
    yield from ("## Versions", "")
    contenders = sorted(results.contenders.items())
    yield from table(
        ("contender", "Python", "packages"),
        (
            (name, facts["python"], ", ".join(f"{package} {n}" for package, n in facts["versions"].items()))
            for name, facts in contenders
        ),
    )


def _goal_cells(outcome: Outcome) -> list[str]:
    goal, found = outcome.goal, goal_found(outcome)
    sign = "" if goal.upwards else "at most "
    if outcome.found is not None and outcome.found[1] != outcome.found[2]:
        found += f" ({outcome.found[1]:.2f} to {outcome.found[2]:.2f})"
    verdict = {
        "aim": "higher target reached",
        "met": "reached",
        "missed": "**missed**",
        "doubtful": "the peer is slower than expected",
    }.get(outcome.verdict, outcome.verdict)
    least, aim = goal_figure(outcome, goal.least), goal_figure(outcome, goal.aim)
    return [goal.case, goal.text, sign + least, aim, found, verdict]


def case_lines(results: Results, case: str, *, headed: bool = True) -> Iterator[str]:
    """Yield the section of a case; a column without a figure is left out.

    Args:
        results: of the run.
        case: its name.
        headed: with a heading and the plot.
    """
    rows = [row for row in results.of_case(case) if row.status != "declined"]
    if headed:
        yield from (f"## {case}: {CASES[case].title}", "")
        if chart_of(results, case).bars:
            yield from (f"![{case}: {rate_unit(case)}](images/benchmarks/{case}.svg)", "")
    notes = list(dict.fromkeys(note for row in rows for note in row.notes))
    cells = [_cells(row, notes) for row in rows]
    columns = [
        name for name in {key: 0 for each in cells for key in each} if any(each.get(name) for each in cells)
    ]
    yield from (*table(columns, ([each.get(name, "") for name in columns] for each in cells)), "")
    for number, note in enumerate(notes, 1):
        yield f"[{number}] {note}  "
    declined = [f"{row.title} ({row.reason})" for row in results.of_case(case) if row.status == "declined"]
    if declined:
        yield f"Not in this case: {'; '.join(declined)}."
    yield ""


def _cells(row: Row, notes: Sequence[str]) -> dict[str, str]:
    """Return the texts of a row by column, in the order of the columns."""
    title = f"**{row.title}**" if row.name == "aioloader" else row.title
    setting = ((key.replace("_", " "), value) for key, value in row.setting.items())
    cells = {
        "contender": title + "".join(f" [{notes.index(note) + 1}]" for note in row.notes),
        "setting": ", ".join(f"{key} {value}" for key, value in setting if value not in (None, False, "")),
    }
    unit = rate_unit(row.case)
    if not row.measured:
        return {**cells, unit: f"failed, {row.reason}" if row.status == "failed" else "not reached"}
    lags = (f"{lag.median:.2f}" for lag in (row.lag_p50_ms, row.lag_p99_ms) if lag is not None)
    return {
        **cells,
        unit: rate_text(row),
        "CPU, µs a sample": cpu_text(row),
        "resize": resize_of(CASES[row.case], row.name, row.variant),
        "µs a record": f"{1e6 / row.rate.median:.2f}" if row.case == "bytes" and row.rate else "",
        "of the bare loop": spread_text(row.of_bare, ".2f"),
        "aioloader is": _times(row.ahead),
        "with crop index": _times(row.ahead_indexed),
        "first batch, s": spread_text(row.first_batch_s, ".2f"),
        "memory, MB": f"{row.peak_pss.median / 1e6:,.0f}" if row.peak_pss else "",
        "data, MB": f"{row.stored_nbytes / 1e6:,.0f}" if row.stored_nbytes else "",
        "lag p50, p99, ms": ", ".join(lags),
    }


def _times(spread: Spread | None) -> str:
    return f"{spread_text(spread, '.2f')}x" if spread else ""


# -- figures as text ---------------------------------------------------------------------------------------------------


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
