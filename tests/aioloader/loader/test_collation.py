"""Tests of collating samples of all shapes: by field, in rows if they fit, otherwise by value."""

import dataclasses
from typing import NamedTuple

import numpy as np
import pytest

from aioloader import AsyncDataLoader, batchify
from aioloader.foundation.pytree import flatten
from tests.aioloader.loader.samples import Made
from tests.cases import with_cases
from tests.executors import pool


class Pair(NamedTuple):
    image: np.ndarray
    number: int


@dataclasses.dataclass(frozen=True)
class Record:
    image: np.ndarray
    number: int

    def __post_init__(self):
        assert np.ndim(self.number) == 0, "a batch must not be checked as a sample is"


def array(i):
    return np.full((2, 3), i, np.float32)


async def first_batches(dataset, executor, **options):
    async with AsyncDataLoader(dataset, 4, **pool(executor, 2), **options) as loader:
        return [batch async for batch in loader]


def collated(samples):
    """Return what a batch of samples has to be: each field by itself, stacked as numpy does, or a list."""
    first = samples[0]
    if isinstance(first, dict):
        return {key: collated([each[key] for each in samples]) for key in first}
    if dataclasses.is_dataclass(first):
        batch = object.__new__(type(first))  # __post_init__ checks samples
        vars(batch).update(collated([vars(each) for each in samples]))
        return batch
    if isinstance(first, (tuple, list)):
        fields = [collated(list(each)) for each in zip(*samples, strict=True)]
        return type(first)(*fields) if hasattr(first, "_fields") else type(first)(fields)
    return samples if first is None or isinstance(first, (str, bytes)) else np.stack(samples)


SAMPLES = {
    "dicts": lambda i: {"x": array(i), "y": i},
    "named tuples": lambda i: Pair(array(i), i),
    "dataclasses": lambda i: Record(array(i), i),
    "nested tuples": lambda i: ((array(i), i), (array(-i), [i, i])),
    "numbers": lambda i: (i, i / 2, i > 1, np.float32(i), np.uint8(i)),
    "texts and objects beside arrays": lambda i: (array(i), f"name {i}", None, b"a\0"),
    "bytes": lambda i: bytes([i]) * i,
    "numpy's own texts": lambda i: (np.bytes_(b"a"), np.str_("b" * i)),
    "arrays without a value": lambda i: np.zeros((0, 3)),
}


async def test_samples_collate_by_field(executor):
    for name, make in SAMPLES.items():
        samples = [make(i) for i in range(6)]
        for batch, part in zip(
            await first_batches(samples, executor), (samples[:4], samples[4:]), strict=True
        ):
            structure, found = flatten(batch)
            same, expected = flatten(collated(part))
            assert structure == same, name
            for one, other in zip(found, expected, strict=True):
                assert type(one) is type(other), name
                assert getattr(one, "dtype", None) == getattr(other, "dtype", None), name
                assert np.array_equal(one, other), name


PAD, STACK = batchify.Pad(val=-1), batchify.Stack()
FUNCTIONS = {
    "pad": (lambda i: np.arange(i + 1), PAD),
    "large pad": (lambda i: np.full((100, 50 + i), i, np.float32), PAD),
    "group": (lambda i: (np.arange(i + 1), i), batchify.Group(PAD, STACK)),
    "lambda": (lambda i: i, lambda samples: sum(samples)),
}


@with_cases("name", FUNCTIONS)
async def test_a_batchify_function_runs_in_the_executor(executor, name):
    make, function = FUNCTIONS[name]
    samples = [make(i) for i in range(6)]
    found = await first_batches(samples, executor, batchify_fn=function)
    for batch, part in zip(found, (samples[:4], samples[4:]), strict=True):
        for one, other in zip(flatten(batch)[1], flatten(function(part))[1], strict=True):
            assert np.array_equal(one, other)


async def test_a_class_defined_here_collates_by_field(executor):
    @dataclasses.dataclass
    class Local:
        x: np.ndarray

    batch, _ = await first_batches([Local(array(i)) for i in range(6)], executor)
    assert type(batch).__name__ == "Local"
    assert batch.x.shape == (4, 2, 3)
    assert type(batch) is Local


async def test_a_later_dtype_gives_what_numpy_would(executor):
    batches = await first_batches([1, 2, 2.5, 3, 4.5, 5.5], executor)
    assert [batch.tolist() for batch in batches] == [[1, 2, 2.5, 3], [4.5, 5.5]]
    assert [str(batch.dtype) for batch in batches] == ["float64", "float64"]


async def test_ragged_samples_are_an_error_that_names_the_shapes(executor):
    dataset = [np.zeros(3 if i == 5 else 2) for i in range(8)]
    batches = []
    with pytest.raises(ValueError, match=r"(?s)\(2,\).*\(3,\)"):
        async with AsyncDataLoader(dataset, 4, **pool(executor, 2)) as loader:
            async for batch in loader:
                batches.append(batch)
    assert len(batches) == 1


async def test_skip_works_with_batchify(executor):
    def make(index):
        if index in (1, 4, 5, 6, 7):
            raise OSError("gone")
        return index

    options = {"batchify_fn": lambda samples: list(samples), "on_error": "skip"}
    assert await first_batches(Made(8, make), executor, **options) == [[0, 2, 3]]


@with_cases("options", [{}, {"batchify_fn": lambda samples: np.stack(samples)}])
async def test_a_dataset_may_use_its_array_again_for_every_sample(executor, options):
    array = np.zeros(3, np.int64)

    def make(index):
        array[:] = index
        return array

    async with AsyncDataLoader(Made(8, make), 4, **pool(executor, 1), **options) as loader:
        assert [batch[:, 0].tolist() async for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]
