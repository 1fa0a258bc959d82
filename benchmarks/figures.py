"""Figures of a benchmark as JSON, which `benchmarks.publish` collects.

``--json FILE`` of a benchmark writes a list of rows, one object each: a column's name, which includes its unit, and a
text, a number, or ``[median, least, greatest]``.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ("Row", "add_json_option", "ratios", "spread", "write_figures")

Row = dict[str, Any]


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--json FILE``."""
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file too")


def spread(values: Iterable[float], scale: float = 1.0) -> list[float]:
    """Return [median, least, greatest], each with five significant digits."""
    found = [value * scale for value in values]
    return [_rounded(value) for value in (median(found), min(found), max(found))]


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
