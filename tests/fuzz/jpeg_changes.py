"""Changes to JPEGs: faults and oddities of their headers, of their scans and of their ends."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import TypeAlias

from tests.fuzz.target import TELLING, Draw, change, dictionary, pick

Other: TypeAlias = Callable[[Draw], bytes]
"""Function that returns another valid JPEG."""

_SAMPLINGS = bytes((0x11, 0x21, 0x12, 0x22, 0x41, 0x14, 0x31, 0x13, 0x42, 0x44, 0x01, 0x10, 0x00))
_RESTART = re.compile(rb"\xff[\xd0-\xd7]")
PIECES = dictionary("jpeg")


def changed(data: bytes, draw: Draw, other: Other) -> bytes:
    """Return a JPEG with one to three faults or oddities.

    Args:
        data: the JPEG.
        draw: the random generator.
        other: returns another JPEG, of which some inputs contain a piece.
    """
    result = bytearray(data)
    for _ in range(pick(draw, (1, 1, 1, 1, 2, 2, 3, 3))):
        if len(result) < 4:
            break
        pick(draw, _CHANGES)(result, draw, other)
    return bytes(result)


def _segments(data: bytearray) -> list[int]:
    """Return the starts of the headers' segments; the last is the scan's header. Empty for heavy damage."""
    places = []
    at, size = 2, len(data)
    while at + 4 <= size and data[at] == 0xFF and len(places) < 64:
        places.append(at)
        if data[at + 1] == 0xDA:
            return places
        at += 2 + (data[at + 2] << 8 | data[at + 3])
    return []


def _scan(data: bytearray) -> int:
    """Return the start of the entropy-coded data."""
    places = _segments(data)
    if not places:
        return 0
    at = places[-1]
    return min(len(data) - 1, at + 2 + (data[at + 2] << 8 | data[at + 3]))


def _blind(data: bytearray, draw: Draw, other: Other) -> None:
    change(data, 2, draw, PIECES)


def _in_scan(data: bytearray, draw: Draw, other: Other) -> None:
    change(data, _scan(data), draw, PIECES)


def _one_byte_in_scan(data: bytearray, draw: Draw, other: Other) -> None:
    start = _scan(data)
    data[start + int(draw() * (len(data) - start))] = int(draw() * 256)


def _bits_in_scan(data: bytearray, draw: Draw, other: Other) -> None:
    """Flip single bits: many of them belong to values, so that all codes stay valid and the image is another one."""
    start = _scan(data)
    for _ in range(1 + int(draw() * 3)):
        data[start + int(draw() * (len(data) - start))] ^= 1 << int(draw() * 8)


def _tables(data: bytearray, draw: Draw, other: Other) -> None:
    """Change a Huffman table: exchange two symbols, or the numbers of codes of two lengths, or change a byte."""
    starts = [at for at in _segments(data) if data[at + 1] == 0xC4]
    if not starts:
        return
    at = pick(draw, starts)
    counts, stop = at + 5, min(len(data), at + 2 + (data[at + 2] << 8 | data[at + 3]))
    if stop < counts + 18:
        return
    low, high = (counts + 16, stop) if draw() < 0.7 else (counts, counts + 16)
    first, second = (low + int(draw() * (high - low)) for _ in range(2))
    if draw() < 0.7:
        data[first], data[second] = data[second], data[first]
    else:
        data[first] = int(draw() * 256) if low > counts else min(255, data[first] + 1)


def _extents(data: bytearray, draw: Draw, other: Other) -> None:
    at = data.find(b"\xff\xc0\0") + 5 + (0 if draw() < 0.6 else 2)
    if at < 7 or at + 2 > len(data):
        return
    extent = (data[at] << 8 | data[at + 1]) + int(draw() * 33) - 16
    if draw() < 0.1:
        extent = int(draw() * 1024)
    data[at : at + 2] = struct.pack(">H", min(max(extent, 0), 65535))


def _shorter(data: bytearray, draw: Draw, other: Other) -> None:
    """Announce fewer rows than the scan has, or a row less: the surplus is harmless."""
    at = data.find(b"\xff\xc0\0") + 5
    if at >= 5 and at + 2 <= len(data):
        height = data[at] << 8 | data[at + 1]
        data[at : at + 2] = struct.pack(">H", 1 + int(draw() * height))


def _sampling(data: bytearray, draw: Draw, other: Other) -> None:
    at = data.find(b"\xff\xc0\0") + 11 + 3 * int(draw() * 3)
    if at >= 11 and at < len(data):
        data[at] = pick(draw, _SAMPLINGS)


def _interval(data: bytearray, draw: Draw, other: Other) -> None:
    at = data.find(b"\xff\xdd\0\4")
    if at < 0 or at + 6 > len(data):
        places = _segments(data)
        if places:
            data[places[-1] : places[-1]] = b"\xff\xdd\0\4\0" + bytes((int(draw() * 9),))
        return
    data[at + 5] = int(draw() * 40)


def _new_segment(data: bytearray, draw: Draw, other: Other) -> None:
    """Insert comments, application segments and fill bytes anywhere in the headers."""
    places = _segments(data)
    if not places:
        return
    at = pick(draw, places)
    if draw() < 0.3:
        data[at:at] = b"\xff" * (1 + int(draw() * 3))
        return
    body = bytes(int(draw() * 40))
    marker = pick(draw, (0xFE, 0xE0, 0xE1, 0xE2, 0xED, 0xEF, 0xC8, 0x01))
    data[at:at] = struct.pack(">BBH", 0xFF, marker, 2 + len(body)) + body


def _move_segment(data: bytearray, draw: Draw, other: Other) -> None:
    """Remove, duplicate or move a segment."""
    places = _segments(data)
    if len(places) < 3:
        return
    one = int(draw() * (len(places) - 1))
    piece = data[places[one] : places[one + 1]]
    kind = draw()
    to = places[int(draw() * (len(places) - 1))]
    if kind < 0.3:
        data[to:to] = piece
    else:
        del data[places[one] : places[one + 1]]
        if kind > 0.5 and to <= places[one]:
            data[to:to] = piece


def _orientation(data: bytearray, draw: Draw, other: Other) -> None:
    order = "<" if draw() < 0.5 else ">"
    mark = b"II*\0" if order == "<" else b"MM\0*"
    tiff = mark + struct.pack(order + "IHHHIHH", 8, 1, 0x0112, 3, 1, int(draw() * 10), 0) + bytes(4)
    data[2:2] = struct.pack(">BBH", 0xFF, 0xE1, 8 + len(tiff)) + b"Exif\0\0" + tiff


def _restarts(data: bytearray, draw: Draw, other: Other) -> None:
    """Remove, duplicate, exchange or renumber restart intervals."""
    start = _scan(data)
    marks = [found.start() for found in _RESTART.finditer(data, start)]
    if len(marks) < 2:
        return
    first, second = sorted(pick(draw, marks) for _ in range(2))
    kind = int(draw() * 4)
    if kind == 0:
        data[first + 1] = 0xD0 + int(draw() * 8)
    elif kind == 1:
        data[second + 2 : second + 2] = data[first + 2 : second + 2]
    elif kind == 2:
        del data[first:second]
    else:
        data[first + 1], data[second + 1] = data[second + 1], data[first + 1]


def _end(data: bytearray, draw: Draw, other: Other) -> None:
    """Change the end: nothing, surplus bytes, or another image."""
    kind = int(draw() * 6)
    if kind == 0:
        del data[len(data) - 1 - int(draw() * 4) :]
    elif kind == 1:
        data[-2:-2] = bytes(int(draw() * 8))
    elif kind == 2:
        data += bytes(pick(draw, TELLING) for _ in range(int(draw() * 20)))
    elif kind == 3:
        data += other(draw)
    elif kind == 4:
        data[len(data) - int(draw() * min(len(data) - 4, 400)) :] = b"\xff\xd9"
    else:
        data[-2:-2] = pick(draw, PIECES)


_CHANGES = (
    *(_blind, _in_scan, _tables, _extents, _shorter, _sampling, _interval, _move_segment, _restarts),
    *(_one_byte_in_scan, _new_segment, _orientation, _end) * 2,
    *(_bits_in_scan,) * 3,
)
