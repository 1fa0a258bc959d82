"""Tests of scratch memory: reused when idle, never while a reference exists."""

import pickle

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from aioloader.transforms import Scratch
from tests.cases import with_cases


def address(array):
    return array.__array_interface__["data"][0]


def test_an_idle_buffer_is_used_again():
    scratch = Scratch()
    first = scratch.take(1000)
    assert (first.shape, first.dtype, first.flags.writeable) == ((1000,), np.uint8, True)
    place = address(first)
    del first
    assert address(scratch.take(2000)) == place


HOLD = {
    "array": lambda a: a,
    "slice": lambda a: a[10:20],
    "reshape": lambda a: a.reshape(10, 100)[2:5].T,
    "memoryview": lambda a: memoryview(a)[3:],
    "ndarray-over-buffer": lambda a: np.ndarray((10,), np.uint8, a, 7),
    "other-dtype": lambda a: a.view(np.float32),
    "closure": lambda a: lambda: a,
    "frombuffer": lambda a: np.frombuffer(a, np.uint8),
}


@with_cases("hold", HOLD.values(), ids=HOLD)
def test_what_is_held_is_not_used_again(hold):
    scratch = Scratch()
    array = scratch.take(1000)
    place = address(array)
    kept = hold(array)
    del array
    assert address(scratch.take(1000)) != place
    del kept
    assert place in {address(scratch.take(1000)), address(scratch.take(1000))}


def test_more_are_held_than_the_pool_keeps():
    scratch = Scratch(buffers=2)
    held = [scratch.take(100) for _ in range(7)]
    assert len({address(array) for array in held}) == 7
    assert scratch.nbytes <= 2 << 18


def test_large_requests_are_not_kept():
    scratch = Scratch(max_nbytes=1000)
    assert scratch.take(5000).shape == (5000,)
    assert scratch.nbytes == 0
    assert scratch.take(1000).shape == (1000,)
    assert scratch.nbytes == 1000


def test_a_small_idle_buffer_is_replaced_by_a_larger_one():
    scratch = Scratch(buffers=1)
    scratch.take(10)
    scratch.take(1 << 20)
    assert scratch.nbytes == 1 << 20


def test_nothing_is_a_size_too():
    assert Scratch().take(0).shape == (0,)


def test_pickling_keeps_the_limits_only():
    scratch = Scratch(3, 12345)
    scratch.take(10)
    copy = pickle.loads(pickle.dumps(scratch))
    assert repr(copy) == "Scratch(buffers=3, max_nbytes=12345)"
    assert copy.nbytes == 0


@settings(max_examples=3 * settings().max_examples // 5)
@given(st.lists(st.tuples(st.integers(1, 700_000), st.booleans(), st.integers(0, 9)), max_size=30))
def test_a_kept_array_never_changes(steps):
    scratch = Scratch(buffers=3)
    kept = []
    for number, (nbytes, keep, drop) in enumerate(steps):
        array = scratch.take(nbytes)
        array[:] = number
        if keep:
            kept.append((number, array[nbytes // 3 :]))
        if kept and drop == 0:
            kept.pop(0)
        del array
        for value, view in kept:
            assert view[0] == value
            assert view[-1] == value
