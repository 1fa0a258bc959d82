"""Tests of samples that wait for other samples, while the layout of the rows is not known yet."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import anyio
import numpy as np
import pytest

from aioloader import AsyncDataLoader, DataLoader
from aioloader.errors import SampleError
from aioloader.pipeline import batch_task
from aioloader.pipeline.dispatch import Started
from tests.cases import on_both_loops

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EXECUTORS = ["thread", "process"]


def wait_until(condition: Callable[[], bool], otherwise: str) -> None:
    """Wait in a worker for a condition on files: workers share nothing else."""
    deadline = time.monotonic() + 60
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(otherwise)
        time.sleep(0.001)  # between two looks at the files, which announce nothing


class Together:
    """Dataset whose samples are made when a number of them have begun, in any worker.

    Args:
        folder: where the samples note that they have begun.
        together: this number.
        failing: indices of samples that fail afterwards.
        side: extent of the arrays.
    """

    def __init__(self, folder: Path, together: int, failing: tuple[int, ...] = (), side: int = 3) -> None:
        self.folder = folder
        self.together = together
        self.failing = failing
        self.side = side

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        (self.folder / str(index)).touch()
        wait_until(
            lambda: len(list(self.folder.iterdir())) >= self.together, "the other samples did not begin"
        )
        if index in self.failing:
            raise ValueError(f"sample {index}")
        return np.full((self.side, self.side), index, np.float32), index


@pytest.fixture(autouse=True)
def brief_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_task, "_LAYOUT_PATIENCE_S", 0.02)


@pytest.mark.parametrize(("side", "batch_size"), [(3, 1), (300, 2), (3, 4)])
@pytest.mark.parametrize("executor", EXECUTORS)
def test_samples_that_wait_for_each_other_are_made(
    tmp_path: Path, executor: str, batch_size: int, side: int
) -> None:
    dataset = Together(tmp_path, 3, side=side)
    with DataLoader(dataset, batch_size, executor=executor, num_workers=3) as loader:
        for _ in range(2):
            seen = []
            for images, numbers in loader:
                assert (images.dtype, images.shape) == (np.float32, (batch_size, side, side))
                assert np.array_equal(images[:, 0, -1], numbers)
                seen += numbers.tolist()
            assert seen == list(range(12))


@pytest.mark.parametrize(("executor", "batch_size"), [("thread", 1), ("process", 3)])
def test_the_policy_for_errors_holds_for_the_sample_that_was_late(
    tmp_path: Path, executor: str, batch_size: int
) -> None:
    options: dict[str, Any] = {"executor": executor, "num_workers": 3}
    dataset = Together(tmp_path, 3, failing=(0, 3))
    with DataLoader(dataset, batch_size, on_error="skip", **options) as loader:
        assert [n for _, numbers in loader for n in numbers.tolist()] == [1, 2, *range(4, 12)]
        assert sorted(error.index for error in loader.errors) == [0, 3]
    for path in tmp_path.iterdir():
        path.unlink()
    with (
        DataLoader(dataset, batch_size, **options) as loader,
        pytest.raises(SampleError, match="sample 0") as raised,
    ):
        list(loader)
    assert raised.value.index == 0


@pytest.mark.parametrize("executor", EXECUTORS)
@on_both_loops
async def test_an_epoch_can_be_left_while_samples_are_made_without_the_layout(
    tmp_path: Path, executor: str
) -> None:
    async with AsyncDataLoader[Any](Together(tmp_path, 3), 2, executor=executor, num_workers=3) as loader:
        async for _, numbers in loader:
            assert numbers.tolist() == [0, 1]
            break
        assert [n async for _, numbers in loader for n in numbers.tolist()] == list(range(12))


@pytest.mark.parametrize("executor", EXECUTORS)
@on_both_loops
async def test_cancellation_while_samples_wait_for_each_other(tmp_path: Path, executor: str) -> None:
    async with AsyncDataLoader[Any](Together(tmp_path, 4), 2, executor=executor, num_workers=3) as loader:
        async with anyio.create_task_group() as tasks:

            async def cancel_when_begun() -> None:
                while len(list(tmp_path.iterdir())) < 3:
                    await anyio.sleep(0.001)
                tasks.cancel_scope.cancel()

            tasks.start_soon(cancel_when_begun)
            async for _ in loader:
                pytest.fail("no sample can be made")
        (tmp_path / "free").touch()


class SlowFirst(Together):
    """Dataset whose sample 0 is made when the caller has some of the others."""

    def __getitem__(self, index: int) -> Any:
        if index == 0:
            wait_until((self.folder / "taken").exists, "the other samples were not delivered")
        return index


@pytest.mark.parametrize("executor", EXECUTORS)
def test_out_of_order_a_slow_first_sample_does_not_hold_up_the_others(
    tmp_path: Path, executor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_task, "_LAYOUT_PATIENCE_S", 60)
    dataset = SlowFirst(tmp_path, 1)
    with DataLoader(dataset, 1, executor=executor, num_workers=2, in_order=False) as loader:
        seen = []
        for numbers in loader:
            seen += numbers.tolist()
            if len(seen) == 3:
                (tmp_path / "taken").touch()
        assert 0 not in seen[:3]
        assert sorted(seen) == list(range(12))


def test_a_first_sample_that_is_in_time_shows_the_layout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_task, "_LAYOUT_PATIENCE_S", 60)
    with DataLoader(Together(tmp_path, 1), 4, executor="thread", num_workers=2) as loader:
        assert [n for _, numbers in loader for n in numbers.tolist()] == list(range(12))


async def test_a_sample_that_was_abandoned_before_its_task_began_is_released_and_not_made() -> None:
    released: list[int] = []
    chunk: Any = SimpleNamespace(release=lambda: released.append(1))

    async def run(chunks: Any) -> Any:
        raise AssertionError("it must not run")

    started = Started([chunk])
    started.abandon()
    started.abandon()
    await started.run(run)
    assert released == [1]
    assert not started.is_over
