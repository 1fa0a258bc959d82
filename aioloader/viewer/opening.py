"""Opening of a path as a collection of the right kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioloader.datasets.insightface import insightface_file
from aioloader.images import check_record_file
from aioloader.storage.urls import is_url, path_of
from aioloader.tools.paths import record_files_at
from aioloader.transforms import DEFAULT_MAX_PIXELS
from aioloader.viewer.image_folder import ImageFolder
from aioloader.viewer.record_files import FaceRecords, RecordFiles

if TYPE_CHECKING:
    import os

    from aioloader.viewer.collection import Collection


def open_collection(
    path: str | os.PathLike[str], *, max_pixels: int | None = DEFAULT_MAX_PIXELS
) -> Collection:
    """Open a record file, shards, InsightFace's layout or a folder of images; slow steps are left to `load`.

    Args:
        path: one of: a .rec file; a folder with .rec files, or a pattern such as ``train-*.rec``, whose files are
            displayed in the order of their names; the folder or the .rec file of a dataset in InsightFace's layout,
            with its .idx; a folder with one sub-folder of images for each class; or the URL of any of these except
            InsightFace's layout.
        max_pixels: larger images are refused before they are decoded; None for no limit.

    Raises:
        FileNotFoundError: the file or folder does not exist.
        OSError: the file or folder cannot be read.
        ValueError: the path is not one of these kinds.
    """
    path = path_of(path)
    faces = None if is_url(path) else insightface_file(path)
    if faces is not None:
        return FaceRecords(faces, path=path, max_pixels=max_pixels)
    files = record_files_at(path)
    if not files:
        return ImageFolder(path, max_pixels=max_pixels)
    if not is_url(path):
        for file in files:
            check_record_file(file)
    return RecordFiles(files, path=path, max_pixels=max_pixels)
