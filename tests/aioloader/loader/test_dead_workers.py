"""Tests of samples that kill their worker, or leave it unable to answer: detected, named, and recovered."""

import ctypes
import os
import signal
import threading

import numpy as np
import psutil
import pytest

from aioloader import DataLoader, SimpleDataset, WorkerError
from tests.aioloader.loader.programs import run_program
from tests.aioloader.loader.samples import Made, Numbers, labels

pytestmark = pytest.mark.own_workers


DEATHS = {
    "SIGKILL": (lambda: os.kill(os.getpid(), signal.SIGKILL), -signal.SIGKILL, "skip"),
    "SIGSEGV": (lambda: ctypes.string_at(0), -signal.SIGSEGV, "replace"),
    "SIGABRT": (os.abort, -signal.SIGABRT, "skip"),
    "_exit": (lambda: os._exit(3), 3, "replace"),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", DEATHS)
def test_a_sample_that_ends_its_worker_is_named_within_three_tries(how, tmp_path, leftovers):
    tries = tmp_path / "tries"
    end, code, policy = DEATHS[how]

    def die_at_25(index):
        if index == 25:
            with open(tries, "a") as file:
                file.write("one\n")
            end()
        return index

    data = SimpleDataset(range(60)).transform(float).transform(die_at_25).transform(abs)
    with DataLoader(data, 10, num_workers=2, on_error=policy) as loader:
        seen = [number for batch in loader for number in batch.tolist()]
        (error,) = loader.errors
        assert loader.stats().restarts == 3
    assert tries.read_text().count("one") == 3
    cause = error.__cause__
    assert (error.index, error.stage, type(cause)) == (25, "transform:die_at_25", WorkerError)
    assert cause.exit_code == code
    assert error.replaced_by == (None if policy == "skip" else 26)
    expected = [n for n in range(60) if n != 25]
    assert seen == (expected if policy == "skip" else sorted([*expected, 26]))
    if how == "SIGKILL":  # as by the kernel, or another guard of the memory
        assert "use fewer workers" in str(error)
    if how == "SIGSEGV":
        assert "in die_at_25" in "\n".join(cause.__notes__)


def closing(index):
    """Close the worker's files at one item, so that it can no longer answer."""
    if index == 5:
        os.closerange(3, 1000)
    return np.zeros(4), index


@pytest.mark.slow
@pytest.mark.parametrize("whole", [False, True], ids=["rows", "whole"])
def test_a_sample_after_which_its_worker_cannot_answer_is_named(whole, leftovers):
    batchify = (lambda samples: ([], np.array([number for _, number in samples]))) if whole else None
    with DataLoader(Made(24, closing), 4, num_workers=2, on_error="skip", batchify_fn=batchify) as loader:
        assert labels(loader) == [[n for n in range(s, s + 4) if n != 5] for s in range(0, 24, 4)]
        (error,) = loader.errors
    assert (error.index, type(error.__cause__)) == (5, WorkerError)
    # Its end is noticed as soon as its files are closed: in the sample, or in what follows it.
    assert error.stage in ("dataset", "collate")


@pytest.mark.slow
def test_a_death_does_not_end_a_program_that_ends_at_broken_pipes():
    code = """
        import contextlib, os, signal
        import aioloader
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        class Data:
            def __len__(self): return 2000
            def __getitem__(self, i): return i
        with aioloader.DataLoader(Data(), 10, num_workers=2) as loader:
            seen = []
            for batch in loader:
                seen += batch.tolist()
                if len(seen) % 100 == 0:
                    for pid in loader._runtime.open().executor.pids[:1]:
                        with contextlib.suppress(ProcessLookupError):  # the one killed before, not replaced yet
                            os.kill(pid, signal.SIGKILL)
            print(seen == list(range(2000)), loader.stats().restarts > 0, loader.errors)
    """
    done = run_program(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True True []\n", "")


@pytest.mark.slow
def test_a_fork_that_comes_back_from_a_transform_does_not_answer_for_its_worker(leftovers):
    def fork(array, number):
        if number == 3 and os.fork() == 0:
            return array + 1000, -1
        return array, number

    with DataLoader(SimpleDataset(Numbers(40)).transform(fork), 4, num_workers=2) as loader:
        for _ in range(2):
            batches = [(array.copy(), numbers.tolist()) for array, numbers in loader]
            assert [numbers for _, numbers in batches] == [list(range(n, n + 4)) for n in range(0, 40, 4)]
            for array, numbers in batches:
                assert array[:, 0, 0].tolist() == numbers
        assert loader.stats().restarts == 0


@pytest.mark.slow
def test_a_death_is_noticed_although_a_child_of_the_worker_lives_on(tmp_path, leftovers):
    told = tmp_path / "numbers"
    found = []

    def fork(index):
        """Start a lasting process, record both process ids, and wait to be killed."""
        if index == 5 and not told.exists():
            child = os.fork()
            if child == 0:
                signal.pause()
            (tmp_path / "new").write_text(f"{os.getpid()} {child}")
            (tmp_path / "new").rename(told)
            signal.pause()
        return index

    def kill():
        while not told.exists():
            stop.wait(0.01)
            if stop.is_set():
                return
        worker, child = map(int, told.read_text().split())
        found.append(psutil.Process(child))
        os.kill(worker, signal.SIGKILL)

    stop = threading.Event()
    killer = threading.Thread(target=kill)
    with DataLoader(Made(12, fork), 4, num_workers=1) as loader:
        killer.start()
        try:
            assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
        finally:
            stop.set()
            killer.join()
        assert loader.stats().restarts == 1
        psutil.wait_procs(found, timeout=30)
        assert not found[0].is_running() or found[0].status() == psutil.STATUS_ZOMBIE
