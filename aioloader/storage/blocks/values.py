"""Layout of nested Python values as bytes: what a worker receives of a column that is neither bytes nor numbers. Pure.

A value is one tag byte and its content, lengths are little-endian uint32. It is read by a loop over the tags, which
makes values of a few built-in types only: nothing of it is ever executed.
"""

from __future__ import annotations

import struct
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_U32: Final = struct.Struct("<I")
_I64: Final = struct.Struct("<q")
_F64: Final = struct.Struct("<d")
_DELTA: Final = struct.Struct("<qqq")
_MOST_DEPTH: Final = 64
_CONSTANTS: Final[dict[bytes, Any]] = {b"N": None, b"T": True, b"F": False}


def pack_value(value: Any) -> bytes:
    """Return the bytes of a value.

    Args:
        value: None, a bool, int, float, str, bytes, date, datetime, time, timedelta or Decimal, or a list, tuple or
            dict of them, nested up to 64 levels deep.

    Raises:
        TypeError: it is, or contains, something else.
        ValueError: it is nested more deeply, or a part of it has 4 GiB or more.
    """
    out = bytearray()
    _put(value, out, 0)
    return bytes(out)


def _put(value: Any, out: bytearray, depth: int) -> None:
    if depth > _MOST_DEPTH:
        raise ValueError(f"the value is nested more than {_MOST_DEPTH} levels deep")
    if value is None or value is True or value is False:
        out += b"N" if value is None else b"T" if value else b"F"
    elif isinstance(value, int):
        if -(1 << 63) <= value < 1 << 63:
            out += b"i" + _I64.pack(value)
        else:
            _put_bytes(b"I", b"%x" % value, out)
    elif isinstance(value, float):
        out += b"f" + _F64.pack(value)
    elif isinstance(value, str):
        _put_bytes(b"s", value.encode("utf-8", "surrogatepass"), out)
    elif isinstance(value, (bytes, bytearray, memoryview)):
        _put_bytes(b"b", bytes(value), out)
    elif isinstance(value, (list, tuple)):
        out += (b"l" if isinstance(value, list) else b"u") + _count(len(value))
        for each in value:
            _put(each, out, depth + 1)
    elif isinstance(value, dict):
        out += b"d" + _count(len(value))
        for key, each in value.items():
            _put(key, out, depth + 1)
            _put(each, out, depth + 1)
    elif isinstance(value, datetime):
        _put_bytes(b"t", value.isoformat().encode(), out)
    elif isinstance(value, date):
        _put_bytes(b"D", value.isoformat().encode(), out)
    elif isinstance(value, time):
        _put_bytes(b"H", value.isoformat().encode(), out)
    elif isinstance(value, timedelta):
        out += b"P" + _DELTA.pack(value.days, value.seconds, value.microseconds)
    elif isinstance(value, Decimal):
        _put_bytes(b"M", str(value).encode(), out)
    else:
        raise TypeError(f"a value of type {type(value).__name__} cannot be passed to a worker")


def _put_bytes(tag: bytes, data: bytes, out: bytearray) -> None:
    out += tag + _count(len(data)) + data


def _count(count: int) -> bytes:
    if count >= 1 << 32:
        raise ValueError(f"a part of the value has {count} elements or bytes, and 2**32 - 1 are the most")
    return _U32.pack(count)


def unpack_value(data: memoryview) -> Any:
    """Return the value of some bytes.

    Args:
        data: a result of `pack_value`; the value is a copy.

    Raises:
        ValueError: it is not.
    """
    reader = _ValueReader(data)
    try:
        value = reader.value(0)
    except (struct.error, ArithmeticError, TypeError) as error:
        raise ValueError(f"damaged value: {error}") from None
    if reader.at != len(data):
        raise ValueError(f"damaged value: {len(data) - reader.at} bytes are behind it")
    return value


def _whole(data: bytes) -> int:
    return int(data, 16)


def _decimal(data: bytes) -> Decimal:
    try:
        return Decimal(data.decode())
    except InvalidOperation:
        raise ValueError("damaged value: not a decimal number") from None


class _ValueReader:
    """Reader of one value.

    Args:
        data: the bytes.

    Attributes:
        at: where the next part begins.
    """

    _TEXTS: Final[dict[bytes, Callable[[bytes], Any]]] = {
        b"I": _whole,
        b"s": lambda data: data.decode("utf-8", "surrogatepass"),
        b"b": bytes,
        b"t": lambda data: datetime.fromisoformat(data.decode()),
        b"D": lambda data: date.fromisoformat(data.decode()),
        b"H": lambda data: time.fromisoformat(data.decode()),
        b"M": _decimal,
    }

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.at = 0

    def value(self, depth: int) -> Any:
        """Return the value that begins here.

        Raises:
            ValueError, ArithmeticError, TypeError, struct.error: it is damaged.
        """
        if depth > _MOST_DEPTH:
            raise ValueError(f"damaged value: nested more than {_MOST_DEPTH} levels deep")
        tag = self._take(1)
        if tag in _CONSTANTS:
            return _CONSTANTS[tag]
        if tag == b"i":
            return _I64.unpack(self._take(_I64.size))[0]
        if tag == b"f":
            return _F64.unpack(self._take(_F64.size))[0]
        if tag == b"P":
            days, seconds, microseconds = _DELTA.unpack(self._take(_DELTA.size))
            return timedelta(days, seconds, microseconds)
        (count,) = _U32.unpack(self._take(_U32.size))
        convert = self._TEXTS.get(tag)
        if convert is not None:
            return convert(self._take(count))
        # Each element has one byte or more.
        if count > len(self._data) - self.at:
            raise ValueError(f"damaged value: {count} elements are announced")
        if tag == b"d":
            return {self.value(depth + 1): self.value(depth + 1) for _ in range(count)}
        if tag not in (b"l", b"u"):
            raise ValueError(f"damaged value: unknown tag {tag!r}")
        elements = [self.value(depth + 1) for _ in range(count)]
        return elements if tag == b"l" else tuple(elements)

    def _take(self, count: int) -> bytes:
        if count > len(self._data) - self.at:
            raise ValueError("damaged value: it ends early")
        part = bytes(self._data[self.at : self.at + count])
        self.at += count
        return part
