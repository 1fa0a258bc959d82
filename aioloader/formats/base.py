"""Formats of data sets: what each one knows, and the registry that everything else asks."""

from __future__ import annotations

import glob
import importlib
import inspect
import os
import re
import threading
import warnings
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from aioloader.storage.urls import is_url, join

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from importlib.metadata import EntryPoint

    from aioloader.datasets.files import FileDataset
    from aioloader.formats.collection import Collection
    from aioloader.formats.inspection import Inspection, Options
    from aioloader.foundation.types import Array

RECORD_SUFFIX = ".rec"
"""Suffix of record files, which `aioloader pack` writes."""

ENTRY_POINTS = "aioloader.formats"
"""Group of the entry points by which other distributions add formats."""

HEAD_NBYTES = 512
"""First bytes of a file that `Format.recognizes` gets: one block of a tar file."""

INDEX_NBYTES = 1 << 16
"""First bytes of the index of a folder that it gets."""

PATTERN = "train-*.tar"
"""Example of a pattern for the help of commands."""

_NUMBERED = re.compile(r"(.+)-\d{5,}-of-\d{5,}", re.DOTALL)
# Asked in this order; the last ones are folders that no other format recognizes.
_OWN = ("recordio", "insightface", "tar", "parquet", "tfrecord", "mds", "folder")
# What a path alone does not open; commands read it.
_OF_COMMANDS = ("list", "arrays")


class Requirement(NamedTuple):
    """Package that a format, or a part of one, needs.

    Attributes:
        what: the format, or the part.
        package: that reads it.
        extra: of aioloader that installs it; "" for a format of another distribution.
    """

    what: str
    package: str
    extra: str


class PublishedSet(NamedTuple):
    """Well-known data set.

    Attributes:
        classes: names of the classes.
        parts: images, uint8 (n, height, width, channels), and labels, (n,), by the name of the part.
    """

    classes: tuple[str, ...]
    parts: dict[str, tuple[Array, Array]]


class Folder:
    """Entries of a folder, local or at a URL, without hidden ones.

    Args:
        path: of the folder, or its URL.
        folders, files: names of its entries.
        read: returns the first bytes of a file.

    Attributes:
        path: as given.
        folders, files: names of its entries, sorted.
    """

    def __init__(
        self, path: str, folders: Iterable[str], files: Iterable[str], read: Callable[[str, int], bytes]
    ) -> None:
        self.path = path
        self.folders = sorted(folders)
        self.files = sorted(files)
        self._read = read

    def at(self, name: str) -> str:
        """Return the path of an entry."""
        return join(self.path, name) if is_url(self.path) else os.path.join(self.path, name)

    def pattern(self, name: str) -> str:
        """Return a pattern for entries, or the path of one."""
        return self.at(name) if is_url(self.path) else os.path.join(glob.escape(self.path), name)

    def head(self, name: str, nbytes: int = HEAD_NBYTES) -> bytes:
        """Return the first bytes of one of its files.

        Raises:
            OSError: it cannot be read.
        """
        return self._read(self.at(name), nbytes)


