"""Target: arguments of the compiled resize, which reads and writes memory by tables that may be damaged.

An input is (rows, columns, height, width, channels) and the set of instructions, one byte each, two bytes with the
number of weights in the rows of each table, and the tables. It is refused, or the bytes are the sums that the tables
define.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

import aioloader._native as native
from aioloader.transforms.antialias import axis_table
from tests.fuzz.target import Draw, Finding, change, pick

_HEAD = struct.Struct("<8B")
_NUMBERS = (-(2**31), -(2**22), -32769, -32768, -1, 0, 1, 32767, 32768, 32769, 2**22, 2**31 - 1)
_PIECES = tuple(struct.pack("<i", number) for number in _NUMBERS)
_GUARD = 64


class Resizes:
    """Tables of bilinear and bicubic filters, with faults."""

    def make(self, draw: Draw) -> bytes:
        """See `Target.make`."""
        rows, columns, height, width = (1 + int(draw() ** 2 * 60) for _ in range(4))
        kernel = "bicubic" if draw() < 0.5 else "bilinear"
        down, across = (
            axis_table(before, after, 0, after, kernel=kernel)
            for before, after in ((rows, height), (columns, width))
        )
        levels = len(native.resize_levels())
        head = rows, columns, height, width, pick(draw, (1, 3, 4)), int(draw() * levels)
        data = bytearray(
            _HEAD.pack(*head, down.shape[1] - 1, across.shape[1] - 1) + down.tobytes() + across.tobytes()
        )
        for _ in range(int(draw() * 3)):
            if draw() < 0.7:
                at = _HEAD.size + 4 * int(draw() * ((len(data) - _HEAD.size) // 4))
                data[at : at + 4] = pick(draw, _PIECES)
            else:
                change(data, 0, draw, _PIECES)
        return bytes(data)

    def check(self, data: bytes) -> bool:
        """See `Target.check`."""
        if len(data) < _HEAD.size:
            return False
        rows, columns, height, width, channels, level, *taps = _HEAD.unpack_from(data)
        numbers = np.frombuffer(data[_HEAD.size : len(data) - (len(data) - _HEAD.size) % 4], np.int32)
        split = min(len(numbers), height * (1 + taps[0]))
        try:
            down = numbers[:split].reshape(height, -1)
            across = numbers[split : split + width * (1 + taps[1])].reshape(width, -1)
        except ValueError:  # too short
            return False
        pixels = np.random.default_rng(rows * 64 + columns).integers(
            0, 256, (rows, columns, channels), np.uint8
        )
        memory = np.full(height * width * channels + 2 * _GUARD, 7, np.uint8)
        out = memory[_GUARD : memory.size - _GUARD].reshape(height, width, channels)
        try:
            native.resize(pixels, out, across, down, level)
        except ValueError:
            return True
        expected = _filtered(_filtered(pixels.transpose(1, 0, 2), across).transpose(1, 0, 2), down)
        if not np.array_equal(out, expected):
            raise Finding("the bytes are not those of the tables")
        if (memory[:_GUARD] != 7).any() or (memory[-_GUARD:] != 7).any():
            raise Finding("bytes beside the result were written")
        return True


def _filtered(x: Any, table: Any) -> Any:
    """Filter along the first axis by the definition."""
    places = table[:, :1] + np.arange(table.shape[1] - 1)
    sums = (table[:, 1:, None, None].astype(np.int64) * x[places]).sum(1)
    return np.clip((sums + (1 << 14)) >> 15, 0, 255).astype(np.uint8)
