"""Tests of workers that are forks of this process: what they have, and where they are refused or warned of."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import anyio
import anyio.to_thread
import numpy as np
import pytest

import aioloader
from aioloader import DataLoader, WorkerError
from aioloader.errors import ForkRefusedError, ForkWarning
from aioloader.foundation import forks
from aioloader.transforms import Compose, RandomHorizontalFlip
from tests.cases import with_cases

pytestmark = pytest.mark.own_workers


class Locked:
    """Dataset that cannot be pickled; its samples are (number, process, parent)."""

    def __init__(self, made: Callable[[int], object] = lambda index: None) -> None:
        self.lock = threading.Lock()
        self.made = made

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> tuple[int, int, int]:
        with self.lock:
            self.made(index)
            return index, os.getpid(), os.getppid()


@pytest.fixture
def other_thread() -> Iterator[str]:
    """Return the name of a thread that runs during the test."""
    over = threading.Event()
    thread = threading.Thread(target=over.wait, name="mine")
    thread.start()
    yield thread.name
    over.set()
    thread.join()


def test_nothing_of_the_callers_has_to_be_picklable(leftovers: Any) -> None:
    lock = threading.Lock()

    def collate(samples: list[Any]) -> list[Any]:
        with lock:
            return samples

    with DataLoader(Locked(), 6, executor="fork", num_workers=2, batchify_fn=collate) as loader:
        samples = [sample for batch in loader for sample in batch]
        assert loader.stats().executor == "fork"
    assert [number for number, _, _ in samples] == list(range(40))
    assert {parent for _, _, parent in samples} == {os.getpid()}
    assert os.getpid() not in {process for _, process, _ in samples}


def test_a_fork_that_dies_is_replaced_and_what_kills_three_is_named(leftovers: Any) -> None:
    def die(index: int) -> None:
        if index == 13:
            os.kill(os.getpid(), signal.SIGKILL)

    with DataLoader(Locked(die), 4, executor="fork", num_workers=2, on_error="skip") as loader:
        numbers = [number for batch in loader for number in batch[0].tolist()]
        (error,) = loader.errors
        assert loader.stats().restarts == 3
    assert numbers == [each for each in range(40) if each != 13]
    assert error.index == 13
    assert isinstance(error.__cause__, WorkerError)


def test_a_number_of_forks_can_be_measured() -> None:
    with DataLoader(Locked(), 4, executor="fork", num_workers="auto") as loader:
        assert [number for batch in loader for number in batch[0].tolist()] == list(range(40))
        assert loader.stats().executor == "fork"


def test_pixels_are_those_of_other_executors(photo_rec: Any) -> None:
    dataset = aioloader.ImageRecordDataset(photo_rec).transform_first(Compose([RandomHorizontalFlip()]))

    def batches(**options: Any) -> list[bytes]:
        with DataLoader(dataset, 1, shuffle=True, seed=2, **options) as loader:
            return [pixels.tobytes() for pixels, _ in loader]

    assert batches(executor="fork", num_workers=2) == batches(executor="inline")


@with_cases("open_one", [aioloader.DataLoader, aioloader.ImageService])
def test_cuda_and_systems_without_forks_are_refused(open_one: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def use() -> None:
        if open_one is aioloader.ImageService:
            with aioloader.ImageService(executor="fork", num_workers=1):
                pass
        else:
            with DataLoader(Locked(), 4, executor="fork", num_workers=1) as loader:
                next(iter(loader))

    with monkeypatch.context() as patch:
        patch.setattr(forks, "has_cuda_context", lambda: True)
        with pytest.raises(ForkRefusedError, match=r"CUDA.*executor='process'") as caught:
            use()
        assert "CUDA" in caught.value.reason
    with monkeypatch.context() as patch:
        patch.delattr(os, "fork")
        with pytest.raises(ForkRefusedError, match="no forks"):
            use()


def test_an_interpreter_that_cannot_fork_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise RuntimeError("fork not supported for isolated subinterpreters")

    monkeypatch.setattr(os, "fork", refuse)
    with (
        DataLoader(Locked(), 4, executor="fork", num_workers=1) as loader,
        pytest.raises(WorkerError, match="isolated subinterpreters"),
    ):
        next(iter(loader))


class Cuda:
    """Library of a driver with two devices.

    Args:
        begun: the process has begun to use it.
        active: devices with a context.
    """

    def __init__(self, begun: bool, active: tuple[int, ...]) -> None:
        self.begun = begun
        self.active = active

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = 2
        return 0 if self.begun else 3

    def cuDevicePrimaryCtxGetState(self, device: int, flags: Any, active: Any) -> int:
        active._obj.value = device in self.active
        return 0


@with_cases(("begun", "active", "found"), [(False, (0, 1), False), (True, (), False), (True, (1,), True)])
def test_a_cuda_context_is_found_on_any_device(
    begun: bool, active: tuple[int, ...], found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name, mode: Cuda(begun, active))
    assert forks.has_cuda_context() == found


@pytest.mark.gpu
def test_a_cuda_context_is_found(torch: Any) -> None:
    code = """
        import torch
        from aioloader.foundation.forks import has_cuda_context
        found = [has_cuda_context(), torch.cuda.is_available(), has_cuda_context()]
        torch.zeros(1).cuda()
        print(*found, has_cuda_context())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["False", "True", "False", "True"]


