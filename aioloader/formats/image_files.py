"""Images of a folder: which of its files are images, and which of its folders are classes.

Every part that reads a folder of images uses this rule, except those with MXNet's names, which have MXNet's: `MXNET`
here, and im2rec's in `aioloader.packing.lists`.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aioloader.crop_index.layout import is_index_file
from aioloader.formats.base import RECORD_SUFFIX
from aioloader.formats.foreign import IMAGE_SUFFIXES, is_image_name
from aioloader.storage.local.descriptors import open_regular
from aioloader.storage.urls import is_url, join
from aioloader.transforms.formats import format_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from aioloader.storage.remote.transport import Version

_HEAD_NBYTES = 512
_MOST_EXAMPLES = 10


@dataclass(frozen=True)
class Rule:
    """Rule for the images and the classes of a folder.

    Attributes:
        suffixes: of images, in lower case.
        by_bytes: a file with no suffix, or with an unknown one, is an image if it begins like one.
        deep: images in folders inside the folder of a class belong to the class; links to such folders do not count.
        hidden: entries whose names begin with a dot, and __MACOSX, are read like others.
    """

    suffixes: frozenset[str] = IMAGE_SUFFIXES
    by_bytes: bool = True
    deep: bool = True
    hidden: bool = False


OWN = Rule()
MXNET = Rule(frozenset({".jpg", ".jpeg", ".png"}), by_bytes=False, deep=False, hidden=True)
"""Rule of `mxnet.gluon.data.vision.ImageFolderDataset`."""


@dataclass
class LeftOut:
    """Entries of a folder that are not read.

    Attributes:
        reasons: number of entries by reason, such as "of type .txt".
        first: path and reason of the first ones; the reason continues a sentence that begins with the path.
    """

    reasons: Counter[str] = field(default_factory=Counter)
    first: list[tuple[str, str]] = field(default_factory=list)

    def add(self, path: str, why: str) -> None:
        """Add an entry; `why` begins with a space or a comma."""
        self.reasons[why.lstrip(", ").removeprefix("which is ")] += 1
        if len(self.first) < _MOST_EXAMPLES:
            self.first.append((path, why))

    @property
    def count(self) -> int:
        """Return the number of entries."""
        return self.reasons.total()


@dataclass
class ImageFiles:
    """Images of a folder.

    Attributes:
        classes: names of the classes in the order of their numbers.
        items: (path, number of the class) of every image of a class.
        loose: images directly in the folder, which belong to no class.
        left_out: the other entries.
        versions: of the objects, if the folder is a URL.
        entries: (name, True for a folder) of all entries of the folder.
    """

    classes: list[str]
    items: list[tuple[str, int]] = field(default_factory=list)
    loose: list[str] = field(default_factory=list)
    left_out: LeftOut = field(default_factory=LeftOut)
    versions: dict[str, Version] = field(default_factory=dict)
    entries: list[tuple[str, bool]] = field(default_factory=list)

    @property
    def empty(self) -> tuple[str, ...]:
        """Return the names of the classes without images."""
        used = {label for _, label in self.items}
        return tuple(name for label, name in enumerate(self.classes) if label not in used)

    def all_images(self, root: str) -> list[str]:
        """Return the images of all classes and the loose ones, sorted by their paths, part by part."""
        paths = [path for path, _ in self.items]
        if not paths or not self.loose:
            return paths or self.loose
        start = len(root)
        return sorted(
            paths + self.loose, key=lambda path: path[start:].split("/" if is_url(root) else os.sep)
        )


def is_hidden(name: str) -> bool:
    """Return True for an entry that is neither an image nor a class: a name with a dot in front, or __MACOSX."""
    return name.startswith(".") or name == "__MACOSX"


def is_image_file(path: str) -> bool:
    """Return True for an image, by its name, or else by its first bytes; of a URL by its name only."""
    name = os.path.basename(path)
    known = False if is_hidden(name) else is_image_name(name)
    try:
        return _begins_like_one(path) if known is None and not is_url(path) else bool(known)
    except OSError:
        return False


def has_loose_images(root: str) -> bool:
    """Return True if a local folder contains an image directly.

    Raises:
        OSError: it cannot be listed.
    """
    with os.scandir(root) as entries:
        return any(not entry.is_dir() and is_image_file(entry.path) for entry in entries)


def checked_synsets(synsets: Sequence[str] | None) -> list[str] | None:
    """Return the names of classes that a caller passed.

    Raises:
        ValueError: they are one text, or name a class twice.
    """
    if synsets is None:
        return None
    if isinstance(synsets, str) or len(set(synsets)) < len(synsets):
        raise ValueError(f"synsets must be a list of different names of classes, got {synsets!r}")
    return list(synsets)


def find_images(root: str, synsets: Sequence[str] | None = None, rule: Rule = OWN) -> ImageFiles:
    """Find the images and the classes of a folder. Blocking.

    Each folder directly in it is a class, also one without images, as in torchvision's ``ImageFolder`` with
    ``allow_empty=True``; classes are numbered by their sorted names. Within a class images are sorted by their paths,
    part by part. Only files with an unknown suffix, or none, are opened; objects at a URL never are.

    Args:
        root: the folder, or its URL.
        synsets: names of the classes in the order of their numbers; None: all folders.
        rule: which entries count.

    Raises:
        FileNotFoundError, NotADirectoryError: there is no such folder.
        OSError: it cannot be listed.
    """
    left_out = LeftOut()
    versions: dict[str, Version] = {}
    objects: dict[str, list[tuple[str, Version]]] = {}
    if is_url(root):
        from aioloader.storage.remote.opening import list_folder

        listing = list_folder(
            root,
            advice="pass a list of the images, aioloader.ImageListDataset(root=URL, imglist=...), or pack them into a "
            f"{RECORD_SUFFIX} file",
        )
        objects = listing.folders
        entries = [(name, True) for name in objects] + [(name, False) for name in listing.files]
    else:
        with os.scandir(root) as listed:
            entries = [(entry.name, entry.is_dir()) for entry in listed]
    entries.sort()
    found = ImageFiles([], left_out=left_out, versions=versions, entries=entries)
    for name, is_folder in entries:
        path = join(root, name) if is_url(root) else os.path.join(root, name)
        if is_index_file(name):
            continue
        if not is_folder:
            if rule.hidden:  # as in MXNet
                left_out.add(path, ", which is not a directory")
            elif _counts(name, path, rule, left_out):
                found.loose.append(path)
        elif not rule.hidden and is_hidden(name):
            left_out.add(path, ", which is hidden")
        elif synsets is not None and name not in synsets:
            left_out.add(path, ", which is not among the synsets")
        else:
            found.classes.append(name)
    present = set(found.classes)
    if synsets is not None:
        found.classes = list(synsets)
    for label, name in enumerate(found.classes):
        if name not in present:
            continue
        if is_url(root):
            images = _in_objects(join(root, name), objects[name], rule, left_out, versions)
        else:
            images = _in_folder(os.path.join(root, name), rule, left_out)
        found.items += [(path, label) for path in images]
    return found


def _in_folder(folder: str, rule: Rule, left_out: LeftOut) -> Iterator[str]:
    """Yield the images in a local folder, and in those inside it."""
    names, folders = [], set()
    with os.scandir(folder) as entries:
        for entry in entries:
            names.append(entry.name)
            # Needs no call of stat, which for every file would take far longer than the listing.
            if entry.is_dir(follow_symlinks=False):
                folders.add(entry.name)
    names.sort()
    begin = os.path.join(folder, "")
    suffixes, hidden = rule.suffixes, rule.hidden
    for name in names:
        dot = name.rfind(".")
        if dot > 0 and name[dot:].lower() in suffixes and (hidden or name[0] != ".") and name not in folders:
            yield begin + name
        elif name in folders and rule.deep and not is_hidden(name):
            yield from _in_folder(begin + name, rule, left_out)
        elif name in folders:
            left_out.add(begin + name, ", which is hidden" if rule.deep else ", which is a folder")
        elif _counts(name, begin + name, rule, left_out):
            yield begin + name


def _in_objects(
    url: str,
    objects: Iterable[tuple[str, Version]],
    rule: Rule,
    left_out: LeftOut,
    versions: dict[str, Version],
) -> Iterator[str]:
    """Yield the images among the objects below a URL."""
    for inner, version in sorted(objects, key=lambda item: item[0].split("/")):
        path = join(url, inner)
        *folders, name = inner.split("/")
        if not rule.deep and folders:
            continue
        if not rule.hidden and any(map(is_hidden, folders)):
            left_out.add(path, ", which is hidden")
        elif _counts(name, path, rule, left_out):
            versions[path] = version
            yield path


def _counts(name: str, path: str, rule: Rule, left_out: LeftOut) -> bool:
    """Return whether a file is an image; add it to `left_out` if not."""
    suffix = os.path.splitext(name)[1]
    if not rule.hidden and is_hidden(name):
        left_out.add(path, ", which is hidden")
        return False
    if suffix.lower() in rule.suffixes:
        return True
    if rule.by_bytes and is_image_name(name) is None:
        if is_url(path):
            left_out.add(
                path, ", which is an object without a suffix of images (pass a list of images to read such)"
            )
            return False
        if os.path.islink(path) and os.path.isdir(path):
            left_out.add(path, ", which is a link to a folder")
            return False
        try:
            if _begins_like_one(path):
                return True
        except OSError:
            left_out.add(path, ", which is a file without a suffix of images that cannot be read")
            return False
    left_out.add(path, f" of type {suffix}" if suffix else ", which is a file without a suffix")
    return False


def _begins_like_one(path: str) -> bool:
    with os.fdopen(open_regular(path), "rb", buffering=0) as file:
        return format_of(file.read(_HEAD_NBYTES)) is not None
