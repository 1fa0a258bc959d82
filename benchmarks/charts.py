"""Plots of docs/benchmarks-tables.md: one SVG for each case, drawn only from the figures of its table.

    python -m benchmarks.charts                    docs/benchmarks-tables.md
    python -m benchmarks.charts PAGE FOLDER        another page, and the folder of its images

Run it after the page has changed. It inserts a case's image below its heading if the page does not have it yet.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.bars import Bar, draw_bars
from benchmarks.report_tables import contender_title, read_case_tables

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ("Chart", "draw_page", "read_charts", "with_images")

_DOCS = Path(__file__).parent.parent / "docs"
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
_RATIOS = ("aioloader is", "with crop index")
_FIGURE = re.compile(r"([0-9][0-9,]*(?:\.[0-9]+)?)(?: \(([0-9.,]+) to ([0-9.,]+)\))?$")


class Chart(NamedTuple):
    """Chart of one case of the page.

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
        """Return the image."""
        label = f"{self.case}: {self.title}; {self.unit}. The table below has the figures."
        return draw_bars(self.bars, label, width=880, style=_STYLE) + "\n"


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


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.charts", description="Draw the plots of a page."
    )
    parser.add_argument("page", nargs="?", type=Path, default=_DOCS / "benchmarks-tables.md")
    parser.add_argument("images", nargs="?", type=Path, default=_DOCS / "images" / "benchmarks")
    options = parser.parse_args(argv)
    for path in draw_page(options.page, options.images):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
