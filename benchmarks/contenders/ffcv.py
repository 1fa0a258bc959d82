"""FFCV: its file format, written once; its decoders and transforms, compiled by Numba; its threads.

JPEGs are stored unchanged, not encoded again, so that it decodes the same files as all others; it does so with the
fast, inexact DCT, because it offers no other. "Raw" stores pixels, the longer side at most 500 pixels, as its ImageNet
example does. It always resizes by area, in every case. Its file is read through the page cache (`os_cache`), as its
guide advises if memory allows. Its OpenCV, which is not Python's, gets no further threads in addition to FFCV's.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

# That library reads this when it first has work for threads.
os.environ.setdefault("OPENCV_FOR_THREADS_NUM", "1")

import cv2
import numpy as np
from ffcv.fields import BytesField, IntField, RGBImageField
from ffcv.fields.decoders import (
    BytesDecoder,
    CenterCropRGBImageDecoder,
    IntDecoder,
    RandomResizedCropRGBImageDecoder,
    SimpleRGBImageDecoder,
)
from ffcv.loader import Loader, OrderOption
from ffcv.pipeline.allocation_query import AllocationQuery
from ffcv.pipeline.compiler import Compiler
from ffcv.pipeline.operation import Operation
from ffcv.transforms import RandomHorizontalFlip
from ffcv.writer import DatasetWriter

from benchmarks.cases import MEAN, STD
from benchmarks.contenders.contract import RecFile, Source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.cases import Case

VARIANTS = ("",)
PACKAGES = ("ffcv", "torch", "numba", "numpy")

_RAW_SIDE = 500
_FILE = "samples.beton"


def supports(case: Case, variant: str) -> str | None:
    """Return None for all cases except crops without a resize, for which it has no decoder."""
    return "its random crops are resized" if case.crop == "window" else None


def settings(case: Case, variant: str, cores: int) -> list[dict[str, Any]]:
    """Return settings of its threads and prefetch: fewer batches in flight touch less memory."""
    threads = dict.fromkeys((cores, 1, cores + 1, 4) if case.images else (cores, 1))
    found = [{"num_workers": number, "batches_ahead": 3} for number in threads]
    return [*found, {"num_workers": cores, "batches_ahead": 1}]


def prepare(case: Case, variant: str, source: Source, folder: Path) -> Path:
    """Write a .beton file."""
    if case.store == "bytes":
        field: Any = BytesField()
    elif case.store == "jpeg":
        field = StoredJpeg()
    else:
        field = RGBImageField(write_mode="raw", max_resolution=_RAW_SIDE)
    fields = {"content": field, "label": IntField()}
    DatasetWriter(str(folder / _FILE), fields, num_workers=2).from_indexed_dataset(Samples(case, source))
    return folder


class StoredJpeg(RGBImageField):
    """Field that stores a JPEG unchanged."""

    def encode(self, destination: Any, jpeg: Any, malloc: Any) -> None:
        image = cv2.imdecode(jpeg, cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
        destination["mode"] = 0  # a JPEG
        destination["height"], destination["width"] = image.shape[:2]
        destination["data_ptr"], storage = malloc(jpeg.nbytes)
        storage[:] = jpeg


class Samples:
    """Dataset of (content, label) by number, for the writer."""

    def __init__(self, case: Case, source: Source) -> None:
        self._store = case.store
        self._length = source.samples
        self._content = source.images if case.store == "arrays" else RecFile(source.rec, source.samples)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, number: int) -> tuple[Any, int]:
        if self._store == "arrays":
            return self._content[number], int(number)
        if self._store == "bytes":
            return np.frombuffer(self._content.payload(number), np.uint8), int(number)
        jpeg, label = self._content.image(number)
        content = np.frombuffer(jpeg, np.uint8)
        if self._store == "raw":
            flags = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
            content = cv2.cvtColor(cv2.imdecode(content, flags), cv2.COLOR_BGR2RGB)
        return content, label


@contextmanager
def open_batches(case: Case, variant: str, data: Path, setting: dict[str, Any]) -> Iterator[Any]:
    """Open a loader."""
    cv2.setNumThreads(1)
    loader = Loader(
        str(data / _FILE),
        batch_size=case.batch_size,
        os_cache=True,
        order=OrderOption.RANDOM if case.shuffle else OrderOption.SEQUENTIAL,
        drop_last=True,
        pipelines={"content": _pipeline(case), "label": [IntDecoder()]},
        custom_fields={"content": RGBImageField} if case.store == "jpeg" else {},
        **setting,
    )
    yield _Records(loader) if case.store == "bytes" else loader


class _Records:
    """Batches as lists of bytes, made of two-dimensional arrays."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        for records, _ in self._loader:
            yield [record.tobytes() for record in records]


def _pipeline(case: Case) -> list[Any]:
    if case.store == "bytes":
        return [BytesDecoder()]
    decoder: Any = SimpleRGBImageDecoder()
    if case.crop == "random":
        decoder = RandomResizedCropRGBImageDecoder((224, 224), scale=(0.08, 1.0), ratio=(3 / 4, 4 / 3))
    elif case.crop == "centre":
        decoder = CenterCropRGBImageDecoder((224, 224), ratio=224 / 256)
    return [
        decoder,
        *([RandomHorizontalFlip()] if case.flip else []),
        *([NormalizePlanes()] if case.normalised else []),
    ]


class NormalizePlanes(Operation):
    """Operation from uint8 channels last to normalised float32 channels first.

    FFCV's `NormalizeImage` keeps channels last, and its `ToTorchImage` then copies twice.
    """

    def declare_state_and_memory(self, previous_state: Any) -> tuple[Any, Any]:
        height, width, channels = previous_state.shape
        shape, dtype = (channels, height, width), np.dtype("float32")
        return replace(previous_state, shape=shape, dtype=dtype), AllocationQuery(shape, dtype)

    def generate_code(self) -> Any:
        scale = (1 / (255 * np.array(STD))).astype(np.float32)
        offset = (-np.array(MEAN) / np.array(STD)).astype(np.float32)
        each = Compiler.get_iterator()

        def normalize(images: Any, result: Any) -> Any:
            _, height, width, channels = images.shape
            for number in each(len(images)):
                for channel in range(channels):
                    for row in range(height):
                        for column in range(width):
                            value = images[number, row, column, channel]
                            result[number, channel, row, column] = value * scale[channel] + offset[channel]
            return result[: len(images)]

        normalize.is_parallel = True
        return normalize
