"""Torch's DataLoader and `aioloader.interop.torch.DataLoader`, measured alternately in one run with the same scripts.

    python -m benchmarks.torch_adapter --data FOLDER --workers 2 --rounds 7

Both loaders have the same dataset and arguments, and keep their workers between epochs. First the batches of an
epoch are compared, bit for bit; then each takes a whole epoch in turn. Compare the ratio of the medians: absolute speed
depends on the machine. The cases:

- pillow: images opened, cropped, resized and flipped by Pillow, made float32 planes by torch
- arrays: float32 planes of 224 x 224 from a memory-mapped numpy file, copied by numpy
- fields: a dict of twelve numbers, small arrays and a string
- collate: tensors of 16,384 numbers, with a custom collate function
- memory: a TensorDataset of small images, without workers
- folder: the pillow script with its dataset replaced by `aioloader.ImageFolderDataset` and the same steps, against the
  unchanged script (its batches differ, because the draws differ)
"""

from __future__ import annotations

import argparse
import gc
import math
import random
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.utils.data
from PIL import Image

import aioloader
from aioloader import transforms
from aioloader.foundation.host_limits import available_cores
from aioloader.interop.torch import DataLoader
from benchmarks.data import add_data_option, load_jpegs
from benchmarks.figures import Row, add_json_option, spread, write_figures

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE = 224
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_MEAN = torch.tensor(MEAN).view(3, 1, 1) * 255
_STD = torch.tensor(STD).view(3, 1, 1) * 255


class PillowImages(torch.utils.data.Dataset):
    """Dataset of (planes, number of the class) for every file in ``root/<class>/``, as in scripts with Pillow.

    Args:
        root: the folder.
        fixed: the index determines the crop; else it is drawn.
    """

    def __init__(self, root: Path, fixed: bool) -> None:
        classes = sorted(path for path in root.iterdir() if path.is_dir())
        self._files = [
            (str(path), number) for number, each in enumerate(classes) for path in sorted(each.iterdir())
        ]
        self._fixed = fixed

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        path, label = self._files[index]
        draws = random.Random(index) if self._fixed else random
        with Image.open(path) as file:
            image = file.convert("RGB")
        x, y, width, height = random_box(*image.size, draws)
        box = (x, y, x + width, y + height)
        image = image.resize((SIZE, SIZE), Image.Resampling.BILINEAR, box=box)
        if draws.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        planes = torch.from_numpy(np.array(image)).permute(2, 0, 1).float()
        return planes.sub_(_MEAN).div_(_STD), label


