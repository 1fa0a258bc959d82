"""Byte sources in memory, for readers."""

from __future__ import annotations

from collections.abc import Sequence


class Memory:
    """Byte source in memory that counts its requests."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.asked: list[tuple[int, int]] = []

    def size(self) -> int:
        return len(self.data)

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self.asked += ranges
        return [self.data[offset : offset + length] for offset, length in ranges]


class Unsized:
    """Minimal byte source, without a size."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return [self.data[offset : offset + length] for offset, length in ranges]
