"""Opening of a path as a collection of the right kind."""

from __future__ import annotations

import glob
import os
from typing import TYPE_CHECKING

from aioloader.datasets.insightface_files import insightface_file
from aioloader.images import check_record_file
from aioloader.storage.urls import is_url, path_of, redact_url
from aioloader.tools.paths import record_files_at
from aioloader.transforms import DEFAULT_MAX_PIXELS
from aioloader.viewer.face_records import FaceRecords
from aioloader.viewer.image_folder import ImageFolder
from aioloader.viewer.record_files import RecordFiles

if TYPE_CHECKING:
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
    if is_url(path):
        return _open_url(path, max_pixels)
    if os.path.isdir(path):
        return _open_folder(path, max_pixels)
    if not os.path.exists(path):
        shards = sorted(found for found in glob.glob(path) if os.path.isfile(found))
        if not shards:
            raise FileNotFoundError(f"there is no file or folder {path!r}")
        return _shards(shards, path, max_pixels)
    check_record_file(path)
    faces = insightface_file(path)
    if faces is not None:
        return FaceRecords(faces, path=path, max_pixels=max_pixels)
    return RecordFiles([path], path=path, kind="record file", max_pixels=max_pixels)


def _open_url(url: str, max_pixels: int | None) -> Collection:
    from aioloader.storage.remote.opening import describe_all

    paths = record_files_at(url)
    if not paths:
        return ImageFolder(url, max_pixels=max_pixels)
    kind = "record file" if len(paths) == 1 else f"{len(paths)} record files"
    return RecordFiles(
        paths, path=redact_url(url), kind=kind, max_pixels=max_pixels, versions=describe_all(paths)
    )


def _open_folder(path: str, max_pixels: int | None) -> Collection:
    names = sorted(os.listdir(path))
    records = [os.path.join(path, name) for name in names if name.lower().endswith(".rec")]
    faces = insightface_file(path)
    if faces is not None:
        return FaceRecords(faces, path=path, max_pixels=max_pixels)
    if records:
        return _shards(records, path, max_pixels)
    return ImageFolder(path, max_pixels=max_pixels)


def _shards(paths: list[str], path: str, max_pixels: int | None) -> Collection:
    for found in paths:
        check_record_file(found)
    kind = "record file" if len(paths) == 1 else f"{len(paths)} record files"
    return RecordFiles(paths, path=path, kind=kind, max_pixels=max_pixels)
