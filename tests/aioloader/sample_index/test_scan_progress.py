"""Tests of the progress bar of scans: it appears when they take long, and adds up several shards."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from aioloader.sample_index import store as scan_progress
from aioloader.sample_index.store import ScanProgress

MIB = 1 << 20


def test_short_scans_display_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    def total() -> int:
        raise AssertionError("the sizes were asked for")

    with ScanProgress("scan", total) as progress:
        progress.update("a", 5 * MIB)
    assert capsys.readouterr().err == ""


def test_long_scans_display_the_bytes_of_all_shards(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_progress, "_SOON_S", 0.0)
    with ScanProgress("index of tars", lambda: 40 * MIB) as progress:
        with ThreadPoolExecutor(4) as pool:
            for reached in range(1, 11):
                list(pool.map(progress.update, "abcd", [reached * MIB] * 4))
    progress.update("late", MIB)
    assert "index of tars: 100% 40/40" in capsys.readouterr().err
