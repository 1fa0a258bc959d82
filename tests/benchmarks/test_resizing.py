"""Tests of the guide's statements on resizing: the libraries that average, and those that do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.resizing import compare, main


def test_area_is_nearer_to_pillow_than_bilinear(photo_folder: Path) -> None:
    pytest.importorskip("PIL")
    paths = sorted(photo_folder.rglob("*.jpg"))[:4]
    found = compare(paths, 64)
    assert found["Pillow, bilinear", "area"].mean < 0.7 * found["Pillow, bilinear", "bilinear"].mean
    assert compare(paths, 10_000) == {}  # no image is enlarged


@pytest.mark.torch
def test_bilinear_is_torch_s_without_antialias(photo_folder: Path) -> None:
    pytest.importorskip("torch")
    found = compare(sorted(photo_folder.rglob("*.jpg"))[:4], 64)
    assert found["torch, bilinear, antialias=False", "bilinear"].greatest <= 2
    assert found["torch, bilinear, antialias=True", "bilinear"].greatest > 20


def test_the_command_prints_a_table(photo_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("PIL")
    assert main(["--data", str(photo_folder), "--size", "48"]) == 0
    assert "| Pillow, bilinear | area |" in capsys.readouterr().out
