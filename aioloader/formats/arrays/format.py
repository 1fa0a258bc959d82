"""Format of the files of well-known sets: IDX files (MNIST) and CIFAR's."""

from __future__ import annotations

import gzip
import os
import struct
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.formats.base import Format, PublishedSet

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.formats.inspection import Inspection, Options

_CIFAR_ROWS = {3073: "CIFAR-10", 3074: "CIFAR-100"}
# Published names of the classes.
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


class ArraysFormat(Format):
    """Files with the pixels of all images."""

    name = "IDX and CIFAR files"
    has_fields = False
    sets = ("mnist", "fashion-mnist", "cifar10", "cifar100")

    def inspect(self, path: str, paths: Sequence[str], options: Options) -> Inspection | None:
        """Describe an IDX file or a CIFAR binary file by its beginning and its size; return None if it is neither."""
        from aioloader.formats.inspection import Inspection

        size = os.path.getsize(path)
        packed = path.endswith(".gz")
        try:
            with gzip.open(path) if packed else open(path, "rb") as file:
                head = file.read(16)
        except (gzip.BadGzipFile, EOFError):
            return None
        if len(head) >= 8 and head[:3] == b"\0\0\x08" and 1 <= head[3] <= 3 and len(head) >= 4 + 4 * head[3]:
            shape = list(struct.unpack_from(f">{head[3]}I", head, 4))
            expected = 4 + 4 * head[3] + int(np.prod(shape, dtype=object))
            damage = []
            if not packed and expected != size:
                damage.append(f"{path} should have {expected} bytes for its shape {shape}, and has {size}")
            return Inspection(path, "IDX files", 1, size, shape[0], details={"shape": shape}, damage=damage)
        if path.endswith(".bin"):
            for row, name in _CIFAR_ROWS.items():
                if size and size % row == 0:
                    details = {"set": name, "shape": [size // row, 32, 32, 3]}
                    return Inspection(path, "CIFAR files", 1, size, size // row, details=details)
        return None

    def published_set(self, name: str, folder: str | os.PathLike[str]) -> PublishedSet:
        """Load both parts of a set, the training part first, each in the order of its files."""
        from aioloader.formats.arrays.vision import CIFAR10, CIFAR100, MNIST, FashionMNIST

        sets: dict[str, tuple[Callable[..., Any], str]] = {
            "mnist": (MNIST, "0 1 2 3 4 5 6 7 8 9"),
            "fashion-mnist": (FashionMNIST, _CLOTHES),
            "cifar10": (CIFAR10, _CIFAR10),
            "cifar100": (partial(CIFAR100, fine_label=True), _CIFAR100),
        }
        dataset_class, classes = sets[name]
        parts = {part: dataset_class(folder, train=part == "train").arrays for part in ("train", "test")}
        return PublishedSet(tuple(classes.split()), parts)


FORMAT = ArraysFormat()
