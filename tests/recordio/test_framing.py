"""Tests of framing: the published byte vectors, extract, serialize, and refused input."""

import contextlib
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import recordio
from recordio import (
    CorruptRecordError,
    Index,
    RecordParser,
    RecordTooLargeError,
    TruncatedRecordError,
    _framing,
    _parser,
    _sansio,
    extract,
    serialize,
    testing,
)
from recordio._framing import MAGIC_BYTES
from recordio.errors import PayloadTypeError
from tests.cases import with_cases
from tests.recordio.sources import Memory

M = "0a23d7ce"
VECTORS = {
    "empty": ("", f"{M} 00000000"),
    "one byte": ("61", f"{M} 01000000 61000000"),
    "three bytes": ("616263", f"{M} 03000000 61626300"),
    "four bytes": ("61626364", f"{M} 04000000 61626364"),
    "five bytes": ("6162636465", f"{M} 05000000 61626364 65000000"),
    "magic alone": (M, f"{M} 00000020 {M} 00000060"),
    "magic twice": (M + M, f"{M} 00000020 {M} 00000040 {M} 00000060"),
    "magic then one byte": (M + "78", f"{M} 00000020 {M} 01000060 78000000"),
    "magic then four bytes": (M + "7778797a", f"{M} 00000020 {M} 04000060 7778797a"),
    "four bytes then magic": ("41424344" + M, f"{M} 04000020 41424344 {M} 00000060"),
    "magic inside": ("41424344" + M + "78797a", f"{M} 04000020 41424344 {M} 03000060 78797a00"),
    "magic at 1": ("41" + M + "78797a", f"{M} 08000000 410a23d7 ce78797a"),
    "magic at 2": ("4142" + M + "7a7a", f"{M} 08000000 41420a23 d7ce7a7a"),
    "magic at 3": ("414243" + M, f"{M} 07000000 4142430a 23d7ce00"),
    "two magics": (
        f"4142434445464748 {M} 6d696434 {M} 7461696c35",
        f"{M} 08000020 41424344 45464748 {M} 04000040 6d696434 {M} 05000060 7461696c 35000000",
    ),
    "looks like a record": (f"{M} 04000000 66616b65", f"{M} 00000020 {M} 08000060 04000000 66616b65"),
    "partial magic at the end": ("41424344 0a23d7", f"{M} 07000000 41424344 0a23d700"),
}


@with_cases(("payload", "framed"), VECTORS.values(), ids=VECTORS.keys())
def test_published_vectors_hold_in_both_directions(payload, framed):
    assert serialize(bytes.fromhex(payload)).hex() == framed.replace(" ", "")
    assert bytes(extract(bytes.fromhex(framed))).hex() == payload.replace(" ", "")


@given(testing.payloads(), st.binary(max_size=9))
@settings(max_examples=2 * settings().max_examples)
def test_extract_reverses_serialize_with_any_bytes_behind(payload, after):
    framed = serialize(payload)
    assert len(framed) % 4 == 0
    assert extract(framed + after) == payload


def test_a_whole_record_is_not_copied():
    slab = bytearray(serialize(b"abcd") + b"rest")
    payload = extract(memoryview(slab))
    assert isinstance(payload, memoryview)
    slab[8:12] = b"ABCD"
    assert bytes(payload) == b"ABCD"


@with_cases("kind", [bytes, bytearray, memoryview, lambda b: np.frombuffer(b, np.uint8)])
def test_any_buffer_can_be_extracted_and_serialized(kind):
    assert extract(kind(serialize(b"abc"))) == b"abc"
    assert serialize(kind(b"abc")) == serialize(b"abc")


def test_arrays_are_serialized_as_their_bytes():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert extract(serialize(array.data)) == array.tobytes()
    assert extract(serialize(array.T.data)) == array.T.tobytes()


HEADS = {
    "no magic": (b"\0" * 16, 0, CorruptRecordError),
    "starts with flag 2": (serialize(b"")[:4] + b"\0\0\0\x40", 0, CorruptRecordError),
    "starts with flag 3": (serialize(b"")[:4] + b"\0\0\0\x60", 0, CorruptRecordError),
    "starts with flag 7": (serialize(b"")[:4] + b"\0\0\0\xe0", 0, CorruptRecordError),
    "first part, then a whole record": (
        bytes.fromhex(f"{M}04000020 61626364 {M}00000000"),
        12,
        CorruptRecordError,
    ),
    "first part not a multiple of 4": (
        bytes.fromhex(f"{M}01000020 61000000 {M}00000060"),
        0,
        CorruptRecordError,
    ),
    "nothing": (b"", 0, TruncatedRecordError),
    "half a head": (serialize(b"abc")[:6], 0, TruncatedRecordError),
    "data cut": (serialize(b"abcdefgh")[:12], 0, TruncatedRecordError),
    "only padding cut": (serialize(b"abcde")[:-1], 0, TruncatedRecordError),
    "ends after a first part": (bytes.fromhex(f"{M}04000020 61626364"), 12, TruncatedRecordError),
    "absurd length": (bytes.fromhex(f"{M}ffffff1f 61626364"), 0, TruncatedRecordError),
}


