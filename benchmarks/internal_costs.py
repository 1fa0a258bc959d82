"""Costs of single operations, on which decisions of docs/design.md rest.

    python -m benchmarks.internal_costs [--data FOLDER] [--rounds 7]

The operations take turns in every round. Where the processor's caches matter, a photograph is decoded before each call.
"CPU time" is that of this thread, or of both processes where there are two; the other figures are wall time.
"""

from __future__ import annotations

import asyncio
import mmap
import multiprocessing
import os
import queue
import sys
import tempfile
import time
import zlib
from contextlib import ExitStack
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from statistics import median
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
from benchmarks.data import load_jpegs
from benchmarks.figures import spread
from benchmarks.measurement import in_turns, run, seconds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection

    from benchmarks.figures import Row

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
        measure: returns the microseconds of one operation; its argument is the number of operations.
        calls: operations of one round.
        kind: of time.
    """

    name: str
    measure: Callable[[int], float]
    calls: int
    kind: str = "CPU time"


def timed(call: Callable[[], object]) -> Callable[[int], float]:
    """Return a function that measures the CPU time of a number of calls."""
    return lambda calls: 1e6 * seconds_of(call, time.thread_time, calls)


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
        return 1e6 * seconds_of(cross, calls=calls)
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
    measured, clock = (median(found) for found in times)
    return (measured - clock) * 1e6


def _nothing(data: bytes) -> None:
    """Do nothing, so that only the clock is measured."""


def listed(folder: Path, imglist: Any, calls: int) -> float:
    """Measure an entry of an `ImageListDataset`; all of them are read, for any number of calls."""
    begin = time.process_time()
    entries = len(ImageListDataset(folder, imglist, crop_index=None))
    return (time.process_time() - begin) / entries * 1e6


def operations(files: Sequence[bytes], folder: Path, stack: ExitStack) -> Iterator[Operation]:
    """Yield the operations in the order of the table; `stack` closes what they opened."""
    yield Operation("empty call in a thread", thread_hop, 2000, "wall time")
    yield Operation("empty call from a thread into a loop", crossing, 2000, "wall time")
    if hasattr(os, "preadv") and hasattr(os, "posix_fadvise"):
        file = CachedFile(folder / "cached")
        stack.callback(file.close)
        yield Operation("positioned read of 1 kB, cached", timed(file.read), 20_000)
        yield Operation("announcement of 1 kB, cached", timed(file.announce), 20_000)
    yield Operation("1 MB of shared memory, first time", partial(touched, again=False), 2)
    yield Operation("1 MB of shared memory, again", partial(touched, again=True), 2)
    if sys.platform == "linux":
        yield Operation("image of 224 x 224 through a pipe, stacked", partial(sent, shared=False), 640)
        yield Operation("image of 224 x 224 in reused shared memory", partial(sent, shared=True), 640)
    yield Operation("photograph decoded into a fresh array", partial(decoded, files, reuse=False), 256)
    yield Operation("photograph decoded into a kept buffer", partial(decoded, files, reuse=True), 256)
    yield Operation("CRC-32 of a photograph", partial(between_decodes, files, zlib.crc32), 200)
    small = np.arange(16)
    yield Operation("sum of 16 numbers by numpy, in a loop", timed(small.sum), 20_000)
    between = partial(between_decodes, files, lambda _: small.sum())
    yield Operation("sum of 16 numbers by numpy, between two decodes", between, 200)
    entries = [[number % 1000, f"class{number % 1000:04}/image_{number:07}.jpg"] for number in range(500_000)]
    lists = {
        ".lst": (f"{number}\t{label}\t{path}" for number, (label, path) in enumerate(entries)),
        ".csv": (f"{path},{label}" for label, path in entries),
    }
    for name, lines in lists.items():
        (folder / f"a{name}").write_text("\n".join(lines))
        yield Operation(f"line of a {name} file", partial(listed, folder, f"a{name}"), len(entries))
    yield Operation("entry of a list of images", partial(listed, folder, entries), len(entries))
    image = np.random.default_rng(0).integers(0, 256, _IMAGE, np.uint8)
    out = np.empty((3, 224, 224), np.float32)
    rng = Rng(0)
    steps, table = Compose(_NORMALISE), PixelTable(_NORMALISE)
    by_steps = timed(lambda: steps.apply(image, rng, out))
    yield Operation("224 x 224 to normalised float32, step by step", by_steps, 300)
    yield Operation("224 x 224 to normalised float32, by table", timed(lambda: table(image, rng, out)), 300)


def measure(data: str | None = None, rounds: int = 7, divisor: int = 1) -> Iterator[Row]:
    """Measure the operations in turns.

    Args:
        data: folder.
        rounds: turns of each.
        divisor: of the numbers of calls.
    """
    cv2.setNumThreads(1)
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        found = list(operations(load_jpegs(data)[:124], Path(scratch), stack))
        ways = {each.name: partial(each.measure, max(1, each.calls // divisor)) for each in found}
        times = in_turns(ways, rounds, warm=0)
    for each in found:
        yield {"operation": each.name, "measured": each.kind, "µs": spread(times[each.name])}


if __name__ == "__main__":
    run(measure, rounds=1, divisor=100)
