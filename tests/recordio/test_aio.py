"""Tests of the async reader and writer, under asyncio and under trio."""

import asyncio
import contextlib
import pickle
from pathlib import Path

import anyio
import pytest
import trio

import recordio
from recordio import (
    CorruptRecordError,
    IndexNotFoundError,
    RecordReader,
    RecordWriter,
    TruncatedRecordError,
    errors,
    testing,
)
from recordio.aio import AsyncRecordReader, AsyncRecordWriter
from tests.cases import on_both_loops, with_cases
from tests.recordio.sources import Memory, Unsized

RECORDS = [b"", b"abc", b"\x0a\x23\xd7\xce" * 3, b"x" * 2_500_000, b"last"]


class AsyncMemory:
    """Async byte source in memory."""

    def __init__(self, data):
        self.data = data
        self.calls = 0
        self.closed = False

    async def size(self):
        await anyio.lowlevel.checkpoint()
        return len(self.data)

    async def read_ranges(self, ranges):
        await anyio.lowlevel.checkpoint()
        self.calls += 1
        return [self.data[offset : offset + length] for offset, length in ranges]

    async def aclose(self):
        self.closed = True


class AsyncUnsized:
    """Minimal async byte source."""

    def __init__(self, data):
        self.data = data

    async def read_ranges(self, ranges):
        await anyio.lowlevel.checkpoint()
        return [self.data[offset : offset + length] for offset, length in ranges]


@pytest.fixture
def rec(tmp_path):
    path = tmp_path / "a.rec"
    path.write_bytes(testing.frame(RECORDS))
    return path


@pytest.fixture
def indexed(tmp_path):
    path = tmp_path / "b.rec"
    with RecordWriter(path, index=True) as writer:
        for key, record in enumerate(RECORDS):
            writer.write(record, key=key * 10)
    return path


async def everything(target, index=None):
    async with AsyncRecordReader(target, index) as reader:
        return [record async for record in reader]


@with_cases("kind", [AsyncUnsized, Unsized])
@on_both_loops
async def test_a_source_needs_no_size(rec, kind):
    async def by_position(source):
        async with AsyncRecordReader(source) as reader:
            await reader.load()
            return await reader.read_many(range(len(reader)))

    data = rec.read_bytes()
    for way in (everything, by_position):
        assert await way(kind(data)) == RECORDS
        with pytest.raises(TruncatedRecordError):
            await way(kind(data[:-8]))
    rec.with_suffix(".idx").write_text(RecordReader(rec).index.format())
    opener = {"async_opener": lambda url: kind(Path(url.removeprefix("bare://")).read_bytes())}
    recordio.register_opener("bare", lambda url: Unsized(b""), **opener)
    assert await everything(f"bare://{rec}") == RECORDS
    rec.with_suffix(".idx").unlink()


def test_a_short_async_source_raises(run_on):
    class Short(AsyncMemory):
        async def size(self):
            return len(self.data) + 12

    with pytest.raises(errors.ShortReadError, match="its size promises more"):
        run_on(everything, Short(testing.frame([b"a", b"b"])))


def test_iteration_reads_all_records(run_on, rec, indexed):
    assert run_on(everything, rec) == RECORDS
    assert run_on(everything, indexed) == RECORDS
    assert run_on(everything, rec, indexed.with_suffix(".idx")) == RECORDS


@on_both_loops
async def test_reading_by_position_and_key(indexed):
    async with AsyncRecordReader(indexed) as reader:
        assert len(reader) == 5
        assert list(reader.keys) == [0, 10, 20, 30, 40]
        assert await reader.read(1) == b"abc"
        assert await reader.read(-1) == b"last"
        assert await reader.read_key(20) == RECORDS[2]
        assert await reader.read_many([4, 3, 0, 4]) == [RECORDS[n] for n in (4, 3, 0, 4)]
        assert await reader.read_many([]) == []
        with pytest.raises(IndexError):
            await reader.read(5)
        with pytest.raises(KeyError):
            await reader.read_key(5)


