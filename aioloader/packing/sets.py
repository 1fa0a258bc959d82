"""Sources of well-known small image sets, with their published class names, read by the project's own datasets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.datasets import CIFAR10, CIFAR100, MNIST, FashionMNIST
from aioloader.packing.sources import Item, Source

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

_CLOTHES = "T-shirt/top Trouser Pullover Dress Coat Sandal Shirt Sneaker Bag Ankle_boot"
_CIFAR10 = "airplane automobile bird cat deer dog frog horse ship truck"
_CIFAR100 = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant flatfish
forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle
mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider squirrel streetcar
sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle wardrobe whale
willow_tree wolf woman worm
"""

_SETS: dict[str, tuple[Callable[..., Any], dict[str, Any], str]] = {
    "mnist": (MNIST, {}, "0 1 2 3 4 5 6 7 8 9"),
    "fashion-mnist": (FashionMNIST, {}, _CLOTHES),
    "cifar10": (CIFAR10, {}, _CIFAR10),
    "cifar100": (CIFAR100, {"fine_label": True}, _CIFAR100),
}
SETS = tuple(_SETS)
"""Names of the sets."""


def set_source(name: str, folder: str | os.PathLike[str]) -> Source:
    """Load both parts of a set, the training part first, each in the order of its files.

    Args:
        name: one of `SETS`.
        folder: the folder of its published files.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: there is no such set, a file is damaged, or a label is out of range.
    """
    if name not in _SETS:
        raise ValueError(f"there is no set {name!r}: it must be one of {', '.join(SETS)}")
    dataset_class, options, words = _SETS[name]
    classes = tuple(words.split())
    items: list[Item] = []
    arrays = []
    parts = {}
    for part in ("train", "test"):
        images, labels = dataset_class(folder, train=part == "train", **options).arrays
        if not len(images):
            raise ValueError(f"the {part} part of {name} in {folder} has no images")
        if len(labels) and not 0 <= labels.min() <= labels.max() < len(classes):
            raise ValueError(
                f"the {part} part of {name} in {folder} has labels outside 0 to {len(classes) - 1}"
            )
        parts[part] = len(images)
        arrays.append(images)
        items += [Item(f"{part}/{n:05}", (float(label),)) for n, label in enumerate(labels.tolist())]
    stacked = np.concatenate(arrays)
    return Source(name, str(folder), items, images=stacked, classes=classes, parts=parts)
