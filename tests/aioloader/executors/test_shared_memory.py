"""Tests of slab memory: freed slabs are reused, leased ones are not, regardless of their use by the caller."""

import gc
import itertools
import os
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioloader import DataLoader, SimpleDataset
from aioloader.executors.shared_memory import SlabMemory, default_memory_limit, fork_without_batches
from aioloader.foundation.types import Slab
from tests.cases import with_cases

PAGE = 4096


@pytest.fixture
def memory():
    memory = SlabMemory(1 << 20)
    yield memory
    memory.close()


def leased(memory, nbytes=1000, fill=7):
    slab = memory.allocate(nbytes)
    array = memory.array(slab.offset, (nbytes,), np.dtype(np.uint8))
    array[:] = fill
    memory.lease(slab, [array])
    return array


def test_other_threads_look_between_two_steps_never_within_one(memory):
    """The owner of a blocking loader reads its counters while the loader's thread uses the memory."""
    order = []

    def look():
        assert memory.usage()[0] == 0
        order.append("looked")

    class Interrupted(Slab):
        """Slab that lets another thread read the counters in the middle of being freed."""

        def __init__(self, slab):
            super().__init__(slab.offset, 0)
            self.size = slab.nbytes
            self.looker = None

        @property
        def nbytes(self):
            if self.looker is None:
                self.looker = threading.Thread(target=look)
                self.looker.start()
                self.looker.join(0.1)  # it cannot end before the slab is free
                order.append("freeing")
            return self.size

        @nbytes.setter
        def nbytes(self, value):
            pass

    slab = Interrupted(memory.allocate(PAGE))
    memory.free(slab)
    slab.looker.join()
    assert order == ["freeing", "looked"]


def test_freed_memory_is_reused_lowest_first(memory):
    first, second = memory.allocate(PAGE), memory.allocate(PAGE)
    offset = first.offset
    memory.free(first)
    memory.free(second)
    assert memory.allocate(2 * PAGE).offset == offset


def test_what_may_last_is_taken_from_the_other_end(memory):
    kept = [leased(memory) for _ in range(3)]
    lasting = memory.allocate(PAGE, lasting=True)
    assert lasting.offset > memory.allocate(PAGE).offset
    memory.free(lasting)
    assert memory.allocate(PAGE, lasting=True).offset == lasting.offset
    assert kept[0][0] == 7


def test_spare_memory_counts_at_the_peak_only_where_it_was_needed(memory):
    slab = memory.allocate(10 * PAGE, spare=8 * PAGE)
    assert memory.usage()[:2] == (10 * PAGE, 2 * PAGE)
    memory.shrink(slab, 5 * PAGE)
    assert memory.usage()[:2] == (5 * PAGE, 5 * PAGE)
    memory.free(memory.allocate(3 * PAGE, spare=3 * PAGE))
    assert memory.usage()[:2] == (5 * PAGE, 5 * PAGE)


def test_the_peak_of_a_loader_is_that_of_its_batches():
    with DataLoader(SimpleDataset([np.zeros(1000, np.uint8)] * 64), 4, executor="thread") as loader:
        list(loader)
        assert 4000 <= loader.stats().memory_peak_bytes < 1 << 20


def test_a_full_memory_gives_none(memory):
    assert memory.allocate((1 << 20) + 1) is None
    slab = memory.allocate(1 << 20)
    assert memory.allocate(1) is None
    memory.free(slab)
    assert memory.allocate(1) is not None


