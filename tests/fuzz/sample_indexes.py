"""Target: the file of a sample index: it is refused, or has exactly the arrays that are written in it.

An input is one byte of `_ACTIONS` and the file.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from aioloader.sample_index.store import (
    IndexFault,
    SampleIndex,
    ShardState,
    index_beside,
    load_index,
    pack_index,
    shard_state,
    unpack_index,
)
from tests.fuzz.target import (
    Draw,
    Finding,
    change,
    change_number,
    dictionary,
    odd_values,
    pick,
    scratch_folder,
)

_KIND = "toy-1"
_HEAD = struct.Struct("<8sIIII")

# Bits of `_ACTIONS`.
_SEALED = 1  # the CRCs of description and arrays are right
_BESIDE = 2  # the file is next to a shard that it may fit

_SIZES = {"|i1": 1, "|u1": 1, "<i2": 2, "<u2": 2, "<i4": 4, "<u4": 4, "<i8": 8, "<u8": 8, "<f4": 4, "<f8": 8}
_FIELDS = ((0, 8), (8, 4), (12, 4), (16, 4), (20, 4))
_TEXTS = (
    b"",
    b"[",
    b"{}",
    b"[]",
    b"null",
    b"\xff\xfe",
    b"[" * 20_000,
    b"[" * 900 + b"]" * 900,
    b"9" * 6000,
    b"1e999",
)
PIECES = dictionary("number")


class SampleIndexes:
    """Sample indexes with faults: they are refused, or every array is where the file has it."""

    def __init__(self) -> None:
        self._folder = scratch_folder(self)
        self._shard = str(self._folder / "a.toy")
        with open(self._shard, "wb") as file:
            file.write(bytes(1000))
        state = shard_state(self._shard)
        assert state is not None
        self._state = state
        self._valid = [pack_index(SampleIndex(_KIND, arrays), state) for arrays in _samples()]

    def make(self, draw: Draw) -> bytes:
        """See `Target.make`."""
        data = bytearray(pick(draw, self._valid))
        actions = (_SEALED if draw() < 0.85 else 0) | (_BESIDE if draw() < 0.3 else 0)
        for _ in range(pick(draw, (0, 1, 1, 1, 2))):
            _changed(data, draw)
        return bytes((actions,)) + bytes(data)

    def check(self, data: bytes) -> bool:
        """See `Target.check`."""
        if not data:
            return False
        stored = bytearray(data[1:])
        if data[0] & _SEALED:
            _seal(stored)
        return self._beside(bytes(stored)) if data[0] & _BESIDE else self._read(bytes(stored))

    def _read(self, stored: bytes) -> bool:
        right = _plain(stored)
        try:
            index, state = unpack_index(memoryview(stored))
        except IndexFault as fault:
            if right is not None:
                raise Finding(f"a valid index is refused: {fault}") from fault
            if not str(fault):
                raise Finding("no reason is given") from fault
            return False
        if right is None:
            raise Finding("an invalid index is read")
        self._compare(index, right)
        again, state_again = unpack_index(memoryview(pack_index(index, state)))
        if state_again != state:
            raise Finding(f"{state} is written as {state_again}")
        self._compare(again, right)
        return True

    def _beside(self, stored: bytes) -> bool:
        part = self._shard + ".new"
        with open(part, "wb") as file:
            file.write(stored)
        os.replace(part, index_beside(self._shard))
        found = load_index(self._shard, self._state, _KIND)
        right = _plain(stored)
        if right is not None:
            text = json.loads(stored[_HEAD.size : _HEAD.size + _HEAD.unpack_from(stored)[2]])
            fits = str(text["kind"]) == _KIND
            fits &= ShardState(int(text["nbytes"]), str(text["state"])) == self._state
            right = right if fits else None
        if (found is None) != (right is None):
            raise Finding(f"the index is {'not ' * (found is None)}used")
        if found is not None and right is not None:
            self._compare(found, right)
        return True

    @staticmethod
    def _compare(index: SampleIndex, right: Mapping[str, tuple[Any, list[int], bytes]]) -> None:
        if set(index.arrays) != set(right):
            raise Finding(f"the arrays {sorted(index.arrays)} are read, not {sorted(right)}")
        for name, array in index.arrays.items():
            dtype, shape, data = right[name]
            if (array.dtype.str, list(array.shape), array.tobytes()) != (dtype, shape, data):
                raise Finding(f"the array {name!r} is another one")
            if array.flags.writeable and array.size:
                raise Finding(f"the array {name!r} can be changed")


def _samples() -> list[dict[str, Any]]:
    return [
        {},
        {"offset": np.empty(0, np.int64)},
        {"offset": np.arange(9) * 100, "length": np.full(9, 90)},
        {
            "offset": np.arange(40),
            "keys": np.frombuffer(b"key" * 40, np.uint8),
            "parts": np.arange(240, dtype=np.int32).reshape(40, 3, 2),
            "label": np.linspace(0, 1, 40, dtype=np.float32),
        },
    ]


def _plain(stored: bytes) -> dict[str, tuple[Any, list[int], bytes]] | None:
    """Read an index step by step: name to dtype, shape and bytes of each array; None for one that is not valid."""
    if len(stored) < _HEAD.size:
        return None
    magic, version, length, text_crc, body_crc = _HEAD.unpack_from(stored)
    text, body = stored[_HEAD.size : _HEAD.size + length], stored[_HEAD.size + length :]
    if (magic, version) != (b"ALsampls", 1) or length > 1 << 20 or len(text) < length:
        return None
    if (zlib.crc32(text), zlib.crc32(body)) != (text_crc, body_crc):
        return None
    try:
        description = json.loads(text)
        int(description["nbytes"])
        columns = list(description["arrays"])
        if "kind" not in description or "state" not in description or len(columns) > 64:
            return None
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return None
    found = {}
    for column in columns:
        if not isinstance(column, (list, str, dict)) or len(column) != 4:
            return None
        name, dtype, shape, at = column
        if (
            not isinstance(dtype, str)
            or dtype not in _SIZES
            or not isinstance(shape, list)
            or type(at) is not int
        ):
            return None
        count = extents = 1
        for extent in shape:
            if type(extent) is not int or extent < 0:
                return None
            count, extents = count * extent, extents * max(extent, 1)
        if not 1 <= len(shape) <= 8 or extents > 1 << 48 or at < 0 or at + count * _SIZES[dtype] > len(body):
            return None
        found[str(name)] = dtype, shape, body[at : at + count * _SIZES[dtype]]
    return found


def _changed(data: bytearray, draw: Draw) -> None:
    """Make one change to the head, the description, the arrays or the whole."""
    kind = draw()
    if len(data) < _HEAD.size:
        change(data, 0, draw, PIECES)
        return
    length = _HEAD.unpack_from(data)[2]
    begin = min(_HEAD.size + length, len(data))
    if kind < 0.15:
        change_number(data, *pick(draw, _FIELDS), draw)
    elif kind < 0.65:
        _describe(data, begin, draw)
    elif kind < 0.75:
        text = bytearray(data[_HEAD.size : begin])
        change(text, 0, draw, PIECES)
        _put_text(data, begin, bytes(text))
    elif kind < 0.8:
        _put_text(data, begin, pick(draw, _TEXTS))
    elif kind < 0.9:
        body = data[begin:]
        change(body, 0, draw, PIECES)
        data[begin:] = body
    else:
        change(data, 0, draw, PIECES)


def _describe(data: bytearray, begin: int, draw: Draw) -> None:
    """Change one value of the description."""
    try:
        description = json.loads(bytes(data[_HEAD.size : begin]))
        columns = description["arrays"]
        value, kind = pick(draw, odd_values()), draw()
        if kind < 0.25 or not columns:
            description[pick(draw, ("kind", "nbytes", "state", "arrays"))] = value
        elif kind < 0.3:
            description["arrays"] = columns * (1 + int(draw() * 70))
        else:
            pick(draw, columns)[int(draw() * 4)] = value
        text = json.dumps(description).encode()
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        return  # an earlier change made it something else
    _put_text(data, begin, text)


def _put_text(data: bytearray, begin: int, text: bytes) -> None:
    data[_HEAD.size : begin] = text
    struct.pack_into("<I", data, 12, len(text))


def _seal(data: bytearray) -> None:
    """Make the CRCs right again."""
    if len(data) < _HEAD.size:
        return
    begin = _HEAD.size + _HEAD.unpack_from(data)[2]
    struct.pack_into("<II", data, 16, zlib.crc32(data[_HEAD.size : begin]), zlib.crc32(data[begin:]))
