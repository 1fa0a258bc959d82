"""Cost of a trace (``trace="out.json"``): CPU time and bytes for each batch of a loader and each image of a service.

    python -m benchmarks.tracing [--data FOLDER] [--rounds 5]

A loader, and a service, with and without a trace take turns on the same photographs; "more" is the difference of a
round. The CPU time is that of the process that has the loop, all threads; "of the loop's thread" is a part of it. Two
worker processes make the images.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import aioloader
from benchmarks.data import add_data_option, load_jpegs
from benchmarks.figures import Row, add_json_option, spread, write_figures
from benchmarks.main_job import write_rec

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

_BATCH = 16
_BATCHES = 120
_IMAGES = 1500
_AT_A_TIME = 32


class Cost(NamedTuple):
    """Cost of one run.

    Attributes:
        count: batches or images, after the first.
        cpu_us: CPU time of this process for each, in microseconds.
        loop_us: that of the thread of the loop.
        nbytes: size of the whole trace; 0 without one.
    """

    count: int
    cpu_us: float
    loop_us: float
    nbytes: int


def shrink(image: Any) -> Any:
    """Return every eighth pixel: the processor of the service."""
    return image[::8, ::8].copy()


class _Clock:
    """Measures from its creation to `cost`."""

    def __init__(self) -> None:
        self._begin = time.process_time(), time.thread_time()

    def cost(self, count: int, trace: Path | None) -> Cost:
        now = time.process_time(), time.thread_time()
        cpu, loop = ((end - begin) / max(1, count) * 1e6 for end, begin in zip(now, self._begin, strict=True))
        return Cost(count, cpu, loop, 0 if trace is None else trace.stat().st_size)


async def load(rec: Path, trace: Path | None, batches: int) -> Cost:
    """Load whole photographs, cropped, and return the cost of a batch."""
    dataset = aioloader.ImageRecordDataset(rec).transform_first(aioloader.transforms.RandomResizedCrop(64))
    loader = aioloader.AsyncDataLoader[Any](
        dataset, _BATCH, shuffle=True, last_batch="discard", executor="process", num_workers=2, trace=trace
    )
    done = 0
    async with loader:
        async for _ in loader:
            break  # the workers have started
        clock = _Clock()
        while done < batches:
            async for _ in loader:
                done += 1
    return clock.cost(done, trace)  # after closing, when the trace is whole


async def serve(files: Sequence[bytes], trace: Path | None, images: int) -> Cost:
    """Get photographs from a service, some at a time, and return the cost of an image."""
    async with aioloader.AsyncImageService(
        shrink, allow=("bytes",), executor="process", num_workers=2, trace=trace
    ) as service:
        await service.get(files[0])
        clock = _Clock()
        done = 0
        while done < images:
            chosen = [files[(done + place) % len(files)] for place in range(_AT_A_TIME)]
            await service.gather(chosen)
            done += _AT_A_TIME
    return clock.cost(done, trace)


def compare(
    name: str,
    run: Callable[[Path | None, int], Coroutine[Any, Any, Cost]],
    count: int,
    rounds: int,
    scratch: Path,
) -> Row:
    """Measure with and without a trace in turns, print, and return the figures.

    Args:
        name: of what a figure is for.
        run: makes this number after the first, with a trace in this file or without.
        count: how many.
        rounds: turns of each.
        scratch: folder of the trace.
    """
    path = scratch / "trace.json"
    head_nbytes = asyncio.run(run(path, 0)).nbytes  # the start, the first, and what was in flight with it
    found: dict[bool, list[Cost]] = {True: [], False: []}
    for number in range(rounds):
        for traced in (True, False) if number % 2 else (False, True):
            found[traced].append(asyncio.run(run(path if traced else None, count)))
    pairs = list(zip(found[True], found[False], strict=True))
    row: Row = {
        "of": name,
        "CPU time without a trace, µs": spread(each.cpu_us for each in found[False]),
        "more with a trace, µs": spread(mine.cpu_us - other.cpu_us for mine, other in pairs),
        "more of the loop's thread, µs": spread(mine.loop_us - other.loop_us for mine, other in pairs),
        "bytes of the trace": spread((each.nbytes - head_nbytes) / each.count for each in found[True]),
    }
    print(
        f"median of {rounds} rounds",
        *(f"{column}: {value}" for column, value in row.items()),
        sep="\n  ",
        flush=True,
    )
    return row


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tracing",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_data_option(parser)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--smoke", action="store_true", help="one short round: a check that it runs")
    add_json_option(parser)
    options = parser.parse_args()
    rounds, batches, images = options.rounds, _BATCHES, _IMAGES
    if options.smoke:
        rounds, batches, images = 1, 4, 64
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        files = load_jpegs(options.data, scratch)
        rec = scratch / "photos.rec"
        write_rec(rec, files, 4)
        rows = [
            compare("a batch", partial(load, rec), batches, rounds, scratch),
            compare("an image on demand", partial(serve, files), images, rounds, scratch),
        ]
    write_figures(options.json, rows)


if __name__ == "__main__":
    main()
