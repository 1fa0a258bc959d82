"""Tests that the plots show the figures of the tables, and that those of the site are those of its results file."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.charts import chart_of
from benchmarks.published_pages import ROOT
from benchmarks.published_results import Published, all_loaders, latest
from benchmarks.report import write_report
from benchmarks.results import summarise
from tests.benchmarks.test_report import INDEXED, RECORDS, measured


def test_the_bars_are_the_contenders_that_were_measured() -> None:
    chart = chart_of(summarise(INDEXED), "jpeg-uint8")
    assert chart.unit == "images/s"
    bars = {bar.title: (bar.kind, bar.median, bar.low, bar.high, bar.figure, bar.note) for bar in chart.bars}
    assert len(bars) == 7  # without those that failed
    assert bars["bare loop"] == ("bare", 1500, 800, 1600, "1,500", "")
    assert bars["aioloader/process"] == ("ours", 1800, 900, 2000, "1,800", "")
    assert bars["tf_data"] == ("peer", 1300, 600, 1400, "1,300", "aioloader 1.50x, with index 2.00x")
    found = zip(chart.bars, re.findall(r'<rect [^>]*width="([0-9.]+)"', chart.svg()), strict=True)
    assert {round(float(width) / bar.median, 2) for bar, width in found} == {0.16}


def test_the_report_has_a_plot_of_each_case_without_markup_from_its_texts(tmp_path: Path) -> None:
    records = [*RECORDS, *measured("<dali> & co", "", [9_000_000.0], "bytes")]
    written = write_report(records, tmp_path)
    text = (tmp_path / "report.md").read_text()
    for case, unit in (("jpeg-uint8", "images/s"), ("bytes", "records/s")):
        assert f"![{case}: {unit}](images/benchmarks/{case}.svg)" in text
        assert tmp_path / "images" / "benchmarks" / f"{case}.svg" in written
    plot = (tmp_path / "images" / "benchmarks" / "bytes.svg").read_text()
    assert any("<dali> & co" in title for title in ElementTree.fromstring(plot).itertext())
    assert plot.count('<line class="cut"') == 1  # its bar is far longer than all others
    assert ">9,000,000<" in plot


def test_the_images_of_the_site_are_those_of_its_figures() -> None:
    path = latest()
    if path is None:
        pytest.skip("no figures are published")
    results = all_loaders(Published(path).parts)
    assert len(results.cases) >= 9
    for case in results.cases:
        found = (ROOT / "docs" / "images" / "benchmarks" / f"{case}.svg").read_text(encoding="utf-8")
        assert found == chart_of(results, case).svg(), "run python -m benchmarks.publish --pages"
