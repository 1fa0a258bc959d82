"""Target: MDS: indexes, tables of shards, samples and values of every encoding.

An input is one byte, which selects the columns, the length of the index (uint32, little endian), the index, and a
shard.
"""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np

from aioloader.datasets.fields import FieldKind, field_value
from aioloader.errors import DecodeError, MissingFieldError, SampleFormatError
from aioloader.formats.mds.dataset import MDSFieldReader
from aioloader.formats.mds.index import (
    MDSColumn,
    MDSIndex,
    MDSShard,
    SampleLayout,
    parse_index,
    parse_table,
    table_nbytes,
)
from aioloader.foundation.types import ItemLocation
from aioloader.transforms.decode import decode_image
from tests.aioloader.formats.mds_sets import describe, file_of, sample_of, shard_of
from tests.fuzz.target import Draw, Finding, change, change_number, dictionary, odd_values, pick

_LENGTH = struct.Struct("<BI")
_MOST_PIXELS = 1 << 20
_PIL = struct.pack("<3I", 2, 3, 3) + b"RGB" + bytes(18)
_LIST = struct.pack("<3I", 2, 3, 4) + b"oneFour"

COLUMNS: tuple[dict[str, tuple[str, bytes]], ...] = (
    {"image": ("pil", _PIL), "label": ("int", b"\7" + bytes(7))},
    {
        "a": ("ndarray", b"\x22\x09\2\1" + bytes(8)),
        "b": ("ndarray:int16", b"\4\2" + bytes(4)),
        "c": ("json", b"[1]"),
    },
    {"image": ("list[pil]", struct.pack("<3I", 0, 1, len(_PIL)) + _PIL), "x": ("ndarray:uint8:2,2", b"four")},
    {
        "i": ("str_int", b"-12"),
        "f": ("str_float", b"1e5"),
        "d": ("str_decimal", b"0.1"),
        "t": ("str", b"text"),
    },
    {
        "j": ("jpegarray", _LIST),
        "k": ("list[jpeg]", bytes(4) + _LIST),
        "p": ("pkl", b"N."),
        "z": ("float16", b"ab"),
    },
)
"""Sets of columns, with a value of each."""

PIECES = dictionary("number")


