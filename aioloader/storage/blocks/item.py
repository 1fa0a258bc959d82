"""Layout of an item: the fields of one row, as they travel from the loader's process to a worker. Pure.

An item is a head and the bytes of the fields, one behind the other. The head is little-endian int64 numbers: how many
fields there are, and the bytes of each, or `NULL` for a field without a value. A field that is a list of encoded images
is an item itself.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import Array, IntArray

NULL: Final = -1
"""Length of a field without a value."""

_WORD: Final = 8
_WORDS: Final = np.dtype("<i8")


def head_nbytes(fields: int) -> int:
    """Return the bytes of the head of an item."""
    return _WORD * (1 + fields)


def pack_heads(lengths: IntArray) -> Array:
    """Return the heads of some items, uint8 (n, bytes of a head).

    Args:
        lengths: int64 (n, fields), bytes of each field or `NULL`.
    """
    heads = np.empty((len(lengths), 1 + lengths.shape[1]), _WORDS)
    heads[:, 0] = lengths.shape[1]
    heads[:, 1:] = lengths
    return heads.view(np.uint8)


def pack_item(fields: Sequence[Any]) -> bytes:
    """Return the item of some fields.

    Args:
        fields: bytes-like objects, or None for a field without a value.
    """
    lengths = [NULL if field is None else len(field) for field in fields]
    head = struct.pack(f"<{1 + len(fields)}q", len(fields), *lengths)
    return b"".join((head, *[field for field in fields if field is not None]))


def split_item(data: memoryview) -> list[memoryview | None]:
    """Return the fields of an item, None for each without a value.

    Args:
        data: the item; the fields are views of it.

    Raises:
        ValueError: it is not an item.
    """
    if len(data) < _WORD:
        raise ValueError(f"an item of {len(data)} bytes has no head")
    count = int.from_bytes(data[:_WORD], "little", signed=True)
    if not 0 <= count <= len(data) // _WORD - 1:
        raise ValueError(f"an item of {len(data)} bytes cannot have {count} fields")
    fields: list[memoryview | None] = []
    at = head_nbytes(count)
    for length in struct.unpack_from(f"<{count}q", data, _WORD):
        if length == NULL:
            fields.append(None)
            continue
        if not 0 <= length <= len(data) - at:
            raise ValueError(f"field {len(fields)} of an item ends {length - len(data) + at} bytes behind it")
        fields.append(data[at : at + length])
        at += length
    if at != len(data):
        raise ValueError(f"an item has {len(data) - at} bytes behind its last field")
    return fields
