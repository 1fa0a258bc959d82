"""Tests of RecordReader: round trips, indexes, sources, threads, fork, pickling."""

import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import recordio
from recordio import (
    CorruptIndexError,
    CorruptRecordError,
    Index,
    IndexNotFoundError,
    RecordFileNotFoundError,
    RecordIndexError,
    RecordIOError,
    RecordReader,
    RecordWriter,
    TruncatedRecordError,
    errors,
    testing,
)
from tests.cases import with_cases
from tests.recordio.sources import Memory, Unsized

RECORDS = [b"", b"abc", b"\x0a\x23\xd7\xce" * 3, b"x" * 5000, b"last"]


@pytest.fixture
def rec(tmp_path):
    path = tmp_path / "a.rec"
    with RecordWriter(path) as writer:
        for record in RECORDS:
            writer.write(record)
    return path


@pytest.fixture
def indexed(tmp_path):
    path = tmp_path / "b.rec"
    with RecordWriter(path, index=True) as writer:
        for key, record in enumerate(RECORDS):
            writer.write(record, key=key * 10)
    return path


@given(testing.record_lists())
@settings(max_examples=3 * settings().max_examples // 5)
def test_what_is_written_is_read_back(tmp_path_factory, records):
    path = tmp_path_factory.getbasetemp() / "identity.rec"
    with RecordWriter(path, index=False) as writer:
        offsets = [writer.write(record) for record in records]
    with RecordReader(path) as reader:
        assert list(reader) == records
        assert reader.offsets.tolist() == offsets
        assert reader.read_many(range(len(records))) == records


def outcomes(source):
    """Return the records of a file, read by every method of the readers; errors by their class."""

    def everything(reader):
        return reader.read_many(range(len(reader)))

    found = []
    ways = [
        list,
        lambda reader: reader.offsets.tolist(),
        everything,
        lambda reader: reader[-1],
    ]
    for way in ways:
        try:
            found.append(way(RecordReader(source)))
        except RecordIOError as error:
            found.append(type(error))
    return found


@given(st.data())
@settings(max_examples=3 * settings().max_examples // 2)
def test_a_source_without_a_size_yields_the_same(data):
    framed = testing.frame(data.draw(testing.record_lists()))
    framed = data.draw(st.just(framed) | testing.damaged(framed))
    assert outcomes(Unsized(framed)) == outcomes(Memory(framed))


@with_cases("cut", [0, 1, 4, 8, 5000, 2_500_000], ids=lambda cut: f"{cut} bytes cut off")
def test_the_end_of_a_source_without_a_size_is_found_behind_large_records(cut):
    framed = testing.frame([b"a", b"b" * 3_000_000])
    source = Unsized(framed[: len(framed) - cut])
    if not cut:
        assert RecordReader(source).offsets.tolist() == [0, 12]
        assert RecordReader(source)[1] == b"b" * 3_000_000
        return
    for way in (list, len):
        with pytest.raises(TruncatedRecordError) as caught:
            way(RecordReader(source))
        assert caught.value.offset == 12


def test_a_source_without_a_size_is_read_by_an_index(indexed):
    index = Index.open(indexed.with_suffix(".idx"))
    reader = RecordReader(Unsized(indexed.read_bytes()), index)
    assert [reader.read_key(key) for key in (40, 0, 30)] == [b"last", b"", b"x" * 5000]
    assert list(reader) == reader.read_many(range(5)) == RECORDS
    beyond = RecordReader(
        Unsized(indexed.read_bytes()), Index.of(np.array([0, indexed.stat().st_size + 400]))
    )
    assert beyond[0] == b""
    with pytest.raises(TruncatedRecordError) as caught:
        beyond[1]
    assert caught.value.offset == indexed.stat().st_size + 400


def test_an_index_may_come_from_an_opener_without_sizes(indexed):
    recordio.register_opener(
        "unsized", lambda url: Unsized(Path(url.removeprefix("unsized://")).read_bytes())
    )
    assert RecordReader(f"unsized://{indexed}").read_key(10) == b"abc"


def test_a_source_that_returns_less_than_its_size_raises():
    class Short(Memory):
        def size(self):
            return len(self.data) + 12

    # It ends between two records, which would look like the end of the file.
    for way in (list, len):
        with pytest.raises(errors.ShortReadError, match="its size promises more"):
            way(RecordReader(Short(testing.frame(RECORDS))))


def test_an_async_source_is_refused_by_name():
    class Async:
        async def read_ranges(self, ranges):
            return []

    with pytest.raises(errors.PayloadTypeError, match=r"recordio\.aio"):
        RecordReader(Async())


def test_positions_count_from_both_ends_and_slices_work(rec):
    with RecordReader(rec) as reader:
        assert len(reader) == 5
        assert reader[3] == RECORDS[3]
        assert reader[-1] == b"last"
        assert reader[1:4] == RECORDS[1:4]
        assert reader[::-2] == RECORDS[::-2]
        assert reader.read_many([4, 0, 4, -2]) == [RECORDS[4], RECORDS[0], RECORDS[4], RECORDS[3]]
        assert reader.read_many([]) == []
        assert list(reversed(reader)) == RECORDS[::-1]
        for outside in (5, -6):
            with pytest.raises(RecordIndexError, match="outside") as caught:
                reader[outside]
            assert (caught.value.position, caught.value.length) == (outside, 5)


def test_records_are_found_by_key(indexed):
    with RecordReader(indexed) as reader:
        assert reader.keys.tolist() == [0, 10, 20, 30, 40]
        assert reader.read_key(10) == b"abc"
        assert reader.get(40) == b"last"
        assert reader.get(41) is None
        assert reader.get(41, b"none") == b"none"
        with pytest.raises(KeyError):
            reader.read_key(41)


def test_the_index_chooses_what_is_seen_and_in_which_order(rec, tmp_path):
    offsets = Index.scan(rec).offsets
    other = tmp_path / "subset.idx"
    other.write_text(f"last\t{offsets[4]}\nfirst\t{offsets[1]}\n")
    with RecordReader(rec, other) as reader:
        assert list(reader) == [b"last", b"abc"]
        assert reader.keys == ["last", "first"]
    with RecordReader(rec, Index.open(other)) as reader:
        assert reader.read_key("first") == b"abc"


def test_iterating_without_an_index_needs_no_scan_and_stops_at_the_damage(tmp_path):
    path = tmp_path / "a.rec"
    path.write_bytes(testing.frame([b"one", b"two"]) + b"garbage.")
    reader = RecordReader(path)
    records = iter(reader)
    assert [next(records), next(records)] == [b"one", b"two"]
    with pytest.raises(CorruptRecordError) as caught:
        next(records)
    assert (caught.value.path, caught.value.offset) == (str(path), 24)
    with pytest.raises(CorruptRecordError):
        len(reader)


def test_absurd_lengths_are_refused_before_anything_is_allocated():
    source = Memory(bytes.fromhex("0a23d7ce ffffff1f") + b"x" * 100)
    for reader in (RecordReader(source), RecordReader(source, Index.parse(b"0\t0\n"))):
        with pytest.raises(TruncatedRecordError):
            list(reader)
    assert all(offset + length <= 108 for offset, length in source.asked)


def test_a_sparse_index_does_not_make_it_read_the_whole_file():
    source = Memory(testing.frame([b"small", b"y" * 9_000_000, b"z" * 9_000_000]))
    reader = RecordReader(source, Index.parse(b"0\t0\n"))
    assert reader[0] == b"small"
    assert sum(length for _, length in source.asked) < 100_000
    reader = RecordReader(source, Index.parse(b"0\t16\n"))
    assert reader[0] == b"y" * 9_000_000


def test_an_index_of_another_file_is_named(rec):
    with RecordReader(rec, Index.parse(b"0\t99999996\n", path="w.idx")) as reader:
        with pytest.raises(CorruptIndexError, match=r"w\.idx, line 1"):
            reader[0]


def test_missing_files_are_named(tmp_path, rec):
    with pytest.raises(RecordFileNotFoundError) as caught:
        RecordReader(tmp_path / "no.rec")
    assert caught.value.path == str(tmp_path / "no.rec")
    with pytest.raises(IndexNotFoundError) as named:
        RecordReader(rec, tmp_path / "no.idx")
    assert named.value.path == str(tmp_path / "no.idx")
    with pytest.raises(FileNotFoundError):
        RecordReader(tmp_path)
    with pytest.raises(errors.PayloadTypeError, match="read_ranges"):
        RecordReader(5)


def test_a_wrong_index_line_inside_a_record_affects_only_its_key(rec, tmp_path):
    offsets = Index.scan(rec).offsets.tolist()
    wrong = offsets[3] + 400  # inside the long record
    index = Index.of(np.array([*offsets, wrong]))
    with RecordReader(rec, index) as reader:
        assert reader.read_many(range(5)) == [reader[n] for n in range(5)] == RECORDS
        with pytest.raises(CorruptRecordError) as caught:
            reader[5]
        assert caught.value.offset == wrong


def test_a_damaged_length_does_not_swallow_the_next_record(indexed):
    offset = int(Index.open(indexed.with_suffix(".idx")).offsets[1])
    with indexed.open("r+b") as file:
        file.seek(offset + 4)
        file.write((20).to_bytes(4, "little"))
    with RecordReader(indexed) as reader:
        for read in (lambda: reader[1], lambda: reader.read_many([0, 1, 2])):
            with pytest.raises(CorruptRecordError, match="its length was damaged") as caught:
                read()
            assert caught.value.offset == offset
        assert reader[2] == RECORDS[2]


def test_neighbours_are_read_together():
    source = Memory(testing.frame(RECORDS))
    reader = RecordReader(source, Index.of(RecordReader(source).offsets))
    source.asked.clear()
    reader.read_many([3, 1, 2])
    assert len(source.asked) == 1


def test_urls_go_to_the_registered_opener(rec, indexed):
    opened = []

    def opener(url):
        opened.append(url)
        return Memory(Path(url.removeprefix("mem://")).read_bytes())

    with pytest.raises(errors.UnknownSchemeError, match="register_opener") as caught:
        RecordReader("nowhere://bucket/a.rec")
    assert caught.value.url == "nowhere://bucket/a.rec"
    recordio.register_opener("MEM", opener)
    assert list(RecordReader(f"mem://{rec}")) == RECORDS  # no .idx there: scanned
    assert RecordReader(f"mem://{indexed}").read_key(10) == b"abc"
    assert RecordReader(f"mem://{rec}", f"mem://{indexed.with_suffix('.idx')}").get(10) == b"abc"
    with pytest.raises(IndexNotFoundError):
        list(RecordReader(f"mem://{rec}", "mem:///no.idx"))
    assert list(RecordReader(f"file://{rec}")) == RECORDS
    assert opened[0] == f"mem://{rec}"


def test_installed_packages_register_openers_at_the_first_url(tmp_path, rec):
    installed = tmp_path / "installed"
    facts = installed / "files-1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: files\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(
        "[recordio.openers]\nfirst = files:register\nsecond = files:register\n"
    )
    (installed / "files.py").write_text(
        "from pathlib import Path\n"
        "import recordio\n"
        "from tests.recordio.sources import Memory\n"
        "def opened(url):\n"
        "    print('installed', url)\n"
        "    return Memory(Path(url.partition('://')[2]).read_bytes())\n"
        "def register():\n"
        "    print('registered')\n"
        "    recordio.register_opener('first', opened)\n"
        "    recordio.register_opener('second', opened)\n"
    )
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "import recordio\n"
        "from tests.recordio.sources import Memory\n"
        "recordio.register_opener('second', lambda url: Memory(Path(url[9:]).read_bytes()))\n"
        "for scheme in ('second', 'first', 'second', 'first'):\n"
        "    print(len(list(recordio.RecordReader(f'{scheme}://{sys.argv[1]}'))))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(rec)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(installed), *sys.path])},
        capture_output=True,
        text=True,
        check=True,
    )
    # An opener that the program has registered is kept.
    opened = [f"installed first://{rec}", f"installed first://{Path(rec).with_suffix('.idx')}"]
    lines = [line for line in done.stdout.splitlines() if line not in opened]
    assert lines == ["5", "registered", "5", "5", "5"]
    assert opened[0] in done.stdout


