"""MosaicML Streaming: MDS shards through PyTorch's DataLoader, decoded by Pillow (the encoding "jpeg") or by OpenCV."""

from __future__ import annotations

import random
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image
from torch.utils.data import DataLoader

from benchmarks.contenders import opencv, pillow
from benchmarks.contenders.batches import NumpyBatches
from benchmarks.contenders.contract import RecFile, Source
from benchmarks.contenders.torchvision_v2 import import_v2

# Streaming imports torchvision, whose operators must be declared before; so its imports are not at the top.
import_v2()
from streaming import MDSWriter, StreamingDataset  # noqa: E402  # see above
from streaming.base.util import clean_stale_shared_memory  # noqa: E402  # see above

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.cases import Case

VARIANTS = ("pillow", "opencv")
PACKAGES = ("mosaicml-streaming", "torch", "pillow", "opencv-python-headless", "numpy")


def supports(case: Case, variant: str) -> str | None:
    """Return None for the case of the formats; the one that antialiases for Pillow, which always does."""
    if not case.peers:
        return "measured with the case of the formats"
    return "Pillow's resize always antialiases" if variant == "pillow" and not case.antialias else None


def settings(case: Case, variant: str, cores: int) -> list[dict[str, Any]]:
    """Return settings of persistent worker processes."""
    return [{"num_workers": number} for number in dict.fromkeys((cores, 1, cores + 1, 4))]


def data_key(case: Case, variant: str) -> str:
    """Return a key for each encoding: the one for OpenCV stores the image as bytes."""
    return f"{case.data}-{case.store}-{variant}"


def prepare(case: Case, variant: str, source: Source, folder: Path) -> Path:
    """Write uncompressed shards of the usual 64 MiB."""
    records = RecFile(source.rec, source.samples)
    shutil.rmtree(folder / "mds", ignore_errors=True)
    columns = {"image": "jpeg" if variant == "pillow" else "bytes", "label": "int"}
    with MDSWriter(out=str(folder / "mds"), columns=columns) as writer:
        for number in range(source.samples):
            data, label = records.image(number)
            # An image that was opened by its name is stored as it is, not encoded again.
            image = Image.open(str(source.files[number])) if variant == "pillow" else data
            writer.write({"image": image, "label": label})
    return folder / "mds"


@contextmanager
def open_batches(case: Case, variant: str, data: Path, setting: dict[str, Any]) -> Iterator[Any]:
    """Open a DataLoader over a local StreamingDataset."""
    clean_stale_shared_memory()
    torch.set_num_threads(1)
    dataset = Images(case, variant, data)
    loader = DataLoader(
        dataset,
        batch_size=case.batch_size,
        persistent_workers=True,
        **setting,
    )
    yield NumpyBatches(loader)


class Images(StreamingDataset):
    """Dataset of (image, number)."""

    def __init__(self, case: Case, variant: str, data: Path) -> None:
        super().__init__(local=str(data), shuffle=case.shuffle, batch_size=case.batch_size)
        self._case = case
        self._variant = variant

    def __getitem__(self, at: Any) -> Any:
        sample = super().__getitem__(at)
        if self._variant == "pillow":
            image = pillow.make_image(self._case, sample["image"])
        else:
            image = opencv.make_image(self._case, sample["image"], random).copy()
        return torch.from_numpy(image), sample["label"]
