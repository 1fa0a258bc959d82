"""Cost of damaged images: epochs over a file with one truncated image in a hundred, against the intact file.

    python -m benchmarks.damaged --data FOLDER

The intact file, and the damaged one with ``on_error="skip"`` and ``"replace"``, take turns in one run, with one loader
each that keeps its workers. The figure is requested samples per second; the ratio is taken within each round.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import aioloader
import recordio
from aioloader import transforms
from aioloader.foundation.host_limits import available_cores
from benchmarks.data import add_data_option, load_jpegs

ONE_IN = 100


def write_rec(path: Path, jpegs: list[bytes], repeat: int, damage: bool) -> int:
    """Write the same files `repeat` times, one in a hundred cut in the middle if `damage`; return the number cut."""
    damaged = 0
    with recordio.RecordWriter(path, index=True) as writer:
        for key, jpeg in enumerate(jpegs * repeat):
            body = jpeg
            if damage and key % ONE_IN == ONE_IN // 2:
                body = jpeg[: len(jpeg) // 2]
                damaged += 1
            writer.write(recordio.pack(recordio.IRHeader(0, float(key % len(jpegs)), key, 0), body), key)
    return damaged


async def epoch(loader: Any, count: int) -> float:
    """Return requested samples per second of one epoch."""
    begin = perf_counter()
    async for _ in loader:
        pass
    return count / (perf_counter() - begin)


async def compare(clean: Path, damaged: Path, expected: int, count: int, options: argparse.Namespace) -> None:
    """Take turns, then print."""
    augment = transforms.Compose([transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip()])
    rounds = 1 if options.smoke else options.rounds
    loaders = {
        name: aioloader.AsyncDataLoader[Any](
            aioloader.ImageRecordDataset(str(path)).transform_first(augment),
            options.batch_size,
            shuffle=True,
            num_workers=options.workers,
            executor=options.executor,
            on_error=policy,
        )
        for name, path, policy in (
            ("whole", clean, "raise"),
            ("skip", damaged, "skip"),
            ("replace", damaged, "replace"),
        )
    }
    rates: dict[str, list[float]] = {name: [] for name in loaders}
    try:
        for turn in range(rounds + 1):
            for name, loader in loaders.items():
                rate = await epoch(loader, count)
                if turn:  # the first epoch starts the workers
                    rates[name].append(rate)
        for name in ("skip", "replace"):
            found = len(loaders[name].errors)
            if found != expected * (rounds + 1):
                raise SystemExit(f"{name}: {found} errors were recorded, not {expected * (rounds + 1)}")
    finally:
        for loader in loaders.values():
            await loader.aclose()
    print(
        f"{rounds} rounds, {options.workers} workers, {options.executor}, {count} images, {expected} of them damaged"
    )
    for name, found_rates in rates.items():
        ratios = [rate / whole for rate, whole in zip(found_rates, rates["whole"], strict=True)]
        print(
            f"{name:8} median {median(found_rates):,.0f} images/s, {median(ratios):.3f} of the whole file's "
            f"(from {min(ratios):.3f} to {max(ratios):.3f})"
        )


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description="cost of damaged images")
    add_data_option(parser)
    parser.add_argument("--workers", type=int, default=available_cores(), help="default: one per core")
    parser.add_argument("--executor", choices=("process", "thread"), default="process")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--repeat", type=int, default=16, help="how often each image is in the file")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--smoke", action="store_true", help="one round: a check that it runs, not a measurement"
    )
    options = parser.parse_args()
    repeat = 1 if options.smoke else options.repeat
    with tempfile.TemporaryDirectory() as scratch:
        jpegs = load_jpegs(options.data, scratch)
        clean, damaged = Path(scratch, "clean.rec"), Path(scratch, "damaged.rec")
        write_rec(clean, jpegs, repeat, damage=False)
        expected = write_rec(damaged, jpegs, repeat, damage=True)
        asyncio.run(compare(clean, damaged, expected, len(jpegs) * repeat, options))


if __name__ == "__main__":
    main()
