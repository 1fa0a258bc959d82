"""Tests of RecordWriter: the index, refused input, fork, and closing."""

import os
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordio import (
    CorruptIndexError,
    RecordReader,
    RecordWriter,
    errors,
)


@pytest.mark.parametrize(
    ("index", "keys", "expected"),
    [
        (None, [None, None], None),
        (None, [None, 7], "7\t12\n"),
        (True, [None, None], "0\t0\n1\t12\n"),
        (True, ["a b", 5], "a b\t0\n5\t12\n"),
        (False, [None, None], None),
    ],
)
def test_when_an_index_is_written(tmp_path, index, keys, expected):
    path = tmp_path / "a.rec"
    with RecordWriter(path, index) as writer:
        assert [writer.write(b"abc", key) for key in keys] == [0, 12]
        assert len(writer) == 2
    beside = path.with_suffix(".idx")
    assert (beside.read_text() if beside.exists() else None) == expected


def test_an_old_index_next_to_the_file_is_never_left_stale(tmp_path):
    path = tmp_path / "a.rec"
    with RecordWriter(path, index=True) as writer:
        writer.write(b"old", key=10)
    with RecordWriter(path) as writer:
        writer.write(b"new")
    assert path.with_suffix(".idx").read_text() == "0\t0\n"


@given(
    head=st.binary(max_size=40).map(lambda head: head[: len(head) // 4 * 4]),
    body=st.binary(max_size=40),
    magic=st.lists(st.integers(0, 3000), max_size=3),
    nbytes=st.integers(0, 3000),
)
def test_a_record_of_two_parts_is_that_of_both(tmp_path_factory, head, body, magic, nbytes):
    body += bytes(nbytes)
    for place in magic:
        body = body[:place] + b"\x0a\x23\xd7\xce" + body[place:]
    folder = tmp_path_factory.mktemp("parts")
    for head_ in (head, b"\x0a\x23\xd7\xce" + head):
        with RecordWriter(folder / "a.rec") as whole, RecordWriter(folder / "b.rec") as parts:
            for number in range(2):
                assert whole.write(head_ + body, number) == parts.write_with_head(head_, body, number)
        for suffix in (".rec", ".idx"):
            assert (folder / f"a{suffix}").read_bytes() == (folder / f"b{suffix}").read_bytes()


def test_a_key_for_a_writer_without_index_is_refused(tmp_path):
    with RecordWriter(tmp_path / "a.rec", index=False) as writer:
        with pytest.raises(errors.RecordKeyError):
            writer.write(b"abc", key=1)
        assert writer.tell() == 0


def test_a_refused_record_leaves_no_trace(tmp_path):
    path = tmp_path / "a.rec"
    with RecordWriter(path, index=True) as writer:
        writer.write(b"abc")
        with pytest.raises(errors.PayloadTypeError):
            writer.write("text")
        with pytest.raises(CorruptIndexError, match="TAB"):
            writer.write(b"abc", key="a\tb")
        writer.write(b"def")
    assert list(RecordReader(path)) == [b"abc", b"def"]


def test_writers_are_not_pickled_and_not_used_after_closing(tmp_path):
    writer = RecordWriter(tmp_path / "a.rec")
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(writer)
    writer.close()
    writer.close()
    with pytest.raises(errors.ClosedError):
        writer.write(b"late")


def test_a_forked_child_neither_writes_nor_flushes(tmp_path):
    path = tmp_path / "a.rec"
    writer = RecordWriter(path)
    writer.write(b"abc")
    child = os.fork()
    if child == 0:
        try:
            writer.write(b"child")
        except errors.WrongProcessError:
            writer.close()
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    writer.write(b"def")
    writer.close()
    assert list(RecordReader(path)) == [b"abc", b"def"]


def test_a_writer_that_was_never_closed_still_writes_and_warns(tmp_path):
    path = tmp_path / "a.rec"
    writer = RecordWriter(path)
    writer.write(b"abc")
    with pytest.warns(ResourceWarning, match="never closed"):
        del writer
    assert list(RecordReader(path)) == [b"abc"]


def test_large_records_pass_through_the_buffer(tmp_path):
    path = tmp_path / "a.rec"
    records = [bytes([n]) * 700_000 for n in range(5)]
    with RecordWriter(path) as writer:
        for record in records:
            writer.write(record)
        writer.flush()
        assert list(RecordReader(path)) == records


def test_a_flush_that_comes_after_close_leaves_the_file_as_it_is(tmp_path):
    path = tmp_path / "a.rec"
    writer = RecordWriter(path)
    writer.write(b"payload")
    sink = writer._files.records
    look = sink.check

    def then_another_thread_closes():
        look()
        writer.close()

    sink.check = then_another_thread_closes
    sink.flush()
    assert list(RecordReader(path)) == [b"payload"]
