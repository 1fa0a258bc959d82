"""Costs of single operations, on which decisions of docs/design.md rest.

    python -m benchmarks.internal_costs [--data FOLDER] [--rounds 7]

The operations take turns in every round. Where the processor's caches matter, a photograph is decoded before each call.
"CPU time" is that of this thread, or of both processes where there are two; the other figures are wall time.
"""

from __future__ import annotations

import argparse
import asyncio
import mmap
import multiprocessing
import os
import queue
import statistics
import sys
import tempfile
import time
import zlib
from contextlib import ExitStack
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio.to_thread
import cv2
import numpy as np
import simplejpeg

from aioloader.datasets import ImageListDataset
from aioloader.foundation.descriptors import anonymous_file
from aioloader.loader.portal import Portal
from aioloader.rng import Rng
from aioloader.transforms import Compose, Normalize, ToTensor
from aioloader.transforms.fused import PixelTable
from benchmarks.data import add_data_option, load_jpegs
from benchmarks.figures import Row, add_json_option, spread, write_figures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection

_IMAGE = (224, 224, 3)
_BATCH = 64
_RECORD_NBYTES = 1000
_MB = 1_000_000
_MAPPED_MB = 64
_NORMALISE = (ToTensor(), Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))


class Operation(NamedTuple):
    """Operation with a cost.

    Attributes:
        name: in the table.
        kind: "CPU time" or "wall time".
        measure: returns the microseconds of one operation; its argument is the number of operations.
        calls: operations of one round.
    """

    name: str
    kind: str
    measure: Callable[[int], float]
    calls: int


def timed(call: Callable[[], object], calls: int, clock: Callable[[], float] = time.thread_time) -> float:
    """Return the microseconds of a call: the mean of many in a row."""
    begin = clock()
    for _ in range(calls):
        call()
    return (clock() - begin) / calls * 1e6


# -- threads and loops -------------------------------------------------------------------------------------------------


def thread_hop(calls: int) -> float:
    """Measure calls of an empty function in a thread, one awaited after the other."""

    async def hops() -> float:
        await anyio.to_thread.run_sync(int)  # starts the thread
        begin = time.perf_counter()
        for _ in range(calls):
            await anyio.to_thread.run_sync(int)
        return (time.perf_counter() - begin) / calls * 1e6

    return asyncio.run(hops())


def crossing(calls: int) -> float:
    """Measure tasks that a thread starts in the loop of a blocking loader, each awaited by the thread."""
    portal: Portal = Portal()
    answers: queue.SimpleQueue[None] = queue.SimpleQueue()

    async def answer() -> None:
        answers.put(None)

    def cross() -> None:
        portal.start(answer)
        answers.get()

    portal.open()
    try:
        cross()
        return timed(cross, calls, time.perf_counter)
    finally:
        portal.stop()


# -- files and memory --------------------------------------------------------------------------------------------------


