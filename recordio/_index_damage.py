"""The text of an .idx file of which some lines cannot be read: which ones, and all the others. Pure.

Strategy: damage is rare and local. The text is parsed in blocks of whole lines; only a block that is not
purely digits is looked at line by line. A text key anywhere makes all keys text, so then every line is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from recordio._index_text import (
    NO_OFFSET,
    IndexLines,
    check_index_size,
    integer_key,
    key_column,
    key_text,
    parse_index_digits,
    parse_line,
    text_lines,
)
from recordio.errors import CorruptIndexError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("parse_damaged_text",)

_BLOCK_BYTES: Final = 1 << 20
_NO_KEY: Final = b"-1"


def parse_damaged_text(
    text: bytes, *, path: str | None = None
) -> tuple[IndexLines, dict[int, CorruptIndexError]]:
    """Parse the text of an .idx file of which some lines cannot be read.

    Args:
        text: The whole file, UTF-8.
        path: File named in errors.

    Returns:
        All lines, and what is wrong with which of them, counted from 0. A line that cannot be read has the offset
        `NO_OFFSET`, and the key -1, or "" where keys are text.

    Raises:
        CorruptIndexError: more than half of the lines cannot be read, so that this is no index; or the text is
            too long.
    """
    check_index_size(len(text), path=path)
    faults: dict[int, CorruptIndexError] = {}
    lines = _numbered(text, path, faults)
    if lines is None:
        faults.clear()
        keys, offsets = _line_by_line(text, path, 0, faults)
        lines = IndexLines(key_column(keys, path), np.array(offsets, dtype=np.int64))
    if 2 * len(faults) > len(lines.offsets):
        raise next(iter(faults.values()))
    return lines, faults


def _numbered(text: bytes, path: str | None, faults: dict[int, CorruptIndexError]) -> IndexLines | None:
    """The lines if all keys are numbers, else None."""
    keys: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
    offsets: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
    count = 0
    for block in _blocks(text):
        part = _digits(block)
        if part is None:
            texts, places = _line_by_line(block, path, count, faults)
            numbers = [
                integer_key(_NO_KEY if count + line in faults else key) for line, key in enumerate(texts)
            ]
            if None in numbers:
                return None
            keys.append(np.array(numbers, dtype=np.int64))
            offsets.append(np.array(places, dtype=np.int64))
        else:
            keys.append(np.asarray(part.keys, dtype=np.int64))
            offsets.append(part.offsets)
        count += len(offsets[-1])
    if not keys:
        return None
    return IndexLines(np.concatenate(keys), np.concatenate(offsets))


def _blocks(text: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(text):
        end = text.find(b"\n", at + _BLOCK_BYTES) + 1 or len(text)
        yield text[at:end]
        at = end


def _digits(block: bytes) -> IndexLines | None:
    reached = 0

    def fill(buffer: memoryview) -> int:
        nonlocal reached
        piece = block[reached : reached + len(buffer)]
        buffer[: len(piece)] = piece
        reached += len(piece)
        return len(piece)

    return parse_index_digits(fill, len(block))


def _line_by_line(
    text: bytes, path: str | None, before: int, faults: dict[int, CorruptIndexError]
) -> tuple[list[bytes], list[int]]:
    """Keys and offsets of lines, `before` of which stand in front of these; adds to `faults`."""
    keys: list[bytes] = []
    offsets: list[int] = []
    for number, line in enumerate(text_lines(text.replace(b"\r\n", b"\n")), start=before):
        try:
            key, offset = parse_line(line, path, number + 1)
            key_text(key, path, number + 1)
        except CorruptIndexError as error:
            faults[number] = error
            key, offset = b"", NO_OFFSET
        keys.append(key)
        offsets.append(offset)
    return keys, offsets
