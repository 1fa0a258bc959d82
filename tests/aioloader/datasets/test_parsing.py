"""Tests of records that are parsed together: the images and labels are those of parsing each record by itself."""

from __future__ import annotations

import struct
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import recordio
from aioloader.formats.recordio import decoding
from aioloader.formats.recordio.decoding import ImageRecordDecoder, RecordDecoder
from aioloader.foundation.native import native
from aioloader.foundation.types import ItemLocation
from tests.cases import with_cases

MAGIC = 0xCED7230A
LABELS = [0.0, -0.0, 3.0, -1.0, 127.0, 128.0, 300.0, 2.5, 2.0**24, 2.0**31, 2.0**62, 2.0**63, 2.0**64]
LABELS += [-(2.0**63), -(2.0**64), float("inf"), float("-inf"), float("nan"), 1e-45, 3e38]
DTYPES = ["int8", "uint8", "int64", "uint64", "float16", "float32", "float64"]


def framed(payload: bytes) -> bytes:
    return struct.pack("<II", MAGIC, len(payload)) + payload + bytes(-len(payload) % 4)


def image_record(label: Any, body: bytes = b"image") -> bytes:
    flag = 0 if np.ndim(label) == 0 else len(label)
    return framed(recordio.pack(recordio.IRHeader(flag, label, 7, 0), body))


def outcome(parsed: Any) -> Any:
    body, label = parsed
    # As text, because one nan is not equal to another.
    return bytes(body), repr(label), type(label), np.asarray(label).tobytes()


def parsed_alone(decoder: ImageRecordDecoder, record: memoryview) -> Any:
    try:
        return outcome(decoder.parse(record, None, ItemLocation()))
    except Exception as error:
        return type(error)


def check(decoder: ImageRecordDecoder, records: list[bytes], gap: bytes = b"") -> list[bool]:
    """Compare both ways; return for each record whether it was parsed together with the others."""
    length = np.array([len(record) for record in records], np.int64)
    start = len(gap) + np.concatenate([[0], np.cumsum(length + len(gap))[:-1]]).astype(np.int64)
    data = memoryview(gap + b"".join(record + gap for record in records))
    fused = decoder.fuse(())
    assert fused is not None
    assert fused.parses_many
    bodies, others = fused.parse_many(data, start, length)
    if not bodies:
        return [False] * len(records)
    for record, body, label in zip(records, bodies, *others, strict=True):
        if body is not None:
            assert outcome((body, label)) == parsed_alone(decoder, memoryview(record))
    return [body is not None for body in bodies]


@with_cases("dtype", DTYPES)
def test_scalar_labels(dtype: str) -> None:
    together = check(ImageRecordDecoder(scalar_dtype=dtype), [image_record(label) for label in LABELS])
    # A label of the usual kind is not left to the decoder.
    assert together[LABELS.index(3.0)] == (dtype != "float16")
    assert together[LABELS.index(2.5)] == (dtype in ("float32", "float64"))


@pytest.mark.parametrize("first_label", [False, True])
def test_label_vectors(first_label: bool) -> None:
    records = [image_record(np.array(labels)) for labels in ([1.0], [1.0, 2.0], [2.5, 1.0], [float("nan")])]
    records.append(image_record(4.0))
    together = check(ImageRecordDecoder(first_label=first_label), records)
    assert together == ([True, True, False, False, True] if first_label else [False] * 4 + [True])


def test_records_that_are_not_plain_are_left_to_the_decoder() -> None:
    plain = image_record(4.0)
    damaged = b"\0" + plain[1:]
    too_long = struct.pack("<II", MAGIC, len(plain)) + plain[8:]
    in_parts = struct.pack("<II", MAGIC, 1 << 29 | len(plain) - 8) + plain[8:]
    few_labels = struct.pack("<III", MAGIC, 24, 9) + plain[12:32]
    short = framed(b"short")
    records = [plain, damaged, too_long, in_parts, few_labels, short, b"", plain + b"more", plain]
    assert check(ImageRecordDecoder(first_label=True), records) == [True, *[False] * 7, True]


def test_records_at_odd_places_are_left_to_the_decoder() -> None:
    assert check(ImageRecordDecoder(), [image_record(4.0)] * 3, gap=b"x") == [False, False, False]


def test_nothing_is_read_behind_the_data() -> None:
    record = image_record(4.0)
    fused = ImageRecordDecoder().fuse(())
    assert fused is not None
    start, length = np.array([0, 1 << 40, 40], np.int64), np.array([len(record)] * 3, np.int64)
    bodies, _ = fused.parse_many(memoryview(record), start, length)
    assert [body is not None for body in bodies] == [True, False, False]


def test_a_derived_class_parses_in_its_way() -> None:
    class Doubled(ImageRecordDecoder):
        def parse(self, data: memoryview, extra: Any, location: ItemLocation) -> tuple[Any, Any]:
            body, label = super().parse(data, extra, location)
            return body, 2 * label

    assert check(Doubled(), [image_record(4.0)] * 2) == [False, False]


@given(st.lists(st.binary(max_size=24), max_size=8), st.data())
def test_damaged_records(bodies: list[bytes], data: Any) -> None:
    records = []
    for body in bodies:
        record = bytearray(image_record(data.draw(st.floats(width=32)), body))
        if data.draw(st.booleans()):
            record[data.draw(st.integers(0, len(record) - 1))] = data.draw(st.integers(0, 255))
        records.append(bytes(record))
    check(ImageRecordDecoder(scalar_dtype="int16", first_label=data.draw(st.booleans())), records)


@given(st.lists(st.binary(max_size=12), min_size=1, max_size=6), st.data())
def test_payloads_are_the_same_without_the_compiled_part(payloads: list[bytes], data: Any) -> None:
    if native is None:
        pytest.skip("aioloader._native is not built")
    parts = [framed(payload) for payload in payloads]
    memory = bytearray(b"".join(parts))
    memory[data.draw(st.integers(0, len(memory) - 1))] ^= data.draw(st.sampled_from([0, 1, 4, 0x20]))
    ends = np.cumsum([len(part) for part in parts])
    start = ends - [len(part) for part in parts] + data.draw(st.sampled_from([0, 0, 2]))
    length = np.minimum(len(memory), ends + data.draw(st.sampled_from([-4, 0, 4, 8, 12]))) - start
    found = []
    for how in (native, None):
        with mock.patch.object(decoding, "native", how):
            found.append(RecordDecoder().many(memoryview(memory), start, np.maximum(length, 0)))
    assert found[0] == found[1]


@pytest.mark.skipif(native is None, reason="aioloader._native is not built")
def test_the_compiled_part_reads_only_the_memory() -> None:
    assert native is not None
    record = framed(b"abcd")
    most = np.iinfo(np.int64).max
    start, length = np.array([0, -4, 4, most - 3, 0, 0]), np.array([12, 12, 12, 12, most, -1])
    assert native.copy_payloads(record, start, length) == [b"abcd", *[None] * 5]
    assert native.copy_payloads(b"", start[:0], length[:0]) == []
    for sizes in ((8, 16), (4, 4)):
        with pytest.raises(ValueError, match="sizes do not fit each other"):
            native.copy_payloads(record, *map(bytes, sizes))
