"""Labels of many records, read from their headers without their images, and an index from labels to records.

All headers are read in the background after the first request.

Memory: four bytes for each record, and twelve for each label of a record with several labels. Partial results are
available at any time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from aioloader.formats.recordio.heads import read_heads
from aioloader.viewer.collection import LabelChunk
from aioloader.viewer.records import detection_boxes

if TYPE_CHECKING:
    from aioloader.foundation.types import Array, IntArray
    from aioloader.storage.remote.transport import Version
    from aioloader.viewer.collection import Collection

CHUNK = 4096
_MOST_LABELS = 240


class Labels:
    """Labels of a loaded collection. Call `read`, `matches` and `counts` in a thread.

    Args:
        collection: the collection.
        count: number of its records.

    Attributes:
        count: number of all records.
        done: number of records whose labels are known.
    """

    def __init__(self, collection: Collection, count: int) -> None:
        self.count = count
        self.done = 0
        self._collection = collection
        self._first = np.full(count, np.nan, np.float32)
        self._owners: list[IntArray] = []
        self._values: list[Array] = []

    @property
    def complete(self) -> bool:
        """Return whether all labels are known."""
        return self.done >= self.count

    def read(self) -> LabelChunk:
        """Read the labels of the next records, without adding them.

        Raises:
            OSError: they cannot be read.
        """
        return self._collection.label_chunk(self.done, min(self.count, self.done + CHUNK))

    def add(self, chunk: LabelChunk) -> None:
        """Add the result of `read`."""
        stop = self.done + len(chunk.first)
        self._first[self.done : stop] = chunk.first
        if len(chunk.owners):
            self._owners.append(chunk.owners + self.done)
            self._values.append(chunk.values)
        self.done = stop

    def matches(self, label: float) -> IntArray:
        """Return the positions, known so far, of the records with a label, ascending."""
        wanted = np.float32(label)
        done, owners, values = self.done, self._owners[:], self._values[:]
        found: IntArray = np.flatnonzero(self._first[:done] == wanted)
        several = [owner[value == wanted] for owner, value in zip(owners, values, strict=True)]
        return np.unique(np.concatenate([found, *several])) if several else found

    def counts(self) -> list[tuple[float, int]]:
        """Return (label, number of records) pairs, sorted by label, of the records read so far."""
        done, owners, values = self.done, self._owners[:], self._values[:]
        first = self._first[:done]
        found, counts = np.unique(first[~np.isnan(first)], return_counts=True)
        total = dict(zip(found.tolist(), counts.tolist(), strict=True))
        if owners:
            pairs = np.stack(
                [np.concatenate(values).astype(np.float64), np.concatenate(owners).astype(np.float64)]
            )
            again, counts = np.unique(np.unique(pairs, axis=1)[0], return_counts=True)
            for label, count in zip(again.tolist(), counts.tolist(), strict=True):
                total[label] = total.get(label, 0) + count
        return sorted(total.items())


def read_labels(path: str, offsets: IntArray, version: Version | None = None) -> LabelChunk:
    """Read the labels of the records at some offsets of a file.

    The result includes the first `_MOST_LABELS` labels of a record; for a detection label, the classes of its boxes. It
    does not include labels for a damaged record or one without a header.

    Raises:
        OSError: the file cannot be read.
    """
    heads = read_heads(path, offsets, labels=_MOST_LABELS, version=version)
    first = np.where(heads.scalar, heads.label, np.float32(np.nan)).astype(np.float32)
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
