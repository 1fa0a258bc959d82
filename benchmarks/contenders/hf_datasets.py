"""Hugging Face datasets: Parquet files through PyTorch's DataLoader, decoded by Pillow (its default) or by OpenCV."""

from __future__ import annotations

import io
import os
import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import datasets
import torch
from PIL import Image
from torch.utils.data import DataLoader

from benchmarks.contenders import opencv, pillow
from benchmarks.contenders.batches import NumpyBatches
from benchmarks.contenders.contract import RecFile, Source
from benchmarks.contenders.format_files import write_format

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.cases import Case

VARIANTS = ("pillow", "opencv")
PACKAGES = ("datasets", "pyarrow", "torch", "pillow", "opencv-python-headless", "numpy")


def supports(case: Case, variant: str) -> str | None:
    """Return None for the case of the formats; the one that antialiases for Pillow, which always does."""
    if not case.peers:
        return "measured with the case of the formats"
    return "Pillow's resize always antialiases" if variant == "pillow" and not case.antialias else None


def settings(case: Case, variant: str, cores: int) -> list[dict[str, Any]]:
    """Return settings of persistent worker processes."""
    return [{"num_workers": number} for number in dict.fromkeys((cores, 1, cores + 1, 4))]


def prepare(case: Case, variant: str, source: Source, folder: Path) -> Path:
    """Write Parquet shards as `push_to_hub` does: struct{bytes, path}, int64 labels, row groups of 100, snappy."""
    write_format("parquet", RecFile(source.rec, source.samples), folder)
    return folder


@contextmanager
def open_batches(case: Case, variant: str, data: Path, setting: dict[str, Any]) -> Iterator[Any]:
    """Open a DataLoader over a map-style dataset, whose Arrow copy is made before."""
    files = sorted(map(str, data.glob("*.parquet")))
    loaded = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=str(data / "arrow"))
    # The images are decoded by the transform, in the workers.
    loaded = loaded.cast_column("image", datasets.Image(decode=False))
    torch.set_num_threads(1)
    loader = DataLoader(
        loaded.with_transform(ImageTransform(case, variant)),
        batch_size=case.batch_size,
        shuffle=case.shuffle,
        persistent_workers=True,
        collate_fn=_collate,
        **setting,
    )
    yield NumpyBatches(loader)


class ImageTransform:
    """Transform from a batch of rows to images."""

    def __init__(self, case: Case, variant: str) -> None:
        self._case = case
        self._variant = variant

    def __call__(self, rows: dict[str, Any]) -> dict[str, Any]:
        return {
            "image": [self._make(entry["bytes"]) for entry in rows["image"]],
            "label": rows["label"],
        }

    def _make(self, data: bytes) -> Any:
        if self._variant == "pillow":
            with Image.open(io.BytesIO(data)) as file:
                return torch.from_numpy(pillow.make_image(self._case, file))
        return torch.from_numpy(opencv.make_image(self._case, data, random).copy())


def _collate(samples: list[dict[str, Any]]) -> tuple[Any, Any]:
    images = torch.stack([sample["image"] for sample in samples])
    return images, torch.tensor([sample["label"] for sample in samples])


os.environ.setdefault("HF_HUB_OFFLINE", "1")
