"""Tests of workers that are forks of the script, as torch's are: what they have, and what they must not have."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import pytest

import aioloader
from tests.aioloader.cluster import wait_until
from tests.aioloader.interop.torch_samples import MARKS, Samples

pytestmark = MARKS

settings = types.ModuleType("aioloader_test_settings")
settings.scale = 1


class Locked:
    """Dataset that cannot be pickled."""

    def __init__(self, samples):
        self.lock = threading.Lock()
        self.samples = samples
        self.rows = (row for row in range(10))  # a generator

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        with self.lock:
            return self.samples[index] * settings.scale


class Batched(Locked):
    """Dataset that cannot be pickled and reads batches."""

    def __getitems__(self, indices):
        return [self[index] for index in indices]


class Killed(Locked):
    """Dataset of which one sample kills its worker once."""

    def __init__(self, samples, path):
        super().__init__(samples)
        self.path = path

    def __getitem__(self, index):
        if index == 5 and not self.path.exists():
            self.path.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


class Facts(Samples):
    """Dataset whose samples are facts of the process that makes them."""

    def __getitem__(self, index):
        return {
            "session": os.getsid(0) == os.getpid(),
            "input": os.readlink("/proc/self/fd/0"),
            "terminated": signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,
            "parent": os.getppid(),
            "threads": os.environ.get("OMP_NUM_THREADS"),
        }


@pytest.mark.parametrize(("workers", "batched"), [(1, True), (2, False)])
def test_nothing_has_to_be_picklable(torch, ours, workers, batched, leftovers):
    lock = threading.Lock()

    def collate(samples):
        with lock:
            return torch.tensor(samples)

    def begin(slot):
        with lock:
            settings.scale = 3

    dataset = Locked(list(range(20)))
    if batched:
        dataset.__class__ = Batched
    loader = ours(dataset, 6, num_workers=workers, collate_fn=collate, worker_init_fn=begin)
    assert torch.cat(list(loader)).tolist() == [3 * each for each in range(20)]
    assert settings.scale == 1
    loader.close()


def test_workers_have_what_the_script_has_set_in_modules(ours, spawned, monkeypatch):
    monkeypatch.setitem(sys.modules, "aioloader_test_settings", settings)
    monkeypatch.setattr(settings, "scale", 7)
    loader = ours(Locked([1, 2]), 2, num_workers=1)
    assert next(iter(loader)).tolist() == [7, 14]
    loader.close()


def test_what_a_script_does_after_the_start_of_an_epoch_is_not_in_it(ours, monkeypatch):
    dataset = Locked(list(range(64)))
    loader = ours(dataset, 2, num_workers=2)
    batches = iter(loader)
    dataset.samples = [-1] * 64
    monkeypatch.setattr(settings, "scale", 9)
    assert [each for batch in batches for each in batch.tolist()] == list(range(64))
    loader.close()


@pytest.mark.parametrize("persistent", [False, True])
def test_changes_of_what_cannot_be_pickled_are_in_the_next_epoch_unless_workers_persist(ours, persistent):
    dataset = Locked([1, 2])
    loader = ours(dataset, 2, num_workers=1, persistent_workers=persistent)
    assert next(iter(loader)).tolist() == [1, 2]
    dataset.samples[0] = 5
    assert next(iter(loader)).tolist() == ([1, 2] if persistent else [5, 2])
    loader.close()


def test_a_worker_that_is_killed_is_replaced_by_another_fork(ours, tmp_path, leftovers):
    loader = ours(Killed(list(range(30)), tmp_path / "killed"), 4, num_workers=2)
    assert [each for batch in loader for each in batch.tolist()] == list(range(30))
    assert (tmp_path / "killed").exists()
    loader.close()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_fork_is_a_process_of_its_own(ours):
    previous = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        loader = ours(Facts([0, 0]), None, num_workers=1, collate_fn=lambda sample: sample)
        for facts in loader:
            assert facts == {
                "session": True,
                "input": os.devnull,
                "terminated": True,
                "parent": os.getpid(),
                "threads": os.environ.get("OMP_NUM_THREADS", "1"),
            }
        loader.close()
    finally:
        signal.signal(signal.SIGTERM, previous)


async def test_workers_do_not_disturb_an_event_loop_of_the_script(ours, leftovers):
    loop = asyncio.get_running_loop()
    received = asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR2, received.set)
    try:
        loader = ours(Locked(list(range(8))), 2, num_workers=2)
        batches = await asyncio.to_thread(lambda: [each for batch in loader for each in batch.tolist()])
        assert batches == list(range(8))
        os.kill(os.getpid(), signal.SIGUSR2)
        await asyncio.wait_for(received.wait(), 10)
        loader.close()
    finally:
        loop.remove_signal_handler(signal.SIGUSR2)


@pytest.mark.slow
def test_one_loader_is_closed_at_once_while_forks_of_another_live(ours, leftovers):
    first, second = (ours(Locked(list(range(40))), 4, num_workers=2) for _ in range(2))
    one, two = iter(first), iter(second)
    assert next(one).tolist() == next(two).tolist()
    begin = time.monotonic()
    first.close()
    assert time.monotonic() - begin < 1.0
    assert len([*two]) == 9
    second.close()


def test_with_another_start_method_workers_are_new_interpreters(torch, spawned):
    for method in ("spawn", "forkserver", torch.multiprocessing.get_context("spawn")):
        with pytest.raises(aioloader.WorkerError, match="cannot be sent to worker processes"):
            list(spawned(Locked([1]), num_workers=1, multiprocessing_context=method))


def run(tmp_path: Path, text: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "script.py"
    script.write_text(text)
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        [sys.executable, str(script)], env=buffered, capture_output=True, text=True, timeout=120, check=False
    )


def test_forks_write_what_they_print_once_and_end_with_a_script_that_is_killed(tmp_path):
    done = run(
        tmp_path,
        """
