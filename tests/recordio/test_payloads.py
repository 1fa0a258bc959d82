"""Tests of the payloads of many records at once: the results of `extract` one by one, or None."""

import mmap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordio import CorruptRecordError, extract, payload_spans, serialize
from recordio.errors import RecordIOError

payloads = st.lists(st.binary(max_size=40) | st.just(b"\x0a\x23\xd7\xce" * 2), max_size=12)


def laid_out(records, gap=64):
    """Place records in memory at multiples of `gap`; return their places and lengths."""
    start, data = [], bytearray()
    for record in records:
        data += b"\xff" * (-len(data) % gap)
        start.append(len(data))
        data += record
    return bytes(data), np.array(start, np.int64), np.array([len(record) for record in records], np.int64)


@given(payloads, st.sampled_from([4, 64]))
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
