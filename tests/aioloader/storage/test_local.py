"""Tests of the local byte source: every item's bytes in its place, few reads, and independent errors."""

import asyncio
import errno
import os
import pickle
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recordio
from aioloader.foundation.types import IntArray, ReadPlan, SpanKind
from aioloader.storage import LocalByteSource
from aioloader.storage.local import descriptors
from aioloader.storage.local import source as local
from aioloader.storage.local.mapped import Residency
from tests.aioloader.storage.reading import fetch, spans, whole


def test_it_works_without_an_event_loop(path: str) -> None:
    source = LocalByteSource([path], kind=SpanKind.RECORD)

    assert source.blocks
    assert source.fetches
    assert source.paths == [path]


def test_items_are_read_in_any_order(path: str, content: bytes) -> None:
    wanted = [(0, 500, 100), (0, 8, 12), (0, 120_000, 70_000), (0, 500, 100), (0, 520, 200)]

    items, failures = fetch(LocalByteSource([path], kind=SpanKind.RECORD), spans(*wanted))

    assert not failures
    assert items == [content[offset : offset + length] for _, offset, length in wanted]


def test_several_files_are_not_mixed_and_few_stay_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_OPEN_FILES", 3)
    paths = [str(tmp_path / f"{number}.rec") for number in range(10)]
    for number, name in enumerate(paths):
        Path(name).write_bytes(bytes([number]) * 100)
    source = LocalByteSource(paths, kind=SpanKind.RECORD)
    before = len(os.listdir("/proc/self/fd"))

    for _ in range(2):
        items, failures = fetch(source, spans(*[(number, 10, 20) for number in range(10)]))
        assert not failures
        assert items == [bytes([number]) * 20 for number in range(10)]
        assert len(os.listdir("/proc/self/fd")) - before == 3

    source.close()
    source.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_descriptors_are_not_inherited(path: str) -> None:
    with descriptors.Descriptors(0).borrow(0, path) as fd:
        assert not os.get_inheritable(fd)


def test_closing_waits_for_reading_threads(path: str) -> None:
    table = descriptors.Descriptors(4)
    with table.borrow(0, path) as fd:
        table.close()
        assert os.pread(fd, 4, 0)
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        os.fstat(fd)


def test_a_dropped_source_closes_its_files(path: str) -> None:
    before = len(os.listdir("/proc/self/fd"))
    source = LocalByteSource([path], kind=SpanKind.RECORD)
    fetch(source, spans((0, 0, 8)))
    del source

    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    "bad",
    [
        (0, 199_000, 5000),
        (0, 200_000, 100),
        (0, 10**15, 100),
        (0, -4, 100),
        (0, 100, 0),
        (0, 100, -1),
        (0, 199_996, 4),
    ],
    ids=["cut", "at-the-end", "far", "negative", "empty", "whole", "no-head"],
)
def test_a_span_outside_of_the_file_is_one_items_error(
    path: str, content: bytes, bad: tuple[int, int, int]
) -> None:
    source = LocalByteSource([path], kind=SpanKind.RECORD)

    items, failures = fetch(source, spans((0, 198_900, 1000), bad, (0, 8, 16)))

    assert items == [content[198_900:199_900], None, content[8:24]]
    assert list(failures) == [1]
    error = failures[1]
    assert isinstance(error, recordio.TruncatedRecordError)
    assert isinstance(error, EOFError)
    assert (error.path, error.offset) == (path, bad[1])


def test_a_missing_file_fails_only_its_own_items(path: str, content: bytes, tmp_path: Path) -> None:
    gone = str(tmp_path / "gone.rec")

    items, failures = fetch(
        LocalByteSource([gone, path], kind=SpanKind.RECORD), spans((0, 0, 10), (1, 0, 10), (0, 10, 10))
    )

    assert items == [None, content[:10], None]
    assert all(isinstance(failures[place], FileNotFoundError) for place in (0, 2))


