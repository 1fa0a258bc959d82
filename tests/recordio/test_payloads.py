"""Tests of payloads: of many records at once, searched by words, written without a copy; the bytes of the rule."""

import mmap
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import recordio
from recordio import MAGIC, CorruptRecordError, RecordReader, RecordWriter, extract, payload_spans, serialize
from recordio.errors import RecordIOError
from tests.cases import with_cases

RECORD_PAYLOADS = st.lists(st.binary(max_size=40) | st.just(b"\x0a\x23\xd7\xce" * 2), max_size=12)


def laid_out(records, gap=64):
    """Place records in memory at multiples of `gap`; return their places and lengths."""
    start, data = [], bytearray()
    for record in records:
        data += b"\xff" * (-len(data) % gap)
        start.append(len(data))
        data += record
    return bytes(data), np.array(start, np.int64), np.array([len(record) for record in records], np.int64)


@given(RECORD_PAYLOADS, st.sampled_from([4, 64]))
def test_they_are_those_of_extract(wanted, gap):
    records = [serialize(payload) for payload in wanted]
    data, start, length = laid_out(records, gap)
    begin, end = payload_spans(data, start, length)
    for payload, low, high, record in zip(wanted, begin, end, records, strict=True):
        assert bytes(extract(record)) == payload
        split = b"\x0a\x23\xd7\xce" in payload
        assert data[low:high] == (b"" if split else payload)


@given(st.binary(max_size=30), st.data())
def test_a_damaged_record_is_left_to_extract(payload, data):
    record = bytearray(serialize(payload))
    record[data.draw(st.integers(0, len(record) - 1))] ^= data.draw(st.integers(1, 255))
    cut = bytes(record[: data.draw(st.integers(0, len(record)))])
    text, start, length = laid_out([cut])
    (begin,), (end,) = payload_spans(text + b"\xff" * 8, start, length)
    if begin == end:
        return
    assert bytes(extract(cut)) == text[begin:end]


def test_a_record_at_an_odd_place_is_left_to_extract():
    data = b"\0\0" + serialize(b"abc")
    (begin,), (end,) = payload_spans(data, np.array([2]), np.array([len(data) - 2]))
    assert begin == end


def test_lengths_of_no_record_read_nothing_beyond_the_data():
    data = serialize(b"abcd")
    for length in (0, 4, 8, 11):
        (begin,), (end,) = payload_spans(data, np.array([0]), np.array([length]))
        assert begin == end
        with pytest.raises(RecordIOError):
            extract(data[:length])
    begin, end = payload_spans(b"", np.array([0, 0]), np.array([0, 0]))
    assert begin == end


def test_it_takes_a_mapping():
    with mmap.mmap(-1, 4096) as memory:
        memory[64:76] = serialize(b"abcd")
        (begin,), (end,) = payload_spans(memory, np.array([64]), np.array([12]))
        assert memory[begin:end] == b"abcd"


def test_no_records_have_no_spans():
    assert payload_spans(b"", np.empty(0, np.int64), np.empty(0, np.int64)) == ([], [])


def test_extract_names_the_fault():
    with pytest.raises(CorruptRecordError):
        extract(b"\xff" * 16)


MAGIC_BYTES = MAGIC.to_bytes(4, "little")


def by_the_rule(payload):
    """Split a record by the rule of docs/format.md, "Split records"."""
    cuts = [place for place in range(0, len(payload), 4) if payload[place : place + 4] == MAGIC_BYTES]
    starts, ends = [0, *(cut + 4 for cut in cuts)], [*cuts, len(payload)]
    parts = [payload[start:end] for start, end in zip(starts, ends, strict=True)]
    out = b""
    for number, each in enumerate(parts):
        flag = 0 if len(parts) == 1 else 1 if number == 0 else 3 if number == len(parts) - 1 else 2
        out += MAGIC_BYTES + (flag << 29 | len(each)).to_bytes(4, "little") + each + bytes(-len(each) % 4)
    return out


@st.composite
def payloads(draw):
    """Draw payloads around the size from which words are compared, with magic numbers at any offset."""
    data = bytearray(draw(st.integers(0, 255)) for _ in range(1)) * draw(st.integers(0, 5000))
    for place in draw(st.lists(st.integers(0, 5000), max_size=8)):
        if place + 4 <= len(data):
            data[place : place + 4] = MAGIC_BYTES
    return bytes(data)


@given(payloads())
def test_large_payloads_are_cut_at_every_magic_word_that_is_aligned(payload):
    assert serialize(payload) == serialize(bytearray(payload)) == by_the_rule(payload)


@pytest.fixture
def some():
    big = os.urandom(80_000)
    return [
        b"",
        b"x",
        big,
        big[:5] + MAGIC_BYTES + big,
        big[:8] + MAGIC_BYTES + big,
        bytes(5000),
        b"small",
    ] * 8


def test_writers_write_the_bytes_of_the_rule(tmp_path, some):
    with RecordWriter(tmp_path / "a.rec", index=True) as writer:
        for key, payload in enumerate(some):
            writer.write(payload, key)
    assert (tmp_path / "a.rec").read_bytes() == b"".join(map(by_the_rule, some))
    with RecordReader(tmp_path / "a.rec") as reader:
        assert [bytes(record) for record in reader] == some


def test_the_rest_of_a_short_write_follows(tmp_path, some, monkeypatch):
    pwritev = os.pwritev

    def short(descriptor, buffers, offset):
        return pwritev(descriptor, [buffers[0][:30_001]], offset)

    monkeypatch.setattr(os, "pwritev", short)
    with RecordWriter(tmp_path / "a.rec", index=False) as writer:
        for payload in some:
            writer.write(payload)
    assert (tmp_path / "a.rec").read_bytes() == b"".join(map(by_the_rule, some))


def test_what_is_altered_after_a_write_is_written_as_it_was(tmp_path):
    payload = bytearray(100_000)
    with RecordWriter(tmp_path / "a.rec", index=False) as writer:
        writer.write(payload)
        writer.write(memoryview(payload))
        payload[:] = b"x" * len(payload)
    with RecordReader(tmp_path / "a.rec") as reader:
        assert [bytes(record) for record in reader] == [bytes(100_000)] * 2


@with_cases("index", [True, None])
def test_a_writer_goes_on_at_the_end(tmp_path, index):
    path = tmp_path / "a.rec"
    with RecordWriter(path, index=True) as writer:
        writer.write(b"first", 7)
        writer.write(b"second")
    with RecordWriter(path, index=index, append=True) as writer:
        assert len(writer) == 2
        assert writer.tell() == path.stat().st_size
        writer.write(b"third")
        writer.write(b"fourth", 40)
    with RecordReader(path) as reader:
        assert [bytes(record) for record in reader] == [b"first", b"second", b"third", b"fourth"]
        assert list(reader.keys) == [7, 1, 2, 40]
    assert recordio.verify(path).ok


def test_append_begins_no_index(tmp_path):
    path = tmp_path / "a.rec"
    with RecordWriter(path) as writer:
        writer.write(b"first")
    with RecordWriter(path, append=True) as writer:
        writer.write(b"second")
        with pytest.raises(recordio.RecordKeyError):
            writer.write(b"third", 3)
    assert not path.with_suffix(".idx").exists()
    with RecordReader(path) as reader:
        assert [bytes(record) for record in reader] == [b"first", b"second"]


def test_appending_to_nothing_is_writing(tmp_path):
    with RecordWriter(tmp_path / "a.rec", index=True, append=True) as writer:
        writer.write(b"first", 3)
    with RecordReader(tmp_path / "a.rec") as reader:
        assert list(reader.keys) == [3]