class Format:
    """Base class of formats. One object describes one format; `register`, or an entry point, makes it known.

    A format knows how its files are recognized and opened. Commands work through the dataset that `open` returns.

    Attributes:
        name: of the format, such as "LMDB".
        suffixes: of the names of its files, in lower case, such as (".lmdb",).
        extra: what `pip install` is to be given where a package is missing, such as "aioloader[parquet]"; None: the
            format needs no package.
        text: description for lists of what can be read; "": made of name and suffixes.
        noun: what its samples are called.
        has_fields: its samples have named fields, which commands read from `FileDataset.as_shards`. False: they are
            images with labels, and the format defines `inspect`, `collection` or both.
        has_shards: a data set may be several files, which `open` takes; False: one path, that of a file or a folder.
        index: name of the file by which a folder is a data set; None: there is none.
        part_suffixes: of the files of its folders, which are not opened alone.
        packs_images: its files may be a packed copy of the images of the folder that they are in.
        scanned: its files get an index of their samples, which is made by scanning them.
        requirements: packages that it, or a part of it, needs.
        folder_text: description of its folders for the help of commands; "" if it has none.
        pack_example: arguments of `aioloader pack` that pack its files, and a few words about them; "": none.
        no_packing: why `aioloader pack` refuses its data sets; "": it packs them.
        sets: names of published data sets that `published_set` loads.
    """

    name: ClassVar[str] = ""
    suffixes: ClassVar[tuple[str, ...]] = ()
    extra: ClassVar[str | None] = None
    text: ClassVar[str] = ""
    noun: ClassVar[str] = "samples"
    has_fields: ClassVar[bool] = True
    has_shards: ClassVar[bool] = False
    index: ClassVar[str | None] = None
    part_suffixes: ClassVar[tuple[str, ...]] = ()
    packs_images: ClassVar[bool] = False
    scanned: ClassVar[bool] = False
    requirements: ClassVar[tuple[Requirement, ...]] = ()
    folder_text: ClassVar[str] = ""
    pack_example: ClassVar[str] = ""
    no_packing: ClassVar[str] = ""
    sets: ClassVar[tuple[str, ...]] = ()

    def recognizes(self, path: str, head: bytes) -> bool:
        """Return True if a file or folder is of this format; called where its name does not show it.

        Args:
            path: of the file or local folder.
            head: the first `HEAD_NBYTES` bytes of a file; b"" for a folder.
        """
        return False

    def contains(self, path: str) -> tuple[str, ...] | None:
        """Return the paths that `open` takes if a local file is a part of a folder of this format; else None.

        A format of an entry point is not asked about a file with a suffix of a format of this package.
        """
        return (os.path.dirname(path) or os.curdir,) if os.path.basename(path) == self.index else None

    def in_folder(self, folder: Folder) -> tuple[str, ...] | None:
        """Return the paths that `open` takes if a folder as a whole is a data set of this format; else None.

        Raises:
            OSError: the folder cannot be read.
        """
        if self.index is not None:
            fits = self.index in folder.files and self.recognizes(
                folder.at(self.index), folder.head(self.index, INDEX_NBYTES)
            )
        else:
            fits = not is_url(folder.path) and self.recognizes(folder.path, b"")
        return (folder.path,) if fits else None

    def dataset(self) -> Callable[..., FileDataset]:
        """Return the class of its datasets, whose first argument is a path or several; or override `open`."""
        raise NotImplementedError(f"the format {self.name} has neither dataset() nor open()")

    def open(self, paths: Sequence[str], **options: Any) -> FileDataset:
        """Return the dataset of files or a folder.

        Args:
            paths: the files, or the folder; or URLs.
            options: of the dataset.

        Raises:
            TypeError: there is no such option.
            ValueError: an option is not allowed, or the files are not of this format.
            OSError: they cannot be read.
        """
        return self.dataset()(paths if len(paths) > 1 else paths[0], **options)

    def options(self) -> tuple[str, ...] | None:
        """Return the names of the options that `open` takes; None: any."""
        own = type(self).open is not Format.open
        parameters = inspect.signature(self.open if own else self.dataset()).parameters.values()
        if any(each.kind is each.VAR_KEYWORD for each in parameters):
            return None
        return tuple(each.name for each in parameters)[1:]

    def reader(self) -> str:
        """Return the name of what reads it, for errors."""
        return type(self).__name__ if type(self).open is not Format.open else self.dataset().__name__

    def describe(self) -> str:
        """Return the description for lists of what can be read."""
        return self.text or f"{self.name} ({', '.join(self.suffixes)})"

    # -- for the commands; of formats whose samples have no named fields ---------------------------------------------

    def collection(
        self, paths: Sequence[str], *, path: str, max_pixels: int | None, labelled: bool = True
    ) -> Collection:
        """Return the records for `aioloader view`.

        Args:
            paths: the files, or the folder; or URLs.
            path: as the user passed it.
            max_pixels: larger images are refused; None for no limit.
            labelled: False: the images of the folder have no labels.

        Raises:
            OSError: the files cannot be read.
        """
        raise NotImplementedError(f"the format {self.name} has neither named fields nor collection()")

    def inspect(self, path: str, paths: Sequence[str], options: Options) -> Inspection | None:
        """Describe a data set for `aioloader inspect`; return None if a local file is not of this format.

        Args:
            path: as the user passed it.
            paths: the files, or the folder; or URLs.
            options: of the command.

        Raises:
            OSError: the files cannot be read.
            ValueError: they are damaged.
        """
        raise NotImplementedError(f"the format {self.name} has neither named fields nor inspect()")

    def published_set(self, name: str, folder: str | os.PathLike[str]) -> PublishedSet:
        """Load a set for `aioloader pack`.

        Args:
            name: one of `sets`.
            folder: of its published files.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: a file is damaged.
        """
        raise NotImplementedError(f"the format {self.name} has no sets")


