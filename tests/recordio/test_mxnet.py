"""Tests of MXRecordIO and MXIndexedRecordIO: MXNet's behaviour, and its fixed defects."""

import os
import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from recordio import (
    CorruptIndexError,
    CorruptRecordError,
    MXIndexedRecordIO,
    MXRecordIO,
    RecordIOError,
    serialize,
)
from recordio.errors import DuplicateKeyWarning
from tests.cases import with_cases

RECORDS = [b"record0", b"", b"\x0a\x23\xd7\xce", b"x" * 300_000, b"last"]


@pytest.fixture
def rec(tmp_path):
    path = str(tmp_path / "a.rec")
    writer = MXRecordIO(path, "w")
    for record in RECORDS:
        writer.write(record)
    writer.close()
    return path


@pytest.fixture
def indexed(tmp_path):
    paths = str(tmp_path / "b.idx"), str(tmp_path / "b.rec")
    writer = MXIndexedRecordIO(*paths, "w")
    for key, record in zip((5, 3, 9, 4, 0), RECORDS, strict=True):
        writer.write_idx(key, record)
    writer.close()
    return paths


def run_in_child(check):
    child = os.fork()
    if child == 0:
        try:
            check()
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_reads_to_the_end_then_none(rec):
    reader = MXRecordIO(rec, "r")
    assert [reader.read() for _ in RECORDS] == RECORDS
    assert reader.read() is None
    assert reader.read() is None
    reader.reset()
    assert reader.read() == b"record0"
    assert list(reader) == RECORDS[1:]
    reader.close()


def test_attributes(rec):
    reader = MXRecordIO(rec, "r")
    assert (reader.uri, reader.flag, reader.pid, reader.is_open) == (rec, "r", os.getpid(), True)
    assert reader.writable is False
    assert reader.handle is not None
    reader.close()
    reader.close()
    assert (reader.pid, reader.is_open, reader.handle) == (None, False, None)


def test_wrong_flag_and_missing_file(tmp_path):
    with pytest.raises(ValueError, match="Invalid flag a"):
        MXRecordIO(str(tmp_path / "a.rec"), "a")
    with pytest.raises(RecordIOError, match="no such record file"):
        MXRecordIO(str(tmp_path / "no.rec"), "r")
    with pytest.raises(FileNotFoundError):
        MXRecordIO(str(tmp_path / "no" / "folder.rec"), "w")
    with pytest.raises(FileNotFoundError):
        MXIndexedRecordIO(str(tmp_path / "no.idx"), str(tmp_path / "no.rec"), "r")


def test_reading_a_writer_and_writing_a_reader_are_assertion_errors(rec, tmp_path):
    reader = MXRecordIO(rec, "r")
    with pytest.raises(AssertionError):
        reader.write(b"x")
    writer = MXRecordIO(tmp_path / "w.rec", "w")
    with pytest.raises(AssertionError):
        writer.read()


@with_cases("flag", ["r", "w"])
def test_use_after_close_is_the_runtime_error_of_mxnet(rec, flag):
    record = MXRecordIO(rec, flag)
    record.close()
    with pytest.raises(RuntimeError, match="Forbidden operation in multiple processes"):
        record.read() if flag == "r" else record.write(b"x")


def test_reset_truncates_a_writer_and_nothing_is_on_disk_before_close(tmp_path):
    path = tmp_path / "a.rec"
    writer = MXRecordIO(str(path), "w")
    writer.write(b"gone")
    assert path.stat().st_size == 0
    writer.reset()
    writer.write(b"kept")
    writer.close()
    assert path.read_bytes() == serialize(b"kept")


@with_cases("payload", [bytearray(b"abc"), memoryview(b"abc"), "abc"], ids=["bytearray", "view", "str"])
def test_old_tutorials_may_write_any_buffer_or_text(tmp_path, payload):
    path = tmp_path / "a.rec"
    with MXRecordIO(path, "w") as writer:
        writer.write(payload)
    assert path.read_bytes() == serialize(b"abc")


def test_context_manager_and_collection_close(tmp_path):
    writer = MXRecordIO(tmp_path / "a.rec", "w")
    writer.write(b"abc")
    del writer
    assert (tmp_path / "a.rec").read_bytes() == serialize(b"abc")


DAMAGE = {
    "half a head": (serialize(b"abc") + b"\x0a\x23\xd7\xce\x03\x00", 12),
    "garbage": (serialize(b"abc") + b"garbage.", 12),
    "data cut": (serialize(b"abc") + serialize(b"12345678")[:-4], 12),
    "padding cut": (serialize(b"abc") + serialize(b"12345")[:-3], 12),
}


@with_cases(("data", "offset"), DAMAGE.values(), ids=DAMAGE.keys())
@with_cases("tolerant", [False, True])
def test_damage_is_an_error_with_its_offset(tmp_path, data, offset, tolerant):
    path = tmp_path / "a.rec"
    path.write_bytes(data)
    with MXRecordIO(str(path), "r", tolerant=tolerant) as reader:
        assert reader.read() == b"abc"
        with pytest.raises(CorruptRecordError, match="Invalid RecordIO File") as caught:
            reader.read()
    assert (caught.value.path, caught.value.offset) == (str(path), offset)


