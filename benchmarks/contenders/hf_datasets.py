"""Hugging Face datasets: Parquet files through PyTorch's DataLoader, decoded by Pillow (its default) or by OpenCV."""

from __future__ import annotations

import io
import os
import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import cv2
import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image
from torch.utils.data import DataLoader

from benchmarks.contenders import opencv, pillow
from benchmarks.contenders.contract import RecFile, Source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.cases import Case

VARIANTS = ("pillow", "opencv")
PACKAGES = ("datasets", "pyarrow", "torch", "pillow", "opencv-python-headless", "numpy")

_SHARDS = 16
_ROW_GROUP = 100


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
    records = RecFile(source.rec, source.samples)
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    per_shard = -(-source.samples // _SHARDS)
    for shard, first in enumerate(range(0, source.samples, per_shard)):
        numbers = range(first, min(first + per_shard, source.samples))
        rows = [records.image(number) for number in numbers]
        table = pa.table(
            {
                "image": [{"bytes": data, "path": f"{label:08d}.jpg"} for data, label in rows],
                "label": [label for _, label in rows],
            },
            schema=features.arrow_schema,
        )
        name = f"train-{shard:05d}-of-{_SHARDS:05d}.parquet"
        pq.write_table(table, folder / name, row_group_size=_ROW_GROUP)
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
        worker_init_fn=_one_thread,
        collate_fn=_collate,
        **setting,
    )
    yield _Numpy(loader)


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


class _Numpy:
    """Batches as numpy arrays over the same memory."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        for images, labels in self._loader:
            yield images.numpy(), labels.numpy()


def _one_thread(worker: int) -> None:
    cv2.setNumThreads(0)


os.environ.setdefault("HF_HUB_OFFLINE", "1")
