"""Headers of tar files. Pure.

A tar is a sequence of members, each a header of 512 bytes and its data, padded with zeros to a multiple of 512; two
blocks of zeros end it. The sources are POSIX.1-2017, utility "pax", sections "ustar Interchange Format" and "pax
Interchange Format", and GNU tar's manual, appendix "Tar Internals", for long names (types L and K), numbers in base 256
and sparse files.

Names are only names: absolute ones and those with ``..`` are kept as they are, because nothing is ever written there.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

BLOCK: Final = 512
"""Bytes of a header; data are padded to a multiple of it."""
MOST_EXTENDED_NBYTES: Final = 1 << 20
"""Limit of the bytes of all extended headers of one member: names and PAX records."""

ZEROS: Final = bytes(BLOCK)
REGULAR: Final = b"0\x007"
"""Types of regular files: that of POSIX, that of old tars, and contiguous files."""
PAX: Final = b"xX"
GLOBAL: Final = ord("g")
LONG_NAME: Final = ord("L")
LONG_LINK: Final = ord("K")
SPARSE: Final = ord("S")
HARD_LINK: Final = ord("1")
SYMBOLIC_LINK: Final = ord("2")
DEVICES: Final = b"346"
"""Types of character devices, block devices and pipes."""
DIRECTORY: Final = ord("5")
WITHOUT_DATA: Final = b"123456"
"""Types of links, devices, directories and pipes, which have no data, regardless of the size in their header."""

_MAGIC: Final = slice(257, 263)
_POSIX: Final = b"ustar\0"
_CHECKSUM: Final = slice(148, 156)
_SIZE: Final = slice(124, 136)
_TYPE: Final = 156
_LINK: Final = slice(157, 257)
_PREFIX: Final = slice(345, 500)
_SPARSE_CONTINUES: Final = 482
_SPARSE_BLOCK_CONTINUES: Final = 504
_MOST_DIGITS: Final = 19
_SPACES: Final = 8 * ord(" ")


class HeaderFault(ValueError):
    """Error raised for a block that is not the header of a member; its text is the reason.

    Attributes:
        expected, found: what should be there, and what is; None where the fault is of another kind.
    """

    def __init__(self, reason: str, *, expected: str | None = None, found: str | None = None) -> None:
        super().__init__(reason)
        self.expected = expected
        self.found = found


class TarHeader(NamedTuple):
    """Header of a member, as far as it is used.

    Attributes:
        name: of the member, as stored; without those of extended headers.
        size: bytes of its data.
        kind: its type, one byte.
    """

    name: bytes
    size: int
    kind: int


class PaxRecords(NamedTuple):
    """Records of a PAX header, as far as they are used.

    Attributes:
        path: name of the member, or None.
        size: bytes of its data, or None.
        sparse: it is a sparse file in one of GNU tar's PAX formats.
        link: name that a link refers to, or None.
    """

    path: bytes | None = None
    size: int | None = None
    sparse: bool = False
    link: bytes | None = None


def padded(nbytes: int) -> int:
    """Return a number of bytes, rounded up to whole blocks."""
    return -(-nbytes // BLOCK) * BLOCK


def parse_header(block: bytes) -> TarHeader:
    """Parse the header of a member.

    Args:
        block: 512 bytes, not only zeros.

    Raises:
        HeaderFault: it is not a header: its checksum or a number is wrong.
    """
    stored = parse_number(block[_CHECKSUM])
    computed = sum(block) - sum(block[_CHECKSUM]) + _SPACES
    # Some old programs added signed bytes.
    if stored is None or (stored != computed and stored != computed - 256 * _high_bytes(block)):
        raise HeaderFault(
            "the checksum of the header is wrong",
            expected=f"{computed:06o}",
            found=repr(block[_CHECKSUM].rstrip(b" \0").decode("latin-1")),
        )
    size = parse_number(block[_SIZE])
    if size is None:
        raise HeaderFault(
            "the size in the header is not a number",
            expected="octal digits",
            found=repr(block[_SIZE].decode("latin-1")),
        )
    kind = block[_TYPE]
    name = _text(block[:100])
    if block[_MAGIC] == _POSIX:
        prefix = _text(block[_PREFIX])
        if prefix:
            name = prefix + b"/" + name
    if not kind and name.endswith(b"/"):  # a directory of an old tar
        kind = ord("5")
    return TarHeader(name, size, kind)


def link_name(block: bytes) -> bytes:
    """Return the name that the header of a link refers to; without those of extended headers."""
    return _text(block[_LINK])


def as_file(block: bytes, size: int) -> bytes:
    """Return the header of a hard link as that of a regular file with the same name.

    Args:
        block: the header.
        size: bytes of the data of the file.
    """
    made = bytearray(block)
    made[_TYPE] = REGULAR[-1]
    made[_SIZE] = b"%011o\0" % size if size < 1 << 33 else (1 << 95 | size).to_bytes(12, "big")
    made[_CHECKSUM] = b" " * 8
    made[_CHECKSUM] = b"%06o\0 " % sum(made)
    return bytes(made)


def _high_bytes(block: bytes) -> int:
    """Return the number of bytes above 127, the checksum excluded."""
    return sum(byte > 127 for byte in block) - sum(byte > 127 for byte in block[_CHECKSUM])


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def parse_number(field: bytes) -> int | None:
    """Parse a number: octal digits between spaces, up to a zero byte or the end, or base 256 behind a set highest bit.

    Returns:
        None for a field that is not a number, or a negative one.
    """
    if field[0] & 0x80:
        return None if field[0] & 0x40 else int.from_bytes(bytes((field[0] & 0x7F,)) + field[1:], "big")
    digits = _text(field).strip(b" ")
    if not digits:
        return 0
    try:
        return int(digits, 8) if digits.isdigit() else None
    except ValueError:  # an 8 or a 9
        return None


def parse_pax(data: bytes) -> PaxRecords:
    """Parse the records of a PAX header, ``LENGTH KEY=VALUE`` and a newline each.

    Args:
        data: of the header, up to `MOST_EXTENDED_NBYTES`.

    Raises:
        HeaderFault: a record is malformed.
    """
    path: bytes | None = None
    sparse_name: bytes | None = None
    link: bytes | None = None
    size: int | None = None
    sparse = False
    at, end = 0, len(data.rstrip(b"\0"))  # some writers pad with zeros
    while at < end:
        space = data.find(b" ", at, at + _MOST_DIGITS + 1)
        digits = data[at:space] if space > at else b""
        stop = at + int(digits) if digits.isdigit() else 0
        if not space + 1 < stop <= len(data) or data[stop - 1] != ord("\n"):
            raise HeaderFault("a record of a PAX header is malformed", found=f"{data[at : at + 20]!r}")
        key, equals, value = data[space + 1 : stop - 1].partition(b"=")
        if not equals:
            raise HeaderFault("a record of a PAX header has no value", found=f"{key[:20]!r}")
        if key == b"path":
            path = value or None
        elif key == b"linkpath":
            link = value or None
        elif key == b"size" and value:
            if not value.isdigit() or len(value) > _MOST_DIGITS:
                raise HeaderFault("the size in a PAX header is not a number", found=f"{value[:20]!r}")
            size = int(value)
        elif key.startswith(b"GNU.sparse."):
            sparse = True
            if key == b"GNU.sparse.name":
                sparse_name = value
        at = stop
    return PaxRecords(sparse_name or path, size, sparse, link)


def sparse_continues(block: bytes, *, first: bool) -> bool:
    """Return whether a block with the map of a sparse file follows this one.

    Args:
        block: the header of type S, or a block of the map.
        first: it is the header.
    """
    return block[_SPARSE_CONTINUES if first else _SPARSE_BLOCK_CONTINUES] != 0


def compression_of(head: bytes) -> tuple[str, str] | None:
    """Return the program of a compressed file, and the command that decompresses it; None for other files.

    The sources are RFC 1952 (gzip), RFC 8878 (Zstandard), and the specifications of xz, bzip2 and LZ4 frames.

    Args:
        head: the first bytes of the file.
    """
    for magic, program, command in _COMPRESSIONS:
        if head.startswith(magic):
            return program, command
    return None


_COMPRESSIONS: Final = (
    (b"\x1f\x8b", "gzip", "gunzip"),
    (b"\x28\xb5\x2f\xfd", "Zstandard", "zstd -d"),
    (b"\xfd7zXZ\0", "xz", "unxz"),
    (b"BZh", "bzip2", "bunzip2"),
    (b"\x04\x22\x4d\x18", "LZ4", "lz4 -d"),
)


# -- many headers ------------------------------------------------------------------------------------------------------

_WEIGHTS: Final = 8 ** np.arange(5, -1, -1)


def plain_names(blocks: bytes) -> list[bytes | None]:
    """Return the names in the headers that are valid without doubt; many at a time.

    These are headers of regular files with the right checksum in its usual form, a size of eleven octal digits, and a
    name in one field.

    Args:
        blocks: n headers, one behind the other.

    Returns:
        for each header its name; None for one that `parse_header` has to decide on.
    """
    heads = np.frombuffer(blocks, np.uint8).reshape(-1, BLOCK)
    checksum, size = heads[:, 148:154], heads[:, 124:135]
    plain = (
        ((checksum >= 48) & (checksum <= 55)).all(1)
        & (heads[:, 154] == 0)
        & ((size >= 48) & (size <= 55)).all(1)
        & ((heads[:, 135] == 0) | (heads[:, 135] == 32))
        & (heads[:, _TYPE] == REGULAR[0])
        & (heads[:, 0] != 0)
        & (heads[:, 345] == 0)
    )
    stored = (checksum.astype(np.int64) - 48) @ _WEIGHTS
    computed = heads.sum(1, dtype=np.int64) - heads[:, _CHECKSUM].sum(1, dtype=np.int64) + _SPACES
    plain &= stored == computed
    names: list[bytes] = np.ascontiguousarray(heads[:, :100]).view("S100")[:, 0].tolist()
    return [
        (name if b"\0" not in name else _text(name)) if fits else None
        for name, fits in zip(names, plain.tolist(), strict=True)
    ]


def find_header(data: bytes) -> int | None:
    """Find the first header in some blocks of a tar.

    Only headers with the mark of POSIX or GNU tar are found, not those of old tars.

    Args:
        data: from a multiple of 512 bytes on.

    Returns:
        where it begins in `data`; None if there is none that lies completely in them.
    """
    count = len(data) // BLOCK
    blocks = np.frombuffer(data, np.uint8, count * BLOCK).reshape(-1, BLOCK)
    marked = (blocks[:, 257:262] == np.frombuffer(_POSIX[:5], np.uint8)).all(1)
    for place in np.flatnonzero(marked).tolist():
        try:
            parse_header(data[place * BLOCK : (place + 1) * BLOCK])
        except HeaderFault:
            continue
        return int(place) * BLOCK
    return None
