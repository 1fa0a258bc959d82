"""Grain: a source with random access, a map that decodes, batches; its read threads and worker processes.

The source reads the .rec file, one positioned read per record. Grain's file format is ArrayRecord; its reader took
110 microseconds per record of 1 kB, read at random; this source takes 5.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import grain
import numpy as np

from benchmarks.contenders.batches import Epochs
from benchmarks.contenders.contract import RecFile, Source
from benchmarks.contenders.opencv import make_image, normalise

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from benchmarks.cases import Case

VARIANTS = ("",)
PACKAGES = ("grain", "opencv-python-headless", "numpy")


def supports(case: Case, variant: str) -> str | None:
    """Return None for all cases except raw pixels."""
    return "has no raw format" if case.store == "raw" else None


def settings(case: Case, variant: str, cores: int) -> list[dict[str, Any]]:
    """Return settings of worker processes and read threads; for data in memory its guide advises neither."""
    if case.store == "arrays":
        return [{"workers": 0, "threads": 0}, {"workers": 0, "threads": cores}]
    if case.store == "bytes":
        return [{"workers": 0, "threads": threads} for threads in (0, cores, 16)]
    pairs = dict.fromkeys(((cores, 0), (cores, 1), (1, 1), (cores + 1, 0), (4, 0), (0, cores), (0, 4)))
    return [{"workers": workers, "threads": threads} for workers, threads in pairs]


@contextmanager
def open_batches(case: Case, variant: str, data: Path, setting: dict[str, Any]) -> Iterator[Any]:
    """Open one endless iterator. Whole batches are elements of the dataset, so that no batch spans two epochs."""
    source = Source.load(data)
    rows: Any = Rows(source.images, source.labels) if case.store == "arrays" else Records(case, source)
    dataset = grain.MapDataset.source(rows)
    if case.shuffle:
        dataset = dataset.shuffle(seed=0)
    if case.images:
        dataset = dataset.seed(0).random_map(Decode(case))
    together = {"bytes": list}.get(case.store, normalised if case.normalised else None)
    batched = dataset.batch(case.batch_size, batch_fn=together)
    threads, workers = setting["threads"], setting["workers"]
    ahead = 2 * max(threads, 1) if case.images else 16
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=ahead if threads else 0)
    stream = batched.repeat().to_iter_dataset(options)
    if workers:
        stream = stream.mp_prefetch(
            grain.MultiprocessingOptions(num_workers=workers, per_worker_buffer_size=2)
        )
    iterator = iter(stream)
    try:
        yield Epochs(iterator, case.samples // case.batch_size)
    finally:
        iterator.close()


class Rows:
    """Random access source over arrays."""

    def __init__(self, images: Any, labels: Any) -> None:
        self._images = images
        self._labels = labels

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, number: int) -> tuple[Any, Any]:
        return self._images[number], self._labels[number]


class Records:
    """Random access source over a .rec file: (JPEG, label), or bytes."""

    def __init__(self, case: Case, source: Source) -> None:
        records = RecFile(source.rec, source.samples)
        self._length = len(records)
        self._read = records.image if case.images else records.payload

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, number: int) -> Any:
        return self._read(number)


class Decode(grain.transforms.RandomMap):
    """Transform from a JPEG to an image."""

    def __init__(self, case: Case) -> None:
        self._case = replace(case, normalised=False)

    def random_map(self, element: tuple[bytes, int], rng: np.random.Generator) -> tuple[Any, int]:
        return make_image(self._case, element[0], rng), element[1]


def normalised(samples: Sequence[tuple[Any, int]]) -> tuple[Any, Any]:
    """Convert a batch of uint8 to float32: no sample of float32 is made, to be copied."""
    images = np.empty((len(samples), 3, *samples[0][0].shape[:2]), np.float32)
    for (image, _), place in zip(samples, images, strict=True):
        normalise(image, place)
    return images, np.array([label for _, label in samples])
