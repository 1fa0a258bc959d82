"""Tests of failures: the original error, a loader that can be used again, and no leaks."""

import gc
import multiprocessing
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from aioloader import TooManyErrorsError
from aioloader.mxnet import gluon, nd
from tests.aioloader.mxnet.gluon.conftest import WORKERS, with_each_kind
from tests.cases import with_cases


class NotGoodError(KeyError):
    """Error class of the caller."""

    def __init__(self, index):
        super().__init__(index)
        self.index = index


class Failing(gluon.data.Dataset):
    """Dataset whose item `bad` fails."""

    def __init__(self, n=12, bad=7):
        self.n = n
        self.bad = bad

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        if index == self.bad:
            raise NotGoodError(index)
        return index


def fail_at_seven(index):
    if index == 7:
        raise NotGoodError(index)
    return index


def fail_together(samples):
    if 7 in samples:
        raise NotGoodError(7)
    return np.array(samples)


CASES = {
    "dataset": lambda: (Failing(), None),
    "transform": lambda: (gluon.data.SimpleDataset(list(range(12))).transform(fail_at_seven), None),
    "batchify": lambda: (gluon.data.SimpleDataset(list(range(12))), fail_together),
}


@with_cases(
    ("case", "kind"),
    [*(("dataset", kind) for kind in WORKERS), ("transform", "processes"), ("batchify", "threads")],
)
def test_the_original_error_comes_at_its_batch_and_the_loader_goes_on(case, kind):
    dataset, batchify_fn = CASES[case]()
    loader = gluon.data.DataLoader(dataset, 3, batchify_fn=batchify_fn, **WORKERS[kind])
    for _ in range(2):
        batches = iter(loader)
        assert [next(batches).tolist() for _ in range(2)] == [[0, 1, 2], [3, 4, 5]]
        with pytest.raises(NotGoodError) as caught:
            next(batches)
        assert type(caught.value) is NotGoodError
        assert caught.value.index == 7
        with pytest.raises(StopIteration):
            next(batches)
    loader.close()


def test_the_error_names_the_sample():
    with gluon.data.DataLoader(Failing(), 3) as loader:
        with pytest.raises(NotGoodError) as caught:
            list(loader)
    assert "sample at index 7" in caught.value.__notes__[-1]


@with_each_kind
def test_samples_that_do_not_fit_together(options):
    dataset = gluon.data.SimpleDataset([np.zeros(2), np.zeros(3)])
    with gluon.data.DataLoader(dataset, 2, **options) as loader:
        with pytest.raises(ValueError, match="cannot be stacked"):
            list(loader)


@with_each_kind
def test_an_index_outside_of_the_dataset(options):
    with gluon.data.DataLoader(Failing(bad=None), 2, sampler=[0, 99], **options) as loader:
        with pytest.raises(IndexError, match="99"):
            list(loader)


class Slow(gluon.data.Dataset):
    """Dataset whose item 2 waits for an event that is never set."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        if index == 2:
            signal.pause()
        return index


@pytest.mark.own_workers
def test_a_worker_without_progress_times_out():
    loader = gluon.data.DataLoader(Slow(), 2, num_workers=1, timeout=1)
    batches = iter(loader)
    assert next(batches).tolist() == [0, 1]
    with pytest.raises(multiprocessing.TimeoutError, match="no progress for 1 s") as caught:
        next(batches)
    assert isinstance(caught.value, TimeoutError)
    del batches
    loader.close()


def test_dropped_loaders_leave_nothing(leftovers):
    """The arrays of MXNet's test need no workers here, so items are requested one by one too."""
    data = np.random.rand(99, 200)
    for dataset, workers in ((gluon.data.SimpleDataset(list(data)), 1), (data, 8)):
        loader = gluon.data.DataLoader(dataset, batch_size=8, num_workers=workers)
        batches = iter(loader)
        assert np.array_equal(next(batches).asnumpy(), data[:8])
        del batches
        del loader
        gc.collect()
        assert "child processes" not in leftovers()


@with_each_kind
def test_leaving_early_keeps_the_loader(options):
    loader = gluon.data.DataLoader(gluon.data.SimpleDataset([nd.array([n]) for n in range(20)]), 2, **options)
    for _ in range(3):
        for batch in loader:
            assert batch.asnumpy().tolist() == [[0], [1]]
            break
    assert len(list(loader)) == 10
    loader.close()


def test_a_loop_over_a_loader_that_nothing_else_holds(leftovers):
    def batches():
        return iter(gluon.data.DataLoader(gluon.data.SimpleDataset(list(range(9))), 3, num_workers=1))

    running = batches()
    gc.collect()
    assert [batch.tolist() for batch in running] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    del running


@with_each_kind
def test_samples_that_fail_can_be_left_out_or_replaced(options):
    with gluon.data.DataLoader(Failing(), 4, on_error="skip", **options) as loader:
        assert [batch.asnumpy().tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6], [8, 9, 10, 11]]
        assert [(error.index, type(error.__cause__)) for error in loader.errors] == [(7, NotGoodError)]
    with gluon.data.DataLoader(Failing(), 4, on_error="replace", **options) as loader:
        assert [batch.asnumpy().tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 4], [8, 9, 10, 11]]
        assert loader.error_report()["errors"][0]["replaced_by"] == 4


def test_too_many_failures_are_an_error():
    loader = gluon.data.DataLoader(Failing(), 4, on_error="skip", max_errors=0)
    with pytest.raises(TooManyErrorsError):
        list(loader)


PATCHED = """
    import sys
    import aioloader.mxnet as mx

    mx.nd.patched = lambda value: value + 1

    class Data:
        def __len__(self):
            return 2

        def __getitem__(self, index):
            return mx.nd.patched(mx.nd.array([index]))

    class Unsendable(Data):
        def __init__(self):
            self.lines = (line for line in "ab")

    for options in ({"num_workers": 1}, {"num_workers": 1, "thread_pool": True}):
        try:
            with mx.gluon.data.DataLoader(Data(), 2, **options) as loader:
                print([batch.asnumpy().tolist() for batch in loader])
        except AttributeError as error:
            print(error.__notes__[-1])
    try:
        with mx.gluon.data.DataLoader(Unsendable(), 2, num_workers=1) as loader:
            list(loader)
    except Exception as error:
        print(" ".join(str(error).split()))
"""


def test_what_the_script_patched_is_absent_in_workers_and_the_error_says_so(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(PATCHED))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    apart, threads, unsendable = done.stdout.splitlines()
    assert "a new process and not a fork as in MXNet" in apart
    assert "thread_pool=True" in apart
    assert threads == "[[[1.0], [2.0]]]"
    assert "thread_pool=True" in unsendable
    assert "executor=" not in unsendable