def test_a_read_error_fails_only_the_items_that_it_touches(
    path: str, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.preadv

    def preadv(fd: int, buffers: Sequence[Any], offset: int) -> int:
        if offset < 1500 < offset + len(buffers[0]):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", preadv)

    items, failures = fetch(
        LocalByteSource([path], kind=SpanKind.RECORD), spans((0, 0, 1000), (0, 1000, 1000), (0, 2000, 1000))
    )

    assert items == [content[:1000], None, content[2000:3000]]
    assert failures[1].errno == errno.EIO  # type: ignore[attr-defined]  # an OSError


def test_short_reads_are_continued(path: str, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, offset: real(fd, [buffers[0][:7]], offset))

    assert fetch(LocalByteSource([path], kind=SpanKind.RECORD), spans((0, 0, 100)))[0] == [content[:100]]


def test_without_preadv_it_seeks(path: str, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "preadv")

    assert fetch(LocalByteSource([path], kind=SpanKind.RECORD), spans((0, 8, 100), (0, 90_000, 9))) == (
        [content[8:108], content[90_000:90_009]],
        {},
    )


async def test_reading_leaves_the_event_loops_thread_once(
    path: str, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers = []
    real = LocalByteSource.read_blocking

    def read_blocking(self: LocalByteSource, plan: ReadPlan, out: memoryview) -> Any:
        readers.append(threading.current_thread())
        return real(self, plan, out)

    monkeypatch.setattr(LocalByteSource, "read_blocking", read_blocking)
    source = LocalByteSource([path], kind=SpanKind.RECORD)
    plan = await source.plan(spans((0, 0, 100), (0, 100_000, 100)))
    assert source._threads is None  # no file had to be queried
    out = memoryview(bytearray(plan.nbytes))

    assert await source.read(plan, out) == []
    assert bytes(out[plan.start[1] : plan.start[1] + 100]) == content[100_000:100_100]
    assert len(readers) == 1
    assert threading.main_thread() not in readers
    source.close()
    assert not any(thread.is_alive() for thread in readers)


async def test_sizes_of_files_are_read_in_a_thread(files: list[str]) -> None:
    source = LocalByteSource(files, kind=SpanKind.FILE)

    plan = await source.plan(whole(0, 2))

    assert plan.length.tolist() == [10, 5000]
    assert source._threads is not None
    source.close()


async def test_a_cancelled_read_ends_only_when_nothing_writes_any_more(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, go_on, done = asyncio.Event(), threading.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    real = os.preadv

    def preadv(fd: int, buffers: Sequence[Any], offset: int) -> int:
        loop.call_soon_threadsafe(started.set)
        go_on.wait(10)
        got = real(fd, buffers, offset)
        done.set()
        return got

    monkeypatch.setattr(os, "preadv", preadv)
    source = LocalByteSource([path], kind=SpanKind.RECORD)
    plan = source.plan_blocking(spans((0, 0, 100)))
    task = asyncio.create_task(source.read(plan, memoryview(bytearray(plan.nbytes))))
    await started.wait()

    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done.is_set()
    source.close()


async def test_a_closed_source_says_so(path: str) -> None:
    source = LocalByteSource([path], kind=SpanKind.RECORD)
    plan = source.plan_blocking(spans((0, 0, 100)))
    source.close()

    with pytest.raises(RuntimeError, match="closed"):
        await source.read(plan, memoryview(bytearray(plan.nbytes)))
    with pytest.raises(RuntimeError, match="closed"):
        source.read_blocking(plan, memoryview(bytearray(plan.nbytes)))


def test_a_pickled_source_opens_its_files_again(path: str, content: bytes) -> None:
    source = LocalByteSource([path], kind=SpanKind.RECORD)
    fetch(source, spans((0, 0, 10)))
    copy = pickle.loads(pickle.dumps(source))
    source.close()

    assert fetch(copy, spans((0, 4, 10)))[0] == [content[4:14]]


def test_threads_can_share_a_source(path: str, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_OPEN_FILES", 1)
    paths = [path, path + "2"]
    os.link(path, paths[1])
    source = LocalByteSource(paths, kind=SpanKind.RECORD)
    wrong: list[object] = []

    def work(number: int) -> None:
        for turn in range(100):
            offset = (number * 7919 + turn * 104_729) % 190_000
            items, failures = fetch(source, spans((turn % 2, offset, 50), ((turn + 1) % 2, offset, 60)))
            if failures or items != [content[offset : offset + 50], content[offset : offset + 60]]:
                wrong.append((items, failures))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not wrong


def test_only_ranges_that_are_not_in_memory_are_announced(
    path: str, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def partly_resident(residency: Residency, fds: Sequence[int]) -> None:
        residency.known, residency.complete, residency.next_check = True, False, float("inf")

    source = LocalByteSource([path], kind=SpanKind.RECORD)
    kernel_aio = source._kernel_aio
    if not kernel_aio.available:
        pytest.skip("this system has no native asynchronous reads")
    read_together = kernel_aio.read
    announced: list[int] = []

    def read(fd: int, reads: IntArray, out: memoryview, *, wait: bool = True) -> IntArray:
        if wait:
            return read_together(fd, reads, out)
        got = np.full(len(reads), -1)
        resident = reads[:, 1] < 100_000
        got[resident] = read_together(fd, reads[resident], out)
        return got

    monkeypatch.setattr(Residency, "check", partly_resident)
    monkeypatch.setattr(kernel_aio, "read", read)
    monkeypatch.setattr(local, "read_ahead", lambda fd, offset, nbytes: announced.append(offset))
    wanted = [(0, offset, 100) for offset in (150_000, 0, 110_000, 50_000, 190_000)]

    items, failures = fetch(source, spans(*wanted))

    assert not failures
    assert items == [content[offset : offset + length] for _, offset, length in wanted]
    assert announced == [110_000, 150_000, 190_000]
