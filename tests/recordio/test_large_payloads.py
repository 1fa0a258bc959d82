"""Tests of payloads that are searched by words and written without a copy: the same bytes as by the rule."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import recordio
from recordio import MAGIC, RecordReader, RecordWriter, serialize
from recordio.aio import AsyncRecordReader, AsyncRecordWriter

MAGIC_BYTES = MAGIC.to_bytes(4, "little")


def by_the_rule(payload: bytes) -> bytes:
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
def payloads(draw: st.DrawFn) -> bytes:
    """Draw payloads around the size from which words are compared, with magic numbers at any offset."""
    data = bytearray(draw(st.integers(0, 255)) for _ in range(1)) * draw(st.integers(0, 5000))
    for place in draw(st.lists(st.integers(0, 5000), max_size=8)):
        if place + 4 <= len(data):
            data[place : place + 4] = MAGIC_BYTES
    return bytes(data)


@given(payloads())
def test_large_payloads_are_cut_at_every_magic_word_that_is_aligned(payload: bytes) -> None:
    assert serialize(payload) == serialize(bytearray(payload)) == by_the_rule(payload)


@pytest.fixture
def some() -> list[bytes]:
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


def test_writers_write_the_bytes_of_the_rule(tmp_path: Path, some: list[bytes]) -> None:
    with RecordWriter(tmp_path / "a.rec", index=True) as writer:
        for key, payload in enumerate(some):
            writer.write(payload, key)
    assert (tmp_path / "a.rec").read_bytes() == b"".join(map(by_the_rule, some))
    with RecordReader(tmp_path / "a.rec") as reader:
        assert [bytes(record) for record in reader] == some


def test_the_rest_of_a_short_write_follows(
    tmp_path: Path, some: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    pwritev = os.pwritev

    def short(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        return pwritev(descriptor, [buffers[0][:30_001]], offset)

    monkeypatch.setattr(os, "pwritev", short)
    with RecordWriter(tmp_path / "a.rec", index=False) as writer:
        for payload in some:
            writer.write(payload)
    assert (tmp_path / "a.rec").read_bytes() == b"".join(map(by_the_rule, some))


async def test_the_async_writer_writes_the_same(tmp_path: Path, some: list[bytes]) -> None:
    async with AsyncRecordWriter(tmp_path / "a.rec", index=True) as writer:
        for payload in some:
            await writer.write(payload)
    assert (tmp_path / "a.rec").read_bytes() == b"".join(map(by_the_rule, some))
    async with AsyncRecordReader(tmp_path / "a.rec") as reader:
        assert [bytes(record) async for record in reader] == some


def test_what_is_altered_after_a_write_is_written_as_it_was(tmp_path: Path) -> None:
    payload = bytearray(100_000)
    with RecordWriter(tmp_path / "a.rec", index=False) as writer:
        writer.write(payload)
        writer.write(memoryview(payload))
        payload[:] = b"x" * len(payload)
    with RecordReader(tmp_path / "a.rec") as reader:
        assert [bytes(record) for record in reader] == [bytes(100_000)] * 2


@pytest.mark.parametrize("index", [True, None])
def test_a_writer_goes_on_at_the_end(tmp_path: Path, index: bool | None) -> None:
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


def test_append_begins_no_index(tmp_path: Path) -> None:
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


def test_appending_to_nothing_is_writing(tmp_path: Path) -> None:
    with RecordWriter(tmp_path / "a.rec", index=True, append=True) as writer:
        writer.write(b"first", 3)
    with RecordReader(tmp_path / "a.rec") as reader:
        assert list(reader.keys) == [3]
