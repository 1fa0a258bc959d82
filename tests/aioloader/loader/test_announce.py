"""Tests that a loader announces the items of the next batches to a byte source that reads ahead."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from aioloader import DataLoader
from aioloader.foundation.types import Spans
from tests.aioloader.loader.samples import Bytes, ByteSource

COUNT = 40
AHEAD = 10


class PlainSource(ByteSource):
    """Byte source that notes which items are planned."""

    def __init__(self) -> None:
        self.events: list[tuple[str, list[int]]] = []

    async def plan(self, spans: Spans) -> Any:
        self.events.append(("planned", spans.offset.tolist()))
        return await super().plan(spans)


class Source(PlainSource):
    """Byte source that also notes which items are announced."""

    announced = AHEAD

    def announce(self, spans: Spans) -> None:
        self.events.append(("announced", spans.offset.tolist()))


def _epoch(source: PlainSource, **options: Any) -> list[int]:
    with DataLoader(Bytes(source, COUNT), 4, executor="thread", num_workers=1, seed=3, **options) as loader:
        batches = [batch.tolist() for batch in loader]
        assert loader.receipt().seen == COUNT
    return [number for batch in batches for number in batch]


@pytest.mark.parametrize("shuffle", [True, False])
def test_items_are_announced_so_far_ahead_of_their_plan(shuffle: bool) -> None:
    source = Source()
    order = _epoch(source, shuffle=shuffle)
    announced, planned = (
        [n for kind, some in source.events if kind == each for n in some] for each in ("announced", "planned")
    )
    assert announced == planned == order
    assert sorted(order) == list(range(COUNT))
    ahead = 0
    for kind, items in source.events:
        if kind == "announced":
            ahead += len(items)
        else:
            ahead -= len(items)
            assert ahead >= min(AHEAD, COUNT - 1 - order.index(items[-1]))
            assert ahead <= AHEAD + 4


def test_the_order_is_that_of_a_source_that_reads_nothing_ahead() -> None:
    plain = PlainSource()
    expected = _epoch(plain, shuffle=True)
    assert [kind for kind, _ in plain.events] == ["planned"] * (COUNT // 4)
    assert _epoch(Source(), shuffle=True) == expected


def test_a_sampler_of_the_caller_is_not_read_ahead() -> None:
    source = Source()
    taken: list[int] = []

    class Order:
        """Sampler that notes what was taken from it."""

        def __len__(self) -> int:
            return COUNT

        def __iter__(self) -> Any:
            for number in range(COUNT):
                taken.append(number)
                yield number

    assert _epoch(source, sampler=Order()) == list(range(COUNT))
    assert [kind for kind, _ in source.events] == ["planned"] * (COUNT // 4)
    assert all(one < two for one, two in pairwise(taken))


def test_an_epoch_that_is_left_resumes_with_the_batch_after_the_last_delivered() -> None:
    with DataLoader(
        Bytes(Source(), COUNT), 4, executor="thread", num_workers=1, shuffle=True, seed=3
    ) as loader:
        batches = iter(loader)
        first = [number for _ in range(3) for number in next(batches).tolist()]
        state = loader.state_dict()
        assert loader.receipt().seen == 12
    with DataLoader(
        Bytes(Source(), COUNT), 4, executor="thread", num_workers=1, shuffle=True, seed=3
    ) as loader:
        loader.load_state_dict(state)
        rest = [number for batch in loader for number in batch.tolist()]
    assert first + rest == _epoch(Source(), shuffle=True)
