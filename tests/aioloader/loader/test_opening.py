"""Tests of a dataset that opens slowly: the loader says so, can be left at any moment, and leaves nothing behind."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

import aioloader
from aioloader.errors import LoaderClosedError
from aioloader.executors.process.child import ChildProcess
from aioloader.executors.process.executor import ProcessExecutor
from aioloader.foundation.opening import current_opening, in_this_opening, limited
from tests.cases import on_both_loops

WAIT_S = 120.0


class SlowFolder(aioloader.ImageFolderDataset):
    """Folder whose files are opened only once the test says so."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.begun = threading.Event()
        self.let_go = threading.Event()
        self.closed = threading.Event()
        self.limits: list[float] = []

    def open_source(self) -> Any:
        self.limits.append(limited(99.0))
        self.begun.set()
        assert self.let_go.wait(WAIT_S)
        source = super().open_source()
        close = source.close

        def closing() -> None:
            self.closed.set()
            close()

        source.close = closing
        return source


@pytest.fixture
def folder(photo_folder: Path) -> SlowFolder:
    return SlowFolder(photo_folder)


OPTIONS: dict[str, Any] = {"executor": "thread", "num_workers": 1, "batchify_fn": aioloader.batchify.AsList()}


@on_both_loops
async def test_leaving_does_not_wait_for_the_dataset(folder: SlowFolder) -> None:
    async with aioloader.AsyncDataLoader(folder, 4, **OPTIONS) as loader:

        async def take() -> None:
            async for _ in loader:
                pass

        with anyio.fail_after(WAIT_S / 2):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(take)
                await anyio.to_thread.run_sync(folder.begun.wait)
                tasks.cancel_scope.cancel()
        # The opening goes on, and the next pass uses it.
        assert not folder.let_go.is_set()
        folder.let_go.set()
        assert sum([len(batch) async for batch in loader]) == len(folder)
        assert len(folder.limits) == 1
    assert folder.closed.is_set()


def test_what_is_opened_after_the_end_is_closed(folder: SlowFolder, leftovers: Any) -> None:
    loader = aioloader.DataLoader(folder, 4, **OPTIONS)
    batches = iter(loader)
    assert folder.begun.wait(WAIT_S)
    loader.close()
    with pytest.raises(LoaderClosedError):
        next(batches)
    assert not folder.closed.is_set()
    folder.let_go.set()
    assert folder.closed.wait(WAIT_S)


@pytest.mark.parametrize("executor", ["inline", "thread"])
def test_a_loader_that_opens_slowly_reports_where_it_is(
    folder: SlowFolder, executor: str, caplog: pytest.LogCaptureFixture
) -> None:
    def let_go(record: logging.LogRecord) -> bool:
        if getattr(record, "stage", None) == "open":
            reports.append(record)
            if len(reports) == 2:
                folder.let_go.set()
        return True

    reports: list[logging.LogRecord] = []
    caplog.handler.addFilter(let_go)
    options = {**OPTIONS, "executor": executor, "num_workers": 0 if executor == "inline" else 1}
    with aioloader.DataLoader(folder, 4, stall_timeout=0.1, timeout=7, **options) as loader:
        next(iter(loader))
    caplog.handler.removeFilter(let_go)
    assert folder.limits == [7]
    for report in reports:
        assert "has been opening" in report.getMessage()
        assert "in open_source" in report.getMessage()
    assert reports[1].seconds > reports[0].seconds  # type: ignore[attr-defined]


def test_threads_of_an_opening_have_its_limits() -> None:
    from aioloader.foundation.opening import Opening

    assert limited(5.0) == 5.0
    token = current_opening.set(Opening(2.0))
    try:
        inside = in_this_opening(limited)
    finally:
        current_opening.reset(token)
    found = []
    thread = threading.Thread(target=lambda: found.append((inside(5.0), inside(1.0), limited(5.0))))
    thread.start()
    thread.join()
    assert found == [(2.0, 1.0, 5.0)]


class RemoteFolder(SlowFolder):
    """The same, as if its files were far away."""

    reads_ahead = True

    def open_source(self) -> Any:
        self.reads_ahead = False  # they are not
        return super().open_source()


def test_workers_start_while_a_remote_dataset_is_opened(
    photo_folder: Path, monkeypatch: pytest.MonkeyPatch, leftovers: Any
) -> None:
    folder = RemoteFolder(photo_folder)
    started: list[ChildProcess] = []
    both = threading.Event()
    start = ChildProcess.start

    def starting(child: ChildProcess, *args: Any, **options: Any) -> None:
        start(child, *args, **options)
        started.append(child)
        if len(started) == 2:
            both.set()

    monkeypatch.setattr(ChildProcess, "start", starting)
    options = {**OPTIONS, "executor": "process", "num_workers": 2}
    with aioloader.DataLoader(folder, 4, **options) as loader:
        batches = iter(loader)
        assert both.wait(WAIT_S)
        assert not folder.let_go.is_set()
        folder.let_go.set()
        assert sum(map(len, batches)) == len(folder)
        assert loader.stats().workers == 2
    assert len(started) == 2


def test_workers_of_a_dataset_that_cannot_be_opened_are_ended(
    photo_folder: Path, monkeypatch: pytest.MonkeyPatch, leftovers: Any
) -> None:
    prepared = threading.Event()
    prepare = ProcessExecutor._start_idle

    def preparing(executor: ProcessExecutor) -> None:
        prepare(executor)
        prepared.set()

    def fail(folder: RemoteFolder) -> Any:
        assert prepared.wait(WAIT_S)
        raise OSError("the server is gone")

    monkeypatch.setattr(ProcessExecutor, "_start_idle", preparing)
    monkeypatch.setattr(RemoteFolder, "open_source", fail)
    options = {**OPTIONS, "executor": "process", "num_workers": 2}
    with aioloader.DataLoader(RemoteFolder(photo_folder), 4, **options) as loader:
        with pytest.raises(OSError, match="the server is gone"):
            next(iter(loader))
