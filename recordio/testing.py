"""Hypothesis strategies and functions that damage files, for our tests and for those of users.

Needs hypothesis, which no other module of this package imports.
"""

from __future__ import annotations

import itertools
import struct
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from recordio._framing import MAGIC_BYTES, serialize
from recordio._image import IRHeader

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = (
    "chunkings",
    "cut",
    "damaged",
    "flip",
    "frame",
    "headers",
    "insert",
    "payloads",
    "record_lists",
)

_PIECES = (
    MAGIC_BYTES,
    MAGIC_BYTES[:3],
    MAGIC_BYTES[1:],
    MAGIC_BYTES[::-1],
    b"\0",
    b"\0\0\0\0",
    b"\n",
    struct.pack("<I", 4),
    struct.pack("<I", 1 << 29),
    struct.pack("<I", (1 << 29) - 1),
)


def payloads(max_size: int = 256) -> st.SearchStrategy[bytes]:
    """Generate payloads of up to `max_size` bytes with many magic words and bytes that look like heads."""
    rich = st.lists(st.sampled_from(_PIECES) | st.binary(max_size=9), max_size=16).map(b"".join)
    return (rich | st.binary(max_size=max_size)).map(lambda data: data[:max_size])


def record_lists(max_records: int = 8) -> st.SearchStrategy[list[bytes]]:
    """Generate lists of payloads, for whole files."""
    return st.lists(payloads(), max_size=max_records)


def headers() -> st.SearchStrategy[IRHeader]:
    """Generate headers with scalar or array labels, over the whole range of the ids."""
    label = st.floats(width=32, allow_nan=False)
    ids = st.integers(0, 2**64 - 1)
    return st.builds(IRHeader, st.just(0), label | st.lists(label, max_size=6), ids, ids)


@st.composite
def chunkings(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """Generate ways to split bytes into consecutive chunks."""
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    edges = [0, *cuts, len(data)]
    return [data[begin:end] for begin, end in itertools.pairwise(edges)]


def frame(records: Sequence[bytes]) -> bytes:
    """Return the bytes of a record file with these payloads."""
    return b"".join(map(serialize, records))


def flip(data: bytes, offset: int, mask: int = 0xFF) -> bytes:
    """Invert the bits in `mask` (1 to 255) of one byte."""
    return data[:offset] + bytes([data[offset] ^ mask]) + data[offset + 1 :]


def cut(data: bytes, size: int) -> bytes:
    """Keep only the first `size` bytes."""
    return data[:size]


def insert(data: bytes, offset: int, garbage: bytes) -> bytes:
    """Insert foreign bytes at an offset."""
    return data[:offset] + garbage + data[offset:]


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Generate one to three faults in a file: a flipped byte, a cut, foreign bytes, or lost bytes."""
    for _ in range(draw(st.integers(1, 3))):
        if not data:
            break
        offset = draw(st.integers(0, len(data) - 1))
        kind = draw(st.sampled_from(("flip", "cut", "insert", "lose")))
        if kind == "flip":
            data = flip(data, offset, draw(st.integers(1, 255)))
        elif kind == "cut":
            data = cut(data, offset)
        elif kind == "insert":
            data = insert(data, offset, draw(st.binary(min_size=1, max_size=9)))
        else:
            data = data[:offset] + data[offset + draw(st.integers(1, 9)) :]
    return data
