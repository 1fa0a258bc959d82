"""Tests of the byte source of rows of blocks: items, failures, cancellation, announcements and memory."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import anyio
import numpy as np
import pytest

from aioloader.abc import ByteSource
from aioloader.errors import RemoteReadError, SampleFormatError
from aioloader.formats.parquet.block import Block, ColumnBytes, null_column, split_item
from aioloader.formats.parquet.block_source import BlockByteSource
from aioloader.foundation.types import Spans
from tests.aioloader.storage.reading import spans
from tests.cases import on_both_loops
from tests.conftest import RunOn

ROWS = 10


def column(values: Sequence[bytes | None]) -> ColumnBytes:
    length = np.array([-1 if value is None else len(value) for value in values], np.int64)
    data = np.frombuffer(b"".join(value or b"" for value in values) or b"\0", np.uint8)
    kept = np.maximum(length, 0)
    return ColumnBytes(data, np.cumsum(kept) - kept, length)


def text(number: int, row: int) -> bytes:
    return b"%d.%d" % (number, row) * (row + 1)


class Reader:
    """Blocks of ten rows in two parts, each row a text and a null; block 3 is damaged, and row 5 of block 4."""

    paths = tuple(f"file-{number // 2}" for number in range(8))
    source = ByteSource()

    def __init__(self, nbytes: int = 100) -> None:
        self.loaded: list[int] = []
        self.closed = False
        self.go = threading.Event()
        self.go.set()
        self.lock = threading.Lock()
        self._nbytes = nbytes
        self.slow: set[int] = set(range(8))  # blocks that wait for `go`

    def nbytes(self, number: int) -> int:
        return self._nbytes

    def read(self, number: int) -> Block:
        with self.lock:
            self.loaded.append(number)
        assert number not in self.slow or self.go.wait(20)
        if number == 3:
            raise SampleFormatError("damaged", path=self.paths[3])
        if number == 7:
            raise RemoteReadError("http://a/b", 0, 1, attempts=1, seconds=1.0, reason="away")
        parts = []
        for rows in (range(4), range(4, ROWS)):
            parts.append([column([text(number, row) for row in rows]), null_column(len(rows))])
        faults = {5: "no image"} if number == 4 else {}
        return Block(parts, faults=faults, nbytes=self._nbytes)

    def fault(self, number: int, row: int, reason: str) -> Exception:
        return SampleFormatError(reason, path=self.paths[number], key=row)

    def close(self) -> None:
        self.closed = True


def source(reader: Reader, *, limit_nbytes: int = 1000, announced: int = 20) -> BlockByteSource:
    return BlockByteSource(reader, limit_nbytes=limit_nbytes, threads=3, announced=announced)


def wanted(*rows: tuple[int, int]) -> Spans:
    return spans(*[(block, row, -1) for block, row in rows])


def items(plan: Any, data: memoryview) -> list[bytes | None]:
    """Return the first field of each item, None for items that failed."""
    found: list[bytes | None] = []
    for start, length in zip(plan.start.tolist(), plan.length.tolist(), strict=True):
        if start < 0:
            assert length == 0
            found.append(None)
            continue
        first, second = split_item(data[start : start + length])
        assert second is None
        assert first is not None
        found.append(bytes(first))
    return found


def test_it_has_the_abilities_that_a_loader_looks_for() -> None:
    with_reader = source(Reader())
    assert with_reader.blocks
    assert with_reader.fetches
    assert with_reader.paths == Reader.paths
    assert with_reader.announced == 20
    assert with_reader.samples_ahead == 0
    with_reader.close()


@pytest.mark.parametrize("limit_nbytes", [1000, 250], ids=["kept", "copied"])
def test_items_are_the_rows(run_on: RunOn, limit_nbytes: int, leftovers: object) -> None:
    rows = [(2, 9), (0, 0), (2, 3), (1, 4), (0, 0), (5, 7)]
    expected = [text(*row) for row in rows]
    reader = Reader()

    async def main() -> list[bytes | None]:
        blocks = source(reader, limit_nbytes=limit_nbytes)
        try:
            plan = await blocks.plan(wanted(*rows))
            assert plan.failures == []
            out = memoryview(bytearray(plan.nbytes + 5))
            assert await blocks.read(plan, out) == []
            return items(plan, out)
        finally:
            blocks.close()

    assert run_on(main) == expected
    assert sorted(reader.loaded) == [0, 1, 2, 5]
    assert reader.closed
    blocking = source(Reader(), limit_nbytes=limit_nbytes)
    assert items(*blocking.fetch(wanted(*rows))) == expected
    blocking.close()


def test_large_batches_are_copied_in_a_thread(run_on: RunOn, leftovers: object) -> None:
    rows = [(0, 9)] * 20_000

    async def main() -> int:
        blocks = source(Reader())
        plan = await blocks.plan(wanted(*rows))
        out = memoryview(bytearray(plan.nbytes))
        await blocks.read(plan, out)
        found = items(plan, out)
        blocks.close()
        return sum(item == text(0, 9) for item in found)

    assert run_on(main) == len(rows)


def test_a_damaged_block_fails_its_items_only(run_on: RunOn) -> None:
    rows = [(3, 1), (4, 5), (4, 4), (3, 2), (0, 1), (1, 10), (1, -1)]

    async def main() -> tuple[Any, list[bytes | None]]:
        blocks = source(Reader())
        plan = await blocks.plan(wanted(*rows))
        out = memoryview(bytearray(plan.nbytes))
        await blocks.read(plan, out)
        blocks.close()
        return plan, items(plan, out)

    plan, found = run_on(main)
    assert found == [None, None, text(4, 4), None, text(0, 1), None, None]
    assert [place for place, _ in plan.failures] == [0, 1, 3, 5, 6]
    reasons = [error.reason for _, error in plan.failures]
    assert reasons == ["damaged", "no image", "damaged", "there is no such row", "there is no such row"]


def test_a_server_that_cannot_be_reached_fails_the_batch(run_on: RunOn, leftovers: object) -> None:
    async def main() -> None:
        blocks = source(Reader())
        try:
            await blocks.plan(wanted((0, 0), (7, 0)))
        finally:
            blocks.close()

    with pytest.raises(RemoteReadError):
        run_on(main)
    blocking = source(Reader())
    with pytest.raises(RemoteReadError):
        blocking.plan_blocking(wanted((7, 0)))


def test_a_cancelled_plan_ends_at_once_and_its_load_serves_the_next(run_on: RunOn, leftovers: object) -> None:
    reader = Reader()
    reader.go.clear()

    async def main() -> list[bytes | None]:
        blocks = source(reader)
        with anyio.move_on_after(0.05) as scope:
            await blocks.plan(wanted((0, 1), (1, 2)))
        assert scope.cancelled_caught
        reader.go.set()
        with anyio.fail_after(60):
            plan = await blocks.plan(wanted((0, 1), (1, 2)))
        out = memoryview(bytearray(plan.nbytes))
        await blocks.read(plan, out)
        blocks.close()
        return items(plan, out)

    assert run_on(main) == [text(0, 1), text(1, 2)]
    assert sorted(reader.loaded) == [0, 1]


@on_both_loops
async def test_announced_blocks_are_loaded_before_they_are_planned(leftovers: object) -> None:
    reader = Reader()

    blocks = source(reader)
    await blocks.plan(wanted())
    blocks.announce(wanted((1, 0), (1, 5), (2, 0), (3, 0), (0, 0)))  # room for two, a quarter of the limit
    with anyio.fail_after(60):
        while not (blocks.cache.peek(1) and blocks.cache.peek(2)):
            await anyio.sleep(0.001)
    assert sorted(reader.loaded) == [1, 2]
    await blocks.plan(wanted((1, 0), (2, 1)))
    assert sorted(reader.loaded) == [1, 2]
    blocks.announce(wanted((3, 0)))  # an error waits for those who need the block
    with anyio.fail_after(60):
        while 3 not in reader.loaded:
            await anyio.sleep(0.001)
    plan = await blocks.plan(wanted((3, 0)))
    assert [str(error) for _, error in plan.failures] == ["file-1: damaged"]
    blocks.close()
    blocks.announce(wanted((0, 0)))
    assert 0 not in reader.loaded


@on_both_loops
async def test_a_batch_does_not_wait_behind_blocks_that_are_loaded_ahead(leftovers: object) -> None:
    reader = Reader()
    reader.go.clear()
    reader.slow = {0}
    blocks = source(reader, limit_nbytes=10_000)
    await blocks.plan(wanted())
    blocks.announce(wanted((0, 0), (1, 0), (2, 0)))
    with anyio.fail_after(60):
        while not reader.loaded:
            await anyio.sleep(0.001)
        await blocks.plan(wanted((4, 0), (5, 0)))
        assert set(reader.loaded) == {0, 4, 5}  # at first, one is loaded ahead at a time
        reader.go.set()
        while not blocks.cache.peek(2):
            await anyio.sleep(0.001)
    blocks.close()


@on_both_loops
async def test_no_block_is_loaded_ahead_before_those_of_the_first_batch(leftovers: object) -> None:
    reader = Reader()
    reader.go.clear()
    reader.slow = {4}
    blocks = source(reader, limit_nbytes=10_000)
    blocks.announce(wanted((5, 0), (4, 0)))
    blocks.announce(wanted((2, 0)))
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(blocks.plan, wanted((4, 0), (5, 0)))
            while not (4 in reader.loaded and blocks.cache.peek(5)):
                await anyio.sleep(0.001)
            assert set(reader.loaded) == {4, 5}
            reader.go.set()
        while not blocks.cache.peek(2):
            await anyio.sleep(0.001)
    assert sorted(reader.loaded) == [2, 4, 5]
    blocks.close()


def test_a_closed_source_refuses() -> None:
    blocks = source(Reader())
    blocks.close()
    blocks.close()
    with pytest.raises(RuntimeError, match="closed"):
        blocks.plan_blocking(wanted((0, 0)))
    with pytest.raises(RuntimeError, match="closed"):
        anyio.run(blocks.plan, wanted((0, 0)))


def test_an_empty_batch_is_a_plan(run_on: RunOn) -> None:
    async def main() -> int:
        blocks = source(Reader())
        plan = await blocks.plan(wanted())
        assert await blocks.read(plan, memoryview(b"")) == []
        blocks.close()
        return plan.nbytes

    assert run_on(main) == 0
