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

import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.data
from PIL import Image

import aioloader
from aioloader import batchify, transforms
from aioloader.foundation.host_limits import available_cores
from aioloader.transforms import IMAGENET_MEAN, IMAGENET_STD
from benchmarks.contenders.torchvision_v2 import import_v2
from benchmarks.data import lay_out, load_jpegs
from benchmarks.figures import costs, ratios
from benchmarks.measurement import in_turns, run, taken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.figures import Row

BATCH = 32
CASES = ("v1", "new", "rand-augment", "multi-crop")


def steps_of(case: str, t: Any, bicubic: Any) -> Any:
    """Return the transforms of a case, by the names that both libraries have; for multi-crop (chain, count) by name.

    Args:
        case: of `CASES`.
        t: `aioloader.transforms`, or `torchvision.transforms.v2`.
        bicubic: its name of that filter.
    """

    def blur(p: float) -> Any:
        return t.RandomApply([t.GaussianBlur(9, (0.1, 2.0))], p=p)

    def crop(size: int, scale: tuple[float, float], *more: Any) -> list[Any]:
        jitter = t.RandomApply([t.ColorJitter(0.4, 0.4, 0.2, 0.1)], p=0.8)
        cut = t.RandomResizedCrop(size, scale, interpolation=bicubic)
        return [cut, t.RandomHorizontalFlip(), jitter, t.RandomGrayscale(0.2), *more]

    if case == "multi-crop":
        return {
            "first": (crop(224, (0.4, 1.0), blur(1.0)), 1),
            "second": (crop(224, (0.4, 1.0), blur(0.1), t.RandomSolarize(128, 0.2)), 1),
            "local": (crop(96, (0.05, 0.4), blur(0.5)), 8),
        }
    more = {"v1": [], "new": [t.TrivialAugmentWide()], "rand-augment": [t.RandAugment(2, 9)]}[case]
    return [t.RandomResizedCrop(176 if case == "new" else 224), t.RandomHorizontalFlip(), *more]


def mix_of(t: Any) -> Any:
    """Return the mixture of the samples of a batch, of either library."""
    return t.RandomChoice([t.MixUp(alpha=0.2, num_classes=1000), t.CutMix(num_classes=1000)])


def our_loader(root: Path, case: str, workers: int) -> Any:
    """Return aioloader's loader of a case."""
    end = [transforms.ToTensor(), transforms.Normalize(IMAGENET_MEAN, IMAGENET_STD)]
    steps = steps_of(case, transforms, "bicubic")
    options: dict[str, Any] = {}
    if case == "multi-crop":
        groups = {name: (transforms.Compose([*chain, *end]), count) for name, (chain, count) in steps.items()}
        chain: Any = transforms.Views(groups, as_list=True)
    else:
        erasing = [transforms.RandomErasing(0.1)] if case == "new" else []
        chain = transforms.Compose([*steps, *end, *erasing])
    if case == "new":
        options["batchify_fn"] = batchify.Compose(batchify.Stack(), mix_of(transforms))
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
    steps = steps_of(case, v2, v2.InterpolationMode.BICUBIC)
    options: dict[str, Any] = {}
    if case == "multi-crop":
        views = [v2.Compose([*chain, *end]) for chain, count in steps.values() for _ in range(count)]

        def transform(image: Any) -> Any:
            image = begin[0](image) if tensors else image
            return [view(image) for view in views]

    else:
        transform = v2.Compose([*begin, *steps, *end, *([v2.RandomErasing(0.1)] if case == "new" else [])])
    if case == "new":
        mix = mix_of(v2)
        options["collate_fn"] = lambda samples: mix(*torch.utils.data.default_collate(samples))
    options |= {"shuffle": True, "drop_last": True, "num_workers": workers, "persistent_workers": True}
    return torch.utils.data.DataLoader(Folder(root, transform), BATCH, **options)


def epoch(loader: Any) -> int:
    """Take an epoch; return the number of its images."""
    return sum(len(labels) for _, labels in loader)


def measure(
    data: str | None = None,
    workers: int = available_cores(),
    rounds: int = 3,
    images: int = 384,
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
    v2 = import_v2()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        jpegs = load_jpegs(data)[:images]
        root = lay_out(jpegs, Path(scratch, "folder"), -(-images // len(jpegs)))
        for case in only:
            with our_loader(root, case, workers) as ours:
                loaders = {
                    "aioloader": ours,
                    "tensors": their_loader(root, case, workers, v2, tensors=True),
                    "pillow": their_loader(root, case, workers, v2, tensors=False),
                }
                ways = {name: partial(taken, partial(epoch, loader)) for name, loader in loaders.items()}
                turns = in_turns(ways, rounds)
            figures: Row = {"recipe": case}
            rates = {name: [rate for rate, _ in found] for name, found in turns.items()}
            for name, found in turns.items():
                figures |= costs(found, name)
                if name != "aioloader":
                    figures[f"times {name}"] = ratios(rates["aioloader"], rates[name])
            yield figures


if __name__ == "__main__":
    run(measure, rounds=1, images=96)
