"""Target: the record parser, and all other readers of part heads, against a plain decoder of the same rules."""

from __future__ import annotations

import struct
import zlib
from random import Random

import numpy as np

from recordio import END, MAGIC, CorruptRecordError, RecordParser, extract, payload_spans, serialize
from recordio._recovery import RecordSpan, scan_damaged
from recordio._sansio import read_record, read_records, scan_offsets
from tests.fuzz.target import Draw, Finding, change, pick

_head = struct.Struct("<II").unpack_from
_put_word = struct.Struct("<I").pack_into
_MAGIC = struct.pack("<I", MAGIC)
_LENGTH = (1 << 29) - 1


def _part(flag: int, data: bytes = b"") -> bytes:
    return struct.pack("<II", MAGIC, flag << 29 | len(data)) + data + bytes(-len(data) % 4)


PIECES = (
    _MAGIC,
    _MAGIC[:3],
    _MAGIC[1:],
    _MAGIC[::-1],
    bytes(4),
    b"\xff" * 4,
    *(_part(flag, data) for flag in range(5) for data in (b"", b"abcd")),
    _part(0, b"ab"),
    _part(1, b"ab"),
    struct.pack("<II", MAGIC, _LENGTH),
    struct.pack("<II", MAGIC, 1 << 29 | _LENGTH),
)
_COUNTS = (1, 1, 1, 1, 1, 2, 2, 3)


def plain(data: bytes, tolerant: bool = False) -> tuple[list[bytes], list[int], int]:
    """Apply the rules of docs/format.md as simply as possible.

    Returns:
        payloads, the starts of their records, and the end of reading: the place of the fault, or -1 at a valid end.
    """
    payloads: list[bytes] = []
    starts: list[int] = []
    parts: list[bytes] = []
    at, size, start = 0, len(data), 0
    while at < size or (parts and not tolerant):
        if size - at < 8:
            return payloads, starts, at
        magic, word = _head(data, at)
        flag, length = word >> 29, word & _LENGTH
        end = at + 8 + (length + 3 & ~3)
        if magic != MAGIC or end > size:
            return payloads, starts, at
        if tolerant:
            flag = 3 if flag in (0, 3) else 2
        elif flag not in ((2, 3) if parts else (0, 1)) or (flag in (1, 2) and length & 3):
            return payloads, starts, at
        if not parts:
            start = at
        parts.append(data[at + 8 : at + 8 + length])
        at = end
        if flag in (0, 3):
            payloads.append(_MAGIC.join(parts))
            starts.append(start)
            parts = []
    return payloads, starts, -1


class Records:
    """Record files of some hundred bytes: two to six records, some of them split."""

    def __init__(self) -> None:
        rng = Random(1)
        files = [[_payload(rng) for _ in range(rng.randint(2, 6))] for _ in range(400)]
        self._pool = [_Base(b"".join(map(serialize, payloads))) for payloads in files]

    def make(self, draw: Draw) -> bytes:
        """Return a valid file with one to three faults, mostly after its first record."""
        return self._spoil(pick(draw, self._pool), draw)

    def sound(self, draw: Draw) -> bytes:
        """Return a valid file."""
        base: _Base = pick(draw, self._pool)
        return base.data

    def spoil(self, data: bytes, draw: Draw) -> bytes:
        """Return the same file with faults."""
        return self._spoil(_Base(data), draw)

    def _spoil(self, base: _Base, draw: Draw) -> bytes:
        data = bytearray(base.data)
        behind = draw() < 0.8
        low = base.first if behind else 0
        heads = base.later if behind else base.heads
        for _ in range(pick(draw, _COUNTS)):
            if draw() < 0.5 or not heads:
                change(data, low, draw, PIECES)
            else:
                _reframe(data, heads, draw)
        return bytes(data)

    def check(self, data: bytes) -> bool:
        """Check the parser in any chunks, and in turn the tolerant parser, the scan, positional reads, the walk."""
        key = zlib.crc32(data)
        payloads, starts, fault = plain(data)
        if _parsed(data, key) != (payloads, starts, fault):
            raise Finding(f"parsed {_parsed(data, key)}, not {(payloads, starts, fault)}")
        turn = key >> 5 & 7
        if turn == 0:
            if _parsed(data, key, tolerant=True) != plain(data, tolerant=True):
                raise Finding(
                    f"tolerantly parsed {_parsed(data, key, True)}, not {plain(data, tolerant=True)}"
                )
        elif turn == 1:
            _check_scan(data, starts, fault)
            _check_reads(data, payloads, starts, key)
        elif turn == 2:
            _check_walk(data, set(starts) if key & 1 else set())
        return bool(payloads)


