"""InsightFace's layout, for the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioloader.formats.base import Folder, Format
from aioloader.formats.insightface.layout import PROPERTY
from aioloader.storage.urls import is_url

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.formats.collection import Collection
    from aioloader.formats.insightface.dataset import InsightFaceDataset

_REC = "train.rec"


class InsightFaceFormat(Format):
    """Folders in InsightFace's layout: train.rec, train.idx and property."""

    name = "InsightFace"
    has_fields = False
    text = "InsightFace's folders (train.rec, train.idx, property)"
    folder_text = "InsightFace's layout"
    no_packing = (
        "is a set in InsightFace's layout, whose header and identity records cannot be packed again: "
        "copy its files"
    )

    def contains(self, path: str) -> tuple[str, ...] | None:
        """Return the record file if it has a header, or is next to a property file."""
        from aioloader.formats.insightface.dataset import insightface_file

        found = insightface_file(path)
        return None if found is None else (found,)

    def in_folder(self, folder: Folder) -> tuple[str, ...] | None:
        """Return the record file of a folder."""
        if not is_url(folder.path):
            return self.contains(folder.path)
        return (folder.at(_REC),) if {_REC, PROPERTY} <= set(folder.files) else None

    def dataset(self) -> type[InsightFaceDataset]:
        """Return `InsightFaceDataset`."""
        from aioloader.formats.insightface.dataset import InsightFaceDataset

        return InsightFaceDataset

    def collection(
        self, paths: Sequence[str], *, path: str, max_pixels: int | None, labelled: bool = True
    ) -> Collection:
        """Return the records of a file; of a local one the images are known by its header."""
        from aioloader.formats.insightface.view import FaceRecords
        from aioloader.formats.recordio.view import RecordFiles

        if is_url(path):
            return RecordFiles(paths, path=path, max_pixels=max_pixels)
        return FaceRecords(paths[0], path=path, max_pixels=max_pixels)


FORMAT = InsightFaceFormat()
