"""Replacement of failed samples, with ``on_error="replace"`` (pure).

Rule: the next valid sample of the same batch replaces a failed one; after the last sample comes the first. The choice
depends on the batch alone, never on time or workers; no sample appears that the sampler did not choose; and no sample
is read or made again.

If all samples of a batch failed, one sample from outside fills the whole batch: the first valid one of a few items
spread evenly over the dataset, counted from the first item of the batch. Corrupt items are often neighbours, so
neighbours are not tried.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

CANDIDATES = 16


def replacement_rows(rows: int, valid: Collection[int]) -> dict[int, int]:
    """Return the row that replaces each failed row of a batch.

    Args:
        rows: number of rows of the batch.
        valid: the rows that did not fail; if there are none, the result is empty.
    """
    found: dict[int, int] = {}
    if not valid or len(valid) == rows:
        return found
    good = set(valid)
    after = min(good)  # the first one follows the last row
    for row in reversed(range(rows)):
        if row in good:
            after = row
        else:
            found[row] = after
    return found


def fallback_indices(index: int, length: int) -> list[int]:
    """Return the items to try, in this order, for a batch without a valid sample.

    Args:
        index: the batch's first item, 0 <= index < length.
        length: items of the dataset.
    """
    tries = min(length - 1, CANDIDATES)
    return [(index + place * length // (tries + 1)) % length for place in range(1, tries + 1)]
