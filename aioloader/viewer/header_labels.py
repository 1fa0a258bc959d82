"""Reader of the labels of many records, which reads their headers but not their images."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from aioloader.datasets.record_heads import read_heads
from aioloader.viewer.collection import LabelChunk
from aioloader.viewer.records import detection_boxes

if TYPE_CHECKING:
    from aioloader.foundation.types import Array, IntArray
    from aioloader.storage.remote.transport import Version

_MOST_LABELS = 240


def read_labels(path: str, offsets: IntArray, version: Version | None = None) -> LabelChunk:
    """Read the labels of the records at some offsets of a file.

    The result includes the first `_MOST_LABELS` labels of a record; for a detection label, the classes of its boxes. It
    does not include labels for a damaged record or one without a header.

    Raises:
        OSError: the file cannot be read.
    """
    heads = read_heads(path, offsets, labels=_MOST_LABELS, version=version)
    first = np.where(heads.packed & (heads.flag == 0), heads.label, np.float32(np.nan)).astype(np.float32)
    owners: list[int] = []
    values: list[Array] = []
    for place in np.flatnonzero(heads.held).tolist():
        vector = heads.vectors[place, : heads.held[place]]
        boxes = detection_boxes(vector) if len(vector) == heads.flag[place] else ()
        found = np.array([box.label for box in boxes], np.float32) if boxes else vector
        owners.extend([place] * len(found))
        values.append(found)
    return LabelChunk(
        first,
        np.array(owners, np.int64),
        np.concatenate(values).astype(np.float32) if values else np.empty(0, np.float32),
    )
