"""Lists of images (.lst), which are made from a folder, split, written and read as by MXNet's im2rec.

A line is ``id <tab> label [<tab> label ...] <tab> path``; the path is relative to a root folder.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from aioloader.formats.packed_files import parse_line
from recordio._partial_files import published

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_MXNET_SEED = 100

T = TypeVar("T")

_LARGEST = float(np.finfo(np.float32).max)
_EXACT = 1 << 24  # float32 has all whole numbers up to this one
_CLASSES = 1 << 63  # greater numbers are quantities and no classes


class Listed(NamedTuple):
    """Line of a list, or another image to be packed.

    Attributes:
        key: its id; None: the record's number becomes its key.
        labels: at least one.
        path: relative to the root; the image's name in the .lst.
    """

    key: int | None
    labels: tuple[float, ...]
    path: str


def label_fault(label: float) -> str:
    """Return why a record, which stores labels as float32, cannot have a label; "" if it can.

    Fractions are rounded. Whole numbers are classes, two of which must not become one.
    """
    if label != label:
        return "is not a number (NaN)"
    if abs(label) <= _EXACT or label in (np.inf, -np.inf):
        return ""
    if abs(label) > _LARGEST:
        return f"is {label}, which is not in the range of float32: records store labels as float32"
    whole = isinstance(label, int) or (abs(label) < _CLASSES and label == int(label))
    if whole and int(np.float32(label)) != label:
        return f"is {int(label)}, which float32 cannot store exactly: records store labels as float32"
    return ""


def walk_images(root: str, extensions: Sequence[str], recursive: bool) -> tuple[list[Listed], dict[str, int]]:
    """List the images of a folder with ids 0, 1, 2, ..., with folders and files sorted on each level.

    Each folder that directly contains images, `root` included, is a class; classes are numbered in the order of their
    first images. Links to folders are followed, except those to a folder that contains the link. This is im2rec's own
    rule: hidden files and folders count, and other image formats only if their extensions are passed.

    Args:
        root: the folder.
        extensions: extensions of the files' names, with the dot; case does not matter.
        recursive: include sub-folders. Otherwise only files directly in `root` are listed, with label 0.

    Returns:
        the images, and the number of each class by its folder's path relative to `root`; no classes unless `recursive`.

    Raises:
        NotADirectoryError: there is no such folder.
        ValueError: a name contains a TAB or a line break.
    """
    if not os.path.isdir(root):
        raise NotADirectoryError(f"there is no folder {root!r}")
    wanted = {extension.lower() for extension in extensions}
    found: list[Listed] = []
    classes: dict[str, int] = {}
    for folder, folders, files in os.walk(root, followlinks=True):
        folders[:] = sorted(name for name in folders if not _leads_back(folder, name)) if recursive else []
        here = os.path.relpath(folder, root)
        for name in sorted(files):
            path = os.path.join(folder, name)
            if os.path.splitext(name)[1].lower() not in wanted or not os.path.isfile(path):
                continue
            relative = os.path.relpath(path, root)
            if set(relative) & set("\t\n\r"):
                raise ValueError(f"a list cannot contain the name {relative!r}: rename the file")
            label = classes.setdefault(here, len(classes)) if recursive else 0
            found.append(Listed(len(found), (float(label),), relative))
    return found, classes


def _leads_back(folder: str, name: str) -> bool:
    """Return whether a folder is a link to a folder that contains the link."""
    path = os.path.join(folder, name)
    if not os.path.islink(path):
        return False
    target, here = os.path.realpath(path), os.path.realpath(folder)
    return here == target or here.startswith(os.path.join(target, ""))


def in_mxnet_order(images: Sequence[Listed]) -> list[Listed]:
    """Shuffle the images as im2rec does: with Python's generator, seeded with 100."""
    mixed = list(images)
    random.Random(_MXNET_SEED).shuffle(mixed)
    return mixed


def split_list(
    images: Sequence[T], chunks: int = 1, train_ratio: float = 1.0, test_ratio: float = 0.0
) -> list[tuple[str, list[T]]]:
    """Divide a list into chunks, and each chunk into test, train and validation lists, as `split_bounds` does.

    Returns:
        for each list the suffix of its name ("", "_train", "_0_test", ...), and its images.

    Raises:
        ValueError: an argument is not allowed.
    """
    bounds = split_bounds(len(images), chunks, train_ratio, test_ratio)
    return [(name, list(images[start:stop])) for name, start, stop in bounds]


def split_bounds(
    count: int, chunks: int = 1, train_ratio: float = 1.0, test_ratio: float = 0.0
) -> list[tuple[str, int, int]]:
    """Divide images into chunks, and each chunk into test, train and validation lists.

    Rule: as im2rec, but where there is no validation list, the images left over by rounding go to the train list;
    im2rec loses them.

    Args:
        count: number of images.
        chunks: number of chunks, at least 1.
        train_ratio, test_ratio: shares of each chunk; `test_ratio` is used only if `train_ratio` is not 1.

    Returns:
        for each list the suffix of its name ("", "_train", "_0_test", ...), the number of its first image and that of
        the image behind its last.

    Raises:
        ValueError: an argument is not allowed.
    """
    if chunks < 1:
        raise ValueError(f"chunks must be at least 1, got {chunks}")
    if not 0 <= train_ratio <= 1 or not 0 <= test_ratio <= 1:
        raise ValueError(f"ratios must lie between 0 and 1, got {train_ratio} and {test_ratio}")
    size = -(-count // chunks)
    lists: list[tuple[str, int, int]] = []
    for number in range(chunks):
        start, stop = min(number * size, count), min((number + 1) * size, count)
        name = f"_{number}" if chunks > 1 else ""
        if train_ratio == 1.0:
            lists.append((name, start, stop))
            continue
        if train_ratio + test_ratio > 1 + 1e-9:
            raise ValueError(
                f"the sum of train ratio {train_ratio} and test ratio {test_ratio} is more than 1"
            )
        test_end = min(start + int(size * test_ratio), stop)
        rest = train_ratio + test_ratio < 1 - 1e-9
        train_end = min(start + int(size * test_ratio) + int(size * train_ratio), stop) if rest else stop
        if test_ratio:
            lists.append((f"{name}_test", start, test_end))
        lists.append((f"{name}_train", test_end, train_end))
        if rest:
            lists.append((f"{name}_val", train_end, stop))
    return lists


def write_list(path: str, images: Sequence[Listed]) -> None:
    """Write a list; labels have six decimals, as in lists written by MXNet 1.9.1.

    Raises:
        OSError: the file cannot be written; an existing file is unchanged.
    """
    with (
        published(path) as (partial,),
        open(partial, "w", encoding="utf-8", errors="surrogateescape", newline="\n") as file,
    ):
        for key, labels, name in images:
            file.write(f"{key}\t{''.join(f'{label:f}' + chr(9) for label in labels)}{name}\n")


def read_lines(path: str, bad_line: Callable[[int, str, str], object]) -> Iterator[Listed]:
    """Iterate over the images of a list as im2rec does: invalid lines are reported and skipped.

    Args:
        path: the .lst file.
        bad_line: called with the number of an invalid line (from 1), the line, and the problem.

    Raises:
        OSError: the file cannot be read.
    """
    with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="\n") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                key, labels, name = parse_line(line)
                if not 0 <= key < 1 << 64:
                    raise ValueError(f"the id {key} is not between 0 and 2**64 - 1")
            except ValueError as error:
                bad_line(number, line.strip(), str(error))
                continue
            yield Listed(key, tuple(labels), name)
