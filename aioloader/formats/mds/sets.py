"""MDS sets: folders with an index and shards. Reads the index and finds the file of each shard."""

from __future__ import annotations

import errno
import glob
import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioloader.datasets.shards import is_pattern, pinned_paths, record_files
from aioloader.errors import SampleFormatError
from aioloader.formats.mds.index import INDEX_NAME, MOST_INDEX_NBYTES, MDSColumn, MDSShard, parse_index
from aioloader.storage.local.descriptors import open_regular
from aioloader.storage.urls import is_url, join, name_of, path_of, redact_url, sibling

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_NAMED = 20


@dataclass(frozen=True)
class ShardFile:
    """File of a shard.

    Attributes:
        path: the file, or its URL.
        folder: of the set, or its URL.
        shard: what the index says of it.
        is_packed: the file is compressed.
    """

    path: str
    folder: str
    shard: MDSShard
    is_packed: bool


@dataclass(frozen=True)
class MDSSet:
    """Set of shards.

    Attributes:
        folder: of the set, or its URL.
        version: hash of the index.
        columns: of every sample.
        files: of the shards, in order.
    """

    folder: str
    version: str
    columns: tuple[MDSColumn, ...]
    files: tuple[ShardFile, ...]


def mds_folders(root: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    """Return the folders that an argument names.

    Args:
        root: a folder, its index.json, or the URL of one; or a pattern of these; or several of them, in order.

    Raises:
        FileNotFoundError: nothing matches a pattern.
        ValueError: the list is empty.
    """
    if not isinstance(root, (str, os.PathLike)):
        folders = [folder for each in root for folder in mds_folders(os.fspath(each))]
        if not folders:
            raise ValueError("the list of folders is empty: pass at least one")
        return tuple(folders)
    path = path_of(root)
    found = record_files(path) if is_pattern(path) else (path,)
    return tuple(_folder(each) for each in pinned_paths(found))


def _folder(path: str) -> str:
    """Return the folder of an index; any other path as it is."""
    if name_of(path) != INDEX_NAME or (not is_url(path) and os.path.isdir(path)):
        return path
    return sibling(path, "").rstrip("/") if is_url(path) else os.path.dirname(path) or os.curdir


def open_set(folder: str) -> MDSSet:
    """Read the index of a set. Blocking.

    Args:
        folder: of the set, or its URL.

    Raises:
        FileNotFoundError: there is no index; the error names sub-folders that have one.
        OSError: it cannot be read.
        SampleFormatError: it is not an index of MDS, or is damaged.
    """
    path = index_path(folder)
    data = _read_index(folder, path)
    index = parse_index(data, redact_url(path))
    files = tuple(_file(folder, shard) for shard in index.shards)
    return MDSSet(folder, hashlib.sha256(data).hexdigest(), index.columns, files)


def index_path(folder: str) -> str:
    """Return the path of the index in a folder, or its URL."""
    return join(folder, INDEX_NAME) if is_url(folder) else os.path.join(folder, INDEX_NAME)


def _read_index(folder: str, path: str) -> bytes:
    if is_url(path):
        from aioloader.storage.remote.opening import read_text

        return read_text(path, MOST_INDEX_NBYTES)
    try:
        descriptor = open_regular(path)
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(errno.ENOENT, _no_index(folder), path) from None
    with open(descriptor, "rb") as file:
        return file.read(MOST_INDEX_NBYTES + 1)


def _no_index(folder: str) -> str:
    """Return the text of the error for a folder without an index."""
    inner = sorted(glob.glob(os.path.join(glob.escape(folder), "*", INDEX_NAME)))
    if not inner:
        return f"there is no {INDEX_NAME}, so this is no MDS folder"
    # They may be splits, which must not be mixed, so the caller chooses.
    names = [os.path.basename(os.path.dirname(each)) for each in inner]
    named = ", ".join(names[:_MOST_NAMED]) + (", ..." if len(names) > _MOST_NAMED else "")
    return f"there is no {INDEX_NAME}, but sub-folders have one ({named}): pass one of them, or a list"


def _file(folder: str, shard: MDSShard) -> ShardFile:
    """Return the file of a shard: the decompressed one if it is there, too."""
    packed = shard.packed
    if is_url(folder):
        path = join(folder, (packed or shard.raw).name)
        return ShardFile(path, folder, shard, packed is not None)
    raw = os.path.join(folder, *shard.raw.name.split("/"))
    if packed is None or _has_size(raw, shard.raw.nbytes):
        return ShardFile(raw, folder, shard, False)
    return ShardFile(os.path.join(folder, *packed.name.split("/")), folder, shard, True)


def _has_size(path: str, nbytes: int) -> bool:
    try:
        return os.stat(path).st_size == nbytes
    except OSError:
        return False


def check_same_columns(sets: Sequence[MDSSet]) -> tuple[MDSColumn, ...]:
    """Return the columns of all sets.

    Raises:
        SampleFormatError: a set has others than the first one.
    """
    filled = [each for each in sets if each.files]
    if not filled:
        return ()
    for other in filled[1:]:
        if other.columns != filled[0].columns:
            raise SampleFormatError(
                f"it has other columns than {redact_url(filled[0].folder)}: open folders with different columns as "
                "separate datasets",
                path=redact_url(index_path(other.folder)),
                expected=", ".join(f"{column.name}: {column.encoding}" for column in filled[0].columns),
                found=", ".join(f"{column.name}: {column.encoding}" for column in other.columns),
            )
    return filled[0].columns