class _Base:
    """Base file of an input: its bytes, its part heads, and the end of its first record."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.heads: list[int] = []
        at = 0
        while len(data) - at >= 8:
            self.heads.append(at)
            at += 8 + ((_head(data, at)[1] & _LENGTH) + 3 & ~3)
        starts = plain(data)[1]
        self.first = starts[1] if len(starts) > 1 else 0
        self.later = [head for head in self.heads if head >= self.first]


def _payload(rng: Random) -> bytes:
    if rng.random() < 0.6:
        return rng.randbytes(rng.randint(0, 40))
    pieces = (_MAGIC, rng.randbytes(4), rng.randbytes(rng.randint(0, 9)), *PIECES)
    return b"".join(rng.choice(pieces) for _ in range(rng.randint(1, 5)))


def _reframe(data: bytearray, heads: list[int], draw: Draw) -> None:
    """Damage a part head, or insert a part before it."""
    at = pick(draw, heads)
    if at + 8 > len(data):
        return
    word = _head(data, at)[1]
    kind = int(draw() * 6)
    if kind == 0:
        word = word + int(draw() * 17) - 8
    elif kind == 1:
        word = word & _LENGTH | int(draw() * 8) << 29
    elif kind == 2:
        other = pick(draw, heads) if draw() < 0.7 else len(data)
        word = word & ~_LENGTH | max(0, other - at - 8)
    elif kind == 3:
        word = word & ~_LENGTH | _LENGTH >> int(draw() * 29)
    elif kind == 4:
        data[at + int(draw() * 4)] ^= 1 << int(draw() * 8)
        return
    else:
        data[at:at] = pick(draw, PIECES)
        return
    _put_word(data, at + 4, word & 0xFFFFFFFF)


def _parsed(data: bytes, key: int, tolerant: bool = False) -> tuple[list[bytes], list[int], int]:
    parser = RecordParser(size=len(data) if key & 1 else None, tolerant=tolerant)
    payloads: list[bytes] = []
    starts: list[int] = []
    cut = 0 if key & 2 else (key >> 8) % (len(data) + 1)
    try:
        for step in (data[:cut], data[cut:], None):
            parser.finish() if step is None else parser.push(step)
            for payload in parser:
                payloads.append(payload)
                starts.append(parser.record_offset)
        if parser.next_record() is not END:
            raise Finding("neither a record nor the end")
    except CorruptRecordError as error:
        return payloads, starts, -2 if error.offset is None else error.offset
    return payloads, starts, -1


def _check_scan(data: bytes, starts: list[int], fault: int) -> None:
    try:
        found = _driven(scan_offsets(len(data)), data).tolist()
    except CorruptRecordError as error:
        if error.offset != fault:
            raise Finding(f"the scan stops at {error.offset}, not at {fault}") from error
    else:
        if fault >= 0 or found != starts:
            raise Finding(f"the scan found {found}, not {starts} and {fault}")


def _check_reads(data: bytes, payloads: list[bytes], starts: list[int], key: int) -> None:
    """Check reads by offset, with lengths from a correct and from a wrong index."""
    if not payloads:
        try:
            extract(data)
        except CorruptRecordError:
            return
        raise Finding("a record where there is none")
    for start, payload in zip(starts, payloads, strict=True):
        if bytes(extract(data[start:])) != payload:
            raise Finding(f"another record at {start}")
        guess = 8 + (key >> 12) % 64
        try:
            found = _driven(read_record(start, guess, size=len(data), path=None), data)
        except CorruptRecordError:
            # Allowed only if the guess was short and a head is at its end.
            if not data.startswith(_MAGIC, start + guess):
                raise
        else:
            if found != payload:
                raise Finding(f"another record at {start}, read with a guess of {guess} bytes")
    begin = np.array(starts)
    length = np.diff(begin, append=len(data))
    if _driven(read_records(begin, length, size=len(data), path=None), data) != payloads:
        raise Finding("other records when all are read at once")
    lows, highs = payload_spans(data, begin, length)
    for low, high, payload in zip(lows, highs, payloads, strict=True):
        if low != high and data[low:high] != payload:
            raise Finding(f"another payload from {low} to {high}")


def _driven(steps, data):
    try:
        wanted = next(steps)
        while True:
            wanted = steps.send([data[offset : offset + length] for offset, length in wanted])
    except StopIteration as stop:
        return stop.value


def _check_walk(data: bytes, heads: set[int]) -> None:
    """Check that records and gaps cover the file, and that each reported record is valid."""
    reached = 0

    def read(offset: int, length: int) -> bytes:
        return data[offset : offset + length]

    for item in scan_damaged(read, len(data), listed=heads.__contains__):
        if item.offset != reached or item.length <= 0:
            raise Finding(f"{item} does not follow byte {reached}")
        reached += item.length
        if isinstance(item, RecordSpan):
            extract(data[item.offset : reached])
    if reached != len(data):
        raise Finding(f"the walk ends at {reached}, not at {len(data)}")
