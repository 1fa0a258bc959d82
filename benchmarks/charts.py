"""Plots of a report or of docs/benchmarks-tables.md: one SVG for each case, drawn from the figures of its table."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.report_tables import contender_title, read_case_tables

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

__all__ = ("Bar", "Chart", "axis_end", "draw_page", "read_charts", "with_images")

_STYLE = """
svg { --ink:#1f2937; --soft:#56657a; --paper:#fff; --ours:#0f766e; --peer:#9fb0c3; --bare:#56657a; }
@media (prefers-color-scheme: dark) { svg { --ink:#e2e4e9; --soft:#9aa8ba; --paper:#1e2129; --ours:#2dd4bf;
  --peer:#51647c; --bare:#8796a9; } }
text { fill:var(--ink); font:13px system-ui, sans-serif; paint-order:stroke; stroke:var(--paper); stroke-width:3; }
.strong { font-weight:600; }
.faint { fill:var(--soft); font-size:12px; } .ours { fill:var(--ours); } .peer { fill:var(--peer); }
.bare { fill:var(--bare); } .range { stroke:var(--ink); stroke-width:1.2; }
.cut { stroke:var(--paper); stroke-width:5; } .mark { stroke:var(--bare); stroke-dasharray:4 3; }
"""
_WIDTH, _LEFT, _RIGHT, _LINE = 880, 236, 200, 27
_RATIOS = ("aioloader is", "with crop index")
_FIGURE = re.compile(r"([0-9][0-9,]*(?:\.[0-9]+)?)(?: \(([0-9.,]+) to ([0-9.,]+)\))?$")


class Bar(NamedTuple):
    """Bar of one contender.

    Attributes:
        title: its name.
        kind: "ours", "peer" or "bare"; the end of a "bare" bar is marked by a dashed line through all bars.
        median, low, high: its rate, and the range over the rounds.
        figure: the median as text.
        tooltip: text with all figures.
        note: faint text after the figure; "" for none.
    """

    title: str
    kind: str
    median: float
    low: float
    high: float
    figure: str
    tooltip: str
    note: str = ""


class Chart(NamedTuple):
    """Chart of one case of the page.

    Attributes:
        case: its name.
        title: description of its work.
        unit: unit of its figures.
        bars: the contenders in the order of the table, at least one.
    """

    case: str
    title: str
    unit: str
    bars: list[Bar]

    def svg(self) -> str:
        """Return the image: bars from top to bottom. One far longer than all others is cut, with a gap as a mark."""
        longest = axis_end(bar.high for bar in self.bars)
        height = len(self.bars) * _LINE + 8

        def at(value: float) -> float:
            return _LEFT + (_WIDTH - _LEFT - _RIGHT) * min(1.0, value / longest)

        label = f"{self.case}: {self.title}; {self.unit}. The table below has the figures."
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
            f'viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(label)}"><style>{_STYLE}</style>'
        ]
        bare = next((bar for bar in self.bars if bar.kind == "bare"), None)
        if bare and bare.median <= longest:
            x = at(bare.median)
            parts.append(f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height}"/>')
        for number, bar in enumerate(self.bars):
            y = number * _LINE + 4
            middle, end = y + (_LINE - 8) / 2, at(longest)
            strong = "strong" if bar.kind == "ours" else ""
            note = f'<tspan class="faint" dx="8">{escape(bar.note)}</tspan>' if bar.note else ""
            line = f'range" x1="{at(bar.low):.1f}" x2="{at(bar.high):.1f}" y1="{middle}" y2="{middle}'
            if bar.median > longest:
                line = f'cut" x1="{end - 44:.1f}" x2="{end - 32:.1f}" y1="{y + _LINE - 6}" y2="{y - 2}'
            parts.append(
                f"<g><title>{escape(bar.tooltip)}</title>"
                f'<text class="{strong}" x="{_LEFT - 10}" y="{y + 15}" text-anchor="end">{escape(bar.title)}</text>'
                f'<rect class="{bar.kind}" x="{_LEFT}" y="{y}" height="{_LINE - 8}" rx="2" '
                f'width="{max(1.0, at(bar.median) - _LEFT):.1f}"/><line class="{line}"/>'
                f'<text class="{strong}" x="{at(bar.high) + 8:.1f}" y="{y + 15}">{escape(bar.figure)}{note}</text></g>'
            )
        return "".join([*parts, "</svg>\n"])


def axis_end(values: Iterable[float]) -> float:
    """Return the end of the axis of some bars.

    The end is the greatest value; or, if that is several times the next one, somewhat more than the next: one outlier
    must not shrink all other bars, so its bar is cut.
    """
    most, *rest = sorted(values, reverse=True) or [1.0]
    if rest and rest[0] and most > 3 * rest[0]:
        return 1.25 * rest[0]
    return most or 1.0


def read_charts(text: str) -> Iterator[Chart]:
    """Yield the cases of a page, each with the first table below its heading.

    Args:
        text: the page, as `python -m benchmarks` writes it.
    """
    for table in read_case_tables(text):
        bars = [bar for bar in (_bar(row, table.unit) for row in table.rows) if bar]
        if bars:
            yield Chart(table.case, table.title, table.unit, bars)


def _bar(row: dict[str, str], unit: str) -> Bar | None:
    found = _FIGURE.match(row[unit])
    if found is None:  # the contender failed
        return None
    median, low, high = (float((each or found[1]).replace(",", "")) for each in found.groups())
    title = contender_title(row["contender"])
    kind = "ours" if title.startswith("aioloader/") else "bare" if title == "bare_loop" else "peer"
    note, with_index = (row.get(column, "").partition(" ")[0].rstrip("x") for column in _RATIOS)
    notes = [
        *([f"aioloader {note}x"] if note else []),
        *([f"with index {with_index}x"] if with_index else []),
    ]
    return Bar(
        title.replace("bare_loop", "bare loop"),
        kind,
        median=median,
        low=low,
        high=high,
        figure=found[1],
        tooltip=f"{title}: {row[unit]} {unit}",
        note=", ".join(notes) if kind == "peer" else "",
    )


def with_images(text: str, charts: Sequence[Chart]) -> str:
    """Return the page with an image below the heading of every chart that does not have one yet."""
    for chart in charts:
        image = f"![{chart.case}: {chart.unit}](images/benchmarks/{chart.case}.svg)"
        if image not in text:
            heading = f"## {chart.case}: {chart.title}\n"
            text = text.replace(heading, f"{heading}\n{image}\n")
    return text


def draw_page(page: Path, images: Path) -> list[Path]:
    """Draw the images of a page, and insert them into it.

    Returns:
        the written images.
    """
    text = page.read_text(encoding="utf-8")
    charts = list(read_charts(text))
    images.mkdir(parents=True, exist_ok=True)
    written = []
    for chart in charts:
        path = images / f"{chart.case}.svg"
        path.write_text(chart.svg(), encoding="utf-8")
        written.append(path)
    page.write_text(with_images(text, charts), encoding="utf-8")
    return written
