"""Target: TFRecord: framing, scans, the text index, and `tf.train.Example` messages.

An input is one byte, which selects the reader: a message, a file or a text index; then its bytes. Those of a text index
begin with the size of its file (uint32, little endian).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np

from aioloader.errors import MissingFieldError, SampleFormatError
from aioloader.formats.tfrecord.dataset import ExampleReader, read_labels
from aioloader.formats.tfrecord.example import (
    ExampleWalk,
    MessageFault,
    feature_values,
    find_features,
    wanted_features,
)
from aioloader.formats.tfrecord.framing import (
    FRAME_NBYTES,
    HEAD_NBYTES,
    MOST_PAYLOAD,
    FileScan,
    find_heads,
    length_crc,
    payload_of,
)
from aioloader.formats.tfrecord.records import parse_index
from aioloader.foundation.types import ItemLocation, ReadPlan, Spans
from tests.aioloader.formats.tfrecords import (
    bytes_list,
    entry,
    example,
    field,
    float_list,
    int64_list,
    record,
)
from tests.fuzz.target import Draw, Finding, change, dictionary, pick

_MESSAGE, _FILE, _INDEX = range(3)
_SIZE = struct.Struct("<I")
_SMALL_SCAN = {
    "_LEAST_SEGMENT": 200,
    "_RECORDS_OF_SEGMENT": 2,
    "_LEAST_SEARCH": 60,
    "_FIRST_NBYTES": 48,
    "_LEAST_BLOCK": 24,
    "_MOST_BLOCK": 128,
    "_SPARSE_NBYTES": 100,
    "_CHECKED_AT_A_TIME": 3,
}
_NAMES = ("a", "image/encoded", "b")
_LOCATION = ItemLocation("7", "a.tfrecord", 1000)
_GROUP = b"\x2b\x08\x01\x2c"

EXAMPLES = (
    example({"image/encoded": bytes_list(bytes(range(200)) * 8), "a": int64_list(7), "b": float_list(0.5)}),
    example({"a": int64_list(*range(-20, 20)), "b": bytes_list(b"x", b"", b"yz"), "image/encoded": b""}),
    example(
        {"b": float_list(1, 2, packed=False), "a": int64_list(1, -1, packed=False), "c" * 130: b"\x0a\x00"}
    ),
    field(1, field(1, field(2, int64_list(1)) + field(1, b"a")) + _GROUP)
    + field(1, entry("b", float_list(3))),
    field(1, entry("a", int64_list(1) + bytes_list(b"s") + int64_list(2)) * 2) + b"\x18\x05",
    field(9, bytes(1500)) + field(1, entry("b", bytes_list(bytes(1100))) + entry("a", int64_list(300))),
)
"""Messages in usual and in unusual forms."""

PIECES = (
    *dictionary("protobuf"),
    *(
        record(b""),
        record(record(b"ab") * 3),
        entry("a", int64_list(5)),
        field(1, entry("b", bytes_list(b"v"))),
    ),
)
_TEXTS = (b" ", b"\n", b"16", b"0 ", b"-", b"9" * 18, b"9" * 19, b".", b"\xc2\xb2", b"0 16\n16 16\n")


class TFRecord:
    """Files and messages with faults: they are refused, or read as protobuf's rules say."""

    def make(self, draw: Draw) -> bytes:
        """See `Target.make`."""
        kind = draw()
        if kind < 0.65:
            data = bytearray(pick(draw, EXAMPLES))
            for _ in range(pick(draw, (1, 1, 2, 3))):
                change(data, 0, draw, PIECES)
            if draw() < 0.5:  # the lengths around the change fit again
                data = bytearray(field(1, bytes(data[3:] if draw() < 0.5 else data)))
            return bytes([_MESSAGE]) + data
        if kind < 0.9:
            data = bytearray(self._file(draw))
            for _ in range(int(draw() * 3)):
                change(data, 0, draw, PIECES)
            return bytes([_FILE]) + data
        lengths = [FRAME_NBYTES + int(draw() * 30) for _ in range(int(draw() * 8))]
        at, text = 0, bytearray()
        for length in lengths:
            text += f"{at} {length}\n".encode()
            at += length
        for _ in range(int(draw() * 3)):
            change(text, 0, draw, _TEXTS)
        return bytes([_INDEX]) + _SIZE.pack(at) + text

    @staticmethod
    def _file(draw: Draw) -> bytes:
        random = Random(draw())
        most = pick(draw, (4, 60, 400))
        payloads = [random.randbytes(random.randrange(most)) for _ in range(int(draw() * 30))]
        if draw() < 0.4:
            inner = b"".join(map(record, payloads[:4]))
            payloads = [inner if random.random() < 0.3 else payload for payload in payloads]
        return b"".join(map(record, payloads))

    def check(self, data: bytes) -> bool:
        """See `Target.check`."""
        kind, rest = (data[0] % 3, data[1:]) if data else (_FILE, b"")
        return (_check_message, _check_file, _check_index)[kind](rest)


