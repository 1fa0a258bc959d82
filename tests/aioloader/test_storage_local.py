"""The local byte source: every item's bytes in its place, few reads, and one bad item never costs another."""

import asyncio
import errno
import itertools
import os
import pickle
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import recordio
from aioloader import abc
from aioloader._types import ReadPlan, Spans
from aioloader.errors import SpanTooShortError
from aioloader.storage import LocalByteSource, descriptors, local, records
from aioloader.storage.layout import ALIGNMENT, lay_out

MAGIC = (0xCED7230A).to_bytes(4, "little")


def spans(*triples: tuple[int, int, int]) -> Spans:
    table = np.array(triples, np.int64).reshape(-1, 3)
    return Spans(table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy())


def whole(*files: int) -> Spans:
    return spans(*[(file, 0, -1) for file in files])


def fetch(source: LocalByteSource, wanted: Spans) -> tuple[list[bytes | None], dict[int, BaseException]]:
    """The bytes of every item, None where it failed, and the errors."""
    plan = source.plan_blocking(wanted)
    out = memoryview(bytearray(plan.nbytes))
    failures = dict(plan.failures) | dict(source.read_blocking(plan, out))
    items = [
        None if place in failures else bytes(out[start : start + length])
        for place, (start, length) in enumerate(zip(plan.start.tolist(), plan.length.tolist(), strict=True))
    ]
    return items, failures


@pytest.fixture
def content() -> bytes:
    return np.random.RandomState(0).bytes(200_000)


@pytest.fixture
def path(tmp_path: Path, content: bytes) -> str:
    file = tmp_path / "data.rec"
    file.write_bytes(content)
    return str(file)


# -- layout ------------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 400), st.integers(0, 90)), max_size=30),
    st.sampled_from([0, 1, 16, 1000]),
)
def test_every_item_lies_where_its_bytes_are_read_to(triples: list[tuple[int, int, int]], gap: int) -> None:
    wanted = spans(*triples)
    nbytes, start, table = lay_out(wanted.file, wanted.offset, wanted.length, max_gap_bytes=gap)
    reads = table.tolist()

    taken = sorted((place, place + max(size, 1)) for _, _, size, place in reads)
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(taken))
    assert all(end <= nbytes for _, end in taken)
    assert all(place % ALIGNMENT == 0 for *_, place in reads)
    for (file, offset, length), place in zip(triples, start.tolist(), strict=True):
        covering = [
            read
            for read in reads
            if read[0] == file
            and read[3] <= place
            and place + length <= read[3] + read[2]
            and read[1] + (place - read[3]) == offset
        ]
        assert covering


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 300), st.integers(1, 50)), min_size=1, max_size=30)
)
def test_reads_are_merged_exactly_where_the_gap_is_small(triples: list[tuple[int, int, int]]) -> None:
    wanted = spans(*triples)
    reads = lay_out(wanted.file, wanted.offset, wanted.length, max_gap_bytes=10)[2].tolist()

    wanted_bytes = {
        (file, byte) for file, offset, length in triples for byte in range(offset, offset + length)
    }
    for file, offset, size, _ in reads:
        assert (file, offset) in wanted_bytes
        assert (file, offset + size - 1) in wanted_bytes
    for one, other in zip(sorted(reads), sorted(reads)[1:], strict=False):
        if one[0] == other[0]:
            assert other[1] - (one[1] + one[2]) > 10


@pytest.mark.parametrize(
    ("triples", "count"),
    [
        ([(0, 0, 10), (0, 10, 10), (0, 20, 10)], 1),
        ([(0, 20, 10), (0, 0, 10), (0, 10, 10)], 1),
        ([(0, 0, 10), (0, 0, 10)], 1),
        ([(0, 0, 30), (0, 5, 5), (0, 20, 20)], 1),
        ([(0, 0, 10), (0, 26, 10)], 1),
        ([(0, 0, 10), (0, 27, 10)], 2),
        ([(0, 0, 10), (1, 10, 10)], 2),
        ([(0, 2**61, 10), (1, 0, 10), (2, 2**61, 10)], 3),
        ([], 0),
    ],
    ids=["touch", "any-order", "repeat", "overlap", "gap", "wide-gap", "files", "far-offsets", "nothing"],
)
def test_neighbours_become_one_read(triples: list[tuple[int, int, int]], count: int) -> None:
    wanted = spans(*triples)

    assert len(lay_out(wanted.file, wanted.offset, wanted.length, max_gap_bytes=16)[2]) == count


