"""Sampler for data that are read in blocks of many samples."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aioloader.foundation.validation import require
from aioloader.samplers.basic import SeededSampler, check_count
from aioloader.samplers.epoch_order import epoch_key, permute, permute_rounds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import Array, IntArray

# Uses of an epoch's key: the order at each place, and the order of the rows of each block.
_PLACES, _ROWS = 0, 1


class _Epoch(NamedTuple):
    """Order of the blocks in one epoch, and the places that follow from it.

    Attributes:
        block: int64 (blocks,), numbers of the blocks in the epoch's order.
        first: int64 (blocks,), where the rows of each block begin, in the epoch's order of blocks.
        size: int64 (blocks,), rows of each block in that order.
        ends: int64 (places,), position behind the last sample of each place.
    """

    block: IntArray
    first: IntArray
    size: IntArray
    ends: IntArray


class BlockShuffleSampler(SeededSampler):
    """Every index once, blocks in a random order, and their samples mixed over a window of blocks.

    What is mixed with what: the blocks are put in a random order. The samples of each block are spread, at random and
    evenly, over `window` places of this order: the block's own and those behind it. Each place is shuffled. So each
    stretch as long as a block has samples of `window` blocks, one of them new, and a loader needs few more than
    `window` blocks in memory. A set that is sorted by class, with more than `window` blocks of one class, should be
    written in another order, or be shuffled wholly. With `window` blocks or fewer the shuffle is a full one.

    At the beginning fewer blocks are mixed, so that the first batch needs one of them and not a window: the samples of
    the first block are at its own place, those of the second one at two places, and so on up to `window`. At the end
    the places behind the last block have what is left of those before it.

    The order is computed where it is needed: it is a function of seed, epoch and position. Its beginning does not
    depend on the sizes of blocks that come later in it (`positions_of`).

    Args:
        sizes: rows of each block; the indices of a block are neighbours.
        window: blocks that are mixed, at least 1.
        groups: number of the group of each block, ascending; the blocks of a group stay together and in order, because
            reading them in another order is slow. None: each block is a group.
        indices: int64 (n,), index at each place; None: places are indices.
        firsts: int64 (blocks,), index of the first row of each block, if it is another one than the number of rows of
            the blocks before it; not with `indices`, nor with `window` blocks or fewer, whose order is that of places.
        seed: see `SeededSampler`.

    Attributes:
        index_limit: all indices are less.

    Raises:
        ValueError: a size is negative, `window` is less than 1, or `indices` or `groups` have another length than the
            sizes say.
    """

    def __init__(
        self,
        sizes: Sequence[int] | IntArray,
        window: int,
        *,
        groups: IntArray | None = None,
        indices: IntArray | None = None,
        firsts: IntArray | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(seed)
        self._sizes = np.array(sizes, np.int64)
        require(bool((self._sizes >= 0).all()), "the sizes of blocks must not be negative")
        self._window = check_count("window", window, 1)
        self._first = np.cumsum(self._sizes) - self._sizes
        self.index_limit = self._length = int(self._sizes.sum())
        self._named = firsts is not None and len(self._sizes) > self._window
        if firsts is not None and self._named:
            self._first = firsts
            self.index_limit = int((firsts + self._sizes).max())
        require(groups is None or len(groups) == len(self._sizes), "there must be a group for each block")
        require(indices is None or len(indices) == self._length, "there must be an index for each row")
        starts = (
            np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]])
            if groups is not None and len(groups)
            else None
        )
        self._group_starts = np.arange(len(self._sizes)) if starts is None else starts
        self._indices = indices
        self._epoch_of = lru_cache(maxsize=2)(self._order_blocks)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_epoch_of": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._epoch_of = lru_cache(maxsize=2)(self._order_blocks)

    def description(self) -> tuple[str, int, int, int, str]:
        """Return all that the order depends on, except seed and epoch."""
        digest = hashlib.sha256(self._sizes.astype("<i8").tobytes())
        digest.update(self._group_starts.astype("<i8").tobytes())
        if self._named:
            digest.update(self._first.astype("<i8").tobytes())
        if self._indices is not None:
            digest.update(self._indices.astype("<i8").tobytes())
        return "blocks-2", self._length, len(self._sizes), self._window, digest.hexdigest()[:16]

    def indices(self, seed: int, epoch: int, start: int, stop: int) -> IntArray:
        self._check_stretch(start, stop)
        if len(self._sizes) <= self._window:
            found = permute(seed, epoch, self._length, start, stop)
        elif start == stop:
            return np.empty(0, np.int64)
        else:
            found = self._mixed(seed, epoch, np.arange(start, stop, dtype=np.int64))
        return found if self._indices is None else self._indices[found]

    def block_order(self, seed: int, epoch: int) -> IntArray:
        """Return the numbers of the blocks in the order of an epoch, which does not depend on their sizes."""
        return self._epoch_of(seed, epoch).block

    def positions_of(self, seed: int, epoch: int, known: Array) -> int:
        """Return the number of positions at the beginning of an epoch that depend on blocks of known sizes only.

        Args:
            seed, epoch: of the epoch.
            known: bool (blocks,), whether the size of each block is known; the others have the size 0 here.
        """
        if known.all():
            return self._length
        blocks = self._epoch_of(seed, epoch)
        first = int(np.argmin(known[blocks.block]))
        return int(blocks.ends[first - 1]) if first and len(known) > self._window else 0

    def _order_blocks(self, seed: int, epoch: int) -> _Epoch:
        groups = permute(seed, epoch, len(self._group_starts), 0, len(self._group_starts))
        begins = self._group_starts[groups]
        counts = np.diff(np.r_[self._group_starts, len(self._sizes)])[groups]
        inside = np.arange(len(self._sizes)) - np.repeat(np.cumsum(counts) - counts, counts)
        order = np.repeat(begins, counts) + inside
        size = self._sizes[order]
        places = np.zeros(len(size) + self._window - 1, np.int64)
        spread = self._spread(np.arange(len(size)))
        for part in range(self._window):
            inside = np.flatnonzero(part < spread)
            places[inside + part] += np.diff(
                self._part_ends(size[inside], spread[inside], np.array([[part], [part + 1]])), axis=0
            )[0]
        return _Epoch(order, self._first[order], size, np.cumsum(places))

    def _spread(self, block: IntArray) -> IntArray:
        """Return the number of places over which the samples of blocks are spread, by their places in the order."""
        return np.minimum(block + 1, self._window)

    @staticmethod
    def _part_ends(size: IntArray, spread: IntArray, part: IntArray) -> IntArray:
        """Return where part number `part` of a block's samples begins, in the block's own random order."""
        return size * np.minimum(part, spread) // spread

    def _mixed(self, seed: int, epoch: int, positions: IntArray) -> IntArray:
        blocks = self._epoch_of(seed, epoch)
        number = np.searchsorted(blocks.ends, positions, side="right").astype(np.int64)
        begin = np.where(number > 0, blocks.ends[number - 1], 0)
        place = permute_rounds(
            epoch_key(seed, epoch, _PLACES), number, blocks.ends[number] - begin, positions - begin
        )
        # The parts of a place: part j of the block j places before it. The places that are touched are neighbours, so
        # their parts are found once for each place.
        low = int(number[0])
        touched = np.arange(low, int(number[-1]) + 1)
        parts = np.arange(self._window)
        source = touched[:, None] - parts
        exists = (source >= 0) & (source < len(blocks.size))
        source = np.where(exists, source, 0)
        size = np.where(exists, blocks.size[source], 0)
        spread = self._spread(source)
        part_begin = self._part_ends(size, spread, parts)
        ends = np.cumsum(self._part_ends(size, spread, parts + 1) - part_begin, axis=1)
        row = number - low
        part = (ends[row] <= place[:, None]).sum(axis=1)
        before = np.where(part > 0, ends[row, part - 1], 0)
        block = source[row, part]
        inside = part_begin[row, part] + place - before
        inside = permute_rounds(epoch_key(seed, epoch, _ROWS), block, blocks.size[block], inside)
        result: IntArray = blocks.first[block] + inside
        return result


def join_blocks(parts: Sequence[tuple[IntArray, BlockShuffleSampler | None]]) -> BlockShuffleSampler | None:
    """Return the order of several sets that are mixed in blocks; None if none of them proposes one.

    Args:
        parts: for each set the indices of its samples, in order, and its sampler over them; None for a set whose
            samples may come in any order. It is cut into blocks of random samples, of the mean size of the others.
    """
    known = [sampler for _, sampler in parts if sampler is not None]
    if not known:
        return None
    mean = max(1, round(float(np.mean(np.concatenate([sampler._sizes for sampler in known])))))
    sizes: list[IntArray] = []
    groups: list[IntArray] = []
    indices: list[IntArray] = []
    count = 0
    for where, sampler in parts:
        if sampler is None:
            n = len(where)
            ends = np.arange(1, -(-n // mean) + 1) * n // -(-n // mean)
            sizes.append(np.diff(ends, prepend=0))
            number = np.arange(len(ends))
            indices.append(where[permute(0, 0, n, 0, n)])
        else:
            sizes.append(sampler._sizes)
            number = np.searchsorted(sampler._group_starts, np.arange(len(sampler._sizes)), side="right")
            indices.append(where if sampler._indices is None else where[sampler._indices])
        groups.append(number + count)
        count = int(groups[-1][-1]) + 1
    return BlockShuffleSampler(
        np.concatenate(sizes),
        max(sampler._window for sampler in known),
        groups=np.concatenate(groups),
        indices=np.concatenate(indices),
    )
