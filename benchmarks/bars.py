"""Horizontal bars with their ranges, as SVG. Pure: figures in, text out; colours are CSS classes of the page."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.text_format import axis_end

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("Bar", "draw_bars")

_LEFT, _RIGHT, _LINE = 236, 200, 27


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


def draw_bars(bars: Sequence[Bar], label: str, *, width: int = 1080, style: str = "") -> str:
    """Draw bars from top to bottom, in the given order. A bar far longer than all others is cut, with a gap as a mark.

    Args:
        bars: at least one.
        label: description of the image for screen readers.
        width: of the image, in SVG units; the image scales with its container.
        style: CSS, for an image outside of a page.
    """
    longest = axis_end(bar.high for bar in bars)
    height = len(bars) * _LINE + 8
    span = width - _LEFT - _RIGHT

    def at(value: float) -> float:
        return _LEFT + span * min(1.0, value / longest)

    alone = f' xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"' if style else ""
    parts = [f'<svg{alone} viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">']
    if style:
        parts.append(f"<style>{style}</style>")
    bare = next((bar for bar in bars if bar.kind == "bare"), None)
    if bare and bare.median <= longest:
        x = at(bare.median)
        parts.append(f'<line class="mark" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height}"/>')
    for number, bar in enumerate(bars):
        y = number * _LINE + 4
        strong = "strong" if bar.kind == "ours" else ""
        note = f'<tspan class="faint" dx="8">{escape(bar.note)}</tspan>' if bar.note else ""
        parts.append(
            f"<g><title>{escape(bar.tooltip)}</title>"
            f'<text class="{strong}" x="{_LEFT - 10}" y="{y + 15}" text-anchor="end">{escape(bar.title)}</text>'
            f'<rect class="{bar.kind}" x="{_LEFT}" y="{y}" height="{_LINE - 8}" rx="2" '
            f'width="{max(1.0, at(bar.median) - _LEFT):.1f}"/>'
            f"{_cut(at(longest), y) if bar.median > longest else _range(at(bar.low), at(bar.high), y)}"
            f'<text class="{strong}" x="{at(bar.high) + 8:.1f}" y="{y + 15}">{escape(bar.figure)}{note}</text></g>'
        )
    return "".join([*parts, "</svg>"])


def _range(low: float, high: float, y: int) -> str:
    middle = y + (_LINE - 8) / 2
    return f'<line class="range" x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" y2="{middle}"/>'


def _cut(end: float, y: int) -> str:
    """Return the gap that marks a bar as longer than drawn."""
    return f'<line class="cut" x1="{end - 44:.1f}" x2="{end - 32:.1f}" y1="{y + _LINE - 6}" y2="{y - 2}"/>'
