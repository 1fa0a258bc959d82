"""Fixtures of the recordio tests: a separate cache directory, and files written by MXNet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.recordio.ten_records import write_ten_records

GOLDEN = Path(__file__).parents[1] / "data" / "mxnet"


@pytest.fixture(autouse=True)
def cache_dir(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a separate cache directory, not the user's."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("AIOLOADER_CACHE_DIR", str(folder))
    return folder


@pytest.fixture(scope="session")
def golden() -> Path:
    """Return the folder of files written by MXNet 1.9.1."""
    return GOLDEN


@pytest.fixture(scope="session")
def manifest() -> dict[str, Any]:
    """Return the description of those files."""
    files: dict[str, Any] = json.loads((GOLDEN / "manifest.json").read_text())["files"]
    return files


@pytest.fixture
def rec(tmp_path: Path) -> Path:
    """Return the path of a file of ten records with an index, see `tests.recordio.ten_records`."""
    return write_ten_records(tmp_path / "a.rec")
