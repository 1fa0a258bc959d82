"""Changes to bytes, independent of their meaning. Fast, because millions of inputs are made with them."""

from __future__ import annotations

from collections.abc import Sequence

from tests.fuzz.target import Draw

TELLING = bytes(
    (0, 1, 2, 3, 4, 7, 8, 9, 10, 13, 16, 32, 45, 48, 57, 64, 96, 127, 128, 160, 192, 224, 254, 255)
)
"""Bytes with special meaning: borders of ranges, flags, separators, digits."""


def pick(draw: Draw, choices: Sequence[bytes]) -> bytes:
    """Return one of them."""
    return choices[int(draw() * len(choices))]


def change(data: bytearray, low: int, draw: Draw, pieces: Sequence[bytes]) -> None:
    """Make one change in place.

    Args:
        data: altered.
        low: first place of changes, if the data are longer.
        draw: the random generator.
        pieces: bytes that may be inserted.
    """
    size = len(data)
    if size <= low:
        low = 0
        if not size:
            data += pick(draw, pieces)
            return
    at = low + int(draw() * (size - low))
    kind = int(draw() * 8)
    if kind == 0:
        data[at] ^= 1 << int(draw() * 8)
    elif kind == 1:
        data[at] = int(draw() * 256)
    elif kind == 2:
        data[at] = TELLING[int(draw() * len(TELLING))]
    elif kind == 3:
        del data[at:]
    elif kind == 4:
        del data[at : at + 1 + int(draw() * 9)]
    elif kind == 5:
        data[at:at] = pick(draw, pieces)
    elif kind == 6:
        data[at:at] = data[at : at + 1 + int(draw() * 40)]
    else:  # a stretch is removed, or duplicated
        data[at:] = data[low + int(draw() * (size - low)) :]
