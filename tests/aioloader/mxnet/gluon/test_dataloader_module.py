"""Tests of the other public names of the module `dataloader`."""

import multiprocessing
import queue
import threading

import numpy as np
import pytest

from aioloader.mxnet import gluon, nd
from aioloader.mxnet.gluon.data import dataloader
from tests.cases import with_cases

NAMES = (
    *("default_batchify_fn", "default_mp_batchify_fn", "fetcher_loop_v1", "worker_loop_v1"),
    *("rebuild_ndarray", "rebuild_np_ndarray", "reduce_ndarray", "reduce_np_ndarray"),
    *("ConnectionWrapper", "DataLoader", "DataLoaderV1", "Queue", "SimpleQueue"),
)


def test_all_names_are_there():
    for name in NAMES:
        assert callable(getattr(dataloader, name))


@with_cases("workers", [0, 2])
def test_the_first_loader(workers):
    loader = dataloader.DataLoaderV1(list(range(7)), 3, False, None, "keep", None, None, workers)
    assert len(loader) == 3
    for _ in range(2):
        assert [batch.asnumpy().tolist() for batch in loader] == [[0, 1, 2], [3, 4, 5], [6]]
    batches = iter(loader)
    assert batches.next().asnumpy().tolist() == [0, 1, 2]
    batches.shutdown()
    batches.shutdown()
    with pytest.raises(AssertionError, match="call __next__ after shutdown is forbidden"):
        next(batches)
    loader.close()


def test_the_loops_of_its_processes():
    keys, made, buffer = queue.SimpleQueue(), queue.SimpleQueue(), {}
    for order in ((0, [1, 2]), (1, [3]), (None, None)):
        keys.put(order)
    dataset = gluon.data.SimpleDataset([10, 11, 12, 13])
    dataloader.worker_loop_v1(dataset, keys, made, gluon.data.batchify.Stack())
    made.put((None, None))
    dataloader.fetcher_loop_v1(made, buffer, data_buffer_lock=threading.Lock())
    assert {number: batch.asnumpy().tolist() for number, batch in buffer.items()} == {0: [11, 12], 1: [13]}
    for item in ((5, "batch"), (None, None)):
        made.put(item)
    dataloader.fetcher_loop_v1(made, buffer)
    assert buffer[5] == "batch"


@with_cases(
    ("reduce", "rebuild"),
    [
        (dataloader.reduce_ndarray, dataloader.rebuild_ndarray),
        (dataloader.reduce_np_ndarray, dataloader.rebuild_np_ndarray),
    ],
    ids=["nd", "np"],
)
@with_cases("array", [nd.array([[1, 2], [3, 4]]), nd.zeros((0, 3)), np.arange(6)[::2]], ids=str)
def test_arrays_are_taken_apart_and_made_again(reduce, rebuild, array):
    function, parts = reduce(array)
    assert function is rebuild
    again = function(*parts)
    assert isinstance(again, nd.NDArray)
    assert (again.dtype, again.shape) == (array.dtype, array.shape)
    assert np.array_equal(again, array)
    again[...] = 0  # it is separate memory


@with_cases("kind", ["Queue", "SimpleQueue"])
def test_queues_take_arrays(kind):
    through = getattr(dataloader, kind)(ctx=multiprocessing.get_context("spawn"))
    through.put(nd.array([1, 2]))
    answer = through.get()
    assert isinstance(answer, nd.NDArray)
    assert answer.asnumpy().tolist() == [1, 2]
    through.close()
    if kind == "Queue":
        through.join_thread()


def test_connections_are_wrapped(leftovers):
    one, other = map(dataloader.ConnectionWrapper, multiprocessing.Pipe())
    one.send({"x": nd.array([1, 2])})
    assert other.poll(5)  # the connection's error
    assert other.recv()["x"].asnumpy().tolist() == [1, 2]
    one.close()
    other.close()
    with pytest.raises(OSError, match="closed"):
        one.send(1)
