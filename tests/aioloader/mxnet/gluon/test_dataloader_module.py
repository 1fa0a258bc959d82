"""Tests of the other public names of the module `dataloader`."""

import multiprocessing
import queue
import subprocess
import sys
import threading

import numpy as np
import pytest

from aioloader.mxnet import gluon, nd
from aioloader.mxnet.gluon.data import dataloader

NAMES = (
    *("default_batchify_fn", "default_mp_batchify_fn", "fetcher_loop_v1", "worker_loop_v1"),
    *("rebuild_ndarray", "rebuild_np_ndarray", "reduce_ndarray", "reduce_np_ndarray"),
    *("ConnectionWrapper", "DataLoader", "DataLoaderV1", "Queue", "SimpleQueue"),
)


def test_all_names_are_there():
    for name in NAMES:
        assert callable(getattr(dataloader, name))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = dataloader.nothing


def test_naming_the_loader_loads_no_multiprocessing():
    code = (
        "import sys; from aioloader.mxnet import gluon; gluon.data.DataLoader([1, 2], 1); "
        "assert not {'multiprocessing', 'cv2', 'torch'} & set(sys.modules), sys.modules"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_first_loader(workers, leftovers):
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


@pytest.mark.parametrize(
    ("reduce", "rebuild"),
    [
        (dataloader.reduce_ndarray, dataloader.rebuild_ndarray),
        (dataloader.reduce_np_ndarray, dataloader.rebuild_np_ndarray),
    ],
    ids=["nd", "np"],
)
@pytest.mark.parametrize("array", [nd.array([[1, 2], [3, 4]]), nd.zeros((0, 3)), np.arange(6)[::2]], ids=str)
def test_arrays_are_taken_apart_and_made_again(reduce, rebuild, array):
    function, parts = reduce(array)
    assert function is rebuild
    again = function(*parts)
    assert isinstance(again, nd.NDArray)
    assert (again.dtype, again.shape) == (array.dtype, array.shape)
    assert np.array_equal(again, array)
    again[...] = 0  # it is separate memory


def echo(take, give):
    give.put(take.get() + 1)


@pytest.mark.parametrize("kind", ["Queue", "SimpleQueue"])
def test_queues_take_arrays_to_processes_and_back(kind):
    make = getattr(dataloader, kind)
    spawn = multiprocessing.get_context("spawn")
    to, fro = make(ctx=spawn), make(ctx=spawn)
    process = spawn.Process(target=echo, args=(to, fro))
    process.start()
    to.put(nd.array([1, 2]))
    answer = fro.get()
    process.join()
    process.close()
    assert isinstance(answer, nd.NDArray)
    assert answer.asnumpy().tolist() == [2, 3]
    for each in (to, fro):
        each.close()
        if kind == "Queue":
            each.join_thread()


def test_connections_are_wrapped(leftovers):
    one, other = map(dataloader.ConnectionWrapper, multiprocessing.Pipe())
    one.send({"x": nd.array([1, 2])})
    assert other.poll(5)  # the connection's error
    assert other.recv()["x"].asnumpy().tolist() == [1, 2]
    one.close()
    other.close()
    with pytest.raises(OSError, match="closed"):
        one.send(1)
