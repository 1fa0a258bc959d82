"""Cost of a record of 1 kB: both loaders, shuffled, in batches of 256, against a bare loop of the same reads.

The bare loop calls `os.pread` once for each record, in a shuffled order, and collects 256 at a time in a list. All
variants take turns in one process on one file, so that a busy machine slows all of them alike. The median of the CPU
time counts: the wall time is printed as well, and is close to it on an idle machine. A file of a million records does
not fit into the processor's caches, and shows what that costs.

    python -m benchmarks.small_records --records 100000 --rounds 9
    python -m benchmarks.small_records --records 1000000 --rounds 9 --no-index
"""

from __future__ import annotations

import argparse
import os
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Any

import anyio
import numpy as np

import recordio
from aioloader import AsyncDataLoader, DataLoader, RecordFileDataset
from aioloader.batchify import AsList
from recordio import Index

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

BATCH = 256
NBYTES = 1024
HEAD_NBYTES = 8  # of a record
INLINE = {"executor": "inline", "num_workers": 0}
ONE_THREAD = {"executor": "thread", "num_workers": 1}
TWO_THREADS = {"executor": "thread", "num_workers": 2}


@dataclass
class Variant:
    """A way to read the records.

    Attributes:
        name: for the table.
        batches: yields batches without end.
        cpu_us, wall_us: microseconds for each record, of each turn.
    """

    name: str
    batches: AsyncIterator[list[bytes]]
    cpu_us: list[float] = field(default_factory=list)
    wall_us: list[float] = field(default_factory=list)

    async def take(self, batches: int) -> None:
        """Take a turn."""
        records = 0
        cpu, wall = process_time(), perf_counter()
        for _ in range(batches):
            records += len(await anext(self.batches))
        self.cpu_us.append((process_time() - cpu) / records * 1e6)
        self.wall_us.append((perf_counter() - wall) / records * 1e6)


def write_records(path: Path, count: int, index: bool) -> None:
    """Write random records of `NBYTES` bytes."""
    pool = np.random.default_rng(0).bytes(1 << 20)
    with recordio.RecordWriter(path, index=index) as writer:
        for number in range(count):
            begin = number * 977 % (len(pool) - NBYTES)
            payload = pool[begin : begin + NBYTES]
            if index:
                writer.write(payload, number)
            else:
                writer.write(payload)


def keep(payload: bytes) -> bytes:
    """Return a sample as it is: a transform that costs nothing itself."""
    return payload


async def read_bare(path: Path) -> AsyncIterator[list[bytes]]:
    """Yield lists of payloads, each read by one call."""
    begins = Index.scan(path).offsets + HEAD_NBYTES
    fd = os.open(path, os.O_RDONLY)
    try:
        while True:
            order = np.random.default_rng().permutation(begins)
            for start in range(0, len(order) - BATCH + 1, BATCH):
                yield [os.pread(fd, NBYTES, begin) for begin in order[start : start + BATCH].tolist()]
    finally:
        os.close(fd)


async def read_async(loader: Any) -> AsyncIterator[list[bytes]]:
    """Yield the batches of one epoch after the other."""
    while True:
        async for batch in loader:
            yield batch


async def read_blocking(loader: Any) -> AsyncIterator[list[bytes]]:
    """Yield the batches of one epoch after the other."""
    batches: Iterator[list[bytes]]
    while True:
        batches = iter(loader)
        for batch in batches:
            yield batch


async def compare(path: Path, options: argparse.Namespace) -> list[Variant]:
    """Let all variants take turns; return them with their times."""
    records = RecordFileDataset(path)
    cases: list[tuple[str, Callable[..., Any], Any, dict[str, Any]]] = [
        ("AsyncDataLoader, inline", AsyncDataLoader, records, INLINE),
        ("AsyncDataLoader, inline, AsList()", AsyncDataLoader, records, {**INLINE, "batchify_fn": AsList()}),
        ("AsyncDataLoader, 1 thread", AsyncDataLoader, records, ONE_THREAD),
        (
            "AsyncDataLoader, 1 thread, AsList()",
            AsyncDataLoader,
            records,
            {**ONE_THREAD, "batchify_fn": AsList()},
        ),
        (
            "AsyncDataLoader, 2 threads, AsList()",
            AsyncDataLoader,
            records,
            {**TWO_THREADS, "batchify_fn": AsList()},
        ),
        ("DataLoader, inline, AsList()", DataLoader, records, {**INLINE, "batchify_fn": AsList()}),
        ("DataLoader, 2 threads, AsList()", DataLoader, records, {**TWO_THREADS, "batchify_fn": AsList()}),
        ("DataLoader, inline, a transform", DataLoader, records.transform(keep), INLINE),
    ]
    variants = [Variant("bare loop", read_bare(path))]
    async with AsyncExitStack() as stack:
        for name, make, dataset, setting in cases:
            loader = make(dataset, BATCH, shuffle=True, **setting)
            if make is DataLoader:
                variants.append(Variant(name, read_blocking(stack.enter_context(loader))))
            else:
                variants.append(Variant(name, read_async(await stack.enter_async_context(loader))))
        for variant in variants:  # opens the index and starts threads
            await variant.take(8)
            variant.cpu_us.clear()
            variant.wall_us.clear()
        for turn in range(options.rounds):
            for place in range(len(variants)):
                await variants[(turn + place) % len(variants)].take(options.batches)
        for variant in variants:
            await variant.batches.aclose()
    return variants


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=100_000, help="records of the file")
    parser.add_argument("--no-index", action="store_true", help="without an .idx")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--batches", type=int, default=100, help="batches of a turn")
    parser.add_argument("--smoke", action="store_true", help="a check that it runs, not a measurement")
    options = parser.parse_args()
    if options.smoke:
        options.records, options.rounds, options.batches = 3000, 1, 4
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "records.rec")
        write_records(path, options.records, index=not options.no_index)
        variants = anyio.run(compare, path, options)
    bare = variants[0]
    print(
        f"{options.records:,} records of {NBYTES} bytes, batches of {BATCH}, median of {options.rounds} turns"
    )
    print(f"{'':40} {'CPU us':>8} {'of bare':>8} {'wall us':>8}")
    for variant in variants:
        share = median(mine / light for mine, light in zip(variant.cpu_us, bare.cpu_us, strict=True))
        print(f"{variant.name:40} {median(variant.cpu_us):8.2f} {share:8.2f} {median(variant.wall_us):8.2f}")


if __name__ == "__main__":
    main()
