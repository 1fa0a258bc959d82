"""Who takes the place of samples that failed, with ``on_error="replace"``. Pure.

Rule: the next sound sample of the same batch, round its end. So it depends on the batch alone, never on time or
workers; nothing comes in that the sampler did not choose; and nothing has to be read or made again.

A batch without a sound sample takes one from elsewhere, which fills all of it: the first sound one of a few items that
lie evenly over the dataset, counted from the first item of the batch. Damage lies close together, so neighbours would
not do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ("CANDIDATES", "fallback_indices", "replacement_rows")

CANDIDATES = 16


def replacement_rows(rows: int, sound: Collection[int]) -> dict[int, int]:
    """For every failed row of a batch the row that takes its place.

    Args:
        rows: rows of the batch.
        sound: those that did not fail; if there are none, nothing can take a place.
    """
    found: dict[int, int] = {}
    if not sound or len(sound) == rows:
        return found
    good = set(sound)
    after = min(good)  # round the end
    for row in reversed(range(rows)):
        if row in good:
            after = row
        else:
            found[row] = after
    return found


def fallback_indices(index: int, length: int) -> list[int]:
    """Items to try, in this order, for a batch of which nothing is left.

    Args:
        index: the batch's first item, 0 <= index < length.
        length: items of the dataset.
    """
    tries = min(length - 1, CANDIDATES)
    return [(index + place * length // (tries + 1)) % length for place in range(1, tries + 1)]
