"""Tests of `batch_sampler` with `shard`: equal steps of all ranks, resuming on other numbers of them, and receipts."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioloader import ArrayDataset, AsyncDataLoader, DataLoader, ReceiptError
from aioloader.errors import ResumeError
from aioloader.foundation.types import RankBatch
from aioloader.samplers import BatchSampler, BucketBatchSampler, BudgetBatchSampler, RandomSampler
from tests.cases import with_cases

N = 61
KEYS = np.arange(N) * 7 % 19 + 1


class Again:
    """Batch sampler that can only be iterated."""

    def __iter__(self) -> Iterator[Any]:
        order = np.random.default_rng(3).permutation(N).tolist()
        yield from (order[low : low + 4] for low in range(0, N, 4))


class Computing:
    """Computed batch sampler of another origin."""

    def __iter__(self) -> Iterator[list[int]]:
        return (batch.indices.tolist() for batch in self.batches(0, 0))

    def batches(self, seed: int, epoch: int, start: int = 0) -> Iterator[RankBatch]:
        order = np.random.default_rng([seed, epoch]).permutation(N)
        for number in range(start, -(-N // 4)):
            yield RankBatch(order[4 * number : 4 * number + 4], 4 * number, number + 1)

    def count(self, seed: int, epoch: int, start: int = 0) -> int:
        return max(0, -(-N // 4) - start)

    def description(self) -> tuple[Any, ...]:
        return "computing", N


def sampler_of(kind: str) -> Any:
    if kind == "lists":
        return list(Again())
    made: dict[str, Any] = {
        "buckets": lambda: BucketBatchSampler(KEYS, budget=40, buckets=4),
        "budget": lambda: BudgetBatchSampler(KEYS, 50),
        "iterable": Again,
        "cut": lambda: BatchSampler(RandomSampler(N), 4),
        "computing": Computing,
    }
    return made[kind]()


KINDS = ["buckets", "budget", "lists", "iterable", "cut", "computing"]


def loader_of(kind: str, shard: Any = None, even: str = "pad", **options: Any) -> DataLoader[Any]:
    return DataLoader(
        ArrayDataset(np.arange(N)),
        batch_sampler=sampler_of(kind),
        shard=shard,
        even=even,
        seed=5,
        num_workers=0,
        **options,
    )


def whole(kind: str, epoch: int = 0) -> list[list[int]]:
    with loader_of(kind) as loader:
        loader.set_epoch(epoch)
        return [batch.tolist() for batch in loader]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=settings().max_examples // 5)
@given(world=st.integers(1, 5), even=st.sampled_from(["pad", "drop", "exact"]), epoch=st.integers(0, 2))
def test_each_step_gives_every_rank_the_next_batch(kind: str, world: int, even: str, epoch: int) -> None:
    ranks = []
    receipts = []
    for rank in range(world):
        with loader_of(kind, (rank, world), even) as loader:
            loader.set_epoch(epoch)
            announced = len(loader) if kind != "iterable" else None
            ranks.append([batch.tolist() for batch in loader])
            assert announced in (None, len(ranks[-1]))
            receipts.append(loader.receipt())
    assert len({len(batches) for batches in ranks}) == 1
    dealt = [batch for step in zip(*ranks, strict=True) for batch in step]
    every = whole(kind, epoch)
    if kind != "cut":  # of one sampler that the loader cuts itself, the last step is shared in equal parts
        kept = every[: len(dealt)]
        assert dealt[: len(kept)] == kept
        assert all(batch in every or not batch for batch in dealt)
        assert len(every) - len(kept) < world
    total = sum(receipts)
    assert total.seen + total.padded == sum(map(len, dealt))
    assert even != "exact" or total.padded == 0
    if even != "drop":
        assert total.seen == N
        assert {index for batch in dealt for index in batch} == set(range(N))
    if kind != "iterable":
        with loader_of(kind) as loader:
            loader.check_receipt(total)
            if world > 1 and ranks[0]:
                with pytest.raises(ReceiptError):
                    loader.check_receipt(sum(receipts[1:]))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=settings().max_examples // 5)
@given(
    worlds=st.lists(st.integers(1, 4), min_size=2, max_size=3),
    steps=st.integers(0, 5),
    even=st.sampled_from(["pad", "drop", "exact"]),
)
def test_an_epoch_goes_on_with_another_number_of_ranks(
    kind: str, worlds: list[int], steps: int, even: str
) -> None:
    state = None
    found: list[int] = []
    receipts = []
    for number, world in enumerate(worlds):
        last = number + 1 == len(worlds)
        states = []
        for rank in range(world):
            with loader_of(kind, (rank, world), even) as loader:
                if state is not None:
                    loader.load_state_dict(state)
                batches = iter(loader)
                taken = list(batches) if last else [b for _, b in zip(range(steps), batches, strict=False)]
                del batches
                states.append(json.loads(json.dumps(loader.state_dict())))
                receipts.append(loader.receipt())
                found += [index for batch in taken for index in batch.tolist()]
        assert all(each == states[0] for each in states)
        state = states[0]
        if state["epoch"] != 0:  # it ended before
            return
    counts = Counter(found)
    if even != "drop":
        assert set(counts) == set(range(N))
    total = sum(receipts)
    assert even != "exact" or total.seen == sum(counts.values()) == N
    assert sum(counts.values()) == total.seen + total.padded
    if kind != "iterable":
        with loader_of(kind) as loader:
            loader.check_receipt(total)


def test_the_loader_deals_as_the_sampler_does() -> None:
    for rank in range(3):
        with loader_of("buckets", (rank, 3)) as loader:
            by_loader = [batch.tolist() for batch in loader]
        own = BucketBatchSampler(KEYS, budget=40, buckets=4, shard=(rank, 3))
        dataset = ArrayDataset(np.arange(N))
        with DataLoader(dataset, batch_sampler=own, seed=5, num_workers=0) as loader:
            assert [batch.tolist() for batch in loader] == by_loader


@with_cases("kind", ["buckets", "iterable"])
def test_random_draws_do_not_depend_on_the_number_of_ranks(kind: str) -> None:
    def draw(value: Any, rng: Any) -> Any:
        return value, rng.random()

    def drawn(shard: Any) -> dict[int, float]:
        dataset = ArrayDataset(np.arange(N)).transform(draw)
        options: dict[str, Any] = {"batch_sampler": sampler_of(kind), "shard": shard, "num_workers": 0}
        with DataLoader(dataset, even="drop", **options) as loader:
            return {
                int(index): float(number)
                for values, numbers in loader
                for index, number in zip(values, numbers, strict=True)
            }

    alone = drawn(None)
    dealt = {**drawn((0, 2)), **drawn((1, 2))}
    assert len(dealt) > N - 12
    assert dealt == {index: alone[index] for index in dealt}


async def test_the_async_loader_deals_from_workers() -> None:
    async def taken(rank: int) -> list[list[int]]:
        dataset = ArrayDataset(np.arange(N)).transform(int)
        options: dict[str, Any] = {"num_workers": 2, "executor": "thread", "seed": 5, "shard": (rank, 2)}
        async with AsyncDataLoader(dataset, batch_sampler=sampler_of("buckets"), **options) as loader:
            return [batch.tolist() async for batch in loader]

    first, second = await asyncio.gather(taken(0), taken(1))
    dealt = [batch for step in zip(first, second, strict=True) for batch in step]
    assert dealt[: len(whole("buckets"))] == whole("buckets")


@with_cases("kind", ["buckets", "lists"])
def test_batches_taken_out_of_order_belong_to_their_ranks(kind: str) -> None:
    def make(world: int) -> DataLoader[Any]:
        return loader_of(kind, (0, world), in_order=False)

    with make(2) as loader:
        next(iter(loader))
        state = {**loader.state_dict(), "taken": [6], "cut": loader._runtime.planner._cut()}
    with make(2) as loader:
        loader.load_state_dict(state)
    with make(3) as loader, pytest.raises(ResumeError, match="same batch size, rank and world size"):
        loader.load_state_dict(state)


@with_cases("cls", [BucketBatchSampler, BudgetBatchSampler])
def test_a_sampler_with_its_own_shard_is_refused(cls: Any) -> None:
    sampler = cls(KEYS, 40, shard=(0, 2))
    with pytest.raises(ValueError, match="dealt out twice"):
        DataLoader(ArrayDataset(np.arange(N)), batch_sampler=sampler, shard=(0, 2))


def test_a_foreign_sampler_of_one_rank_is_refused() -> None:
    class OfOneRank(Computing):
        def batches(self, seed: int, epoch: int, start: int = 0) -> Iterator[RankBatch]:
            for batch in super().batches(seed, epoch, start):
                yield batch._replace(consumed=2 * batch.consumed)

    dataset = ArrayDataset(np.arange(N))
    with (
        DataLoader(dataset, batch_sampler=OfOneRank(), shard=(0, 2), num_workers=0) as loader,
        pytest.raises(ValueError, match="dealt out twice"),
    ):
        list(loader)
