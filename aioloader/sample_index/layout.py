"""Layout of the file of a sample index: named arrays, and the state of the shard that they describe. Pure.

The file has a fixed head (magic, version, length and CRC-32 of the description, CRC-32 of the arrays), the description
(JSON) and the arrays, each at a multiple of 64 bytes; docs/format.md describes it. Sizes and offsets are compared with
the size of the file before they are followed.
"""

from __future__ import annotations

import json
import struct
import zlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioloader.foundation.types import Array

MAGIC: Final = b"ALsampls"
VERSION: Final = 1
_HEAD: Final = struct.Struct("<8sIIII")
_ALIGN: Final = 64
_DTYPES: Final = frozenset(["|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f4", "<f8"])
_MOST_DESCRIPTION_NBYTES: Final = 1 << 20
_MOST_ARRAYS: Final = 64
_MOST_DIMENSIONS: Final = 8
_MOST_ELEMENTS: Final = 1 << 48


class IndexFault(ValueError):
    """Error raised for bytes that are not a sample index, or a damaged one; its text is the fault."""


class ShardState(NamedTuple):
    """State of a shard; an index is valid for one state only.

    Attributes:
        nbytes: size of the shard.
        state: text that changes whenever its bytes change.
    """

    nbytes: int
    state: str


class SampleIndex(NamedTuple):
    """Index of the samples of one shard.

    Attributes:
        kind: format of the shard and version of its arrays, such as "tar-4".
        arrays: name to array, of integers or floats, with one dimension or more.
    """

    kind: str
    arrays: Mapping[str, Array]


def pack_index(index: SampleIndex, shard: ShardState) -> bytes:
    """Return the file of an index.

    Args:
        index: at most 64 arrays.
        shard: the state of the shard that it describes.

    Raises:
        TypeError: an array is neither one of integers nor one of floats of 4 or 8 bytes.
    """
    columns = []
    parts: list[bytes] = []
    at = 0
    for name, array in index.arrays.items():
        data = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        if data.dtype.str not in _DTYPES:
            raise TypeError(f"the array {name!r} of a sample index has the dtype {array.dtype}")
        columns.append([name, data.dtype.str, list(data.shape), at])
        nbytes = _padded(data.nbytes)
        parts.append(data.tobytes().ljust(nbytes, b"\0"))
        at += nbytes
    body = b"".join(parts)
    description = json.dumps(
        {"kind": index.kind, "nbytes": shard.nbytes, "state": shard.state, "arrays": columns}
    ).encode()
    description = description.ljust(_padded(_HEAD.size + len(description)) - _HEAD.size)
    head = _HEAD.pack(MAGIC, VERSION, len(description), zlib.crc32(description), zlib.crc32(body))
    return head + description + body


def unpack_index(data: memoryview) -> tuple[SampleIndex, ShardState]:
    """Parse the file of an index.

    Args:
        data: the whole file; the arrays are views of it.

    Raises:
        IndexFault: it is not an index of this version, or it is damaged.
    """
    if len(data) < _HEAD.size or bytes(data[:8]) != MAGIC:
        raise IndexFault("it is not a sample index")
    _, version, length, description_crc, body_crc = _HEAD.unpack_from(data)
    if version != VERSION:
        raise IndexFault(f"it has version {version} of the layout, and this is version {VERSION}")
    begin = _HEAD.size + length
    if length > _MOST_DESCRIPTION_NBYTES or begin > len(data):
        raise IndexFault("its head is damaged")
    text = bytes(data[_HEAD.size : begin])
    if zlib.crc32(text) != description_crc:
        raise IndexFault("its description is damaged")
    body = data[begin:]
    if zlib.crc32(body) != body_crc:
        raise IndexFault("its arrays are damaged")
    try:
        description = json.loads(text)
        columns = description["arrays"]
        if len(columns) > _MOST_ARRAYS:
            raise IndexFault(f"it has {len(columns)} arrays")
        arrays = {str(name): _array(body, dtype, shape, at) for name, dtype, shape, at in columns}
        index = SampleIndex(str(description["kind"]), arrays)
        return index, ShardState(int(description["nbytes"]), str(description["state"]))
    except IndexFault:
        raise
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise IndexFault(f"its description is damaged: {error}") from None


def _array(body: memoryview, dtype: Any, shape: Any, at: Any) -> Array:
    """Return one array as a view of the body; raise ValueError or TypeError if it is not in it."""
    if dtype not in _DTYPES:
        raise ValueError(f"dtype {dtype}")
    if type(shape) is not list or not 1 <= len(shape) <= _MOST_DIMENSIONS:
        raise ValueError(f"shape {shape}")
    kind: np.dtype[Any] = np.dtype(dtype)
    count = extents = 1
    for extent in shape:
        if type(extent) is not int or extent < 0:
            raise ValueError(f"shape {shape}")
        count *= extent
        extents *= max(extent, 1)
    if type(at) is not int or at < 0 or at + count * kind.itemsize > len(body) or extents > _MOST_ELEMENTS:
        raise ValueError(f"an array ends behind the file, at {at}")
    array: Array = np.frombuffer(body, kind, count, at).reshape(shape)
    return array


def _padded(nbytes: int) -> int:
    return -(-nbytes // _ALIGN) * _ALIGN
