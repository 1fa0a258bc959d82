"""Tests of worker processes that go from one loader to the next."""

from __future__ import annotations

import gc
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aioloader
import recordio
from aioloader import ArrayDataset, DataLoader, SampleError, SimpleDataset
from aioloader.errors import LoaderError
from aioloader.executors import ProcessExecutor, ThreadExecutor, WorkerPool
from tests.aioloader.cluster import wait_until
from tests.cases import with_cases

N = 24


def pid_of(value: int) -> tuple[int, int]:
    return int(value), os.getpid()


def numbers(fn: Any = pid_of, count: int = N) -> Any:
    return SimpleDataset(list(range(count))).transform(fn)


def run(dataset: Any, pool: Any, **options: Any) -> tuple[list[int], set[int]]:
    """Return the values of an epoch, and the processes that made them."""
    with DataLoader(dataset, 4, executor=pool, **options) as loader:
        batches = [tuple(np.array(part) for part in batch) for batch in loader]
    return np.concatenate([values for values, _ in batches]).tolist(), set(
        np.concatenate([pids for _, pids in batches]).tolist()
    )


def test_the_next_loader_has_the_processes_of_the_last_one(leftovers: object) -> None:
    with WorkerPool(1) as pool:
        values, first = run(numbers(), pool)
        assert (values, pool.idle) == (list(range(N)), 1)

        def squared(value: int) -> tuple[int, int]:
            return value * value, os.getpid()

        for _ in range(3):
            values, again = run(numbers(squared), pool)
            assert values == [value * value for value in range(N)]
            assert again == first
        with DataLoader(numbers(count=4000), 4, executor=pool) as loader:  # an epoch that is left early
            assert set(next(iter(loader))[1].tolist()) == first
        assert pool.idle == 1
        assert run(numbers(), pool) == (list(range(N)), first)
        # Garbage is collected as here, once the first program is loaded.
        assert run(numbers(lambda value: (value, gc.get_threshold()[0])), pool)[1] == {gc.get_threshold()[0]}
    assert pool.idle == 0


def test_loaders_are_open_at_the_same_time(leftovers: object) -> None:
    with WorkerPool(1) as pool:
        with (
            DataLoader(numbers(), 4, executor=pool) as first,
            DataLoader(numbers(count=2 * N), 4, executor=pool) as second,
        ):
            both = list(zip(first, second, strict=False))
            pids = {int(pid) for pair in both for _, made in pair for pid in made}
        assert len(both) == 6
        assert len(pids) == 2
        assert pool.idle == 1  # it keeps no more
        assert run(numbers(), pool)[1] <= pids


def test_batches_are_those_without_a_pool(tmp_path: Path, leftovers: object) -> None:
    """Each loader has other memory, files and maps of them, and the process the numbers of its descriptors only."""
    from tests.aioloader.datasets.conftest import png

    sets = []
    for name, count in (("a", 12), ("b", 20)):
        path = tmp_path / f"{name}.rec"
        with recordio.RecordWriter(str(path), index=str(path.with_suffix(".idx"))) as writer:
            for number in range(count):
                writer.write(recordio.pack((0, number, number, 0), png(number + count)), key=number)
        sets.append(aioloader.ImageRecordDataset(path).transform_first(aioloader.transforms.RandomCrop(3)))
    table = np.arange(40_000, dtype=np.int64)
    large = ArrayDataset(table).transform(int).take(30)  # too large for a pickle: sent by its memory

    def epoch(dataset: Any, executor: Any) -> list[Any]:
        with DataLoader(dataset, 4, shuffle=True, executor=executor, num_workers=1) as loader:
            return [np.array(batch[0] if isinstance(batch, tuple) else batch) for batch in loader]

    with WorkerPool(1) as pool:
        for dataset in (sets[0], large, sets[1], sets[0], large):
            for one, other in zip(epoch(dataset, pool), epoch(dataset, "thread"), strict=True):
                np.testing.assert_array_equal(one, other)
        assert pool.idle == 1


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="maps of a process are read from /proc")
def test_a_process_keeps_nothing_of_a_loader_that_is_closed(tmp_path: Path) -> None:
    found = set()
    with WorkerPool(1) as pool:
        for _ in range(4):
            with DataLoader(numbers(), 4, executor=pool, memory_limit=64 << 20) as loader:
                pids = next(iter(loader))[1]
                maps = Path(f"/proc/{pids[0]}/maps").read_text(encoding="utf-8")
                found.add((maps.count("memfd:aioloader "), len(os.listdir(f"/proc/{pids[0]}/fd"))))
    assert len(found) == 1
    assert found.pop()[0] == 1


