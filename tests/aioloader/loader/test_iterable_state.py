"""Tests of the state of epochs over async iterables: resumed if the source has a state."""

import json

import anyio
import anyio.lowlevel
import numpy as np
import pytest

import aioloader
from aioloader import AsyncDataLoader, DataLoader, IterableDataset, NotResumableError
from tests.aioloader.loader.samples import Tape, collect
from tests.cases import on_both_loops, with_cases


async def test_without_a_state_of_its_own_a_pass_cannot_be_resumed():
    async with AsyncDataLoader(IterableDataset(Tape(3).__aiter__), 2, num_workers=0) as loader:
        with pytest.raises(NotResumableError, match=r"cannot be resumed.*state_dict"):
            loader.state_dict()
        with pytest.raises(NotResumableError):
            loader.load_state_dict({})


def drawn(x, *, rng):
    return x, rng.random()


@with_cases("stop", [0, 3, 4])
@on_both_loops
async def test_a_source_with_a_state_is_resumed_behind_what_was_handed_out(stop):
    def loader_of():
        return AsyncDataLoader(IterableDataset(Tape(11)).transform(drawn), 3, num_workers=0, prefetch=3)

    async with loader_of() as loader:
        whole = [np.stack(batch).tolist() for batch in await collect(loader)]
    seen = []
    async with loader_of() as loader:
        if stop:
            async for batch in loader:
                seen.append(np.stack(batch).tolist())
                if len(seen) == stop:
                    await anyio.wait_all_tasks_blocked()  # by now it has advanced
                    break
        state = json.loads(json.dumps(loader.state_dict()))
    async with loader_of() as loader:
        loader.load_state_dict(state)
        seen += [np.stack(batch).tolist() for batch in await collect(loader)]
    assert seen == whole


async def test_states_of_other_loaders_are_refused():
    async with AsyncDataLoader(IterableDataset(Tape(5)), 3, num_workers=0) as loader:
        other = DataLoader([1, 2, 3], 2).state_dict()
        with pytest.raises(aioloader.ResumeError):
            loader.load_state_dict(other)
        with pytest.raises(aioloader.ResumeError):
            DataLoader([1, 2, 3], 2).load_state_dict(loader.state_dict())
    with pytest.raises(NotResumableError, match="rollover"):
        AsyncDataLoader(IterableDataset(Tape(5)), 3, last_batch="rollover").state_dict()
