"""The parts of image records that crops need, found before the records are read.

Rule: the crop of a sample depends only on (seed, epoch, index, position) and on the size of the image, which its entry
of a crop index has. So it is drawn here too, by the chain's own decode operation, from a second generator with the same
draws.
What is left out is a range of rows above the crop, and everything below it. Nothing here decides whether the parts are
right: the worker compares them with the CRCs of the entry.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

import numpy as np

from aioloader.abc import PartialReads
from aioloader.datasets.decoding import PARTS, RECORD_FIELDS
from aioloader.foundation.threads import Threads
from aioloader.foundation.types import IntArray, PartialItems, Spans
from aioloader.jpeg.crop_entry import CropEntryError
from aioloader.jpeg.crop_window import needed_rows, read_head, row_bytes
from aioloader.rng import Rng
from aioloader.storage.records import doubtful
from aioloader.transforms.decode import stored_box

if TYPE_CHECKING:
    from aioloader.crop_index.lookup import RecordCrops
    from aioloader.transforms.fused import NeededRegion

# Saving less than this share of a record is not worth a second request or the check.
_LEAST_SAVING: Final = 1 / 16
# Records of a file whose parts were not enough, as a number and as a share of those that were read in parts: with more
# of them the file's crop index is wrong, and all its records are read whole.
_MOST_EXCLUDED: Final = 16
_MOST_EXCLUDED_SHARE: Final = 1 / 8
_MOST_LABELS: Final = 1 << 16


class CropReads(PartialReads):
    """Finder of the parts of image records.

    The extras of its items are `aioloader.datasets.decoding.PARTS`.

    Args:
        crops: crop indexes of the files.
        region: finds the rectangle of an image that the loader's chain needs.
        seed: of the loader.
        upright: images are turned upright.
        max_pixels: larger images are refused; None for no limit.
    """

    def __init__(
        self,
        *,
        crops: RecordCrops,
        region: NeededRegion,
        seed: int,
        upright: bool,
        max_pixels: int | None,
    ) -> None:
        self._crops = crops
        self._region = region
        self._seed = seed
        self._upright = upright
        self._max_pixels = max_pixels
        self._rng = Rng(seed)
        self._tried: Counter[int] = Counter()
        self._excluded: defaultdict[int, set[int]] = defaultdict(set)
        self._threads: Threads | None = None

    def close(self) -> None:
        """End the thread; may be called twice."""
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.close()

    def exclude(self, file: int, offset: int) -> None:
        """Read a record whole from now on, because its sample could not be made of its parts."""
        self._excluded[file].add(offset)

    def _may_be_narrowed(self, file: int, offset: int) -> bool:
        excluded = self._excluded.get(file)
        if not excluded:
            return True
        most = max(_MOST_EXCLUDED, _MOST_EXCLUDED_SHARE * self._tried[file])
        return len(excluded) < most and offset not in excluded

    async def narrow(
        self, spans: Spans, index: IntArray, epoch: IntArray, position: IntArray
    ) -> PartialItems | None:
        """Leave out what the samples do not need.

        In a thread, because crop indexes are opened, and may not be in memory.
        """
        if self._threads is None:
            self._threads = Threads(1, "aioloader-crops")
        return await self._threads.run(self._narrow, spans, index, epoch, position)

    def _narrow(
        self, spans: Spans, index: IntArray, epoch: IntArray, position: IntArray
    ) -> PartialItems | None:
        usual = ~doubtful(spans.length) & (spans.offset >= 0) & (spans.length & 3 == 0)
        length, gaps, extras = spans.length.copy(), np.zeros((len(spans), 2), np.int64), None
        columns = zip(
            np.flatnonzero(usual).tolist(),
            spans.file[usual].tolist(),
            spans.offset[usual].tolist(),
            spans.length[usual].tolist(),
            zip(epoch[usual].tolist(), index[usual].tolist(), position[usual].tolist(), strict=True),
            strict=True,
        )
        for place, file, offset, nbytes, sample in columns:
            if not self._may_be_narrowed(file, offset):
                continue
            entry = self._crops.find(file, offset)
            if entry is None:
                continue
            try:
                found = self._parts(entry, nbytes, sample)
            except CropEntryError:  # a worker will count it
                continue
            if found is None:
                continue
            rows, gap, end = found
            if extras is None:
                extras = np.zeros(len(spans), PARTS)
            self._tried[file] += 1
            length[place], gaps[place], extras[place] = end, gap, (*rows, nbytes)
        if extras is None:
            return None
        return PartialItems(Spans(spans.file, spans.offset, length, gaps), extras)

    def _parts(
        self, entry: memoryview, nbytes: int, sample: tuple[int, int, int]
    ) -> tuple[tuple[int, int], tuple[int, int], int] | None:
        """Find the parts of a record.

        Args:
            entry: of its image.
            nbytes: of the record.
            sample: (epoch, index, position).

        Returns:
            rows of MCUs, begin and bytes of the gap, end of the last part; None if the record is to be read whole.

        Raises:
            CropEntryError: the entry is damaged.
        """
        head = read_head(entry)
        # Between the fixed fields and the image are several labels, if any.
        image_at = nbytes - (head.jpeg_nbytes + 3 & -4)
        labels = image_at - RECORD_FIELDS.size
        if not 0 <= labels <= 4 * _MOST_LABELS:
            return None
        if self._max_pixels is not None and head.height * head.width > self._max_pixels:
            return None
        orientation = head.orientation if self._upright else 1
        height, width = (head.width, head.height) if orientation >= 5 else (head.height, head.width)
        epoch, index, position = sample
        self._rng.seek(self._seed, epoch, index, position=position)
        needed = self._region.find(height, width, self._rng)
        if needed is None:
            return None
        box, scale = needed
        if orientation != 1:
            box = stored_box(box, orientation, head.height, head.width)
        rows = needed_rows(head, box, scale)
        if rows[0] == 0 and rows[1] == head.rows:
            return None
        begin, end = row_bytes(entry, head, rows)
        scan_at = image_at + head.scan_start
        if begin + (nbytes - scan_at - end) < _LEAST_SAVING * nbytes:
            return None
        return rows, (scan_at, begin), scan_at + end
