"""Tests of many reads by one system call: the same bytes as one by one, and a correct count of missing reads."""

import os
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import recordio
from aioloader.foundation.types import SpanKind, Spans
from aioloader.storage.layout import ALIGNMENT, lay_out_apart
from aioloader.storage.local import kernel_aio
from aioloader.storage.local.kernel_aio import KernelAioReader
from aioloader.storage.local.source import LocalByteSource

CONTENT = np.random.default_rng(0).bytes(100_000)


@pytest.fixture
def fd(tmp_path):
    file = tmp_path / "data"
    file.write_bytes(CONTENT)
    fd = os.open(file, os.O_RDONLY)
    yield fd
    os.close(fd)


@pytest.fixture
def reads(fd):
    made = KernelAioReader()
    if not made.available or made.read(fd, np.ones((1, 4), np.int64), memoryview(bytearray(2)))[0] != 1:
        pytest.skip("this system has no native asynchronous I/O")
    yield made
    made.close()


def table(pairs):
    """Rows as in `aioloader.storage.layout.Read` of (offset, bytes), one after the other in memory."""
    offset, nbytes = np.array(pairs, np.int64).reshape(-1, 2).T
    return np.stack((offset * 0, offset, nbytes, np.cumsum(nbytes) - nbytes), axis=1)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 120_000), st.integers(0, 3000)), max_size=40))
def test_many_reads_return_the_bytes_of_single_reads(fd, reads, triples):
    rows = table(triples)
    out = bytearray(int(rows[:, 2].sum()) + 1)
    got = reads.read(fd, rows, memoryview(out))
    for (_, start, nbytes, at), count in zip(rows.tolist(), got.tolist(), strict=True):
        assert count == len(CONTENT[start : start + nbytes])
        assert out[at : at + count] == CONTENT[start : start + count]


def test_more_reads_than_fit_into_one_call(fd, reads):
    rows = table([(n * 97, 90) for n in range(1000)])
    out = bytearray(90_000)
    assert (reads.read(fd, rows, memoryview(out)) == 90).all()
    assert out == b"".join(CONTENT[n * 97 : n * 97 + 90] for n in range(1000))


def test_a_bad_descriptor_reads_nothing(reads):
    rows = table([(0, 10), (20, 10)])
    assert (reads.read(10_000, rows, memoryview(bytearray(20))) < 0).all()


def test_threads_may_share_it(fd, reads):
    wrong = []

    def work(seed):
        draws = np.random.default_rng(seed)
        for _ in range(50):
            rows = table([(at, 500) for at in draws.integers(0, 99_000, 60)])
            out = bytearray(30_000)
            got = reads.read(fd, rows, memoryview(out))
            if not (got == 500).all() or out != b"".join(
                CONTENT[at : at + 500] for at in rows[:, 1].tolist()
            ):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("how", ["another system", "forbidden"])
def test_a_source_reads_without_it(monkeypatch, tmp_path, how):
    if how == "another system":
        monkeypatch.setattr(kernel_aio.sys, "platform", "darwin")
    else:
        monkeypatch.setattr(kernel_aio, "_NUMBERS", dict.fromkeys(kernel_aio._NUMBERS, (100_000,) * 4))
    file = tmp_path / "data.rec"
    file.write_bytes(CONTENT)
    source = LocalByteSource((str(file),), kind=SpanKind.RECORD)
    offset = np.array([0, 40_000, 80_000])
    plan = source.plan_blocking(Spans(np.zeros(3, np.int64), offset, np.full(3, 1000)))
    out = bytearray(plan.nbytes)
    assert source.read_blocking(plan, memoryview(out)) == []
    for at, start in zip(offset.tolist(), plan.start.tolist(), strict=True):
        assert out[start : start + 1000] == CONTENT[at : at + 1000]
    source.close()


def test_a_source_reads_on_when_no_more_contexts_are_to_be_had(tmp_path, monkeypatch):
    file = tmp_path / "data.rec"
    file.write_bytes(CONTENT)
    made = KernelAioReader()
    file_fd = os.open(file, os.O_RDONLY)
    try:
        rows = table([(0, 100), (5000, 100)])
        if (made.read(file_fd, rows, memoryview(bytearray(200))) != 100).any():
            pytest.skip("this system has no native asynchronous I/O")
        (context,) = made._idle  # another thread has taken it
        made._idle.clear()
        real = made._call
        monkeypatch.setattr(
            made, "_call", lambda number, *rest: -1 if number == made._setup else real(number, *rest)
        )
        assert (made.read(file_fd, rows, memoryview(bytearray(200))) < 0).all()
        assert not made.available
        made._idle.append(context)  # and returns it
        made.close()
    finally:
        os.close(file_fd)


def test_without_waiting_only_bytes_in_memory_are_read(fd, reads):
    rows = table([(n * 4096, 1000) for n in range(24)])
    out = memoryview(bytearray(24_000))
    got = reads.read(fd, rows, out, wait=False)
    if not reads.reads_without_waiting:
        pytest.skip("this file system cannot read without waiting")
    assert (got == 1000).all()
    assert bytes(out[1000:2000]) == CONTENT[4096:5096]
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    got = reads.read(fd, rows, out, wait=False)
    if (got == 1000).all():
        pytest.skip("this file system keeps its files in memory")
    assert (got < 1000).any()
    assert (reads.read(fd, rows, out) == 1000).all()


async def test_bytes_in_memory_are_read_without_a_thread(tmp_path, monkeypatch):
    path = tmp_path / "a.rec"
    records = [bytes([n]) * (40 + 4 * n) for n in range(60)]
    with recordio.RecordWriter(path, index=True) as writer:
        offsets = np.array([writer.write(record) for record in records])
    ends = np.append(offsets[1:], path.stat().st_size)
    order = np.random.default_rng(0).permutation(60)
    spans = Spans(np.zeros(60, np.int64), offsets[order], (ends - offsets)[order])
    source = LocalByteSource([str(path)], kind=SpanKind.RECORD)
    hops = []
    run_in_thread = source.run_in_thread

    async def counted(fn, *args):
        hops.append(fn)
        return await run_in_thread(fn, *args)

    monkeypatch.setattr(source, "run_in_thread", counted)
    for turn in range(3):
        plan = await source.plan(spans)
        out = memoryview(bytearray(plan.nbytes))
        assert await source.read(plan, out) == []
        for start, length, number in zip(plan.start, plan.length, order, strict=True):
            assert bytes(recordio.extract(out[start : start + length])) == records[number]
        if turn and not (source._kernel_aio.available and source._kernel_aio.reads_without_waiting):
            pytest.skip("this system cannot read without waiting")
    if not source._residencies[0].known:
        pytest.skip("this system does not report the content of its page cache")
    assert len(hops) == 1  # the first one, which queried the system
    source.close()


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 10**6), st.integers(0, 3000)), max_size=40))
def test_reads_apart_have_a_place_each(items):
    file, offset, length = np.array(items, np.int64).reshape(-1, 3).T
    nbytes, start, found = lay_out_apart(file, offset, length)
    assert found.tolist() == [
        [*item, place] for item, place in zip(map(list, items), start.tolist(), strict=True)
    ]
    ends = start + np.maximum(length, 1)
    assert (start % ALIGNMENT == 0).all()
    assert (start[1:] >= ends[:-1]).all()
    assert nbytes >= (ends[-1] if len(ends) else 0)