def test_other_threads_are_warned_of_by_name(other_thread: str) -> None:
    with (
        DataLoader(Locked(), 4, executor="fork", num_workers=1) as loader,
        pytest.warns(ForkWarning, match=r"other threads run \(mine\)") as caught,
    ):
        next(iter(loader))
    (warning,) = caught
    assert isinstance(warning.message, ForkWarning)
    assert warning.message.threads == (other_thread,)


@pytest.mark.parametrize("busy", [False, True])
def test_threads_that_trio_keeps_are_warned_of_while_a_function_runs(busy: bool) -> None:
    begun, over = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        over.wait(20)

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(anyio.to_thread.run_sync, work if busy else begun.set)
            await anyio.to_thread.run_sync(begun.wait)
            async with aioloader.AsyncDataLoader(Locked(), 4, executor="fork", num_workers=1) as loader:
                await anext(aiter(loader))
            over.set()

    with pytest.warns(ForkWarning, match=r"other threads run \(.* from ") if busy else nullcontext():
        anyio.run(main, backend="trio")


async def test_threads_of_the_loader_itself_are_not(leftovers: Any) -> None:
    async with aioloader.AsyncDataLoader(Locked(), 4, executor="fork", num_workers=2) as first:
        async for _ in first:
            async with aioloader.AsyncDataLoader(Locked(), 4, executor="fork", num_workers=2) as second:
                async for numbers, *_ in second:
                    assert numbers.tolist() == [0, 1, 2, 3]
                    break
            break


def test_automatic_choice_forks_while_no_other_thread_runs() -> None:
    code = """
        import os, sys, threading
        import aioloader

        class Parents:
            def __len__(self):
                return 8

            def __getitem__(self, index):
                import sys
                return index, int(sys.flags.safe_path)  # 1 in a new interpreter

        def seen():
            with aioloader.DataLoader(Parents(), 4, executor="auto", num_workers=1) as loader:
                found = {number for batch in loader for number in batch[1].tolist()}
                return found, loader.stats().executor

        print(*seen())
        over = threading.Event()
        threading.Thread(target=over.wait).start()
        print(*seen())
        over.set()
    """
    one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        env={**os.environ, **one},
    )
    assert done.stdout.splitlines() == ["{0} process", "{1} process"], done.stderr


def test_objects_are_of_the_callers_classes() -> None:
    class Local:
        """Class that no module has."""

        def __init__(self, number: int) -> None:
            self.number = number

    class Made(Locked):
        """Dataset of objects of such a class."""

        def __getitem__(self, index: int) -> Any:
            return Local(index)

    with DataLoader(Made(), 40, executor="fork", num_workers=1, batchify_fn=list) as loader:
        (batch,) = loader
    assert [type(each) for each in batch] == [Local] * 40


def test_large_arrays_of_a_dataset_are_not_copied() -> None:
    large = np.zeros(1 << 24, np.uint8)
    address = large.ctypes.data  # a copy in the worker would be elsewhere: the inherited one is there already

    def check(index: int) -> None:
        assert large.ctypes.data == address

    with DataLoader(Locked(check), 40, executor="fork", num_workers=1) as loader:
        next(iter(loader))
