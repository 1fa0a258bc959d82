"""Samples and batches for the tests that compare our DataLoader with torch's."""

import collections
import copy
import dataclasses
import enum
import types

import numpy as np
import pytest

# Of the modules that start workers of torch's loader.
MARKS = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # on a machine with few cores
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork"),
]

Point = collections.namedtuple("Point", "x y")


class Colour(enum.IntEnum):
    RED = 3


class Table(dict):
    """Custom mapping of a caller."""


@dataclasses.dataclass
class Record:
    x: object


class Samples:
    """Dataset of given samples."""

    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return copy.deepcopy(self.samples[index])


def same(torch, first, second):
    """Return whether two batches are the same, including types and dtypes."""
    if isinstance(first, (list, tuple)) and not isinstance(first, str):
        return (
            type(first) is type(second)
            and len(first) == len(second)
            and all(same(torch, *pair) for pair in zip(first, second, strict=True))
        )
    if isinstance(first, dict):
        return (
            type(first) is type(second)
            and list(first) == list(second)
            and all(same(torch, first[key], second[key]) for key in first)
        )
    if isinstance(first, torch.Tensor):
        if first.layout != torch.strided:
            return first.layout == second.layout and torch.equal(first.to_dense(), second.to_dense())
        return (
            type(first) is type(second)
            and first.dtype == second.dtype
            and first.shape == second.shape
            and torch.equal(torch.nan_to_num(first), torch.nan_to_num(second))
        )
    if isinstance(first, np.ndarray):
        return type(first) is type(second) and first.dtype == second.dtype and np.array_equal(first, second)
    if dataclasses.is_dataclass(first):
        return type(first) is type(second) and same(torch, vars(first), vars(second))
    return type(first) is type(second) and (first == second or first != first)


def outcome(make, dataset, **options):
    """Return the batches of two epochs, or the type and text of the error."""
    loader = make(dataset, **options)
    try:
        return [list(loader), list(loader)]
    except Exception as error:
        return type(error), str(error).partition("\n")[0]
    finally:
        if hasattr(loader, "close"):
            loader.close()


def check(torch, ours, dataset, **options):
    expected = outcome(torch.utils.data.DataLoader, dataset, **options)
    got = outcome(ours, dataset, **options)
    assert same(torch, expected, got), f"{expected}\n{got}"
    return got


def collate_objects(samples):
    """Collate objects that only a caller's function can collate."""
    import torch

    images = torch.stack([image for image, _ in samples])
    numbers = np.array([number for _, number in samples])
    return {
        "images": images,
        "again": images,
        "numbers": numbers,
        "record": Record(images.sum()),
        "table": Table(a=numbers.T, b=images.mT),
        "namespace": types.SimpleNamespace(half=images.bfloat16()).half,
        "empty": torch.empty(0),
        "kinds": (Point(1, "x"), frozenset([1]), None, torch.float16),
        "nested": torch.utils.data.default_collate(samples),
    }
