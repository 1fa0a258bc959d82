"""Tests of MDS sets that the package mosaicml-streaming wrote: the values are those that it reads.

The sets in tests/data/mds are read in every run. A test of a new set needs an interpreter with the package, which
the variable AIOLOADER_TEST_STREAMING names.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from aioloader import DataLoader, MDSDataset
from tests.aioloader.datasets.goldens import check
from tests.conftest import DATA

GOLDEN = DATA / "mds"
IMAGES = ("image", "png", "pil", "jpegs", "pngs", "pils", "jpegarray")


def check_set(folder: Path, expected: list[dict[str, Any]], cache: Path) -> None:
    """Fail unless all samples of a set have the expected values."""
    names = tuple(expected[0])
    dataset = MDSDataset(folder, fields=names, cache=cache)
    assert len(dataset) == len(expected)
    for number, sample in enumerate(expected):
        found = dataset[number]
        for name in names:
            check(found[name], sample[name], name)
    pairs = MDSDataset(folder, label="int", cache=cache)
    assert pairs.labels().tolist() == [sample["int"]["value"] for sample in expected]
    with DataLoader(pairs, 2, executor="thread", num_workers=1) as loader:
        labels = [label for _, labels in loader for label in labels.tolist()]
    assert labels == pairs.labels().tolist()


@pytest.mark.parametrize("name", ["plain", "zstd"])
def test_sets_of_the_package_have_the_values_that_it_reads(name: str, tmp_path: Path) -> None:
    if name == "zstd":
        pytest.importorskip("zstandard", reason="needs zstandard")
    expected = json.loads((GOLDEN / "expected.json").read_text())
    assert len(json.loads((GOLDEN / name / "index.json").read_text())["shards"]) > 1
    assert set(IMAGES) < set(expected[0])
    check_set(GOLDEN / name, expected, tmp_path / "cache")


@pytest.mark.slow
def test_a_new_set_of_the_package_has_the_values_that_it_reads(tmp_path: Path) -> None:
    python = os.environ.get("AIOLOADER_TEST_STREAMING")
    if python is None:
        pytest.skip("needs AIOLOADER_TEST_STREAMING, a Python with mosaicml-streaming")
    subprocess.run([python, GOLDEN / "make.py", tmp_path], check=True, capture_output=True)
    expected = json.loads((tmp_path / "expected.json").read_text())
    assert expected == json.loads((GOLDEN / "expected.json").read_text())
    for name in ("plain", "zstd"):
        check_set(tmp_path / name, expected, tmp_path / "cache")
