"""Tests of batches that are delivered as they are ready: each once, with an exact state and exact receipts."""

from __future__ import annotations

import json
import threading
from typing import Any

import numpy as np
import pytest

import aioloader
from aioloader import AsyncDataLoader, DataLoader, SimpleDataset
from aioloader.errors import ResumeError
from tests.cases import on_both_loops, with_cases

COUNT, BATCH = 40, 4
WAIT_S = 60.0


class Gate:
    """Transform that waits at some samples until it is opened; in threads."""

    def __init__(self, *held: int) -> None:
        self._held = held
        self.opened = threading.Event()

    def __call__(self, index: int) -> int:
        if index in self._held:
            assert self.opened.wait(WAIT_S)
        return index


def loader_of(gate: Any = int, batch_size: int = BATCH, **options: Any) -> DataLoader[Any]:
    options = {"num_workers": 4, "executor": "thread", "prefetch": 6, "in_order": False, **options}
    if "batch_sampler" not in options:
        options["batch_size"] = batch_size
    return DataLoader[Any](SimpleDataset(list(range(COUNT))).transform(gate), **options)


def test_a_slow_batch_holds_up_no_other() -> None:
    gate = Gate(1)
    seen: list[list[int]] = []
    with loader_of(gate) as loader:
        for batch in loader:
            seen.append(batch.tolist())
            if len(seen) == 9:
                gate.opened.set()
    assert seen[-1] == [0, 1, 2, 3]
    assert sorted(seen) == [list(range(n, n + BATCH)) for n in range(0, COUNT, BATCH)]


@with_cases("sampling", ["shuffle", "batch_sampler", "rank"])
@with_cases("taken", [1, 4, 8])
def test_a_state_names_the_batches_that_were_taken(sampling: str, taken: int) -> None:
    more: dict[str, Any] = {"shuffle": True, "seed": 3}
    if sampling == "batch_sampler":
        more = {"batch_sampler": [list(range(n, n + BATCH)) for n in range(0, COUNT, BATCH)]}
    elif sampling == "rank":
        more |= {"shard": (1, 2), "batch_size": 2}
    with loader_of(in_order=True, **more) as loader:
        expected = [batch.tolist() for batch in loader]
        whole = loader.receipt()
    gate = Gate(expected[0][1], expected[2][1])  # the first sample of an epoch shows the shape of all
    with loader_of(gate, **more) as loader:
        batches = iter(loader)
        first = [next(batches).tolist() for _ in range(taken)]
        state = json.loads(json.dumps(loader.state_dict()))
        part = loader.receipt()
        gate.opened.set()
    assert expected[0] not in first
    assert len(state["taken"]) == taken
    assert part.seen == 0  # up to the first batch that is missing
    with loader_of(**more) as loader:
        loader.load_state_dict(state)
        assert len(loader) == len(expected) - taken
        rest = [batch.tolist() for batch in loader]
        assert sorted(first + rest) == sorted(expected)
        assert loader.receipt() == whole
        if sampling == "shuffle":
            loader.check_receipt(whole)
        assert len(list(loader)) == len(expected)


def test_the_rest_of_an_epoch_may_be_taken_in_order() -> None:
    gate = Gate(1)
    with loader_of(gate) as loader:
        batches = iter(loader)
        first = [next(batches).tolist() for _ in range(3)]
        state = loader.state_dict()
        gate.opened.set()
    with loader_of(in_order=True) as loader:
        loader.load_state_dict(state)
        rest = [batch.tolist() for batch in loader]
    assert rest == sorted(rest)
    assert sorted(first + rest) == [list(range(n, n + BATCH)) for n in range(0, COUNT, BATCH)]


@with_cases("in_order", [True, False])
def test_a_state_of_a_resumed_epoch_names_them_too(in_order: bool) -> None:
    gate = Gate(1)
    with loader_of(gate) as loader:
        batches = iter(loader)
        seen = [next(batches).tolist() for _ in range(3)]
        state = loader.state_dict()
        gate.opened.set()
    with loader_of(in_order=in_order, num_workers=1, prefetch=1) as loader:
        loader.load_state_dict(state)
        batches = iter(loader)
        assert loader.state_dict() == state
        seen.append(next(batches).tolist())
        state = json.loads(json.dumps(loader.state_dict()))
    with loader_of() as loader:
        loader.load_state_dict(state)
        seen += [batch.tolist() for batch in loader]
    assert sorted(seen) == [list(range(n, n + BATCH)) for n in range(0, COUNT, BATCH)]


def test_another_batch_size_is_refused_after_a_gap() -> None:
    gate = Gate(1)
    with loader_of(gate) as loader:
        next(iter(loader))
        state = loader.state_dict()
        gate.opened.set()
    with (
        loader_of(batch_size=5) as loader,
        pytest.raises(ResumeError, match="same batch size, rank and world size"),
    ):
        loader.load_state_dict(state)
    state["taken"] = [-1]
    with loader_of() as loader, pytest.raises(ResumeError, match="the state is corrupt"):
        loader.load_state_dict(state)


def test_failed_samples_are_recorded_once() -> None:
    def fail(index: int) -> int:
        if index % 7 == 0:
            raise ValueError("bad")
        return index

    with loader_of(fail, on_error="skip") as loader:
        seen = sorted(index for batch in loader for index in batch.tolist())
        receipt = loader.receipt()
        assert sorted(error.index for error in loader.errors) == list(range(0, COUNT, 7))
    assert seen == [index for index in range(COUNT) if index % 7]
    assert (receipt.seen, receipt.skipped) == (len(seen), COUNT - len(seen))


def test_an_error_ends_the_epoch() -> None:
    def fail(index: int) -> int:
        if index == 13:
            raise ValueError("bad")
        return index

    with loader_of(fail) as loader, pytest.raises(aioloader.SampleError, match="index 13"):
        list(loader)


@on_both_loops
async def test_an_async_loader_leaves_nothing(leftovers: Any) -> None:
    dataset = SimpleDataset(list(range(COUNT))).transform(np.float64)
    options: dict[str, Any] = {"executor": "thread", "num_workers": 2, "in_order": False}
    async with AsyncDataLoader[Any](dataset, BATCH, **options) as loader:
        for _ in range(2):
            seen = [batch.tolist() async for batch in loader]
            assert sorted(seen) == [list(range(n, n + BATCH)) for n in range(0, COUNT, BATCH)]
        async for _ in loader:
            break


def test_a_stream_has_an_order() -> None:
    with pytest.raises(ValueError, match="in_order=False needs a dataset whose samples have indices"):
        DataLoader(aioloader.IterableDataset(range(3).__iter__), 2, in_order=False)