@on_both_loops
async def test_without_an_index_the_file_is_scanned_at_first_use(rec):
    async with AsyncRecordReader(rec) as reader:
        with pytest.raises(errors.ClosedError, match="load"):
            len(reader)
        assert await reader.read(3) == RECORDS[3]
        assert len(reader) == 5


@with_cases("source", [Memory, AsyncMemory])
@on_both_loops
async def test_any_source_can_be_read(source):
    target = source(testing.frame(RECORDS))
    assert await everything(target) == RECORDS
    async with AsyncRecordReader(target) as reader:
        assert await reader.read_many([2, 1]) == [RECORDS[2], RECORDS[1]]
    assert getattr(target, "closed", True)


@on_both_loops
async def test_urls_go_to_the_async_opener(indexed):
    sources = []

    def opener(url):
        sources.append(AsyncMemory(Path(url.removeprefix("amem://")).read_bytes()))
        return sources[-1]

    recordio.register_opener("amem", lambda url: Memory(b""), async_opener=opener)

    async with AsyncRecordReader(f"amem://{indexed}") as reader:
        assert await reader.read_key(10) == b"abc"
    assert all(source.closed for source in sources)
    with pytest.raises(IndexNotFoundError):
        await everything(f"amem://{indexed}", "amem:///no.idx")


@on_both_loops
async def test_missing_files_and_damage_are_named(tmp_path):
    with pytest.raises(FileNotFoundError):
        await everything(tmp_path / "no.rec")
    damaged = tmp_path / "damaged.rec"
    damaged.write_bytes(testing.frame([b"one"]) + b"garbage.")
    with pytest.raises(IndexNotFoundError):
        await everything(damaged, tmp_path / "no.idx")
    async with AsyncRecordReader(damaged) as reader:
        records = reader.__aiter__()
        assert await records.__anext__() == b"one"
        with pytest.raises(CorruptRecordError) as caught:
            await records.__anext__()
    assert caught.value.offset == 12


@on_both_loops
async def test_many_tasks_read_at_once(indexed):
    async with AsyncRecordReader(indexed) as reader, anyio.create_task_group() as group:

        async def check(number):
            assert await reader.read(number) == RECORDS[number]

        for number in range(40):
            group.start_soon(check, number % 5)


@on_both_loops
async def test_closing_during_a_read_lets_it_finish(indexed):
    reader = AsyncRecordReader(indexed)
    await reader.load()
    await reader.aclose()
    await reader.aclose()
    with pytest.raises(errors.ClosedError):
        await reader.read(0)


async def test_nothing_blocks_the_loop(no_blocking, rec, indexed, tmp_path):
    assert await everything(rec) == RECORDS
    assert await everything(indexed) == RECORDS
    async with AsyncRecordReader(rec) as reader:
        assert await reader.read(1) == b"abc"
    async with AsyncRecordWriter(tmp_path / "w.rec") as writer:
        for record in RECORDS:
            await writer.write(record, key=len(record))


async def test_a_cancelled_read_leaves_the_reader_usable(indexed):
    async with AsyncRecordReader(indexed) as reader:
        task = asyncio.create_task(reader.read(3))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await reader.read(3) == RECORDS[3]


@on_both_loops
async def test_an_async_reader_is_pickled_as_its_path(indexed):
    async with AsyncRecordReader(indexed) as reader:
        copy = pickle.loads(pickle.dumps(reader))
    async with copy:
        assert await copy.read(1) == b"abc"


# --- writing ---


