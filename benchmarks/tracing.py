"""Cost of a trace (``trace="out.json"``): CPU time and bytes for each batch of a loader and each image of a service.

    python -m benchmarks.tracing [--data FOLDER] [--rounds 5]

A loader, and a service, with and without a trace take turns on the same photographs; "more" is the difference of a
round. The CPU time is that of the process that has the loop, all threads; "of the loop's thread" is a part of it. Two
worker processes make the images.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import aioloader
from benchmarks.data import load_jpegs, write_rec
from benchmarks.figures import spread
from benchmarks.measurement import in_turns, run

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence

    from benchmarks.figures import Row

_BATCH = 16
_AT_A_TIME = 32


class Cost(NamedTuple):
    """Cost of one run.

    Attributes:
        number: of batches or images, after the first.
        cpu_us: CPU time of this process for each, in microseconds.
        loop_us: that of the thread of the loop.
        nbytes: size of the whole trace; 0 without one.
    """

    number: int
    cpu_us: float
    loop_us: float
    nbytes: int


def shrink(image: Any) -> Any:
    """Return every eighth pixel: the processor of the service."""
    return image[::8, ::8].copy()


def _now() -> tuple[float, float]:
    return time.process_time(), time.thread_time()


def _cost(begin: tuple[float, float], count: int, trace: Path | None) -> Cost:
    cpu, loop = ((end - start) / max(1, count) * 1e6 for end, start in zip(_now(), begin, strict=True))
    return Cost(count, cpu, loop, 0 if trace is None else trace.stat().st_size)


async def load(rec: Path, count: int, trace: Path | None) -> Cost:
    """Load whole photographs, cropped, and return the cost of a batch."""
    dataset = aioloader.ImageRecordDataset(rec).transform_first(aioloader.transforms.RandomResizedCrop(64))
    loader = aioloader.AsyncDataLoader[Any](
        dataset, _BATCH, shuffle=True, last_batch="discard", executor="process", num_workers=2, trace=trace
    )
    done = 0
    async with loader:
        async for _ in loader:
            break  # the workers have started
        begin = _now()
        while done < count:
            async for _ in loader:
                done += 1
    return _cost(begin, done, trace)  # after closing, when the trace is whole


async def serve(files: Sequence[bytes], count: int, trace: Path | None) -> Cost:
    """Get photographs from a service, some at a time, and return the cost of an image."""
    async with aioloader.AsyncImageService(
        shrink, allow=("bytes",), executor="process", num_workers=2, trace=trace
    ) as service:
        await service.get(files[0])
        begin = _now()
        for start in range(0, count, _AT_A_TIME):
            await service.gather([files[(start + place) % len(files)] for place in range(_AT_A_TIME)])
    return _cost(begin, count, trace)


def compare(
    name: str,
    work: Callable[[int, Path | None], Coroutine[Any, Any, Cost]],
    count: int,
    rounds: int,
    path: Path,
) -> Row:
    """Measure with a trace in this file and without in turns; `work` makes a number of them after the first."""
    head_nbytes = asyncio.run(work(0, path)).nbytes  # the start, the first, and what was in flight with it
    ways = {
        kind: lambda trace=trace: asyncio.run(work(count, trace))
        for kind, trace in (("with", path), ("", None))
    }
    found = in_turns(ways, rounds, warm=0)
    pairs = list(zip(found["with"], found[""], strict=True))
    return {
        "of": name,
        "CPU time without a trace, µs": spread(each.cpu_us for each in found[""]),
        "more with a trace, µs": spread(mine.cpu_us - other.cpu_us for mine, other in pairs),
        "more of the loop's thread, µs": spread(mine.loop_us - other.loop_us for mine, other in pairs),
        "bytes of the trace": spread((each.nbytes - head_nbytes) / each.number for each in found["with"]),
    }


def measure(
    data: str | None = None, rounds: int = 5, batches: int = 124, images: int = 1504
) -> Iterator[Row]:
    """Measure a loader and a service.

    Args:
        data: folder.
        rounds: turns of each.
        batches: of a turn, at least.
        images: of a turn, a multiple of 32.
    """
    with tempfile.TemporaryDirectory() as folder:
        files, path = load_jpegs(data), Path(folder, "trace.json")
        rec = Path(folder, "photos.rec")
        write_rec(rec, files, 4)
        yield compare("a batch", partial(load, rec), batches, rounds, path)
        yield compare("an image on demand", partial(serve, files), images, rounds, path)


if __name__ == "__main__":
    run(measure, rounds=1, batches=4, images=64)
