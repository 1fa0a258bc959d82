"""Recipes of training, by aioloader and by torch with torchvision's transforms, measured alternately in one run.

    python -m benchmarks.recipes --data FOLDER --workers 2 --rounds 3

The contenders read the same folder of classes, with batches of 32. Each takes a whole epoch in turn; compare the ratios
of the medians. "tensors": torch's DataLoader, Pillow's decoder, torchvision's transforms (version 2) of uint8 tensors.
"pillow": the same, of Pillow images. The cases:

- v1: random resized crop 224, flip, normalised
- new: random resized crop 176, flip, TrivialAugmentWide, normalised, random erasing, MixUp or CutMix of each batch
- rand-augment: random resized crop 224, flip, RandAugment(2, 9), normalised
- multi-crop: DINO's 2 views of 224 and 8 of 96, with jitter, blur and solarisation, normalised
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.data
from PIL import Image

import aioloader
from aioloader import batchify, transforms
from aioloader.foundation.host_limits import available_cores
from aioloader.transforms import IMAGENET_MEAN, IMAGENET_STD
from benchmarks.contenders.torchvision_v2 import import_v2
from benchmarks.data import add_data_option, load_jpegs
from benchmarks.figures import Row, add_json_option, ratios, spread, write_figures
from benchmarks.torch_adapter import lay_out

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH = 32
CLASSES = 1000
BICUBIC = "bicubic"


def policies(t: Any, *, ours: bool) -> dict[str, Any]:
    """Return the transforms of each case, by the names that both libraries have.

    Args:
        t: `aioloader.transforms`, or `torchvision.transforms.v2`.
        ours: it is aioloader's.
    """

    def blur(p: float) -> Any:
        return t.RandomApply([t.GaussianBlur(9, (0.1, 2.0))], p=p)

    def crop(size: int, scale: tuple[float, float], *more: Any) -> list[Any]:
        interpolation = BICUBIC if ours else t.InterpolationMode.BICUBIC
        return [
            t.RandomResizedCrop(size, scale, interpolation=interpolation),
            t.RandomHorizontalFlip(),
            t.RandomApply([t.ColorJitter(0.4, 0.4, 0.2, 0.1)], p=0.8),
            t.RandomGrayscale(0.2),
            *more,
        ]

    first = [t.RandomResizedCrop(224), t.RandomHorizontalFlip()]
    return {
        "v1": first,
        "new": [t.RandomResizedCrop(176), t.RandomHorizontalFlip(), t.TrivialAugmentWide()],
        "rand-augment": [*first, t.RandAugment(2, 9)],
        "multi-crop": {
            "first": (crop(224, (0.4, 1.0), blur(1.0)), 1),
            "second": (crop(224, (0.4, 1.0), blur(0.1), t.RandomSolarize(128, 0.2)), 1),
            "local": (crop(96, (0.05, 0.4), blur(0.5)), 8),
        },
    }


def our_loader(root: Path, case: str, workers: int) -> Any:
    """Return aioloader's loader of a case."""
    end = [transforms.ToTensor(), transforms.Normalize(IMAGENET_MEAN, IMAGENET_STD)]
    steps = policies(transforms, ours=True)[case]
    options: dict[str, Any] = {}
    if case == "multi-crop":
        groups = {name: (transforms.Compose([*chain, *end]), count) for name, (chain, count) in steps.items()}
        chain: Any = transforms.Views(groups, as_list=True)
    else:
        chain = transforms.Compose(
            [*steps, *end, *([transforms.RandomErasing(0.1)] if case == "new" else [])]
        )
    if case == "new":
        mix = [transforms.MixUp(alpha=0.2, num_classes=CLASSES), transforms.CutMix(num_classes=CLASSES)]
        options["batchify_fn"] = batchify.Compose(batchify.Stack(), transforms.RandomChoice(mix))
    dataset = aioloader.ImageFolderDataset(root).transform_first(chain)
    return aioloader.DataLoader(
        dataset, BATCH, shuffle=True, num_workers=workers, last_batch="discard", **options
    )


