"""Upper bound of loading speed: the minimal work for a training image, in a loop that does nothing else.

Each process has its share of the encoded images in memory and repeats: draw a crop, decode into a reused buffer, resize
into a reused array, flip about half of the images. There are no files, no order, no batches and no transport. A loader
that decodes whole images cannot be faster; the difference is the cost of everything else that the loader does.
"""

from __future__ import annotations

import multiprocessing
from contextlib import ExitStack
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.rng import Rng
from aioloader.transforms import IMAGENET_MEAN, IMAGENET_STD, RandomCrop, RandomResizedCrop
from aioloader.transforms.antialias import resize_antialiased
from aioloader.transforms.interpolation import CODES, FILTERED, interpolation_name

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection

    from aioloader.foundation.types import Array


@dataclass(frozen=True, slots=True)
class Work:
    """Operations on each image.

    Attributes:
        size: side of the results in pixels.
        crop: "random" (`RandomResizedCrop`), "window" (a square of `size` at a random place, not resized), "centre"
            (shorter side resized to size * 8 / 7, then a centre crop) or "none" (images already have this size).
        flip: mirror about half of the images.
        normalise: float32 channels first, ImageNet's mean and standard deviation; else uint8 channels last.
        interpolation: name of the interpolation for resizing.
        antialias: resize as the loader does by default, averaging over all pixels that a pixel of the result covers;
            only for bilinear and bicubic.
    """

    size: int = 224
    crop: str = "random"
    flip: bool = True
    normalise: bool = False
    interpolation: str = "linear"
    antialias: bool = True


class ImageWorker:
    """Decoder and augmenter of images with reused memory: a result is valid until the next call.

    Args:
        images: see `BareLoop`.
        work: operations on each image.
    """

    def __init__(self, images: Sequence[bytes | Array], work: Work) -> None:
        import cv2
        import simplejpeg

        cv2.setNumThreads(1)
        self._cv2: Any = cv2
        self._jpeg: Any = simplejpeg
        self._images = images
        self._work = work
        self._crop = RandomCrop(work.size) if work.crop == "window" else RandomResizedCrop(work.size)
        self._code = CODES[interpolation_name(work.interpolation, "BareLoop", antialias=False)]
        self._rng = Rng(0)
        self._scratch = np.empty(0, np.uint8)
        size = (work.size, work.size)
        self._resized = np.empty((*size, 3), np.uint8)
        self._flipped = np.empty((*size, 3), np.uint8)
        self._planes = np.empty((3, *size), np.float32)
        mean, std = (np.asarray(v, np.float32).reshape(3, 1) for v in (IMAGENET_MEAN, IMAGENET_STD))
        self._table = ((np.arange(256, dtype=np.float32) / np.float32(255) - mean) / std).astype(np.float32)

    def make(self, index: int) -> Array:
        """Return the result for image `index`, modulo the number of images."""
        source = self._images[index % len(self._images)]
        image = self._decode(source) if isinstance(source, bytes) else source
        height, width = image.shape[:2]
        work, rng = self._work, self._rng
        rng.seek(0, 0, index)
        if work.crop == "random":
            x, y, w, h = self._crop.box(height, width, rng)
            image = self._resize(image[y : y + h, x : x + w], work.size, work.size, self._resized)
        elif work.crop == "window":
            x, y, w, h = self._crop.box(height, width, rng)
            image = image[y : y + h, x : x + w]
        elif work.crop == "centre":
            short = round(work.size * 8 / 7)
            w, h = (short, height * short // width) if width < height else (width * short // height, short)
            left, top = (w - work.size) // 2, (h - work.size) // 2
            image = self._resize(image, w, h, None)[top : top + work.size, left : left + work.size]
        if work.flip and rng.random() < 0.5:
            image = self._cv2.flip(image, 1, dst=self._flipped)
        elif work.crop in ("centre", "window"):
            np.copyto(self._resized, image)
            image = self._resized
        if work.normalise:
            for plane, row, place in zip(self._cv2.split(image), self._table, self._planes, strict=True):
                self._cv2.LUT(plane, row, dst=place)
            return self._planes
        return image

    def _decode(self, data: bytes) -> Array:
        try:
            height, width, _, _ = self._jpeg.decode_jpeg_header(data)
            if self._scratch.size < height * width * 3:
                self._scratch = np.empty(height * width * 3, np.uint8)
            image: Array = self._jpeg.decode_jpeg(data, buffer=self._scratch)
            return image
        except ValueError:  # PNG and other formats, and rare kinds of JPEG
            decoded: Any = self._cv2.imdecode(np.frombuffer(data, np.uint8), self._cv2.IMREAD_COLOR)
            return np.asarray(self._cv2.cvtColor(decoded, self._cv2.COLOR_BGR2RGB), np.uint8)

    def _resize(self, image: Array, width: int, height: int, out: Array | None) -> Array:
        if self._work.antialias:
            made = np.empty((height, width, 3), np.uint8) if out is None else out
            resize_antialiased(image, (height, width), made, kernel=FILTERED[self._code])
            return made
        return np.asarray(self._cv2.resize(image, (width, height), dst=out, interpolation=self._code))


def serve(commands: Connection[Any, Any], images: list[bytes | Array], work: Work) -> None:
    """Run a process of the loop.

    A command is a number of seconds, answered with (number of results, seconds taken); or None, which ends the process.
    """
    worker = ImageWorker(images, work)
    commands.send("ready")
    index = 0
    while (command := commands.recv()) is not None:
        done = 0
        start = now = perf_counter()
        while now - start < command:
            worker.make(index)
            index += 1
            done += 1
            now = perf_counter()
        commands.send((done, now - start))


class BareLoop:
    """Processes of the loop, which stay alive between measurements; a context manager.

    Args:
        images: encoded images, or uint8 (height, width, 3) for images that are not to be decoded; divided among the
            processes.
        workers: number of processes.
        work: operations on each image.
    """

    def __init__(self, images: Sequence[bytes | Array], workers: int, work: Work | None = None) -> None:
        self._images = list(images)
        self._workers = max(1, min(workers, len(self._images)))
        self._work = work or Work()
        self._stack = ExitStack()
        self._pipes: list[Connection[Any, Any]] = []

    def __enter__(self) -> BareLoop:
        context = multiprocessing.get_context("spawn")
        for number in range(self._workers):
            mine, theirs = context.Pipe()
            share = self._images[number :: self._workers]
            process = context.Process(target=serve, args=(theirs, share, self._work), daemon=True)
            process.start()
            theirs.close()
            self._stack.callback(process.join)
            self._stack.callback(mine.send, None)
            self._pipes.append(mine)
        for pipe in self._pipes:
            pipe.recv()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def measure(self, seconds: float) -> float:
        """Measure the images per second of all processes together, over `seconds`."""
        for pipe in self._pipes:
            pipe.send(seconds)
        answers: list[tuple[int, float]] = [pipe.recv() for pipe in self._pipes]
        return sum(done / took for done, took in answers)