class CachedFile:
    """File in the page cache, with records of 1,000 bytes at random places."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(os.urandom(64 * _MB))
        self._fd = os.open(path, os.O_RDONLY)
        places = np.random.default_rng(0).integers(0, 64 * _MB - _RECORD_NBYTES, 4096)
        self._places = cycle(places.tolist())
        self._buffer = [bytearray(_RECORD_NBYTES)]

    def read(self) -> None:
        """Read one record."""
        os.preadv(self._fd, self._buffer, next(self._places))

    def announce(self) -> None:
        """Announce one record."""
        os.posix_fadvise(self._fd, next(self._places), _RECORD_NBYTES, os.POSIX_FADV_WILLNEED)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


def touched(calls: int, *, again: bool) -> float:
    """Measure filling a megabyte of the memory that workers share: for the first time, or again."""
    nbytes = _MAPPED_MB * _MB
    content = np.ones(_MB, np.uint8)
    total = 0.0
    for _ in range(calls):
        fd = anonymous_file("internal-costs")
        try:
            os.ftruncate(fd, nbytes)
            memory = mmap.mmap(fd, nbytes)
        finally:
            os.close(fd)
        parts = np.frombuffer(memory, np.uint8).reshape(_MAPPED_MB, _MB)
        if again:
            parts[:] = 0
        begin = time.thread_time()
        for part in parts:
            part[:] = content
        total += time.thread_time() - begin
        del part, parts
        memory.close()
    return total / calls / _MAPPED_MB * 1e6


# -- an image from one process to another ------------------------------------------------------------------------------


def _send_images(connection: Connection, memory: mmap.mmap | None, batches: int) -> None:
    """Send images, by pickle or as a number for each that is in its row; then the CPU time that it took."""
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, _IMAGE, np.uint8) for _ in range(4)]
    rows = None if memory is None else np.frombuffer(memory, np.uint8).reshape(_BATCH, *_IMAGE)
    begin = 0.0
    for batch in range(batches + 1):
        if batch == 1:  # the first one warms up
            begin = time.process_time()
        connection.recv()
        for row, image in enumerate(islice(cycle(images), _BATCH)):
            if rows is None:
                connection.send(image)
            else:
                rows[row] = image
                connection.send(row)
    connection.send(time.process_time() - begin)


def sent(calls: int, *, shared: bool) -> float:
    """Measure images that another process has made: the CPU time of both processes for one image.

    They go through a pipe and are stacked by the receiver, or the sender writes them to rows that both map. Then a
    number is sent for each image, where a loader's worker sends one message for many.
    """
    memory = mmap.mmap(-1, _BATCH * int(np.prod(_IMAGE))) if shared else None
    batches = max(1, calls // _BATCH)
    context = multiprocessing.get_context("fork")  # inherits the map
    ours, theirs = context.Pipe()
    child = context.Process(target=_send_images, args=(theirs, memory, batches))
    child.start()
    theirs.close()
    stacked = np.empty((_BATCH, *_IMAGE), np.uint8)
    begin = 0.0
    for batch in range(batches + 1):
        if batch == 1:
            begin = time.process_time()
        ours.send(batch)
        received = [ours.recv() for _ in range(_BATCH)]
        if memory is None:
            np.stack(received, out=stacked)
    spent = time.process_time() - begin + ours.recv()
    ours.close()
    child.join()
    return spent / (batches * _BATCH) * 1e6


# -- images ------------------------------------------------------------------------------------------------------------


def decoded(files: Sequence[bytes], calls: int, *, reuse: bool) -> float:
    """Measure full decodes into one buffer, or into arrays that live as long as a batch of 64."""
    largest = max(simplejpeg.decode_jpeg(data).nbytes for data in files)
    buffer = bytearray(largest)
    batch: list[Any] = []
    begin = time.thread_time()
    for data in islice(cycle(files), calls):
        if reuse:
            simplejpeg.decode_jpeg(data, buffer=buffer)
        else:
            batch.append(simplejpeg.decode_jpeg(data))
            if len(batch) == _BATCH:
                batch.clear()
    return (time.thread_time() - begin) / calls * 1e6


def between_decodes(files: Sequence[bytes], call: Callable[[bytes], object], calls: int) -> float:
    """Measure a call that comes after the decode of another photograph: the median, without the clock's own time."""
    times: tuple[list[float], list[float]] = [], []
    for data, other in zip(islice(cycle(files), calls), islice(cycle(files), 1, None), strict=False):
        for each, found in zip((call, _nothing), times, strict=True):
            simplejpeg.decode_jpeg(other)
            begin = time.thread_time()
            each(data)
            found.append(time.thread_time() - begin)
    measured, clock = (statistics.median(found) for found in times)
    return (measured - clock) * 1e6


def _nothing(data: bytes) -> None:
    """Do nothing, so that only the clock is measured."""