# -- records -----------------------------------------------------------------------------------------------------------


def test_it_fulfils_both_contracts(path: str) -> None:
    source = LocalByteSource([path], whole_files=False)

    assert isinstance(source, abc.BlockingByteSource)
    assert source.paths == [path]


def test_items_are_read_in_any_order(path: str, content: bytes) -> None:
    wanted = [(0, 500, 100), (0, 8, 12), (0, 120_000, 70_000), (0, 500, 100), (0, 520, 200)]

    items, failures = fetch(LocalByteSource([path], whole_files=False), spans(*wanted))

    assert not failures
    assert items == [content[offset : offset + length] for _, offset, length in wanted]


def test_several_files_stay_apart_and_few_stay_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_OPEN_FILES", 3)
    paths = [str(tmp_path / f"{number}.rec") for number in range(10)]
    for number, name in enumerate(paths):
        Path(name).write_bytes(bytes([number]) * 100)
    source = LocalByteSource(paths, whole_files=False)
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
    with descriptors.Descriptors(1).borrow(0, path) as fd:
        assert not os.get_inheritable(fd)


def test_closing_waits_for_who_is_reading(path: str) -> None:
    table = descriptors.Descriptors(4)
    with table.borrow(0, path) as fd:
        table.close()
        assert os.pread(fd, 4, 0)
    with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
        os.fstat(fd)


def test_a_dropped_source_closes_its_files(path: str) -> None:
    before = len(os.listdir("/proc/self/fd"))
    source = LocalByteSource([path], whole_files=False)
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
    source = LocalByteSource([path], whole_files=False)

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
        LocalByteSource([gone, path], whole_files=False), spans((0, 0, 10), (1, 0, 10), (0, 10, 10))
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
        LocalByteSource([path], whole_files=False), spans((0, 0, 1000), (0, 1000, 1000), (0, 2000, 1000))
    )

    assert items == [content[:1000], None, content[2000:3000]]
    assert failures[1].errno == errno.EIO  # type: ignore[attr-defined]


def test_short_reads_are_continued(path: str, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, buffers, offset: real(fd, [buffers[0][:7]], offset))

    assert fetch(LocalByteSource([path], whole_files=False), spans((0, 0, 100)))[0] == [content[:100]]


def test_without_preadv_it_seeks(path: str, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "preadv")

    assert fetch(LocalByteSource([path], whole_files=False), spans((0, 8, 100), (0, 90_000, 9))) == (
        [content[8:108], content[90_000:90_009]],
        {},
    )


# -- spans that are only upper bounds ----------------------------------------------------------------------------------


@pytest.fixture
def sparse(tmp_path: Path) -> str:
    """Two records, the second one split, at both ends of 3 GB of nothing."""
    file = tmp_path / "sparse.rec"
    with file.open("wb") as out:
        out.write(recordio.serialize(b"first"))
        out.seek(3_000_000_000)
        out.write(recordio.serialize(b"abcd" + MAGIC + b"efgh"))
    return str(file)


def test_a_sparse_index_does_not_make_it_read_gigabytes(sparse: str) -> None:
    source = LocalByteSource([sparse], whole_files=False)
    end = os.path.getsize(sparse)
    wanted = spans((0, 0, 3_000_000_000), (0, 3_000_000_000, end - 3_000_000_000))

    plan = source.plan_blocking(wanted)

    assert plan.nbytes < 1000
    items, failures = fetch(source, wanted)
    assert not failures
    assert [bytes(recordio.extract(item or b"")) for item in items] == [b"first", b"abcd" + MAGIC + b"efgh"]


