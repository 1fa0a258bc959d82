"""Tests that the plots of docs/benchmarks-tables.md show the figures of its tables."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.charts import draw_page, read_charts, with_images

DOCS = Path(__file__).parents[2] / "docs"
PAGE = """\
# Benchmarks

## faces: small images

| contender | setting | images/s | of the bare loop | aioloader is |
| --- | --- | --- | --- | --- |
| bare_loop [1] |  | 2,000 (1,900 to 2,100) |  | 0.50x |
| **aioloader/process** |  | 1,000 (900 to 1,100) | 0.50 |  |
| other & co | threads 2 | 250 | 0.12 | 4.00 (3.00 to 5.00)x |
| broken |  | failed, no reason |  |  |

## Versions

| contender | Python |
| --- | --- |
"""


def test_the_bars_are_the_rows_of_the_table() -> None:
    (chart,) = read_charts(PAGE)
    assert (chart.case, chart.title, chart.unit) == ("faces", "small images", "images/s")
    assert [
        (bar.title, bar.kind, bar.median, bar.low, bar.high, bar.figure, bar.note) for bar in chart.bars
    ] == [
        ("bare loop", "bare", 2000, 1900, 2100, "2,000", ""),
        ("aioloader/process", "ours", 1000, 900, 1100, "1,000", ""),
        ("other & co", "peer", 250, 250, 250, "250", "aioloader 4.00x"),
    ]
    widths = [float(each) for each in re.findall(r'<rect [^>]*width="([0-9.]+)"', chart.svg())]
    assert [width / widths[0] for width in widths] == pytest.approx([1, 0.5, 0.125], abs=1e-3)
    assert ElementTree.fromstring(chart.svg()).tag.endswith("svg")


def test_a_bar_names_both_ratios_where_a_crop_index_was_measured() -> None:
    (chart,) = read_charts(
        "## faces: small\n\n| contender | setting | images/s | aioloader is | with crop index |\n"
        f"|{' --- |' * 5}\n"
        "| **aioloader/crop-index** |  | 1,750 | 0.57x |  |\n"
        "| other |  | 250 | 4.00 (3.00 to 5.00)x | 7.00 (6.00 to 8.00)x |\n"
    )
    assert [bar.note for bar in chart.bars] == ["", "aioloader 4.00x, with index 7.00x"]


def test_drawing_twice_changes_nothing(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    (image,) = draw_page(page, tmp_path / "images")
    once = page.read_text(), image.read_text()
    assert (
        "## faces: small images\n\n![faces: images/s](images/benchmarks/faces.svg)\n\n| contender" in once[0]
    )
    draw_page(page, tmp_path / "images")
    assert (page.read_text(), image.read_text()) == once


def test_the_images_of_the_site_are_those_of_its_figures() -> None:
    text = (DOCS / "benchmarks-tables.md").read_text(encoding="utf-8")
    charts = list(read_charts(text))
    assert len(charts) == len(re.findall(r"^## [a-z0-9-]+: ", text, re.MULTILINE)) >= 9
    for chart in charts:
        found = (DOCS / "images" / "benchmarks" / f"{chart.case}.svg").read_text(encoding="utf-8")
        assert found == chart.svg(), "run python -m benchmarks.publish --pages"
    assert with_images(text, charts) == text, "run python -m benchmarks.publish --pages"