class Folder(torch.utils.data.Dataset):
    """Dataset of (transformed image, number of the class) of ``root/<class>/``, opened by Pillow."""

    def __init__(self, root: Path, transform: Callable[[Any], Any]) -> None:
        classes = sorted(path for path in root.iterdir() if path.is_dir())
        self._files = [(path, n) for n, each in enumerate(classes) for path in sorted(each.iterdir())]
        self._transform = transform

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        path, label = self._files[index]
        with Image.open(path) as file:
            return self._transform(file.convert("RGB")), label


def their_loader(root: Path, case: str, workers: int, v2: Any, *, tensors: bool) -> Any:
    """Return torch's loader of a case, with torchvision's transforms."""
    begin = [v2.PILToTensor()] if tensors else []
    end: list[Any] = [] if tensors else [v2.PILToTensor()]
    end += [v2.ToDtype(torch.float32, scale=True), v2.Normalize(IMAGENET_MEAN, IMAGENET_STD)]
    steps = policies(v2, ours=False)[case]
    collate = None
    transform: Callable[[Any], Any]
    if case == "multi-crop":
        views = [v2.Compose([*chain, *end]) for chain, count in steps.values() for _ in range(count)]

        def transform(image: Any) -> Any:
            image = begin[0](image) if tensors else image
            return [view(image) for view in views]

    else:
        transform = v2.Compose([*begin, *steps, *end, *([v2.RandomErasing(0.1)] if case == "new" else [])])
    if case == "new":
        mix = v2.RandomChoice([v2.MixUp(alpha=0.2, num_classes=CLASSES), v2.CutMix(num_classes=CLASSES)])

        def collate(samples: Any) -> Any:
            return mix(*torch.utils.data.default_collate(samples))

    return torch.utils.data.DataLoader(
        Folder(root, transform),
        BATCH,
        shuffle=True,
        num_workers=workers,
        drop_last=True,
        persistent_workers=True,
        collate_fn=collate,
    )


def epoch(loader: Any) -> float:
    """Take an epoch; return images per second."""
    begin, images = perf_counter(), 0
    for _, labels in loader:
        images += len(labels)
    return images / (perf_counter() - begin)


def measure(case: str, loaders: dict[str, Any], rounds: int) -> Row:
    """Measure the loaders alternately and print the results; return the figures."""
    rates: dict[str, list[float]] = {name: [] for name in loaders}
    for loader in loaders.values():
        epoch(loader)  # the workers start
    for _ in range(rounds):
        for name, loader in loaders.items():
            rates[name].append(epoch(loader))
    medians = {name: median(found) for name, found in rates.items()}
    text = ", ".join(
        f"{name} {medians[name]:.1f} images/s ({min(found):.1f} to {max(found):.1f})"
        for name, found in rates.items()
    )
    times = ", ".join(
        f"{medians['aioloader'] / medians[name]:.2f}x {name}" for name in medians if name != "aioloader"
    )
    print(f"{case}: {text}; aioloader {times}", flush=True)
    figures: Row = {"recipe": case}
    for name, found in rates.items():
        figures[f"{name}, images/s"] = spread(found)
        if name != "aioloader":
            figures[f"times {name}"] = ratios(rates["aioloader"], found)
    return figures


def main() -> None:
    """Run the cases."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    add_data_option(parser)
    parser.add_argument("--workers", type=int, default=available_cores(), help="default: one per core")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--images", type=int, default=384, help="minimum number of images of an epoch")
    parser.add_argument("--only", help="some of the cases, separated by commas")
    parser.add_argument("--smoke", action="store_true", help="one round of few images: a check that it runs")
    add_json_option(parser)
    options = parser.parse_args()
    if options.smoke:
        options.rounds, options.images = 1, 96
    v2 = import_v2()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        jpegs = load_jpegs(options.data, scratch)[: options.images]
        root = lay_out(jpegs, Path(scratch, "folder"), -(-options.images // len(jpegs)))
        names = options.only.split(",") if options.only else list(policies(transforms, ours=True))
        print(f"{options.rounds} rounds, {options.workers} workers, torch {torch.__version__}", flush=True)
        rows = []
        for case in names:
            with our_loader(root, case, options.workers) as ours:
                found = {"aioloader": ours}
                for name, tensors in (("tensors", True), ("pillow", False)):
                    found[name] = their_loader(root, case, options.workers, v2, tensors=tensors)
                rows.append(measure(case, found, options.rounds))
        write_figures(options.json, rows)


if __name__ == "__main__":
    main()
