"""Text of an .idx file: parse it, strictly or except for lines that cannot be read, and write it.

The rule (docs/format.md, "The .idx file"): one line per record, key, TAB, byte offset. Strategy: the text of nearly
every index is digits, TAB, digits, newline, a million times over. That form is parsed in blocks that fit the
processor's cache: find all bytes that are not digits, check that they are TAB and newline alternately, then gather
the eight bytes before each as one 64-bit word and convert them to a number with three multiplications. The check is
complete, so text of any other form (text keys, signs, further fields, damage) is passed to the line parser, which
names the wrong line. Damage is rare and local: of a damaged text, only the blocks that are not purely digits are
parsed line by line. One text key makes all keys text, so then every line is. Pure: no input or output.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from recordio.errors import CorruptIndexError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

NO_OFFSET: Final = -1
"""Offset of a line that has none: a damaged line, or 2**64 - 1, which old builds wrote when they lost the position."""

MAX_INDEX_BYTES: Final = 1 << 32
"""Largest .idx that is read, in bytes: about 200 million lines. A larger file is not an index, or is malicious."""

_REBUILD: Final = "rebuild the index with `python -m recordio index`"
_MARKER: Final = str(2**64 - 1).encode()
_INTEGER: Final = re.compile(rb"[+-]?[0-9]+")
_BREAKS: Final = re.compile("[\t\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
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
        keys: int64 array, or list of str if any key is not a 64-bit integer, or a range that represents the keys 0,
            1, 2, ... without using memory.
        offsets: int64 array of byte offsets, or `NO_OFFSET`.
    """

    keys: NDArray[np.int64] | list[str] | range
    offsets: NDArray[np.int64]

    @classmethod
    def counted(cls, offsets: NDArray[np.int64]) -> IndexLines:
        """Return lines with the keys 0, 1, 2, ..."""
        return cls(range(len(offsets)), offsets)


def format_line(key: int | str, offset: int) -> str:
    """Return one line of an .idx file, newline included.

    Raises:
        CorruptIndexError: A text key that contains a TAB or line break, or is blank, could not be read back.
    """
    if isinstance(key, str) and (not key.strip() or key != key.strip() or _BREAKS.search(key)):
        raise CorruptIndexError(
            "a text key must not be blank, contain a TAB or line break, or begin or end with a space",
            key=key,
        )
    return f"{key}\t{offset}\n"


def check_index_size(nbytes: int, *, path: str | None = None) -> None:
    """Refuse an index that is too large, before it is read.

    Args:
        nbytes: Bytes of its text, or those read so far.
        path: File named in the error.

    Raises:
        CorruptIndexError: The index has more than `MAX_INDEX_BYTES`.
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
        text: The whole file, UTF-8. Line ends may be LF or CRLF, the last one may be missing. Fields after the
            second are ignored, as MXNet ignores them.
        path: File named in errors.

    Raises:
        CorruptIndexError: A line is blank, has no TAB, or its offset is not an integer; or the text is too long.
    """
    check_index_size(len(text), path=path)
    text = _with_newlines(text)
    return _parse_digits(text) or _parse_lines(text, path)


def parse_damaged_text(
    text: bytes, *, path: str | None = None
) -> tuple[IndexLines, dict[int, CorruptIndexError]]:
    """Parse the text of an .idx file in which some lines cannot be read.

    Args:
        text: The whole file, UTF-8.
        path: File named in errors.

    Returns:
        All lines, and the errors of those that cannot be read, by line, counted from 0. Such a line has the offset
        `NO_OFFSET`, and the key -1, or "" if keys are text.

    Raises:
        CorruptIndexError: More than half of the lines cannot be read, so that this is not an index; or the text is
            too long.
    """
    check_index_size(len(text), path=path)
    text = _with_newlines(text)
    faults: dict[int, CorruptIndexError] = {}
    lines = _parse_numbered(text, path, faults)
    if lines is None:
        faults.clear()
        lines = _parse_lines(text, path, faults=faults)
    if 2 * len(faults) > len(lines.offsets):
        raise next(iter(faults.values()))
    return lines, faults


def _parse_numbered(text: bytes, path: str | None, faults: dict[int, CorruptIndexError]) -> IndexLines | None:
    """Parse a damaged text block by block; return None if a key is not a number."""
    parts: list[IndexLines] = []
    count = 0
    for block in _blocks(text):
        part = _parse_digits(block) or _parse_lines(block, path, before=count, faults=faults)
        if isinstance(part.keys, list):
            return None
        parts.append(part)
        count += len(part.offsets)
    if not parts:
        return None
    return IndexLines(
        np.concatenate([part.keys for part in parts]), np.concatenate([part.offsets for part in parts])
    )


