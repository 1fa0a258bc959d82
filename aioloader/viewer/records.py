"""Description of a record: its header, labels, boxes and the format of its image. No code here performs I/O.

A detection label is a flat array: A, the length of its header (2 or more, counting A and B); B, the count of numbers
for each object (5 or more); the rest of the header; then the objects. An object is class, left, top, right, bottom as
fractions of the image's width and height, and further numbers. A label with any other layout is displayed as numbers.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from aioloader.formats.collection import Box
    from aioloader.foundation.types import Array


def box_table(boxes: tuple[Box, ...], width: int, height: int) -> Array:
    """Convert boxes to the array that box transforms take.

    Returns:
        float32 (n, 5): xmin, ymin, xmax, ymax in pixels, class.
    """
    table = np.array([(b.left, b.top, b.right, b.bottom, b.label) for b in boxes], np.float32).reshape(-1, 5)
    table[:, 0:4:2] *= width
    table[:, 1:4:2] *= height
    return table


def label_text(value: float) -> str:
    """Format a label for display and for addresses: 3, 0.25."""
    if math.isfinite(value) and float(value).is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(np.float32(value))  # with enough digits to parse to the same value


def parse_label(text: str) -> float:
    """Parse a label of an address, in single precision as in records.

    Raises:
        ValueError: it is not a number.
    """
    try:
        with np.errstate(over="ignore"):
            value = float(np.float32(float(text))) if len(text) <= 40 else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]!r} is not a label: labels are numbers")
    return value
