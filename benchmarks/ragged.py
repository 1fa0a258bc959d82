"""Batches of images of different sizes: batchify functions of this project, and lists that are pickled.

    python -m benchmarks.ragged --data FOLDER --rounds 7

The images of a folder are decoded and shrunk to at most --side pixels, each in its own proportion. The ways take turns,
with one pool of workers each that stays:

- ragged, pad, patches: `batchify.Ragged()`, `Pad(multiple_of=28, sizes=True)`, `Patches()` of extents that fit
- aslist: `batchify.AsList()`, a list of arrays
- torch: torch's `DataLoader` with ``collate_fn=list``, which passes tensors through shared memory, one file for each
- pool: `multiprocessing.Pool.imap` of lists of arrays, which are pickled

A figure is images per second, and the CPU seconds of all processes for each image; ratios are taken within each round.
All batches are read once, one value in each 4,096 bytes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import psutil

import aioloader
from aioloader import batchify, transforms
from aioloader.foundation.host_limits import available_cores
from aioloader.foundation.pytree import flatten
from benchmarks.data import add_data_option, load_jpegs
from benchmarks.figures import Row, add_json_option, ratios, spread, write_figures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_PATCHES = 28
_PAGE = 4096


class Photos:
    """Dataset of decoded images whose extents are multiples of 28, at most `side`."""

    def __init__(self, jpegs: list[bytes], side: int, count: int) -> None:
        self._jpegs = jpegs
        self._side = side
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        if index >= self._count:
            raise IndexError(index)
        image = transforms.decode_image(self._jpegs[index % len(self._jpegs)])
        scale = self._side / max(image.shape[:2])
        height, width = (
            max(_PATCHES, int(extent * scale) // _PATCHES * _PATCHES) for extent in image.shape[:2]
        )
        return cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)

    def batch(self, indices: list[int]) -> list[Any]:
        """Return the images of a batch."""
        return [self[index] for index in indices]


_photos: Photos | None = None


def _set_photos(photos: Photos) -> None:
    global _photos
    _photos = photos


def _pickled(indices: list[int]) -> list[Any]:
    assert _photos is not None
    return _photos.batch(indices)


def touch(batch: Any) -> int:
    """Read one value in each page of a batch; return its bytes."""
    total = 0
    for leaf in flatten(batch)[1]:
        array = np.asarray(leaf).reshape(-1).view(np.uint8)
        array[::_PAGE].sum()
        total += array.nbytes
    return total


def cpu_seconds() -> float:
    """Return the CPU seconds of this process, its living children and those that have ended."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = ended.ru_utime + ended.ru_stime
    me = psutil.Process(os.getpid())
    for process in (me, *me.children(recursive=True)):
        times = process.cpu_times()
        total += times.user + times.system
    return total


def ways(
    photos: Photos, options: argparse.Namespace, stack: ExitStack
) -> dict[str, Callable[[], Iterable[Any]]]:
    """Start all ways; return for each a function that begins an epoch."""
    found: dict[str, Callable[[], Iterable[Any]]] = {}
    functions = {
        "ragged": batchify.Ragged(),
        "pad": batchify.Pad(multiple_of=_PATCHES, sizes=True),
        "patches": batchify.Patches(),
        "aslist": batchify.AsList(),
    }
    for name, function in functions.items():
        loader = aioloader.DataLoader[Any](
            photos, options.batch_size, batchify_fn=function, num_workers=options.workers
        )
        stack.callback(loader.close)
        found[name] = loader.__iter__
    try:
        from torch.utils.data import DataLoader
    except ImportError:
        print("torch: left out, because it is not installed")
    else:
        torch_loader = DataLoader(
            _Tensors(photos),
            options.batch_size,
            collate_fn=list,
            num_workers=options.workers,
            persistent_workers=True,
            multiprocessing_context="fork",
        )
        found["torch"] = torch_loader.__iter__
    pool = multiprocessing.get_context("fork").Pool(options.workers, _set_photos, (photos,))
    stack.callback(pool.join)
    stack.callback(pool.terminate)
    lists = [
        list(range(start, min(start + options.batch_size, len(photos))))
        for start in range(0, len(photos), options.batch_size)
    ]

    def pooled() -> Iterator[Any]:
        return iter(pool.imap(_pickled, lists))

    found["pool"] = pooled
    return found


class _Tensors:
    """The same images as tensors."""

    def __init__(self, photos: Photos) -> None:
        self._photos = photos

    def __len__(self) -> int:
        return len(self._photos)

    def __getitem__(self, index: int) -> Any:
        import torch

        return torch.from_numpy(self._photos[index])


def measure(found: dict[str, Callable[[], Iterable[Any]]], count: int, rounds: int) -> list[Row]:
    """Take turns, then print; return the figures of each way."""
    rates: dict[str, list[float]] = {name: [] for name in found}
    cpu: dict[str, list[float]] = {name: [] for name in found}
    nbytes: dict[str, int] = {}
    for turn in range(rounds + 1):
        for name, begin in found.items():
            used, started = cpu_seconds(), perf_counter()
            nbytes[name] = sum(touch(batch) for batch in begin())
            if turn:  # the first epoch starts the workers
                rates[name].append(count / (perf_counter() - started))
                cpu[name].append((cpu_seconds() - used) / count)
    for name, rate in rates.items():
        of_pool = ratios(rate, rates["pool"])
        print(
            f"{name:8} median {median(rate):8,.0f} images/s, {of_pool[0]:5.2f} of pool's ({of_pool[1]:.2f} to "
            f"{of_pool[2]:.2f}), CPU {1e3 * median(cpu[name]):6.2f} ms an image, {nbytes[name] / 1e6:,.0f} MB an epoch"
        )
    return [
        {
            "way": name,
            "images/s": spread(rate),
            "of the pool's": ratios(rate, rates["pool"]),
            "CPU, ms an image": spread(cpu[name], 1e3),
        }
        for name, rate in rates.items()
    ]


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description="batches of images of different sizes")
    add_data_option(parser)
    parser.add_argument("--workers", type=int, default=available_cores(), help="default: one per core")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--side", type=int, default=448, help="longer side of the images, pixels")
    parser.add_argument("--count", type=int, default=1024, help="images of an epoch")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--smoke", action="store_true", help="one round: a check that it runs, not a measurement"
    )
    add_json_option(parser)
    options = parser.parse_args()
    count, rounds = (32, 1) if options.smoke else (options.count, options.rounds)
    with tempfile.TemporaryDirectory() as scratch:
        jpegs = load_jpegs(options.data, str(Path(scratch)))
    with ExitStack() as stack:
        found = ways(Photos(jpegs, options.side, count), options, stack)
        print(f"{rounds} rounds, {options.workers} workers, {count} images, batches of {options.batch_size}")
        write_figures(options.json, measure(found, count, rounds))


if __name__ == "__main__":
    main()
