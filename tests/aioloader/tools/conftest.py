"""Fixtures of the tests of tools: a directory for indexes, and commands in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aioloader.cli import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep indexes that are not next to their data in a directory of the test."""
    monkeypatch.setenv("AIOLOADER_CACHE_DIR", str(tmp_path.with_name(f"{tmp_path.name}-cache")))


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command, and returns its exit code, its output and its messages."""

    def run(*words: Any) -> tuple[int, str, str]:
        capfd.readouterr()
        try:
            code = main([str(word) for word in words])
        except SystemExit as stop:
            code = int(str(stop.code))
        out, err = capfd.readouterr()
        # Without progress bars.
        return code, out, "".join(line for line in err.splitlines(keepends=True) if "%" not in line)

    return run
