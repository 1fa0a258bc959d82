"""Tests of samples that kill their worker, or leave it unable to answer: detected, named, and recovered."""

import ctypes
import os
import signal
import sys
import threading

import cloudpickle
import numpy as np
import psutil
import pytest

from aioloader import DataLoader, SimpleDataset, WorkerError
from tests.aioloader.loader.programs import run_program
from tests.aioloader.loader.samples import Numbers, labels

pytestmark = pytest.mark.own_workers

# Workers need not import this module and its imports at every start.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


DEATHS = {
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "SIGSEGV": lambda: ctypes.string_at(0),
    "SIGABRT": os.abort,
    "_exit": lambda: os._exit(3),
}
CODES = {"SIGKILL": -signal.SIGKILL, "SIGSEGV": -signal.SIGSEGV, "SIGABRT": -signal.SIGABRT, "_exit": 3}


class Deadly:
    """Dataset of numbers; item 25 writes a line to a file and kills its process."""

    def __init__(self, how, tries):
        self.how = how
        self.tries = tries

    def __len__(self):
        return 60

    def __getitem__(self, index):
        if index == 25:
            with open(self.tries, "a") as file:
                file.write("one\n")
            DEATHS[self.how]()
        return index


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "policy"),
    [(how, policy) for how in DEATHS for policy in ("skip", "replace")],
)
def test_a_sample_that_ends_its_worker_is_named_within_three_tries(how, policy, tmp_path, leftovers):
    tries = tmp_path / "tries"
    with DataLoader(Deadly(how, tries), 10, num_workers=2, on_error=policy) as loader:
        seen = [number for batch in loader for number in batch.tolist()]
        (error,) = loader.errors
        assert loader.stats().restarts == 3
    assert tries.read_text().count("one") == 3
    assert (error.index, type(error.__cause__), error.__cause__.exit_code) == (25, WorkerError, CODES[how])
    assert error.stage == "dataset"
    assert error.replaced_by == (None if policy == "skip" else 26)
    expected = [n for n in range(60) if n != 25]
    assert seen == (expected if policy == "skip" else sorted([*expected, 26]))


def _die_at_13(number):
    if number == 13:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.slow
def test_the_error_has_the_stage_in_which_the_worker_died(leftovers):
    chain = SimpleDataset(list(range(30))).transform(float).transform(_die_at_13).transform(abs)
    with DataLoader(chain, 6, num_workers=2, on_error="skip") as loader:
        assert [number for batch in loader for number in batch.tolist()] == [n for n in range(30) if n != 13]
        (error,) = loader.errors
    assert (error.index, error.stage) == (13, "transform:_die_at_13")


class Closing(Numbers):
    """Dataset whose item 5 closes its worker's files; the worker can no longer answer."""

    def __getitem__(self, index):
        if index == 5:
            os.closerange(3, 1000)
        return super().__getitem__(index)


@pytest.mark.slow
@pytest.mark.parametrize("whole", [False, True], ids=["rows", "whole"])
def test_a_sample_after_which_its_worker_cannot_answer_is_named(whole, leftovers):
    batchify = (lambda samples: ([], np.array([number for _, number in samples]))) if whole else None
    with DataLoader(Closing(24), 4, num_workers=2, on_error="skip", batchify_fn=batchify) as loader:
        assert labels(loader) == [[n for n in range(s, s + 4) if n != 5] for s in range(0, 24, 4)]
        (error,) = loader.errors
    assert (error.index, error.stage, type(error.__cause__)) == (5, "collate", WorkerError)


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


class Forking:
    """Dataset whose item 5 starts a lasting process, records both process ids, and waits to be killed."""

    def __init__(self, told):
        self.told = told

    def __len__(self):
        return 12

    def __getitem__(self, index):
        if index == 5 and not os.path.exists(self.told):
            child = os.fork()
            if child == 0:
                signal.pause()
            with open(f"{self.told}.new", "w") as file:
                file.write(f"{os.getpid()} {child}")
            os.rename(f"{self.told}.new", self.told)
            signal.pause()
        return index


@pytest.mark.slow
def test_a_death_is_noticed_although_a_child_of_the_worker_lives_on(tmp_path, leftovers):
    told = tmp_path / "numbers"
    found = []

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
    with DataLoader(Forking(told), 4, num_workers=1) as loader:
        killer.start()
        try:
            assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
        finally:
            stop.set()
            killer.join()
        assert loader.stats().restarts == 1
        psutil.wait_procs(found, timeout=30)
        assert not found[0].is_running() or found[0].status() == psutil.STATUS_ZOMBIE
