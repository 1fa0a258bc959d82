"""Tests of the layout of sample indexes: what is written is read, and damage is refused."""

from __future__ import annotations

import json
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.sample_index import IndexFault, SampleIndex, ShardState, pack_index, unpack_index
from tests.cases import with_cases

HEAD = struct.Struct("<8sIIII")
STATE = ShardState(1000, "17-abc")
DTYPES = ("<i8", "<i4", "<u2", "|u1", "|i1", "<f4", "<f8", ">i4")


def sample() -> bytes:
    arrays = {
        "offset": np.arange(5) * 100,
        "length": np.full(5, 100),
        "keys": np.frombuffer(b"abcdefghijkl", np.uint8),
        "parts": np.arange(20, dtype=np.int32).reshape(5, 2, 2),
        "empty": np.empty((0, 3), np.float32),
    }
    return pack_index(SampleIndex("toy-1", arrays), STATE)


def unpack(data: bytes) -> tuple[SampleIndex, ShardState]:
    return unpack_index(memoryview(data))


def sealed(description: Any, body: bytes = bytes(64)) -> bytes:
    """Return a file with correct checksums."""
    text = description if isinstance(description, bytes) else json.dumps(description).encode()
    return HEAD.pack(b"ALsampls", 1, len(text), zlib.crc32(text), zlib.crc32(body)) + text + body


def described(*columns: Any, **changes: Any) -> dict[str, Any]:
    return {"kind": "toy-1", "nbytes": 1000, "state": "s", "arrays": list(columns)} | changes


@given(
    arrays=st.dictionaries(
        st.text(min_size=1, max_size=5),
        st.tuples(
            st.sampled_from(DTYPES),
            st.lists(st.integers(0, 3), min_size=1, max_size=3),
            st.binary(min_size=216),
        ),
        max_size=6,
    ),
    kind=st.text(max_size=8),
    nbytes=st.integers(0, 2**63),
    state=st.text(max_size=20),
)
def test_what_is_written_is_read(arrays: Any, kind: str, nbytes: int, state: str) -> None:
    given_arrays = {}
    for name, (dtype, shape, data) in arrays.items():
        count = int(np.prod(shape))
        given_arrays[name] = np.frombuffer(data, dtype, count).reshape(shape)
    data = pack_index(SampleIndex(kind, given_arrays), ShardState(nbytes, state))
    index, shard = unpack(data)
    assert (index.kind, shard) == (kind, ShardState(nbytes, state))
    assert list(index.arrays) == list(given_arrays)
    for name, array in index.arrays.items():
        expected = given_arrays[name]
        assert array.shape == expected.shape
        assert array.dtype == expected.dtype.newbyteorder("<")
        assert array.tobytes() == expected.astype(array.dtype).tobytes()
        assert not array.flags.writeable


def test_arrays_begin_at_multiples_of_64_bytes_and_are_little_endian() -> None:
    data = sample()
    _, version, length, _, _ = HEAD.unpack_from(data)
    assert (version, len(data) % 64, (HEAD.size + length) % 64) == (1, 0, 0)
    arrays = json.loads(data[HEAD.size : HEAD.size + length])["arrays"]
    assert [dtype for _, dtype, _, _ in arrays] == ["<i8", "<i8", "|u1", "<i4", "<f4"]
    assert all(at % 64 == 0 for _, _, _, at in arrays)
    body = data[HEAD.size + length :]
    assert np.frombuffer(body, "<i8", 5).tolist() == [0, 100, 200, 300, 400]


@given(place=st.integers(0, len(sample()) - 1), bit=st.integers(0, 7))
def test_a_changed_bit_is_refused(place: int, bit: int) -> None:
    data = bytearray(sample())
    data[place] ^= 1 << bit
    with pytest.raises(IndexFault):
        unpack(bytes(data))


@given(length=st.integers(0, len(sample()) - 1), more=st.binary(min_size=1, max_size=100))
def test_an_index_of_another_length_is_refused(length: int, more: bytes) -> None:
    for data in (sample()[:length], sample() + more):
        with pytest.raises(IndexFault):
            unpack(data)


def test_an_index_of_another_version_is_named() -> None:
    data = bytearray(sample())
    struct.pack_into("<I", data, 8, 2)
    with pytest.raises(IndexFault, match="version 2 of the layout, and this is version 1"):
        unpack(bytes(data))


@with_cases(
    "column",
    [
        *(["a", "<i8", [8], at] for at in (1, -8, 2**70, 0.0, None)),
        *(["a", "<i8", [extent], 0] for extent in (9, -1, 1.0, True)),
        *(["a", "<i8", shape, 0] for shape in ([2**40, 2**40], [0, 2**80], [0, 2**30, 2**30], [1] * 80)),
        *(["a", "<i8", shape, 0] for shape in ([], {}, 8, "8")),
        *(["a", dtype, [1], 0] for dtype in (None, ">i8", "<f2", "O", "S8", "<i4,<i4", "(2,)i4", "M8[s]", 8)),
        *(["a", "<i8", [1]], ["a", "<i8", [1], 0, 0], "abcd", None),
    ],
)
def test_an_array_that_cannot_be_is_refused(column: Any) -> None:
    good = ["good", "<i8", [8], 0]
    index, _ = unpack(sealed(described(good)))
    assert index.arrays["good"].shape == (8,)
    with pytest.raises(IndexFault):
        unpack(sealed(described(good, column)))


@with_cases(
    "description",
    [
        *(b"[]", b"{}", b"\xff", b"[" * 20_000, b"[" * 900 + b"]" * 900, b"9" * 6000),
        *(described(nbytes=nbytes) for nbytes in (None, "x", float("nan"), float("inf"))),
        *(described(arrays=arrays) for arrays in (5, None, {"a": 1})),
        described(*[["a", "<i8", [1], 0]] * 65),
    ],
    ids=range(14),
)
def test_a_description_that_cannot_be_is_refused(description: Any) -> None:
    with pytest.raises(IndexFault):
        unpack(sealed(description))


def test_a_description_that_is_too_long_is_refused_before_it_is_read() -> None:
    data = HEAD.pack(b"ALsampls", 1, (1 << 20) + 1, 0, 0) + bytes(2 << 20)
    with pytest.raises(IndexFault, match="head is damaged"):
        unpack(data)


@with_cases("dtype", ["?", "O", "<f2", "M8[s]"])
def test_arrays_that_could_not_be_read_are_not_written(dtype: str) -> None:
    with pytest.raises(TypeError, match="the array 'a'"):
        pack_index(SampleIndex("toy-1", {"a": np.zeros(3, dtype)}), STATE)


def test_an_index_without_samples_is_read() -> None:
    index, shard = unpack(pack_index(SampleIndex("toy-1", {"offset": np.empty(0, np.int64)}), STATE))
    assert (index.kind, len(index.arrays["offset"]), shard) == ("toy-1", 0, STATE)


@given(data=st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for whole in (data, b"ALsampls" + data, sealed(data)):
        with pytest.raises(IndexFault):
            unpack(whole)
