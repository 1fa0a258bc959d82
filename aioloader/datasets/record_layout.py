"""What kinds of image records there are, told by their headers alone. Pure.

InsightFace's train.rec (face recognition): record 0 has no image, and two labels, the first key of its identity
records and the key behind the last one. An identity record has no image either, and two labels, the first key of its
images and the key behind the last. Detection (MXNet's `ImageDetRecordIter`): label vectors that begin with the width of
their own header and that of an object; see `aioloader.mxnet.io.ImageDetRecordIter`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import Array

__all__ = ("Detection", "detection_label", "key_range")

_MOST_WIDTH = 1000


class Detection(NamedTuple):
    """How a detection label is laid out.

    Attributes:
        header_width: values of its header, these two included; at least 2.
        object_width: values of an object; at least 5: class, left, top, right, bottom, and perhaps more.
        objects: how many objects there are.
    """

    header_width: int
    object_width: int
    objects: int


def key_range(labels: Sequence[float], body_nbytes: int) -> tuple[int, int] | None:
    """The keys that a header record of InsightFace's layout (record 0, or an identity record) stands for.

    Args:
        labels: its label vector.
        body_nbytes: bytes behind its header.

    Returns:
        First key and the key behind the last one; None if it is no such record.
    """
    if body_nbytes or len(labels) != 2:
        return None
    first, stop = float(labels[0]), float(labels[1])
    if not (first.is_integer() and stop.is_integer() and 0 <= first <= stop):
        return None
    return int(first), int(stop)


def detection_label(labels: Sequence[float] | Array) -> Detection | None:
    """How a label vector is laid out if it is one of a detection set, else None.

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
