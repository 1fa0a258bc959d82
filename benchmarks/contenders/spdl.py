"""SPDL: a pipeline of threads; images decoded by OpenCV, or by its decoder, which is FFmpeg's.

A task makes a whole batch, as in its ImageNet example: a task per image costs the event loop more than decoding the
image. The source is continuous, so that the threads are kept. FFmpeg crops before it converts the colours, and scales
with its bilinear filter.
"""

from __future__ import annotations

import random
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import spdl.io
from spdl.pipeline import PipelineBuilder

from benchmarks.contenders.contract import RecFile, Source
from benchmarks.contenders.opencv import centre_box, make_image, normalise, random_box, window_box

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from benchmarks.cases import Case

VARIANTS = ("opencv", "ffmpeg", "plain")
PACKAGES = ("spdl", "spdl-core", "spdl-io", "opencv-python-headless", "numpy")


def supports(case: Case, variant: str) -> str | None:
    """Return None for images with two decoders, and for other data without one."""
    if case.store == "raw":
        return "has no raw format"
    if case.images != (variant != "plain"):
        return "for arrays and records" if variant == "plain" else "for images"
    if variant == "ffmpeg" and case.resize and not case.antialias:
        return "FFmpeg's resize always antialiases"
    return _ffmpeg_is_missing() if variant == "ffmpeg" else None


def _ffmpeg_is_missing() -> str | None:
    try:
        spdl.io.demux_config(format="jpeg_pipe")  # loads the libraries
    except (ImportError, RuntimeError):
        return "needs FFmpeg's shared libraries (apt install ffmpeg)"
    return None


def settings(case: Case, variant: str, cores: int) -> list[dict[str, Any]]:
    """Return settings of threads, each of which makes a batch."""
    numbers = dict.fromkeys((cores, 1, cores + 1, 4) if case.images else (1, cores))
    return [{"threads": number} for number in numbers]


@contextmanager
def open_batches(case: Case, variant: str, data: Path, setting: dict[str, Any]) -> Iterator[Any]:
    """Open a pipeline from the numbers of a batch to its content."""
    threads = setting["threads"]
    builder = PipelineBuilder().add_source(Numbers(case), continuous=True)
    builder.pipe(
        _maker(case, variant, data),
        concurrency=threads,
        output_order="completion" if case.shuffle else "input",
    )
    builder.add_sink(4)
    pipeline = builder.build(num_threads=threads, max_failures=0, use_thread_output_queue=True)
    with pipeline.auto_stop():
        yield _Epochs(pipeline)


class _Epochs:
    """Epochs of a pipeline: each iteration is the next one."""

    def __init__(self, pipeline: Any) -> None:
        self._pipeline = pipeline

    def __iter__(self) -> Iterator[Any]:
        return self._pipeline.get_iterator()


class Numbers:
    """Source of the sample numbers of each batch; every iteration is a new epoch in a new order."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._draws = np.random.default_rng(0)

    def __iter__(self) -> Iterator[Any]:
        numbers = np.arange(self._case.samples)
        if self._case.shuffle:
            self._draws.shuffle(numbers)
        yield from numbers.reshape(-1, self._case.batch_size)


def _maker(case: Case, variant: str, data: Path) -> Callable[[Any], Any]:
    """Return the function that makes a batch of sample numbers."""
    source = Source.load(data)
    if case.store == "arrays":
        images, labels = source.images, source.labels
        return lambda numbers: (images[numbers], labels[numbers])
    records = RecFile(source.rec, source.samples)
    if case.store == "bytes":
        return lambda numbers: list(map(records.payload, numbers.tolist()))
    make = _by_ffmpeg if variant == "ffmpeg" else _by_opencv
    return lambda numbers: make(case, [records.image(number) for number in numbers.tolist()])


def _by_opencv(case: Case, samples: Sequence[tuple[bytes, int]]) -> tuple[Any, Any]:
    images = np.empty((len(samples), *case.shape), case.dtype)
    plain = replace(case, normalised=False)
    for (jpeg, _), place in zip(samples, images, strict=True):
        image = make_image(plain, jpeg, random)
        if case.normalised:
            normalise(image, place)
        else:
            place[...] = image
    return images, np.array([label for _, label in samples])


def _by_ffmpeg(case: Case, samples: Sequence[tuple[bytes, int]]) -> tuple[Any, Any]:
    frames = []
    container = spdl.io.demux_config(format="jpeg_pipe")  # passed, so that FFmpeg need not guess it
    for jpeg, _ in samples:
        packets = spdl.io.demux_image(jpeg, demux_config=container)
        steps = _filters(case, packets.width, packets.height)
        frames.append(spdl.io.decode_packets(packets, filter_desc=",".join(steps)))
    images = spdl.io.to_numpy(spdl.io.convert_frames(frames))
    if case.normalised:
        images = np.stack([normalise(image) for image in images])
    return images, np.array([label for _, label in samples])


def _filters(case: Case, width: int, height: int) -> list[str]:
    steps = []
    if case.crop == "window":
        x, y, w, h = window_box(case, width, height, random)
        steps.append(f"crop={w}:{h}:{x}:{y}")
    elif case.crop != "none":
        box = random_box(width, height, random) if case.crop == "random" else centre_box(width, height)
        x, y, w, h = box
        steps += [f"crop={w}:{h}:{x}:{y}", "scale=224:224:flags=bilinear"]
    if case.flip and random.random() < 0.5:
        steps.append("hflip")
    return [*steps, "format=rgb24"]
