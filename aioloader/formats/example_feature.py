"""Value of one feature of a `tf.train.Example`. Pure.

The messages, of TensorFlow's feature.proto:

    Feature   { oneof kind { BytesList bytes_list = 1; FloatList float_list = 2; Int64List int64_list = 3; } }
    BytesList { repeated bytes value = 1; }
    FloatList { repeated float value = 1; }     packed, or not
    Int64List { repeated int64 value = 1; }     packed, or not

The last kind of a feature counts, and lists of one kind are joined.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aioloader.formats.protobuf import (
    FIELD_1,
    FIELD_2,
    FIELD_3,
    FIXED32,
    VARINT,
    MessageFault,
    extent,
    skip_field,
    varint,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

Span = tuple[int, int]
"""Begin and end of some bytes."""

_BYTES_LIST: Final = FIELD_1
_FLOAT_LIST: Final = FIELD_2
_INT64_LIST: Final = FIELD_3
_INTEGER: Final = 1 << 3 | VARINT
_FLOAT: Final = 1 << 3 | FIXED32

_MOST_VALUES: Final = 1 << 20
# Bytes of packed integers that are decoded at a time: intermediate arrays take 25 bytes for each of them.
_PACKED_AT_A_TIME: Final = 1 << 18
_FEW: Final = 16
_FLOAT_NBYTES: Final = 5  # of a value that is not packed, with its tag
_FLOATS_AT_A_TIME: Final = 4096


def feature_value(data: memoryview, parts: Sequence[Span]) -> Any:
    """Return the value of a feature.

    Args:
        data: contains the feature.
        parts: of its `Feature` message, in `data`.

    Returns:
        a list of memoryviews of `data` for bytes; a numpy scalar for one number, int64 or float32; an array (n,) of
        these for none or several; None if the feature has no kind, which TensorFlow treats as missing.

    Raises:
        MessageFault: the bytes are not a feature, or it has more than 2**20 values that are bytes or not packed.
    """
    kind = 0
    values: list[Any] = []
    for begin, end in parts:
        at = begin
        while at < end:
            tag, next_at = varint(data, at, end)
            read = _LISTS.get(tag)
            if read is None:
                at = skip_field(data, at, end)
                continue
            stop, next_at = extent(data, next_at, end)
            if stop > end:
                raise MessageFault(
                    "a list ends behind its feature", at, f"{end - next_at} bytes", f"{stop - next_at}"
                )
            if tag != kind:
                kind, values = tag, []
            read(data, next_at, stop, values)
            at = stop
    if kind == _INT64_LIST:
        return _joined(values, np.int64)
    if kind == _FLOAT_LIST:
        return _joined(values, np.float32)
    return values if kind else None


@lru_cache(maxsize=4096)
def small_number(feature: bytes) -> Any:
    """Return the number of a feature that has one, as a scalar; None for any other feature. Labels repeat often."""
    try:
        value = feature_value(memoryview(feature), [(0, len(feature))])
    except MessageFault:
        return None
    return value if isinstance(value, np.generic) else None


def is_bytes(tag: int) -> bool:
    """Return whether a feature that begins with this byte has values of bytes, if it is in its usual form."""
    return tag == _BYTES_LIST


def only_value(data: bytes, at: int, end: int) -> int:
    """Return where the value of a feature with one value of bytes begins; 0 for any other feature.

    Args:
        data: contains the beginning of the feature: tags and lengths.
        at, end: of the feature; `end` may be behind `data`.
    """
    if data[at] == _BYTES_LIST:
        size, at = varint(data, at + 1, end)
        if at + size == end and at < end and data[at] == FIELD_1:
            size, at = varint(data, at + 1, end)
            if at + size == end:
                return at
    return 0


def _joined(values: list[Any], dtype: type[np.int64] | type[np.float32]) -> Any:
    """Return one number as a scalar, others as an array.

    Args:
        values: numbers, or arrays of numbers.
        dtype: of the result.
    """
    if len(values) == 1:
        value = values[0]
        if type(value) is not np.ndarray:
            return dtype(value)
        return value[0] if len(value) == 1 else value
    if all(type(value) is not np.ndarray for value in values):
        return np.array(values, dtype)
    return np.concatenate([np.atleast_1d(np.asarray(value, dtype)) for value in values])


def _check_count(values: list[Any], at: int) -> None:
    # Objects take a hundred bytes for each value of two bytes. Packed numbers are one object for many.
    if len(values) >= _MOST_VALUES:
        raise MessageFault("a feature has too many values", at, f"at most {_MOST_VALUES}", "more")


def _read_bytes(data: memoryview, at: int, end: int, values: list[Any]) -> None:
    while at < end:
        tag, next_at = varint(data, at, end)
        if tag != FIELD_1:
            at = skip_field(data, at, end)
            continue
        stop, next_at = extent(data, next_at, end)
        if stop > end:
            raise MessageFault(
                "a value ends behind its list", at, f"{end - next_at} bytes", f"{stop - next_at}"
            )
        _check_count(values, at)
        values.append(data[next_at:stop])
        at = stop


def _read_floats(data: memoryview, at: int, end: int, values: list[Any]) -> None:
    while at < end:
        _check_count(values, at)
        if data[at] == _FLOAT and at + _FLOAT_NBYTES <= end:
            count = min((end - at) // _FLOAT_NBYTES, _FLOATS_AT_A_TIME)
            rows = np.frombuffer(data[at : at + count * _FLOAT_NBYTES], np.uint8).reshape(
                count, _FLOAT_NBYTES
            )
            others = np.flatnonzero(rows[:, 0] != _FLOAT)
            rows = rows[: others[0] if len(others) else count]
            values.append(np.ascontiguousarray(rows[:, 1:]).view("<f4")[:, 0].astype(np.float32))
            at += rows.size
            continue
        tag, next_at = varint(data, at, end)
        if tag == FIELD_1:
            stop, next_at = extent(data, next_at, end)
        elif tag == _FLOAT:
            stop = next_at + 4
        else:
            at = skip_field(data, at, end)
            continue
        if stop > end:
            raise MessageFault(
                "a value ends behind its list", at, f"{end - next_at} bytes", f"{stop - next_at}"
            )
        if (stop - next_at) % 4:
            raise MessageFault(
                "a packed list of floats has a fraction of a value", at, found=f"{stop - next_at} bytes"
            )
        # Through an array and not by way of a Python float, which would change the bits of a NaN.
        if stop > next_at:
            values.append(np.frombuffer(data[next_at:stop], "<f4").astype(np.float32))
        at = stop


def _read_integers(data: memoryview, at: int, end: int, values: list[Any]) -> None:
    while at < end:
        _check_count(values, at)
        tag, next_at = varint(data, at, end)
        if tag == _INTEGER:
            value, at = varint(data, next_at, end)
            values.append(value - (value >> 63 << 64))
        elif tag == FIELD_1:
            stop, next_at = extent(data, next_at, end)
            if stop > end:
                raise MessageFault(
                    "a value ends behind its list", at, f"{end - next_at} bytes", f"{stop - next_at}"
                )
            if stop - next_at > _FEW:
                _read_packed(data, next_at, stop, values)
            else:
                while next_at < stop:
                    value, next_at = varint(data, next_at, stop)
                    values.append(value - (value >> 63 << 64))
            at = stop
        else:
            at = skip_field(data, at, end)


def _read_packed(data: memoryview, at: int, end: int, values: list[Any]) -> None:
    """Decode many packed integers."""
    while at < end:
        raw = np.frombuffer(data[at : min(at + _PACKED_AT_A_TIME, end)], np.uint8)
        lasts = np.flatnonzero(raw < 128)
        if not len(lasts):
            raise MessageFault("an integer has more than 10 bytes, or is cut off", at)
        raw = raw[: lasts[-1] + 1]
        firsts = np.concatenate(([0], lasts[:-1] + 1))
        nbytes = lasts - firsts + 1
        if (nbytes > 10).any():
            raise MessageFault("an integer has more than 10 bytes", at + int(firsts[np.argmax(nbytes > 10)]))
        place = np.arange(len(raw)) - np.repeat(firsts, nbytes)
        bits = (raw & 127).astype(np.uint64) << (7 * place).astype(np.uint64)
        values.append(np.bitwise_or.reduceat(bits, firsts).view(np.int64))
        at += len(raw)


_LISTS: Final = {_BYTES_LIST: _read_bytes, _FLOAT_LIST: _read_floats, _INT64_LIST: _read_integers}