import os, signal, sys
from aioloader.interop.torch import DataLoader

class Printing:
    def __len__(self):
        return 4

    def __getitem__(self, index):
        print("sample", index)
        return index

class Killed(Printing):
    path = sys.argv[0] + ".killed"

    def __getitem__(self, index):
        if index == 2 and not os.path.exists(self.path):
            print("about to be killed", file=sys.stderr)
            open(self.path, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        return index

class Pids:
    def __len__(self):
        return 100

    def __getitem__(self, index):
        return os.getpid()

print("before")
for dataset, workers in ((Printing(), 2), (Killed(), 1)):
    loader = DataLoader(dataset, 1, num_workers=workers)
    assert [each.item() for each in loader] == [0, 1, 2, 3]
    loader.close()
print("after")
loaders = [DataLoader(Pids(), 2, num_workers=2) for _ in range(2)]
found = {each for loader in loaders for batch, _ in zip(loader, range(20)) for each in batch.tolist()}
print(*found, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
""",
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert done.stderr.count("about to be killed") == 1
    *lines, last = done.stdout.splitlines()
    assert sorted(lines) == ["after", "before", *(f"sample {index}" for index in range(4))]
    pids = [int(each) for each in last.split()]
    assert len(pids) > 1
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


def test_asking_whether_to_fork_leaves_the_start_method_open(tmp_path):
    done = run(
        tmp_path,
        """
import torch, multiprocessing
from aioloader.interop.torch import DataLoader

loader = DataLoader(torch.utils.data.TensorDataset(torch.arange(4)), 2, num_workers=1)
loader.load_state_dict(loader.state_dict())
multiprocessing.set_start_method("spawn")
""",
    )
    assert done.returncode == 0, done.stderr


def test_a_fork_that_the_system_refuses_is_a_named_error(ours, monkeypatch, leftovers):
    def refuse():
        raise BlockingIOError(11, "Resource temporarily unavailable")

    loader = ours(Locked([1, 2]), 2, num_workers=2)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fork", refuse)
        with pytest.raises(aioloader.WorkerError, match="a worker process cannot be started"):
            list(loader)
    loader.close()
    assert next(iter(loader)).tolist() == [1, 2]
    loader.close()


def test_own_datasets_are_read_by_forks_only_if_the_script_asks(ours, photo_rec):
    records = aioloader.RecordFileDataset(photo_rec)
    for context, executor in ((None, "process"), ("fork", "fork"), ("spawn", "process")):
        loader = ours(records, 4, num_workers=1, collate_fn=list, multiprocessing_context=context)
        assert [each for batch in loader for each in batch] == [records[i] for i in range(len(records))]
        assert loader.stats().executor == executor
        loader.close()
