"""Megatron-Energon: tar shards with its metadata, a task encoder that decodes by OpenCV, its loader's worker processes.

The shards are prepared as "Programmatic Data Preparation" and "Crude Datasets" of its documentation say, and loaded as
"Quickstart" and "Task Encoder" do, with their buffer and sequence of 100 samples; `repeat=False` ends an epoch
(https://nvidia.github.io/Megatron-Energon). Its own image decoders make tensors of float32 or images of Pillow's, so
the encoder decodes the bytes. Workers take contiguous parts of the data: only one of them keeps the order of the file.
"""

from __future__ import annotations

import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from megatron.energon import (
    Batch,
    Cooker,
    DefaultTaskEncoder,
    Sample,
    WorkerConfig,
    basic_sample_keys,
    edataclass,
    get_loader,
    get_train_dataset,
    get_val_dataset,
    stateless,
)
from megatron.energon.flavors import BaseWebdatasetFactory

from benchmarks.contenders.contract import RecFile, Source
from benchmarks.contenders.format_files import write_tar
from benchmarks.contenders.opencv import make_image

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.cases import Case

VARIANTS = ("",)
PACKAGES = ("megatron-energon", "torch", "opencv-python-headless", "numpy")

_SHARDS = 16
_CRUDE = "__module__: megatron.energon\n__class__: CrudeWebdataset\n"


def supports(case: Case, variant: str) -> str | None:
    """Return None for JPEGs, which its shards hold as files."""
    return None if case.store == "jpeg" else "measured with images in files"


def settings(case: Case, variant: str, cores: int) -> list[dict[str, Any]]:
    """Return settings with numbers of worker processes for which each worker has whole batches."""
    if not case.shuffle:
        return [{"num_workers": 1}, {"num_workers": 0}]
    numbers = dict.fromkeys((cores, 1, cores + 1, 4))
    return [{"num_workers": number} for number in numbers if case.samples % (case.batch_size * number) == 0]


def prepare(case: Case, variant: str, source: Source, folder: Path) -> Path:
    """Write tar shards, with the label as key, and their metadata."""
    records = RecFile(source.rec, source.samples)
    names = [f"{shard:05d}.tar" for shard in range(_SHARDS)]
    for name, part in zip(names, np.array_split(np.arange(len(records)), _SHARDS), strict=True):
        images = (records.image(number) for number in part)
        write_tar(folder / name, ((f"{label:08d}.jpg", jpeg) for jpeg, label in images))
    BaseWebdatasetFactory.prepare_dataset(
        folder, names, split_parts_ratio=[("train", 1), ("val", 0), ("test", 0)], shuffle_seed=None, workers=1
    )
    (folder / ".nv-meta" / "dataset.yaml").write_text(_CRUDE)
    return folder


@contextmanager
def open_batches(case: Case, variant: str, data: Path, setting: dict[str, Any]) -> Iterator[Any]:
    """Open a loader with persistent workers."""
    torch.set_num_threads(1)
    options: dict[str, Any] = {
        "split_part": "train",
        "batch_size": case.batch_size,
        "task_encoder": Encoder(case),
        "worker_config": WorkerConfig(rank=0, world_size=1, **setting),
    }
    if case.shuffle:
        options |= {"shuffle_buffer_size": 100, "max_samples_per_sequence": 100, "repeat": False}
    yield _Pairs(get_loader((get_train_dataset if case.shuffle else get_val_dataset)(data, **options)))


class _Pairs:
    """Batches as (images, labels)."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        for batch in self._loader:
            yield batch.images.numpy(), batch.labels.numpy()


@edataclass
class Photograph(Sample):
    """Photograph with its number: the bytes of its JPEG, then its pixels."""

    image: Any
    label: int


@edataclass
class Photographs(Batch):
    """Batch of images with their numbers."""

    images: torch.Tensor
    labels: torch.Tensor


@stateless
def _cook(sample: dict[str, Any]) -> Photograph:
    number = int(sample["__key__"].rpartition("/")[2])
    return Photograph(**basic_sample_keys(sample), image=sample["jpg"], label=number)


class Encoder(DefaultTaskEncoder):
    """Encoder from JPEGs to batches."""

    decoder = None
    cookers = (Cooker(_cook),)

    def __init__(self, case: Case) -> None:
        super().__init__()
        self._case = case

    def encode_sample(self, sample: Photograph) -> Photograph:
        sample.image = torch.from_numpy(np.ascontiguousarray(make_image(self._case, sample.image, random)))
        return sample

    def batch(self, samples: list[Photograph]) -> Photographs:
        images = torch.stack([sample.image for sample in samples])
        labels = torch.tensor([sample.label for sample in samples])
        return Photographs.from_samples(samples, images=images, labels=labels)