@with_cases(("data", "at", "kind"), HEADS.values(), ids=HEADS.keys())
def test_damage_is_named_with_its_absolute_offset(data, at, kind):
    with pytest.raises(kind) as caught:
        extract(data, path="x.rec", offset=4000)
    assert (caught.value.path, caught.value.offset) == ("x.rec", 4000 + at)
    assert "x.rec" in str(caught.value)
    assert "Invalid RecordIO File" in str(caught.value)
    assert "repair" in str(caught.value)


def test_truncation_is_also_an_end_of_file():
    with pytest.raises(EOFError):
        extract(serialize(b"abcd")[:-4])


@given(st.binary(max_size=64) | testing.payloads().map(serialize).flatmap(testing.damaged))
@settings(max_examples=3 * settings().max_examples)
def test_extract_never_fails_in_any_other_way(data):
    with contextlib.suppress(CorruptRecordError):
        extract(data)


@with_cases("payload", ["text", 5, None], ids=repr)
def test_payloads_that_are_not_bytes_are_refused(payload):
    with pytest.raises(PayloadTypeError, match="bytes-like"):
        serialize(payload)


def test_the_length_limit_is_two_to_the_29th():
    # A view with a stride of 0 has the length without the memory.
    huge = np.lib.stride_tricks.as_strided(np.zeros(1, np.uint8), (recordio.MAX_PAYLOAD + 1,), (0,))
    with pytest.raises(RecordTooLargeError, match=r"less than 2\^29 bytes") as caught:
        serialize(huge.data)
    assert caught.value.length == 2**29


def part(flag, data):
    return MAGIC_BYTES + struct.pack("<I", flag << 29 | len(data)) + data + bytes(-len(data) % 4)


def outcome(read, framed):
    try:
        return read(framed)
    except CorruptRecordError as error:
        return type(error), str(error), error.offset


def parsed(framed):
    parser = RecordParser()
    records = []
    for at in range(0, len(framed), 1000):
        parser.push(framed[at : at + 1000])
        records += parser
    parser.finish()
    return [*records, *parser]


def scanned(framed):
    offsets = Index.scan(Memory(framed)).offsets.tolist()
    return offsets


@given(
    st.lists(st.sampled_from([0, 0, 0, 4, 8, 400]), min_size=0, max_size=200),
    st.binary(max_size=5),
    st.one_of(st.none(), st.tuples(st.floats(0, 0.999), st.integers(1, 255))),
    st.data(),
)
@settings(max_examples=3 * settings().max_examples)
def test_many_parts_are_read_as_one_at_a_time(lengths, last, damage, data):
    """Also damaged ones: the runs that are joined at once end before the damage, which is found as ever."""
    filler = data.draw(st.binary(min_size=400, max_size=400))
    parts = [part(2, filler[:length]) for length in lengths]
    framed = bytearray(b"".join([part(1, b"head"), *parts, part(3, last), part(0, b"next")]))
    if damage is not None:
        framed[int(damage[0] * len(framed))] ^= damage[1]
    for read in (extract, parsed, scanned):
        found = outcome(read, bytes(framed))
        with pytest.MonkeyPatch.context() as patch:
            for module in (_framing, _parser, _sansio):
                patch.setattr(module, "MANY_PARTS", 1 << 40)
            assert found == outcome(read, bytes(framed))
    if damage is None:
        pieces = [b"head", *(filler[:length] for length in lengths), last]
        assert extract(framed) == MAGIC_BYTES.join(pieces)


def test_a_record_of_very_many_empty_parts_takes_about_the_memory_of_its_bytes():
    count = 100_000
    framed = part(1, b"") + part(2, b"") * count + part(3, b"")
    for read in (extract, parsed):
        tracemalloc.start()
        found = read(framed)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        payload = found[0] if isinstance(found, list) else found
        assert len(payload) == 4 * (count + 1)
        assert peak < 6 * len(framed)
