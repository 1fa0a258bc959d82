"""PyTorch's DataLoader over image files, decoded by Pillow or by OpenCV; over tensors and records.

"list": images that are decoded once and kept in a list, which forked workers share.

"torchvision": decoded by OpenCV, and transformed by torchvision's version 2 as tensors, which is its fastest way.

Tensors and records are loaded three ways: "plain" (no workers), "workers", and "bulk" (many samples per call).

The crop is torchvision's RandomResizedCrop, drawn with the standard library's generator (which the DataLoader seeds in
every worker) because a draw from torch's costs several microseconds.
"""

from __future__ import annotations

import random
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import torch
from PIL import Image
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, TensorDataset

from benchmarks.cases import MEAN, STD
from benchmarks.contenders import opencv, pillow
from benchmarks.contenders.batches import NumpyBatches
from benchmarks.contenders.contract import RecFile, Source
from benchmarks.contenders.torchvision_v2 import import_v2

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.cases import Case

VARIANTS = ("pillow", "opencv", "torchvision", "list", "plain", "workers", "bulk")
PACKAGES = ("torch", "torchvision", "pillow", "opencv-python-headless", "numpy")

_MEAN = torch.tensor(MEAN).view(3, 1, 1) * 255
_STD = torch.tensor(STD).view(3, 1, 1) * 255


def supports(case: Case, variant: str) -> str | None:
    """Return None for images with two decoders; for arrays and records by single items, with workers, and in bulk."""
    if case.store == "raw":
        return "has no raw format"
    if case.kept or variant == "list":
        return None if case.kept and variant in ("list", "pillow") else "measured with the case of the epochs"
    decoding = ("pillow", "opencv", "torchvision")
    if case.images != (variant in decoding):
        return "for images" if variant in decoding else "for arrays and records"
    if variant == "torchvision":
        return None if case.antialias else "measured where images are resized antialiased"
    if case.resize and case.antialias != (variant == "pillow"):
        return (
            "OpenCV's resize does not antialias" if case.antialias else "Pillow's resize always antialiases"
        )
    return None


def settings(case: Case, variant: str, cores: int) -> list[dict[str, Any]]:
    """Return settings of persistent worker processes; none at all if a sample costs next to nothing."""
    if variant in ("plain", "bulk"):
        # A gather of 32 small rows gains nothing from torch's threads and may become slower.
        return [{"num_workers": 0, "threads": 1}, {"num_workers": 0, "threads": cores}]
    if variant == "workers":
        return [{"num_workers": number, "prefetch_factor": 8} for number in dict.fromkeys((cores, 1))]
    return [
        {"num_workers": number, "prefetch_factor": 2} for number in dict.fromkeys((cores, 1, cores + 1, 4))
    ]


@contextmanager
def open_batches(case: Case, variant: str, data: Path, setting: dict[str, Any]) -> Iterator[Any]:
    """Open a DataLoader."""
    source = Source.load(data)
    options: dict[str, Any] = {"batch_size": case.batch_size, "shuffle": case.shuffle, **setting}
    torch.set_num_threads(options.pop("threads", 1))
    if setting["num_workers"]:
        options["persistent_workers"] = True
    dataset: Any
    if case.store == "arrays":
        dataset = TensorDataset(torch.from_numpy(source.images), torch.from_numpy(source.labels))
    elif case.store == "bytes":
        dataset = (BulkRecords if variant == "bulk" else Records)(source)
        options["collate_fn"] = list
    elif variant == "list":
        dataset = KeptImages(case, source)
    else:
        make = (
            Torchvision(case) if variant == "torchvision" else {"pillow": _pillow, "opencv": _opencv}[variant]
        )
        dataset = Images(case, source, make)
    if case.store == "arrays" and variant == "bulk":
        del options["shuffle"]
        options["sampler"] = BatchSampler(RandomSampler(dataset), case.batch_size, drop_last=False)
        options["batch_size"] = None
    loader = DataLoader(dataset, **options)
    yield loader if case.store == "bytes" else NumpyBatches(loader)


class Records(Dataset):
    """Dataset of records by number."""

    def __init__(self, source: Source) -> None:
        self._records = RecFile(source.rec, source.samples)

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, number: int) -> bytes:
        return self._records.payload(number)


class BulkRecords(Records):
    """Dataset of records with DataLoader's hook for many samples at once."""

    def __getitems__(self, numbers: list[int]) -> list[bytes]:
        return [self._records.payload(number) for number in numbers]


class Images(Dataset):
    """Dataset of (image, number) of every sample."""

    def __init__(self, case: Case, source: Source, make: Any) -> None:
        self._case = case
        self._paths = [str(path) for path in source.files]
        self._make = make

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        image = torch.as_tensor(self._make(self._case, self._paths[number]))
        if self._case.normalised:
            planes = torch.empty(self._case.shape)
            planes.copy_(image.permute(2, 0, 1))
            image = planes.sub_(_MEAN).div_(_STD)
        return image, number


class KeptImages(Images):
    """Images that are decoded before the first epoch."""

    def __init__(self, case: Case, source: Source) -> None:
        super().__init__(case, source, self._crop)
        self._kept = {}
        for path in self._paths:
            with Image.open(path) as file:
                self._kept[path] = file.convert("RGB")

    def _crop(self, case: Case, path: str) -> Any:
        return pillow.make_image(case, self._kept[path])


def _opencv(case: Case, path: str) -> Any:
    return opencv.make_image(replace(case, normalised=False), Path(path).read_bytes(), random)


def _pillow(case: Case, path: str) -> Any:
    with Image.open(path) as file:
        return pillow.make_image(case, file)


class Torchvision:
    """Transforms of torchvision's version 2, of tensors."""

    def __init__(self, case: Case) -> None:
        v2 = import_v2()
        flips = [v2.RandomHorizontalFlip()] if case.flip else []
        self._transform = v2.Compose([v2.RandomResizedCrop(224, antialias=True), *flips])

    def __call__(self, case: Case, path: str) -> Any:
        image = cv2.imread(path, cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION)
        planes = torch.from_numpy(image).permute(2, 0, 1)
        return self._transform(planes).permute(1, 2, 0).contiguous()
