"""Tests of calls of async transforms: their concurrency, loop, context, draws and reports."""

import asyncio
import contextvars
import threading
import time

import anyio
import anyio.lowlevel
import numpy as np

from aioloader import AsyncDataLoader, DataLoader
from tests.aioloader.loader.samples import collect, everything, numbers, turns_of_the_loop
from tests.cases import on_both_loops, with_cases

# --- limits ---


class Meter:
    """Counter of running calls; releases them once `wanted` run. The first sample runs alone, and is not held."""

    def __init__(self, wanted):
        self.wanted = wanted
        self.inside = self.most = self.begun = 0
        self.enough = anyio.Event()

    async def __call__(self, x):
        self.begun += 1
        if x == 0:
            return x
        self.inside += 1
        self.most = max(self.most, self.inside)
        if self.inside >= self.wanted:
            self.enough.set()
        await self.enough.wait()
        await anyio.lowlevel.checkpoint()
        self.inside -= 1
        return x


@with_cases(
    ("batch_size", "concurrency", "executor"), [(4, 6, "thread"), (32, 5, "inline"), (1, 3, "inline")]
)
@on_both_loops
async def test_as_many_calls_as_allowed_run_side_by_side_and_no_more(batch_size, concurrency, executor):
    meter = Meter(concurrency)
    dataset = numbers(64).transform(meter, concurrency=concurrency)
    async with AsyncDataLoader(dataset, batch_size, executor=executor) as loader:
        with anyio.fail_after(30):
            batches = await collect(loader)
    assert np.concatenate(batches).tolist() == list(range(64))
    assert meter.most == concurrency


async def test_nothing_runs_further_ahead_than_prefetch():
    meter = Meter(1)
    dataset = numbers(400).transform(meter)
    async with AsyncDataLoader(dataset, 5, executor="inline", prefetch=3) as loader:
        delivered = 0
        async for _ in loader:
            delivered += 1
            await anyio.wait_all_tasks_blocked()
            assert meter.begun <= 5 * (delivered + 3)
            assert len(asyncio.all_tasks()) <= 3 * 5 + 10
            if delivered == 3:
                break


async def test_calls_that_never_wait_leave_the_loop_free():
    async def busy(x):
        time.sleep(0.004)  # twice as long as the loop is kept at most
        return x

    async with turns_of_the_loop() as turns:
        async with AsyncDataLoader(numbers(40).transform(busy, concurrency=1), 40, num_workers=0) as loader:
            await collect(loader)
    assert len(turns) > 30


async def test_two_passes_share_one_limit():
    meter = Meter(4)
    dataset = numbers(40).transform(meter, concurrency=4)
    async with AsyncDataLoader(dataset, 4, num_workers=0) as loader:
        first, second = await asyncio.gather(collect(loader), collect(loader))
    assert np.concatenate(first).tolist() == np.concatenate(second).tolist() == list(range(40))
    assert meter.most == 4


# --- the caller's loop, task and context ---

user = contextvars.ContextVar("user")


@on_both_loops
async def test_the_callers_loop_and_context_variables_are_seen():
    seen = set()

    async def look(x):
        await anyio.lowlevel.checkpoint()
        seen.add((user.get(), threading.current_thread(), anyio.lowlevel.current_token().native_token))
        return x

    user.set("ann")
    async with AsyncDataLoader(numbers().transform(look), 4, executor="thread") as loader:
        await collect(loader)
    assert seen == {("ann", threading.current_thread(), anyio.lowlevel.current_token().native_token)}


@with_cases("outer", [None, "asyncio", "trio"])
@with_cases("executor", ["inline", "thread"])
def test_the_blocking_loader_awaits_in_its_own_thread_with_the_callers_variables(executor, outer):
    seen = set()

    async def look(x):
        await anyio.lowlevel.checkpoint()
        seen.add((user.get(None), threading.current_thread().name))
        return 2 * x

    def main():
        with DataLoader(numbers().transform(look), 4, executor=executor) as loader:
            user.set("bob")
            assert [batch.tolist() for batch in loader] == [[0, 2, 4, 6], [8, 10, 12, 14], [16, 18, 20, 22]]
            user.set("eve")
            assert len(list(loader)) == 3

    async def inside():
        main()

    if outer is None:
        contextvars.copy_context().run(main)
    else:
        anyio.run(inside, backend=outer)
    assert seen == {("bob", "aioloader-portal"), ("eve", "aioloader-portal")}


# --- determinism ---


async def drawn(x, *, rng):
    await anyio.lowlevel.checkpoint()
    return x, rng.random()


def drawn_after(x, first, *, rng):
    return x, first, rng.random()


def drawn_before(x, *, rng):
    return x, rng.random()


def test_draws_depend_on_nothing_but_the_sample():
    dataset = numbers(24).transform(drawn).transform(drawn_after)
    tables = []
    for each in (
        {"executor": "inline", "batch_size": 5},
        {"executor": "thread", "batch_size": 24, "backend": "trio"},
        {"executor": "process", "batch_size": 7},
    ):
        batches = everything(dataset, shuffle=True, seed=5, **each)
        tables.append(np.concatenate([np.stack(batch, 1) for batch in batches]))
    assert (tables[0] == tables[1]).all()
    assert (tables[0] == tables[2]).all()
    assert len({*tables[0][:, 1], *tables[0][:, 2]}) == 48


def test_draws_before_an_await_are_those_of_a_chain_without_it():
    async def same(x, draw):
        return x, draw

    plain = everything(numbers().transform(drawn_before), executor="inline")
    awaited = everything(numbers().transform(drawn_before).transform(same), executor="inline")
    assert [draws.tolist() for _, draws in plain] == [draws.tolist() for _, draws in awaited]


# --- reports ---


async def test_seconds_waited_are_reported_by_name_and_are_not_work_of_the_workers():
    async def caption(x):
        await asyncio.sleep(0.01)
        return x

    data = numbers(120).transform(caption, concurrency=4)  # 0.3 s, regardless of the start's duration
    async with AsyncDataLoader(data, 4, num_workers=0) as loader:
        await collect(loader)
        stats, told = loader.stats(), loader.explain()
    assert set(stats.awaited) == {"caption"}
    assert stats.awaited["caption"] >= 1.2
    assert stats.stages["await:caption"].busy_s >= 1.2
    assert stats.transform_s < stats.awaited["caption"] / 2
    assert not stats.transforms
    assert told.startswith("The transform caption is the limit. It is awaited")


async def test_a_stall_names_the_async_transform_and_where_it_waits(caplog):
    release = asyncio.Event()

    async def captions(x):
        if x == 5:
            await release.wait()
        return x

    async def let_go():
        while "in captions" not in caplog.text:
            await asyncio.sleep(0.01)
        release.set()

    loader = AsyncDataLoader(numbers(8).transform(captions), 4, num_workers=0, stall_timeout=0.2)
    async with loader:
        letting = asyncio.ensure_future(let_go())
        with anyio.fail_after(60):
            assert np.concatenate(await collect(loader)).tolist() == list(range(8))
        await letting
    (text, *_) = (each.getMessage() for each in caplog.records if "in captions" in each.getMessage())
    assert "async transform captions: at the sample with index 5, batch 1" in text
