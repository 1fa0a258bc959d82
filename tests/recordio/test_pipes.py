"""Tests of record files that can only be read once and in order: named pipes, standard input, devices."""

import asyncio
import contextlib
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import recordio
from recordio import MXIndexedRecordIO, MXRecordIO, RecordReader, serialize
from recordio.aio import AsyncRecordReader
from recordio.errors import NotSeekableError, WrongProcessError
from tests.cases import with_cases
from tests.recordio.test_mxnet import run_in_child

# Small and large ones, one that contains the magic word, and an empty one.
RECORDS = [b"a", b"b" * 300_000, b"\n#\xd7\xce" * 3, b"", b"last"]


def read_async(path, got):
    async def read():
        async with AsyncRecordReader(path) as reader:
            async for record in reader:
                got(record)

    asyncio.run(read())


def read_by_iterating(make):
    def read(path, got):
        with make(path) as reader:
            for record in reader:
                got(record)

    return read


READERS = {
    "MXRecordIO": read_by_iterating(lambda path: MXRecordIO(path, "r")),
    "RecordReader": read_by_iterating(RecordReader),
    "AsyncRecordReader": read_async,
}


@pytest.fixture
def pipe(tmp_path):
    """Return a named pipe, and join the threads that write to it."""
    path = tmp_path / "a.rec"
    os.mkfifo(path)
    (tmp_path / "a.idx").write_text("0\t0\n")  # of a file that was there before
    before = set(threading.enumerate())
    yield str(path)
    os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))  # a writer without a reader ends
    for thread in set(threading.enumerate()) - before:
        if thread.name == "writer":
            thread.join()


def feed(path, records, wait=lambda: None):
    """Write records into a pipe from a thread, and wait behind each."""

    def write():
        with contextlib.suppress(BrokenPipeError), open(path, "wb", buffering=0) as file:
            for record in records:
                view = memoryview(serialize(record))
                while view:
                    view = view[file.write(view) :]
                wait()

    threading.Thread(target=write, name="writer").start()


@with_cases("name", READERS)
def test_a_pipe_is_read_in_order_and_no_further_than_its_writer_has_written(name, pipe):
    taken = threading.Semaphore(0)
    # The next record is written when this one was read.
    feed(pipe, RECORDS, taken.acquire)
    found = []

    def got(record):
        found.append(record)
        taken.release()

    try:
        READERS[name](pipe, got)
    finally:
        taken.release(len(RECORDS))
    assert found == RECORDS


@with_cases("cut", [3, 11, 300_017])
def test_a_pipe_that_ends_inside_a_record_is_truncated(cut, pipe):
    data = b"".join(map(serialize, RECORDS))[:cut]

    def write():
        with contextlib.suppress(BrokenPipeError):
            Path(pipe).write_bytes(data)

    threading.Thread(target=write, name="writer").start()
    with RecordReader(pipe) as reader, pytest.raises(recordio.TruncatedRecordError):
        list(reader)


def test_standard_input_and_devices_are_read_in_order():
    program = "import recordio; print([len(each) for each in recordio.RecordReader('/dev/stdin')])"
    found = subprocess.run(
        [sys.executable, "-c", program],
        input=b"".join(map(serialize, RECORDS)),
        capture_output=True,
        check=True,
    )
    assert found.stdout.decode().strip() == str([len(each) for each in RECORDS])
    assert list(RecordReader(os.devnull)) == []


def _second_pass(path):
    feed(path, RECORDS)
    with RecordReader(path) as reader:
        assert list(reader) == RECORDS
        list(reader)


async def _async_position(path):
    async with AsyncRecordReader(path) as reader:
        await reader.read(0)


async def _async_index(path):
    async with AsyncRecordReader(path, index=path + ".idx"):
        pass


@with_cases(
    "use",
    [
        lambda path: RecordReader(path)[0],
        lambda path: len(RecordReader(path)),
        lambda path: RecordReader(path).read_key(0),
        lambda path: RecordReader(path, index=path[:-4] + ".idx"),
        lambda path: pickle.dumps(MXRecordIO(path, "r").handle),
        lambda path: MXIndexedRecordIO(path[:-4] + ".idx", path, "r"),
        lambda path: recordio.Index.scan(path),
        lambda path: recordio.Index.open(path),
        lambda path: recordio.verify(path),
        lambda path: recordio.repair(path, path + ".copy"),
        lambda path: recordio.build_index(path, path + ".idx"),
        lambda path: asyncio.run(_async_position(path)),
        lambda path: asyncio.run(_async_index(path)),
        _second_pass,
    ],
)
def test_what_needs_positions_refuses_a_pipe_by_name(use, pipe):
    with pytest.raises(NotSeekableError, match="can only be read once") as caught:
        use(pipe)
    assert caught.value.path == pipe
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.offset) == (str(caught.value), caught.value.offset)


def test_a_forked_child_does_not_take_records_of_a_pipe(pipe):
    feed(pipe, RECORDS)
    with RecordReader(pipe) as reader:
        records = iter(reader)
        assert next(records) == RECORDS[0]

        def child():
            with pytest.raises(WrongProcessError):
                next(records)

        run_in_child(child)
        assert list(records) == RECORDS[1:]


@with_cases(
    "make",
    [lambda path: MXRecordIO(path, "w"), lambda path: recordio.RecordWriter(path, index=False)],
)
def test_a_pipe_is_not_written_to(make, pipe):
    with pytest.raises(NotSeekableError, match="has no offsets") as caught:
        make(pipe)
    assert caught.value.path == pipe


def test_a_read_that_was_cancelled_does_not_keep_the_program_waiting(pipe):
    program = (
        "import asyncio, sys, threading\n"
        "from recordio.aio import AsyncRecordReader\n"
        "async def main():\n"
        "    async with AsyncRecordReader(sys.argv[1]) as reader:\n"
        "        before = threading.active_count()\n"
        "        read = asyncio.ensure_future(anext(aiter(reader)))\n"
        "        while threading.active_count() == before:\n"
        "            await asyncio.sleep(0)\n"
        "        read.cancel()\n"
        "        await asyncio.wait([read])\n"
        "asyncio.run(main())\n"
    )
    subprocess.run([sys.executable, "-c", program, pipe], check=True, timeout=60)  # nobody ever writes
