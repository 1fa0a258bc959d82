"""Opening of a path as a dataset: what is there decides on the class."""

from __future__ import annotations

import glob
import os
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from aioloader.crop_index.lookup import AUTO
from aioloader.datasets.files import opens_offline
from aioloader.datasets.shards import is_pattern, pinned_path, record_files
from aioloader.errors import AmbiguousPathError, ObjectMissingError, RemoteReadError, UnknownFormatError
from aioloader.formats.base import (
    HEAD_NBYTES,
    INDEX_NBYTES,
    Folder,
    Format,
    format_of_head,
    format_of_name,
    formats,
    formats_for,
    image_folder,
    is_numbered,
    supported,
)
from aioloader.formats.foreign import (
    IMAGE_SUFFIXES,
    Foreign,
    foreign_bytes,
    foreign_index,
    foreign_name,
    is_image_name,
)
from aioloader.formats.foreign import INDEXES as FOREIGN_INDEXES
from aioloader.formats.image_files import is_hidden, is_image_file
from aioloader.storage.local.descriptors import open_regular
from aioloader.storage.urls import WEB, is_url, join, name_of, path_of, redact_url, scheme_of, sibling

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TypeAlias

    from aioloader.datasets.files import FileDataset

    Paths: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"

# Sub-folders that are searched for images or shards, and entries of each: listing one at a URL takes a request, and
# listing all images of a large local set takes seconds.
_MOST_SEARCHED = 1000
_MOST_SEARCHED_AT_URL = 16
_MOST_ENTRIES = 256
_MOST_NAMED = 8
# Kinds of errors with which servers answer for a folder: a generated page of its files, or none.
_FOLDER_ANSWERS = ("unranged", "denied")
_IMAGES = "sub-folders of images (aioloader.ImageFolderDataset reads them)"


@dataclass(frozen=True)
class Recognized:
    """Data set at a path.

    Attributes:
        format: of the data set.
        paths: its files, or their URLs, in order; of a format that is a folder, the folder.
    """

    format: Format
    paths: tuple[str, ...]


@opens_offline
def open_dataset(path: Paths, **options: Any) -> FileDataset:
    """Return the dataset of the files or the folder at a path, of the class that reads their format.

    Args:
        path: one of: a file of a format in `aioloader.formats`; a pattern (``train-*.SUFFIX``), a brace range
            (``train-{000..127}.SUFFIX``) or a list of files of one format; a folder with files of one format, a folder
            that is a data set of a format, or one with a sub-folder of images for each class; or the URL of any of
            these. A file with another suffix is recognized by its first bytes.
        options: of the class, such as ``image``, ``label``, ``fields``, ``crop_index`` or ``cache``.

    Returns:
        a dataset of the format's class; see the page Formats of the documentation.

    Raises:
        FileNotFoundError: there is nothing at the path.
        UnknownFormatError: it is of a format that is not read; the error is a ValueError and names what helps.
        AmbiguousPathError: a folder contains files of several formats or splits; the error is a ValueError and has
            the choices.
        TypeError: the class does not have an option.
        ValueError: an option is not allowed, or a folder has no images.
        OSError: the path cannot be read.
    """
    return make_dataset(recognize(path, labelled=options.get("label", AUTO) is not None), options)


def recognize(path: Paths, *, labelled: bool = True) -> Recognized:
    """Return the format and the files of the data set at a path, without opening it.

    Names are enough for most paths. Up to 512 bytes of a file with another suffix are read, and folders are listed.

    Args:
        path: as for `open_dataset`.
        labelled: False: a folder of images need not have a sub-folder for each class.

    Raises:
        FileNotFoundError, UnknownFormatError, AmbiguousPathError, OSError: as for `open_dataset`.
    """
    if not isinstance(path, (str, os.PathLike)):
        if not isinstance(path, Iterable):
            raise TypeError(
                f"path must be a path or a list of paths, got {path!r}; pass a dataset to AsyncDataLoader or "
                "DataLoader"
            )
        return _one_format(_files(path))
    name = path_of(path)
    if is_pattern(name):
        return _one_format(_files(name))
    if is_url(name):
        return _at_url(pinned_path(name), labelled)
    if not os.path.exists(name):
        raise FileNotFoundError(f"there is no file or folder {name!r}")
    return _in_folder(name, labelled) if os.path.isdir(name) else _of_file(name)