class Unloadable:
    def __reduce__(self) -> Any:
        return int, ("no number",)

    def __call__(self, value: int) -> int:
        return value


def test_a_process_that_dies_or_cannot_load_a_program_is_replaced(leftovers: object) -> None:
    def deadly(value: int) -> tuple[int, int]:
        if value == 5:
            os.kill(os.getpid(), signal.SIGKILL)
        return value, os.getpid()

    with WorkerPool(1) as pool:
        first = run(numbers(), pool)[1]
        with (
            DataLoader(numbers(deadly), 4, executor=pool) as loader,
            pytest.raises(SampleError, match="index 5"),
        ):
            list(loader)
        values, again = run(numbers(), pool)
        assert values == list(range(N))
        assert again.isdisjoint(first)
        for pid in again:  # while it is idle
            os.kill(pid, signal.SIGKILL)
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        values, others = run(numbers(), pool)
        assert values == list(range(N))
        assert others.isdisjoint(again)
        with DataLoader(numbers(Unloadable()), 4, executor=pool) as loader, pytest.raises(LoaderError):
            list(loader)
        assert pool.idle == 0
        assert run(numbers(), pool)[1].isdisjoint(others)


def test_the_pool_may_be_closed_first(leftovers: object) -> None:
    pool = WorkerPool(1)
    with DataLoader(numbers(), 4, executor=pool) as loader:
        batches = iter(loader)
        next(batches)
        pool.close()
        assert len(list(batches)) == N // 4 - 1
    assert pool.idle == 0
    with pytest.raises(ValueError, match="closed"):
        DataLoader(numbers(), 4, executor=pool)


def test_a_pool_that_is_collected_ends_its_processes(leftovers: object) -> None:
    pool = WorkerPool(1)
    run(numbers(), pool)
    del pool


def test_a_process_that_is_starting_goes_to_the_next_loader(leftovers: object) -> None:
    with WorkerPool(2) as pool:
        with DataLoader(numbers(), 4, executor=pool) as loader:
            next(iter(loader))
        assert pool.idle == 2  # the second may still be starting
        found: set[int] = set()
        while len(found) < 2:
            values, pids = run(numbers(count=200), pool)
            assert values == list(range(200))
            found |= pids
        assert len(found) == 2


def test_a_process_in_the_middle_of_a_sample_is_waited_for_or_ended(
    tmp_path: Path, leftovers: object
) -> None:
    begun = str(tmp_path / "begun")

    def slow(value: int) -> tuple[int, int]:
        if value >= 4:
            open(begun, "w").close()
            time.sleep(600)  # it hangs
        return value, os.getpid()

    with WorkerPool(1) as pool:
        with DataLoader(numbers(slow), 4, executor=pool) as loader:
            batches = iter(loader)  # dropping it would end the pass
            pids = next(batches)[1]
            wait_until(lambda: os.path.exists(begun))
        assert pool.idle == 0
        assert run(numbers(), pool)[1].isdisjoint(pids.tolist())


@with_cases("workers", [0, "auto"])
def test_workers_are_those_of_the_pool(workers: Any) -> None:
    with WorkerPool(1) as pool, pytest.raises(ValueError, match="WorkerPool"):
        DataLoader(numbers(), 4, executor=pool, num_workers=workers)
    with pytest.raises(ValueError, match="1 to 1024"):
        WorkerPool(0)


@pytest.mark.parametrize("make", [lambda: ProcessExecutor(1), lambda: ThreadExecutor(1)])
def test_an_executor_belongs_to_one_loader(make: Any, leftovers: object) -> None:
    executor = make()
    with DataLoader(numbers(), 4, executor=executor) as first:
        next(iter(first))
        with (
            DataLoader(numbers(), 4, executor=executor) as second,
            pytest.raises(ValueError, match="belongs to another loader"),
        ):
            list(second)
        assert len(list(first)) == N // 4
    with (
        DataLoader(numbers(), 4, executor=executor) as third,
        pytest.raises(ValueError, match="belongs to another loader"),
    ):
        list(third)
