"""Tests of the doctor's lines about formats."""

from __future__ import annotations

import pytest

from aioloader.tools.doctor.facts import format_rows, requirements

ALWAYS = "RecordIO, InsightFace, tar, TFRecord, MDS, image folder"
PACKAGES = [each.package for each in requirements()]


@pytest.mark.parametrize(
    ("installed", "readable", "extras"),
    [
        ({}, ALWAYS, 4),
        ({"pyarrow": "15.0"}, f"{ALWAYS}, Parquet (pyarrow 15.0)", 3),
        (dict.fromkeys(PACKAGES, "1"), None, 0),
    ],
)
def test_formats_follow_from_the_packages(
    installed: dict[str, str], readable: str | None, extras: int
) -> None:
    rows = dict(format_rows({name: installed.get(name) for name in PACKAGES}))
    if readable is not None:
        assert rows["formats"] == readable
    if not extras:
        assert list(rows) == ["formats"]
        assert all(f"({name} 1)" in rows["formats"] for name in PACKAGES)
        return
    # The packages of one extra are named together.
    assert "MDS with zstd, MDS with br, MDS with snappy: pip install 'aioloader[mds]'" in rows["not readable"]
    assert ("aioloader[parquet]" in rows["not readable"]) is ("pyarrow" not in installed)
    assert rows["not readable"].count("pip install") == extras
