"""Opening of a path as a dataset: what is there decides on the class."""

from __future__ import annotations

import glob
import importlib
import inspect
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from aioloader.crop_index.lookup import AUTO
from aioloader.datasets.files import opens_offline
from aioloader.formats.folder.dataset import ImageFolderDataset
from aioloader.formats.folder.files import is_hidden, is_image_file
from aioloader.formats.insightface.dataset import REC, InsightFaceDataset, insightface_file
from aioloader.formats.insightface.layout import PROPERTY
from aioloader.datasets.kinds import (
    FACES,
    FOLDER,
    HEAD_NBYTES,
    IMAGE_SUFFIXES,
    MDS,
    MDS_INDEX,
    PARQUET,
    RECORDS,
    SUPPORTED,
    TAR,
    TFRECORD,
    Foreign,
    Kind,
    by_split,
    foreign_bytes,
    foreign_index,
    foreign_name,
    is_image_name,
    is_mds_index,
    is_numbered,
    kind_of_bytes,
    kind_of_name,
    of_several_splits,
    pattern_for,
)
from aioloader.formats.recordio.dataset import ImageRecordDataset
from aioloader.datasets.shards import is_pattern, pinned_path, record_files
from aioloader.errors import AmbiguousPathError, ObjectMissingError, RemoteReadError, UnknownFormatError
from aioloader.storage.local.descriptors import open_regular
from aioloader.storage.urls import WEB, is_url, join, name_of, path_of, redact_url, scheme_of, sibling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import TypeAlias

    from aioloader.datasets.files import FileDataset

    Paths: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"

# Sub-folders that are searched for images or shards, and entries of each: listing one at a URL takes a request, and
# listing all images of a large local set takes seconds.
_MOST_SEARCHED = 1000
_MOST_SEARCHED_AT_URL = 16
_MOST_ENTRIES = 256
_MOST_NAMED = 8
_INDEX_NBYTES = 1 << 16
# Kinds of errors with which servers answer for a folder: a generated page of its files, or none.
_FOLDER_ANSWERS = ("unranged", "denied")
_IMAGES = "sub-folders of images (aioloader.ImageFolderDataset reads them)"


@dataclass(frozen=True)
class Recognized:
    """Data set at a path.

    Attributes:
        kind: of the data set.
        paths: its files, or their URLs, in order; of a kind that is a folder, the folder.
    """

    kind: Kind
    paths: tuple[str, ...]


