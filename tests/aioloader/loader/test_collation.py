"""Tests of collating samples of all shapes: by field, in rows if they fit, otherwise by value."""

import dataclasses
from typing import NamedTuple

import numpy as np
import pytest

from aioloader import AsyncDataLoader, batchify
from tests.executors import pool

EXECUTORS = ["inline", "thread", "process"]


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


@pytest.fixture(params=EXECUTORS)
def executor(request):
    return request.param


async def test_dicts_collate_by_field(executor):
    batch, _ = await first_batches([{"x": array(i), "y": i} for i in range(6)], executor)
    assert list(batch) == ["x", "y"]
    assert batch["x"].shape == (4, 2, 3)
    assert batch["y"].tolist() == [0, 1, 2, 3]


async def test_named_tuples_and_dataclasses_collate_by_field(executor):
    for make in (Pair, Record):
        batch, _ = await first_batches([make(array(i), i) for i in range(6)], executor)
        assert type(batch) is make
        assert batch.image.shape == (4, 2, 3)
        assert batch.number.dtype == np.int64


async def test_a_class_defined_here_collates_by_field(executor):
    @dataclasses.dataclass
    class Local:
        x: np.ndarray

    batch, _ = await first_batches([Local(array(i)) for i in range(6)], executor)
    assert type(batch).__name__ == "Local"
    assert batch.x.shape == (4, 2, 3)
    assert type(batch) is Local


async def test_nested_tuples_keep_their_shape(executor):
    batch, _ = await first_batches([((array(i), i), (array(-i), [i, i])) for i in range(6)], executor)
    assert batch[0][0].shape == (4, 2, 3)
    assert batch[1][0][1, 0, 0] == -1
    assert [part.tolist() for part in batch[1][1]] == [[0, 1, 2, 3]] * 2


async def test_numbers_have_numpys_dtypes(executor):
    batch, _ = await first_batches(
        [(i, i / 2, i > 1, np.float32(i), np.uint8(i)) for i in range(6)], executor
    )
    assert [str(part.dtype) for part in batch] == ["int64", "float64", "bool", "float32", "uint8"]


async def test_text_and_objects_come_as_lists_next_to_arrays(executor):
    batch, _ = await first_batches([(array(i), f"name {i}", None, b"a\0") for i in range(6)], executor)
    assert batch[0].shape == (4, 2, 3)
    assert batch[1] == ["name 0", "name 1", "name 2", "name 3"]
    assert batch[2] == [None] * 4
    assert batch[3] == [b"a\0"] * 4


async def test_bytes_come_as_a_list(executor):
    batches = await first_batches([bytes([i]) * i for i in range(6)], executor)
    assert batches == [[b"", b"\1", b"\2\2", b"\3\3\3"], [b"\4" * 4, b"\5" * 5]]


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


async def test_pad_collates_ragged_samples_in_the_executor(executor):
    dataset = [np.arange(i + 1) for i in range(6)]
    batches = await first_batches(dataset, executor, batchify_fn=batchify.Pad(val=-1))
    assert batches[0].tolist() == [[0, -1, -1, -1], [0, 1, -1, -1], [0, 1, 2, -1], [0, 1, 2, 3]]
    assert batches[1].shape == (2, 6)


async def test_large_padded_batches_survive_the_loader(executor):
    dataset = [np.full((100, 50 + i), i, np.float32) for i in range(40)]
    batches = await first_batches(dataset, executor, batchify_fn=batchify.Pad())
    assert [batch[:, 0, 0].tolist() for batch in batches] == [
        [s, s + 1, s + 2, s + 3] for s in range(0, 40, 4)
    ]


async def test_group_collates_each_field_its_own_way(executor):
    dataset = [(np.arange(i + 1), i) for i in range(6)]
    group = batchify.Group(batchify.Pad(), batchify.Stack())
    batch, _ = await first_batches(dataset, executor, batchify_fn=group)
    assert batch[0].shape == (4, 4)
    assert batch[1].tolist() == [0, 1, 2, 3]


async def test_a_batchify_lambda_runs_in_the_executor(executor):
    batches = await first_batches([1, 2, 3, 4, 5], executor, batchify_fn=lambda samples: sum(samples))
    assert batches == [10, 5]


async def test_skip_works_with_batchify(executor):
    class Holes:
        def __len__(self):
            return 8

        def __getitem__(self, index):
            if index in (1, 4, 5, 6, 7):
                raise OSError("gone")
            return index

    options = {"batchify_fn": lambda samples: list(samples), "on_error": "skip"}
    assert await first_batches(Holes(), executor, **options) == [[0, 2, 3]]


async def test_zero_sized_arrays_keep_their_shape(executor):
    batch, _ = await first_batches([np.zeros((0, 3)) for _ in range(6)], executor)
    assert batch.shape == (4, 0, 3)


@pytest.mark.parametrize(
    "options", [{}, {"batchify_fn": lambda samples: np.stack(samples)}], ids=["rows", "batchify"]
)
async def test_a_dataset_may_use_its_array_again_for_every_sample(executor, options):
    class Kept:
        def __init__(self):
            self.array = np.zeros(3, np.int64)

        def __len__(self):
            return 8

        def __getitem__(self, index):
            self.array[:] = index
            return self.array

    async with AsyncDataLoader(Kept(), 4, **pool(executor, 1), **options) as loader:
        assert [batch[:, 0].tolist() async for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]


async def test_numpys_own_text_comes_as_a_list_too(executor):
    batch, _ = await first_batches([(np.bytes_(b"a"), np.str_("b" * i)) for i in range(6)], executor)
    assert batch == ([b"a"] * 4, ["", "b", "bb", "bbb"])