def test_a_long_split_record_is_measured_part_by_part(tmp_path: Path) -> None:
    payload = (b"x" * 400_000 + MAGIC) * 3
    file = tmp_path / "split.rec"
    file.write_bytes(recordio.serialize(payload))
    with file.open("r+b") as out:
        out.truncate(50_000_000)
    source = LocalByteSource([str(file)], whole_files=False)

    items, failures = fetch(source, spans((0, 0, 50_000_000)))

    assert not failures
    assert len(items[0] or b"") == len(recordio.serialize(payload))
    assert bytes(recordio.extract(items[0] or b"")) == payload


@pytest.mark.parametrize(
    ("head", "error"),
    [
        (b"\0" * 8, recordio.CorruptRecordError),
        (MAGIC + (0x1FFFFFFF).to_bytes(4, "little"), recordio.TruncatedRecordError),
        (MAGIC + (3 << 29 | 4).to_bytes(4, "little"), recordio.CorruptRecordError),
    ],
    ids=["no-record", "absurd-length", "wrong-flag"],
)
def test_an_absurd_record_is_refused_before_memory_is_taken(tmp_path: Path, head: bytes, error: Any) -> None:
    file = tmp_path / "bad.rec"
    with file.open("wb") as out:
        out.write(head)
        out.truncate(20_000_000)

    plan = LocalByteSource([str(file)], whole_files=False).plan_blocking(
        spans((0, 0, 20_000_000), (0, 100, 64))
    )

    assert [(place, type(found)) for place, found in plan.failures] == [(0, error)]
    assert plan.nbytes == 64
    assert plan.start.tolist() == [-1, 0]


def test_a_record_of_countless_parts_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_MOST_HEADS", 10)
    parts = MAGIC + (1 << 29).to_bytes(4, "little") + (MAGIC + (2 << 29).to_bytes(4, "little")) * 100
    file = tmp_path / "parts.rec"
    with file.open("wb") as out:
        out.write(parts)
        out.truncate(9_000_000)

    plan = LocalByteSource([str(file)], whole_files=False).plan_blocking(spans((0, 0, 2**62)))

    assert plan.length.tolist() == [9_000_000]


# -- spans that are too short ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("payload", [b"x" * 4000, b"abcd" + (MAGIC + b"efgh") * 400], ids=["whole", "split"])
@pytest.mark.parametrize("span", [1, 4, 8, 12, 1000])
def test_a_span_shorter_than_its_record_is_told_with_the_records_length(
    tmp_path: Path, payload: bytes, span: int
) -> None:
    first, second = recordio.serialize(payload), recordio.serialize(b"second")
    file = tmp_path / "a.rec"
    file.write_bytes(first + second)
    source = LocalByteSource([str(file)], whole_files=False)

    items, failures = fetch(source, spans((0, 0, span), (0, len(first), len(second))))

    assert items[1] == second
    if span < 8:  # no record is so short: it is measured before it is read
        assert (items[0], failures) == (first, {})
        return
    error = failures[0]
    assert isinstance(error, SpanTooShortError)
    assert (error.path, error.offset, error.planned, error.needed) == (str(file), 0, span, len(first))
    assert fetch(source, spans((0, 0, error.needed))) == ([first], {})


