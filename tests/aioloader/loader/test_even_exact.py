"""Tests of ``even="exact"``: equal steps of all ranks, and batches without samples in the layout of the others."""

from __future__ import annotations

import asyncio
import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import aioloader
from aioloader import ArrayDataset, AsyncDataLoader, DataLoader, IterableDataset, LoaderError
from aioloader.batchify import Append, AsList, Compose, Group, Pad, PaddedBatch, Ragged, RaggedBatch, Stack
from aioloader.foundation.pytree import flatten
from aioloader.samplers import BatchSampler, BudgetBatchSampler, RandomSampler, SequentialSampler
from aioloader.transforms import MixUp
from tests.aioloader.loader.samples import Made, Numbers, labels
from tests.cases import with_cases
from tests.executors import pool


def fields(index: int) -> dict[str, Any]:
    return {"image": np.full((2, 3), index, np.float32), "name": f"{index}", "number": (index, index > 1)}


def sequence(index: int) -> Any:
    return np.arange(index + 1, dtype=np.int32)


def row(index: int) -> Any:
    return np.full(3, index)


def pair(index: int) -> tuple[Any, int]:
    return np.full((4, 4, 3), index, np.uint8), index


def packed(samples: list[Any]) -> dict[str, Any]:
    sizes = [len(sample) for sample in samples]
    return {
        "tokens": np.concatenate(samples),
        "starts": np.cumsum([0, *sizes]),
        "count": sum(sizes),
        "of": "words",
    }


def in_pairs(samples: list[Any]) -> Any:
    return {"left": np.stack(samples[0::2]), "right": np.stack(samples[1::2])}


def by_columns(samples: list[Any]) -> Any:
    return np.stack(samples, axis=1)


def transposed(samples: list[Any]) -> Any:
    return tuple(zip(*samples, strict=True))


def empty(*shape: int, dtype: Any = np.int64) -> Any:
    return np.empty(shape, dtype)


# Of each: the samples, the batchify function, and the batch without samples.
LAYOUTS: dict[str, tuple[Any, Any, Any]] = {
    "fields": (
        fields,
        None,
        {"image": empty(0, 2, 3, dtype="f4"), "name": [], "number": (empty(0), empty(0, dtype="?"))},
    ),
    "padded": (sequence, Pad(to=7, sizes=True), PaddedBatch(empty(0, 7, dtype="i4"), empty(0, 1))),
    "grouped": (pair, Group(Append(), Stack()), ([], empty(0))),
    "ragged": (sequence, Ragged(), RaggedBatch(empty(0, dtype="i4"), np.zeros(1, "i8"), empty(0, 1))),
    "listed": (pair, AsList(), []),
    "mixed": (
        pair,
        Compose(Stack(), MixUp(num_classes=5)),
        (empty(0, 4, 4, 3, dtype="u1"), empty(0, 5, dtype="f4")),
    ),
    "packed": (
        sequence,
        packed,
        {"tokens": empty(0, dtype="i4"), "starts": np.zeros(1, "i8"), "count": 0, "of": "words"},
    ),
    "by columns": (row, by_columns, empty(3, 0)),
    "pairs": (row, in_pairs, {"left": empty(0, 3), "right": empty(0, 3)}),
    "transposed": (pair, transposed, ((), ())),
}


def described(batch: Any) -> Any:
    structure, leaves = flatten(batch)
    return structure, [
        (each.shape, each.dtype, each.tolist()) if isinstance(each, np.ndarray) else each for each in leaves
    ]


@with_cases("layout", LAYOUTS)
@pytest.mark.parametrize("executor", ["inline", "thread", "process"])
def test_a_rank_that_gets_no_sample_gets_an_empty_batch_of_the_layout(executor: str, layout: str) -> None:
    make, batchify, expected = LAYOUTS[layout]
    with DataLoader(
        Made(2, make), 2, shard=(2, 3), batchify_fn=batchify, even="exact", **pool(executor, 1)
    ) as loader:
        (batch,) = loader
    assert described(batch) == described(expected)
    assert (loader.receipt().seen, loader.receipt().padded, loader.receipt().stop) == (0, 0, 2)


@pytest.mark.torch
def test_an_empty_batch_is_made_of_tensors() -> None:
    torch = pytest.importorskip("torch")
    for collate in (None, torch.utils.data.default_collate):
        with DataLoader(
            Made(2, row), 2, shard=(2, 3), even="exact", collate_fn=collate, num_workers=0, output="torch"
        ) as loader:
            (batch,) = loader
        assert (batch.shape, batch.dtype) == ((0, 3), torch.int64)


