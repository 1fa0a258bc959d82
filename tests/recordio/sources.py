"""Sources of bytes in memory, for readers."""

from __future__ import annotations

from collections.abc import Sequence


class Memory:
    """A source in memory that counts what it is asked for."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.asked: list[tuple[int, int]] = []

    def size(self) -> int:
        return len(self.data)

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self.asked += ranges
        return [self.data[offset : offset + length] for offset, length in ranges]


class Unsized:
    """The least that a source has to be: it cannot tell its size."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return [self.data[offset : offset + length] for offset, length in ranges]
