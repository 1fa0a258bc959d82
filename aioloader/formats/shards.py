"""Files at the paths of a command line: record files, and data sets that their format opens."""

from __future__ import annotations

import glob
import os
import re
from typing import TYPE_CHECKING, Any

from aioloader.datasets.shards import is_pattern, pinned_path, record_files
from aioloader.errors import AmbiguousPathError, UnknownFormatError
from aioloader.formats.base import (
    RECORD_SUFFIX,
    folder_of_part,
    format_of_name,
    image_folder,
    record_format,
)
from aioloader.formats.opening import Recognized, make_dataset, recognize
from aioloader.storage.urls import can_list, is_url, join, name_of, path_of, redact_url, suffix_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aioloader.datasets.files import FileDataset
    from aioloader.datasets.shard_dataset import ShardDataset


def is_record_file(path: str) -> bool:
    """Return whether a path or URL has the suffix of a record file."""
    suffix = suffix_of(path) if is_url(path) else os.path.splitext(path)[1]
    return suffix.lower() == RECORD_SUFFIX


def is_folder(path: str) -> bool:
    """Return whether a path is a folder; in a store that lists objects, a name, not a pattern, without the end .rec."""
    path = path_of(path)
    if is_url(path):
        return can_list(path) and not is_pattern(path) and not is_record_file(path)
    return os.path.isdir(path)


def record_files_at(path: str) -> list[str]:
    """Return the record files of a path: the file itself, or the files of a pattern or a folder, sorted by name.

    Returns:
        Paths; an empty list for a folder without record files.

    Raises:
        FileNotFoundError: there is no such file or folder, or no file matches the pattern.
        OSError: listing object storage fails.
    """
    path = path_of(path)
    if is_folder(path):
        if not is_url(path):
            names = glob.glob(os.path.join(glob.escape(path), "*"))
            return sorted(name for name in names if os.path.splitext(name)[1].lower() == RECORD_SUFFIX)
        from aioloader.storage.remote.opening import list_folder

        root = pinned_path(path)
        return sorted(join(root, name) for name in list_folder(root).files if name.endswith(RECORD_SUFFIX))
    if is_url(path) or is_pattern(path) or os.path.exists(path):
        return list(record_files(path))
    raise FileNotFoundError(f"there is no file or folder {path!r}")


_SHARD = re.compile(r"(.*)-(\d{5,})-of-(\d{5,})\.rec", re.DOTALL)


def shard_name(name: str) -> tuple[str, int, int] | None:
    """Parse the name of a shard, NAME-00000-of-00004.rec.

    Args:
        name: name or path of a file.

    Returns:
        name of the set, number of the shard, number of shards; None for any other name.
    """
    found = _SHARD.fullmatch(name)
    return None if found is None else (found[1], int(found[2]), int(found[3]))


def recognize_shards(path: str) -> Recognized | None:
    """Return format and files of a data set at a path; None for record files, folders of images and other files.

    Args:
        path: a file, a pattern or a folder, or its URL.

    Raises:
        FileNotFoundError: there is nothing at the path.
        UnknownFormatError: a file is named as a shard, such as one with a further suffix ".gz", and cannot be read.
        AmbiguousPathError: a folder contains several data sets and no record file.
        OSError: the path cannot be read.
    """
    try:
        found = recognize(path)
    except UnknownFormatError:
        if _is_named_as_shard(name_of(path)):
            raise
        return None
    except AmbiguousPathError:
        if record_files_at(path):
            return None
        raise
    is_other = found.format in (record_format(), image_folder()) or is_record_file(found.paths[0])
    return None if is_other else found


def _is_named_as_shard(name: str) -> bool:
    """Return True for the name of a shard, of one that is compressed as a whole, or of a part of a folder."""
    stem, suffix = os.path.splitext(name.lower())
    named = {format_of_name(name), format_of_name(stem)} - {None, record_format()}
    return bool(named) or suffix == ".tgz" or folder_of_part(name) is not None


def open_shards(found: Recognized, *, image: str | None = None, label: str | None = None) -> ShardDataset:
    """Return the dataset over shards, without crop indexes.

    Args:
        found: the shards.
        image, label: names of the fields of the image and its label; None: the default of the format's class.

    Raises:
        OSError: the shards cannot be read.
        ValueError: they cannot be opened.
    """
    names = {name: value for name, value in (("image", image), ("label", label)) if value is not None}
    shards: ShardDataset | None = make_dataset(found, {"crop_index": None, **names}).as_shards()
    if shards is None:
        raise ValueError(f"{redact_url(found.paths[0])}: this command cannot read files of this format")
    return shards


def shard_sets(words: Sequence[str]) -> tuple[list[Recognized], list[str]]:
    """Separate words of a command line into data sets that `recognize_shards` returns, and all others.

    Args:
        words: files, patterns, folders, and URLs of them. All data sets of a folder count.

    Returns:
        the data set of all shards of a format, and each file or folder of a format without shards; the other words,
        without repetitions.

    Raises:
        FileNotFoundError, UnknownFormatError, AmbiguousPathError, OSError: as for `recognize_shards`.
    """
    files: dict[tuple[str, bool], list[Recognized]] = {}
    others: list[str] = []
    for word in dict.fromkeys(words):
        path = path_of(word)
        sets = list(_every_set(path))
        if not sets:
            others.append(word)
        for found in sets:
            name = "" if found.format.has_shards else found.paths[0]
            files.setdefault((f"{found.format.name} {name}", is_url(found.paths[0])), []).append(found)
    merged = [
        Recognized(same[0].format, tuple(dict.fromkeys(path for found in same for path in found.paths)))
        for same in files.values()
    ]
    return merged, others


def record_sets(words: Sequence[str], **options: Any) -> tuple[list[FileDataset], list[str]]:
    """Separate words of a command line into record files and folders without any.

    Args:
        words: files, patterns, folders, and URLs of them.
        options: of the datasets.

    Returns:
        a dataset of the local files, and one of the remote ones; the folders, without repetitions.

    Raises:
        FileNotFoundError, OSError: see `record_files_at`.
    """
    files: dict[bool, list[str]] = {False: [], True: []}
    folders: list[str] = []
    for path in dict.fromkeys(map(path_of, words)):
        found = record_files_at(path)
        files[is_url(path)] += found
        if not found:
            folders.append(pinned_path(path))
    opened = [record_format().open(list(dict.fromkeys(each)), **options) for each in files.values() if each]
    return opened, folders


def _every_set(path: str) -> Iterator[Recognized]:
    """Yield the sets of shards at a path: of a folder with several data sets, each one."""
    try:
        found = recognize_shards(path)
    except AmbiguousPathError as error:
        for choice in error.choices:
            yield from _every_set(choice)
        return
    if found is not None:
        yield found
