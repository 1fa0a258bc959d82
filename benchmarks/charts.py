"""Plots of a report or of docs/benchmarks-tables.md: one SVG for each case."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.cases import CASES
from benchmarks.results import rate_text, rate_unit, shown_rate

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from benchmarks.results import Results, Row, Spread

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
    """Chart of one case.

    Attributes:
        case: its name.
        title: description of its work.
        unit: unit of its figures.
        bars: the contenders in the order of the table.
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


def draw_cases(results: Results, images: Path) -> list[Path]:
    """Draw the cases of a run.

    Returns:
        the written images, one for each case in which a contender was measured.
    """
    images.mkdir(parents=True, exist_ok=True)
    written = []
    for case in results.cases:
        chart = chart_of(results, case)
        if chart.bars:
            path = images / f"{case}.svg"
            path.write_text(chart.svg(), encoding="utf-8")
            written.append(path)
    return written


def chart_of(results: Results, case: str) -> Chart:
    """Return the chart of a case, with a bar for each contender that was measured."""
    bars = [_bar(row, rate) for row in results.of_case(case) if row.measured and (rate := shown_rate(row))]
    return Chart(case, CASES[case].title, rate_unit(case), bars)


def _bar(row: Row, rate: Spread) -> Bar:
    kind = {"aioloader": "ours", "bare_loop": "bare"}.get(row.name, "peer")
    shown = {"aioloader": row.ahead, "with index": row.ahead_indexed} if kind == "peer" else {}
    figure = rate_text(row)
    return Bar(
        row.title.replace("bare_loop", "bare loop"),
        kind,
        median=rate.median,
        low=rate.low,
        high=rate.high,
        figure=figure.partition(" ")[0],
        tooltip=f"{row.title}: {figure} {rate_unit(row.case)}",
        note=", ".join(f"{text} {ratio.median:.2f}x" for text, ratio in shown.items() if ratio),
    )
