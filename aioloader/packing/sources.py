"""Sources for packing: the images and labels of a folder, a list, a well-known set or a dataset; their common types."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aioloader.errors import AmbiguousPathError, EmptyDatasetError, UnknownFormatError
from aioloader.formats.base import format_of_name, image_folder, list_format, published_sets
from aioloader.formats.foreign import IMAGE_SUFFIXES, foreign_name
from aioloader.formats.image_files import ImageFiles, checked_synsets, find_images
from aioloader.formats.opening import Recognized, head_of, make_dataset, of_several_splits, recognize
from aioloader.formats.packed_files import inside_root, read_list
from aioloader.packing.lists import Listed, label_fault
from aioloader.packing.samples import Samples
from aioloader.storage.urls import is_url, path_of, redact_url

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.datasets.shard_dataset import ShardDataset
    from aioloader.foundation.types import Array
    from aioloader.packing.options import PackOptions

_KEYS = 1 << 64


@dataclass
class Source:
    """Images to be packed.

    Attributes:
        kind: "folder", "list", the name of a set, or of the format of `samples`.
        path: path of the source as the caller passed it.
        items: the images, in the order of the source; empty if there are `samples`.
        paths: the file of each image; empty if the images are in memory, or if there are `samples`.
        images: uint8 (n, height, width, channels) if they are in memory, else None.
        samples: the images with their labels, if they are read from a dataset while they are packed; else None.
        classes: names of the classes; a label is the index of its class here.
        parts: number of images of each part by its name, if the source itself is divided.
        lst: path of the list, if the source is one.
        outside: number of images in the folder that do not belong to a class.
        empty: names of classes without images.
        left_out: number of the other entries of the folder that are not read, by reason.
    """

    kind: str
    path: str
    items: Sequence[Listed] = ()
    paths: Sequence[str] = ()
    images: Array | None = None
    samples: Samples | None = None
    classes: tuple[str, ...] = ()
    parts: dict[str, int] = field(default_factory=dict)
    lst: Path | None = None
    outside: int = 0
    empty: tuple[str, ...] = ()
    left_out: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.items) if self.samples is None else len(self.samples)

    def item(self, number: int) -> Listed:
        """Return key, labels and name of an image; one of `samples` has no labels before it is read."""
        return self.items[number] if self.samples is None else self.samples.listed(number)

    def place(self, number: int) -> str:
        """Return the name of an image for error messages: its file, or its name in the set or in its file."""
        if self.samples is not None:
            return self.samples.place(number)
        return self.paths[number] if self.paths else f"{self.path}:{self.items[number].path}"


class Listing(NamedTuple):
    """Digest and mean size of a source's files.

    Attributes:
        digest: SHA-256 of all names, labels, keys, sizes and modification times (or of the pixels in memory; or of the
            states of the files of samples).
        mean_nbytes: mean size of an image in bytes.
    """

    digest: str
    mean_nbytes: int


def examine(source: Source) -> Listing:
    """Read the size and modification time of every file; a missing file is reported later, when it is read."""
    digest = hashlib.sha256()
    if source.samples is not None:
        for fact in source.samples.facts():
            digest.update(repr(fact).encode("utf-8", "surrogatepass"))
        return Listing(digest.hexdigest(), source.samples.mean_nbytes())
    total = 0
    for number, item in enumerate(source.items):
        facts: tuple[object, ...] = ()
        if source.paths:
            path = source.paths[number]
            try:
                status = os.stat(path)
            except OSError:
                facts = (path,)
            else:
                facts = (path, status.st_size, status.st_mtime_ns)
                total += status.st_size
        digest.update(repr((item.path, item.labels, item.key, *facts)).encode("utf-8", "surrogatepass"))
    if source.images is not None:
        digest.update(repr(source.images.shape).encode())
        digest.update(np.ascontiguousarray(source.images).data)
        total = source.images.nbytes
    return Listing(digest.hexdigest(), total // max(1, len(source.items)))


# -- the source of a call ----------------------------------------------------------------------------------------------


def find_source(source: str | os.PathLike[str], options: PackOptions) -> Source:
    """Return the images of a source.

    Raises:
        FileNotFoundError, NotADirectoryError, UnknownFormatError, AmbiguousPathError, EmptyDatasetError, OSError: as
            for `aioloader.tools.pack.pack`.
        TypeError: an option is for other sources.
        ValueError: a name cannot be written to a list, or an option is not allowed.
    """
    found = _find_source(path_of(source), options)
    if options.synsets is not None and found.kind != "folder":
        raise TypeError(f"synsets number the classes of a folder of images, and the source is {found.kind}")
    return found


def _find_source(name: str, options: PackOptions) -> Source:
    kind, root, synsets = options.kind, options.root, options.synsets
    is_list = kind is None and _is_list(name)
    if root is not None and not is_list:
        raise ValueError(f"root can only be used with a list, and {name!r} is not one")
    if is_list:
        options.refuse_fields("a list")
        if not os.path.exists(name):
            raise FileNotFoundError(f"there is no list {name!r}")
        return list_source(name, root)
    if kind is not None:
        options.refuse_fields(f"a {kind}" if kind == "folder" else kind)
        return folder_source(name, synsets) if kind == "folder" else set_source(kind, name)
    folder = not is_url(name) and os.path.isdir(name)
    try:
        found = _recognized(name)
    except (UnknownFormatError, AmbiguousPathError) as error:
        if not folder or (isinstance(error, AmbiguousPathError) and not error.nested):
            raise
        return _deep_folder(name, options, error)
    if folder and found.format is image_folder():
        options.refuse_fields("a folder of images")
        return folder_source(name, synsets)
    if found.format.no_packing:
        raise ValueError(f"{redact_url(name)!r} {found.format.no_packing}")
    dataset = make_dataset(found, options.dataset)
    shards: ShardDataset | None = dataset.as_shards()
    if shards is not None and (options.kept or options.no_label):
        # Formats with columns read only those that were asked for.
        names = (shards.image_field, *([] if options.no_label else [shards.label_field]), *options.kept)
        dataset = make_dataset(
            found, {**options.dataset, "image": names[0], "fields": tuple(dict.fromkeys(names))}
        )
    if not len(dataset):
        raise EmptyDatasetError(redact_url(name), len(found.paths))
    samples = Samples(dataset, labelled=not options.no_label, fields=options.kept)
    return Source(found.format.name, redact_url(name), samples=samples, classes=samples.classes)


def _is_list(path: str) -> bool:
    """Return True for the name of a list, and for a file that begins like one and whose name shows no other format."""
    if is_url(path):
        return False
    named = format_of_name(path) is not None or foreign_name(path) is not None
    head = head_of(path) if os.path.isfile(path) and not named else b""
    return list_format().recognizes(path, head)


def _recognized(path: str) -> Recognized:
    """Return the data set at a path.

    Raises:
        FileNotFoundError, UnknownFormatError, AmbiguousPathError, OSError: as for `pack`.
    """
    try:
        return recognize(path)
    except AmbiguousPathError as error:
        if not error.images:
            raise
        advice = "; or kind='folder' (--from folder) for the images"
        raise AmbiguousPathError(
            error.path, error.choices, error.reason, images=True, advice=advice
        ) from None


def _deep_folder(
    path: str,
    options: PackOptions,
    error: UnknownFormatError | AmbiguousPathError,
) -> Source:
    """Return the images of a folder that only lie deeper than in its sub-folders.

    Raises:
        UnknownFormatError, AmbiguousPathError: it has none; this is `error`, which describes what it has.
        AmbiguousPathError: its sub-folders are splits, and not classes.
    """
    try:
        found = folder_source(path, options.synsets)
    except UnknownFormatError:
        raise error from None
    if options.synsets is None and of_several_splits(found.classes):
        raise AmbiguousPathError(
            path,
            [os.path.join(path, name) for name in found.classes],
            "folders of images of several splits",
            nested=True,
            advice="; or kind='folder' (--from folder) for all images, where each of these folders is one class",
        ) from None
    options.refuse_fields("a folder of images")
    return found


# -- folders -----------------------------------------------------------------------------------------------------------


def list_images(source: str | os.PathLike[str]) -> tuple[tuple[str, ...], list[tuple[Path, int]]]:
    """Find the images of a folder, in a fixed order: classes by name, then files by path.

    The images and classes are those of `aioloader.ImageFolderDataset`. Images outside sub-folders are listed only if
    there are no others, with label 0.

    Args:
        source: the folder.

    Returns:
        the names of the classes, and (path, label) of every image.

    Raises:
        NotADirectoryError: `source` is not a folder.
        UnknownFormatError: it has no images; the error is a ValueError.
    """
    found = _found(os.fspath(source))
    return tuple(found.classes), [(Path(path), label) for path, label in found.items]


def folder_source(source: str | os.PathLike[str], synsets: Sequence[str] | None = None) -> Source:
    """Return the images of a folder as a source; see `list_images` for their order and classes.

    Args:
        source: the folder.
        synsets: names of the classes in the order of their numbers; None: all folders.

    Raises:
        NotADirectoryError, UnknownFormatError: as `list_images`.
        ValueError: a name contains a TAB or a line break.
        OSError: a folder cannot be read.
    """
    root = os.fspath(source)
    found = _found(root, synsets)
    begin = len(os.path.join(root, ""))
    labels = [(float(label),) for label in range(max(1, len(found.classes)))]
    items = []
    for path, label in found.items:
        name = path[begin:]
        if "\t" in name or "\n" in name or "\r" in name:
            raise ValueError(f"a list cannot contain the name {name!r}: rename the file")
        items.append(Listed(None, labels[label], name.replace(os.sep, "/")))
    return Source(
        "folder",
        root,
        items,
        [path for path, _ in found.items],
        classes=tuple(found.classes),
        outside=len(found.loose),
        empty=found.empty,
        left_out=dict(found.left_out.reasons),
    )


def _found(root: str, synsets: Sequence[str] | None = None) -> ImageFiles:
    """Return the images of a folder; if they all lie outside sub-folders, without classes.

    Raises:
        NotADirectoryError, UnknownFormatError, OSError: as `folder_source`.
    """
    if not os.path.isdir(root):
        raise NotADirectoryError(f"there is no folder {root!r}")
    found = find_images(root, checked_synsets(synsets))
    if found.items:
        return found
    if not found.loose or synsets is not None:
        raise UnknownFormatError(root, f"a folder without images ({', '.join(sorted(IMAGE_SUFFIXES))})")
    return replace(found, classes=[], items=[(path, 0) for path in found.loose], loose=[])


# -- lists -------------------------------------------------------------------------------------------------------------


def list_source(lst: str | os.PathLike[str], root: str | os.PathLike[str] | None = None) -> Source:
    """Return the images of a list as a source, in its order; its ids become keys.

    A line has an id, labels and a path, separated by TABs.

    Args:
        lst: the .lst file.
        root: the folder that its paths are relative to; None: the folder of the list.

    Raises:
        FileNotFoundError, NotADirectoryError: there is no such list, or no such folder.
        ValueError: a line is malformed, an id occurs twice, a label is NaN or a number that float32 does not have, or a
            path leads out of the root.
    """
    place = Path(lst)
    folder = place.parent if root is None else Path(root)
    if not folder.is_dir():
        raise NotADirectoryError(f"there is no folder {str(folder)!r}")
    items, paths = [], []
    seen: set[int] = set()
    for key, labels, name in read_list(str(place)).rows():
        if not 0 <= key < _KEYS:
            raise ValueError(f"{place}: the id {key} is not between 0 and 2**64 - 1")
        if key in seen:
            raise ValueError(f"{place}: the id {key} occurs twice; every record needs a unique id")
        seen.add(key)
        fault = next(filter(None, map(label_fault, labels)), "")
        if fault:
            raise ValueError(f"{place}: the label of the id {key} {fault}")
        items.append(Listed(key, tuple(labels), name))
        paths.append(os.path.join(folder, inside_root(name, key)))
    if not items:
        raise ValueError(f"{place} lists no images")
    return Source("list", os.fspath(lst), items, paths, lst=place)


# -- well-known sets, with their published class names -----------------------------------------------------------------


def set_source(name: str, folder: str | os.PathLike[str]) -> Source:
    """Return both parts of a set as a source, the training part first, each in the order of its files.

    Args:
        name: one of "mnist", "fashion-mnist", "cifar10" and "cifar100".
        folder: the folder of its published files.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: there is no such set, a file is damaged, or a label is out of range.
    """
    sets = published_sets()
    if name not in sets:
        raise ValueError(f"there is no set {name!r}: it must be one of {', '.join(sets)}")
    classes, arrays = sets[name].published_set(name, folder)
    items: list[Listed] = []
    for part, (images, labels) in arrays.items():
        if not len(images):
            raise ValueError(f"the {part} part of {name} in {folder} has no images")
        if len(labels) and not 0 <= labels.min() <= labels.max() < len(classes):
            raise ValueError(
                f"the {part} part of {name} in {folder} has labels outside 0 to {len(classes) - 1}"
            )
        items += [Listed(None, (float(label),), f"{part}/{n:05}") for n, label in enumerate(labels.tolist())]
    stacked = np.concatenate([images for images, _ in arrays.values()])
    parts = {part: len(images) for part, (images, _) in arrays.items()}
    return Source(name, str(folder), items, images=stacked, classes=classes, parts=parts)
