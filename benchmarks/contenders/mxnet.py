"""MXNet 1.9.1: ImageRecordIter, Gluon's DataLoader and NDArrayIter.

ImageRecordIter gets an index file, so that it shuffles completely. It decodes with at most half the cores less one,
at least one, for every value of `preprocess_threads`: on two cores that is one thread. "ImageRecordIter-x2" is a way
around it that no guide shows: two of them, each over a half of the file (`num_parts`), used alternately.

ImageRecordIter returns batches of uint8 channels first. One copy per channel transposes them, several times faster than
a transposition by MXNet or by numpy. NDArrayIter shuffles in float32 only, and its batches are converted back.
numpy views NDArrays through DLPack, without a copy.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import mxnet as mx
import numpy as np
from mxnet.gluon.data import ArrayDataset, DataLoader, RecordFileDataset
from mxnet.gluon.data.vision import ImageRecordDataset, transforms

from benchmarks.cases import MEAN, STD
from benchmarks.contenders.contract import Source
from benchmarks.contenders.record_iter import DataIters, open_record_iter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.cases import Case

VARIANTS = ("ImageRecordIter", "ImageRecordIter-x2", "gluon", "NDArrayIter")
PACKAGES = ("mxnet", "numpy")


def supports(case: Case, variant: str) -> str | None:
    """Return None for JPEGs and arrays, each with two variants, and for records with Gluon only."""
    if case.store == "raw":
        return "has no raw format with crops"
    if case.antialias:
        return "its resize does not antialias"
    if variant == "NDArrayIter":
        return None if case.store == "arrays" else "for arrays"
    if variant == "gluon":
        return "its transforms have no random crop without a resize" if case.crop == "window" else None
    if not case.images:
        return "for images"
    return (
        "two halves of a file are not in order"
        if variant == "ImageRecordIter-x2" and not case.shuffle
        else None
    )


def settings(case: Case, variant: str, cores: int) -> list[dict[str, Any]]:
    """Return settings of decoding threads; of worker processes, and of threads where they work."""
    if variant == "NDArrayIter":
        return [{}]
    if variant == "gluon":
        numbers = dict.fromkeys((cores, 1, cores + 1, 4) if case.images else (0, cores))
        # Threads share one file position: with threads its record datasets return damaged records.
        threads = [{"num_workers": cores, "thread_pool": True}] if case.store == "arrays" else []
        return [*({"num_workers": number} for number in numbers), *threads]
    threads = dict.fromkeys((cores, 4))
    return [{"preprocess_threads": number, "prefetch_buffer": 4} for number in threads]


@contextmanager
def open_batches(case: Case, variant: str, data: Path, setting: dict[str, Any]) -> Iterator[Any]:
    """Open an iterator or a loader."""
    if variant == "NDArrayIter":
        source = Source.load(data)
        arrays = mx.io.NDArrayIter(source.images, source.labels, case.batch_size, shuffle=True)
        yield DataIters([arrays], lambda images: _seen(images).astype(np.uint8))
    elif variant == "gluon":
        yield _Gluon(case, data, setting)
    else:
        parts = 2 if variant == "ImageRecordIter-x2" else 1
        iters = [open_record_iter(mx, case, data, setting, part, parts) for part in range(parts)]
        yield DataIters(iters, _seen if case.normalised else lambda images: _channels_last(_seen(images)))


class _Gluon:
    """Batches of a Gluon DataLoader."""

    def __init__(self, case: Case, data: Path, setting: dict[str, Any]) -> None:
        options: dict[str, Any] = {"batch_size": case.batch_size, "shuffle": case.shuffle, **setting}
        if case.store == "arrays":
            source = Source.load(data)
            dataset: Any = ArrayDataset(
                source.images, source.labels
            )  # numpy arrays: NDArrays are ten times slower
        elif case.store == "bytes":
            dataset = RecordFileDataset(str(data / "records.rec"))
            options["batchify_fn"] = list
        else:
            dataset = ImageRecordDataset(str(data / "images.rec")).transform_first(_transforms(case))
        self._loader = DataLoader(dataset, **options)
        self._bytes = case.store == "bytes"

    def __iter__(self) -> Iterator[Any]:
        if self._bytes:
            return iter(self._loader)
        return ((_seen(images), labels.asnumpy()) for images, labels in self._loader)


def _transforms(case: Case) -> Any:
    steps: list[Any] = []
    if case.crop == "random":
        steps.append(transforms.RandomResizedCrop(224, scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3)))
    elif case.crop == "centre":
        steps += [transforms.Resize(256, keep_ratio=True), transforms.CenterCrop(224)]
    if case.flip:
        steps.append(transforms.RandomFlipLeftRight())
    if case.normalised:
        steps += [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    return transforms.Compose(steps)


class _DLPack:
    """Wrapper of an NDArray with the DLPack methods that numpy calls."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **_: Any) -> Any:
        return self._array.to_dlpack_for_read()

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # the CPU; page-locked memory makes no difference for reading


def _seen(array: Any) -> Any:
    """Return a numpy array over the memory of an NDArray."""
    return np.from_dlpack(_DLPack(array))


def _channels_last(images: Any) -> Any:
    number, channels, height, width = images.shape
    result = np.empty((number, height, width, channels), images.dtype)
    for channel in range(channels):
        result[..., channel] = images[:, channel]
    return result
