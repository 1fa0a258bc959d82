"""Tests of slow conversions, such as copies to pinned memory: in a thread, and not lost by a cancellation."""

import asyncio
import threading

import anyio
import anyio.from_thread
import pytest

from aioloader import AsyncDataLoader
from aioloader.errors import OutputError
from aioloader.loader.outputs import Converter
from tests.aioloader.loader.samples import Numbers
from tests.cases import on_both_loops


def slow_loader(convert):
    """Return a loader with a slow conversion, like that to pinned memory."""
    loader = AsyncDataLoader(Numbers(12), 4, num_workers=0)
    loader._runtime.convert = Converter(convert, takes_long=True)
    return loader


@on_both_loops
async def test_a_copy_is_not_made_in_the_loops_thread():
    threads = set()

    def convert(batch):
        threads.add(threading.get_ident())
        return batch[1].tolist()

    async with slow_loader(convert) as loader:
        assert [batch async for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
        assert loader.state_dict()["epoch"] == 1
    assert threading.get_ident() not in threads


@on_both_loops
async def test_a_call_that_is_cancelled_during_the_copy_loses_nothing():
    scope, calls = anyio.CancelScope(), []

    def convert(batch):
        if not calls:
            anyio.from_thread.run_sync(scope.cancel)
        calls.append(None)
        return batch[1].tolist()

    async with slow_loader(convert) as loader:
        batches, got = aiter(loader), []
        with scope:
            got.append(await anext(batches))
        assert scope.cancel_called
        assert loader.state_dict()["consumed"] == 4 * len(got)
        got += [batch async for batch in batches]
        assert got == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


async def test_a_task_that_is_cancelled_during_the_copy_loses_nothing():
    loop, begun, left = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def convert(batch):
        if not left.is_set():
            loop.call_soon_threadsafe(begun.set)
            left.wait(10)
        return batch[1].tolist()

    async with slow_loader(convert) as loader:
        batches = aiter(loader)
        call = asyncio.ensure_future(anext(batches))
        await begun.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        left.set()
        assert loader.state_dict()["consumed"] == 0
        assert [batch async for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]


@on_both_loops
async def test_a_copy_that_fails_is_an_output_error_and_ends_the_epoch():
    def convert(batch):
        raise MemoryError("pinned")

    async with slow_loader(convert) as loader:
        batches = aiter(loader)
        with pytest.raises(OutputError, match="MemoryError: pinned") as caught:
            await anext(batches)
        assert caught.value.batch[1].tolist() == [0, 1, 2, 3]
        assert await anext(batches, "over") == "over"
        assert loader.state_dict()["consumed"] == 0