async def test_payloads_images_and_async_transforms_are_made_empty_too(tmp_path: Path) -> None:
    made = io.BytesIO()
    Image.new("RGB", (9, 8)).save(made, "PNG")
    for name in "ab":
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.png").write_bytes(made.getvalue())
    options: dict[str, Any] = {"shard": (2, 3), "even": "exact", "num_workers": 0}
    async with aioloader.images(tmp_path, 6, 1, **options) as images:
        assert [described(batch) async for batch in images] == [
            described((empty(0, 6, 6, 3, dtype="u1"), empty(0)))
        ]

    async def plus_one(value: Any) -> Any:
        await asyncio.sleep(0)
        return value + 1

    async with AsyncDataLoader(ArrayDataset(np.arange(2)).transform(plus_one), 1, **options) as awaited:
        assert [described(batch) async for batch in awaited] == [described(empty(0))]


def test_samples_are_delivered_once_by_equal_steps_though_some_fail() -> None:
    ranks, receipts, states = [], [], []
    for rank in range(3):
        with (
            warnings.catch_warnings(action="error"),
            DataLoader(
                Numbers(13, fail={0, 2, 3, 12}),
                2,
                shard=(rank, 3),
                on_error="skip",
                even="exact",
                num_workers=0,
            ) as loader,
        ):
            batches = iter(loader)
            ranks.append(labels(next(batches) for _ in range(len(loader) - 1)))
            states.append(loader.state_dict())
            ranks[-1] += labels(batches)
            receipts.append(loader.receipt())
    assert ranks == [[[1], [6, 7], []], [[], [8, 9], []], [[4, 5], [10, 11], []]]
    assert states[0] == states[1] == states[2]
    total = sum(receipts)
    assert (total.seen, total.padded, total.skipped) == (9, 0, 4)
    loader.check_receipt(total)


def test_without_any_valid_sample_there_is_no_layout() -> None:
    with DataLoader(Numbers(2, fail={0, 1}), 2, shard=(2, 3), even="exact", num_workers=0) as loader:
        with pytest.raises(LoaderError, match="the layout of an empty batch is that of any sample"):
            list(loader)


class Opaque:
    def __init__(self, samples: list[Any]) -> None:
        self.samples = samples


def test_a_batch_of_an_unknown_class_cannot_be_emptied() -> None:
    options: dict[str, Any] = {"batchify_fn": Opaque, "even": "exact", "num_workers": 0}
    with DataLoader(Numbers(2), 2, shard=(0, 3), **options) as first:
        assert len(list(first)) == 1
    with DataLoader(Numbers(2), 2, shard=(2, 3), **options) as last:
        with pytest.raises(LoaderError, match="a batch of the class Opaque cannot be made empty"):
            list(last)


@with_cases(
    ("options", "message"),
    [
        ({"batch_size": 2, "drop_last": True}, "last_batch='discard' leaves some out"),
        ({"batch_size": 2, "last_batch": "rollover"}, "last_batch='rollover' leaves some out"),
        ({"batch_sampler": BatchSampler(SequentialSampler(9), 2, "discard")}, "'discard' leaves some out"),
        (
            {"batch_sampler": BudgetBatchSampler(np.ones(9, np.int64), 4, shard=(0, 2))},
            "repeats or drops batches itself",
        ),
        (
            {"dataset": IterableDataset(lambda: iter(range(9))), "batch_size": 2},
            "even='exact' needs a dataset whose samples",
        ),
        ({"batch_size": 2, "even": "exactly"}, "'pad', 'drop'"),
    ],
)
def test_what_contradicts_it_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DataLoader(**{"dataset": Numbers(9), "even": "exact", **options})


@pytest.mark.torch
def test_the_shards_of_torch_s_workers_share_an_epoch_exactly() -> None:
    torch = pytest.importorskip("torch")
    from aioloader.interop.torch import LoaderDataset

    for length in (1, 13):
        batches = LoaderDataset(ArrayDataset(np.arange(length)), 3, shuffle=True, even="exact")
        parts = list(torch.utils.data.DataLoader(batches, batch_size=None, num_workers=2))
        assert len(parts) == 2 * -(-length // 6)
        assert sorted(torch.cat(parts).tolist()) == list(range(length))


def test_a_sampler_that_can_only_be_iterated_is_shared_exactly() -> None:
    order = RandomSampler(11).indices(1, 0, 0, 11).tolist()
    ranks = []
    for rank in range(4):
        with DataLoader(
            Numbers(11), 2, sampler=order, shard=(rank, 4), even="exact", num_workers=0
        ) as loader:
            ranks.append(labels(loader))
    assert [index for step in zip(*ranks, strict=True) for batch in step for index in batch] == order
    assert [len(batches[-1]) for batches in ranks] == [1, 1, 1, 0]