M = "0a23d7ce"
# Bytes: the result of MXNet's reader (measured with 1.9.1).
ODD = {
    "starts with a middle part": (f"{M} 04000040 61626364 {M} 04000060 65666768", [f"61626364 {M} 65666768"]),
    "starts with a last part": (f"{M} 04000060 61626364 {M} 00000000", ["61626364", ""]),
    "ends after a first part": (f"{M} 03000000 61626300 {M} 04000020 61626364", ["616263"]),
    "a whole part continues": (f"{M} 04000020 61626364 {M} 01000000 65000000", [f"61626364 {M} 65"]),
    "uneven first part": (f"{M} 02000020 61620000 {M} 01000060 65000000", [f"6162 {M} 65"]),
    "unknown flag": (f"{M} 040000a0 61626364 {M} 01000060 65000000", [f"61626364 {M} 65"]),
}


@with_cases(("data", "records"), ODD.values(), ids=ODD.keys())
def test_a_tolerant_reader_takes_odd_parts_as_mxnet_does(tmp_path, data, records):
    rec, idx = tmp_path / "a.rec", tmp_path / "a.idx"
    rec.write_bytes(bytes.fromhex(data))
    idx.write_text("7\t0\n")
    expected = [bytes.fromhex(record) for record in records]
    reader = MXRecordIO(rec, "r", tolerant=True)
    for each in (reader, pickle.loads(pickle.dumps(reader))):
        assert list(each) == expected
        assert each.read() is None
        each.close()
    indexed = MXIndexedRecordIO(idx, rec, "r", tolerant=True)
    assert indexed.read_idx(7) == expected[0]
    indexed.close()
    with MXRecordIO(rec, "r") as strict, pytest.raises(CorruptRecordError):
        list(strict)


def test_a_pickled_reader_starts_again_and_the_original_stays_open(rec):
    reader = MXRecordIO(rec, "r")
    reader.read()
    copy = pickle.loads(pickle.dumps(reader))
    assert copy.read() == b"record0"
    assert reader.read() == b""
    reader.close()
    assert pickle.loads(pickle.dumps(reader)).is_open is False


def test_writers_refuse_to_be_pickled_and_the_file_is_unharmed(tmp_path):
    for writer in (
        MXRecordIO(tmp_path / "a.rec", "w"),
        MXIndexedRecordIO(tmp_path / "b.idx", tmp_path / "b.rec", "w"),
    ):
        writer.write(b"abc")
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(writer)
        writer.close()
    assert (tmp_path / "a.rec").stat().st_size == 12


def test_a_reader_refuses_in_a_forked_child_until_reset(rec):
    reader = MXRecordIO(rec, "r")
    assert reader.read() == b"record0"

    def child():
        with pytest.raises(RuntimeError, match="Forbidden operation in multiple processes"):
            reader.read()
        reader.reset()
        assert list(reader) == RECORDS

    run_in_child(child)
    assert list(reader) == RECORDS[1:]


def test_a_writer_in_a_forked_child_leaves_the_file_alone(tmp_path):
    writer = MXRecordIO(tmp_path / "a.rec", "w")
    writer.write(b"abc")

    def child():
        with pytest.raises(RuntimeError, match="multiple processes"):
            writer.write(b"x")
        writer.close()

    run_in_child(child)
    writer.close()
    assert (tmp_path / "a.rec").read_bytes() == serialize(b"abc")


# --- indexed ---


def test_index_text_and_attributes(indexed):
    assert Path(indexed[0]).read_text() == "5\t0\n3\t16\n9\t24\n4\t40\n0\t300048\n"
    reader = MXIndexedRecordIO(*indexed, "r")
    assert reader.keys == [5, 3, 9, 4, 0]
    assert reader.idx == {5: 0, 3: 16, 9: 24, 4: 40, 0: 300048}
    assert reader.key_type is int
    assert reader.fidx is None
    assert [reader.read_idx(key) for key in reader.keys] == RECORDS


def test_tell_returns_the_offset_of_the_next_record(tmp_path):
    writer = MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "w")
    offsets = []
    for key in range(3):
        writer.write_idx(key, b"record")
        offsets.append(writer.tell())
    writer.write(b"without index")
    writer.close()
    assert offsets == [16, 32, 48]
    reader = MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "r")
    assert reader.keys == [0, 1, 2]
    with pytest.raises(AssertionError):
        reader.tell()


def test_reading_goes_on_behind_the_record_that_was_sought(indexed):
    reader = MXIndexedRecordIO(*indexed, "r")
    reader.seek(9)
    assert reader.read() == RECORDS[2]
    assert reader.read_idx(5) == RECORDS[0]
    assert reader.read() == RECORDS[1]
    reader.reset()
    assert list(reader) == RECORDS
    assert reader.read() is None
    assert reader.read_idx(5) == RECORDS[0]


