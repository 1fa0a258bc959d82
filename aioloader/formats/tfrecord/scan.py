"""Scan of a TFRecord file for its records, from the heads of the records alone. Pure: the caller reads.

A record begins where the one before it ends, so heads are found one after the other (`RecordChain`). Where each read
waits for a network, `FileScan` follows several chains at a time: it cuts the file into segments, searches for a head
from the beginning of each segment on, and follows a chain from there. A head is recognized by the CRC of its length.
Payloads may contain heads, too, for example those of another TFRecord file. So the chain of a segment counts only if
the chain before it arrives at one of its heads; else the chain before is followed through the segment.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from aioloader.formats.tfrecord.framing import (
    FRAME_NBYTES,
    HEAD,
    HEAD_NBYTES,
    MOST_PAYLOAD,
    compressed,
    compression_of,
    find_heads,
    head_fault,
    length_crcs,
    truncated,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.errors import SampleFormatError
    from aioloader.foundation.types import IntArray

_CHECKED_AT_A_TIME: Final = 4096
# Above this size of a record its head is read alone: reading the record, too, would cost more than a further read.
_SPARSE_NBYTES: Final = 32 << 10
_FIRST_NBYTES: Final = 16 << 10
_LEAST_BLOCK: Final = 4 << 10
_MOST_BLOCK: Final = 256 << 10
# A head is searched in about one record of each segment: with this number of records, in a third of a percent.
_RECORDS_OF_SEGMENT: Final = 320
_LEAST_SEGMENT: Final = 8 << 20
# Searches may take this number of bytes in any file: fetching them takes no longer than a few steps of a chain.
_SEARCHED_NBYTES: Final = 1 << 20
_LEAST_RECORDS: Final = 8
_LEARNED_RECORDS: Final = 4  # known before the file is cut
_MOST_SEGMENTS: Final = 64
_LEAST_SEARCH: Final = 1 << 20
_SEARCHED_RECORDS: Final = 4


class RecordChain:
    """Consecutive records of a file.

    Args:
        path: of the file, for errors.
        nbytes: of the file.
        begin: offset of the first record.
        end: heads from this offset on are not followed; None: the end of the file.

    Attributes:
        offsets: of the records so far.
        at: offset of the next head.
        fault: why the chain ends before `end`; the records before it are valid.
    """

    def __init__(self, path: str, nbytes: int, begin: int = 0, end: int | None = None) -> None:
        self.path = path
        self.nbytes = nbytes
        self.at = begin
        self.end = nbytes if end is None else end
        self.offsets: list[int] = []
        self.fault: SampleFormatError | None = None
        # Lengths and CRCs of the last records, whose CRCs have not been compared: many are compared at a time.
        self._lengths: list[int] = []
        self._crcs: list[int] = []

    @property
    def done(self) -> bool:
        """Return whether the chain has reached its end, or a fault."""
        return self.fault is not None or self.at >= self.end

    def take(self, data: memoryview, begin: int) -> None:
        """Follow the heads in some bytes of the file, as far as they contain them.

        Args:
            data: bytes of the file, at least `HEAD_NBYTES` from `at` on, or all up to the end of the file.
            begin: their offset in the file.
        """
        unpack, at = HEAD.unpack_from, self.at - begin
        last = min(len(data) - HEAD_NBYTES, self.end - begin - 1)
        lengths: list[int] = []
        crcs: list[int] = []
        places: list[int] = []
        while at <= last:
            length, crc = unpack(data, at)
            places.append(at)
            lengths.append(length)
            crcs.append(crc)
            at += length + FRAME_NBYTES
        self.offsets += [place + begin for place in places]
        self._lengths += lengths
        self._crcs += crcs
        self.at = at + begin
        if (
            self.at >= self.end
            or self.nbytes - self.at < HEAD_NBYTES
            or len(self._crcs) >= _CHECKED_AT_A_TIME
        ):
            self.check()

    def check(self) -> None:
        """Compare the CRCs of the lengths that have not been compared yet, and the end of the last record."""
        first = len(self.offsets) - len(self._crcs)
        lengths = np.array(self._lengths, np.uint64)
        bad = np.flatnonzero(
            (length_crcs(lengths) != np.array(self._crcs, np.uint32)) | (lengths > MOST_PAYLOAD)
        )
        # With the CRCs right, only the last record can end behind the file.
        place = int(bad[0]) if len(bad) else len(lengths) - 1
        if len(bad) or (self.at > self.nbytes and len(lengths)):
            offset = self.offsets[first + place]
            self.fault = head_fault(
                self._lengths[place],
                self._crcs[place],
                path=self.path,
                offset=offset,
                held=self.nbytes - offset,
            )
            del self.offsets[first + place :]
            self.at = offset
        elif 0 < self.nbytes - self.at < HEAD_NBYTES:
            self.fault = truncated(self.path, self.at, FRAME_NBYTES, self.nbytes - self.at)
        self._lengths, self._crcs = [], []


class _Segment:
    """Part of a file: the search for a head in it, and the chain from there.

    Args:
        chain: begins where the segment does.
        search: bytes that are read at a time in search of a head; 0: the segment begins with one.
        most: bytes in which a head is searched.
    """

    def __init__(self, chain: RecordChain, *, search: int = 0, most: int = 0) -> None:
        self.chain = chain
        self._begin = chain.at
        self._search = search
        self._last = min(chain.at + most, chain.end)
        self._block = HEAD_NBYTES if search else _FIRST_NBYTES

    @property
    def want(self) -> tuple[int, int] | None:
        """Return offset and length of the bytes to read next; None at the end."""
        if self.chain.done:
            return None
        at = self.chain.at
        return at, min(self._search or self._block, self.chain.nbytes - at)

    @property
    def reached(self) -> int:
        """Return the bytes of the segment up to which it is known."""
        return max(0, min(self.chain.at, self.chain.end) - self._begin)

    def take(self, data: memoryview) -> None:
        """Take the bytes that were wanted."""
        chain, begin = self.chain, self.chain.at
        if self._search:
            heads = find_heads(np.frombuffer(data, np.uint8), MOST_PAYLOAD)
            if not len(heads):
                chain.at += len(data) - HEAD_NBYTES + 1
                if chain.at >= self._last or chain.nbytes - chain.at < HEAD_NBYTES:
                    chain.end = chain.at  # the chain before leads through this segment
                return
            chain.at += int(heads[0])
            self._search = 0
        count, at = len(chain.offsets), chain.at
        chain.take(data, begin)
        found = max(1, len(chain.offsets) - count)
        usual = (chain.at - at) // found
        self._block = (
            HEAD_NBYTES if usual >= _SPARSE_NBYTES else min(max(2 * self._block, _LEAST_BLOCK), _MOST_BLOCK)
        )


class FileScan:
    """Scan of a whole file. The caller reads what it wants, until it wants nothing more.

    Args:
        path: of the file, for errors.
        nbytes: of the file.
        parallel: follow several chains at a time, because reads wait for a network.

    Attributes:
        wants: (offset, length) of the bytes that `take` expects next; empty at the end.
        reached: bytes of the file whose records are known, about.
    """

    def __init__(self, path: str, nbytes: int, *, parallel: bool) -> None:
        self._chain = RecordChain(path, nbytes)
        self._first = _Segment(self._chain)
        self._segments = [self._first]
        self._parallel = parallel
        self._begun = False
        self.wants: list[tuple[int, int]] = []
        self.reached = 0
        self._plan()

    def take(self, parts: Sequence[memoryview]) -> None:
        """Take the bytes that were wanted.

        Args:
            parts: for each of `wants` its bytes.
        """
        waiting = [segment for segment in self._segments if segment.want is not None]
        for segment, part in zip(waiting, parts, strict=True):
            segment.take(part)
        if not self._begun:
            self._begin(parts[0])
        if self._parallel and len(self._chain.offsets) >= _LEARNED_RECORDS:
            self._parallel = False
            self._cut()
        self._plan()
        reached = sum(segment.reached for segment in self._segments)
        self.reached = max(self.reached, reached) if self.wants else self._chain.nbytes

    def lengths(self) -> IntArray:
        """Return the bytes of each record, with head and CRC, int64 (n,). They are consecutive from the first byte on.

        Raises:
            SampleFormatError: the file is damaged, truncated or compressed; the error is that of the first fault.
        """
        chain = self._chain
        if chain.fault is not None:
            chain.fault.key = str(len(chain.offsets))
            raise chain.fault
        places = np.array([*chain.offsets, chain.at], np.int64)
        return places[1:] - places[:-1]

    def _begin(self, data: memoryview) -> None:
        """Check the first head."""
        self._begun = True
        chain = self._chain
        chain.check()  # the head of a compressed file may look like that of a record
        if chain.fault is not None:
            kind = compression_of(bytes(data[:HEAD_NBYTES])) if chain.fault.offset == 0 else None
            if kind is not None:
                chain.fault = compressed(kind, chain.path)

    def _cut(self) -> None:
        """Cut the file into segments, now that the sizes of some records are known."""
        chain = self._chain
        if chain.done or chain.fault is not None:
            return
        usual = chain.at // len(chain.offsets)
        rest = chain.nbytes - chain.at
        cheap = rest // max(usual * _RECORDS_OF_SEGMENT, _LEAST_SEGMENT)
        small = (
            min(_SEARCHED_NBYTES // usual, rest // (usual * _LEAST_RECORDS)) if usual > _SPARSE_NBYTES else 0
        )
        count = min(max(cheap, small), _MOST_SEGMENTS)
        begins = [chain.at + number * rest // count for number in range(1, count)]
        for begin, end in pairwise([*begins, chain.nbytes]):
            self._segments.append(
                _Segment(
                    RecordChain(chain.path, chain.nbytes, begin, end),
                    search=min(max(usual // 2, _FIRST_NBYTES), _MOST_BLOCK),
                    most=max(_SEARCHED_RECORDS * usual, _LEAST_SEARCH),
                )
            )
        if begins:
            chain.end = begins[0]

    def _plan(self) -> None:
        wants = [want for segment in self._segments if (want := segment.want) is not None]
        while not wants and len(self._segments) > 1:
            self._join()
            wants = [want] if (want := self._first.want) is not None else []
        self.wants = wants

    def _join(self) -> None:
        """Continue the first chain with the records of the next one if it has arrived there."""
        chain, later = self._chain, self._segments[1].chain
        if chain.fault is not None:
            del self._segments[1:]
            return
        if not later.offsets or later.offsets[-1] < chain.at:  # no head was found, or a false one was passed
            del self._segments[1]
        else:
            place = bisect_left(later.offsets, chain.at)
            if later.offsets[place] != chain.at:
                chain.end = later.offsets[place]
                return
            chain.offsets += later.offsets[place:]
            chain.at, chain.fault = later.at, later.fault
            del self._segments[1]
        chain.end = chain.at if len(self._segments) > 1 else chain.nbytes