def make_dataset(found: Recognized, options: dict[str, Any]) -> FileDataset:
    """Return the dataset of a data set that `recognize` found.

    Args:
        found: the data set.
        options: of its class.

    Raises:
        TypeError: the class does not have an option.
        ValueError: an option is not allowed, or a folder has no images.
        OSError: the files cannot be read.
    """
    known = found.format.options()
    for name in options:
        if known is not None and name not in known:
            raise TypeError(
                f"{redact_url(found.paths[0])!r} is read by {found.format.reader()}, which has no option {name!r}; "
                f"it has {', '.join(known)}"
            )
    dataset = found.format.open(found.paths, **options)
    if found.format is image_folder() and not len(dataset):
        raise _no_images(found.paths[0])
    return dataset


# -- files -------------------------------------------------------------------------------------------------------------


def _files(path: Paths) -> tuple[str, ...]:
    files = record_files(path)
    for file in files:
        if not is_url(file) and os.path.isdir(file):
            raise _one_set(file, "folder")
    return files


def _one_set(path: str, what: str) -> ValueError:
    """Return the error for a list or a pattern of what is a data set alone."""
    return ValueError(
        f"{path!r} is a {what}, and a list or a pattern may name shards only: pass it alone, or several as "
        "aioloader.ConcatDataset([aioloader.open_dataset(path) for path in PATHS]) to a loader. Labels stay as they "
        "are: where label 0 of each is another class, add the number of the classes before it, "
        "open_dataset(path).transform(lambda image, label: (image, label + BEFORE))"
    )


def _one_format(files: Sequence[str]) -> Recognized:
    """Return files of one format; a file whose name does not show its format counts by its first bytes."""
    found: dict[Format, str] = {}
    unknown: list[str] = []
    for file in files:
        format = format_of_name(name_of(file))
        if format is None:
            unknown.append(file)
        else:
            found.setdefault(format, file)
    # Names of one set are alike, so one of them is enough.
    for file in unknown[:1]:
        found.setdefault(format_at(file), file)
    if not found:
        raise ValueError("the list of files is empty: pass at least one")
    if len(found) > 1:
        named = ", ".join(f"{redact_url(file)!r} ({format.name})" for format, file in found.items())
        raise ValueError(f"the files have several formats, and a dataset has one: {named}")
    (format,) = found
    whole = whole_of(files[0]) or Recognized(format, tuple(files))
    if len(files) > 1 and not whole.format.has_shards:
        raise _one_set(whole.paths[0], f"set in {whole.format.name}'s layout")
    return whole


def whole_of(path: str) -> Recognized | None:
    """Return the data set that a local file is a part of, if that is a folder; else None."""
    for format in formats_for(path) if not is_url(path) else ():
        paths = format.contains(path)
        if paths is not None:
            return Recognized(format, paths)
    return None


def _of_file(path: str) -> Recognized:
    """Return the data set of a local file: of a format that is a folder, if the file shows that it is part of one."""
    format = format_at(path)
    return whole_of(path) or Recognized(format, (path,))


def format_at(path: str) -> Format:
    """Return the format of a file by its name, or else by its first bytes.

    Args:
        path: the file, or its URL.

    Raises:
        UnknownFormatError: it is of another format.
        OSError: it cannot be read.
    """
    name = name_of(path)
    format = format_of_name(name)
    if format is not None and is_url(path):
        return format
    indexes = [each for each in formats_for(name) if each.index == name]
    head = head_of(path, INDEX_NBYTES if indexes else HEAD_NBYTES)
    for each in indexes:
        if each.recognizes(path, head):
            return each
    foreign = foreign_bytes(head) if head else None
    if format is not None:
        if foreign is None or format.recognizes(path, head):
            return format  # its class reports what else is wrong with it
        raise _unknown(path, foreign._replace(what=f"named as a {format.name} file, but {foreign.what}"))
    found = None if indexes else format_of_head(path, head)
    if found is None:
        begin = foreign_bytes(head) or Foreign(f"of an unknown format (it begins with {head[:8]!r})", "")
        raise _unknown(path, foreign_index(name, head) or foreign_name(name) or begin)
    return found


