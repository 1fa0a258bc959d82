"""`images`: from a path to a loader in one line."""

from __future__ import annotations

import os
from typing import Any

from aioloader.datasets import Dataset, ImageFolderDataset, ImageRecordDataset, InsightFaceDataset
from aioloader.datasets.insightface import insightface_file
from aioloader.datasets.record import begins_with_a_record
from aioloader.datasets.shards import is_pattern
from aioloader.loader.async_loader import AsyncDataLoader
from aioloader.loader.sync_loader import DataLoader
from aioloader.storage.urls import WEB, is_url, path_of, scheme_of, suffix_of
from aioloader.transforms import (
    DEFAULT_MAX_PIXELS,
    CenterCrop,
    Compose,
    RandomFlipLeftRight,
    RandomResizedCrop,
    Resize,
)

__all__ = ("check_record_file", "image_dataset", "images")


def images(
    path: str | os.PathLike[str],
    size: int = 224,
    batch_size: int | None = 64,
    train: bool = True,
    blocking: bool = False,
    *,
    max_pixels: int | None = DEFAULT_MAX_PIXELS,
    cache: str | os.PathLike[str] | None = None,
    cache_limit: int | str | None = None,
    **loader_options: Any,
) -> AsyncDataLoader[Any] | DataLoader[Any]:
    """Return a loader of images and labels from a .rec file or a folder with one sub-folder per class.

    Args:
        path: the .rec file (its .idx is in the same folder), or a pattern of several (``train-*.rec``), or the folder;
            or the URL of any of these. A local set in InsightFace's layout, named by its folder or its train.rec, is
            read by `InsightFaceDataset`, so that no header is read as an image.
        size: side of the square images, pixels.
        batch_size: samples of a batch; None with a ``batch_sampler``.
        train: shuffled, a random resized crop and a random flip; otherwise in order, the shorter side resized to
            size * 8 / 7 and the centre cropped.
        blocking: return a `DataLoader` for plain ``for`` loops, not an `AsyncDataLoader`.
        max_pixels: larger images are refused before they are decoded; None for no limit.
        cache: a folder, or "memory": bytes that were read once are kept there and read from there.
        cache_limit: most bytes that are kept, such as "50GB" (the default for a folder; for memory 4 GB).
        loader_options: options of the loader.

    Returns:
        a loader of batches (images, labels): uint8 (n, size, size, 3) RGB, and int64 or float32 (n,).

    Raises:
        FileNotFoundError: there is nothing at `path`.
        ValueError: it is neither a folder nor a RecordIO file, or a folder without images.
    """
    dataset = image_dataset(path, max_pixels=max_pixels, cache=cache, cache_limit=cache_limit)
    if train:
        chosen = any(loader_options.get(name) is not None for name in ("sampler", "batch_sampler"))
        loader_options.setdefault("shuffle", not chosen)
    loader = DataLoader if blocking else AsyncDataLoader
    return loader(dataset.transform_first(image_chain(size, train=train)), batch_size, **loader_options)


def image_chain(size: int, *, train: bool) -> Compose:
    """Return the transforms that `images` applies to every image.

    Args:
        size: side of the square images, pixels.
        train: a random resized crop and a random flip; otherwise resize and crop the centre.
    """
    if train:
        return Compose([RandomResizedCrop(size), RandomFlipLeftRight()])
    return Compose([Resize(round(size * 8 / 7), keep_ratio=True), CenterCrop(size)])


def image_dataset(path: str | os.PathLike[str], **options: Any) -> Dataset:
    """Return the dataset of images at a path.

    Args:
        path: a .rec file, a folder with one sub-folder per class, or a set in InsightFace's layout.
        options: of any of these datasets.

    Raises:
        FileNotFoundError: there is nothing at `path`.
        ValueError: it is neither a folder nor a RecordIO file, or a folder without images.
    """
    path = path_of(path)
    if is_pattern(path):
        return ImageRecordDataset(path, **options)
    if is_url(path):
        # Neither object storage nor HTTP can report whether a URL is a folder. In object storage any name that is not
        # that of a record file is one; over HTTP there are no folders.
        if suffix_of(path).lower() == ".rec" or scheme_of(path) in WEB:
            return ImageRecordDataset(path, **options)
        return _folder_of_images(path, options)
    if not os.path.exists(path):
        raise FileNotFoundError(f"there is no file or folder {path!r}")
    folder = os.path.isdir(path)
    if not folder:
        check_record_file(path)
    faces = insightface_file(path)
    if faces is not None:
        return InsightFaceDataset(faces, **options)
    if not folder:
        return ImageRecordDataset(path, **options)
    return _folder_of_images(path, options)


def _folder_of_images(path: str, options: dict[str, Any]) -> ImageFolderDataset:
    dataset = ImageFolderDataset(path, **options)
    if not len(dataset):
        raise ValueError(f"there are no images in {path!r}: it needs a sub-folder with images for each class")
    return dataset


def check_record_file(path: str) -> None:
    """Raise if a file is not a RecordIO file, and say what it may be.

    Raises:
        ValueError: it has another ending than .rec and does not begin with a record.
    """
    suffix = os.path.splitext(path)[1].lower()
    if suffix == ".rec":
        return  # reading its records reports what is wrong with it
    if begins_with_a_record(path):
        return
    hint = _HINTS.get(suffix, "")
    raise ValueError(f"{path!r} is neither a folder nor a .rec file{hint}")


_HINTS = {
    ".lst": "; images of a list are loaded by aioloader.ImageListDataset, in a loader that you make",
    ".idx": ": it is an index; pass the .rec file that it belongs to",
}