class Mds:
    """Indexes and shards with faults: they are refused, or every value is inside its sample."""

    def __init__(self) -> None:
        self._sets = [self._valid(number) for number in range(len(COLUMNS))]

    @staticmethod
    def _valid(number: int) -> tuple[dict[str, Any], bytes]:
        """Return the entry of a shard in the index, and the shard."""
        columns = {name: encoding for name, (encoding, _) in COLUMNS[number].items()}
        sample = sample_of(columns, {name: value for name, (_, value) in COLUMNS[number].items()})
        raw = shard_of([sample, sample])
        return describe(columns, {"samples": 2, "raw_data": file_of("a.mds", raw, ["md5"])}), raw

    def make(self, draw: Draw) -> bytes:
        """See `Target.make`."""
        number = int(draw() * len(self._sets))
        entry, raw = self._sets[number]
        shard, kind = bytearray(raw), draw()
        index = bytearray(json.dumps({"version": 2, "shards": [entry]}).encode())
        if kind < 0.2:
            change(index, 0, draw, PIECES)
        elif kind < 0.3:
            wrong = entry | {pick(draw, sorted(entry)): pick(draw, odd_values())}
            index = bytearray(json.dumps({"version": 2, "shards": [wrong, entry]}).encode())
        else:
            for _ in range(pick(draw, (1, 1, 2, 3))):
                if draw() < 0.5 and len(shard) >= 4:
                    change_number(shard, int(draw() * (len(shard) // 4)) * 4, 4, draw)
                else:
                    at = 0 if draw() < 0.2 else table_nbytes(2)
                    change(shard, at, draw, PIECES)
            if draw() < 0.7 and len(shard) >= table_nbytes(2):  # the index and the end fit the shard again
                index = bytearray(self._fitting(entry, shard))
        return _LENGTH.pack(number, len(index)) + bytes(index) + bytes(shard)

    @staticmethod
    def _fitting(entry: dict[str, Any], shard: bytearray) -> bytes:
        struct.pack_into("<I", shard, 0, 2)
        struct.pack_into("<I", shard, 12, len(shard))
        raw = {**entry["raw_data"], "bytes": len(shard)}
        return json.dumps({"version": 2, "shards": [{**entry, "raw_data": raw}]}).encode()

    def check(self, data: bytes) -> bool:
        """See `Target.check`."""
        if len(data) < _LENGTH.size:
            return False
        _, length = _LENGTH.unpack_from(data)
        text, data = data[_LENGTH.size : _LENGTH.size + length], data[_LENGTH.size + length :]
        try:
            index = parse_index(text, "index.json")
        except SampleFormatError as error:
            if error.path != "index.json":
                raise Finding("the error does not name the index") from None
            return False
        _check_index(index)
        for shard in index.shards:
            if shard.raw.nbytes != len(data):
                continue
            try:
                offsets = parse_table(data[: table_nbytes(shard.samples)], shard, "a.mds")
            except SampleFormatError as error:
                if error.path != "a.mds":
                    raise Finding("the error does not name the shard") from None
                return True
            _check_table(offsets, shard, data)
            reader = MDSFieldReader(index.columns, frozenset({"image"}))
            for row in range(shard.samples):
                sample = data[int(offsets[row]) : int(offsets[row + 1])]
                _read(reader, index.columns, sample, ItemLocation(str(row), "a.mds", int(offsets[row])))
        return True


def _check_index(index: MDSIndex) -> None:
    for shard in index.shards:
        if table_nbytes(shard.samples) > shard.raw.nbytes:
            raise Finding("there are more samples than the shard has space for")
        for file in (shard.raw, shard.packed):
            if file is not None and {"", ".", ".."} & set(file.name.split("/")):
                raise Finding("a file is outside of the folder")


def _check_table(offsets: Any, shard: MDSShard, data: bytes) -> None:
    words = np.frombuffer(data, "<u4", shard.samples + 2)
    if len(offsets) != shard.samples + 1 or (offsets != words[1:]).any() or words[0] != shard.samples:
        raise Finding("the table is not that of the shard")
    if (np.diff(offsets) < 0).any() or offsets[0] < table_nbytes(shard.samples) or offsets[-1] > len(data):
        raise Finding("a sample is outside of the shard")


def _read(
    reader: MDSFieldReader, columns: tuple[MDSColumn, ...], sample: bytes, location: ItemLocation
) -> None:
    """Read every field of a sample."""
    view = memoryview(sample)
    try:
        names = reader.names(view, None, location)
    except SampleFormatError as error:
        return _check_error(error, location)
    spans = SampleLayout(columns).spans(view, len(view))
    places = {column.name: span for column, span in zip(columns, spans, strict=True)}
    for name in [*names, *(column.name for column in columns if column.name not in names)]:
        try:
            (value,) = reader.read(view, None, location, (name,))
            if name not in names:
                raise Finding(f"the column {name!r} is not one of those that are read")
            _check_value(value, reader.kind(name), sample, places[name], location)
        except SampleFormatError as error:
            _check_error(error, location)
        except MissingFieldError:
            raise Finding(f"the column {name!r} is not found") from None
        fixed = reader.fixed_span(name)
        if fixed is not None and places[name][0] != fixed[0] + (len(view) if fixed[0] < 0 else 0):
            raise Finding(f"the column {name!r} is not where it is in every sample")


def _check_value(
    value: Any, kind: FieldKind, sample: bytes, span: tuple[int, int], location: ItemLocation
) -> None:
    low, high = span
    if kind is FieldKind.IMAGE:
        for each in value if isinstance(value, list) else [value]:
            # Pixels are converted to grey of 8 bits, which may have been 1 bit.
            if len(each) > 24 + 8 * (high - low) * 3:
                raise Finding(f"an image of {len(each)} bytes is made of {high - low}")
            try:
                decode_image(each, max_pixels=_MOST_PIXELS)
            except DecodeError:
                pass
        return
    if isinstance(value, memoryview) and bytes(value) != sample[low:high]:
        raise Finding("the bytes of a field are not those of its column")
    if isinstance(value, np.ndarray) and value.nbytes > high - low:
        raise Finding(f"an array of {value.nbytes} bytes is made of {high - low}")
    field_value(value, kind, "a", location)


def _check_error(error: SampleFormatError, location: ItemLocation) -> None:
    if (error.path, error.offset, error.key) != (location.path, location.offset, location.key):
        raise Finding("the error does not name the sample")