def random_box(width: int, height: int, draws: Any) -> tuple[int, int, int, int]:
    """Draw (x, y, width, height) as torchvision does."""
    for _ in range(10):
        area = width * height * draws.uniform(0.08, 1.0)
        ratio = math.exp(draws.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return draws.randint(0, width - w), draws.randint(0, height - h), w, h
    side = min(width, height)
    return (width - side) // 2, (height - side) // 2, side, side


class Arrays(torch.utils.data.Dataset):
    """Dataset of (planes, number) from a numpy file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._planes: Any = None

    def __len__(self) -> int:
        return 2048

    def __getitem__(self, index: int) -> tuple[Any, int]:
        if self._planes is None:
            self._planes = np.load(self._path, mmap_mode="r")
        return np.array(self._planes[index % len(self._planes)]), index


class Fields(torch.utils.data.Dataset):
    """Dataset of dicts of twelve small fields."""

    def __len__(self) -> int:
        return 32_768

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {
            "index": index,
            "weight": index / 7,
            "flag": index % 2 == 0,
            "name": f"sample {index}",
            "box": np.array([index, index, index + 1, index + 1], np.float32),
            "size": (index % 640, index % 480),
            "vector": torch.full((16,), float(index)),
            "token": np.int32(index),
            "score": np.float32(index),
            "times": [index, index + 0.5],
        }


class Tensors(torch.utils.data.Dataset):
    """Dataset of tensors of 16,384 numbers."""

    def __len__(self) -> int:
        return 16_384

    def __getitem__(self, index: int) -> Any:
        return torch.full((128, 128), float(index))


def collate(samples: list[Any]) -> dict[str, Any]:
    """Collate samples, as a script's custom function does."""
    stacked = torch.stack(samples)
    return {"images": stacked, "means": stacked.mean((1, 2)), "count": len(samples)}


@dataclass
class Case:
    """Case of the comparison.

    Attributes:
        dataset: of the script.
        options: of its loader.
        swapped: the dataset for aioloader in its place, or None.
        fixed: a dataset with the same batches in both, to compare them; None: use `dataset`.
    """

    dataset: Any
    options: dict[str, Any]
    swapped: Any = None
    fixed: Any = None


def cases(root: Path, scratch: Path) -> dict[str, Callable[[], Case]]:
    """Yield all cases, each made when it is needed."""

    def arrays() -> Case:
        path = scratch / "planes.npy"
        generator = np.random.default_rng(0)
        np.save(path, generator.standard_normal((256, 3, SIZE, SIZE), np.float32))
        return Case(Arrays(path), {"batch_size": 64})

    def memory() -> Case:
        images = torch.randint(0, 256, (20_000, 3, 32, 32), dtype=torch.uint8)
        dataset = torch.utils.data.TensorDataset(images, torch.arange(20_000))
        return Case(dataset, {"batch_size": 64, "num_workers": 0})

    def folder() -> Case:
        chain = transforms.Compose(
            [
                transforms.RandomResizedCrop(SIZE),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize(MEAN, STD),
            ]
        )
        swapped = aioloader.ImageFolderDataset(root).transform_first(chain)
        return Case(PillowImages(root, False), {"batch_size": 64}, swapped)

    return {
        "pillow": lambda: Case(PillowImages(root, False), {"batch_size": 64}, fixed=PillowImages(root, True)),
        "arrays": arrays,
        "fields": lambda: Case(Fields(), {"batch_size": 64}),
        "collate": lambda: Case(Tensors(), {"batch_size": 64, "collate_fn": collate}),
        "memory": memory,
        "folder": folder,
    }


def compare_batches(case: Case, options: dict[str, Any]) -> int:
    """Compare the batches of an epoch of both, shuffled alike; return their number.

    Raises:
        AssertionError: they differ.
    """
    dataset = case.dataset if case.fixed is None else case.fixed
    theirs, ours = (
        make(dataset, shuffle=True, generator=torch.Generator().manual_seed(0), **options)
        for make in (torch.utils.data.DataLoader, DataLoader)
    )
    count = 0
    for batch, other in zip(ours, theirs, strict=True):
        assert_same(batch, other)
        count += 1
    ours.close()
    return count


def assert_same(first: Any, second: Any) -> None:
    """Raise if two batches differ in a type or a value."""
    assert type(first) is type(second), (type(first), type(second))
    if isinstance(first, torch.Tensor):
        assert first.dtype == second.dtype
        assert torch.equal(first, second)
    elif isinstance(first, dict):
        assert list(first) == list(second)
        for key in first:
            assert_same(first[key], second[key])
    elif isinstance(first, (list, tuple)):
        for pair in zip(first, second, strict=True):
            assert_same(*pair)
    else:
        assert first == second


def epoch(loader: Any) -> tuple[float, float]:
    """Return batches per second of a whole epoch, and seconds to its first batch."""
    count, first = 0, 0.0
    begin = perf_counter()
    for _ in loader:
        if not count:
            first = perf_counter() - begin
        count += 1
    return count / (perf_counter() - begin), first


def measure(name: str, case: Case, options: argparse.Namespace) -> Row:
    """Measure one case: compare, then take turns, then print; return the figures."""
    arguments: dict[str, Any] = {"num_workers": options.workers, **case.options}
    if arguments["num_workers"]:
        arguments["persistent_workers"] = True
    told = "batches differ by design"
    if case.swapped is None:
        told = f"{compare_batches(case, arguments)} batches identical"
    theirs = torch.utils.data.DataLoader(case.dataset, shuffle=True, **arguments)
    ours = DataLoader(case.swapped or case.dataset, shuffle=True, **arguments)
    starts = [epoch(loader)[1] for loader in (theirs, ours)]  # starts the workers
    rates: tuple[list[float], list[float]] = ([], [])
    for turn in range(options.rounds):
        for side in (0, 1) if turn % 2 else (1, 0):
            rates[side].append(epoch((theirs, ours)[side])[0])
    ours.close()
    del theirs, ours
    gc.collect()
    ratios = [mine / other for other, mine in zip(*rates, strict=True)]
    size = arguments["batch_size"]
    print(
        f"{name:8} torch {size * median(rates[0]):9,.0f}  aioloader {size * median(rates[1]):9,.0f} samples/s  "
        f"ratio {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})  "
        f"first batch {starts[0]:.2f} s, {starts[1]:.2f} s  {told}",
        flush=True,
    )
    return {
        "script": name,
        "rate, as a multiple of torch's loader": spread(ratios),
        "samples/s": spread(rates[1], size),
        "torch, samples/s": spread(rates[0], size),
        "first batch, s": starts[1],
        "torch, first batch, s": starts[0],
    }


def lay_out(jpegs: list[bytes], folder: Path, repeat: int) -> Path:
    """Write the images as ``folder/<class>/<name>.jpg``, ten classes."""
    for number, jpeg in enumerate(jpegs * repeat):
        path = folder / f"class{number % 10}" / f"{number:06}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg)
    return folder


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description="torch's DataLoader against aioloader.interop.torch.DataLoader"
    )
    add_data_option(parser)
    parser.add_argument("--workers", type=int, default=available_cores(), help="default: one per core")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--images", type=int, default=1000, help="minimum number of images of an epoch")
    parser.add_argument("--only", help="some of the cases, separated by commas")
    parser.add_argument(
        "--smoke", action="store_true", help="one short round: a check that it runs, not a measurement"
    )
    add_json_option(parser)
    options = parser.parse_args()
    if options.smoke:
        options.rounds, options.images = 1, 120
    with tempfile.TemporaryDirectory() as scratch:
        jpegs = load_jpegs(options.data, scratch)[: options.images]
        root = lay_out(jpegs, Path(scratch, "folder"), -(-options.images // len(jpegs)))
        found = cases(root, Path(scratch))
        names = options.only.split(",") if options.only else list(found)
        print(f"{options.rounds} rounds, {options.workers} workers, torch {torch.__version__}")
        write_figures(options.json, [measure(name, found[name](), options) for name in names])


if __name__ == "__main__":
    main()
