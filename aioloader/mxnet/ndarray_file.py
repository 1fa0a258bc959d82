"""Files of arrays, as `mx.nd.save` writes them: ``.params`` files and the mean images of `ImageRecordIter`.

Format, little endian: uint64 0x112, uint64 0, uint64 number of arrays, the arrays, uint64 number of names, the
names, each a uint64 length and its text. An array: a uint32 that is the version; int32 storage type, 0 for dense
(versions 2 and 3); the shape, a count and int64 extents; int32 device type, int32 device number, int32 code of the
element type, values in C order. In the oldest version the first uint32 is the count itself, and the extents are
uint32."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.mxnet.base import MXNetError
from aioloader.mxnet.ndarray.ndarray import NDArray, from_numpy

if TYPE_CHECKING:
    from collections.abc import Sequence

_LIST = 0x112
_V1, _V2, _V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
_DTYPES = tuple(np.dtype(name) for name in ("<f4", "<f8", "<f2", "u1", "<i4", "i1", "<i8"))
_MAX_AXES = 32  # numpy 1 has no more


class _Reader:
    """Reader of values from the front of a buffer."""

    def __init__(self, data: memoryview, name: str) -> None:
        self._data = data
        self._at = 0
        self._name = name

    def fail(self, reason: str) -> MXNetError:
        return MXNetError(f"{self._name} is not a file of arrays: {reason}, near byte {self._at}")

    def bytes(self, count: int) -> memoryview:
        if count > len(self._data) - self._at:
            raise self.fail("it ends too early")
        found = self._data[self._at : self._at + count]
        self._at += count
        return found

    def number(self, kind: str) -> int:
        value: int = struct.unpack(f"<{kind}", self.bytes(struct.calcsize(kind)))[0]
        return value

    def array(self) -> NDArray:
        version = self.number("I")
        if version in (_V2, _V3) and self.number("i") != 0:
            raise self.fail("it holds a sparse array; only dense ones can be read")
        modern = version in (_V1, _V2, _V3)
        axes = self.number("i") if modern else version
        if not 0 <= axes <= _MAX_AXES:
            raise self.fail(f"an array cannot have {axes} axes")
        shape = [self.number("q" if modern else "I") for _ in range(axes)]
        if axes == 0 and version != _V3:
            return from_numpy(np.zeros(0, np.float32))  # an array that was never filled
        self.number("i")
        self.number("i")
        code = self.number("i")
        if not 0 <= code < len(_DTYPES):
            raise self.fail(f"{code} is not the code of an element type")
        count = 1
        for extent in shape:
            if extent < 0:
                raise self.fail(f"{extent} is not the extent of an axis")
            count *= extent
        values = np.frombuffer(self.bytes(count * _DTYPES[code].itemsize), _DTYPES[code])
        try:
            values = values.reshape(shape)
        except ValueError as error:  # no values, and extents beyond all bounds
            raise self.fail(f"an array cannot have the shape {tuple(shape)}") from error
        return from_numpy(values.astype(_DTYPES[code].newbyteorder("="), copy=True))

    def count(self, smallest: int) -> int:
        """Return a number of objects of which each has at least `smallest` bytes."""
        found = self.number("Q")
        if found * smallest > len(self._data):
            raise self.fail(f"it cannot hold {found} of them")
        return found


def load(fname: str | os.PathLike[str]) -> list[NDArray] | dict[str, NDArray]:
    """Return the arrays in a file that `save` or MXNet wrote: a dict by name, or a list if they have no names.

    Raises:
        MXNetError: the file cannot be opened, has another format, is truncated, or holds a sparse array.
    """
    try:
        with open(fname, "rb") as file:
            data = file.read()
    except OSError as error:
        raise MXNetError(f"{os.fspath(fname)} cannot be opened: {error.strerror}") from error
    return _load(memoryview(data), os.fspath(fname))


def load_frombuffer(buf: Any) -> list[NDArray] | dict[str, NDArray]:
    """Return the arrays in bytes; see `load`."""
    return _load(memoryview(buf).cast("B"), "<bytes>")


def _load(data: memoryview, name: str) -> list[NDArray] | dict[str, NDArray]:
    reader = _Reader(data, name)
    if reader.number("Q") != _LIST:
        raise reader.fail(f"it does not begin with {_LIST:#x}")
    reader.number("Q")
    arrays = [reader.array() for _ in range(reader.count(4))]
    names = [bytes(reader.bytes(reader.count(1))).decode(errors="replace") for _ in range(reader.count(8))]
    if not names:
        return arrays
    if len(names) != len(arrays):
        raise reader.fail(f"it has {len(arrays)} arrays and {len(names)} names")
    return dict(zip(names, arrays, strict=True))


def save(fname: str | os.PathLike[str], data: Any) -> None:
    """Write arrays to a file that MXNet's `load` reads too.

    Args:
        fname: the file, which is replaced.
        data: an array, a list of arrays, or a dict of name to array; of float16, float32, float64, uint8, int8, int32
            or int64, with at least one axis.

    Raises:
        MXNetError: an array is of another type or shape.
    """
    names: list[str] = list(data) if isinstance(data, dict) else []
    if isinstance(data, dict):
        arrays: Sequence[Any] = list(data.values())
    else:
        arrays = data if isinstance(data, list | tuple) else [data]
    parts = [struct.pack("<3Q", _LIST, 0, len(arrays)), *[_packed(array) for array in arrays]]
    parts.append(struct.pack("<Q", len(names)))
    for name in names:
        text = name.encode()
        parts += [struct.pack("<Q", len(text)), text]
    with open(fname, "wb") as file:
        file.write(b"".join(parts))


def _packed(array: Any) -> bytes:
    plain = np.asarray(array)
    dtype = plain.dtype.newbyteorder("<")
    if dtype not in _DTYPES or not plain.ndim:
        raise MXNetError(
            f"an array of {plain.dtype} and shape {plain.shape} cannot be saved in this format; give it an axis, and "
            f"one of the types {', '.join(known.name for known in _DTYPES)}"
        )
    head = struct.pack(f"<Iii{plain.ndim}q", _V2, 0, plain.ndim, *plain.shape)
    return head + struct.pack("<3i", 1, 0, _DTYPES.index(dtype)) + plain.astype(dtype, copy=False).tobytes()
