"""JPEGs of very many scans that are valid, one scan for each bit of each coefficient, and take a few bytes each."""

from __future__ import annotations

import struct
from collections.abc import Iterator

_EOBS = range(15)
"""Symbols for the ends of up to 2^14 blocks in a row; here each has a code of five bits, its own number."""


class _Bits:
    def __init__(self) -> None:
        self._value = 0
        self._count = 0

    def put(self, value: int, count: int) -> None:
        self._value = self._value << count | value
        self._count += count

    def data(self) -> bytes:
        pad = -self._count % 8
        padded = self._value << pad | (1 << pad) - 1
        return padded.to_bytes((self._count + pad) // 8, "big").replace(b"\xff", b"\xff\0")


def _segment(marker: int, body: bytes) -> bytes:
    return bytes([0xFF, marker]) + struct.pack(">H", len(body) + 2) + body


def _scan(components: range, coefficient: int, high: int, low: int, data: bytes) -> bytes:
    head = bytes([len(components)]) + b"".join(bytes([number + 1, 0]) for number in components)
    return _segment(0xDA, head + bytes([coefficient, coefficient, high << 4 | low])) + data


def _empty_blocks(blocks: int) -> bytes:
    bits = _Bits()
    while blocks:
        log = min(blocks.bit_length() - 1, 14)
        run = min(blocks, (1 << log + 1) - 1)
        bits.put(log, 5)
        bits.put(run - (1 << log), log)
        blocks -= run
    return bits.data()


def _scans(components: int, blocks: int) -> Iterator[bytes]:
    zeros = _Bits()
    zeros.put(0, blocks * components)
    yield _scan(range(components), 0, 0, 0, zeros.data())
    empty = _empty_blocks(blocks)
    for high, low in [(0, 7), *((bit, bit - 1) for bit in range(7, 0, -1))]:
        for number in range(components):
            for coefficient in range(1, 64):
                yield _scan(range(number, number + 1), coefficient, high, low, empty)


def jpeg_of_scans(extent: int, scans: int, components: int = 3) -> bytes:
    """Return a grey progressive JPEG.

    Args:
        extent: height and width, a multiple of 8.
        scans: number of scans, 1 to 505 for one component.
        components: 1 or 3.
    """
    parts = [b"\xff\xd8", _segment(0xDB, bytes([0] + [16] * 64))]
    frame = b"".join(bytes([number + 1, 0x11, 0]) for number in range(components))
    parts.append(_segment(0xC2, struct.pack(">BHHB", 8, extent, extent, components) + frame))
    parts.append(_segment(0xC4, bytes([0x00, 1, *[0] * 15, 0])))
    lengths = [0] * 16
    lengths[4] = len(_EOBS)
    parts.append(_segment(0xC4, bytes([0x10, *lengths, *(log << 4 for log in _EOBS)])))
    found = _scans(components, (extent // 8) ** 2)
    parts += [next(found) for _ in range(scans)]
    return b"".join([*parts, b"\xff\xd9"])
