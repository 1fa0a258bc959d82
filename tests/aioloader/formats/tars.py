"""Tars for tests, made of single headers, and readers that follow them."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from aioloader.formats.tar.header import BLOCK, padded
from aioloader.formats.tar.members import TarChain
from aioloader.formats.tar.samples import SamplePieces

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from aioloader.formats.tar.members import TarMembers
    from aioloader.formats.tar.samples import TarSamples
    from aioloader.formats.tar.scan import TarScan

END = bytes(2 * BLOCK)
"""End of an archive."""
PATH = "a.tar"
"""Path of the tars in errors."""


def checked(block: bytes) -> bytes:
    """Return a header with the right checksum."""
    total = sum(block[:148]) + 8 * 32 + sum(block[156:])
    return block[:148] + b"%06o\0 " % total + block[156:]


def header(
    name: bytes,
    size: int = 0,
    kind: bytes = b"0",
    *,
    link: bytes = b"",
    magic: bytes = b"ustar\x0000",
    prefix: bytes = b"",
    size_field: bytes | None = None,
) -> bytes:
    """Return the header of a member."""
    field = b"%011o\0" % size if size_field is None else size_field
    block = name.ljust(100, b"\0") + b"0000644\0" + b"0000000\0" * 2 + field + b"00000000000\0" + bytes(8)
    block += kind + link.ljust(100, b"\0") + magic.ljust(8, b"\0") + bytes(80) + prefix.ljust(155, b"\0")
    return checked(block.ljust(BLOCK, b"\0"))


def filled(data: bytes) -> bytes:
    """Return data, padded with zeros to whole blocks."""
    return data.ljust(padded(len(data)), b"\0")


def member(name: bytes, data: bytes = b"", kind: bytes = b"0") -> bytes:
    """Return a member with its data."""
    return header(name, len(data), kind) + filled(data)


def pax_record(key: bytes, value: bytes) -> bytes:
    """Return a record of a PAX header."""
    rest = len(key) + len(value) + 3
    length = rest + 1
    while rest + len(str(length)) != length:
        length = rest + len(str(length))
    return b"%d %s=%s\n" % (length, key, value)


def pax(*records: bytes, kind: bytes = b"x") -> bytes:
    """Return a PAX header."""
    return member(b"PaxHeaders/0", b"".join(records), kind)


def follow(data: bytes, nbytes: int = 2048) -> TarChain:
    """Follow the chain of a tar with reads of some size to its end, or to a fault."""
    return follow_reads(lambda at, count: data[at : at + count], len(data), nbytes)


def follow_reads(read: Callable[[int, int], bytes], total: int, nbytes: int = 2048) -> TarChain:
    """Follow the chain of a tar of `total` bytes; fail if a step makes no progress."""
    chain = TarChain(PATH, total)
    while not chain.done:
        before = (chain.at, chain.needs)
        chain.take(read(chain.at, max(chain.needs, nbytes)), chain.at)
        assert chain.done or (chain.at, chain.needs) > before or chain.at > before[0]
    return chain


def scan_all(scan: TarScan, read: Callable[[int, int], bytes], random: Random) -> TarMembers:
    """Scan a tar; the parts go on in random order. Return its members."""
    lanes = scan.begin()
    while lanes:
        lane = lanes.pop(random.randrange(len(lanes)))
        wants = lane.wants
        if wants:
            lane.take([read(offset, nbytes) for offset, nbytes in wants])
            lanes.append(lane)
        else:
            lanes += scan.settle()
    return scan.members()


def read_sample(samples: TarSamples, row: int, data: bytes) -> memoryview:
    """Return the bytes of a sample of a tar as they are read."""
    offset, length = samples.offset[row : row + 1], samples.read_length[row : row + 1]
    every = SamplePieces(samples)
    for _, pieces in every.find(offset, length):
        item = memoryview(bytearray(int(length[0])))
        for place, begin, nbytes in pieces:
            item[place : place + nbytes] = data[begin : begin + nbytes]
        every.finish(item, pieces)
        return item.toreadonly()
    return memoryview(data)[int(offset[0]) : int(offset[0] + length[0])]


class VirtualTar:
    """Tar of any size of whose bytes only some blocks are kept; all others are zeros.

    Attributes:
        nbytes: its size.
        read_nbytes: bytes that were read.
    """

    def __init__(self) -> None:
        self.nbytes = 0
        self.read_nbytes = 0
        self._pieces: list[tuple[int, bytes]] = []
        self._sorted: list[tuple[int, bytes]] = []
        self._longest = 0

    def add(self, block: bytes, behind: int = 0, *, inside: Sequence[tuple[int, bytes]] = ()) -> None:
        """Add a block, and data.

        Args:
            block: a header.
            behind: bytes of its data.
            inside: blocks in the data, at these offsets in them.
        """
        self.put(self.nbytes, block)
        for offset, data in inside:
            self.put(self.nbytes + BLOCK + offset, data)
        self.nbytes += BLOCK + padded(behind)

    def put(self, at: int, block: bytes) -> None:
        """Replace bytes; those put last count."""
        self._pieces.append((at, block))

    def end(self) -> None:
        """Add the blocks of zeros that end the archive."""
        self.nbytes += len(END)

    def read(self, offset: int, nbytes: int) -> bytes:
        """Return some bytes."""
        stop = min(offset + nbytes, self.nbytes)
        assert 0 <= offset < stop
        self.read_nbytes += stop - offset
        found = bytearray(stop - offset)
        if len(self._sorted) != len(self._pieces):
            self._sorted = sorted(self._pieces, key=lambda piece: piece[0])
            self._longest = max(len(block) for _, block in self._pieces)
        first = bisect_left(self._sorted, offset - self._longest, key=lambda piece: piece[0])
        for place, block in self._sorted[first:]:
            if place >= stop:
                break
            low, high = max(place, offset), min(place + len(block), stop)
            if low < high:
                found[low - offset : high - offset] = block[low - place : high - place]
        return bytes(found)
