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

import multiprocessing
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np

import aioloader
from aioloader import batchify, transforms
from aioloader.foundation.host_limits import available_cores
from aioloader.foundation.pytree import flatten
from benchmarks.data import load_jpegs
from benchmarks.figures import costs, ratios
from benchmarks.measurement import in_turns, run, taken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from benchmarks.figures import Row

_PATCHES = 28
_PAGE = 4096


class Photos:
    """Dataset of decoded images whose extents are multiples of 28, at most `side`; as tensors of torch if asked."""

    def __init__(self, jpegs: list[bytes], side: int, count: int) -> None:
        self._jpegs = jpegs
        self._side = side
        self._count = count
        self.tensors = False

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
        small = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)
        if not self.tensors:
            return small
        import torch

        return torch.from_numpy(small)


_photos: list[Photos] = []


def _pickled(indices: range) -> list[Any]:
    return [_photos[0][index] for index in indices]


def touch(batch: Any) -> None:
    """Read one value in each page of a batch."""
    for leaf in flatten(batch)[1]:
        np.asarray(leaf).reshape(-1).view(np.uint8)[::_PAGE].sum()


def ways(
    make: Callable[[], Photos], workers: int, batch_size: int, stack: ExitStack
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
        loader = aioloader.DataLoader[Any](make(), batch_size, batchify_fn=function, num_workers=workers)
        stack.callback(loader.close)
        found[name] = loader.__iter__
    try:
        from torch.utils.data import DataLoader
    except ImportError:
        print("torch: left out, because it is not installed")
    else:
        tensors = make()
        tensors.tensors = True
        kept = {"persistent_workers": True, "multiprocessing_context": "fork"}
        torch_loader = DataLoader(tensors, batch_size, collate_fn=list, num_workers=workers, **kept)
        found["torch"] = torch_loader.__iter__
    photos = make()
    _photos.append(photos)  # inherited by the processes of the pool
    pool = multiprocessing.get_context("fork").Pool(workers)
    stack.callback(pool.join)
    stack.callback(pool.terminate)
    numbers = range(len(photos))
    lists = [numbers[start : start + batch_size] for start in range(0, len(photos), batch_size)]
    found["pool"] = partial(pool.imap, _pickled, lists)
    return found


def measure(
    data: str | None = None,
    workers: int = available_cores(),
    batch_size: int = 16,
    side: int = 448,
    count: int = 1024,
    rounds: int = 7,
) -> Iterator[Row]:
    """Measure the ways in turns.

    Args:
        data: folder.
        workers: of each way.
        batch_size: images of a batch.
        side: longer side of the images, pixels.
        count: images of an epoch.
        rounds: epochs of each way.
    """
    jpegs = load_jpegs(data)

    def epoch(begin: Callable[[], Iterable[Any]]) -> int:
        for batch in begin():
            touch(batch)
        return count

    with ExitStack() as stack:
        begun = ways(lambda: Photos(jpegs, side, count), workers, batch_size, stack)
        turns = {name: partial(taken, partial(epoch, begin)) for name, begin in begun.items()}
        found = in_turns(turns, rounds)
    pool = [rate for rate, _ in found["pool"]]
    for name, figures in found.items():
        yield {
            "way": name,
            **costs(figures),
            "of the pool's": ratios((rate for rate, _ in figures), pool),
        }


if __name__ == "__main__":
    run(measure, count=32, rounds=1)
