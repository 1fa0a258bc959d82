"""Tests of plain iterables as sources: read in threads, by several readers and ranks, mixed by a buffer."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import aioloader
from aioloader import AsyncDataLoader, DataLoader, IterableDataset
from aioloader.errors import NotResumableError
from tests.aioloader.loader.samples import Position
from tests.cases import with_cases

N = 60


def part(shard: tuple[int, int]) -> Iterator[int]:
    yield from range(shard[0], N, shard[1])


def values(dataset: IterableDataset, **options: Any) -> list[int]:
    options = {"batch_size": 4, "num_workers": 0, **options}
    with DataLoader(dataset, **options) as loader:
        return [int(value) for batch in loader for value in batch]


@with_cases("options", [{}, {"executor": "thread", "num_workers": 2}])
def test_a_generator_is_read_in_every_epoch(options: Any, leftovers: object) -> None:
    seen: list[Any] = []

    def numbers(epoch: int) -> Iterator[int]:
        seen.append((epoch, threading.current_thread().name))
        yield from range(10 * epoch, 10 * epoch + 5)

    dataset = IterableDataset(numbers).transform(int)
    with DataLoader(dataset, 2, **{"num_workers": 0, **options}) as loader:
        assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4]]
        assert [batch.tolist() for batch in loader] == [[10, 11], [12, 13], [14]]
    assert [epoch for epoch, _ in seen] == [0, 1]
    assert all(name.startswith("aioloader-source") for _, name in seen)


@with_cases("readers", [1, 2, 3, 7])
def test_readers_take_turns(readers: int) -> None:
    assert values(IterableDataset(part, readers=readers)) == list(range(N))


def test_the_order_does_not_depend_on_which_reader_is_faster() -> None:
    def uneven(shard: tuple[int, int]) -> Iterator[int]:
        for value in range(shard[0] * 100, shard[0] * 100 + 3 * (shard[0] + 1)):
            time.sleep(0.004 if shard[0] == 0 else 0)
            yield value

    expected = [0, 100, 200, 1, 101, 201, 2, 102, 202, 103, 203, 104, 204, 105, 205, 206, 207, 208]
    for _ in range(2):
        assert values(IterableDataset(uneven, readers=3)) == expected


def test_ranks_have_parts_and_draw_differently() -> None:
    def draw(value: int, rng: Any) -> tuple[int, float]:
        return value, rng.random()

    found: dict[int, float] = {}
    for rank in range(3):
        dataset = IterableDataset(part, readers=2).transform(draw)
        with DataLoader(dataset, 4, shard=(rank, 3), num_workers=0) as loader:
            for numbers, drawn in loader:
                found.update(zip(numbers.tolist(), drawn.tolist(), strict=True))
    assert sorted(found) == list(range(N))
    assert len(set(found.values())) == N


def test_a_buffer_shuffles_by_seed_and_epoch() -> None:
    def run(seed: int = 0, buffer: int = 16) -> list[list[int]]:
        dataset = IterableDataset(part, readers=2, shuffle_buffer=buffer)
        with DataLoader(dataset, 4, num_workers=0, seed=seed) as loader:
            return [np.concatenate(list(loader)).tolist() for _ in range(2)]

    first, second = run()
    assert sorted(first) == sorted(second) == list(range(N))
    assert first != second
    assert first != list(range(N))
    assert run() == [first, second]
    assert run(1)[0] != first
    # None comes earlier than a buffer allows.
    assert all(value - place < 17 for place, value in enumerate(first))
    assert sorted(run(buffer=1000)[0]) == list(range(N))


def test_an_async_source_is_shuffled_too() -> None:
    async def numbers() -> Any:
        for number in range(20):
            yield number

    found = values(IterableDataset(numbers, shuffle_buffer=8))
    assert sorted(found) == list(range(20))
    assert found != list(range(20))


def test_a_source_that_blocks_does_not_hold_the_loop(leftovers: object) -> None:
    go = threading.Event()

    def waiting() -> Iterator[int]:
        yield 0
        assert go.wait(60)
        yield 1

    async def main() -> list[int]:
        async with AsyncDataLoader(IterableDataset(waiting), 1, num_workers=0) as loader:
            batches = aiter(loader)
            first = await anext(batches)
            pending = asyncio.ensure_future(anext(batches))
            await asyncio.sleep(0)
            assert not go.is_set()  # the first batch came while the source blocked
            go.set()
            return [int(first[0]), int((await pending)[0])]

    assert asyncio.run(main()) == [0, 1]


def test_an_epoch_that_is_left_closes_the_generator(leftovers: object) -> None:
    closed = threading.Event()

    def endless() -> Iterator[int]:
        try:
            number = 0
            while True:
                yield number
                number += 1
        finally:
            closed.set()

    with DataLoader(IterableDataset(endless), 4, num_workers=0, prefetch=1) as loader:
        assert next(iter(loader)).tolist() == [0, 1, 2, 3]
    assert closed.wait(60)


def test_an_error_comes_after_the_samples_before_it() -> None:
    def failing(shard: tuple[int, int]) -> Iterator[int]:
        yield from range(6)
        raise OSError(f"gone {shard}")

    got = []
    with (
        DataLoader(IterableDataset(failing), 4, num_workers=0) as loader,
        pytest.raises(OSError, match="gone"),
    ):
        for batch in loader:
            got += batch.tolist()
    assert got == list(range(6))


class Counter(Position):
    """Plain source with a position."""

    def __iter__(self) -> Iterator[int]:
        while self.place < self.n:
            self.place += 1
            yield self.place - 1
        self.place = 0


def test_a_plain_source_with_a_position_is_resumed() -> None:
    with DataLoader(IterableDataset(Counter(10)), 2, num_workers=0) as loader:
        batches = iter(loader)
        assert [next(batches).tolist() for _ in range(2)] == [[0, 1], [2, 3]]
        state = loader.state_dict()
    with DataLoader(IterableDataset(Counter(10)), 2, num_workers=0) as loader:
        loader.load_state_dict(state)
        assert [batch.tolist() for batch in loader] == [[4, 5], [6, 7], [8, 9]]
    mixed = DataLoader(IterableDataset(Counter(10), shuffle_buffer=3), 2, num_workers=0)
    with mixed, pytest.raises(NotResumableError, match="shuffle_buffer"):
        mixed.state_dict()


def test_a_subclass_may_be_iterated_plainly() -> None:
    class Mine(IterableDataset):
        def __iter__(self) -> Iterator[int]:
            yield from range(5)

    assert values(Mine()) == [0, 1, 2, 3, 4]
    assert values(Mine().transform(lambda value: value + 1)) == [1, 2, 3, 4, 5]


def test_functions_that_return_plain_iterables() -> None:
    assert values(IterableDataset(lambda: [1, 2, 3])) == [1, 2, 3]
    assert values(IterableDataset(lambda shard: range(*shard), readers=2)) == [0, 1, 1]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(TypeError, match="needs a parameter named shard"):
        IterableDataset(lambda: [1], readers=2)
    with pytest.raises(ValueError, match="readers"):
        IterableDataset(part, readers=0)
    with pytest.raises(ValueError, match="shuffle_buffer"):
        IterableDataset(part, shuffle_buffer=-1)
    with pytest.raises(ValueError, match="a parameter shard"):
        DataLoader(IterableDataset(lambda: [1]), 2, shard=(0, 2))

    async def numbers(shard: Any) -> Any:
        yield 1

    with (
        DataLoader(IterableDataset(numbers, readers=2), 1, num_workers=0) as loader,
        pytest.raises(TypeError, match="async"),
    ):
        list(loader)
    assert aioloader.IterableDataset is IterableDataset