def _unknown(path: str, foreign: Foreign | None) -> UnknownFormatError:
    what, advice = foreign or ("of an unknown format", "")
    return UnknownFormatError(redact_url(path), what, advice=advice, supported=supported())


def head_of(path: str, nbytes: int = HEAD_NBYTES) -> bytes:
    """Return the first bytes of a file or an object."""
    if is_url(path):
        from aioloader.storage.remote.opening import read_text

        return read_text(path, nbytes - 1)
    with os.fdopen(open_regular(path), "rb") as file:
        return file.read(nbytes)


# -- URLs --------------------------------------------------------------------------------------------------------------


def _at_url(url: str, labelled: bool) -> Recognized:
    name = name_of(url)
    if any(each.index == name for each in formats_for(name)):
        return Recognized(format_at(url), (sibling(url, ""),))
    if format_of_name(name) is not None or is_numbered(name):
        return Recognized(format_at(url), (url,))
    if scheme_of(url) in WEB:
        return _on_web(url)
    # Object storage has no folders, and the Hub lists none without files: a URL is one if there are objects below it.
    try:
        return _in_folder(url, labelled)
    except ObjectMissingError as missing:
        try:
            return Recognized(format_at(url), (url,))
        except ObjectMissingError:
            raise missing from None


def _on_web(url: str) -> Recognized:
    """Return the data set at a URL of HTTP, which cannot be listed: a file, or a folder with an index."""
    failure: RemoteReadError | None = None
    if name_of(url):
        try:
            return Recognized(format_at(url), (url,))
        except ObjectMissingError:
            if os.path.splitext(name_of(url))[1]:
                raise
        except RemoteReadError as error:
            if error.kind not in _FOLDER_ANSWERS:
                raise
            failure = error
    indexes = dict.fromkeys(each.index for each in formats() if each.index is not None)
    for index in indexes:
        try:
            return Recognized(format_at(join(url, index)), (url,))
        except ObjectMissingError:
            continue
    if failure is not None:
        raise failure from None
    raise UnknownFormatError(
        redact_url(url),
        f"neither a file nor a folder with an {' or '.join(indexes)}",
        advice="folders cannot be listed over HTTP, so pass the URLs of the files of a data set",
        supported=supported(),
    ) from None


# -- folders -----------------------------------------------------------------------------------------------------------


def _folder(path: str, most: int | None = None) -> Folder:
    """List a folder.

    Args:
        path: the folder.
        most: list only this many entries of a local folder, any of them.

    Raises:
        ObjectMissingError: there is no object below a URL.
        OSError: the folder cannot be listed.
    """
    if is_url(path):
        from aioloader.storage.remote.opening import list_level

        folders, files = list_level(path)
    else:
        folders, files = [], []
        with os.scandir(path) as entries:
            for entry in islice(entries, most):
                (folders if entry.is_dir() else files).append(entry.name)
    shown = [[name for name in names if not is_hidden(name)] for names in (folders, files)]
    return Folder(path, shown[0], shown[1], head_of)


def _by_format(folder: Folder) -> dict[Format, list[str]]:
    """Return the names of the shards of a folder by their format."""
    found: dict[Format, list[str]] = {}
    numbered: list[str] = []
    for name in folder.files:
        format = format_of_name(name)
        if format is not None:
            found.setdefault(format, []).append(name)
        elif is_numbered(name):
            numbered.append(name)
    if numbered:
        format = format_of_head(folder.at(numbered[0]), folder.head(numbered[0]))
        if format is not None:
            found.setdefault(format, []).extend(numbered)
    return found


def _has_images(folder: Folder) -> bool:
    """Return True if a folder directly contains an image."""
    return any(map(is_image_name, folder.files)) or any(
        is_image_file(folder.at(name)) for name in folder.files
    )


def _whole(folder: Folder) -> Recognized | None:
    """Return the data set that a folder as a whole is, by one of its files or by a format of another distribution."""
    for format in formats():
        paths = format.in_folder(folder)
        if paths is not None:
            return Recognized(format, paths)
    return None