# -- messages --------------------------------------------------------------------------------------------------------


class _Wrong(ValueError):
    """Error raised for a message that protobuf's rules refuse."""


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(10):
        if at + place >= len(data):
            raise _Wrong
        value |= (data[at + place] & 127) << 7 * place
        if data[at + place] < 128:
            return value & (1 << 64) - 1, at + place + 1
    raise _Wrong


def _fields(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """Yield number, type and value of the fields of a message; groups have no value."""
    at, groups = 0, []
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire, value = tag >> 3, tag & 7, None
        if not 0 < number < 1 << 29:
            raise _Wrong
        if wire == 0:
            value, at = _varint(data, at)
        elif wire in (1, 5):
            nbytes = 8 if wire == 1 else 4
            value, at = data[at : at + nbytes], at + nbytes
        elif wire == 2:
            nbytes, at = _varint(data, at)
            value, at = data[at : at + nbytes], at + nbytes
        elif wire == 3:
            groups.append(number)
        elif wire != 4 or not groups or groups.pop() != number:
            raise _Wrong
        if at > len(data) or len(groups) > 100:
            raise _Wrong
        if not groups and wire not in (3, 4):
            yield number, wire, value
    if groups:
        raise _Wrong


def _numbers(content: bytes, kind: int) -> list[Any]:
    values: list[Any] = []
    for number, wire, value in _fields(content):
        if number != 1:
            continue
        if kind == 2 and wire in (2, 5):
            if len(value) % 4:
                raise _Wrong
            values += [value[at : at + 4] for at in range(0, len(value), 4)]
        elif kind == 3 and wire == 0:
            values.append(value)
        elif kind == 3 and wire == 2:
            at = 0
            while at < len(value):
                one, at = _varint(value, at)
                values.append(one)
    return values


def _feature(data: bytes) -> Any:
    kind, values = 0, []
    for number, wire, content in _fields(data):
        if number > 3 or wire != 2:
            continue
        if number != kind:
            kind, values = number, []
        if number == 1:
            values += [value for key, type_, value in _fields(content) if (key, type_) == (1, 2)]
        else:
            values += _numbers(content, number)
    return (kind, values) if kind else None


def _example(data: bytes) -> dict[bytes, Any]:
    """Return the features of an example as protobuf's rules say, in the form of `_plain`."""
    found: dict[bytes, Any] = {}
    for number, wire, features in _fields(data):
        if (number, wire) == (2, 2):
            raise _Wrong
        if (number, wire) != (1, 2):
            continue
        for number_in, wire_in, content in _fields(features):
            if (number_in, wire_in) != (1, 2):
                continue
            key, value = b"", b""
            for number_of, wire_of, part in _fields(content):
                if (number_of, wire_of) == (1, 2):
                    key = part
                elif (number_of, wire_of) == (2, 2):
                    value += part
            found[key] = value
    for key in found:
        try:
            key.decode()
        except UnicodeDecodeError:
            raise _Wrong from None
    # Values that a later entry replaces are not looked at.
    values = {key: _feature(value) for key, value in found.items()}
    return {key: value for key, value in values.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return 1, [bytes(each) for each in value]
    array = np.atleast_1d(value)
    if array.dtype == np.float32:
        return 2, [each.tobytes() for each in array.astype("<f4")]
    if array.dtype != np.int64:
        raise Finding(f"a value has the dtype {array.dtype}")
    return 3, array.view(np.uint64).tolist()


def _values(data: bytes, names: tuple[str, ...] | None) -> dict[bytes, Any] | None:
    """Return the features that the code under test finds; None if it refuses the message."""
    try:
        found = feature_values(memoryview(data), wanted_features(names))
    except MessageFault as fault:
        if not 0 <= fault.at <= len(data):
            raise Finding(f"the fault is at {fault.at} of {len(data)}") from None
        return None
    return {key: _plain(value) for key, value in found.items()}


def _check_message(data: bytes) -> bool:
    try:
        expected: dict[bytes, Any] | None = _example(data)
    except _Wrong:
        expected = None
    every = _values(data, None)
    if every != expected:
        raise Finding(f"all features are {every} and not {expected}")
    for names in ((_NAMES[0],), _NAMES):
        some = _values(data, names)
        # Features that are not wanted are not looked at.
        if expected is not None:
            wanted = {name.encode() for name in names} & set(expected)
            if some != {key: expected[key] for key in wanted}:
                raise Finding(f"{names} are {some} and not {expected}")
        _check_windows(data, names)
    _check_reader(data, expected)
    _check_label(data)
    return True


def _check_windows(data: bytes, names: tuple[str, ...]) -> None:
    """Compare a walk by windows with one over the whole message."""
    wanted = wanted_features(names)
    try:
        whole = find_features(memoryview(data), wanted)
    except MessageFault:
        whole = None
    walk = ExampleWalk(len(data), wanted)
    rounds, done = 0, not data
    try:
        while not done:
            done = walk.take(data[walk.at : walk.at + max(16, walk.least)])
            rounds += 1
            if rounds > len(data) + 20:
                raise Finding("the walk does not end")
        found = walk.found
    except MessageFault:
        found = None
    if found != whole:
        raise Finding(f"a walk by windows found {found} and not {whole}")


def _check_reader(data: bytes, expected: dict[bytes, Any] | None) -> None:
    """Read a record with this message."""
    framed = memoryview(record(data))
    reader = ExampleReader(images=frozenset(("image/encoded",)), is_pair=True)
    for names in (("image/encoded", "a"), ("b",)):
        try:
            reader.read(framed, None, _LOCATION, names)
        except MissingFieldError as error:
            if expected is not None and error.field.encode() in expected:
                raise Finding(f"the feature {error.field!r} is not found") from None
        except SampleFormatError as error:
            if (error.path, error.key) != (_LOCATION.path, _LOCATION.key):
                raise Finding("the error does not name the sample") from None
            if error.offset is None or not 1000 <= error.offset <= 1000 + len(framed):
                raise Finding(f"the error is at {error.offset}") from None


class _Bytes:
    """Byte source of one record."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def fetch(self, spans: Spans) -> tuple[ReadPlan, memoryview]:
        parts = [
            self._data[offset : offset + length]
            for offset, length in zip(spans.offset.tolist(), spans.length.tolist(), strict=True)
        ]
        if [len(part) for part in parts] != spans.length.tolist():
            raise Finding("a label is searched behind its record")
        start = np.cumsum([0, *map(len, parts)])[:-1]
        plan = ReadPlan(
            nbytes=sum(map(len, parts)), start=start, length=spans.length, reads=None, failures=()
        )
        return plan, memoryview(b"".join(parts))


def _check_label(data: bytes) -> None:
    framed = record(data)
    one = np.array([0])
    source: Any = _Bytes(framed)
    (label,) = read_labels(source, Spans(one, one, np.array([len(framed)])), "a")
    if label is not None:
        found = _values(data, ("a",))
        if found is None or _plain(label) != found.get(b"a"):
            raise Finding(f"the label is {label} and not that of {found}")


# -- files -----------------------------------------------------------------------------------------------------------


def _lengths(data: bytes) -> tuple[list[int], int | None]:
    """Return the lengths of the records, and the offset of the first fault."""
    found, at = [], 0
    while at < len(data):
        if len(data) - at < HEAD_NBYTES:
            return found, at
        length, crc = struct.unpack_from("<QI", data, at)
        if crc != length_crc(length) or length > MOST_PAYLOAD or at + length + FRAME_NBYTES > len(data):
            return found, at
        found.append(length + FRAME_NBYTES)
        at += length + FRAME_NBYTES
    return found, None


def _check_file(data: bytes) -> bool:
    lengths, fault = _lengths(data)
    with patch.multiple("aioloader.formats.tfrecord.framing", **_SMALL_SCAN):
        for parallel in (False, True):
            found = _scan(data, parallel=parallel)
            if isinstance(found, SampleFormatError):
                if found.offset != fault or found.path != "a.tfrecord" or found.key != str(len(lengths)):
                    compressed = fault == 0 and "compressed" in str(found)
                    if not compressed or found.offset != 0:
                        raise Finding(f"the fault is at {found.offset} and not at {fault}")
            elif fault is not None or found != lengths:
                raise Finding(f"the records are {found} and not {lengths}")
    heads = find_heads(np.frombuffer(data, np.uint8), MOST_PAYLOAD).tolist()
    if heads != [at for at in range(len(data) - HEAD_NBYTES + 1) if _is_head(data, at)]:
        raise Finding(f"the heads are {heads}")
    try:
        payload = payload_of(memoryview(data), path="a.tfrecord", offset=5, key="1")
    except SampleFormatError as error:
        if (error.path, error.offset, error.key) != ("a.tfrecord", 5, "1"):
            raise Finding("the error does not name the record") from None
    else:
        if lengths != [len(data)] or payload != data[HEAD_NBYTES:-4]:
            raise Finding("the payload is not that of one record")
    return fault is None or bool(lengths)


def _is_head(data: bytes, at: int) -> bool:
    length, crc = struct.unpack_from("<QI", data, at)
    return length <= MOST_PAYLOAD and bool(crc == length_crc(length))


def _scan(data: bytes, *, parallel: bool) -> list[int] | SampleFormatError:
    scan = FileScan("a.tfrecord", len(data), parallel=parallel)
    rounds = 0
    while scan.wants:
        parts = [memoryview(data)[offset : offset + nbytes] for offset, nbytes in scan.wants]
        if [len(part) for part in parts] != [nbytes for _, nbytes in scan.wants] or not all(map(len, parts)):
            raise Finding(f"bytes are wanted that do not exist: {scan.wants}")
        scan.take(parts)
        rounds += 1
        if rounds > len(data) + 20:
            raise Finding("the scan does not end")
    try:
        found: list[int] = scan.lengths().tolist()
    except SampleFormatError as error:
        return error
    return found


def _check_index(data: bytes) -> bool:
    if len(data) < _SIZE.size:
        return False
    (nbytes,) = _SIZE.unpack_from(data)
    found = parse_index(data[_SIZE.size :], nbytes)
    if found is None:
        return False
    words = np.array([int(word) for word in data[_SIZE.size :].split()]).reshape(-1, 2)
    if (
        (found != words[:, 1]).any()
        or (np.cumsum(found) - found != words[:, 0]).any()
        or found.sum() != nbytes
    ):
        raise Finding("the index is not that of the text")
    return True