def _blocks(text: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(text):
        end = text.find(b"\n", at + _BLOCK_BYTES) + 1 or len(text)
        yield text[at:end]
        at = end


def _with_newlines(text: bytes) -> bytes:
    return text.replace(b"\r\n", b"\n") if b"\r" in text else text


def _parse_digits(text: bytes) -> IndexLines | None:
    whole = memoryview(text)
    reached = 0

    def fill(buffer: memoryview) -> int:
        nonlocal reached
        piece = whole[reached : reached + len(buffer)]
        buffer[: len(piece)] = piece
        reached += len(piece)
        return len(piece)

    return parse_index_digits(fill, len(text))


def parse_index_digits(fill: Callable[[memoryview], int | None], size: int) -> IndexLines | None:
    """Parse text that is purely `digits TAB digits NEWLINE`, block by block.

    The memory of one block is reused for all: accessing fresh memory for the whole text would cost a third of the
    time.

    Args:
        fill: Writes the next bytes of the text into a buffer and returns their number, 0 at the end; for example the
            `readinto` of an unbuffered file.
        size: Bytes in the text.

    Returns:
        None if anything in the text has another form; the text must then be parsed line by line.
    """
    # No line is shorter than four bytes. Memory that is never accessed is never really allocated.
    most = size // 4 + 1
    keys = np.empty(most, dtype=np.int64)
    offsets = np.empty(most, dtype=np.int64)
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
    """Write a newline behind the last line, which may lack it."""
    view[at] = _NEWLINE
    return True


def _parse_block(
    block: NDArray[np.uint8], keys: NDArray[np.int64], offsets: NDArray[np.int64], done: int
) -> int:
    """Parse whole lines into `keys` and `offsets` from entry `done` on; return their number, -1 for another form."""
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
    """Return the numbers whose last digit is just before each stop."""
    most = int(digits.max())
    value = _eight_digits(words, stops, digits, 0)
    for nth in range(1, (most + 7) // 8):
        value += _eight_digits(words, stops, digits, nth) * np.uint64(10 ** (8 * nth))
    return value.view(np.int64)


def _eight_digits(
    words: NDArray[np.uint64], stops: NDArray[np.int64], digits: NDArray[np.int64], nth: int
) -> NDArray[np.uint64]:
    """Return the value of the nth group of eight digits, counted from the end of each field.

    Little endian puts the first character in the lowest byte; the mask turns digits into their values and the
    characters before the field into zeros.
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


def _parse_lines(
    text: bytes,
    path: str | None,
    *,
    before: int = 0,
    faults: dict[int, CorruptIndexError] | None = None,
) -> IndexLines:
    """Parse text line by line.

    Args:
        text: Whole lines that end with LF.
        path: File named in errors.
        before: Lines of the file before these.
        faults: Receives the errors of lines that cannot be read, by line, counted from 0; None: they are raised.
    """
    keys: list[bytes] = []
    offsets: list[int] = []
    for number, line in enumerate(_split_lines(text), start=before):
        try:
            key, offset = _parse_line(line, path, number + 1)
            if faults is not None:
                _key_text(key, path, number + 1)
        except CorruptIndexError as error:
            if faults is None:
                raise
            faults[number] = error
            key, offset = b"", NO_OFFSET
        keys.append(key)
        offsets.append(offset)
    skipped = faults or {}
    numbers: list[int] = []
    for number, key in enumerate(keys, start=before):
        value = -1 if number in skipped else integer_key(key)
        if value is None:
            break
        numbers.append(value)
    else:
        return IndexLines(np.array(numbers, dtype=np.int64), np.array(offsets, dtype=np.int64))
    texts = [_key_text(key, path, number) for number, key in enumerate(keys, start=before + 1)]
    return IndexLines(texts, np.array(offsets, dtype=np.int64))


def _parse_line(line: bytes, path: str | None, number: int) -> tuple[bytes, int]:
    """Return key and offset of a line; its number in errors is counted from 1."""
    fields = line.strip().split(b"\t")
    if len(fields) < 2:
        raise _malformed(line, path, number)
    offset = _integer(fields[1])
    if offset is None:
        raise CorruptIndexError(
            f"the offset is not an integer; {_REBUILD}",
            path=path,
            line=number,
            key=_shown_key(fields[0]),
            found=fields[1][:80],
        )
    if fields[1].strip() == _MARKER:
        offset = NO_OFFSET
    if offset not in _INT64:
        raise CorruptIndexError(
            f"the offset is larger than any file; {_REBUILD}",
            path=path,
            line=number,
            key=_shown_key(fields[0]),
            offset=offset,
        )
    return fields[0].strip(), offset


def _shown_key(field: bytes) -> str:
    return field[:80].decode("utf-8", "replace")


def _split_lines(text: bytes) -> list[bytes]:
    return text.removesuffix(b"\n").split(b"\n") if text else []


def key_fields(text: bytes) -> list[str]:
    """Return the keys of a valid index as they are written, in line order.

    Args:
        text: Text that `parse_index_text` accepted.
    """
    return [line.strip().split(b"\t", 1)[0].strip().decode() for line in _split_lines(_with_newlines(text))]


def _malformed(line: bytes, path: str | None, number: int) -> CorruptIndexError:
    if not line.strip():
        what = "the line is blank; delete it"
    elif len(line.split()) > 1:
        what = "there is no TAB between key and offset; replace the spaces by one TAB"
    else:
        what = "the line has no offset (one line is: key, TAB, byte offset)"
    return CorruptIndexError(f"{what}, or {_REBUILD}", path=path, line=number, found=line[:80])


def _integer(field: bytes) -> int | None:
    field = field.strip()
    # Bounded, because the time to convert a long digit string grows with its square.
    return int(field) if len(field) <= 40 and _INTEGER.fullmatch(field) else None


def integer_key(field: bytes) -> int | None:
    """Return a key as a number; None if it is text, or does not fit in 64 signed bits."""
    number = _integer(field)
    # None in a range would be searched for, number by number.
    return number if number is not None and number in _INT64 else None


def _key_text(key: bytes, path: str | None, line: int) -> str:
    """Return the key of a line, counted from 1, as text."""
    try:
        return key.decode("utf-8")
    except UnicodeDecodeError:
        raise CorruptIndexError(
            f"the key is not UTF-8 text; {_REBUILD}",
            path=path,
            line=line,
            found=key[:80],
        ) from None
