"""Find the records of a file by their heads alone.

Strategy: a pure generator asks for ranges and is sent their bytes, so the blocking and the async
readers drive the same loop. Small parts are walked inside a block read once; a part larger than the
block is jumped over, so its payload is never read. Where the size is not known, a block that comes
back short tells it. Pure: no input or output.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from recordio._framing import (
    FIRST,
    HEAD_SIZE,
    MIDDLE,
    check_head,
    check_non_final_length,
    framed_length,
    truncated_error,
    unpack_head,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from numpy.typing import NDArray

__all__ = ("ScanGenerator", "scan_offsets")

_LARGE_BLOCK: Final = 1 << 20
_SMALL_BLOCK: Final = 4096

ScanGenerator: TypeAlias = "Generator[tuple[int, int], bytes, NDArray[np.int64]]"


def scan_offsets(size: int, *, path: str | None = None) -> ScanGenerator:
    """Walk a file's part heads.

    Args:
        size: Bytes in the file, or `UNKNOWN_SIZE`; then the bytes sent in may be fewer than asked for
            where the file ends.
        path: File named in errors.

    Yields:
        `(offset, length)` of bytes to be sent in.

    Returns:
        int64 array of the byte offset of each record's first part.

    Raises:
        CorruptRecordError: the file is damaged at the offset named.
    """
    offsets: list[int] = []
    position = begin = last = 0
    block = b""
    wanted = _LARGE_BLOCK
    continuing = False
    while position < size:
        at = position - begin
        if not 0 <= at <= len(block) - HEAD_SIZE:
            if size - position < HEAD_SIZE:
                raise truncated_error(path=path, offset=position, needed=HEAD_SIZE, held=size - position)
            # A block that gave only one head was mostly payload: ask for less, up again if it gives
            # many.
            jumped = at > len(block) + wanted
            wanted = _SMALL_BLOCK if jumped else min(wanted * 4, _LARGE_BLOCK)
            read_up_to = begin + len(block)
            begin, at = position, 0
            asked = min(wanted, size - position)
            block = yield position, asked
            if len(block) < asked:
                size = position + len(block)
                if not block and position > read_up_to and not (yield position - 1, 1):
                    raise truncated_error(path=path, offset=last, needed=position - last, held=None)
                continue
        magic, word = unpack_head(block, at)
        flag, length = check_head(magic, word, continuing=continuing, path=path, offset=position)
        framed = framed_length(length)
        if position + framed > size:
            raise truncated_error(path=path, offset=position, needed=framed, held=size - position)
        if flag in (FIRST, MIDDLE):
            check_non_final_length(length, path=path, offset=position)
        if not continuing:
            offsets.append(position)
        continuing = flag in (FIRST, MIDDLE)
        last = position
        position += framed
    if continuing:
        raise truncated_error(path=path, offset=size, needed=HEAD_SIZE, held=0)
    return np.array(offsets, dtype=np.int64)