@opens_offline
def open_dataset(path: Paths, **options: Any) -> FileDataset:
    """Return the dataset of the files or the folder at a path, of the class that reads their format.

    Args:
        path: one of: a .rec, .tar, .tfrecord or .parquet file; a pattern (``train-*.tar``), a brace range
            (``train-{000..127}.tar``) or a list of files of one format; a folder with files of one format, an MDS
            folder, a folder with one sub-folder of images for each class, or a folder in InsightFace's layout; or the
            URL of any of these. A file with another suffix is recognized by its first bytes.
        options: of the class, such as ``image``, ``label``, ``fields``, ``crop_index`` or ``cache``.

    Returns:
        an `ImageRecordDataset`, `InsightFaceDataset`, `ImageFolderDataset`, `TarDataset`, `TFRecordDataset`,
        `ParquetDataset` or `MDSDataset`.

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
    """Return the kind and the files of the data set at a path, without opening it.

    Names are enough for most paths. Up to 512 bytes of a file with another suffix are read, and folders are listed.

    Args:
        path: as for `open_dataset`.
        labelled: False: a folder of images need not have a sub-folder for each class.

    Raises:
        FileNotFoundError, UnknownFormatError, AmbiguousPathError, OSError: as for `open_dataset`.
    """
    if not isinstance(path, (str, os.PathLike)):
        if not isinstance(path, Iterable):
            raise TypeError(f"path must be a path or a list of paths, got {path!r}")
        return _one_kind(_files(path))
    name = path_of(path)
    if is_pattern(name):
        return _one_kind(_files(name))
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
    made = _class_of(found.kind)
    known = list(inspect.signature(made).parameters)[1:]
    for name in options:
        if name not in known:
            raise TypeError(
                f"{redact_url(found.paths[0])!r} is read by {found.kind.dataset}, which has no option {name!r}; it has "
                f"{', '.join(known)}"
            )
    paths: Any = found.paths if len(found.paths) > 1 else found.paths[0]
    dataset = made(paths, **options)
    if found.kind is FOLDER and not len(dataset):
        raise _no_images(found.paths[0])
    return dataset


def _class_of(kind: Kind) -> Callable[..., FileDataset]:
    if kind in _LATER:
        found: Callable[..., FileDataset] = getattr(importlib.import_module(_LATER[kind]), kind.dataset)
        return found
    if kind is FACES:
        return InsightFaceDataset
    return ImageFolderDataset if kind is FOLDER else ImageRecordDataset


_LATER = {
    TAR: "aioloader.formats.tar.dataset",
    TFRECORD: "aioloader.formats.tfrecord.dataset",
    PARQUET: "aioloader.formats.parquet.dataset",
    MDS: "aioloader.formats.mds.dataset",
}


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


def _one_kind(files: Sequence[str]) -> Recognized:
    """Return files of one format; a file whose name does not show its format counts by its first bytes."""
    kinds: dict[Kind, str] = {}
    unknown: list[str] = []
    for file in files:
        kind = kind_of_name(name_of(file))
        if kind is None:
            unknown.append(file)
        else:
            kinds.setdefault(kind, file)
    # Names of one set are alike, so one of them is enough.
    for file in unknown[:1]:
        kinds.setdefault(kind_at(file), file)
    if not kinds:
        raise ValueError("the list of files is empty: pass at least one")
    if len(kinds) > 1:
        named = ", ".join(f"{redact_url(file)!r} ({kind.name})" for kind, file in kinds.items())
        raise ValueError(f"the files have several formats, and a dataset has one: {named}")
    (kind,) = kinds
    faces = insightface_file(files[0]) if kind is RECORDS else None
    if faces is None:
        return Recognized(kind, tuple(files))
    if len(files) > 1:
        raise _one_set(faces, "set in InsightFace's layout")
    return Recognized(FACES, (faces,))


def _of_file(path: str) -> Recognized:
    """Return the data set of a local file."""
    kind = kind_at(path)
    if kind is MDS:
        return Recognized(MDS, (os.path.dirname(path) or os.curdir,))
    faces = insightface_file(path) if kind is RECORDS else None
    return Recognized(kind, (path,)) if faces is None else Recognized(FACES, (faces,))


def kind_at(path: str) -> Kind:
    """Return the kind of a file by its name, or else by its first bytes.

    Args:
        path: the file, or its URL.

    Raises:
        UnknownFormatError: it is of another format.
        OSError: it cannot be read.
    """
    name = name_of(path)
    kind = kind_of_name(name)
    if kind is not None and is_url(path):
        return kind
    if name == MDS_INDEX:
        head = _head(path, _INDEX_NBYTES)
        if is_mds_index(head):
            return MDS
        raise _unknown(path, foreign_index(head) or foreign_name(name))
    head = _head(path)
    foreign = foreign_bytes(head) if head else None
    if kind is not None:
        if foreign is None:
            return kind  # its class reports what else is wrong with it
        raise _unknown(path, foreign._replace(what=f"named as a {kind.name} file, but {foreign.what}"))
    found = kind_of_bytes(head)
    if found is None:
        begin = foreign_bytes(head) or Foreign(f"of an unknown format (it begins with {head[:8]!r})", "")
        raise _unknown(path, foreign_name(name) or begin)
    return found


def _unknown(path: str, foreign: Foreign | None) -> UnknownFormatError:
    what, advice = foreign or ("of an unknown format", "")
    return UnknownFormatError(redact_url(path), what, advice=advice, supported=SUPPORTED)


def _head(path: str, nbytes: int = HEAD_NBYTES) -> bytes:
    """Return the first bytes of a file or an object."""
    if is_url(path):
        from aioloader.storage.remote.opening import read_text

        return read_text(path, nbytes - 1)
    with os.fdopen(open_regular(path), "rb") as file:
        return file.read(nbytes)


# -- URLs --------------------------------------------------------------------------------------------------------------


def _at_url(url: str, labelled: bool) -> Recognized:
    name = name_of(url)
    if name == MDS_INDEX:
        return Recognized(kind_at(url), (sibling(url, ""),))
    if kind_of_name(name) is not None or is_numbered(name):
        return Recognized(kind_at(url), (url,))
    if scheme_of(url) in WEB:
        return _on_web(url)
    # Object storage has no folders, and the Hub lists none without files: a URL is one if there are objects below it.
    try:
        return _in_folder(url, labelled)
    except ObjectMissingError as missing:
        try:
            return Recognized(kind_at(url), (url,))
        except ObjectMissingError:
            raise missing from None


def _on_web(url: str) -> Recognized:
    """Return the data set at a URL of HTTP, which cannot be listed: a file, or a folder with an index.json."""
    failure: RemoteReadError | None = None
    if name_of(url):
        try:
            return Recognized(kind_at(url), (url,))
        except ObjectMissingError:
            if os.path.splitext(name_of(url))[1]:
                raise
        except RemoteReadError as error:
            if error.kind not in _FOLDER_ANSWERS:
                raise
            failure = error
    try:
        return Recognized(kind_at(join(url, MDS_INDEX)), (url,))
    except ObjectMissingError:
        if failure is not None:
            raise failure from None
        raise UnknownFormatError(
            redact_url(url),
            f"neither a file nor a folder with an {MDS_INDEX}",
            advice="folders cannot be listed over HTTP, so pass the URLs of the files of a data set",
            supported=SUPPORTED,
        ) from None


# -- folders -----------------------------------------------------------------------------------------------------------


class _Level(NamedTuple):
    """Entries of a folder, without hidden ones.

    Attributes:
        path: of the folder.
        folders, files: their names, sorted.
    """

    path: str
    folders: list[str]
    files: list[str]

    def at(self, name: str) -> str:
        """Return the path of an entry."""
        return join(self.path, name) if is_url(self.path) else os.path.join(self.path, name)

    def pattern(self, name: str) -> str:
        """Return a pattern for entries, or the path of one."""
        return self.at(name) if is_url(self.path) else os.path.join(glob.escape(self.path), name)

    def by_kind(self) -> dict[Kind, list[str]]:
        """Return the names of shards by their kind."""
        found: dict[Kind, list[str]] = {}
        numbered: list[str] = []
        for name in self.files:
            kind = kind_of_name(name)
            if kind is not None:
                found.setdefault(kind, []).append(name)
            elif is_numbered(name):
                numbered.append(name)
        if numbered:
            kind = kind_of_bytes(_head(self.at(numbered[0])))
            if kind is not None:
                found.setdefault(kind, []).extend(numbered)
        return found

    def has_images(self) -> bool:
        """Return True if it directly contains an image."""
        return any(map(is_image_name, self.files)) or any(is_image_file(self.at(name)) for name in self.files)


def _level(path: str, most: int | None = None) -> _Level:
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
    return _Level(
        path, *(sorted(name for name in names if not is_hidden(name)) for names in (folders, files))
    )


def _in_folder(path: str, labelled: bool) -> Recognized:
    """Return the data set of a folder."""
    faces = None if is_url(path) else insightface_file(path)
    if faces is not None:
        return Recognized(FACES, (faces,))
    level = _level(path)
    if is_url(path) and {REC, PROPERTY} <= set(level.files):
        return Recognized(FACES, (level.at(REC),))
    if MDS_INDEX in level.files:
        head = _head(level.at(MDS_INDEX), _INDEX_NBYTES)
        if is_mds_index(head):
            return Recognized(MDS, (path,))
        foreign = foreign_index(head)
        if foreign is not None:
            raise _unknown(path, foreign)
    shards = level.by_kind()
    inside = _search(level)
    found = inside.images or level.has_images() or (inside.others and not shards)
    if not labelled and found and not inside.sets and set(shards) <= {RECORDS}:
        return Recognized(FOLDER, (path,))
    if not shards and not inside.sets and (not inside.images or of_several_splits(level.folders)):
        _refuse_nested(level, inside)
    if inside.images and list(shards) == [RECORDS]:
        shards = {}  # a packed copy of the images
    if shards:
        return _of_shards(level, shards, images=inside.images)
    if inside.images and not inside.sets:
        return Recognized(FOLDER, (path,))
    if len(inside.sets) == 1 and not inside.images:
        return _in_folder(level.at(inside.sets[0]), labelled)
    if inside.sets:
        raise AmbiguousPathError(
            redact_url(path),
            [level.at(name) for name in inside.sets],
            f"{_IMAGES + ' and ' if inside.images else ''}data sets in sub-folders ({_named(inside.sets)})",
            images=inside.images,
        )
    raise _nothing_in(level)


class _Inside(NamedTuple):
    """Contents of the sub-folders of a folder.

    Attributes:
        images: one of them has images.
        sets: names of those with shards.
        others: those with neither.
    """

    images: bool
    sets: list[str]
    others: list[_Level]


def _search(level: _Level) -> _Inside:
    """Search the sub-folders of a folder for images and shards."""
    images = False
    sets: list[str] = []
    others: list[_Level] = []
    for name, inner in _sub_folders(level, _most_searched(level)):
        if inner.has_images():
            images = True
        elif MDS_INDEX in inner.files or inner.by_kind():
            sets.append(name)
        else:
            others.append(inner)
    return _Inside(images, sets, others)


def _most_searched(level: _Level) -> int:
    return _MOST_SEARCHED_AT_URL if is_url(level.path) else _MOST_SEARCHED


def _sub_folders(level: _Level, most: int) -> Iterator[tuple[str, _Level]]:
    """Yield the names and the entries of the first sub-folders of a folder."""
    for name in level.folders[:most]:
        try:
            yield name, _level(level.at(name), most=_MOST_ENTRIES)
        except PermissionError:
            continue  # such as lost+found


def _refuse_nested(level: _Level, inside: _Inside) -> None:
    """Raise if sub-folders of a folder are data sets themselves, with a sub-folder of images for each class.

    Raises:
        AmbiguousPathError: several are, or one of them, next to another split.
        UnknownFormatError: one is.
    """
    most = _most_searched(level)
    nested: list[str] = []
    for inner in inside.others:
        for _, inmost in _sub_folders(inner, most):
            most -= 1
            if inmost.has_images():
                nested.append(inner.path)
                break
    if len(nested) > 1 or (nested and inside.images):
        names = [name_of(path) if is_url(path) else os.path.basename(path) for path in nested]
        raise AmbiguousPathError(
            redact_url(level.path),
            nested,
            f"folders with a sub-folder of images for each class ({_named(names)})",
            nested=True,
        )
    if nested:
        raise UnknownFormatError(
            redact_url(level.path),
            f"a folder without a data set ({_counts(level)})",
            advice=f"{redact_url(nested[0])!r} has a sub-folder of images for each class: pass it instead",
            supported=SUPPORTED,
        )


def _named(names: list[str]) -> str:
    return ", ".join(names[:_MOST_NAMED]) + (", ..." if len(names) > _MOST_NAMED else "")


def _of_shards(level: _Level, shards: dict[Kind, list[str]], *, images: bool) -> Recognized:
    """Return all shards of a folder, if they are of one format and one split."""
    names = [name for found in shards.values() for name in found]
    if len(shards) > 1 or images:
        counts = [_IMAGES] * images
        counts += [
            f"{len(found):,} {kind.name} file{'s' * (len(found) > 1)}" for kind, found in shards.items()
        ]
        raise AmbiguousPathError(
            redact_url(level.path),
            [level.pattern(pattern_for(found, names)) for found in shards.values()],
            " and ".join(counts),
            images=images,
        )
    ((kind, found),) = shards.items()
    splits = by_split(found)
    if len(splits) > 1:
        counts = [f"{split or 'no split'}: {len(those):,}" for split, those in splits.items()]
        raise AmbiguousPathError(
            redact_url(level.path),
            [level.pattern(pattern_for(those, names)) for those in splits.values()],
            f"{kind.name} files of several splits ({', '.join(counts)})",
        )
    return Recognized(kind, tuple(level.at(name) for name in sorted(found)))


def _nothing_in(level: _Level) -> ValueError:
    """Return the error about a folder without a data set."""
    for name in level.files:
        foreign = foreign_name(name)
        if foreign is not None and not level.has_images():
            what = f"a folder without a data set that can be read; {name!r} in it is {foreign.what}"
            return _unknown(level.path, foreign._replace(what=what))
    if not (level.files or level.folders):
        return _no_images(level.path, "an empty folder")
    what = f"a folder without a data set ({_counts(level)})"
    if level.has_images():
        return _unknown(
            level.path,
            Foreign(what, "label=None reads its images without labels; or make a sub-folder for each class"),
        )
    return _no_images(level.path, what)


def _counts(level: _Level) -> str:
    """Return the numbers of the folders in a folder and of its files of each suffix, such as "1 folder, 3 .xyz"."""
    folders = len(level.folders)
    counts = [f"{folders:,} folder{'s' * (folders > 1)}"] if folders else []
    suffixes = Counter(os.path.splitext(name)[1].lower() or "without a suffix" for name in level.files)
    usual = suffixes.most_common(_MOST_NAMED)
    counts += [f"{count:,} {suffix}" for suffix, count in usual]
    others = len(level.files) - sum(count for _, count in usual)
    if others:
        counts.append(f"{others:,} with other suffixes")
    return ", ".join(counts)


def _no_images(path: str, what: str = "a folder without a data set") -> ValueError:
    return UnknownFormatError(
        redact_url(path),
        what,
        advice=f"it needs a sub-folder with images ({', '.join(sorted(IMAGE_SUFFIXES))}) for each class, or files of "
        "one format",
        supported=SUPPORTED,
    )
