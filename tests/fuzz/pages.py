"""Target: the headers of the pages of a column chunk, which are checked before pyarrow gets them."""

from __future__ import annotations

from aioloader.formats.parquet.pages import chunk_sizes
from tests.fuzz.target import Draw, Finding, change, dictionary

_PIECES = (*dictionary("number"), *dictionary("thrift"))


def _varint(number: int) -> bytes:
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def page(kind: int, decoded: int, content: bytes, values: int, encoding: int) -> bytes:
    """Return a page with its header."""
    numbers = [_varint(2 * number) for number in (kind, decoded, len(content))]
    inner = b"\x15" + _varint(2 * values) + b"\x15" + _varint(2 * encoding) + b"\0"
    field = {0: b"\x2c", 2: b"\x4c"}[kind]
    return b"".join(b"\x15" + number for number in numbers) + field + inner + b"\0" + content


class Pages:
    """A page of a dictionary, and some others: their sizes are possible, or a ValueError refuses them."""

    def make(self, draw: Draw) -> bytes:
        """See `Target.make`."""
        data = bytearray(page(2, 90, b"d" * int(draw() * 9), 4, 0))
        for _ in range(int(draw() * 4)):
            content = b"p" * int(draw() * 40)
            data += page(0, int(draw() * 1e6), content, int(draw() * 300), int(draw() * 9))
        while draw() < 0.45:
            change(data, 0, draw, _PIECES)
        return bytes(data)

    def check(self, data: bytes) -> bool:
        """See `Target.check`."""
        try:
            sizes = chunk_sizes(memoryview(data), 1 << 20)
        except ValueError:
            return False
        if min(sizes) < 0 or sizes.largest_value > sizes.decoded:
            raise Finding(f"impossible sizes {sizes}")
        return True
