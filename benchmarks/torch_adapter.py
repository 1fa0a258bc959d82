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

import gc
import random
import tempfile
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.utils.data
from PIL import Image

import aioloader
from aioloader import transforms
from aioloader.foundation.host_limits import available_cores
from aioloader.interop.torch import DataLoader
from benchmarks.contenders.opencv import random_box
from benchmarks.data import lay_out, load_jpegs
from benchmarks.figures import costs, ratios
from benchmarks.measurement import in_turns, run, taken

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.figures import Row

SIZE = 224
BATCH = 64
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_MEAN = torch.tensor(MEAN).view(3, 1, 1) * 255
_STD = torch.tensor(STD).view(3, 1, 1) * 255
CASES = ("pillow", "arrays", "fields", "collate", "memory", "folder")


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
        draws: Any = random.Random(index) if self._fixed else random
        with Image.open(path) as file:
            image = file.convert("RGB")
        x, y, width, height = random_box(*image.size, draws)
        box = (x, y, x + width, y + height)
        image = image.resize((SIZE, SIZE), Image.Resampling.BILINEAR, box=box)
        if draws.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        planes = torch.from_numpy(np.array(image)).permute(2, 0, 1).float()
        return planes.sub_(_MEAN).div_(_STD), label


class Planes(torch.utils.data.Dataset):
    """Dataset of float32 planes of 224 x 224 from a memory-mapped file with 256 of them, which repeat.

    Args:
        path: the file, which is written.
        length: of the dataset.
        numbered: a sample is (planes, number).
    """

    def __init__(self, path: Path, length: int, numbered: bool) -> None:
        np.save(path, np.random.default_rng(0).standard_normal((256, 3, SIZE, SIZE), np.float32))
        self._path = path
        self._length = length
        self._numbered = numbered
        self._planes: Any = None

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        if self._planes is None:
            self._planes = np.load(self._path, mmap_mode="r")
        planes = np.array(self._planes[index % len(self._planes)])
        return (planes, index) if self._numbered else planes


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


class Case(NamedTuple):
    """Case of the comparison.

    Attributes:
        dataset: of the script.
        options: of its loader.
        swapped: the dataset for aioloader in its place, or None.
        fixed: a dataset with the same batches in both, to compare them; None: use `dataset`.
    """

    dataset: Any
    options: dict[str, Any] = {}  # noqa: RUF012 - never changed
    swapped: Any = None
    fixed: Any = None


def case_of(name: str, root: Path, scratch: Path) -> Case:
    """Return one of `CASES`, with the images in a folder."""
    if name == "pillow":
        return Case(PillowImages(root, False), fixed=PillowImages(root, True))
    if name == "arrays":
        return Case(Planes(scratch / "planes.npy", 2048, numbered=True))
    if name == "fields":
        return Case(Fields())
    if name == "collate":
        return Case(Tensors(), {"collate_fn": collate})
    if name == "memory":
        images = torch.randint(0, 256, (20_000, 3, 32, 32), dtype=torch.uint8)
        return Case(torch.utils.data.TensorDataset(images, torch.arange(20_000)), {"num_workers": 0})
    steps = [transforms.RandomResizedCrop(SIZE), transforms.RandomHorizontalFlip()]
    chain = transforms.Compose([*steps, transforms.ToTensor(), transforms.Normalize(MEAN, STD)])
    swapped = aioloader.ImageFolderDataset(root).transform_first(chain)
    return Case(PillowImages(root, False), swapped=swapped)


def compare_batches(dataset: Any, options: dict[str, Any]) -> None:
    """Compare the batches of an epoch of both, shuffled alike.

    Raises:
        AssertionError: they differ.
    """
    theirs, ours = (
        make(dataset, shuffle=True, generator=torch.Generator().manual_seed(0), **options)
        for make in (torch.utils.data.DataLoader, DataLoader)
    )
    for batch, other in zip(ours, theirs, strict=True):
        assert_same(batch, other)
    ours.close()


def assert_same(first: Any, second: Any) -> None:
    """Raise if two batches differ in a type or a value."""
    assert type(first) is type(second), (type(first), type(second))
    if isinstance(first, torch.Tensor):
        assert first.dtype == second.dtype
        assert torch.equal(first, second)
    elif isinstance(first, dict):
        assert list(first) == list(second)
        assert_same(list(first.values()), list(second.values()))
    elif isinstance(first, (list, tuple)):
        for pair in zip(first, second, strict=True):
            assert_same(*pair)
    else:
        assert first == second


def epoch(loader: Any) -> tuple[tuple[float, float], float]:
    """Return samples/s of a whole epoch with the CPU seconds of each, and the seconds to its first batch."""
    first: list[float] = []
    begin = perf_counter()

    def take() -> int:
        count = 0
        for _ in loader:
            if not count:
                first.append(perf_counter() - begin)
            count += BATCH
        return count

    return taken(take), first[0]


def row(name: str, case: Case, workers: int, rounds: int) -> Row:
    """Compare the batches of one case, then take turns; return the figures."""
    options: dict[str, Any] = {"batch_size": BATCH, "num_workers": workers, **case.options}
    if options["num_workers"]:
        options["persistent_workers"] = True
    if case.swapped is None:
        compare_batches(case.fixed or case.dataset, options)
    theirs = torch.utils.data.DataLoader(case.dataset, shuffle=True, **options)
    ours = DataLoader(case.swapped or case.dataset, shuffle=True, **options)
    found = in_turns({"torch": partial(epoch, theirs), "aioloader": partial(epoch, ours)}, rounds + 1, warm=0)
    ours.close()
    del theirs, ours
    gc.collect()
    (first, *rates), (torch_first, *torch_rates) = (
        found["aioloader"],
        found["torch"],
    )  # the first starts the workers
    mine, other = ([figures for figures, _ in each] for each in (rates, torch_rates))
    return {
        "script": name,
        "rate, as a multiple of torch's loader": ratios(*([rate for rate, _ in x] for x in (mine, other))),
        **costs(mine, each="a sample"),
        **costs(other, "torch", "a sample"),
        "first batch, s": first[1],
        "torch, first batch, s": torch_first[1],
    }


def measure(
    data: str | None = None,
    workers: int = available_cores(),
    rounds: int = 7,
    images: int = 1000,
    only: Sequence[str] = CASES,
) -> Iterator[Row]:
    """Measure the loaders of each case in turns.

    Args:
        data: folder.
        workers: of each loader.
        rounds: epochs of each loader.
        images: of an epoch, at least.
        only: some of the cases.
    """
    with tempfile.TemporaryDirectory() as scratch:
        jpegs = load_jpegs(data)[:images]
        root = lay_out(jpegs, Path(scratch, "folder"), -(-images // len(jpegs)))
        for name in only:
            yield row(name, case_of(name, root, Path(scratch)), workers, rounds)


if __name__ == "__main__":
    run(measure, rounds=1, images=120)
