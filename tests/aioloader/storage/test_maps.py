"""Tests of records looked up in maps: the same bytes and errors as from reads."""

from __future__ import annotations

import mmap
import os
import pickle
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import recordio
from aioloader import DataLoader, RecordFileDataset, SampleError
from aioloader.foundation.types import SpanKind, Spans
from aioloader.storage import LocalByteSource
from aioloader.storage.local import mapped
from aioloader.storage.local import mapped as page_cache
from aioloader.storage.local.mapped import FileMaps, Residency, cached_pages, missing_pages, resident
from recordio import CorruptRecordError, TruncatedRecordError

pytestmark = pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="files are mapped on Linux only")

MAGIC = bytes.fromhex("0a23d7ce")
payloads = st.lists(
    st.one_of(st.binary(max_size=300), st.lists(st.sampled_from([MAGIC, b"abcd", b"x"])).map(b"".join)),
    min_size=1,
    max_size=12,
)


def needs_cachestat(path):
    with open(path, "rb") as file:
        if cached_pages(file.fileno()) is None:
            pytest.skip("this system does not report the content of its page cache")


def write(path, records):
    with recordio.RecordWriter(path, index=True) as writer:
        return [writer.write(record, key) for key, record in enumerate(records)]


@pytest.fixture
def opened():
    """Open files as maps; close them afterwards."""
    made = []

    def open_maps(*paths):
        made.append(FileMaps.open([str(path) for path in paths], SpanKind.RECORD))
        return made[-1]

    yield open_maps
    for maps in made:
        maps.close()


