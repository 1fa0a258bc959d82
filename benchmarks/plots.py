"""Plots of a run as PNG files; with matplotlib, which is optional."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from benchmarks.cases import CASES
from benchmarks.text_format import axis_end, machine_line, rate_form, rate_unit, shown_rate

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.results import Results, Row

__all__ = ("draw_plots",)

_OURS, _PEER, _BARE, _INK, _FAINT = "#0f766e", "#94a3b8", "#475569", "#0f172a", "#e2e8f0"


def draw_plots(results: Results, folder: Path) -> list[Path]:
    """Draw ``throughput.png`` (all cases) and ``resources.png`` (start, CPU, memory of the first case).

    Returns:
        the files; none if matplotlib is missing or the run has no measurements.
    """
    try:
        import matplotlib
    except ImportError:
        return []
    matplotlib.use("Agg")
    cases = [case for case in results.cases if _measured(results, case)]
    if not cases:
        return []
    return [_throughput(results, cases, folder), _resources(results, cases[0], folder)]


def _measured(results: Results, case: str) -> list[Row]:
    return [row for row in results.of_case(case) if row.measured and row.rate]


def _throughput(results: Results, cases: list[str], folder: Path) -> Path:
    columns = min(2, len(cases))
    lines = math.ceil(len(cases) / columns)
    heights = [
        1.0 + 0.27 * max(len(_measured(results, case)) for case in cases[line * columns :][:columns])
        for line in range(lines)
    ]
    figure, axes = _figure(lines, columns, heights)
    for place, case in zip(axes, cases, strict=False):
        rows = _measured(results, case)
        bars = [(row, *(shown_rate(row) or ())) for row in rows]
        start = cases.index(case) // columns * columns
        most = max(len(_measured(results, other)) for other in cases[start : start + columns])
        _bars(place, bars, f"{case}  ({rate_unit(case)})", rate_form(case), CASES[case].title, most=most)
    title = (
        "Rate per second; lines from the slowest to the fastest round; bars with a gap are longer than drawn"
    )
    return _save(figure, results, title, folder)


def _resources(results: Results, case: str, folder: Path) -> Path:
    rows = _measured(results, case)
    parts = [
        ("first_batch_s", 1.0, "first batch, seconds", ".2f"),
        ("cpu_ms", 1.0, "CPU milliseconds per sample, all processes", ".2f"),
        ("peak_pss", 1e-6, "memory at its peak, MB, all processes", ",.0f"),
    ]
    figure, axes = _figure(1, len(parts), [1.0 + 0.27 * len(rows)])
    for place, (name, scale, title, form) in zip(axes, parts, strict=True):
        bars = [
            (row, *(value * scale for value in getattr(row, name)))
            for row in rows
            if getattr(row, name) is not None
        ]
        _bars(place, sorted(bars, key=lambda bar: bar[1]), title, form, "less is better")
    return _save(figure, results, f"Cost: {case}, {CASES[case].title}", folder, "resources.png")


def _figure(lines: int, columns: int, heights: list[float]) -> tuple[Any, list[Any]]:
    from matplotlib import pyplot

    pyplot.rcParams.update(
        {"font.family": "sans-serif", "font.size": 9, "text.color": _INK, "axes.labelcolor": _INK}
    )
    figure, axes = pyplot.subplots(
        lines,
        columns,
        figsize=(6.6 * columns if columns < 3 else 5.2 * columns, sum(heights) + 1.0),
        squeeze=False,
        gridspec_kw={"height_ratios": heights},
        layout="constrained",
    )
    flat = list(axes.flat)
    for place in flat:
        place.set_axis_off()
    return figure, flat


def _bars(place: Any, bars: list[Any], title: str, form: str, subtitle: str, most: int = 0) -> None:
    """Draw bars of (row, median, low, high), with space for `most` bars, so that neighbours have one height."""
    place.set_axis_on()
    place.set_title(title, loc="left", fontsize=10.5, fontweight="bold", pad=16)
    place.text(
        0, 1.0, subtitle, transform=place.transAxes, fontsize=8, color=_BARE, va="bottom", clip_on=False
    )
    names = [row.title.replace("bare_loop", "bare loop") for row, *_ in bars]
    colours = [{"aioloader": _OURS, "bare_loop": _BARE}.get(row.name, _PEER) for row, *_ in bars]
    places = range(len(bars))
    longest = axis_end(high for *_, high in bars)
    place.barh(places, [min(middle, longest) for _, middle, *_ in bars], color=colours, height=0.7)
    for number, (row, middle, low, high) in enumerate(bars):
        end = min(high, longest)
        if middle > longest:  # cut the bar
            x = 0.93 * longest
            place.plot([x, x + 0.02 * longest], [number + 0.4, number - 0.4], color="white", linewidth=4)
        else:
            place.plot([low, end], [number, number], color=_INK, linewidth=1.1, solid_capstyle="butt")
        place.text(
            end + 0.012 * longest,
            number,
            format(middle, form),
            va="center",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8},
            fontsize=8.5,
            fontweight="bold" if row.name == "aioloader" else "normal",
        )
    bare = next((middle for row, middle, *_ in bars if row.name == "bare_loop"), None)
    if bare is not None and bare <= longest:
        place.axvline(bare, color=_BARE, linewidth=0.8, linestyle=(0, (4, 3)), zorder=0)
    place.set_yticks(list(places), names)
    for label, (row, *_) in zip(place.get_yticklabels(), bars, strict=True):
        label.set_fontweight("bold" if row.name == "aioloader" else "normal")
    place.set_ylim(max(most, len(bars)) - 0.45, -0.55)
    place.set_xlim(0, longest * 1.16)
    place.set_xticks([])
    place.tick_params(length=0)
    for side in ("top", "right", "bottom"):
        place.spines[side].set_visible(False)
    place.spines["left"].set_color(_FAINT)


def _save(figure: Any, results: Results, title: str, folder: Path, name: str = "throughput.png") -> Path:
    from matplotlib import pyplot

    figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
    figure.supxlabel(machine_line(results.run), x=0.01, ha="left", fontsize=8, color=_BARE)
    path = folder / name
    figure.savefig(path, dpi=140, facecolor="white")
    pyplot.close(figure)
    return path