def _in_folder(path: str, labelled: bool) -> Recognized:
    """Return the data set of a folder."""
    folder = _folder(path)
    whole = _whole(folder)
    if whole is not None:
        return whole
    for name in folder.files:
        if name in FOREIGN_INDEXES and (foreign := foreign_index(name, folder.head(name, INDEX_NBYTES))):
            raise _unknown(path, foreign)
    shards = _by_format(folder)
    inside = _search(folder)
    found = inside.images or _has_images(folder) or (inside.others and not shards)
    if not labelled and found and not inside.sets and all(each.packs_images for each in shards):
        return Recognized(image_folder(), (path,))
    if not shards and not inside.sets and (not inside.images or of_several_splits(folder.folders)):
        _refuse_nested(folder, inside)
    if inside.images and len(shards) == 1 and all(each.packs_images for each in shards):
        shards = {}  # a packed copy of the images
    if shards:
        return _of_shards(folder, shards, images=inside.images)
    if inside.images and not inside.sets:
        return Recognized(image_folder(), (path,))
    if len(inside.sets) == 1 and not inside.images:
        return _in_folder(folder.at(inside.sets[0]), labelled)
    if inside.sets:
        raise AmbiguousPathError(
            redact_url(path),
            [folder.at(name) for name in inside.sets],
            f"{_IMAGES + ' and ' if inside.images else ''}data sets in sub-folders ({_named(inside.sets)})",
            images=inside.images,
        )
    raise _nothing_in(folder)


class _Inside(NamedTuple):
    """Contents of the sub-folders of a folder.

    Attributes:
        images: one of them has images.
        sets: names of those with shards.
        others: those with neither.
    """

    images: bool
    sets: list[str]
    others: list[Folder]


def _search(folder: Folder) -> _Inside:
    """Search the sub-folders of a folder for images and shards."""
    images = False
    sets: list[str] = []
    others: list[Folder] = []
    for name, inner in _sub_folders(folder, _most_searched(folder)):
        if _has_images(inner):
            images = True
        elif _whole(inner) is not None or _by_format(inner):
            sets.append(name)
        else:
            others.append(inner)
    return _Inside(images, sets, others)


def _most_searched(folder: Folder) -> int:
    return _MOST_SEARCHED_AT_URL if is_url(folder.path) else _MOST_SEARCHED


def _sub_folders(folder: Folder, most: int) -> Iterator[tuple[str, Folder]]:
    """Yield the names and the entries of the first sub-folders of a folder."""
    for name in folder.folders[:most]:
        try:
            yield name, _folder(folder.at(name), most=_MOST_ENTRIES)
        except PermissionError:
            continue  # such as lost+found


def _refuse_nested(folder: Folder, inside: _Inside) -> None:
    """Raise if sub-folders of a folder are data sets themselves, with a sub-folder of images for each class.

    Raises:
        AmbiguousPathError: several are, or one of them, next to another split.
        UnknownFormatError: one is.
    """
    most = _most_searched(folder)
    nested: list[str] = []
    for inner in inside.others:
        for _, inmost in _sub_folders(inner, most):
            most -= 1
            if _has_images(inmost):
                nested.append(inner.path)
                break
    if len(nested) > 1 or (nested and inside.images):
        names = [name_of(path) if is_url(path) else os.path.basename(path) for path in nested]
        raise AmbiguousPathError(
            redact_url(folder.path),
            nested,
            f"folders with a sub-folder of images for each class ({_named(names)})",
            nested=True,
        )
    if nested:
        raise UnknownFormatError(
            redact_url(folder.path),
            f"a folder without a data set ({_counts(folder)})",
            advice=f"{redact_url(nested[0])!r} has a sub-folder of images for each class: pass it instead",
            supported=supported(),
        )


def _named(names: list[str]) -> str:
    return ", ".join(names[:_MOST_NAMED]) + (", ..." if len(names) > _MOST_NAMED else "")