@settings(max_examples=3 * settings().max_examples // 5)
@given(st.lists(st.tuples(st.booleans(), st.integers(1, 40_000)), max_size=60))
def test_slabs_never_overlap_and_all_memory_comes_back(steps):
    memory = SlabMemory(1 << 18)
    held = []
    for give_back, size in steps:
        if give_back and held:
            memory.free(held.pop(size % len(held)))
        elif (slab := memory.allocate(size, lasting=size % 2 == 0)) is not None:
            assert slab.nbytes >= size
            held.append(slab)
        spans = sorted((slab.offset, slab.offset + slab.nbytes) for slab in held)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
        assert memory.used == sum(slab.nbytes for slab in held)
    for slab in held:
        memory.free(slab)
    assert memory.allocate(1 << 18) is not None
    memory.close()


VIEWS = {
    "the array": lambda a: a,
    "a slice": lambda a: a[10:20],
    "a slice of a slice": lambda a: a[10:40][::2],
    "a reshape": lambda a: a.reshape(10, -1),
    "asarray": lambda a: np.asarray(a[3:]),
    "a memoryview": lambda a: memoryview(a)[5:9],
    "another dtype": lambda a: a[:8].view(np.int64),
    "an iterator": lambda a: iter(a[3:5]),
}


@with_cases("view", VIEWS.values(), ids=VIEWS)
def test_any_view_keeps_the_memory(memory, view):
    kept = view(leased(memory))
    gc.collect()
    memory.free_pending()
    assert memory.leased == PAGE
    del kept
    memory.free_pending()
    assert memory.leased == memory.used == 0


def test_a_batch_of_several_arrays_is_held_by_any_of_them(memory):
    slab = memory.allocate(200)
    arrays = [memory.array(slab.offset + place, (64,), np.dtype(np.uint8)) for place in (0, 64)]
    memory.lease(slab, arrays)
    kept = arrays.pop()[3:]
    del arrays
    memory.free_pending()
    assert memory.used == PAGE
    del kept
    memory.free_pending()
    assert memory.used == 0


def test_a_lease_may_end_in_another_thread(memory):
    box = [leased(memory)]
    thread = threading.Thread(target=box.clear)
    thread.start()
    thread.join()
    memory.free_pending()
    assert memory.used == 0


def test_a_leased_array_outlives_the_memory():
    memory = SlabMemory(1 << 20)
    array = leased(memory, fill=9)
    other = memory.allocate(PAGE)
    memory.free(other)
    memory.close()
    assert memory.fd == -1
    assert array.tolist() == [9] * 1000


def test_close_is_idempotent(memory):
    memory.close()
    memory.close()


def test_the_default_limit_is_a_share_of_the_machine():
    assert 64 << 20 <= default_memory_limit() < 1 << 45


def fork_once(work=lambda: None):
    """Return a child that works and exits."""
    child = os.fork()
    if not child:
        try:
            work()
        finally:
            os._exit(0)
    return child


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_what_is_leased_at_a_fork_never_changes_in_the_child(memory):
    held = leased(memory, fill=7)
    reads, writes = os.pipe()
    told, tell = os.pipe()

    def read_late(held=held):
        os.close(tell)
        os.read(told, 1)  # until the parent has reused the memory, or has exited
        os.write(writes, bytes(held))

    child = fork_once(read_late)
    os.close(told)
    try:
        del held, read_late
        for _ in range(300):
            leased(memory, fill=9)
        while (slab := memory.allocate(PAGE)) is not None:
            memory.view(slab)[:] = bytes([9]) * PAGE
        os.write(tell, b"x")
        os.waitpid(child, 0)
        assert os.read(reads, 2000) == bytes([7]) * 1000
        assert memory.forked == PAGE
    finally:
        for fd in (reads, writes, tell):
            os.close(fd)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_what_is_leased_is_used_again_unless_a_fork_may_use_it(memory):
    os.waitpid(fork_once(), 0)
    for _ in range(100):
        leased(memory, 100_000)  # after the fork
    assert memory.forked == 0
    held = leased(memory, fill=7)
    with fork_without_batches():
        child = fork_once()
    os.waitpid(child, 0)
    del held
    leased(memory, fill=9)
    assert memory.forked == 0
    held = leased(memory, fill=7)
    os.waitpid(fork_once(), 0)  # any other one counts
    del held
    leased(memory, fill=9)
    assert memory.forked == PAGE


def test_what_is_lent_together_is_freed_after_the_last_view(memory):
    slab = memory.allocate(2 * PAGE, lasting=True)
    parts = [(0, (10, 10), np.dtype(np.uint8)), (128, (16,), np.dtype(np.float32))]
    images, labels = memory.lend(slab, parts)
    images[:], labels[:] = 3, 0.5
    assert not isinstance(images.base, np.ndarray)
    view, text = images[2:, 1], memoryview(labels)[3:]
    del images, labels
    for _ in range(600):
        leased(memory, fill=9)
    assert memory.leased >= 2 * PAGE
    del view
    gc.collect()
    memory.free_pending()
    assert memory.leased >= 2 * PAGE
    assert text.tolist() == [0.5] * 13
    del text
    memory.free_pending()
    assert (memory.used, memory.leased) == (0, 0)


def test_what_is_lent_outlives_the_region(memory):
    (kept,) = memory.lend(memory.allocate(PAGE), [(0, (100,), np.dtype(np.uint8))])
    kept[:] = 5
    memory.close()
    assert (kept == 5).all()