@pytest.mark.parametrize("longest", [1 << 23, 8], ids=["read", "measured"])
def test_a_record_that_reaches_over_the_next_head_is_damaged(
    tmp_path: Path, longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_TRUSTED_SPAN_BYTES", longest)
    first, second = bytearray(recordio.serialize(b"x" * 400)), recordio.serialize(b"y" * 400)
    first[4:8] = (600).to_bytes(4, "little")
    file = tmp_path / "a.rec"
    file.write_bytes(first + second)

    items, failures = fetch(
        LocalByteSource([str(file)], whole_files=False),
        spans((0, 0, len(first)), (0, len(first), len(second))),
    )

    assert items == [None, second]
    assert isinstance(failures[0], recordio.CorruptRecordError)
    assert "its length was damaged" in str(failures[0])


# -- whole files -------------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    paths = []
    for number, size in enumerate([10, 0, 5000]):
        file = tmp_path / f"{number}.jpg"
        file.write_bytes(bytes([65 + number]) * size)
        paths.append(str(file))
    return paths


def test_whole_files_are_read_and_closed(files: list[str]) -> None:
    before = len(os.listdir("/proc/self/fd"))

    items, failures = fetch(LocalByteSource(files, whole_files=True), whole(2, 0, 1, 2))

    assert not failures
    assert items == [b"C" * 5000, b"A" * 10, b"", b"C" * 5000]
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_is_no_readable_file_is_one_items_error(files: list[str], tmp_path: Path) -> None:
    (tmp_path / "folder.jpg").mkdir()
    os.mkfifo(tmp_path / "pipe.jpg")
    names = [*files, *[str(tmp_path / name) for name in ("gone.jpg", "folder.jpg", "pipe.jpg")]]

    items, failures = fetch(LocalByteSource(names, whole_files=True), whole(0, 3, 4, 5, 2))

    assert items == [b"A" * 10, None, None, None, b"C" * 5000]
    assert [type(failures[place]) for place in (1, 2, 3)] == [FileNotFoundError, IsADirectoryError, OSError]


def test_an_enormous_file_is_refused(tmp_path: Path, files: list[str]) -> None:
    huge = tmp_path / "huge.jpg"
    with huge.open("wb") as out:
        out.truncate(2**40)

    plan = LocalByteSource([*files, str(huge)], whole_files=True).plan_blocking(whole(3, 0))

    assert plan.nbytes == 64
    assert [place for place, _ in plan.failures] == [0]


def test_files_that_change_after_planning_are_noticed(files: list[str]) -> None:
    source = LocalByteSource(files, whole_files=True)
    plan = source.plan_blocking(whole(0, 1, 2))
    out = memoryview(bytearray(plan.nbytes))
    os.truncate(files[2], 100)
    Path(files[0]).write_bytes(b"grown" * 100)
    os.unlink(files[1])

    failures = dict(source.read_blocking(plan, out))

    assert sorted(failures) == [1, 2]
    assert isinstance(failures[1], FileNotFoundError)
    assert isinstance(failures[2], EOFError)
    assert "shrank from 5000 to 100 bytes" in str(failures[2])
    assert bytes(out[plan.start[0] : plan.start[0] + 10]) == b"growngrown"


# -- asynchronous use --------------------------------------------------------------------------------------------------


async def test_reading_leaves_the_event_loops_thread_once(
    path: str, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers = []
    real = LocalByteSource.read_blocking

    def read_blocking(self: LocalByteSource, plan: ReadPlan, out: memoryview) -> Any:
        readers.append(threading.current_thread())
        return real(self, plan, out)

    monkeypatch.setattr(LocalByteSource, "read_blocking", read_blocking)
    source = LocalByteSource([path], whole_files=False)
    plan = await source.plan(spans((0, 0, 100), (0, 100_000, 100)))
    assert source._threads is None  # nothing had to be asked of a file
    out = memoryview(bytearray(plan.nbytes))

    assert await source.read(plan, out) == []
    assert bytes(out[plan.start[1] : plan.start[1] + 100]) == content[100_000:100_100]
    assert len(readers) == 1
    assert threading.main_thread() not in readers
    source.close()
    assert not any(thread.is_alive() for thread in readers)


async def test_sizes_of_files_are_asked_in_a_thread(files: list[str]) -> None:
    source = LocalByteSource(files, whole_files=True)

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
    source = LocalByteSource([path], whole_files=False)
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
    source = LocalByteSource([path], whole_files=False)
    plan = source.plan_blocking(spans((0, 0, 100)))
    source.close()

    with pytest.raises(RuntimeError, match="closed"):
        await source.read(plan, memoryview(bytearray(plan.nbytes)))
    with pytest.raises(RuntimeError, match="closed"):
        source.read_blocking(plan, memoryview(bytearray(plan.nbytes)))


def test_a_pickled_source_opens_its_files_anew(path: str, content: bytes) -> None:
    source = LocalByteSource([path], whole_files=False)
    fetch(source, spans((0, 0, 10)))
    copy = pickle.loads(pickle.dumps(source))
    source.close()

    assert fetch(copy, spans((0, 4, 10)))[0] == [content[4:14]]


def test_threads_can_share_a_source(path: str, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_OPEN_FILES", 1)
    paths = [path, path + "2"]
    os.link(path, paths[1])
    source = LocalByteSource(paths, whole_files=False)
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
