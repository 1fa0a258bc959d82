"""The text of an .idx file: parse it, and write it.

The rule (docs/format.md, "The .idx file"): one line per record, key, TAB, byte offset. Strategy:
the text of nearly every index is digits, TAB, digits, newline, a million times over. That form is
parsed in blocks that fit the processor's cache: find all bytes that are no digits, check that they
are TAB and newline in turn, then gather the eight bytes before each as one 64-bit word and turn
them into a number with three multiplications. The check is complete, so whatever does not have this
form (text keys, signs, further fields, damage) goes to the line parser, which names the line that
is wrong.
Pure: no input or output.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from recordio.errors import CorruptIndexError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

__all__ = (
    "MAX_INDEX_BYTES",
    "NO_OFFSET",
    "IndexLines",
    "check_index_size",
    "format_line",
    "integer_key",
    "key_column",
    "key_fields",
    "key_text",
    "parse_index_digits",
    "parse_index_text",
    "parse_line",
    "text_lines",
)

NO_OFFSET: Final = -1
"""How the offset 2**64 - 1 is held: old builds wrote it when they failed to tell the position."""

MAX_INDEX_BYTES: Final = 1 << 32
"""Largest .idx that is read, in bytes: some 200 million lines. What is larger is no index, or not meant well."""

_MARKER: Final = str(2**64 - 1).encode()
_INTEGER: Final = re.compile(rb"[+-]?[0-9]+")
_BLOCK_BYTES: Final = 512 * 1024
_MARGIN: Final = 24
_TAB: Final = 9
_NEWLINE: Final = 10
_MAX_DIGITS: Final = 18
_INT64 = range(-(2**63), 2**63)
# Entry [w, d]: the mask for the w-th word (0: the last eight characters) of a field of d digits.
_KEEP: Final = np.array(
    [
        [0x0F0F0F0F0F0F0F0F >> (k := 64 - 8 * min(max(d - 8 * w, 0), 8)) << k for d in range(25)]
        for w in range(3)
    ],
    dtype=np.uint64,
)


@dataclass(frozen=True, slots=True)
class IndexLines:
    """Keys and offsets of an .idx file in line order.

    Attributes:
        keys: int64 array, or list of str if any key is not a 64-bit integer, or a range that stands
            for the keys 0, 1, 2, ... without taking memory.
        offsets: int64 array of byte offsets; `NO_OFFSET` for the marker of old builds.
    """

    keys: NDArray[np.int64] | list[str] | range
    offsets: NDArray[np.int64]


def format_line(key: int | str, offset: int) -> str:
    """One line of an .idx file, newline included.

    Raises:
        CorruptIndexError: a text key that holds a TAB or line break, or is blank, would not read
            back.
    """
    if isinstance(key, str) and (not key.strip() or key != key.strip() or _BREAKS.search(key)):
        raise CorruptIndexError(
            "a text key must not be blank, hold a TAB or line break, or begin or end with a space",
            key=key,
        )
    return f"{key}\t{offset}\n"


_BREAKS: Final = re.compile("[\t\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")


def check_index_size(nbytes: int, *, path: str | None = None) -> None:
    """Refuse an index that is too large, before it is read.

    Args:
        nbytes: bytes of its text that there are, or were read so far.
        path: File named in the error.

    Raises:
        CorruptIndexError: it has more than `MAX_INDEX_BYTES`.
    """
    if nbytes > MAX_INDEX_BYTES:
        raise CorruptIndexError(
            f"the index has {nbytes} bytes or more, and no more than {MAX_INDEX_BYTES} are read; rebuild it with "
            "`python -m recordio index`, or store the records in several files",
            path=path,
        )


def parse_index_text(text: bytes, *, path: str | None = None) -> IndexLines:
    """Parse the text of an .idx file.

    Args:
        text: The whole file, UTF-8. Line ends may be LF or CRLF, the last one may be missing.
            Fields after the second are ignored, as MXNet ignores them.
        path: File named in errors.

    Raises:
        CorruptIndexError: a line is blank, has no TAB, or its offset is not an integer; or the text is too long.
    """
    check_index_size(len(text), path=path)
    if b"\r" in text:
        text = text.replace(b"\r\n", b"\n")
    whole = memoryview(text)
    reached = 0

    def fill(buffer: memoryview) -> int:
        nonlocal reached
        piece = whole[reached : reached + len(buffer)]
        buffer[: len(piece)] = piece
        reached += len(piece)
        return len(piece)

    lines = parse_index_digits(fill, len(text))
    return _parse_lines(text, path) if lines is None else lines


def parse_index_digits(fill: Callable[[memoryview], int | None], size: int) -> IndexLines | None:
    """Parse text that is purely `digits TAB digits NEWLINE`, block by block.

    One block's memory is used again and again: touching fresh memory for the whole text would cost a
    third of the time.

    Args:
        fill: Puts the next bytes of the text into a buffer and returns how many, 0 at the end; for
            example the `readinto` of an unbuffered file.
        size: Bytes in the text.

    Returns:
        None if anything in the text has another form; the text must then be parsed line by line.
    """
    # No line is shorter than four bytes. Memory that is never touched is never really taken.
    room = size // 4 + 1
    keys = np.empty(room, dtype=np.int64)
    offsets = np.empty(room, dtype=np.int64)
    # The margin in front lets the word that ends at the first field begin before the text.
    buffer = bytearray(_MARGIN + _BLOCK_BYTES)
    block = np.frombuffer(buffer, dtype=np.uint8)
    view = memoryview(buffer)
    done, held = 0, _MARGIN
    while got := fill(view[held:]) or int(held > _MARGIN and _end_line(view, held)):
        held += got
        end = buffer.rfind(b"\n", _MARGIN, held) + 1
        if end == 0:
            if held == len(buffer):
                return None  # a line longer than a block
            continue
        lines = _parse_block(block[:end], keys, offsets, done)
        if lines < 0:
            return None
        done += lines
        view[_MARGIN : _MARGIN + held - end] = view[end:held]
        held += _MARGIN - end
    keys.resize(done, refcheck=False)
    offsets.resize(done, refcheck=False)
    return IndexLines(keys, offsets)


def _end_line(view: memoryview, at: int) -> bool:
    """The last line may lack its newline: put one there."""
    view[at] = _NEWLINE
    return True


def _parse_block(
    block: NDArray[np.uint8], keys: NDArray[np.int64], offsets: NDArray[np.int64], done: int
) -> int:
    text = block[_MARGIN:]
    stops = np.flatnonzero((text - np.uint8(48)) > 9)
    if stops.size & 1:
        return -1
    kinds = text[stops]
    tabs, newlines = stops[0::2], stops[1::2]
    if not ((kinds[0::2] == _TAB).all() and (kinds[1::2] == _NEWLINE).all()):
        return -1
    lines = tabs.size
    if done + lines > keys.size:
        return -1
    key_digits = tabs.copy()
    key_digits[1:] -= newlines[:-1] + 1
    offset_digits = newlines - tabs - 1
    if (
        min(key_digits.min(), offset_digits.min()) < 1
        or max(key_digits.max(), offset_digits.max()) > _MAX_DIGITS
    ):
        return -1
    words = np.ndarray(block.size - 7, dtype="<u8", buffer=block, strides=(1,))
    keys[done : done + lines] = _numbers(words, tabs, key_digits)
    offsets[done : done + lines] = _numbers(words, newlines, offset_digits)
    return lines


def _numbers(
    words: NDArray[np.uint64], stops: NDArray[np.int64], digits: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The numbers whose last digit stands just before each stop."""
    most = int(digits.max())
    value = _eight_digits(words, stops, digits, 0)
    for nth in range(1, (most + 7) // 8):
        value += _eight_digits(words, stops, digits, nth) * np.uint64(10 ** (8 * nth))
    return value.view(np.int64)


def _eight_digits(
    words: NDArray[np.uint64], stops: NDArray[np.int64], digits: NDArray[np.int64], nth: int
) -> NDArray[np.uint64]:
    """Value of the nth group of eight digits, counted from the end of each field.

    Little endian puts the first character in the lowest byte; the mask turns digits into their
    values and the characters before the field into zeros.
    """
    # Not take(): it would first copy this overlapping, unaligned view as a whole.
    word = words[_MARGIN - 8 - 8 * nth :][stops]
    word &= _KEEP[nth].take(digits)
    word *= np.uint64(10 * 2**8 + 1)
    word >>= np.uint64(8)
    word &= np.uint64(0x00FF00FF00FF00FF)
    word *= np.uint64(100 * 2**16 + 1)
    word >>= np.uint64(16)
    word &= np.uint64(0x0000FFFF0000FFFF)
    word *= np.uint64(10000 * 2**32 + 1)
    word >>= np.uint64(32)
    return word


def _parse_lines(text: bytes, path: str | None) -> IndexLines:
    keys: list[bytes] = []
    offsets: list[int] = []
    for number, line in enumerate(text_lines(text), start=1):
        key, offset = parse_line(line, path, number)
        keys.append(key)
        offsets.append(offset)
    return IndexLines(key_column(keys, path), np.array(offsets, dtype=np.int64))


def parse_line(line: bytes, path: str | None, number: int) -> tuple[bytes, int]:
    """Key and offset of a line.

    Args:
        line: The line.
        path: File named in errors.
        number: Number of the line, counted from 1.

    Raises:
        CorruptIndexError: it is malformed.
    """
    fields = line.strip().split(b"\t")
    if len(fields) < 2:
        raise _malformed(line, path, number)
    offset = _integer(fields[1])
    if offset is None:
        raise CorruptIndexError(
            "the offset is not an integer; rebuild the index with `python -m recordio index`",
            path=path,
            line=number,
            key=_shown_key(fields[0]),
            found=fields[1][:80],
        )
    if fields[1].strip() == _MARKER:
        offset = NO_OFFSET
    if offset not in _INT64:
        raise CorruptIndexError(
            "the offset is larger than any file; rebuild the index with `python -m recordio index`",
            path=path,
            line=number,
            key=_shown_key(fields[0]),
            offset=offset,
        )
    return fields[0].strip(), offset


def _shown_key(field: bytes) -> str:
    return field[:80].decode("utf-8", "replace")


def text_lines(text: bytes) -> list[bytes]:
    """The lines of an .idx file without their LF."""
    return text.removesuffix(b"\n").split(b"\n") if text else []


def key_fields(text: bytes) -> list[str]:
    """The keys of a sound index as they are written, in line order.

    Args:
        text: what `parse_index_text` has taken.
    """
    lines = text_lines(text.replace(b"\r\n", b"\n") if b"\r" in text else text)
    return [line.strip().split(b"\t", 1)[0].strip().decode() for line in lines]


def _malformed(line: bytes, path: str | None, number: int) -> CorruptIndexError:
    if not line.strip():
        what = "the line is blank; delete it"
    elif len(line.split()) > 1:
        what = "there is no TAB between key and offset; replace the spaces by one TAB"
    else:
        what = "the line holds no offset (one line is: key, TAB, byte offset)"
    return CorruptIndexError(
        f"{what}, or rebuild the index with `python -m recordio index`",
        path=path,
        line=number,
        found=line[:80],
    )


def _integer(field: bytes) -> int | None:
    field = field.strip()
    # Bounded, because the time to convert a long digit string grows with its square.
    return int(field) if len(field) <= 40 and _INTEGER.fullmatch(field) else None


def integer_key(field: bytes) -> int | None:
    """A key as a number; None if it is text, or does not fit in 64 signed bits."""
    number = _integer(field)
    # None in a range would be looked for, number by number.
    return number if number is not None and number in _INT64 else None


def key_column(keys: Iterable[bytes], path: str | None) -> NDArray[np.int64] | list[str]:
    """Keys as numbers, or all of them as text if one is no 64-bit integer.

    Raises:
        CorruptIndexError: text that is not UTF-8.
    """
    numbers: list[int] = []
    for key in keys:
        number = integer_key(key)
        if number is None:
            break
        numbers.append(number)
    else:
        return np.array(numbers, dtype=np.int64)
    return [key_text(key, path, line) for line, key in enumerate(keys, start=1)]


def key_text(key: bytes, path: str | None, line: int) -> str:
    """The key on a line, counted from 1, as text.

    Raises:
        CorruptIndexError: it is not UTF-8.
    """
    try:
        return key.decode("utf-8")
    except UnicodeDecodeError:
        raise CorruptIndexError(
            "the key is not UTF-8 text; rebuild the index with `python -m recordio index`",
            path=path,
            line=line,
            found=key[:80],
        ) from None
