"""Tests of samplers and sources that hold the event loop: they are reported from a thread, and nothing else is."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

import aioloader

RELEASE_S = 20.0


class Waiting(logging.Handler):
    """Handler that sets `reported` when the report has come.

    Attributes:
        reports: the messages.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reported = threading.Event()
        self.reports: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if "held the event loop" in text:
            self.reports.append(text)
            self.reported.set()


@pytest.fixture
def reports() -> Iterator[Waiting]:
    handler = Waiting()
    logger = logging.getLogger("aioloader")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


class QueueSampler:
    """Batch sampler that waits in the event loop for something that another thread gives."""

    def __init__(self, given: threading.Event) -> None:
        self._given = given

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Iterator[list[int]]:
        yield [0, 1]
        assert self._given.wait(RELEASE_S)
        yield [2, 3]


DATA = aioloader.SimpleDataset(list(range(4))).transform(int)


@pytest.mark.parametrize("executor", ["thread", "process"])
async def test_a_sampler_that_blocks_is_named(reports: Waiting, executor: str) -> None:
    loader: aioloader.AsyncDataLoader = aioloader.AsyncDataLoader(
        DATA,
        batch_sampler=QueueSampler(reports.reported),
        num_workers=1,
        executor=executor,
        stall_timeout=0.1,
    )
    async with loader:
        assert [batch.tolist() async for batch in loader] == [[0, 1], [2, 3]]
    assert "the batch sampler QueueSampler has held the event loop" in reports.reports[0]
    assert "in __iter__" in reports.reports[0]


async def test_a_source_that_blocks_is_named(reports: Waiting) -> None:
    async def source() -> AsyncIterator[int]:
        yield 0
        assert reports.reported.wait(RELEASE_S)
        yield 1

    dataset = aioloader.IterableDataset(source)
    async with aioloader.AsyncDataLoader(
        dataset, 1, num_workers=1, executor="thread", stall_timeout=0.1
    ) as loader:
        assert [batch.tolist() async for batch in loader] == [[0], [1]]
    assert "the source of IterableDataset has held the event loop" in reports.reports[0]
    assert "in source" in reports.reports[0]


async def test_the_loop_body_is_not_reported(reports: Waiting) -> None:
    body = threading.Event()
    async with aioloader.AsyncDataLoader(
        DATA, batch_sampler=[[0], [1]], num_workers=1, executor="thread", stall_timeout=0.05
    ) as loader:
        async for _ in loader:
            body.wait(0.3)  # the caller's own work, which holds the loop for several times the limit
    assert not reports.reports


async def test_no_thread_is_left(leftovers: object, reports: Waiting) -> None:
    async with aioloader.AsyncDataLoader(
        DATA, batch_sampler=[[0], [1]], num_workers=1, executor="thread"
    ) as loader:
        async for _ in loader:
            break
