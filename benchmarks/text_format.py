"""Text of the results' figures: the same in the table, the plots and the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.cases import CASES
from benchmarks.results import Spread

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from benchmarks.goals import Outcome
    from benchmarks.results import Row

__all__ = (
    "axis_end",
    "busy_warning",
    "cpu_text",
    "goal_figure",
    "goal_found",
    "goal_verdict",
    "machine_line",
    "rate_form",
    "rate_text",
    "rate_unit",
    "setting_text",
    "settings_note",
    "shown_rate",
    "spread_text",
    "versions_text",
)

_BUSY_CORES = 0.15


def rate_unit(case: str) -> str:
    """Return the unit of a case's figures, mostly a rate per second."""
    if CASES[case].start:
        return "seconds, less is better"
    return {"arrays": "batches/s", "bytes": "records/s"}.get(CASES[case].store, "images/s")


def rate_form(case: str) -> str:
    """Return the number format of a case's figures."""
    return ".2f" if CASES[case].start else ",.0f"


def shown_rate(row: Row) -> Spread | None:
    """Return the rate of a row in its case's unit."""
    if row.rate is None:
        return None
    if CASES[row.case].start:
        return Spread(1 / row.rate.median, 1 / row.rate.high, 1 / row.rate.low)
    per = CASES[row.case].batch_size if CASES[row.case].store == "arrays" else 1
    return Spread(*(value / per for value in row.rate))


def axis_end(values: Iterable[float]) -> float:
    """Return the end of the axis of some bars.

    The end is the greatest value; or, if that is several times the next one, somewhat more than the next: one outlier
    must not shrink all other bars, so its bar is cut.
    """
    most, *rest = sorted(values, reverse=True) or [1.0]
    if rest and rest[0] and most > 3 * rest[0]:
        return 1.25 * rest[0]
    return most or 1.0


def spread_text(spread: Spread | tuple[float, float, float] | None, form: str, scale: float = 1.0) -> str:
    """Return "median (least to greatest)", or "" for None."""
    if spread is None:
        return ""
    middle, low, high = (format(value * scale, form) for value in spread)
    return middle if low == high else f"{middle} ({low} to {high})"


def rate_text(row: Row) -> str:
    """Return the rate of a row in its case's unit, as text."""
    return spread_text(shown_rate(row), rate_form(row.case))


def cpu_text(row: Row) -> str:
    """Return CPU microseconds per sample."""
    if row.cpu_ms is None:
        return ""
    return f"{row.cpu_ms.median * 1e3:{',.0f' if row.cpu_ms.median >= 0.01 else '.2f'}}"


def setting_text(setting: dict[str, Any]) -> str:
    """Return a setting in one line."""
    return ", ".join(
        f"{key.replace('_', ' ')} {value}" for key, value in setting.items() if value not in (None, False, "")
    )


def versions_text(versions: Mapping[str, str]) -> str:
    """Return packages and their versions in one line."""
    return ", ".join(f"{package} {version}" for package, version in versions.items())


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
