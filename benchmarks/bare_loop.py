"""The speed of light: the least that must be done to make a training image, in a loop with nothing around it.

Each process has its share of the JPEG files in memory and repeats: draw a crop, decode into a buffer that is kept,
resize into an array that is kept, flip every other one. No files, no order, no batches, no transport. A loader that
decodes whole images cannot be faster; how near it comes is the measure of everything that it adds.

    python -m benchmarks.bare_loop --data FOLDER --workers 2 --seconds 5
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
from contextlib import ExitStack
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.options import available_cores
from aioloader.rng import Rng
from aioloader.transforms import RandomResizedCrop
from benchmarks.data import add_data_option, load_jpegs

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


def serve(commands: Connection[Any, Any], jpegs: list[bytes], size: int) -> None:
    """Loop for as many seconds as the parent says, answer (images, seconds), wait for the next command."""
    import cv2
    import simplejpeg

    cv2.setNumThreads(1)
    crop = RandomResizedCrop(size)
    rng = Rng(0)
    scratch = np.empty(0, np.uint8)
    resized = np.empty((size, size, 3), np.uint8)
    flipped = np.empty_like(resized)
    commands.send("ready")
    index = 0
    while (seconds := commands.recv()) is not None:
        done = 0
        start = now = perf_counter()
        while now - start < seconds:
            jpeg = jpegs[index % len(jpegs)]
            height, width, _, _ = simplejpeg.decode_jpeg_header(jpeg)
            if scratch.size < height * width * 3:
                scratch = np.empty(height * width * 3, np.uint8)
            rng.seek(0, 0, index)
            x, y, w, h = crop.box(height, width, rng)
            image = simplejpeg.decode_jpeg(jpeg, buffer=scratch)
            cv2.resize(image[y : y + h, x : x + w], (size, size), dst=resized, interpolation=cv2.INTER_LINEAR)
            if rng.random() < 0.5:
                cv2.flip(resized, 1, dst=flipped)
            index += 1
            done += 1
            now = perf_counter()
        commands.send((done, now - start))


class BareLoop:
    """The processes, kept between measurements; a context manager.

    Args:
        jpegs: bytes of the files; shared out among the processes.
        workers: number of processes.
        size: side of the crops in pixels.
    """

    def __init__(self, jpegs: list[bytes], workers: int, size: int = 224) -> None:
        self._jpegs = jpegs
        self._workers = min(workers, len(jpegs))
        self._size = size
        self._stack = ExitStack()
        self._pipes: list[Connection[Any, Any]] = []

    def __enter__(self) -> BareLoop:
        context = multiprocessing.get_context("spawn")
        for number in range(self._workers):
            mine, theirs = context.Pipe()
            share = self._jpegs[number :: self._workers]
            process = context.Process(target=serve, args=(theirs, share, self._size), daemon=True)
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
        """Images per second of all processes together, over `seconds`."""
        for pipe in self._pipes:
            pipe.send(seconds)
        return sum(done / took for done, took in [pipe.recv() for pipe in self._pipes])


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description="images/s of decode, crop, resize and flip with nothing around them"
    )
    add_data_option(parser)
    parser.add_argument(
        "--workers", type=int, default=available_cores(), help="processes; default: one per core"
    )
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument(
        "--smoke", action="store_true", help="half a second: shows that it works, measures nothing"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        jpegs = load_jpegs(options.data, scratch)
    with BareLoop(jpegs, options.workers) as loop:
        loop.measure(0.2)  # pages, caches, clock rates
        rate = loop.measure(0.5 if options.smoke else options.seconds)
    print(f"bare loop: {rate:,.0f} images/s, {options.workers} processes, {len(jpegs)} files")


if __name__ == "__main__":
    main()
