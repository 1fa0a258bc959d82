"""Byte sources in memory, for readers."""


class Memory:
    """Byte source in memory that counts its requests."""

    def __init__(self, data):
        self.data = data
        self.asked = []

    def size(self):
        return len(self.data)

    def read_ranges(self, ranges):
        self.asked += ranges
        return [self.data[offset : offset + length] for offset, length in ranges]


class Unsized:
    """Minimal byte source, without a size."""

    def __init__(self, data):
        self.data = data

    def read_ranges(self, ranges):
        return [self.data[offset : offset + length] for offset, length in ranges]
