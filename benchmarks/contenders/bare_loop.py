"""Bare loop: the same work in plain loops, one process per core, without a loader.

Images: decode, crop, resize and flip into memory that is kept; no files, no order, no batches. It counts by itself
(`measure`); batches are made only for the check. Arrays: one numpy gather per batch and array, into new arrays.
Records: one `os.pread` per record, in a drawn order. Both of these in one process.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np

from aioloader.tools.bench import BareLoop, ImageWorker, Work
from benchmarks.contenders.contract import RecFile, Source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.cases import Case

VARIANTS = ("",)
PACKAGES = ("numpy", "opencv-python-headless", "simplejpeg")


def supports(case: Case, variant: str) -> str | None:
    """Return None for all cases except that of the start."""
    return "has no batches" if case.start else None


def settings(case: Case, variant: str, cores: int) -> list[dict[str, Any]]:
    """Return the setting with one process per core."""
    return [{"processes": cores}] if case.images else [{}]


@contextmanager
def open_batches(case: Case, variant: str, data: Path, setting: dict[str, Any]) -> Iterator[Any]:
    """Open the loop."""
    source = Source.load(data)
    if case.store == "arrays":
        yield _Gather(case, source)
        return
    if case.store == "bytes":
        yield _Reads(case, source)
        return
    images: list[Any] = [path.read_bytes() for path in source.files[: source.image_count]]
    if case.store == "raw":
        images = [cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB) for data in images]
    size = case.shape[-1] if case.normalised else case.shape[0]
    work = Work(size, case.crop, case.flip, case.normalised, case.interpolation, case.antialias)
    with BareLoop(images, setting["processes"], work) as loop:
        yield _Images(case, loop, ImageWorker(images, work))


class _Images:
    """Loop that counts by itself; it makes batches for the check only."""

    def __init__(self, case: Case, loop: BareLoop, worker: ImageWorker) -> None:
        self._case = case
        self._loop = loop
        self._worker = worker

    def measure(self, seconds: float) -> float:
        """Return images per second."""
        return self._loop.measure(seconds)

    def __iter__(self) -> Iterator[Any]:
        order = _order(self._case)
        for start in range(0, self._case.samples, self._case.batch_size):
            numbers = order[start : start + self._case.batch_size]
            yield np.stack([self._worker.make(number).copy() for number in numbers.tolist()]), numbers


class _Gather:
    """Loop of `numpy.take`."""

    def __init__(self, case: Case, source: Source) -> None:
        self._case = case
        self._images = source.images
        self._labels = source.labels

    def __iter__(self) -> Iterator[Any]:
        images, labels, size = self._images, self._labels, self._case.batch_size
        order = _order(self._case)
        for start in range(0, len(order), size):
            numbers = order[start : start + size]
            yield images[numbers], labels[numbers]


class _Reads:
    """Loop of `os.pread`."""

    def __init__(self, case: Case, source: Source) -> None:
        self._case = case
        self._records = RecFile(source.rec, case.samples)

    def __iter__(self) -> Iterator[Any]:
        payload, size = self._records.payload, self._case.batch_size
        order = _order(self._case).tolist()
        for start in range(0, len(order), size):
            yield [payload(number) for number in order[start : start + size]]


def _order(case: Case) -> Any:
    numbers = np.arange(case.samples)
    return np.random.default_rng().permutation(numbers) if case.shuffle else numbers