def _of_shards(folder: Folder, shards: dict[Format, list[str]], *, images: bool) -> Recognized:
    """Return all shards of a folder, if they are of one format and one split."""
    names = [name for found in shards.values() for name in found]
    if len(shards) > 1 or images:
        counts = [_IMAGES] * images
        counts += [
            f"{len(found):,} {format.name} file{'s' * (len(found) > 1)}" for format, found in shards.items()
        ]
        raise AmbiguousPathError(
            redact_url(folder.path),
            [folder.pattern(pattern_for(found, names)) for found in shards.values()],
            " and ".join(counts),
            images=images,
        )
    ((format, found),) = shards.items()
    if len(found) > 1 and not format.has_shards:
        raise AmbiguousPathError(
            redact_url(folder.path),
            [folder.at(name) for name in sorted(found)],
            f"{len(found):,} {format.name} files, each of which is a data set",
        )
    splits = by_split(found)
    if len(splits) > 1:
        counts = [f"{split or 'no split'}: {len(those):,}" for split, those in splits.items()]
        raise AmbiguousPathError(
            redact_url(folder.path),
            [folder.pattern(pattern_for(those, names)) for those in splits.values()],
            f"{format.name} files of several splits ({', '.join(counts)})",
        )
    return Recognized(format, tuple(folder.at(name) for name in sorted(found)))


def _nothing_in(folder: Folder) -> ValueError:
    """Return the error about a folder without a data set."""
    for name in folder.files:
        foreign = foreign_name(name)
        if foreign is not None and not _has_images(folder):
            what = f"a folder without a data set that can be read; {name!r} in it is {foreign.what}"
            return _unknown(folder.path, foreign._replace(what=what))
    if not (folder.files or folder.folders):
        return _no_images(folder.path, "an empty folder")
    what = f"a folder without a data set ({_counts(folder)})"
    if _has_images(folder):
        return _unknown(
            folder.path,
            Foreign(what, "label=None reads its images without labels; or make a sub-folder for each class"),
        )
    return _no_images(folder.path, what)


def _counts(folder: Folder) -> str:
    """Return the numbers of the folders in a folder and of its files of each suffix, such as "1 folder, 3 .xyz"."""
    folders = len(folder.folders)
    counts = [f"{folders:,} folder{'s' * (folders > 1)}"] if folders else []
    suffixes = Counter(os.path.splitext(name)[1].lower() or "without a suffix" for name in folder.files)
    usual = suffixes.most_common(_MOST_NAMED)
    counts += [f"{count:,} {suffix}" for suffix, count in usual]
    others = len(folder.files) - sum(count for _, count in usual)
    if others:
        counts.append(f"{others:,} with other suffixes")
    return ", ".join(counts)


def _no_images(path: str, what: str = "a folder without a data set") -> ValueError:
    return UnknownFormatError(
        redact_url(path),
        what,
        advice=f"it needs a sub-folder with images ({', '.join(sorted(IMAGE_SUFFIXES))}) for each class, or files of "
        "one format",
        supported=supported(),
    )


_SPLITS = frozenset(
    (
        "train",
        "training",
        "trainval",
        "test",
        "testing",
        "val",
        "valid",
        "validation",
        "dev",
        "eval",
        "evaluation",
    )
)
_NOT_LETTERS = re.compile(r"[^a-z]+")


def split_of(name: str) -> str:
    """Return the word for a split ("train", "test", ...) in the name of a file or folder; "" without one."""
    return next((word for word in _NOT_LETTERS.split(name.lower()) if word in _SPLITS), "")


def by_split(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the names of files by their split, sorted."""
    found: dict[str, list[str]] = {}
    for name in sorted(names):
        found.setdefault(split_of(name), []).append(name)
    return found


def of_several_splits(names: Iterable[str]) -> bool:
    """Return True if the names of folders contain at least two different words for splits."""
    return len(set(map(split_of, names)) - {""}) > 1


def pattern_for(names: Sequence[str], others: Iterable[str]) -> str:
    """Return a pattern that matches these names and none of the others; the first name if there is none.

    Args:
        names: at least one.
        others: names in the same folder, these or others.
    """
    if len(names) == 1:
        return names[0]
    begin = glob.escape(_common_begin(names).rstrip("0123456789"))
    end = _common_begin([name[::-1] for name in names])[::-1].lstrip("0123456789")
    rest = set(others) - set(names)
    for pattern in (f"{begin}*{os.path.splitext(names[0])[1]}", f"{begin}*{glob.escape(end)}"):
        fits = all(fnmatchcase(name, pattern) for name in names)
        if fits and not any(fnmatchcase(name, pattern) for name in rest):
            return pattern
    return names[0]


def _common_begin(names: Sequence[str]) -> str:
    low, high = min(names), max(names)
    same = next((place for place, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))
    return low[:same]