@with_cases("index", [True, None, False])
def test_the_async_writer_writes_what_the_blocking_one_does(run_on, tmp_path, index):
    async def main():
        async with AsyncRecordWriter(tmp_path / "a.rec", index) as writer:
            offsets = [await writer.write(record) for record in RECORDS]
            assert len(writer) == 5
        await writer.aclose()
        return offsets

    offsets = run_on(main)
    with RecordWriter(tmp_path / "b.rec", index) as writer:
        assert [writer.write(record) for record in RECORDS] == offsets
    assert (tmp_path / "a.rec").read_bytes() == (tmp_path / "b.rec").read_bytes()
    assert (tmp_path / "a.idx").exists() == (tmp_path / "b.idx").exists()
    if index:
        assert (tmp_path / "a.idx").read_bytes() == (tmp_path / "b.idx").read_bytes()
    for name in ("a.idx", "b.idx"):
        (tmp_path / name).unlink(missing_ok=True)


def test_many_tasks_write_and_every_record_is_whole(run_on, tmp_path):
    path = tmp_path / "a.rec"

    async def main():
        async with AsyncRecordWriter(path) as writer, anyio.create_task_group() as group:
            for number in range(60):
                group.start_soon(writer.write, bytes([number]) * 100_000, number)

    run_on(main)
    with RecordReader(path) as reader:
        assert len(reader) == 60
        assert all(reader.read_key(number) == bytes([number]) * 100_000 for number in range(60))


async def test_a_cancelled_write_is_not_lost_and_not_doubled(tmp_path):
    path = tmp_path / "a.rec"
    records = [bytes([n]) * 1_500_000 for n in range(4)]
    async with AsyncRecordWriter(path) as writer:
        for record in records:
            task = asyncio.create_task(writer.write(record))
            await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):  # unless the disk was faster
                await task
    assert list(RecordReader(path)) == records


@on_both_loops
async def test_a_writer_refuses_before_opening_after_closing_and_pickling(tmp_path):
    writer = AsyncRecordWriter(tmp_path / "a.rec")
    with pytest.raises(errors.ClosedError):
        await writer.write(b"early")
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(writer)
    async with writer:
        with pytest.raises(errors.PayloadTypeError):
            await writer.write("text")
    with pytest.raises(errors.ClosedError):
        await writer.write(b"late")


@with_cases("with_index", [False, True], ids=["stream", "index"])
@on_both_loops
async def test_a_record_longer_than_the_limit_is_refused(tmp_path, with_index):
    path = tmp_path / "a.rec"
    with RecordWriter(path, index=with_index) as writer:
        for record in (b"short", b"x" * 21):
            writer.write(record)
    async with AsyncRecordReader(path, max_record_bytes=20) as reader:
        assert await reader.read(0) == b"short"
        with pytest.raises(CorruptRecordError, match="at most 20 bytes"):
            await reader.read(1)
        with pytest.raises(CorruptRecordError, match="at most 20 bytes"):
            _ = [record async for record in reader]


@on_both_loops
async def test_an_index_that_is_too_large_is_refused_and_its_source_closed():
    class Endless(AsyncMemory):
        async def size(self):
            return 1 << 40

    source = Endless(b"")

    def opener(url):
        return source if url.endswith(".idx") else AsyncMemory(testing.frame([b"a"]))

    recordio.register_opener("endless", lambda url: Memory(b""), async_opener=opener)
    with pytest.raises(errors.CorruptIndexError, match="no more than"):
        async with AsyncRecordReader("endless://x.rec") as reader:
            await reader.read(0)
    assert source.closed


# --- which loop it is ---


async def _count(path):
    async with AsyncRecordReader(path) as reader:
        return len([record async for record in reader])


def test_tasks_of_both_loops_read_in_guest_mode(rec):
    async def host():
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        trio.lowlevel.start_guest_run(
            _count,
            rec,
            run_sync_soon_threadsafe=loop.call_soon_threadsafe,
            done_callback=lambda outcome: done.set_result(outcome.unwrap()),
        )
        counts = [await _count(rec) for _ in range(3)]  # while the guest runs
        return [*counts, await done]

    assert asyncio.run(host()) == [len(RECORDS)] * 4
