"""Tests of spans that differ from their records: upper bounds, and spans that are too short."""

import os
from pathlib import Path
from typing import Any

import pytest

import recordio
from aioloader.errors import SpanTooShortError
from aioloader.foundation.types import SpanKind
from aioloader.storage import LocalByteSource, records
from tests.aioloader.storage.reading import fetch, spans

MAGIC = (0xCED7230A).to_bytes(4, "little")


@pytest.fixture
def sparse(tmp_path: Path) -> str:
    """Write two records, the second one split, at both ends of a sparse file of 3 GB."""
    file = tmp_path / "sparse.rec"
    with file.open("wb") as out:
        out.write(recordio.serialize(b"first"))
        out.seek(3_000_000_000)
        out.write(recordio.serialize(b"abcd" + MAGIC + b"efgh"))
    return str(file)


def test_a_sparse_index_does_not_make_it_read_gigabytes(sparse: str) -> None:
    source = LocalByteSource([sparse], kind=SpanKind.RECORD)
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
    source = LocalByteSource([str(file)], kind=SpanKind.RECORD)

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

    plan = LocalByteSource([str(file)], kind=SpanKind.RECORD).plan_blocking(
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

    plan = LocalByteSource([str(file)], kind=SpanKind.RECORD).plan_blocking(spans((0, 0, 2**62)))

    assert plan.length.tolist() == [9_000_000]


@pytest.mark.parametrize("payload", [b"x" * 4000, b"abcd" + (MAGIC + b"efgh") * 400], ids=["whole", "split"])
@pytest.mark.parametrize("span", [1, 4, 8, 12, 1000])
def test_a_span_shorter_than_its_record_is_reported_with_the_records_length(
    tmp_path: Path, payload: bytes, span: int
) -> None:
    first, second = recordio.serialize(payload), recordio.serialize(b"second")
    file = tmp_path / "a.rec"
    file.write_bytes(first + second)
    source = LocalByteSource([str(file)], kind=SpanKind.RECORD)

    items, failures = fetch(source, spans((0, 0, span), (0, len(first), len(second))))

    assert items[1] == second
    if span < 8:  # no record is that short: its length is determined before it is read
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
    monkeypatch.setattr(records, "TRUSTED_SPAN_BYTES", longest)
    first, second = bytearray(recordio.serialize(b"x" * 400)), recordio.serialize(b"y" * 400)
    first[4:8] = (600).to_bytes(4, "little")
    file = tmp_path / "a.rec"
    file.write_bytes(first + second)

    items, failures = fetch(
        LocalByteSource([str(file)], kind=SpanKind.RECORD),
        spans((0, 0, len(first)), (0, len(first), len(second))),
    )

    assert items == [None, second]
    assert isinstance(failures[0], recordio.CorruptRecordError)
    assert "its length was damaged" in str(failures[0])
