"""Opening of a path as a collection of the right kind."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from aioloader.datasets.shard_dataset import ShardDataset
from aioloader.errors import UnknownFormatError
from aioloader.formats.folder.files import has_loose_images
from aioloader.formats.folder.format import FORMAT as IMAGE_FOLDER
from aioloader.formats.insightface.format import FORMAT as INSIGHTFACE
from aioloader.formats.opening import make_dataset, recognize
from aioloader.formats.recordio.format import FORMAT as RECORDIO
from aioloader.storage.urls import is_url, path_of
from aioloader.transforms.decode import DEFAULT_MAX_PIXELS
from aioloader.viewer.image_folder import ImageFolder
from aioloader.viewer.record_files import FaceRecords, RecordFiles
from aioloader.viewer.shard_samples import ShardSamples

if TYPE_CHECKING:
    from aioloader.viewer.collection import Collection


def open_collection(
    path: str | os.PathLike[str],
    *,
    image: str | None = None,
    label: str | None = None,
    max_pixels: int | None = DEFAULT_MAX_PIXELS,
) -> Collection:
    """Open a dataset of any format, InsightFace's layout or a folder of images; slow steps are left to `load`.

    Args:
        path: as for `aioloader.open_dataset`: a .rec, .tar, .tfrecord or .parquet file; a pattern such as
            ``train-*.tar``, or a folder with files of one format, which are displayed in the order of their names; an
            MDS folder; the folder or the .rec file of a dataset in InsightFace's layout; a folder with one sub-folder
            of images for each class, or with images only; or the URL of any of these except InsightFace's layout.
        image, label: names of the fields of the image and its label, for formats whose samples have fields; None: the
            default of the format.
        max_pixels: larger images are refused before they are decoded; None for no limit.

    Raises:
        FileNotFoundError: the file or folder does not exist.
        OSError: the file or folder cannot be read.
        TypeError: `image` or `label` is given, and samples of this format have no fields.
        ValueError: the path is not one of these kinds.
    """
    path = path_of(path)
    names = {name: value for name, value in (("image", image), ("label", label)) if value is not None}
    try:
        found = recognize(path)
    except UnknownFormatError:
        if names or is_url(path) or not os.path.isdir(path) or not has_loose_images(path):
            raise
        return ImageFolder(path, max_pixels=max_pixels, flat=True)
    if not names:
        if found.format is INSIGHTFACE and not is_url(path):
            return FaceRecords(found.paths[0], path=path, max_pixels=max_pixels)
        if found.format in (INSIGHTFACE, RECORDIO):
            return RecordFiles(found.paths, path=path, max_pixels=max_pixels)
        if found.format is IMAGE_FOLDER:
            return ImageFolder(found.paths[0], max_pixels=max_pixels)
    dataset = make_dataset(found, {"max_pixels": max_pixels, "crop_index": None, **names})
    if not isinstance(dataset, ShardDataset):
        raise TypeError(f"{path!r} is read by {type(dataset).__name__}, whose samples have no named fields")
    return ShardSamples(dataset, path=path, kind=found.format.name, max_pixels=max_pixels)
