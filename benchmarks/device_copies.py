"""Batches on a GPU: `to_device` against torch's loader with pinned memory.

    python -m benchmarks.device_copies --device cuda --workers 8 --busy-ms 20 --data FOLDER

All ways load the same dataset with as many worker processes, and the same loop takes their batches. For each batch it
starts products of matrices on the GPU that take about `--busy-ms` milliseconds, in place of a step of training,
and adds up the batch there. An epoch ends when the GPU has done all of it. The first epoch of each way is not counted:
it starts the workers. The sums of an epoch are compared: every way must deliver every sample once. The ways:

- torch: `torch.utils.data.DataLoader(pin_memory=True)` and ``.to(device, non_blocking=True)``
- torch, pageable: the same without pinned memory
- adapter: the same script as "torch" with `aioloader.interop.torch.DataLoader`
- to_device: `aioloader.interop.torch.to_device` over `aioloader.DataLoader`

The cases: "arrays", float32 planes of 224 x 224 from a memory-mapped file, whose copies are most of the work; "photos",
JPEGs decoded and cropped with OpenCV in the dataset.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import torch
import torch.utils.data

import aioloader
from aioloader.foundation.host_limits import available_cores
from aioloader.interop.torch import DataLoader, to_device
from benchmarks.data import load_jpegs
from benchmarks.figures import costs, ratios
from benchmarks.measurement import in_turns, run, taken
from benchmarks.torch_adapter import Planes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from benchmarks.figures import Row

SIZE = 224
BATCH = 64


class Photos(torch.utils.data.Dataset):
    """Dataset of uint8 images of 224 x 224, decoded from bytes."""

    def __init__(self, jpegs: list[bytes], length: int) -> None:
        self._jpegs = jpegs
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        cv2.setNumThreads(0)
        data = np.frombuffer(self._jpegs[index % len(self._jpegs)], np.uint8)
        return cv2.resize(cv2.imdecode(data, cv2.IMREAD_COLOR_RGB), (SIZE, SIZE))


def ways(dataset: Any, device: str, workers: int, stack: ExitStack) -> dict[str, Callable[[], Iterable[Any]]]:
    """Return a function for each way that begins an epoch of batches on the device."""
    common: dict[str, Any] = {"batch_size": BATCH, "shuffle": True, "num_workers": workers}
    kept = {**common, "persistent_workers": workers > 0}
    pinned = {**kept, "pin_memory": device != "cpu"}
    adapter = DataLoader(dataset, **pinned)
    stack.callback(adapter.close)
    ours = to_device(aioloader.DataLoader(dataset, **common), device)
    stack.callback(ours.close)
    copied = {
        "torch": torch.utils.data.DataLoader(dataset, **pinned),
        "torch, pageable": torch.utils.data.DataLoader(dataset, **kept),
        "adapter": adapter,
    }

    def copies(loader: Any) -> Iterator[Any]:
        return (batch.to(device, non_blocking=True) for batch in loader)

    return {
        **{name: partial(copies, loader) for name, loader in copied.items()},
        "to_device": ours.__iter__,
    }


class Step:
    """Replacement for a step of training: products of matrices that take a given time, and the batch's sum.

    Args:
        device: of the batches.
        busy_s: duration of the products in seconds.
    """

    def __init__(self, device: str, busy_s: float) -> None:
        self._device = device
        side = 4096 if device != "cpu" else 256
        self._matrix = torch.randn(side, side, device=device)
        self._products = 0
        if busy_s:
            self._run(3)
            begin = perf_counter()
            self._run(10)
            self._products = max(1, round(10 * busy_s / (perf_counter() - begin)))

    def epoch(self, begin_epoch: Callable[[], Iterable[Any]]) -> tuple[tuple[float, float], float]:
        """Return images/s of an epoch with the CPU seconds of each, and the sum of its batches."""
        total = torch.zeros((), dtype=torch.float64, device=self._device)

        def take() -> int:
            count = 0
            for batch in begin_epoch():
                self._start(self._products)
                total.add_(batch.sum(dtype=torch.float64))
                count += BATCH
            self._run(0)
            return count

        return taken(take), float(total)

    def _start(self, products: int) -> None:
        for _ in range(products):
            torch.mm(self._matrix, self._matrix)

    def _run(self, products: int) -> None:
        """Start products, and wait until the device has done all of its work."""
        self._start(products)
        if self._device != "cpu":
            torch.cuda.synchronize()


def measure(
    data: str | None = None,
    device: str = "cuda" if torch.cuda.is_available() else "cpu",
    workers: int = available_cores(),
    rounds: int = 5,
    batches: int = 200,
    busy_ms: Sequence[float] = (0.0, 20.0),
) -> Iterator[Row]:
    """Measure the ways of each case in turns.

    Args:
        data: folder.
        device: of the batches.
        workers: of each way.
        rounds: epochs of each way.
        batches: of an epoch.
        busy_ms: the GPU's work for a batch, milliseconds.
    """
    with tempfile.TemporaryDirectory() as scratch:
        length = batches * BATCH
        datasets = {
            "arrays": Planes(Path(scratch, "planes.npy"), length, numbered=False),
            "photos": Photos(load_jpegs(data), length),
        }
        for case, dataset in datasets.items():
            for busy in busy_ms:
                step = Step(device, busy / 1e3)
                with ExitStack() as stack:
                    begun = ways(dataset, device, workers, stack)
                    turns = {name: partial(step.epoch, begin) for name, begin in begun.items()}
                    found = in_turns(turns, rounds)
                sums = np.array([[total for _, total in each] for each in found.values()])
                assert np.allclose(sums, sums[0, 0], rtol=1e-6), sums
                rates = {name: [rate for (rate, _), _ in each] for name, each in found.items()}
                for name, each in found.items():
                    figures = costs(cost for cost, _ in each)
                    figures["times torch"] = ratios(rates[name], rates["torch"])
                    yield {"case": case, "GPU busy, ms a batch": busy, "way": name, **figures}


if __name__ == "__main__":
    run(measure, rounds=1, batches=3, workers=0, busy_ms=[1.0])
