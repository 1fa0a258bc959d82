"""Fixtures of the recordio tests: a separate cache directory, and files written by MXNet."""

import json
from pathlib import Path

import pytest

from tests.recordio.ten_records import write_ten_records

GOLDEN = Path(__file__).parents[1] / "data" / "mxnet"


@pytest.fixture(autouse=True)
def cache_dir(tmp_path_factory, monkeypatch):
    """Use a separate cache directory, not the user's."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("AIOLOADER_CACHE_DIR", str(folder))
    return folder


@pytest.fixture(scope="session")
def golden():
    """Return the folder of files written by MXNet 1.9.1."""
    return GOLDEN


@pytest.fixture(scope="session")
def manifest():
    """Return the description of those files."""
    files = json.loads((GOLDEN / "manifest.json").read_text())["files"]
    return files


@pytest.fixture
def rec(tmp_path):
    """Return the path of a file of ten records with an index, see `tests.recordio.ten_records`."""
    return write_ten_records(tmp_path / "a.rec")