def operations(files: Sequence[bytes], folder: Path, stack: ExitStack) -> Iterator[Operation]:
    """Yield the operations in the order of the table; `stack` closes what they opened."""
    yield Operation("empty call in a thread", "wall time", thread_hop, 2000)
    yield Operation("empty call from a thread into a loop", "wall time", crossing, 2000)
    if hasattr(os, "preadv") and hasattr(os, "posix_fadvise"):
        file = CachedFile(folder / "cached")
        stack.callback(file.close)
        yield Operation("positioned read of 1 kB, cached", "CPU time", lambda n: timed(file.read, n), 20_000)
        yield Operation("announcement of 1 kB, cached", "CPU time", lambda n: timed(file.announce, n), 20_000)
    yield Operation("1 MB of shared memory, first time", "CPU time", lambda n: touched(n, again=False), 2)
    yield Operation("1 MB of shared memory, again", "CPU time", lambda n: touched(n, again=True), 2)
    if sys.platform == "linux":
        for name, shared in (("through a pipe, stacked", False), ("in reused shared memory", True)):
            yield Operation(f"image of 224 x 224 {name}", "CPU time", partial(sent, shared=shared), 640)
    for name, reuse in (("a fresh array", False), ("a kept buffer", True)):
        yield Operation(
            f"photograph decoded into {name}", "CPU time", partial(decoded, files, reuse=reuse), 256
        )
    yield Operation(
        "CRC-32 of a photograph", "CPU time", lambda n: between_decodes(files, zlib.crc32, n), 200
    )
    small = np.arange(16)
    yield Operation(
        "sum of 16 numbers by numpy, in a loop", "CPU time", lambda n: timed(small.sum, n), 20_000
    )
    yield Operation(
        "sum of 16 numbers by numpy, between two decodes",
        "CPU time",
        lambda n: between_decodes(files, lambda _: small.sum(), n),
        200,
    )
    entries = [[number % 1000, f"class{number % 1000:04}/image_{number:07}.jpg"] for number in range(500_000)]
    for name in (".lst", ".csv"):
        lines = (
            f"{n}\t{label}\t{path}" if name == ".lst" else f"{path},{label}"
            for n, (label, path) in enumerate(entries)
        )
        (folder / f"a{name}").write_text("\n".join(lines))
        yield Operation(
            f"line of a {name} file", "CPU time", partial(listed, folder, f"a{name}"), len(entries)
        )
    yield Operation("entry of a list of images", "CPU time", partial(listed, folder, entries), len(entries))
    image = np.random.default_rng(0).integers(0, 256, _IMAGE, np.uint8)
    out = np.empty((3, 224, 224), np.float32)
    rng = Rng(0)
    steps, table = Compose(_NORMALISE), PixelTable(_NORMALISE)
    yield Operation(
        "224 x 224 to normalised float32, step by step",
        "CPU time",
        lambda n: timed(lambda: steps.apply(image, rng, out), n),
        300,
    )
    yield Operation(
        "224 x 224 to normalised float32, by table",
        "CPU time",
        lambda n: timed(lambda: table(image, rng, out), n),
        300,
    )


def listed(folder: Path, imglist: Any, count: int) -> float:
    """Return the microseconds for each of the entries of an `ImageListDataset`; all of them are read."""
    begin = time.process_time()
    entries = len(ImageListDataset(folder, imglist, crop_index=None))
    del count
    return (time.process_time() - begin) / entries * 1e6


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.internal_costs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_data_option(parser)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--smoke", action="store_true", help="one short round: a check that it runs")
    add_json_option(parser)
    options = parser.parse_args()
    cv2.setNumThreads(1)
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        files = load_jpegs(options.data, scratch)[:124]
        found = list(operations(files, Path(scratch), stack))
        times: dict[str, list[float]] = {each.name: [] for each in found}
        for _ in range(1 if options.smoke else options.rounds):
            for each in found:
                times[each.name].append(
                    each.measure(max(1, each.calls // 100) if options.smoke else each.calls)
                )
    rows: list[Row] = [
        {"operation": each.name, "measured": each.kind, "µs": spread(times[each.name])} for each in found
    ]
    print(f"median of {1 if options.smoke else options.rounds} rounds")
    for row in rows:
        middle, low, high = row["µs"]
        print(f"{row['operation']:50} {row['measured']:9} {middle:9.2f} us ({low:.2f} to {high:.2f})")
    write_figures(options.json, rows)


if __name__ == "__main__":
    main()
