"""Arrays in nested lists: a prompt with some images, a document with pages of images. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import IntArray


def flatten_levels(samples: Sequence[Any]) -> tuple[list[Any], tuple[IntArray, ...]]:
    """Return the arrays of all samples, and where the lists of each level begin.

    Args:
        samples: arrays, or lists (or tuples) of such values; all equally deep. An empty list is of any depth.

    Returns:
        the arrays in order; for each level of lists, from the samples down, int64 offsets (lists of the level above +
        1) into the lists of the level below, or of the last one into the arrays.

    Raises:
        ValueError: some samples are deeper than others.
    """
    level: list[Any] = list(samples)
    offsets: list[IntArray] = []
    while any(isinstance(value, (list, tuple)) for value in level):
        wrong = next(
            (place for place, value in enumerate(level) if not isinstance(value, (list, tuple))), None
        )
        if wrong is not None:
            raise ValueError(
                f"some samples contain lists of arrays and others arrays (element {wrong} of level {len(offsets)}): "
                "put single arrays into lists of one"
            )
        counts = [len(value) for value in level]
        offsets.append(np.cumsum([0, *counts], dtype=np.int64))
        level = [each for value in level for each in value]
    return level, tuple(offsets)
