"""Batches on a GPU: `to_device` against torch's loader with pinned memory.

    python -m benchmarks.device_copies
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

import argparse
import gc
import tempfile
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
from benchmarks.data import add_data_option, load_jpegs
from benchmarks.figures import Row, add_json_option, ratios, spread, write_figures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SIZE = 224
BATCH = 64


class Arrays(torch.utils.data.Dataset[Any]):
    """Dataset of float32 planes from a numpy file."""

    def __init__(self, path: Path, length: int) -> None:
        self._path = path
        self._length = length
        self._planes: Any = None

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        if self._planes is None:
            self._planes = np.load(self._path, mmap_mode="r")
        return np.array(self._planes[index % len(self._planes)])


class Photos(torch.utils.data.Dataset[Any]):
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


def ways(dataset: Any, device: str, workers: int) -> dict[str, Callable[[], Any]]:
    """Return a maker of each way's batches on the device."""
    common: dict[str, Any] = {"batch_size": BATCH, "shuffle": True, "num_workers": workers}
    kept = {**common, "persistent_workers": workers > 0}
    pinned = {**kept, "pin_memory": device != "cpu"}
    return {
        "torch": lambda: Copied(torch.utils.data.DataLoader(dataset, **pinned), device),
        "torch, pageable": lambda: Copied(torch.utils.data.DataLoader(dataset, **kept), device),
        "adapter": lambda: Copied(DataLoader(dataset, **pinned), device),
        "to_device": lambda: to_device(aioloader.DataLoader(dataset, **common), device),
    }


class Copied:
    """Batches of a loader, copied to the device as training scripts do."""

    def __init__(self, loader: Any, device: str) -> None:
        self._loader = loader
        self._device = device

    def __iter__(self) -> Any:
        for batch in self._loader:
            yield batch.to(self._device, non_blocking=True)

    def close(self) -> None:
        """Stop the workers of this project's loader; torch's stop when it is deleted."""
        getattr(self._loader, "close", lambda: None)()


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
        self.sum = torch.zeros((), dtype=torch.float64, device=device)
        if busy_s:
            self._run(3)
            begin = perf_counter()
            self._run(10)
            self._products = max(1, round(10 * busy_s / (perf_counter() - begin)))

    def __call__(self, batch: Any) -> None:
        """Start the work for a batch; do not wait for it."""
        for _ in range(self._products):
            torch.mm(self._matrix, self._matrix)
        self.sum += batch.sum(dtype=torch.float64)

    def wait(self) -> None:
        """Wait until the device has done all of it."""
        if self._device != "cpu":
            torch.cuda.synchronize()

    def _run(self, count: int) -> None:
        for _ in range(count):
            torch.mm(self._matrix, self._matrix)
        self.wait()


def epoch(batches: Iterable[Any], step: Step) -> tuple[float, float]:
    """Return batches per second of an epoch, and the sum of its batches."""
    step.sum.zero_()
    count = 0
    begin = perf_counter()
    for batch in batches:
        step(batch)
        count += 1
    step.wait()
    return count / (perf_counter() - begin), float(step.sum)


def measure(case: str, dataset: Any, busy_ms: float, options: argparse.Namespace) -> list[Row]:
    """Measure one case, print its table and return its rows.

    Raises:
        AssertionError: the sums of two ways differ.
    """
    step = Step(options.device, busy_ms / 1e3)
    rates: dict[str, list[float]] = {}
    sums: dict[str, float] = {}
    made = {name: make() for name, make in ways(dataset, options.device, options.workers).items()}
    for number in range(options.rounds + 1):
        for name, batches in made.items():
            found, total = epoch(batches, step)
            if number:
                rates.setdefault(name, []).append(found)
            sums[name] = total
    for batches in made.values():
        batches.close()
    made.clear()
    gc.collect()
    assert all(np.isclose(total, sums["torch"], rtol=1e-6) for total in sums.values()), sums
    rows: list[Row] = []
    for name, found in rates.items():
        row: Row = {
            "case": case,
            "GPU busy, ms a batch": busy_ms,
            "way": name,
            "images/s": spread(found, BATCH),
            "times torch": ratios(found, rates["torch"]),
        }
        middle, least, greatest = row["times torch"]
        print(
            f"{case:7} {busy_ms:5g} ms  {name:20} {row['images/s'][0]:9,.0f} images/s  "
            f"{middle:.2f} ({least:.2f} to {greatest:.2f})",
            flush=True,
        )
        rows.append(row)
    return rows


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="batches on a GPU: to_device against torch's pinned loader")
    add_data_option(parser)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, default=available_cores(), help="default: one per core")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=200, help="of an epoch")
    parser.add_argument(
        "--busy-ms", nargs="+", type=float, default=[0.0, 20.0], metavar="MS", help="GPU's work for a batch"
    )
    parser.add_argument(
        "--smoke", action="store_true", help="one short round: a check that it runs, not a measurement"
    )
    add_json_option(parser)
    options = parser.parse_args()
    if options.smoke:
        options.rounds, options.batches, options.workers, options.busy_ms = 1, 3, 0, [1.0]
    length = options.batches * BATCH
    with tempfile.TemporaryDirectory() as scratch:
        planes = Path(scratch, "planes.npy")
        np.save(planes, np.random.default_rng(0).random((256, 3, SIZE, SIZE), np.float32))
        datasets = {
            "arrays": Arrays(planes, length),
            "photos": Photos(load_jpegs(options.data, scratch), length),
        }
        print(f"{options.device}, {options.workers} workers, torch {torch.__version__}")
        rows: list[Row] = []
        for case, dataset in datasets.items():
            for busy_ms in options.busy_ms:
                rows += measure(case, dataset, busy_ms, options)
        write_figures(options.json, rows)


if __name__ == "__main__":
    main()
