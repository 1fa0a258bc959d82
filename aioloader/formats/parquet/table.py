"""Blocks of Parquet files: each row group is one, and each slice of a large one. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from aioloader.errors import ParquetError
from aioloader.formats.parquet.footer import DECODED
from aioloader.storage.urls import redact_url

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.formats.parquet.footer import ParquetFooter
    from aioloader.foundation.types import Array, IntArray

LARGEST_GROUP_NBYTES: Final = 512 << 20
"""Largest row group, by the decompressed bytes of the columns asked for, that is read at once."""
SLICE_NBYTES: Final = 128 << 20
"""Usual size of the slices of larger ones."""
_MOST_SLICES: Final = 4096
# Memory for the numbers of each value: where it begins, and its length.
_NUMBERS_NBYTES: Final = 16


@dataclass(frozen=True, eq=False, kw_only=True)
class BlockTable:
    """Blocks of some files, in order; row groups without rows have none.

    Attributes:
        file: int64 (blocks,), number of the file of each block.
        group: int64 (blocks,), number of its row group in that file.
        first: int64 (blocks,), its first row, counted in the row group.
        first_of_file: int64 (blocks,), its first row, counted in the file.
        rows: int64 (blocks,), its number of rows.
        nbytes: int64 (blocks,), bytes that it takes in memory, according to the footer.
        starts: int64 (blocks + 1,), rows of all blocks before each one.
        sliced: bool (blocks,), whether it is a slice of a row group.
    """

    file: IntArray
    group: IntArray
    first: IntArray
    first_of_file: IntArray
    rows: IntArray
    nbytes: IntArray
    starts: IntArray
    sliced: Array

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def row_count(self) -> int:
        """Return the number of rows of all blocks."""
        return int(self.starts[-1])

    def blocks_of(self, indices: IntArray) -> IntArray:
        """Return the number of the block that has each row, int64 (n,)."""
        found: IntArray = np.searchsorted(self.starts, indices, side="right").astype(np.int64) - 1
        return found

    def group_numbers(self) -> IntArray:
        """Return a number for each block that it shares with the other slices of its row group, ascending."""
        new = np.r_[True, (self.file[1:] != self.file[:-1]) | (self.group[1:] != self.group[:-1])]
        found: IntArray = np.cumsum(new[: len(self)]) - 1
        return found


def lay_out_blocks(footers: Sequence[ParquetFooter], names: Sequence[str]) -> BlockTable:
    """Return the blocks of some files.

    Args:
        footers: of the files.
        names: the columns that are read, which determine how large a row group is.

    Raises:
        ParquetError: the footer announces a row group that cannot be read: larger than 512 GiB, or with more bytes
            than fit into 64 bits.
    """
    columns: list[list[IntArray]] = [[] for _ in range(7)]
    for number, footer in enumerate(footers):
        groups = np.flatnonzero(footer.rows)
        rows = footer.rows[groups]
        leaves = footer.leaves_of(names)
        sizes = footer.chunks[groups][:, leaves].astype(np.float64).sum(axis=1)
        nbytes = np.maximum(sizes[:, DECODED], 0) + rows * float(_NUMBERS_NBYTES * max(1, len(names)))
        large = nbytes > LARGEST_GROUP_NBYTES
        slices = np.where(large, np.ceil(nbytes / SLICE_NBYTES), 1.0)
        slices = np.minimum(slices, rows)
        if (slices > _MOST_SLICES).any():
            group = int(groups[np.flatnonzero(slices > _MOST_SLICES)[0]])
            raise ParquetError(
                f"the footer announces a row group of {int(nbytes.max())} bytes: the file is damaged, or has to be "
                "written again with smaller row groups",
                path=redact_url(footer.path),
                row_group=group,
            )
        before = np.cumsum(footer.rows) - footer.rows
        counts = slices.astype(np.int64)
        of = np.repeat(np.arange(len(groups)), counts)
        place = np.arange(len(of)) - np.repeat(np.cumsum(counts) - counts, counts)
        first = rows[of] * place // counts[of]
        stop = rows[of] * (place + 1) // counts[of]
        columns[0].append(np.full(len(of), number, np.int64))
        columns[1].append(groups[of])
        columns[2].append(first)
        columns[3].append(before[groups][of] + first)
        columns[4].append(stop - first)
        columns[5].append((nbytes[of] * ((stop - first) / rows[of])).astype(np.int64))
        columns[6].append(large[of])
    joined = [np.concatenate(parts) if parts else np.empty(0, np.int64) for parts in columns]
    return BlockTable(
        file=joined[0],
        group=joined[1],
        first=joined[2],
        first_of_file=joined[3],
        rows=joined[4],
        nbytes=joined[5],
        starts=np.concatenate(([0], np.cumsum(joined[4]))).astype(np.int64),
        sliced=joined[6].astype(bool),
    )
