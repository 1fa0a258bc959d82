"""Nested lists of arrays, such as the images of prompts: flattened, with the parts of every list counted. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.batchify.arrays import is_numeric
from aioloader.errors import BatchShapeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import IntArray

_NUMBERS = (bool, int, float, complex, np.number, np.bool_)
_LISTS = (list, tuple)


def is_list(value: Any) -> bool:
    """Return whether a value is a list, and not a field of a sample that has parts."""
    return type(value) is list


def holds_numbers(value: Any) -> bool:
    """Return whether a value is an array, a number, or a nested list of them only; an empty list is."""
    if isinstance(value, _LISTS):
        return all(map(holds_numbers, value))
    return is_numeric(value)


def least_levels(value: Any) -> int:
    """Return how many levels of lists a value has above its arrays; a list of numbers is an array itself.

    An empty list may be an array or a list of arrays: then it is the smallest number possible.
    """
    if not isinstance(value, _LISTS) or not value or all(isinstance(part, _NUMBERS) for part in value):
        return 0
    return 1 + max(map(least_levels, value))


@dataclass(slots=True)
class Nested:
    """The arrays of nested lists.

    Attributes:
        arrays: the arrays of all samples, in order.
        places: the sample of each array.
        nesting: int64 (lists of the level + 1,) for each level from the outermost: the first part of each list, a list
            of the next level or an array, and the number of all parts.
    """

    arrays: list[Any] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    nesting: tuple[IntArray, ...] = ()


def flatten_nested(values: Sequence[Any], levels: int | None) -> Nested:
    """Flatten the nested lists of samples.

    Args:
        values: of each sample: an array or a list of numbers below `levels` levels of lists.
        levels: the levels; None: those of the deepest sample.

    Raises:
        BatchShapeError: a sample has another number of levels.
    """
    if levels is None:
        levels = max(map(least_levels, values), default=0)
    found = Nested()
    counts: list[list[int]] = [[] for _ in range(levels)]

    def visit(value: Any, level: int, place: int) -> None:
        if level == levels:
            if isinstance(value, _LISTS) and least_levels(value) > 0:
                raise _uneven(place, levels, "more")
            found.arrays.append(value)
            found.places.append(place)
        elif not isinstance(value, _LISTS):
            raise _uneven(place, levels, "fewer")
        else:
            counts[level].append(len(value))
            for part in value:
                visit(part, level + 1, place)

    for place, value in enumerate(values):
        visit(value, 0, place)
    found.nesting = tuple(offsets_of(each) for each in counts)
    return found


def offsets_of(counts: Sequence[int]) -> IntArray:
    """Return where each part begins, and the end of the last one; int64 (len(counts) + 1,)."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def _uneven(place: int, levels: int, than: str) -> BatchShapeError:
    return BatchShapeError(
        f"sample {place} has {than} than {levels} levels of lists above its arrays; the samples of a batch must have "
        "equally many: put a single array into a list, or pass levels=",
        place=place,
        expected=f"{levels} levels",
    )