# -- the registry ------------------------------------------------------------------------------------------------------

_lock = threading.Lock()
_registered: list[Format] = []
_known: tuple[Format, ...] = ()


def register(format: Format) -> None:
    """Make a format known to this process, with its suffixes.

    A distribution adds a format to every process with an entry point of the group "aioloader.formats" that names an
    object of its class.

    Args:
        format: asked after this package's formats.

    Raises:
        TypeError: it is not a `Format`.
        ValueError: it has no name, or its name or a suffix is that of another format, or a suffix does not begin with a
            dot.
    """
    _check(format)
    with _lock:
        global _known
        for other in _registered:
            if other.name == format.name and type(other) is type(format):
                return
        _refuse_taken(format, (*_own(), *_registered))
        _registered.append(format)
        _known = ()


def formats() -> tuple[Format, ...]:
    """Return all formats: this package's, those of entry points, and those that were registered."""
    global _known
    with _lock:
        if not _known:
            from importlib import metadata  # takes as long as a tenth of NumPy's import

            found = list(_own())
            for point in metadata.entry_points(group=ENTRY_POINTS):
                found.extend(_of_entry_point(point, found))
            _known = (*found, *(each for each in _registered if each not in found))
        return _known


def formats_for(name: str) -> tuple[Format, ...]:
    """Return the formats that may have a file of a name: not those of entry points for a suffix of this package.

    Args:
        name: or path; ``NAME.tfrecord-00000-of-00004`` has the suffix .tfrecord.
    """
    suffix, own = _suffix(name), _own()
    return (*own, *_registered) if any(suffix in each.suffixes for each in own) else formats()


def format_of_name(name: str) -> Format | None:
    """Return the format of a file by the suffix of its name; None if the name does not show it.

    Args:
        name: as for `formats_for`.
    """
    suffix = _suffix(name)
    return next((each for each in formats_for(name) if suffix in each.suffixes), None) if suffix else None


def _suffix(name: str) -> str:
    numbered = _NUMBERED.fullmatch(name)
    return os.path.splitext(name if numbered is None else numbered[1])[1].lower()


def supported() -> str:
    """Return a list of what can be read, for messages."""
    return "; ".join(each.describe() for each in formats())


def in_words(names: Iterable[str], last: str = "or") -> str:
    """Return names as a list in a sentence: "a, b or c"."""
    *first, final = names
    return f"{', '.join(first)} {last} {final}" if first else final


def usual_formats() -> list[Format]:
    """Return this package's formats for texts: files before folders, with named fields before without, and so on.

    Of files, those that need no package come first.
    """
    return sorted(
        _own(),
        key=lambda each: (
            not each.has_shards,
            not (each.has_shards or each.has_fields),
            each.extra is not None,
        ),
    )


