"""CRC-32C of payloads, by the library google-crc32c."""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aioloader.errors import MissingPackageError, SampleFormatError

if TYPE_CHECKING:
    from collections.abc import Callable

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
