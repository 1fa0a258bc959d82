"""Text index of a TFRecord file, as DALI's program tfrecord2idx writes it. Pure.

Each line has the offset of a record and its bytes, with head and CRCs, separated by a space. The source is DALI's
documentation, "Data Loading: TFRecord", and the output of the program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from aioloader.formats.tfrecord import FRAME_NBYTES

if TYPE_CHECKING:
    from aioloader.foundation.types import IntArray

_MOST_DIGITS: Final = 18
_LINE_NBYTES: Final = 2 * _MOST_DIGITS + 3


def most_nbytes(nbytes: int) -> int:
    """Return the size of the longest index of a file of `nbytes` bytes."""
    return (nbytes // FRAME_NBYTES + 1) * _LINE_NBYTES


def parse_index(text: bytes, nbytes: int) -> IntArray | None:
    """Return the bytes of each record, with head and CRC, int64 (n,); None if the index does not fit a file.

    Args:
        text: of the index.
        nbytes: of the file: the records of the index have to be consecutive, from its first byte to its last.
    """
    if len(text) > most_nbytes(nbytes):
        return None
    words = text.split()
    if not words or len(words) % 2 or max(map(len, words)) > _MOST_DIGITS:
        return None
    if not all(map(bytes.isdigit, words)):
        return None
    columns = np.array(words).astype(np.int64).reshape(-1, 2)
    offset, length = columns[:, 0], columns[:, 1].copy()
    if offset[0] != 0 or (length < FRAME_NBYTES).any() or (length > nbytes).any():
        return None
    ends = np.cumsum(length)
    if (offset[1:] != ends[:-1]).any() or ends[-1] != nbytes:
        return None
    return length
