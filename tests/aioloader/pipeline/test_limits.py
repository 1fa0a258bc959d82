"""Tests of the priority semaphore of async transforms, and of cutting a chain."""

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioloader.datasets.stage import Stage
from aioloader.pipeline.async_map import PrioritySemaphore, cut


async def waits(sample):
    return sample


def works(sample):
    return sample


@settings(max_examples=30)
@given(st.lists(st.booleans(), max_size=8))
def test_a_chain_is_cut_at_its_async_stages(kinds):
    stages = [Stage(waits if kind else works, first=False) for kind in kinds]
    segments, waiting = cut(stages)
    assert len(segments) == len(waiting) + 1
    assert all(waiting)
    assert not any(stage.is_async for segment in segments for stage in segment)
    assert all(stage.is_async for group in waiting for stage in group)
    joined = list(segments[0])
    for group, segment in zip(waiting, segments[1:], strict=True):
        joined += [*group, *segment]
    assert joined == stages
    assert all(segments[1:-1])  # async stages that follow one another are one group


@pytest.mark.parametrize("limit", [1, 3])
def test_no_more_than_the_limit_are_inside_and_the_earliest_batch_goes_first(run_on, limit):
    inside = most = 0
    entered = []

    async def visit(gate, rank, release):
        nonlocal inside, most
        async with gate.entered(rank):
            entered.append(rank)
            inside += 1
            most = max(most, inside)
            await release.wait()
            await anyio.lowlevel.checkpoint()
            inside -= 1

    async def main():
        gate, release = PrioritySemaphore(limit), anyio.Event()
        async with anyio.create_task_group() as tasks:
            for _ in range(limit):
                tasks.start_soon(visit, gate, 0, release)
            await anyio.wait_all_tasks_blocked()
            for rank in (7, 5, 9, 5, 1):
                tasks.start_soon(visit, gate, rank, release)
                await anyio.wait_all_tasks_blocked()
            release.set()

    run_on(main)
    assert most == limit
    # Calls admitted at one time continue in the loop's order.
    assert [sorted(entered[n : n + limit]) for n in range(0, len(entered), limit)] == (
        [[0], [1], [5], [5], [7], [9]] if limit == 1 else [[0, 0, 0], [1, 5, 5], [7, 9]]
    )


def test_a_place_is_not_lost_when_whoever_waits_for_it_is_cancelled(run_on):
    async def main():
        gate = PrioritySemaphore(1)

        async def wait_for_it():
            async with gate.entered(0):
                await anyio.sleep_forever()

        async with anyio.create_task_group() as tasks:
            async with gate.entered(0):
                tasks.start_soon(wait_for_it)
                tasks.start_soon(wait_for_it)
                await anyio.wait_all_tasks_blocked()
                tasks.cancel_scope.cancel()  # this task's release admits one of them at the same moment
        with anyio.fail_after(30):
            async with gate.entered(0):
                return True

    assert run_on(main)
