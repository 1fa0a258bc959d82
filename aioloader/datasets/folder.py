"""Images in folders, one folder per class."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aioloader.crop_index.lookup import AUTO
from aioloader.crop_index.places import is_index_file
from aioloader.datasets.decoding import ImageFileDecoder, check_image_options
from aioloader.datasets.files import FileDataset
from aioloader.datasets.item_crops import ItemCrops
from aioloader.datasets.shards import pinned_path
from aioloader.datasets.stage import stage_of_argument
from aioloader.foundation.caller import warn_caller
from aioloader.foundation.types import WHOLE_FILE, Array, IntArray, ItemLocation, SpanKind, Spans
from aioloader.storage.urls import is_url, join, path_of, redact_url
from aioloader.transforms.decode import DEFAULT_MAX_PIXELS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.abc import FetchingByteSource
    from aioloader.storage.remote.transport import Version

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png")
_MOST_WARNINGS = 10
_MOST_EXAMPLES = 3


class _Notes:
    """Warnings about a folder: ignored entries (the first few by name) and classes without images."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self._ignored = 0
        self._first: list[tuple[str, str]] = []  # description, advice

    def ignore(self, path: str, why: str, advice: str = "") -> None:
        self._ignored += 1
        if self._ignored <= _MOST_WARNINGS:
            self._first.append((f"{path}{why}.", advice))

    def add_each(self) -> None:
        """Add a warning for each ignored entry, in Gluon's words."""
        self.messages += [f"Ignoring {text}{advice}" for text, advice in self._first]
        if self._ignored > _MOST_WARNINGS:
            self.messages.append(f"Ignoring {self._ignored - _MOST_WARNINGS} more files and directories.")

    def add_count(self, root: str) -> None:
        """Add one warning for all ignored entries."""
        if not self._ignored:
            return
        shown = "; ".join(text.rstrip(".") for text, _ in self._first[:_MOST_EXAMPLES])
        rest = self._ignored - _MOST_EXAMPLES
        more = f"; and {rest:,} more" if rest > 0 else ""
        entries = "1 entry" if self._ignored == 1 else f"{self._ignored:,} entries"
        self.messages.append(
            f"Ignoring {entries} of {root}: {shown}{more}. {ImageFolderDataset._supported}, directly in the folder of "
            "their class"
        )


class _Tree(NamedTuple):
    """Listing of a folder of folders.

    Attributes:
        entries: (name, path, True for a folder) of each entry.
        files: function from the name of a folder in it to the (name, path) of each entry of that folder.
    """

    entries: list[tuple[str, str, bool]]
    files: Callable[[str], list[tuple[str, str]]]


def local_tree(root: str) -> _Tree:
    """List a local folder.

    Raises:
        OSError: it cannot be listed.
    """
    with os.scandir(root) as found:
        entries = [(entry.name, entry.path, entry.is_dir()) for entry in found]

    def files(name: str) -> list[tuple[str, str]]:
        # Names only: a call of stat for every file would take far longer than the listing.
        folder = os.path.join(root, name)
        return [(file, os.path.join(folder, file)) for file in os.listdir(folder)]

    return _Tree(entries, files)


