"""Figures of the results in words: the same in the table, the plots and the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.cases import CASES
from benchmarks.results import Spread

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.goals import Outcome
    from benchmarks.results import Row

__all__ = (
    "axis_end",
    "busy_warning",
    "cpu_words",
    "goal_figure",
    "goal_found",
    "goal_verdict",
    "machine_line",
    "rate_form",
    "rate_unit",
    "rate_words",
    "setting_words",
    "shown_rate",
    "spread_words",
)

_BUSY_CORES = 0.15


def rate_unit(case: str) -> str:
    """What is shown of a case: mostly how many per second."""
    if CASES[case].start:
        return "seconds, less is better"
    return {"arrays": "batches/s", "bytes": "records/s"}.get(CASES[case].store, "images/s")


def rate_form(case: str) -> str:
    """How figures of this unit are written."""
    return ".2f" if CASES[case].start else ",.0f"


def shown_rate(row: Row) -> Spread | None:
    """The rate of a row in its case's unit."""
    if row.rate is None:
        return None
    if CASES[row.case].start:
        return Spread(1 / row.rate.median, 1 / row.rate.high, 1 / row.rate.low)
    per = CASES[row.case].batch_size if CASES[row.case].store == "arrays" else 1
    return Spread(*(value / per for value in row.rate))


def axis_end(values: Iterable[float]) -> float:
    """Where the axis of some bars ends.

    At the greatest value; or, where that is several times the next one, somewhat beyond the next: one outlier must not
    shrink all others to nothing, and its bar is cut.
    """
    most, *rest = sorted(values, reverse=True) or [1.0]
    if rest and rest[0] and most > 3 * rest[0]:
        return 1.25 * rest[0]
    return most or 1.0


def spread_words(spread: Spread | tuple[float, float, float] | None, form: str, scale: float = 1.0) -> str:
    """ "median (least to greatest)", or "" where there is none."""
    if spread is None:
        return ""
    middle, low, high = (format(value * scale, form) for value in spread)
    return middle if low == high else f"{middle} ({low} to {high})"


def rate_words(row: Row) -> str:
    """The rate of a row in its case's unit."""
    return spread_words(shown_rate(row), rate_form(row.case))


def cpu_words(row: Row) -> str:
    """CPU microseconds per sample."""
    if row.cpu_ms is None:
        return ""
    return f"{row.cpu_ms.median * 1e3:{',.0f' if row.cpu_ms.median >= 0.01 else '.2f'}}"


def setting_words(setting: dict[str, Any]) -> str:
    """A setting in one line."""
    return ", ".join(
        f"{key.replace('_', ' ')} {value}" for key, value in setting.items() if value not in (None, False, "")
    )


def goal_found(outcome: Outcome) -> str:
    """What was found for a goal, with its unit; so finely that it does not look like a goal that it missed."""
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
    """The verdict on a goal, for people."""
    return {"aim": "aim reached", "met": "reached", "doubtful": "the peer is slower than it should be"}.get(
        outcome.verdict, outcome.verdict
    )


def goal_figure(outcome: Outcome, value: float | None, digits: int = 2) -> str:
    """A goal's figure with its unit."""
    if value is None:
        return ""
    unit = outcome.goal.unit
    return f"{value:.{digits}f}{unit if unit == 'x' else ' ' + unit.replace('us', 'µs')}"


def machine_line(run: dict[str, Any]) -> str:
    """Where the run was made, in one line."""
    machine = run.get("machine", {})
    cores = len(run.get("cores", ()))
    return (
        f"{cores} core{'' if cores == 1 else 's'} of {machine.get('cpu', 'an unknown CPU')}, "
        f"{machine.get('system', '')}, Python {machine.get('python', '')}, {run.get('date', '')}"
    )


def busy_warning(rows: list[Row]) -> str:
    """A warning where other programs kept the machine busy during the measurements, or ""."""
    busy = [row.others_cpu_s.median for row in rows if row.others_cpu_s is not None]
    if not busy or max(busy) < _BUSY_CORES:
        return ""
    return (
        f"Other programs kept up to {max(busy):.1f} cores busy during a contender's measurements (medians): "
        "these figures are not to be relied on."
    )