@given(records=payloads, data=st.data())
def test_a_whole_record_is_found_for_any_length_in_the_index(tmp_path_factory, records, data):
    path = tmp_path_factory.mktemp("maps") / "a.rec"
    offsets = write(path, records)
    maps = FileMaps.open([str(path)], SpanKind.RECORD)
    try:
        ends = [*offsets[1:], path.stat().st_size]
        for record, offset, end in zip(records, offsets, ends, strict=True):
            short = 4 * data.draw(st.integers(2, (end - offset) // 4))
            for length in (short, end - offset):
                assert bytes(recordio.extract(maps.record(0, offset, length))) == record
    finally:
        maps.close()


def test_a_copy_in_a_process_that_inherited_the_files_finds_the_same(tmp_path, opened):
    paths = [tmp_path / "a.rec", tmp_path / "b.rec"]
    for path in paths:
        write(path, [path.name.encode() * 3])
    maps = opened(*paths)
    copy = pickle.loads(pickle.dumps(maps))
    for number, path in enumerate(paths):
        found = copy.record(number, 0, path.stat().st_size)
        assert found.readonly
        assert bytes(recordio.extract(found)) == path.name.encode() * 3


def test_a_truncated_file_is_an_error_and_never_read_behind_its_end(tmp_path, opened):
    path = tmp_path / "a.rec"
    offsets = write(path, [b"a" * 5000, b"b" * 50_000, b"c" * 100])
    size = path.stat().st_size
    maps = opened(path)
    assert len(maps.record(0, offsets[1], offsets[2] - offsets[1])) == offsets[2] - offsets[1]
    os.truncate(path, offsets[1] + 4096)
    assert bytes(recordio.extract(maps.record(0, 0, offsets[1]))) == b"a" * 5000
    with pytest.raises(TruncatedRecordError) as caught:
        maps.record(0, offsets[1], offsets[2] - offsets[1])
    assert (caught.value.path, caught.value.offset) == (str(path), offsets[1])
    assert maps.whole(0, np.asarray([offsets[1], size])) is None
    assert maps.whole(0, np.asarray([offsets[1]])) is not None


def test_a_file_that_was_truncated_before_it_is_mapped_is_read_up_to_the_cut(tmp_path, opened):
    path = tmp_path / "a.rec"
    offsets = write(path, [b"a" * 5000, b"b" * 50_000, b"c" * 100])
    size = path.stat().st_size
    maps = opened(path)
    os.truncate(path, offsets[1] + 4096)
    assert maps.whole(0, np.array([offsets[1]])) is not None
    assert maps.whole(0, np.array([size])) is None
    assert bytes(recordio.extract(maps.record(0, 0, offsets[1]))) == b"a" * 5000
    with pytest.raises(TruncatedRecordError) as caught:
        maps.record(0, offsets[1], offsets[2] - offsets[1])
    assert (caught.value.path, caught.value.offset) == (str(path), offsets[1])
    os.truncate(path, size)  # the map does not grow again
    with pytest.raises(TruncatedRecordError):
        maps.record(0, offsets[2], size - offsets[2])
    assert maps.whole(0, np.array([size])) is None


def test_a_file_that_was_emptied_before_it_is_mapped_is_an_error(tmp_path, opened):
    path = tmp_path / "a.rec"
    write(path, [b"a" * 5000])
    maps = opened(path)
    os.truncate(path, 0)
    with pytest.raises(OSError, match=r"a\.rec"):
        maps.record(0, 0, 5008)


def test_a_record_that_has_grown_into_the_next_is_corrupt(tmp_path, opened):
    path = tmp_path / "a.rec"
    offsets = write(path, [b"a" * 100, b"b" * 100])
    with open(path, "r+b") as file:
        file.seek(4)
        file.write((150).to_bytes(4, "little"))
    with pytest.raises(CorruptRecordError):
        opened(path).record(0, 0, offsets[1])


def test_files_that_cannot_be_mapped_are_read(tmp_path):
    (tmp_path / "empty.rec").touch()
    for paths in ([str(tmp_path / "empty.rec")], [str(tmp_path / "none.rec")], []):
        source = LocalByteSource(paths, kind=SpanKind.RECORD)
        assert source.mapped() is None
        source.close()
    source = LocalByteSource([str(tmp_path / "a.png")], kind=SpanKind.FILE)
    assert source.mapped() is None
    source.close()


def test_a_file_just_written_is_in_memory_and_one_put_out_is_not(tmp_path):
    path = tmp_path / "a.rec"
    path.write_bytes(os.urandom(300_000))
    needs_cachestat(path)
    with open(path, "rb") as file:
        residency = Residency()
        residency.check([file.fileno()])
        assert residency.complete
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if cached_pages(file.fileno()):
            pytest.skip("this file system keeps its files in memory")
        residency.check([file.fileno()])
        assert (residency.complete, residency.known) == (False, True)
        assert residency.next_check > time.monotonic()


@pytest.mark.parametrize(
    ("cached", "expected"), [(8, True), (7, True), (6, False), (0, False), (None, False)]
)
def test_a_range_with_few_missing_pages_is_in_memory_and_they_are_announced(monkeypatch, cached, expected):
    announced = []
    monkeypatch.setattr(page_cache, "cached_pages", lambda *part: cached)
    monkeypatch.setattr(page_cache, "read_ahead", lambda *part: announced.append(part))
    page = mmap.PAGESIZE
    part = (5, 3 * page + 1, 7 * page)  # on 8 pages
    assert resident(*part) is expected
    assert announced == ([part] if cached == 7 else [])


def test_a_range_is_in_memory_if_nearly_all_of_its_pages_are(tmp_path):
    path = tmp_path / "a.rec"
    path.write_bytes(os.urandom(300_000))
    needs_cachestat(path)
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if cached_pages(file.fileno()):
            pytest.skip("this file system keeps its files in memory")
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)  # only the pages that are read
        os.pread(file.fileno(), 20_000, 100_000)
        assert resident(file.fileno(), 100_000, 20_000)
        assert resident(file.fileno(), 98_304, 24_576)
        assert not resident(file.fileno(), 98_303, 20_000)
        assert not resident(file.fileno(), 100_000, 22_881)
        pages = set(range(-(-300_000 // mmap.PAGESIZE)))
        there = set(range(98_304 // mmap.PAGESIZE, 122_880 // mmap.PAGESIZE))
        assert missing_pages(file.fileno()).tolist() == sorted(pages - there)


async def test_a_plan_of_mapped_records_needs_no_memory_and_names_bad_lines(tmp_path):
    path = tmp_path / "a.rec"
    offsets = write(path, [b"a" * 100, b"b" * 100])
    needs_cachestat(path)
    source = LocalByteSource([str(path)], kind=SpanKind.RECORD).mapped()
    spans = Spans(
        np.zeros(3, np.int64), np.asarray([offsets[1], -4, 0]), np.asarray([offsets[1], 40, offsets[1]])
    )
    plan = await source.plan(spans)
    assert plan.mapped.tolist() == [0, 1, 2]
    assert (plan.nbytes, [place for place, _ in plan.failures]) == (0, [1])
    assert await source.read(plan, memoryview(b"")) == []
    source.close()
    source.close()


@pytest.mark.parametrize(("missing", "few"), [([3], True), ([2, 3], False)])
async def test_a_batch_with_few_missing_pages_is_mapped_and_its_incomplete_records_are_announced(
    tmp_path, monkeypatch, missing, few
):
    nbytes, paths, announced = 4 * mmap.PAGESIZE, [tmp_path / "a.rec", tmp_path / "b.rec"], []
    for path in paths:
        write(path, [bytes(nbytes - 8)] * 3)
    files = {os.stat(paths[0]).st_ino: [0], os.stat(paths[1]).st_ino: missing}
    monkeypatch.setattr(page_cache, "cached_pages", lambda fd: 4)
    monkeypatch.setattr(page_cache, "missing_pages", lambda fd: np.array(files[os.fstat(fd).st_ino]))
    monkeypatch.setattr(page_cache, "read_ahead", lambda fd, *part: announced.append(part))
    source = LocalByteSource([str(path) for path in paths], kind=SpanKind.RECORD).mapped()
    plan = await source.plan(Spans(np.array([1, 0]), np.array([0, 2 * nbytes]), np.array([nbytes] * 2)))
    source.close()
    assert plan.mapped.tolist() == ([0, 1] if few else [])
    assert announced == ([(0, nbytes)] if few else [])


def mix(monkeypatch, path):
    """Make a file look partly cached: records in its first half are in memory."""
    half = path.stat().st_size // 2

    def partly(residency, fds):
        residency.known, residency.complete, residency.next_check = True, False, float("inf")

    monkeypatch.setattr(Residency, "check", partly)
    monkeypatch.setattr(mapped, "resident", lambda fd, offset, nbytes: offset + nbytes <= half)
    monkeypatch.setattr(mapped, "_LEAST_CHECKED_NBYTES", 1000)


async def test_records_in_memory_are_mapped_and_the_others_read(tmp_path, monkeypatch):
    path = tmp_path / "a.rec"
    records = [bytes([number]) * 4000 for number in range(10)]
    offsets = np.array([*write(path, records), path.stat().st_size])
    mix(monkeypatch, path)
    source = LocalByteSource([str(path)], kind=SpanKind.RECORD).mapped()
    lines = np.array([8, 1, 6, 0, 8])
    offset, length = offsets[lines], np.diff(offsets)[lines]
    offset[2] = -4  # no record begins there
    plan = await source.plan(Spans(np.zeros(5, np.int64), offset, length))
    out = memoryview(bytearray(plan.nbytes))
    assert await source.read(plan, out) == []
    assert plan.mapped.tolist() == [1, 3]
    assert [place for place, _ in plan.failures] == [2]
    for place in (0, 4):
        framed = out[plan.start[place] : plan.start[place] + plan.length[place]]
        assert bytes(recordio.extract(framed)) == records[8]
    source.close()


@pytest.mark.parametrize("lines", [[8, 6, 9], []])
async def test_a_batch_of_which_no_record_is_in_memory_is_read(tmp_path, monkeypatch, lines):
    path = tmp_path / "a.rec"
    records = [bytes([number]) * 4000 for number in range(10)]
    offsets = np.array([*write(path, records), path.stat().st_size])
    mix(monkeypatch, path)
    source = LocalByteSource([str(path)], kind=SpanKind.RECORD).mapped()
    places = np.array(lines, np.int64)
    plan = await source.plan(
        Spans(np.zeros(len(places), np.int64), offsets[places], np.diff(offsets)[places])
    )
    out = memoryview(bytearray(plan.nbytes))
    assert await source.read(plan, out) == []
    assert len(plan.mapped) == 0
    framed = [out[start : start + nbytes] for start, nbytes in zip(plan.start, plan.length, strict=True)]
    assert [bytes(recordio.extract(part)) for part in framed] == [records[line] for line in lines]
    source.close()


async def test_an_error_of_a_read_is_that_of_its_place_in_the_batch(tmp_path, monkeypatch):
    path = tmp_path / "a.rec"
    offsets = np.array([*write(path, [b"a" * 4000] * 10), path.stat().st_size])
    mix(monkeypatch, path)
    source = LocalByteSource([str(path)], kind=SpanKind.RECORD).mapped()
    lines = np.array([0, 1, 9, 8, 2])
    plan = await source.plan(Spans(np.zeros(5, np.int64), offsets[lines], np.diff(offsets)[lines]))
    os.truncate(path, offsets[9])
    failures = await source.read(plan, memoryview(bytearray(plan.nbytes)))
    assert [(place, type(error)) for place, error in failures] == [(2, TruncatedRecordError)]
    source.close()


def test_a_loader_delivers_mapped_and_read_records_in_one_batch(tmp_path, monkeypatch):
    path = tmp_path / "a.rec"
    write(path, [bytes([number]) * (number * 37 % 5000) for number in range(50)] + [MAGIC * 9])
    before = batches(path, executor="thread")
    with open(path, "r+b") as file:
        file.seek(int(RecordFileDataset(path).table.index.offsets[3]))
        file.write(b"none")
    mix(monkeypatch, path)
    lost = {bytes(record) for batch in before for record in batch}
    mixed = batches(path, on_error="skip")
    assert mixed == batches(path, on_error="skip", executor="thread")
    lost -= {bytes(record) for batch in mixed for record in batch}
    assert len(lost) == 1


def batches(path, **options):
    with DataLoader(RecordFileDataset(path), 4, shuffle=True, seed=3, num_workers=2, **options) as loader:
        return [list(batch) for _ in range(2) for batch in loader]


def test_a_file_that_is_cut_meanwhile_fails_by_name_and_the_rest_is_delivered(tmp_path):
    path = tmp_path / "a.rec"
    records = [bytes([number % 256]) * 3000 for number in range(400)]
    offsets = write(path, records)
    with DataLoader(
        RecordFileDataset(path), 4, num_workers=2, on_error="skip", max_errors=None, prefetch=2
    ) as loader:
        iterator = iter(loader)
        got = list(next(iterator))
        os.truncate(path, offsets[200] + 8)
        got += [record for batch in iterator for record in batch]
        errors = loader.errors
    assert got[:200] == records[:200]
    assert len(got) + len(errors) == 400
    assert all(isinstance(error, SampleError) and error.path == str(path) for error in errors)


def test_records_that_are_not_in_memory_are_fetched_and_the_same(tmp_path):
    path = tmp_path / "a.rec"
    records = [os.urandom(number * 131 % 9000) for number in range(300)]
    write(path, records)
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with DataLoader(RecordFileDataset(path), 32, executor="thread", num_workers=2) as loader:
        assert [record for batch in loader for record in batch] == records
