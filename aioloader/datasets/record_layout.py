"""Kinds of image records, recognised by their headers alone. Pure functions.

InsightFace's train.rec (face recognition): record 0 has no image, and two labels, the first key of its identity
records and the last one plus one. An identity record has no image either, and two labels, the first key of its images
and the last one plus one. Detection (MXNet's `ImageDetRecordIter`): label vectors that begin with the width of their
header and the width of an object; see `aioloader.mxnet.io.ImageDetRecordIter`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import Array

_MOST_WIDTH = 1000


class Detection(NamedTuple):
    """Layout of a detection label.

    Attributes:
        header_width: number of values in the header, including the two widths; at least 2.
        object_width: number of values of an object; at least 5: class, left, top, right, bottom, and perhaps more.
        objects: number of objects.
    """

    header_width: int
    object_width: int
    objects: int


def key_range(labels: Sequence[float], body_nbytes: int) -> tuple[int, int] | None:
    """Return the keys in a header record of InsightFace's layout (record 0, or an identity record).

    Args:
        labels: label vector of the record.
        body_nbytes: number of bytes after its header.

    Returns:
        first key, and last key plus one; None for any other record.
    """
    if body_nbytes or len(labels) != 2:
        return None
    first, stop = float(labels[0]), float(labels[1])
    if not (first.is_integer() and stop.is_integer() and 0 <= first <= stop):
        return None
    return int(first), int(stop)


def detection_label(labels: Sequence[float] | Array) -> Detection | None:
    """Return the layout of a label vector of a detection set; None for any other label vector.

    Args:
        labels: the label vector of a record.
    """
    if len(labels) < 2:
        return None
    header, width = float(labels[0]), float(labels[1])
    if not (
        header.is_integer()
        and width.is_integer()
        and 2 <= header <= _MOST_WIDTH
        and 5 <= width <= _MOST_WIDTH
    ):
        return None
    objects, rest = divmod(len(labels) - int(header), int(width))
    if rest or objects < 0:
        return None
    return Detection(int(header), int(width), objects)
