"""Records of a TFRecord file: their frames, with the CRC-32C of google-crc32c, and the scan for them. Pure.

The scan needs the heads of the records alone; the caller reads. A record begins where the one before it ends, so heads
are found one after the other (`RecordChain`). Where each read waits for a network, `FileScan` follows several chains at
a time: it cuts the file into segments, searches for a head from the beginning of each segment on, and follows a chain
from there. A head is recognized by the CRC of its length. Payloads may contain heads, too, for example those of another
TFRecord file. So the chain of a segment counts only if the chain before it arrives at one of its heads; else the chain
before is followed through the segment.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aioloader.errors import MissingPackageError, SampleFormatError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.foundation.types import Array, IntArray


@cache
def crc32c_function() -> Callable[[memoryview], int]:
    """Return a function that computes the CRC-32C of bytes.

    Raises:
        MissingPackageError: google-crc32c is not installed; the error is an ImportError.
    """
    try:
        import google_crc32c
    except ImportError:
        raise MissingPackageError("google-crc32c", extra="tfrecord") from None
    value: Any = google_crc32c.value

    def crc32c(data: memoryview) -> int:
        # The library refuses a memoryview, and bytes would be a copy.
        return int(value(np.frombuffer(data, np.uint8))) if len(data) else 0

    return crc32c


HEAD_NBYTES: Final = 12
"""Bytes before a payload: its length, and the CRC of the length."""
CRC_NBYTES: Final = 4
"""Bytes behind a payload: its CRC."""
FRAME_NBYTES: Final = HEAD_NBYTES + CRC_NBYTES
MOST_PAYLOAD: Final = (1 << 31) - 1
"""Largest payload in bytes: protobuf's limit of a message, which a `tf.train.Example` is."""

HEAD: Final = struct.Struct("<QI")
_CRC: Final = struct.Struct("<I")
_POLYNOMIAL: Final = 0x82F63B78
_MASK: Final = 0xA282EAD8
_ALL: Final = 0xFFFFFFFF
_GZIP: Final = b"\x1f\x8b"
_DEFLATE: Final = 8
# Every place of zeros may be a head: a bound for the memory that is taken to look at them.
_PLACES_AT_A_TIME: Final = 1 << 15


# -- CRC-32C of a length -----------------------------------------------------------------------------------------------
# A CRC is linear: that of eight bytes is the exclusive or of that of eight zero bytes and of one word for each byte,
# which depends on its value and its place.


def _tables() -> list[list[int]]:
    first = []
    for word in range(256):
        for _ in range(8):
            word = word >> 1 ^ (_POLYNOMIAL if word & 1 else 0)
        first.append(word)
    behind = [first]  # the words of a byte with 0, 1, ... 7 bytes behind it
    for _ in range(7):
        behind.append([word >> 8 ^ first[word & 255] for word in behind[-1]])
    return behind[::-1]


_WORDS: Final = _tables()
_WORD_0, _WORD_1, _WORD_2, _WORD_3 = _WORDS[:4]


def _crc_of_zeros() -> int:
    crc = _ALL
    for _ in range(8):
        crc = crc >> 8 ^ _WORDS[7][crc & 255]
    return crc ^ _ALL


_ZEROS: Final = _crc_of_zeros()


def mask(crc: int) -> int:
    """Return the masked form of a CRC, as it is stored."""
    return ((crc >> 15 | crc << 17) + _MASK) & _ALL


def length_crc(length: int) -> int:
    """Return the masked CRC of a length, 0 <= length < 2**64."""
    crc = _ZEROS ^ _WORD_0[length & 255] ^ _WORD_1[length >> 8 & 255]
    crc ^= _WORD_2[length >> 16 & 255] ^ _WORD_3[length >> 24 & 255]
    length >>= 32
    for words in _WORDS[4:] if length else ():
        crc ^= words[length & 255]
        length >>= 8
    return ((crc >> 15 | crc << 17) + _MASK) & _ALL


@cache
def _word_arrays() -> Array:
    return np.array(_WORDS, np.uint32)


def length_crcs(length: Array) -> Array:
    """Return the masked CRCs, uint32 (n,), of lengths, uint64 (n,)."""
    words = _word_arrays()
    crc = np.full(len(length), _ZEROS, np.uint32)
    rest = length
    for place in range(8):
        if not rest.any():
            break
        crc ^= words[place][(rest & np.uint64(255)).astype(np.intp)]
        rest = rest >> np.uint64(8)
    masked: Array = (crc >> np.uint32(15) | crc << np.uint32(17)) + np.uint32(_MASK)
    return masked


# -- one record --------------------------------------------------------------------------------------------------------


def head_fault(
    length: int, crc: int, *, path: str, offset: int, key: object = None, held: int | None = None
) -> SampleFormatError | None:
    """Return the fault of the head of a record; None if it is valid.

    Args:
        length: of the payload, as stored.
        crc: as stored.
        path: of the file, for errors.
        offset: of the record.
        key: of the record, or None.
        held: bytes from the offset to the end of the file; None: not compared.
    """
    expected = length_crc(length)
    if crc != expected:
        return SampleFormatError(
            "this is not the head of a TFRecord: the checksum of its length is wrong. The file is damaged here, or the "
            "index is that of another file: `aioloader verify FILE` lists all faults, `aioloader index FILE` makes the "
            "index again",
            path=path,
            offset=offset,
            key=key,
            expected=f"{expected:#010x}",
            found=f"{crc:#010x}",
        )
    if held is not None and length + FRAME_NBYTES > held:
        return truncated(path, offset, length + FRAME_NBYTES, held, key)
    if length > MOST_PAYLOAD:
        return SampleFormatError(
            "the record is longer than a tf.train.Example can be",
            path=path,
            offset=offset,
            key=key,
            expected=f"at most {MOST_PAYLOAD} bytes",
            found=f"{length} bytes",
        )
    return None