def test_keys_are_not_converted_on_reading(indexed):
    reader = MXIndexedRecordIO(*indexed, "r")
    for missing in ("5", 77):
        with pytest.raises(KeyError, match=re.escape(repr(missing))):
            reader.read_idx(missing)
    with pytest.raises(KeyError):
        reader.seek(77)


def test_keys_are_converted_on_writing(tmp_path):
    writer = MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "w")
    writer.write_idx(2.7, b"two")
    with pytest.raises(ValueError, match="abc"):
        writer.write_idx("abc", b"nothing")
    assert (writer.keys, writer.idx, writer.tell()) == ([2], {2: 0}, 12)
    writer.close()


def test_text_keys_need_a_key_type(tmp_path):
    paths = tmp_path / "a.idx", tmp_path / "a.rec"
    with MXIndexedRecordIO(*paths, "w", key_type=str) as writer:
        writer.write_idx("cat", b"meow")
        writer.write_idx("007", b"bond")
    reader = MXIndexedRecordIO(*paths, "r", key_type=str)
    assert reader.keys == ["cat", "007"]
    assert reader.read_idx("007") == b"bond"
    with pytest.raises(ValueError, match="key_type=str") as caught:
        MXIndexedRecordIO(*paths, "r")
    assert isinstance(caught.value, RecordIOError)


@with_cases("text", ["0\t0\n\n", "0 0\n", "x\t0\n"], ids=["blank", "space", "text"])
def test_malformed_index_lines_are_value_errors(rec, tmp_path, text):
    (tmp_path / "bad.idx").write_text(text)
    with pytest.raises(ValueError, match="line"):
        MXIndexedRecordIO(str(tmp_path / "bad.idx"), rec, "r")


def test_duplicate_keys_stay_in_keys_and_warn(indexed):
    with open(indexed[0], "a") as file:
        file.write("5\t16\n")
    with pytest.warns(DuplicateKeyWarning):
        reader = MXIndexedRecordIO(*indexed, "r")
    assert reader.keys == [5, 3, 9, 4, 0, 5]
    assert reader.read_idx(5) == b""


@with_cases("offset", [2**64 - 1, 10**9, 6, -8], ids=str)
def test_offsets_outside_are_named(rec, tmp_path, offset):
    (tmp_path / "bad.idx").write_text(f"7\t0\n0\t{offset}\n")
    reader = MXIndexedRecordIO(str(tmp_path / "bad.idx"), rec, "r")
    with pytest.raises(CorruptIndexError, match="python -m recordio index") as caught:
        reader.read_idx(0)
    assert (caught.value.line, caught.value.key, caught.value.found) == (2, 0, offset)


def test_read_idx_opens_again_after_fork_and_after_close(indexed):
    reader = MXIndexedRecordIO(*indexed, "r")
    assert reader.read_idx(5) == b"record0"

    def child():
        for key, record in zip((0, 4, 9, 3, 5), RECORDS[::-1], strict=True):
            assert reader.read_idx(key) == record

    run_in_child(child)
    assert reader.read() == b""
    reader.close()
    assert reader.read_idx(0) == b"last"


def test_a_pickled_indexed_reader_reads(indexed):
    reader = MXIndexedRecordIO(*indexed, "r")
    copy = pickle.loads(pickle.dumps(reader))
    assert copy.read_idx(9) == RECORDS[2]
    assert reader.is_open


def test_threads_may_share_an_indexed_reader(indexed):
    reader = MXIndexedRecordIO(*indexed, "r")
    expected = dict(zip((5, 3, 9, 4, 0), RECORDS, strict=True))
    wanted = [5, 3, 9, 4, 0] * 60
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(reader.read_idx, wanted)) == [expected[key] for key in wanted]


@with_cases("key", ["99999999999999999999", "+-5", "1" * 41, "\u0661", "a"])
def test_a_key_that_is_not_a_64_bit_integer_is_named(tmp_path, key):
    (tmp_path / "a.rec").touch()
    (tmp_path / "a.idx").write_bytes(f"0\t0\n{key}\t0\n".encode())
    with pytest.raises(CorruptIndexError, match="not an integer of 64 bits") as caught:
        MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "r")
    assert (caught.value.line, caught.value.key) == (2, key)


def test_text_keys_are_the_fields_of_the_lines_with_any_characters(tmp_path):
    (tmp_path / "a.rec").touch()
    (tmp_path / "a.idx").write_bytes("a\vb\t0\nc\x85d\u2028e\t8\tmore\r\n 007\t+16\n".encode())
    with MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "r", str) as reader:
        assert reader.idx == {"a\vb": 0, "c\x85d\u2028e": 8, "007": 16}
    (tmp_path / "a.idx").write_bytes(b"7\t0\t\xff\n")
    with MXIndexedRecordIO(tmp_path / "a.idx", tmp_path / "a.rec", "r", str) as reader:
        assert reader.keys == ["7"]