def test_threads_share_one_reader(indexed):
    with RecordReader(indexed) as reader, ThreadPoolExecutor(8) as pool:
        wanted = [n % 5 for n in range(400)]
        assert list(pool.map(reader.__getitem__, wanted)) == [RECORDS[n] for n in wanted]


def test_a_forked_child_reads_without_disturbing_its_parent(indexed):
    reader = RecordReader(indexed)
    assert reader[1] == b"abc"
    child = os.fork()
    if child == 0:
        os._exit(0 if list(reader) == RECORDS and reader[-1] == b"last" else 1)
    assert list(reader) == RECORDS
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    reader.close()


def test_a_pickled_reader_opens_again_by_path(indexed):
    with RecordReader(indexed) as reader:
        assert reader[1] == b"abc"
        data = pickle.dumps(reader)
        assert reader[1] == b"abc"
    assert len(data) < 500
    with pickle.loads(data) as copy:
        assert list(copy) == RECORDS


def test_a_closed_reader_raises_and_closing_twice_is_allowed(rec):
    reader = RecordReader(rec)
    reader.close()
    reader.close()
    with pytest.raises(errors.ClosedError, match="closed"):
        list(reader)


def test_a_file_cut_while_open_is_a_named_error(indexed):
    with RecordReader(indexed) as reader:
        assert reader[0] == b""
        os.truncate(indexed, 40)
        with pytest.raises(errors.ShortReadError, match="cut or replaced"):
            reader[4]


@with_cases("with_index", [False, True], ids=["stream", "index"])
def test_a_record_longer_than_the_limit_is_refused(tmp_path, with_index):
    path = tmp_path / "a.rec"
    records = [b"short", b"\x0a\x23\xd7\xce" * 3, b"x" * 20, b"x" * 21, b"last"]
    with RecordWriter(path, index=with_index) as writer:
        for record in records:
            writer.write(record)
    with RecordReader(path, max_record_bytes=20) as reader:
        passes = iter(reader)
        assert [next(passes) for _ in range(3)] == records[:3]
        with pytest.raises(CorruptRecordError, match="at most 20 bytes"):
            next(passes)
        copy = pickle.loads(pickle.dumps(reader))
        for refuse in (lambda: reader[3], lambda: copy[3], lambda: reader.read_many([0, 3])):
            with pytest.raises(CorruptRecordError, match="at most 20 bytes") as caught:
                refuse()
            assert caught.value.offset == reader.offsets[3]
        assert reader.read_many([4, 2]) == [records[4], records[2]]
        copy.close()