def files_text() -> str:
    """Return the suffixes of files for the help of commands: "a .a, .b or .c file"."""
    return f"a {in_words(each.suffixes[0] for each in usual_formats() if each.suffixes)} file"


def folders_text() -> list[str]:
    """Return descriptions of folders for the help of commands: those with named fields first, class folders last."""
    return [each.folder_text for each in usual_formats() if each.folder_text]


def help_words() -> dict[str, str]:
    """Return words for the list of commands: the suffix of record files, and formats whose files are scanned."""
    usual = usual_formats()
    return {
        "record": RECORD_SUFFIX,
        "scanned": in_words((each.name for each in usual if each.scanned), "and"),
    }


def names_with_fields() -> list[str]:
    """Return the names of this package's formats whose samples have named fields."""
    return [each.name for each in usual_formats() if each.has_fields]


def folder_of_part(name: str) -> Format | None:
    """Return the format that has folders with files of a name, which are not opened alone; None without one."""
    suffix = os.path.splitext(name)[1].lower()
    return next((each for each in formats() if suffix in each.part_suffixes), None)


def is_numbered(name: str) -> bool:
    """Return True for a name such as ``train-00000-of-01024``, which has no suffix and may be that of a shard."""
    return _NUMBERED.fullmatch(name) is not None


def format_of_head(path: str, head: bytes) -> Format | None:
    """Return the format of a file by its first bytes; None for any other file.

    Args:
        path: of the file.
        head: its first `HEAD_NBYTES` bytes, or all of a shorter file.
    """
    return next((each for each in formats() if each.recognizes(path, head)), None) if head else None


def record_format() -> Format:
    """Return the format of record files."""
    return _own(("recordio",))[0]


def image_folder() -> Format:
    """Return the format of folders with images."""
    return _own(("folder",))[0]


def list_format() -> Format:
    """Return the format of lists of images."""
    return formats_of_commands()[0]


def published_sets() -> dict[str, Format]:
    """Return the formats of well-known sets by the names of these."""
    return {name: each for each in formats_of_commands() for name in each.sets}


def formats_of_commands() -> tuple[Format, ...]:
    """Return the formats that commands read, and that are not opened by a path alone."""
    return _own(_OF_COMMANDS)


def _own(names: tuple[str, ...] = _OWN) -> tuple[Format, ...]:
    modules = (importlib.import_module(f"aioloader.formats.{name}.format") for name in names)
    return tuple(module.FORMAT for module in modules)


def _of_entry_point(point: EntryPoint, before: Sequence[Format]) -> list[Format]:
    """Return the format that an entry point names; with a warning, nothing if it cannot be used."""
    try:
        found = point.load()
        _check(found)
        _refuse_taken(found, before)
    except Exception as error:
        warnings.warn(
            f"the format {point.name!r} of {point.value} cannot be used: {type(error).__name__}: {error}",
            RuntimeWarning,
            stacklevel=4,
        )
        return []
    return [found]


def _check(format: object) -> None:
    if not isinstance(format, Format):
        raise TypeError(
            f"a format is an object of a class derived from aioloader.formats.Format, got {format!r}"
        )
    if not format.name:
        raise ValueError(f"{type(format).__name__} has no name: set the attribute `name`")
    for suffix in format.suffixes:
        if not suffix.startswith(".") or suffix != suffix.lower():
            raise ValueError(
                f"the suffix {suffix!r} of the format {format.name} must begin with a dot and be in lower case"
            )


def _refuse_taken(format: Format, others: Sequence[Format]) -> None:
    for other in others:
        if other.name == format.name:
            raise ValueError(f"there is a format {format.name!r} already: {type(other).__module__}")
        taken = set(other.suffixes) & set(format.suffixes)
        if taken:
            raise ValueError(f"the suffix {min(taken)!r} of {format.name} is that of the format {other.name}")
