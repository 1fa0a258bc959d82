"""Shards of other formats than RecordIO at the paths of a command line."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from aioloader.datasets.shard_dataset import ShardDataset
from aioloader.errors import AmbiguousPathError, UnknownFormatError
from aioloader.formats.base import folder_of_part, format_of_name
from aioloader.formats.opening import Recognized, make_dataset, recognize
from aioloader.formats.recordio.files import record_files_at
from aioloader.storage.urls import is_url, name_of, path_of, redact_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def recognize_shards(path: str) -> Recognized | None:
    """Return format and files of the shards at a path; None for record files, folders of images and other files.

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
    return found if found.format.has_fields else None


def _is_named_as_shard(name: str) -> bool:
    """Return True for the name of a shard, of one that is compressed as a whole, or of a part of a folder."""
    stem, suffix = os.path.splitext(name.lower())
    named = (format_of_name(name), format_of_name(stem))
    return (
        any(each is not None and each.has_fields for each in named)
        or suffix == ".tgz"
        or folder_of_part(name) is not None
    )


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
    dataset: Any = make_dataset(found, {"crop_index": None, **names})
    if not isinstance(dataset, ShardDataset):
        raise ValueError(f"{redact_url(found.paths[0])}: this command cannot read files of this format")
    return dataset


def shard_sets(
    words: Sequence[str], *, image: str | None = None, label: str | None = None
) -> tuple[list[ShardDataset], list[str]]:
    """Separate words of a command line into shards of other formats than RecordIO, and all others.

    Args:
        words: files, patterns, folders, and URLs of them. All data sets of a folder count.
        image, label: as for `open_shards`.

    Returns:
        a dataset for the files of each format, and for each folder that is one; the other words, without repetitions.

    Raises:
        FileNotFoundError: there is nothing at a path.
        OSError, ValueError: as for `open_shards`.
    """
    files: dict[tuple[str, bool], list[Recognized]] = {}
    others: list[str] = []
    for word in dict.fromkeys(words):
        path = path_of(word)
        sets = list(_every_set(path))
        if not sets:
            others.append(word)
        for found in sets:
            # The files of such a folder are read by its index.
            name = found.paths[0] if found.format.is_folder else ""
            files.setdefault((f"{found.format.name} {name}", is_url(found.paths[0])), []).append(found)
    datasets = []
    for same in files.values():
        paths = dict.fromkeys(path for found in same for path in found.paths)
        datasets.append(open_shards(Recognized(same[0].format, tuple(paths)), image=image, label=label))
    return datasets, others


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
