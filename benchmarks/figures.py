"""Rows of figures: made of measured values, written as JSON, shown as tables. Standard library only, Python 3.8.

A row is one object: a column's name, which includes its unit, and a text, a number, or ``[median, least, greatest]``.
"""

from __future__ import annotations

import json
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    Row = dict[str, Any]


def spread(values: Iterable[float], scale: float = 1.0) -> list[float]:
    """Return [median, least, greatest], each with five significant digits."""
    found = [value * scale for value in values]
    return [_rounded(value) for value in (median(found), min(found), max(found))]


def costs(found: Iterable[tuple[float, float]], of: str = "", each: str = "an image") -> Row:
    """Return the columns of rates and of the CPU time for a sample, side by side.

    Args:
        found: (samples/s, CPU seconds a sample) of each round.
        of: whose figures they are, where a row has several.
        each: a sample, with its article.
    """
    rates, cpu = zip(*found)  # noqa: B905 - older Pythons
    whose = f"{of}, " if of else ""
    return {f"{whose}{each.split()[1]}s/s": spread(rates), f"{whose}CPU, µs {each}": spread(cpu, 1e6)}


def ratios(above: Iterable[float], below: Iterable[float]) -> list[float]:
    """Return the spread of the quotients of two rows of figures, round by round."""
    return spread(mine / other for mine, other in zip(above, below, strict=True))


def write_figures(path: Path | None, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as JSON; with None, do nothing."""
    if path is not None:
        text = json.dumps([{name: _plain(value) for name, value in row.items()} for row in rows], indent=1)
        path.write_text(text + "\n", encoding="utf-8")


def _plain(value: Any) -> Any:
    """Return a value without numpy's types, and with five significant digits."""
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, (str, int)):
        return value
    return _rounded(float(value))


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")


def value_text(value: Any) -> str:
    """Return a text, a number or a spread as text, with two or three digits."""
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, list):
        middle, low, high = map(value_text, value)
        return middle if low == high else f"{middle} ({low} to {high})"
    if isinstance(value, int) or abs(value) >= 100:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if abs(value) >= 0.1 or not value else f"{value:.2g}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a table in Markdown."""
    lines = [f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    return [*lines, *(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows)]


def plain_tables(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the lines of rows as they are: one table for each set of columns."""
    kinds: dict[tuple[str, ...], list[Row]] = {}
    first: dict[str, list[str]] = {}
    for row in rows:
        # Rows of one benchmark whose first column is the same share a table; a missing figure is an empty cell.
        names = first.setdefault(next(iter(row)), [])
        names += [name for name in row if name not in names]
    for row in rows:
        kinds.setdefault(tuple(first[next(iter(row))]), []).append(row)
    for columns, found in kinds.items():
        yield from table(columns, ([value_text(row.get(name)) for name in columns] for row in found))
        yield ""
