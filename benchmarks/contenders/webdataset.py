"""WebDataset: tar shards, a shuffle buffer, images decoded by OpenCV, batches made in PyTorch's worker processes.

A shard holds one batch, so that every epoch has whole batches with any number of workers, and the order of the file
if the case requires it. The label is the sample's key: one member per sample is half the work of two.
"""

from __future__ import annotations

import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import webdataset
from torch.utils.data import default_collate

from benchmarks.contenders.batches import NumpyBatches
from benchmarks.contenders.contract import RecFile, Source
from benchmarks.contenders.format_files import write_tar
from benchmarks.contenders.opencv import make_image

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.cases import Case

VARIANTS = ("",)
PACKAGES = ("webdataset", "torch", "opencv-python-headless", "numpy")


def supports(case: Case, variant: str) -> str | None:
    """Return None for JPEGs and records, which tar files hold."""
    if case.store == "raw":
        return "has no raw format with crops"
    return "has no arrays in memory" if case.store == "arrays" else None


def settings(case: Case, variant: str, cores: int) -> list[dict[str, Any]]:
    """Return settings of worker processes; none if a sample costs next to nothing."""
    numbers = dict.fromkeys((cores, 1, cores + 1, 4) if case.images else (0, cores))
    return [{"num_workers": number} for number in numbers]


def prepare(case: Case, variant: str, source: Source, folder: Path) -> Path:
    """Write tar shards of one batch each."""
    records = RecFile(source.rec, source.samples)
    for shard, first in enumerate(range(0, source.samples, case.batch_size)):
        numbers = range(first, first + case.batch_size)
        if case.images:
            members = ((f"{number:08d}.jpg", records.image(number)[0]) for number in numbers)
        else:
            members = ((f"{number:08d}.bin", records.payload(number)) for number in numbers)
        write_tar(folder / f"{shard:05d}.tar", members)
    return folder


@contextmanager
def open_batches(case: Case, variant: str, data: Path, setting: dict[str, Any]) -> Iterator[Any]:
    """Open a WebLoader with persistent workers."""
    shards = sorted(map(str, data.glob("*.tar")))
    dataset = webdataset.WebDataset(
        shards, shardshuffle=len(shards) if case.shuffle else False, empty_check=False
    )
    if case.shuffle:
        dataset = dataset.shuffle(case.buffered)  # the order of the shards is shuffled as well
    make, together = (_record, list) if case.store == "bytes" else (ImageTransform(case), default_collate)
    dataset = dataset.map(make).batched(case.batch_size, collation_fn=together)
    workers = setting["num_workers"]
    loader = webdataset.WebLoader(
        dataset, batch_size=None, num_workers=workers, persistent_workers=workers > 0
    )
    yield loader if case.store == "bytes" else NumpyBatches(loader)


class ImageTransform:
    """Transform from a sample of a shard to (image, number)."""

    def __init__(self, case: Case) -> None:
        self._case = case

    def __call__(self, sample: dict[str, Any]) -> tuple[Any, int]:
        image = np.ascontiguousarray(make_image(self._case, sample["jpg"], random))
        return torch.from_numpy(image), int(sample["__key__"])


def _record(sample: dict[str, Any]) -> bytes:
    content: bytes = sample["bin"]
    return content