def truncated(path: str, offset: int, needed: int, held: int, key: object = None) -> SampleFormatError:
    """Return the error for a record that needs more bytes than the file has from its offset on."""
    return SampleFormatError(
        "the file ends inside this record: it was truncated, so copy or write it again",
        path=path,
        offset=offset,
        key=key,
        expected=f"{needed} bytes",
        found=f"{held} bytes",
    )


def payload_of(data: memoryview, *, path: str | None, offset: int | None, key: object = None) -> memoryview:
    """Return the payload of a framed record.

    Args:
        data: the record, with head and CRC.
        path, offset, key: of the record, for errors.

    Raises:
        SampleFormatError: the bytes are not one record: the CRC of the length is wrong, or the length is another one.
    """
    nbytes = len(data)
    if nbytes >= FRAME_NBYTES:
        length, crc = HEAD.unpack_from(data)
        if length == nbytes - FRAME_NBYTES and crc == length_crc(length):
            return data[HEAD_NBYTES:-CRC_NBYTES]
        fault = head_fault(length, crc, path=path or "", offset=offset or 0, key=key)
        found = f"{length + FRAME_NBYTES} bytes"
    else:
        fault, found = None, "fewer than the head and the checksum of a record have"
    raise fault or SampleFormatError(
        "the record has another length than its index says; make the index again with `aioloader index FILE`",
        path=path,
        offset=offset,
        key=key,
        expected=f"{nbytes} bytes",
        found=found,
    )


def check_payload(
    data: memoryview,
    crc32c: Callable[[memoryview], int],
    *,
    path: str | None,
    offset: int | None,
    key: object = None,
) -> None:
    """Raise unless the CRC of a payload is right.

    Args:
        data: the record, with head and CRC; its head was checked.
        crc32c: returns the CRC-32C of bytes.
        path, offset, key: of the record, for errors.

    Raises:
        SampleFormatError: the CRC is wrong.
    """
    (stored,) = _CRC.unpack_from(data, len(data) - CRC_NBYTES)
    computed = mask(crc32c(data[HEAD_NBYTES:-CRC_NBYTES]))
    if stored != computed:
        raise wrong_payload(stored, computed, path=path, offset=offset, key=key)


def wrong_payload(
    stored: int, computed: int, *, path: str | None, offset: int | None, key: object = None
) -> SampleFormatError:
    """Return the error for a payload with a wrong CRC."""
    return SampleFormatError(
        "the checksum of the record's data is wrong: the data are damaged",
        path=path,
        offset=offset,
        key=key,
        expected=f"{stored:#010x}",
        found=f"{computed:#010x}",
    )


def compression_of(head: bytes) -> str | None:
    """Return "GZIP" or "ZLIB" if a file begins as one that is compressed as a whole; else None.

    The sources are RFC 1952, section 2.3.1, and RFC 1950, section 2.2.

    Args:
        head: the first bytes of the file, which are not the head of a record.
    """
    if head.startswith(_GZIP):
        return "GZIP"
    if (
        len(head) >= 2
        and head[0] & 15 == _DEFLATE
        and head[0] >> 4 <= 7
        and not (head[0] << 8 | head[1]) % 31
    ):
        return "ZLIB"
    return None


def compressed(kind: str, path: str) -> SampleFormatError:
    """Return the error for a file that is compressed as a whole."""
    advice = (
        "decompress it with `gunzip < FILE > NEW`"
        if kind == "GZIP"
        else "write it again with tf.io.TFRecordWriter(PATH), without compression"
    )
    return SampleFormatError(
        f"the file is compressed as a whole ({kind}), so that no record can be read without all records before it: "
        f"{advice}. Images in it are compressed already",
        path=path,
        offset=0,
    )


# -- many heads --------------------------------------------------------------------------------------------------------


def find_heads(data: Array, most: int) -> IntArray:
    """Find heads of records in bytes that may begin anywhere.

    A false one occurs about once in 2**65 places of random bytes: 32 bits of CRC and 33 upper bits of the length.

    Args:
        data: uint8 (n,).
        most: largest payload.

    Returns:
        int64 (m,), where in `data` the heads begin, ascending; heads that end behind `data` are not found.
    """
    count = len(data) - HEAD_NBYTES + 1
    if count <= 0:
        return np.empty(0, np.int64)
    zero = data == 0
    # Lengths are less than 2**31, so the upper half is zero.
    places: IntArray = np.flatnonzero(
        zero[4 : count + 4] & zero[5 : count + 5] & zero[6 : count + 6] & zero[7 : count + 7]
    )
    found = []
    for low in range(0, len(places), _PLACES_AT_A_TIME):
        some = places[low : low + _PLACES_AT_A_TIME]
        heads = data[some[:, None] + np.arange(HEAD_NBYTES)]
        length = np.ascontiguousarray(heads[:, :8]).view("<u8")[:, 0]
        crc = np.ascontiguousarray(heads[:, 8:]).view("<u4")[:, 0]
        found.append(some[(length <= most) & (length_crcs(length) == crc)])
    return np.concatenate(found) if found else places


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
