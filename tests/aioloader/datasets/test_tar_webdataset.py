"""Tests of tars that the package webdataset wrote: the samples are those that it reads and decodes.

The tars in tests/data/tar are read in every run. A test of new tars needs an interpreter with the package, which the
variable AIOLOADER_TEST_WEBDATASET names.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from aioloader import DataLoader, TarDataset
from aioloader.formats.tar.index import tar_members
from aioloader.formats.tar.samples import group_members
from tests.aioloader.datasets.goldens import check
from tests.conftest import DATA

GOLDEN = DATA / "tar"
EXPECTED = json.loads((GOLDEN / "expected.json").read_text())


def check_tars(folder: Path, samples: list[dict[str, Any]]) -> None:
    """Fail unless the tars of a folder have these samples."""
    paths = sorted(folder.glob("*.tar"))
    datasets: dict[tuple[str, ...], TarDataset] = {}
    for number, sample in enumerate(samples):
        names = ("__key__", *sample["fields"])
        dataset = datasets.setdefault(names, TarDataset(paths, fields=names))
        assert len(dataset) == len(samples)
        found = dataset[number]
        assert found["__key__"] == dataset.location(number).key == sample["key"]
        for name, expected in sample["fields"].items():
            check(found[name], expected, name)
    members = [group_members(tar_members(str(path), None)) for path in paths]
    assert sum(len(each.extension) for each in members) == sum(len(sample["fields"]) for sample in samples)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_tars_of_the_package_have_the_samples_that_it_reads(name: str) -> None:
    assert len(EXPECTED[name]) > 2
    check_tars(GOLDEN / name, EXPECTED[name])


@pytest.mark.parametrize(("name", "image"), [("shards", "jpg"), ("shards", "seg.png"), ("times", "png")])
def test_pairs_of_the_package_are_loaded(name: str, image: str) -> None:
    dataset = TarDataset(str(GOLDEN / name / "*.tar"), image=image)
    labels = [sample["fields"]["cls"]["number"] for sample in EXPECTED[name]]
    assert dataset.labels().tolist() == labels
    with DataLoader(dataset, 2, executor="thread", num_workers=1) as loader:
        batches = [(images.copy(), numbers.tolist()) for images, numbers in loader]
    assert [number for _, numbers in batches for number in numbers] == labels
    images = [each for batch, _ in batches for each in batch]
    for found, sample in zip(images, EXPECTED[name], strict=True):
        check(found, sample["fields"][image], image)


@pytest.mark.slow
def test_new_tars_of_the_package_have_the_samples_that_it_reads(tmp_path: Path) -> None:
    python = os.environ.get("AIOLOADER_TEST_WEBDATASET")
    if python is None:
        pytest.skip("needs AIOLOADER_TEST_WEBDATASET, a Python with webdataset and Pillow")
    subprocess.run([python, GOLDEN / "make.py", tmp_path], check=True, capture_output=True)
    expected = json.loads((tmp_path / "expected.json").read_text())
    assert [len(expected[name]) for name in sorted(expected)] == [8, 5, 3]
    for name, samples in expected.items():
        check_tars(tmp_path / name, samples)