class ImageFolderDataset(FileDataset):
    """Image files in one folder per class: (image, label) of every image in ``root/<class>/``.

    The image is uint8 (height, width, 3) RGB, the label the number of the class, int64.

    Classes are numbered in the order of their sorted names. Every directory in `root` is a class, also an empty or
    hidden one: pass `synsets` to choose the classes, or to number them as in another folder (the training set's).
    Within a class files are sorted by name. Only .jpg, .jpeg and .png files (in upper or lower case) are read, and only
    those directly in the folder of the class, not in its subfolders. `aioloader.tools.pack.pack` reads folders of any
    depth.

    Args:
        root: the folder; ``~`` is expanded. Or the URL of a folder in object storage, such as "s3://bucket/train",
            where empty folders do not exist.
        flag: 1 for colour, 0 for grey, (height, width, 1).
        transform: deprecated; use ``.transform(fn)``.
        exif: "apply" turns images upright, "ignore" leaves them as stored.
        max_pixels: larger images are refused before they are decoded; None for no limit.
        label_dtype: dtype of the labels; None: int64.
        synsets: names of the classes in the order of their numbers; None: all directories.
        dct_scaling: if the first transform is a crop or resize that shrinks a JPEG to a half or less, decode it at 1/2,
            1/4 or 1/8 of its size. Faster for large photographs, but it changes pixels slightly, and a crop's edges
            move by up to half a decoded pixel. Used by loaders only, not by ``dataset[i]``.
        crop_index: the crop index of the folder (`aioloader index --crops`), with which a crop of a JPEG is decoded
            without the rest of the image, pixels unchanged. "auto": the one at its usual place, if it exists; None:
            none; or its path. Used by loaders only.
        cache: a folder, or "memory": bytes that were read once are stored there and read from there.
        cache_limit: size limit of the cache in bytes, such as "50GB" (the default for a folder; for memory 4 GB).

    Attributes:
        synsets: names of the classes.
        items: (path, number of the class) of every image. May be replaced, but not altered in place.

    Raises:
        FileNotFoundError: there is no such folder, or no crop index at the path given.
        NotADirectoryError: `root` is a file.
        ValueError: an option is not allowed.
        CropIndexError: the file given as `crop_index` is damaged, or is that of other data.

    Warns:
        UserWarning: entries of the folder are ignored (one warning, with their number and the first of them), or a
            class has no images, or none has any: the dataset is empty.
    """

    # End of the warning about an entry of a class that is not read.
    _supported = f"Only {', '.join(IMAGE_SUFFIXES)} files are read"
    _notes_singly = False

    def __init__(
        self,
        root: str | os.PathLike[str],
        flag: int = 1,
        transform: Callable[..., Any] | None = None,
        *,
        exif: str = "apply",
        max_pixels: int | None = DEFAULT_MAX_PIXELS,
        label_dtype: Any = None,
        synsets: Sequence[str] | None = None,
        dct_scaling: bool = False,
        crop_index: str | os.PathLike[str] | None = AUTO,
        cache: str | os.PathLike[str] | None = None,
        cache_limit: int | str | None = None,
    ) -> None:
        super().__init__(cache, cache_limit)
        self._own_stage = stage_of_argument(self, transform)
        self._label_dtype = check_image_options(flag, exif, max_pixels, label_dtype) or np.dtype(np.int64)
        self._decoder = ImageFileDecoder(flag, exif, max_pixels, dct_scaling=bool(dct_scaling))
        self._root = pinned_path(path_of(root))
        self._versions: dict[str, Version] = {}
        self._crops = ItemCrops(crop_index, self._root)
        self.synsets: list[str] = []
        notes = _Notes()
        self.items = self._list_images(None if synsets is None else list(synsets), notes)
        for message in notes.messages:
            warn_caller(message, UserWarning)
        if crop_index != AUTO:
            self._crops.open(self._paths)

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

    def _list_images(self, synsets: list[str] | None, notes: _Notes) -> list[tuple[str, int]]:
        tree = self._list_objects() if is_url(self._root) else local_tree(self._root)
        directories = []
        for name, path, is_directory in sorted(tree.entries):
            if is_index_file(name):
                continue
            if not is_directory:
                notes.ignore(path, ", which is not a directory")
            elif synsets is not None and name not in synsets:
                notes.ignore(path, ", which is not among the synsets")
            else:
                directories.append(name)
        self.synsets = directories if synsets is None else synsets
        present = set(directories)
        items: list[tuple[str, int]] = []
        empty = []
        for label, name in enumerate(self.synsets):
            before = len(items)
            if name in present:
                for image, path in sorted(tree.files(name)):
                    suffix = os.path.splitext(image)[1]
                    if suffix.lower() in IMAGE_SUFFIXES:
                        items.append((path, label))
                    else:
                        # Folders have no suffix; a call of stat for every file would take far longer.
                        why = (
                            f" of type {suffix}"
                            if suffix
                            else ", which is a folder, or a file without a suffix"
                        )
                        notes.ignore(path, why, f" {self._supported}")
            if len(items) == before:
                empty.append(name)
        if self._notes_singly:
            notes.add_each()
        elif items:
            notes.add_count(self._root)
        if not items:
            notes.messages.append(
                f"There are no images in {self._root}, so this dataset is empty: it must have one folder per class, "
                f"and in each the {', '.join(IMAGE_SUFFIXES)} files of that class; {self._what_is_there(tree)}"
            )
        elif empty:
            notes.messages.append(
                f"{len(empty)} of {len(self.synsets)} classes have no images ({', '.join(empty[:5])}), but "
                "are numbered like the others. Pass synsets=[...] to choose and number the classes."
            )
        return items

    def _what_is_there(self, tree: _Tree) -> str:
        """Describe the entries of a folder without images in its classes, and how to find the right folder."""
        files = [name for name, _, is_folder in tree.entries if not is_folder]
        if any(name.lower().endswith(IMAGE_SUFFIXES) for name in files):
            return "it has images itself: pass the folder above it, or move them into a folder for each class"
        for name, path, is_folder in sorted(tree.entries):
            inside = sorted(tree.files(name)) if is_folder else []
            inner = next((at for _, at in inside if os.path.isdir(at) and os.access(at, os.R_OK)), None)
            if inner and any(entry.lower().endswith(IMAGE_SUFFIXES) for entry in os.listdir(inner)):
                return f"{path} has such folders: pass it instead"
        return f"it has {len(tree.entries) - len(files):,} folders and {len(files):,} files"

    def _list_objects(self) -> _Tree:
        from aioloader.storage.remote.opening import list_folder

        folder = list_folder(self._root)
        entries = [(name, join(self._root, name), True) for name in folder.folders]
        entries += [(name, join(self._root, name), False) for name in folder.files]
        objects: dict[str, list[tuple[str, str]]] = {}
        for name, found in folder.folders.items():
            at = join(self._root, name)
            objects[name] = [(image, join(at, image)) for image, _ in found]
            self._versions.update((join(at, image), version) for image, version in found)
        return _Tree(entries, lambda name: objects[name])

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_labels": None}

    def __len__(self) -> int:
        return len(self._items)

    @property
    def decoder(self) -> ImageFileDecoder:
        crops = self._crops.open(self._paths)
        return self._decoder if crops is None else replace(self._decoder, crops=crops)

    def _paths(self) -> list[str]:
        return [path for path, _ in self._items]

    def open_source(self) -> FetchingByteSource:
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
        return self._all_labels().copy()

    def class_names(self) -> list[str]:
        """Return the `synsets`."""
        return list(self.synsets)

    def location(self, index: int) -> ItemLocation:
        return ItemLocation(None, redact_url(self._items[index][0]), None)

    def file_nbytes(self, index: int) -> int:
        version = self._versions.get(self._items[index][0])
        return super().file_nbytes(index) if version is None else version.nbytes


def whole_files(indices: IntArray) -> Spans:
    """Return spans of whole files; item i is file i."""
    return Spans(indices, np.zeros(len(indices), np.int64), np.full(len(indices), WHOLE_FILE, np.int64))
