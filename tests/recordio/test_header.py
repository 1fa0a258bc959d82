"""Tests of IRHeader, pack, unpack."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordio import HeaderError, IRHeader, pack, testing, unpack
from recordio.errors import PayloadTypeError

SCALAR = "00000000 0000803f 0100000000000000 0000000000000000 64617461"
ARRAY = "03000000 00000000 0200000000000000 0000000000000000 0000803f 00000040 00004040 64617461"


@pytest.mark.parametrize(
    ("header", "expected"),
    [((0, 1.0, 1, 0), SCALAR), ((9, True, 1, 0), SCALAR), (IRHeader(0, [1, 2, 3], 2, 0), ARRAY)],
    ids=["scalar", "flag forced to 0", "array"],
)
def test_known_bytes(header: tuple[object, ...], expected: str) -> None:
    assert pack(header, b"data") == bytes.fromhex(expected)


@given(testing.headers(), st.binary(max_size=40))
@settings(max_examples=150)
def test_unpack_undoes_pack(header: IRHeader, body: bytes) -> None:
    back, rest = unpack(pack(header, body))
    assert rest == body
    assert back[2:] == header[2:]
    labels = header.label if isinstance(header.label, list) else [header.label]
    if header.label == []:
        assert (back.flag, back.label) == (0, 0.0)
    else:
        assert np.array_equal(np.atleast_1d(back.label), np.array(labels, np.float32))


def test_nested_labels_are_flattened_and_one_label_list_stays_an_array() -> None:
    header, _ = unpack(pack((0, np.arange(6).reshape(2, 3), 0, 0), b""))
    assert (header.flag, header.label.tolist()) == (6, [0, 1, 2, 3, 4, 5])
    header, _ = unpack(pack((0, [7], 0, 0), b""))
    assert (header.flag, header.label.shape, header.label.dtype) == (1, (1,), np.float32)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_the_body_is_a_slice_of_the_same_kind(kind: Any) -> None:
    _, body = unpack(kind(pack((0, [1, 2], 0, 0), b"body")))
    assert type(body) is kind
    assert bytes(body) == b"body"


def test_labels_and_a_memoryview_body_share_memory_and_labels_are_read_only() -> None:
    slab = bytearray(pack((0, [1, 2], 0, 0), b"body"))
    header, body = unpack(memoryview(slab))
    slab[-4:] = b"BODY"
    assert bytes(body) == b"BODY"
    assert not header.label.flags.writeable
    assert np.shares_memory(header.label, np.frombuffer(slab, np.uint8))


@pytest.mark.parametrize("ids", [(-1, 0), (2**64, 0), (0, 2**64), (1.5, 0)], ids=repr)
def test_ids_must_fit_64_unsigned_bits(ids: tuple[object, object]) -> None:
    with pytest.raises(struct.error):
        pack((0, 0.0, *ids), b"")


def test_errors_keep_the_types_that_callers_expect() -> None:
    with pytest.raises(struct.error, match="unpack requires a buffer of 24 bytes"):
        unpack(b"x" * 23)
    with pytest.raises(ValueError, match="buffer is smaller than requested size"):
        unpack(pack((0, [1, 2, 3], 0, 0), b"")[:-1])
    with pytest.raises(PayloadTypeError):
        pack((0, 0, 0, 0), "text")  # type: ignore[arg-type]
    with pytest.raises(HeaderError):
        pack((0, 1e39, 0, 0), b"")


@given(st.binary(max_size=60))
@settings(max_examples=150)
def test_unpacking_any_bytes_returns_a_header_or_raises_our_own_error(data: bytes) -> None:
    try:
        unpack(data)
    except HeaderError:
        pass
