"""Tests of RecordParser: any split of the input yields the same records; damage and limits."""

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordio import (
    END,
    NEED_MORE,
    CorruptRecordError,
    RecordParser,
    TruncatedRecordError,
    serialize,
    testing,
)


def parse(chunks, **options):
    parser = RecordParser(**options)
    records = []
    for chunk in chunks:
        parser.push(chunk)
        records.extend(parser)
    parser.finish()
    records.extend(parser)
    assert parser.next_record() is END
    return records


@given(st.data())
@settings(max_examples=3 * settings().max_examples // 2)
def test_any_chunking_of_any_file_returns_the_records_written(data):
    records = data.draw(testing.record_lists())
    assert parse(data.draw(testing.chunkings(testing.frame(records)))) == records


def test_needed_is_the_number_of_missing_bytes():
    parser = RecordParser()
    assert parser.needed == 8
    parser.push(serialize(b"abcde")[:8])
    assert parser.next_record() is NEED_MORE
    assert parser.needed == 8
    parser.push(b"abcde\0\0\0")
    assert parser.needed == 0
    assert parser.next_record() == b"abcde"


def test_offsets_count_from_where_the_input_begins():
    parser = RecordParser(offset=1000)
    parser.push(testing.frame([b"abcd", b"\x0a\x23\xd7\xce", b""]))
    offsets = [parser.record_offset for _ in parser]
    assert offsets == [1000, 1012, 1028]
    assert parser.offset == 1036


def test_a_length_beyond_the_known_size_is_refused_at_once():
    parser = RecordParser(size=100)
    parser.push(bytes.fromhex("0a23d7ce ffffff1f"))
    with pytest.raises(TruncatedRecordError):
        parser.next_record()


def test_a_record_beyond_the_limit_is_refused_before_it_is_collected():
    parser = RecordParser(max_record_bytes=10)
    parser.push(serialize(b"x" * 11)[:8])
    with pytest.raises(CorruptRecordError, match="more than a record may hold"):
        parser.next_record()


def test_parts_of_one_record_cannot_add_up_without_bound():
    parser = RecordParser(max_record_bytes=1000)
    parser.push(bytes.fromhex("0a23d7ce 00000020") + bytes.fromhex("0a23d7ce 00000040") * 10_000)
    with pytest.raises(CorruptRecordError):
        parser.next_record()


def test_a_large_record_in_small_chunks_takes_linear_memory():
    framed = serialize(b"x" * 2_000_000)
    parser = RecordParser()
    tracemalloc.start()
    for at in range(0, len(framed), 1000):
        parser.push(framed[at : at + 1000])
        record = parser.next_record()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert record == b"x" * 2_000_000
    assert peak < 8_000_000


def test_pushing_after_finish_is_a_mistake():
    parser = RecordParser()
    parser.finish()
    with pytest.raises(ValueError, match="after finish"):
        parser.push(b"x")


def test_mutable_chunks_are_copied():
    chunk = bytearray(serialize(b"abcd"))
    parser = RecordParser()
    parser.push(chunk)
    chunk[8:12] = b"...."
    assert parser.next_record() == b"abcd"


@given(st.data())
@settings(max_examples=3 * settings().max_examples)
def test_damaged_files_yield_records_or_our_own_error(data):
    damaged = data.draw(testing.damaged(testing.frame(data.draw(testing.record_lists()))))
    parser = RecordParser(path="x.rec", size=len(damaged))
    parser.push(damaged)
    parser.finish()
    caught = None
    try:
        while parser.next_record() is not END:
            pass
    except CorruptRecordError as error:
        caught = error
    if caught is not None:
        assert caught.path == "x.rec"
        assert caught.offset is not None
        assert 0 <= caught.offset <= len(damaged)
