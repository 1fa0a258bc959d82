"""Arrays in NumPy's file format (.npy). Pure.

The source is NumPy's reference, "numpy.lib.format", versions 1.0 to 3.0 of the format. Arrays of objects, which are
pickled, and arrays with named fields are refused.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from aioloader.foundation.types import Array

_MAGIC: Final = b"\x93NUMPY"
_MOST_HEADER_NBYTES: Final = 1 << 14
_MOST_EXTENT: Final = 1 << 48
# NumPy writes the keys in this order.
_HEADER: Final = re.compile(
    rb"\{\s*'descr'\s*:\s*'([<>|=]?[A-Za-z?][0-9]*(?:\[[^'\]]*\])?)'\s*,\s*'fortran_order'\s*:\s*(True|False)\s*,"
    rb"\s*'shape'\s*:\s*\(([0-9, ]*)\)\s*,?\s*\}\s*"
)


def parse_npy(data: memoryview) -> Array:
    """Return the array in a .npy file, a copy.

    The size in the header is compared with the bytes before memory is allocated.

    Args:
        data: the whole file.

    Raises:
        ValueError: it is not such a file, is damaged or cut, or has Python objects or named fields.
    """
    if bytes(data[:6]) != _MAGIC:
        raise ValueError(f"it begins with {bytes(data[:6])!r}")
    version = bytes(data[6:7])
    if version not in (b"\x01", b"\x02", b"\x03"):
        raise ValueError(f"its version of the format is {version.hex() or 'missing'}")
    begin = 10 if version == b"\x01" else 12
    end = begin + int.from_bytes(data[8:begin], "little")
    if end > min(len(data), _MOST_HEADER_NBYTES):
        raise ValueError("its header is cut, or too long")
    dtype, by_columns, shape = _parse_header(bytes(data[begin:end]))
    if not dtype.itemsize or max(shape, default=0) > _MOST_EXTENT:
        raise ValueError(f"an array of {dtype} {shape} is impossible")
    count, rest = math.prod(shape), data[end:]
    if count * dtype.itemsize > len(rest):
        raise ValueError(
            f"an array of {dtype} {shape} has {count * dtype.itemsize} bytes, and there are {len(rest)}"
        )
    values = np.frombuffer(rest, dtype, count) if count else np.empty(0, dtype)
    array: Array = values.reshape(shape, order="F" if by_columns else "C").copy(order="K")
    return array


def _parse_header(text: bytes) -> tuple[np.dtype[Any], bool, tuple[int, ...]]:
    found = _HEADER.fullmatch(text)
    if found is None:
        raise ValueError(f"its header is damaged, or describes named fields: {text[:80]!r}")
    descr, by_columns, extents = found.groups()
    try:
        dtype: np.dtype[Any] = np.dtype(descr.decode())
    except TypeError as error:
        raise ValueError(str(error)) from None
    if dtype.hasobject:
        raise ValueError(
            "it has Python objects, which are pickled: unpickling runs code that the data contain"
        )
    return dtype, by_columns == b"True", tuple(int(extent) for extent in extents.replace(b",", b" ").split())
