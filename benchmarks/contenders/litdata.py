"""LitData: its optimised chunks of 64 MB, its streaming loader, images decoded by OpenCV in a transform.

The chunks hold JPEGs as bytes, so that a transform decodes and crops them once. Workers take turns with
contiguous parts of the data, so only one of them keeps the order of the file. "raw" holds pixels instead.
"""

from __future__ import annotations

import io
import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from litdata import StreamingDataLoader, StreamingDataset
from litdata.streaming.cache import Cache
from PIL import Image

from benchmarks.contenders import pillow
from benchmarks.contenders.batches import NumpyBatches
from benchmarks.contenders.contract import RecFile, Source
from benchmarks.contenders.opencv import make_image

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from benchmarks.cases import Case

VARIANTS = ("", "raw")
PACKAGES = ("litdata", "torch", "pillow", "opencv-python-headless", "numpy")

_CHUNK = "64MB"


def supports(case: Case, variant: str) -> str | None:
    """Return None for JPEGs and records, which its chunks hold."""
    if case.kept != (variant == "raw"):
        return "measured with the case of the epochs" if variant else "keeps no decoded images"
    if case.store == "raw":
        return "has no raw format with crops"
    return "has no arrays in memory" if case.store == "arrays" else None


def settings(case: Case, variant: str, cores: int) -> list[dict[str, Any]]:
    """Return settings with numbers of worker processes for which each worker has whole batches."""
    if not case.shuffle:
        return [{"num_workers": 1}, {"num_workers": 0}]
    numbers = dict.fromkeys((cores, 1, cores + 1, 4) if case.images else (0, cores))
    whole = [number for number in numbers if case.samples % (case.batch_size * max(number, 1)) == 0]
    return [{"num_workers": number} for number in whole]


def data_key(case: Case, variant: str) -> str:
    """Return a key for each variant."""
    return f"{case.data}-{case.store}{variant}"


def prepare(case: Case, variant: str, source: Source, folder: Path) -> Path:
    """Write chunks in order, in this process."""
    records = RecFile(source.rec, source.samples)
    cache = Cache(str(folder), chunk_bytes=_CHUNK)
    for number in range(source.samples):
        if case.images:
            jpeg, label = records.image(number)
            image = np.array(Image.open(io.BytesIO(jpeg)).convert("RGB")) if variant else jpeg
            cache[number] = {"image": image, "label": label}
        else:
            cache[number] = records.payload(number)
    cache.done()
    cache.merge()
    return folder


@contextmanager
def open_batches(case: Case, variant: str, data: Path, setting: dict[str, Any]) -> Iterator[Any]:
    """Open a streaming loader with persistent workers."""
    dataset = StreamingDataset(
        str(data),
        shuffle=case.shuffle,
        drop_last=False,
        transform=ImageTransform(case) if case.images else None,
    )
    workers = setting["num_workers"]
    options: dict[str, Any] = {"persistent_workers": True} if workers else {}
    if case.store == "bytes":
        options["collate_fn"] = _copied
    loader = StreamingDataLoader(
        dataset, batch_size=case.batch_size, shuffle=case.shuffle, num_workers=workers, **options
    )
    yield loader if case.store == "bytes" else NumpyBatches(loader)


def _copied(items: Sequence[memoryview]) -> list[bytes]:
    """Copy an item: items are views of a mapped chunk, which cannot be sent from a worker."""
    return [bytes(item) for item in items]


class ImageTransform:
    """Transform from an item of a chunk to (image, number)."""

    def __init__(self, case: Case) -> None:
        self._case = case

    def __call__(self, item: dict[str, Any]) -> tuple[Any, int]:
        if self._case.kept:
            image = pillow.make_image(self._case, Image.fromarray(np.asarray(item["image"])))
        else:
            image = np.ascontiguousarray(make_image(self._case, item["image"], random))
        return torch.from_numpy(image), item["label"]
