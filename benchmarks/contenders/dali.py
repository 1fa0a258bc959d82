"""NVIDIA DALI on the CPU: its MXNet reader, decoding of the random crop alone, a bilinear resize.

A pipeline without a GPU (`device_id=None`), driven as DALI's own iterators drive it: it runs ahead by its prefetch
queue, and it returns a batch without a copy.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from nvidia.dali import fn, math, pipeline_def, types
from wds2idx import IndexCreator  # a module of DALI's package

from benchmarks.cases import MEAN, STD
from benchmarks.contenders.contract import RecFile, Source
from benchmarks.contenders.format_files import write_tar

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.cases import Case

VARIANTS = ("",)
PACKAGES = ("nvidia-dali-cuda120", "numpy")


def supports(case: Case, variant: str) -> str | None:
    """Return None for JPEGs, and for records in a tar file."""
    if case.store == "raw":
        return "its readers of raw pixels need files of one image each"
    return "it does not read arrays in memory" if case.store == "arrays" else None


def settings(case: Case, variant: str, cores: int) -> list[dict[str, Any]]:
    """Return settings of its threads, and of both of its executors."""
    threads = dict.fromkeys((cores, 1, cores + 1, 4) if case.images else (cores, 1))
    found = [{"num_threads": number, "prefetch_queue_depth": 2, "exec_dynamic": True} for number in threads]
    return [*found, {"num_threads": cores, "prefetch_queue_depth": 3, "exec_dynamic": False}]


def prepare(case: Case, variant: str, source: Source, folder: Path) -> Path:
    """Return the .rec file for JPEGs; write a tar file for records of bytes."""
    if case.store != "bytes":
        return source.folder
    records = RecFile(source.rec, source.samples)
    numbers = range(source.samples)
    write_tar(folder / "records.tar", ((f"{number:08d}.bin", records.payload(number)) for number in numbers))
    with IndexCreator(str(folder / "records.tar"), str(folder / "records.idx"), verbose=False) as index:
        index.create_index()
    return folder


@contextmanager
def open_batches(case: Case, variant: str, data: Path, setting: dict[str, Any]) -> Iterator[Any]:
    """Open a pipeline; its reader restarts by itself."""
    make = _records if case.store == "bytes" else _images
    pipeline = make(case, data, batch_size=case.batch_size, device_id=None, seed=0, **setting)
    pipeline.build()
    yield _Batches(pipeline, case)


class _Batches:
    """Batches of a pipeline; one iteration is one epoch."""

    def __init__(self, pipeline: Any, case: Case) -> None:
        self._pipeline = pipeline
        self._case = case

    def __iter__(self) -> Iterator[Any]:
        pipeline, bytes_only = self._pipeline, self._case.store == "bytes"
        for _ in range(self._case.samples // self._case.batch_size):
            outputs = pipeline.run()
            arrays = [np.asarray(output.as_tensor()) for output in outputs]
            yield [row.tobytes() for row in arrays[0]] if bytes_only else tuple(arrays)


@pipeline_def
def _records(case: Case, data: Path) -> Any:
    return fn.readers.webdataset(
        paths=[str(data / "records.tar")],
        index_paths=[str(data / "records.idx")],
        ext=["bin"],
        random_shuffle=True,
        initial_fill=16 * case.buffered,
    )


@pipeline_def
def _images(case: Case, data: Path) -> Any:
    jpegs, labels = fn.readers.mxnet(
        path=[str(data / "images.rec")],
        index_path=[str(data / "images.idx")],
        random_shuffle=case.shuffle,
        initial_fill=case.buffered,
    )
    if case.crop == "random":
        images = fn.decoders.image_random_crop(
            jpegs, output_type=types.RGB, random_area=[0.08, 1.0], random_aspect_ratio=[3 / 4, 4 / 3]
        )
    elif case.crop == "window":
        height, width = case.shape[:2]
        images = fn.decoders.image_crop(
            jpegs,
            output_type=types.RGB,
            crop=(height, width),
            crop_pos_x=fn.random.uniform(range=(0.0, 1.0)),
            crop_pos_y=fn.random.uniform(range=(0.0, 1.0)),
        )
    elif case.crop == "centre":
        extents = fn.slice(fn.peek_image_shape(jpegs), start=0, shape=2, axes=[0])
        side = fn.cast(math.floor(fn.reductions.min(extents) * (224 / 256) + 0.5), dtype=types.INT32)
        start = fn.cast((extents - side) // 2, dtype=types.INT32)
        images = fn.decoders.image_slice(
            jpegs, start=start, shape=fn.stack(side, side), axes=[0, 1], output_type=types.RGB
        )
    else:
        images = fn.decoders.image(jpegs, output_type=types.RGB)
    if case.crop in ("random", "centre"):
        images = fn.resize(images, size=[224, 224], interp_type=types.INTERP_LINEAR, antialias=case.antialias)
    mirror = fn.random.coin_flip() if case.flip else 0
    if case.normalised:
        images = fn.crop_mirror_normalize(
            images,
            dtype=types.FLOAT,
            output_layout="CHW",
            mirror=mirror,
            mean=[255 * value for value in MEAN],
            std=[255 * value for value in STD],
        )
    elif case.flip:
        images = fn.flip(images, horizontal=mirror)
    return images, labels
