"""Records of a file that `recordio.verify` found valid, as a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.formats.inspection import evenly
from aioloader.formats.recordio.dataset import ImageRecordDataset
from aioloader.formats.recordio.heads import read_heads
from aioloader.foundation.types import IntArray, ItemLocation, Spans
from aioloader.transforms.decode import DEFAULT_MAX_PIXELS
from aioloader.transforms.formats import read_header
from recordio import extract, unpack

if TYPE_CHECKING:
    import recordio
    from aioloader.abc import ByteSource

_LOOKED_AT = 64


class ValidRecords(ImageRecordDataset):
    """Dataset of the valid records of a file.

    Args:
        report: result of `recordio.verify` for the file.
        path: path of the file, if it is a URL: reports do not contain the signature of a URL.
        max_pixels: see `ImageRecordDataset`.

    Raises:
        OSError: the file cannot be read.
    """

    def __init__(
        self,
        report: recordio.Report,
        path: str | None = None,
        *,
        max_pixels: int | None = DEFAULT_MAX_PIXELS,
    ) -> None:
        super().__init__(path or report.path, max_pixels=max_pixels, label_dtype="float32", crop_index=None)
        self._report = report
        self._numbers = self._chosen()

    def _chosen(self) -> IntArray:
        """Return the numbers of the records in the order of the file."""
        return np.arange(self._report.records, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._numbers)

    def spans(self, indices: IntArray) -> Spans:
        chosen = self._numbers[indices]
        offset, length = self._report.offsets[chosen], self._report.lengths[chosen]
        return Spans(np.zeros(len(offset), np.int64), offset, length)

    def location(self, index: int) -> ItemLocation:
        number = int(self._numbers[index])
        return ItemLocation(self._report.key_at(number), self._report.path, int(self._report.offsets[number]))


class ValidImages(ValidRecords):
    """Dataset of the images in the valid records of a file; see `ValidRecords`."""

    def _chosen(self) -> IntArray:
        """Return the numbers of the records with images: in a file of images, all but those with only a header.

        Returns:
            int64 (n,), in the order of the file; empty if the records do not contain images.
        """
        report = self._report
        chosen = evenly(report.records, _LOOKED_AT)
        source = self.open_source()
        try:
            if not any(_is_image(source, self._framed(number)) for number in chosen.tolist()):
                return chosen[:0]
        finally:
            source.close()
        heads = read_heads(self._path, report.offsets, version=self._versions[0])
        # Such records refer to ranges of others; see `aioloader.formats.recordio.heads`.
        return np.flatnonzero(~(heads.bare & (heads.flag == 2))).astype(np.int64)

    def _framed(self, number: int) -> Spans:
        one = slice(number, number + 1)
        return Spans(np.zeros(1, np.int64), self._report.offsets[one], self._report.lengths[one])


def _is_image(source: ByteSource, spans: Spans) -> bool:
    try:
        plan, data = source.fetch(spans)
        start = int(plan.start[0])
        payload: Any = extract(data[start : start + int(plan.length[0])])
        read_header(unpack(payload)[1])
    except (ValueError, EOFError):  # not an image record, or a damaged one
        return False
    return True
