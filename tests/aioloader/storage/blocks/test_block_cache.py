"""Tests of the cache of blocks: one load at a time for each block, a limit in bytes, and errors."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from aioloader.errors import SampleFormatError
from aioloader.formats.parquet.block import Block, ColumnBytes
from aioloader.formats.parquet.block_source import AnnouncedBlocks, BlockCache


def block(nbytes: int = 10) -> Block:
    column = ColumnBytes(np.zeros(4, np.uint8), np.arange(4), np.ones(4, np.int64))
    return Block([[column]], faults={}, nbytes=nbytes)


class Loads:
    """Loads of blocks of some bytes each, counted, which wait until the test lets them go on."""

    def __init__(self, nbytes: int = 10, *, held: bool = False) -> None:
        self.nbytes = nbytes
        self.count: list[int] = []
        self.most = self.now = 0
        self.go = threading.Event()
        self.lock = threading.Lock()
        if not held:
            self.go.set()

    def load(self, number: int) -> Block:
        with self.lock:
            self.count.append(number)
            self.now += 1
            self.most = max(self.most, self.now)
        assert self.go.wait(20)
        with self.lock:
            self.now -= 1
        return block(self.nbytes)

    def cache(self, limit_nbytes: int) -> BlockCache:
        return BlockCache(self.load, lambda number: self.nbytes, limit_nbytes=limit_nbytes)


def test_a_block_is_loaded_once_for_all_who_wait() -> None:
    loads = Loads(held=True)
    cache = loads.cache(100)
    with ThreadPoolExecutor(6) as pool:
        waiting = [pool.submit(cache.get, 7) for _ in range(6)]
        loads.go.set()
        found = {id(each.result(20)) for each in waiting}
    assert len(found) == 1
    assert loads.count == [7]


def test_the_block_used_least_recently_is_dropped() -> None:
    loads = Loads()
    cache = loads.cache(30)
    for number in (0, 1, 2, 0, 3):
        cache.get(number)
    assert [number for number in range(4) if cache.holds(number)] == [0, 2, 3]
    assert cache.kept_nbytes == 30
    assert cache.peek(1) is None
    assert cache.peek(2) is not None
    cache.get(4)
    assert [number for number in range(5) if cache.holds(number)] == [2, 3, 4]
    cache.clear()
    assert cache.kept_nbytes == 0


def test_loads_wait_for_room() -> None:
    loads = Loads(40, held=True)
    cache = loads.cache(100)
    with ThreadPoolExecutor(6) as pool:
        waiting = [pool.submit(cache.get, number) for number in range(6)]
        loads.go.set()
        for each in waiting:
            each.result(20)
    assert sorted(loads.count) == list(range(6))
    assert loads.most <= 2
    assert cache.kept_nbytes <= 100


def test_a_block_beyond_the_limit_is_delivered_and_not_kept() -> None:
    loads = Loads(1000)
    cache = loads.cache(100)
    with ThreadPoolExecutor(3) as pool:
        assert [each.nbytes for each in pool.map(cache.get, range(3))] == [1000] * 3
    assert loads.most == 1
    assert cache.kept_nbytes == 0


def test_a_damaged_block_is_remembered_and_a_failed_read_is_tried_again() -> None:
    tries: list[int] = []

    def load(number: int) -> Block:
        tries.append(number)
        raise SampleFormatError("damaged") if number == 0 else OSError("no answer")

    cache = BlockCache(load, lambda number: 1, limit_nbytes=10)
    for _ in range(3):
        with pytest.raises(SampleFormatError, match="damaged"):
            cache.get(0)
        with pytest.raises(OSError, match="no answer"):
            cache.get(1)
    assert tries == [0, 1, 1, 1]


def test_all_who_wait_get_the_error() -> None:
    go = threading.Event()

    def load(number: int) -> Block:
        assert go.wait(20)
        raise OSError(f"block {number}")

    cache = BlockCache(load, lambda number: 1, limit_nbytes=10)
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(cache.get, 3) for _ in range(4)]
        go.set()
        assert {str(each.exception(20)) for each in waiting} == {"block 3"}
    assert not cache.holds(3)


def test_an_interrupted_load_is_begun_again_by_another_thread() -> None:
    inside, go = threading.Event(), threading.Event()
    tries: list[str] = []

    def load(number: int) -> Block:
        tries.append(threading.current_thread().name)
        if len(tries) == 1:
            inside.set()
            assert go.wait(20)
            raise KeyboardInterrupt
        return block()

    cache = BlockCache(load, lambda number: 1, limit_nbytes=10)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(cache.get, 0)
        assert inside.wait(20)
        second = pool.submit(cache.get, 0)
        go.set()
        with pytest.raises(KeyboardInterrupt):
            first.result(20)
        assert second.result(20).rows == 4
    assert len(tries) == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_does_not_wait_for_threads_that_it_does_not_have() -> None:
    loads = Loads(held=True)
    cache = loads.cache(100)
    thread = threading.Thread(target=cache.get, args=(0,))
    thread.start()
    while not loads.count:
        pass
    child = os.fork()
    if not child:
        loads.go.set()
        os._exit(0 if cache.get(0).rows == 4 else 1)
    loads.go.set()
    thread.join(20)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_announced_blocks_have_a_limit_and_are_forgotten() -> None:
    ahead = AnnouncedBlocks(30)
    assert [ahead.add(number, 10) for number in range(4)] == [True, True, True, False]
    assert ahead.add(1, 10)
    ahead.planned([1, 9])
    assert 1 not in ahead
    assert ahead.add(4, 10)
    assert not ahead.add(5, 10)
    for _ in range(70):  # the epoch that needed them was left
        ahead.planned([])
    assert [number for number in range(5) if number in ahead] == []
    assert all(ahead.add(number, 10) for number in range(3))
