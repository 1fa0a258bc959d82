"""`images`: from a path to a loader in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from aioloader.crop_index.lookup import AUTO
from aioloader.datasets.decoding import ImageOptions
from aioloader.datasets.files import opens_offline
from aioloader.formats.opening import make_dataset, recognize
from aioloader.foundation.validation import keywords_of, refuse_unknown
from aioloader.loader.async_loader import AsyncDataLoader
from aioloader.loader.base import OF_TORCH
from aioloader.loader.sync_loader import DataLoader
from aioloader.transforms.base import Compose
from aioloader.transforms.decode import DEFAULT_MAX_PIXELS
from aioloader.transforms.geometry import CenterCrop, RandomHorizontalFlip, RandomResizedCrop, Resize

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from aioloader.datasets.base import Dataset

__all__ = ("images",)


@overload
def images(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    size: int = 224,
    batch_size: int | None = 64,
    train: bool = True,
    blocking: Literal[False] = False,
    *,
    image: str | None = None,
    label: str | None = AUTO,
    synsets: Sequence[str] | None = None,
    max_pixels: int | None = DEFAULT_MAX_PIXELS,
    crop_index: str | os.PathLike[str] | None = AUTO,
    cache: str | os.PathLike[str] | None = None,
    cache_limit: int | str | None = None,
    shuffle_shards: int | None = None,
    shuffle_blocks: int | str | None = AUTO,
    blocks_limit: int | str | None = None,
    decoded_cache: int | str | None = None,
    **loader_options: Any,
) -> AsyncDataLoader[Any]: ...


@overload
def images(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    size: int = 224,
    batch_size: int | None = 64,
    train: bool = True,
    *,
    blocking: Literal[True],
    image: str | None = None,
    label: str | None = AUTO,
    synsets: Sequence[str] | None = None,
    max_pixels: int | None = DEFAULT_MAX_PIXELS,
    crop_index: str | os.PathLike[str] | None = AUTO,
    cache: str | os.PathLike[str] | None = None,
    cache_limit: int | str | None = None,
    shuffle_shards: int | None = None,
    shuffle_blocks: int | str | None = AUTO,
    blocks_limit: int | str | None = None,
    decoded_cache: int | str | None = None,
    **loader_options: Any,
) -> DataLoader[Any]: ...


@overload
def images(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    size: int = 224,
    batch_size: int | None = 64,
    train: bool = True,
    blocking: bool = False,
    *,
    image: str | None = None,
    label: str | None = AUTO,
    synsets: Sequence[str] | None = None,
    max_pixels: int | None = DEFAULT_MAX_PIXELS,
    crop_index: str | os.PathLike[str] | None = AUTO,
    cache: str | os.PathLike[str] | None = None,
    cache_limit: int | str | None = None,
    shuffle_shards: int | None = None,
    shuffle_blocks: int | str | None = AUTO,
    blocks_limit: int | str | None = None,
    decoded_cache: int | str | None = None,
    **loader_options: Any,
) -> AsyncDataLoader[Any] | DataLoader[Any]: ...


@opens_offline
def images(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    size: int = 224,
    batch_size: int | None = 64,
    train: bool = True,
    blocking: bool = False,
    *,
    image: str | None = None,
    label: str | None = AUTO,
    synsets: Sequence[str] | None = None,
    max_pixels: int | None = DEFAULT_MAX_PIXELS,
    crop_index: str | os.PathLike[str] | None = AUTO,
    cache: str | os.PathLike[str] | None = None,
    cache_limit: int | str | None = None,
    shuffle_shards: int | None = None,
    shuffle_blocks: int | str | None = AUTO,
    blocks_limit: int | str | None = None,
    decoded_cache: int | str | None = None,
    **loader_options: Any,
) -> AsyncDataLoader[Any] | DataLoader[Any]:
    """Return a loader of images and labels from files of any format, or from a folder.

    Args:
        path: as for `open_dataset`: a file, a pattern such as ``train-*.rec``, a list of files, or a folder, for
            example with one sub-folder of images for each class; or the URL of any of these. A local set in
            InsightFace's layout, named by its folder or its train.rec, is read by `InsightFaceDataset`, so that no
            header is read as an image.
        size: side of the square images, pixels.
        batch_size: samples of a batch; None with a ``batch_sampler``.
        train: shuffled, a random resized crop and a random flip; otherwise in order, the shorter side resized to
            size * 8 / 7 and the centre cropped.
        blocking: return a `DataLoader` for plain ``for`` loops, not an `AsyncDataLoader`.
        image, label: names of the fields of the image and its label, for formats whose samples have fields (tar,
            TFRecord, Parquet, MDS); by default those of the format's class. ``label=None``: images without labels, of
            any format; of a folder all images in it. For other fields than these two pass
            ``open_dataset(path, fields=(...))`` to a loader.
        synsets: of a folder, the names of the classes in the order of their numbers, such as
            ``ImageFolderDataset(train).synsets`` for a folder for validation that may lack a class.
        max_pixels: larger images are refused before they are decoded; None for no limit.
        crop_index: crop indexes, with which crops of JPEGs are decoded alone; see `ImageRecordDataset`.
        cache: a folder, or "memory": bytes that were read once are kept there and read from there.
        cache_limit: most bytes that are kept, such as "50GB" (the default for a folder; for memory 4 GB).
        decoded_cache: most bytes of memory, such as "20GB", for decoded images: each is decoded once, and its crops in
            later epochs are made of its pixels. See `aioloader.cache_samples`.
        shuffle_shards: for tar and TFRecord files only: files that are mixed at a time; the first epoch then begins
            when one of them is scanned. See `TarDataset`.
        shuffle_blocks, blocks_limit: for Parquet files only: row groups that are mixed at a time, and most bytes of row
            groups in memory; see `ParquetDataset`.
        loader_options: options of the loader.

    Returns:
        a loader of batches (images, labels): uint8 (n, size, size, 3) RGB, and int64 or float32 (n,); with
        ``label=None`` of the images alone. Shards are opened
        when its first epoch begins; an `EmptyDatasetError` is raised there if they have no samples.

    Raises:
        FileNotFoundError: there is nothing at `path`, or no crop index at `crop_index`.
        UnknownFormatError: it is of a format that is not read; the error is a ValueError and names what helps.
        AmbiguousPathError: a folder contains files of several formats or splits; the error is a ValueError.
        TypeError: `image` or `label` is given, and samples of this format have no fields; or `shuffle_shards`,
            `shuffle_blocks` or `blocks_limit`, and the files are of a format without it.
        ValueError: an option is not allowed, or a folder has no images.
    """
    known = {*keywords_of(images), *keywords_of(AsyncDataLoader.__init__)} - {"dataset"}
    of_datasets = {
        name: f"pass open_dataset(path, {name}=...), with transforms, to AsyncDataLoader or DataLoader"
        for name in {"fields", *keywords_of(ImageOptions)} - known
    }
    refuse_unknown("images", loader_options, sorted(known), OF_TORCH | of_datasets)
    chosen: dict[str, Any] = {
        "image": image,
        "synsets": synsets,
        "shuffle_shards": shuffle_shards,
        "blocks_limit": blocks_limit,
    }
    chosen = {name: value for name, value in chosen.items() if value is not None}
    if label != AUTO:  # None is a choice, too
        chosen["label"] = label
    if shuffle_blocks != AUTO:
        chosen["shuffle_blocks"] = shuffle_blocks
    found = recognize(path, labelled=label is not None)
    options = {"max_pixels": max_pixels, "crop_index": crop_index, "cache": cache, "cache_limit": cache_limit}
    dataset: Dataset[Any] = make_dataset(found, options | chosen).refuse_empty(found.paths)
    if decoded_cache is not None:
        dataset = dataset.cache_samples(decoded_cache)
    if train:
        ordered = any(loader_options.get(name) is not None for name in ("sampler", "batch_sampler"))
        loader_options.setdefault("shuffle", not ordered)
    loader = DataLoader if blocking else AsyncDataLoader
    return loader(dataset.transform_first(image_chain(size, train=train)), batch_size, **loader_options)


def image_chain(size: int, *, train: bool) -> Compose:
    """Return the transforms that `images` applies to every image.

    Args:
        size: side of the square images, pixels.
        train: a random resized crop and a random flip; otherwise resize and crop the centre.
    """
    if train:
        return Compose([RandomResizedCrop(size), RandomHorizontalFlip()])
    return Compose([Resize(round(size * 8 / 7)), CenterCrop(size)])
