"""Records of a set in InsightFace's layout, for `aioloader view`."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np

from aioloader.errors import LayoutError
from aioloader.formats.collection import LabelChunk
from aioloader.formats.insightface.dataset import InsightFaceDataset
from aioloader.formats.recordio.view import RecordFiles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import IntArray


class FaceRecords(RecordFiles):
    """Collection of the records of an `InsightFaceDataset`. No record is known before `load`.

    Only its images are listed; other records can be opened by their keys.

    Args:
        rec: the .rec file.
        path: path as the user passed it.
        max_pixels: larger images are refused.

    Raises:
        OSError: the file cannot be read.
    """

    def __init__(self, rec: str, *, path: str, max_pixels: int | None) -> None:
        super().__init__([rec], path=path, max_pixels=max_pixels, head=False)
        self.kind = "InsightFace"
        self._images: Sequence[int] | IntArray = range(0)
        self._samples: IntArray | None = None

    def _listed(self, count: int) -> Sequence[int] | IntArray:
        """Return the positions of the images, or of all records if the images cannot be identified."""
        dataset = InsightFaceDataset(self.paths[0])
        try:
            with warnings.catch_warnings(record=True) as notes:
                warnings.simplefilter("always")
                lines = dataset.lines
        except (LayoutError, ValueError, EOFError) as error:
            self.problems.append(f"The images cannot be identified, so all records are listed: {error}")
            self._images = range(count)
            return self._images
        self.problems.extend(str(note.message) for note in notes)
        if lines.lines is None:
            self._images = range(lines.first_line, lines.first_line + lines.count)
        else:
            self._samples = np.argsort(lines.lines, kind="stable")
            self._images = lines.lines[self._samples]
        self.kind = f"InsightFace, {lines.count:,} images"
        if lines.header is not None:
            self.kind += f" of {lines.header.end - lines.header.first:,} identities"
        return self._images

    def index(self, position: int) -> int | None:
        sample = int(self._indices(np.array([position]))[0])
        return None if sample < 0 else sample

    def _indices(self, positions: IntArray) -> IntArray:
        """Return the indices in the dataset of the records at some positions, -1 for records without an image."""
        images = self._images
        if isinstance(images, range):
            inside = (positions >= images.start) & (positions < images.stop)
            return np.where(inside, positions - images.start, -1)
        places = np.minimum(np.searchsorted(images, positions), max(0, len(images) - 1))
        if not len(images) or self._samples is None:
            return np.full(len(positions), -1)
        return np.where(np.asarray(images)[places] == positions, self._samples[places], -1)

    def label_chunk(self, start: int, stop: int) -> LabelChunk:
        found = super().label_chunk(start, stop)
        shown = self._indices(np.arange(start, stop)) >= 0
        own = shown[found.owners]
        first = np.where(shown, found.first, np.float32(np.nan))
        return LabelChunk(first, found.owners[own], found.values[own])
