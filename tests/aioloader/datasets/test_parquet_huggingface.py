"""Tests of files that Hugging Face's `datasets` wrote: golden files, and new ones where the package is installed.

`AIOLOADER_TEST_DATASETS` may name the interpreter of another environment that has `datasets` and `pillow`.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aioloader import ParquetDataset
from tests.aioloader.datasets.batches import batches_of
from tests.conftest import DATA

pytest.importorskip("pyarrow", reason="needs pyarrow (pip install pyarrow)")

WRITER = Path(__file__).with_name("write_huggingface.py")
GOLDEN = DATA / "parquet"


def _written(folder: Path) -> Path:
    """Write files with `datasets`; skip if it is not installed."""
    python = os.environ.get("AIOLOADER_TEST_DATASETS")
    if python is None:
        if any(importlib.util.find_spec(name) is None for name in ("datasets", "PIL")):
            pytest.skip("needs datasets and pillow (pip install datasets pillow)")
        python = sys.executable
    environment = {
        **os.environ,
        "HF_HOME": str(folder / "home"),
        "HF_DATASETS_OFFLINE": "1",
        "HF_HUB_OFFLINE": "1",
    }
    subprocess.run([python, str(WRITER), str(folder)], check=True, env=environment, capture_output=True)
    return folder


@pytest.fixture(scope="module", params=["golden", pytest.param("new", marks=pytest.mark.slow)])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files of `write_huggingface.py`."""
    return GOLDEN if request.param == "golden" else _written(tmp_path_factory.mktemp("huggingface"))


def assert_shows(image: Any, number: int) -> None:
    assert image.shape == (12, 16, 3)
    assert abs(int(image.mean()) - 10 * number) <= 2


def test_images_and_class_labels(folder: Path) -> None:
    dataset = ParquetDataset(folder / "images-*.parquet")
    assert len(dataset) == 20
    assert dataset.synsets == ["cat", "dog", "eel"]
    assert dataset.labels().tolist() == [number % 3 for number in range(20)]
    for number in (0, 7, 19):
        image, label = dataset[number]
        assert_shows(image, number)
        assert label == number % 3


def test_a_shuffled_epoch_has_every_image(folder: Path) -> None:
    dataset = ParquetDataset(folder / "images-*.parquet", shuffle_blocks=2)
    batches = batches_of(dataset)
    numbers = sorted(round(image.mean() / 10) for images, _ in batches for image in images)
    assert numbers == list(range(20))
    assert all(
        round(image.mean() / 10) % 3 == label for pair in batches for image, label in zip(*pair, strict=True)
    )


def test_other_features(folder: Path) -> None:
    fields = ("caption", "image", "views", "boxes", "embedding", "meta", "score")
    dataset = ParquetDataset(folder / "fields.parquet", fields=fields)
    sample = dataset[2]
    assert sample["caption"] == "number 2"
    assert_shows(sample["image"], 2)
    assert len(sample["views"]) == 2
    assert_shows(sample["views"][1], 3)
    assert sample["boxes"] == [[2.0, 3.0], [4.0, 5.0]]
    assert (sample["embedding"].dtype, sample["embedding"].tolist()) == (np.float32, [2.0, 2.5])
    assert sample["meta"] == {"name": "n2", "tags": ["a", "b"]}
    assert (type(sample["score"]), sample["score"]) == (np.float32, 0.5)


def test_images_that_are_not_in_the_file(folder: Path) -> None:
    dataset = ParquetDataset(folder / "paths.parquet")
    with pytest.raises(
        ValueError, match=r"has only the path '.*\.png' of an image outside of the file: .*push_to_hub"
    ):
        dataset[0]
