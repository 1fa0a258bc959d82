"""Images in folders, one folder per class."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.crop_index.layout import FOLDER, CropFiles, folder_key
from aioloader.crop_index.lookup import AUTO, ItemCrops, relative_name
from aioloader.datasets.decoding import ImageFileDecoder, ImageOptions, check_labelled
from aioloader.datasets.files import FileDataset, opens_offline
from aioloader.datasets.shards import pinned_path
from aioloader.datasets.stage import stage_of_argument
from aioloader.errors import AmbiguousPathError
from aioloader.formats.image_files import OWN, ImageFiles, checked_synsets, find_images
from aioloader.formats.opening import of_several_splits
from aioloader.foundation.stacks import warn_caller
from aioloader.foundation.types import WHOLE_FILE, Array, IntArray, ItemLocation, SpanKind, Spans
from aioloader.foundation.validation import advises
from aioloader.storage.urls import is_url, join, path_of, redact_url

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Unpack

    from aioloader.abc import ByteSource
    from aioloader.datasets.decoding import ImageKeywords
    from aioloader.storage.remote.transport import Version

_MOST_EXAMPLES = 3


class ImageFolderDataset(FileDataset):
    """Image files in one folder per class: (image, label) of every image in ``root/<class>/``.

    The image is uint8 (height, width, 3) RGB, the label the number of the class, int64.

    Classes are numbered in the order of their sorted names. Every folder in `root` is a class, also one without images,
    as in torchvision with ``allow_empty=True``: pass `synsets` to choose the classes, or to number them as in another
    folder (the training set's). Within a class images are sorted by their paths; those in its sub-folders belong to it,
    too. An image is a file whose suffix is one of a format that `aioloader.transforms.decode_image` reads, or, if it
    has none, or one of no other usual kind of file (such as .txt, .csv, .dat), that begins like one (on this machine:
    objects at a URL are not opened for that). Entries whose names begin with a dot, and ``__MACOSX``, are neither
    images nor classes. `aioloader pack`, `inspect`, `view` and `verify` read the same images, with the same numbers.

    Args:
        root: the folder; ``~`` is expanded. Or the URL of a folder in object storage, such as "s3://bucket/train",
            where empty folders do not exist.
        flag: 1 for colour; 0 for grey, (height, width, 1); -1 for the channels and bits of each file.
        transform: deprecated; use ``.transform(fn)``.
        label_dtype: dtype of the labels; None: int64.
        label: None: the samples are all images of the folder and of folders in it, each alone, without a label.
        synsets: names of the classes in the order of their numbers; None: all folders.
        exif, max_pixels, dct_scaling, cache, cache_limit: see `ImageRecordDataset`.
        crop_index: see `ImageRecordDataset`; the index of the folder.

    Attributes:
        synsets: names of the classes.
        items: (path, number of the class) of every image. May be replaced, but not altered in place.
        left_out: number of entries of the folder that are not read, by reason.

    Raises:
        FileNotFoundError: there is no such folder, or no crop index at the path given.
        AmbiguousPathError: its folders are splits (train, val, ...) with a folder for each class; the error is a
            ValueError.
        NotADirectoryError: `root` is a file.
        ValueError: an option is not allowed.
        CropIndexError: the file given as `crop_index` is damaged, or is that of other data.

    Warns:
        UserWarning: entries of the folder are left out (one warning, with their number and the first of them), or a
            class has no images, or none has any: the dataset is empty. Or there is one class, and all images are in
            folders inside it.
    """

    _rule = OWN
    _labelled = True
    _chosen: list[str] | None = None

    @opens_offline
    @advises({}, ImageOptions)
    def __init__(
        self,
        root: str | os.PathLike[str],
        flag: int = 1,
        transform: Callable[..., Any] | None = None,
        *,
        label: str | None = AUTO,
        synsets: Sequence[str] | None = None,
        **options: Unpack[ImageKeywords],
    ) -> None:
        given = ImageOptions(flag=flag, **options)
        super().__init__(given.cache, given.cache_limit)
        self._own_stage = stage_of_argument(self, transform)
        self._label_dtype = given.dtype or np.dtype(np.int64)
        self._labelled = labelled = check_labelled(label, "images of a folder")
        if synsets is not None and not labelled:
            raise ValueError(
                "synsets number the labels, and label=None reads images without labels: leave out one"
            )
        self._decoder = ImageFileDecoder(
            **given.decoding, dct_scaling=bool(given.dct_scaling), labelled=labelled
        )
        self._root = pinned_path(path_of(root))
        self._versions: dict[str, Version] = {}
        self._crops = ItemCrops(given.crop_index, self._root)
        self.synsets: list[str] = []
        self._chosen = checked_synsets(synsets)
        self._list_images(self._root)
        if given.crop_index != AUTO:
            self._crops.open(self._paths)

    def _list_images(self, root: str) -> None:
        """Set `items` and `synsets` to the images and classes of a folder."""
        found = find_images(root, self._chosen, self._rule)
        if (
            self._labelled
            and self._chosen is None
            and of_several_splits(found.classes)
            and found.items
            and not _any_direct(found, root)
        ):
            raise AmbiguousPathError(
                redact_url(root),
                [_below(root, name) for name in found.classes],
                "folders of images of several splits",
                nested=True,
                advice="; or pass synsets=[...] if these folders are the classes",
            )
        self.synsets = found.classes if self._labelled else []
        self.items = found.items if self._labelled else [(path, 0) for path in found.all_images(root)]
        self._versions = found.versions
        self._warn(found)
        self.left_out = dict(found.left_out.reasons)

    @property
    def items(self) -> list[tuple[str, int]]:
        """Return (path, number of the class) of every image."""
        return self._items

    @items.setter
    def items(self, items: list[tuple[str, int]]) -> None:
        self._items = items
        self._crops.forget_items()
        self._labels: Array | None = None
        self._source = None

    def _warn(self, found: ImageFiles) -> None:
        """Issue warnings about what is not read, and of a folder at another level than that of the classes."""
        left_out, empty = found.left_out, found.empty
        if not self.items:
            advice = self._advice(found)
            warn_caller(
                f"There are no images in {self._root}, so this dataset is empty: {advice}", UserWarning
            )
            return
        if self._labelled:
            for path in found.loose:
                left_out.add(path, ", which is outside the folders of the classes")
        if left_out.count:
            shown = "; ".join(f"{path}{why}" for path, why in left_out.first[:_MOST_EXAMPLES])
            rest = left_out.count - _MOST_EXAMPLES
            more = f"; and {rest:,} more" if rest > 0 else ""
            entries = "1 entry" if left_out.count == 1 else f"{left_out.count:,} entries"
            warn_caller(f"Ignoring {entries} of {self._root}: {shown}{more}", UserWarning)
        if self._labelled and empty:
            warn_caller(
                f"{len(empty)} of {len(found.classes)} classes have no images ({', '.join(empty[:5])}), but are "
                "numbered like the others. Pass synsets=[...] to choose and number the classes.",
                UserWarning,
            )
        if self._labelled and len(found.classes) == 1 and not _any_direct(found, self._root):
            warn_caller(
                f"All images of {self._root} have one class, {found.classes[0]!r}, because they are in folders in this "
                f"folder: pass {_below(self._root, found.classes[0])} if those are the classes",
                UserWarning,
            )

    def _advice(self, found: ImageFiles) -> str:
        """Describe a folder without images in its classes, and how to find the right one."""
        if found.loose:
            return "it has images itself: pass label=None to read them without labels, or the folder above it"
        return (
            f"it must have one folder of images for each class, and has {len(found.classes):,} folders and "
            f"{sum(not is_folder for _, is_folder in found.entries):,} files"
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_labels": None}

    def __len__(self) -> int:
        return len(self._items)

    @property
    def decoder(self) -> ImageFileDecoder:
        crops = self._crops.open(self._paths)
        return self._decoder if crops is None else replace(self._decoder, crops=crops)

    def image_decoder(self) -> ImageFileDecoder:
        return self._decoder

    def crop_files(self) -> CropFiles:
        return CropFiles(FOLDER, (self._root,))

    def crop_keys(self, indices: IntArray) -> tuple[IntArray, Array]:
        """Return zeros, and the keys of the names of the images."""
        names = (relative_name(self._root, self._items[index][0]) for index in indices.tolist())
        return np.zeros(len(indices), np.int64), np.array([folder_key(name) for name in names], np.uint64)

    def _paths(self) -> list[str]:
        return [path for path, _ in self._items]

    def open_source(self) -> ByteSource:
        paths = self._paths()
        versions = [self._versions.get(path) for path in paths]
        return self._open_files(
            paths, remote=self.reads_ahead, kind=SpanKind.FILE, name=self._root, versions=versions
        )

    @property
    def reads_ahead(self) -> bool:
        return bool(self._items) and is_url(self._items[0][0])

    def spans(self, indices: IntArray) -> Spans:
        return whole_files(indices)

    def extras(self, indices: IntArray) -> Array:
        """Return the labels; if the folder has a crop index, with the keys of its entries."""
        return self._crops.extras(self._all_labels(), indices)

    def _all_labels(self) -> Array:
        if self._labels is None:
            self._labels = np.array([label for _, label in self._items], dtype=self._label_dtype)
        return self._labels

    def labels(self) -> Array:
        if not self._labelled:
            raise ValueError("this dataset has no labels, because it was made with label=None")
        return self._all_labels().copy()

    def class_names(self) -> list[str]:
        """Return the `synsets`."""
        return list(self.synsets)

    def location(self, index: int) -> ItemLocation:
        return ItemLocation(None, redact_url(self._items[index][0]), None)

    def file_nbytes(self, index: int) -> int:
        version = self._versions.get(self._items[index][0])
        return super().file_nbytes(index) if version is None else version.nbytes


def _below(root: str, name: str) -> str:
    return join(root, name) if is_url(root) else os.path.join(root, name)


def _any_direct(found: ImageFiles, root: str) -> bool:
    """Return whether an image is directly in the folder of its class."""
    folders = [_below(root, name) for name in found.classes]
    return any(os.path.dirname(path) == folders[label] for path, label in found.items)


def whole_files(indices: IntArray) -> Spans:
    """Return spans of whole files; item i is file i."""
    return Spans(indices, np.zeros(len(indices), np.int64), np.full(len(indices), WHOLE_FILE, np.int64))
