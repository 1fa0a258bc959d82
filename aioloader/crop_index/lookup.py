"""Entries of the items of a dataset, found in the crop indexes of its files.

Crop indexes that lie next to remote record files: copies in the user's cache directory, one for each version.

An index that cannot be fetched, is damaged or far too large costs speed, so it is a warning and no error; that there is
none is neither.
"""

from __future__ import annotations

import errno
import os
import posixpath
import shutil
import threading
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from aioloader.crop_index import AUTO as AUTO
from aioloader.crop_index.layout import (
    FOLDER,
    HEADER_NBYTES,
    RECORDS,
    SUFFIX,
    CropFiles,
    fetched_index,
    folder_key,
    read_header,
    record_index,
)
from aioloader.crop_index.reader import CropIndex
from aioloader.errors import CropIndexError, CropIndexWarning
from aioloader.foundation.decodes import NO_INDEX, NOT_IN_INDEX
from aioloader.foundation.stacks import warn_caller
from aioloader.storage.cache.unpacked import FileMaker
from aioloader.storage.urls import beside, is_url, redact_url

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.foundation.types import Array, IntArray
    from aioloader.storage.remote.transport import Version


_MOST_OF_FREE_SPACE = 1 / 2


@dataclass(frozen=True)
class ObjectCopy:
    """Copy of an object.

    Attributes:
        url: the object.
        version: its version.
        path: the copy.
    """

    url: str
    version: Version
    path: Path

    @property
    def nbytes(self) -> int:
        """Return its size."""
        return self.version.nbytes


class Copier(FileMaker[ObjectCopy]):
    """Maker of copies of objects of one kind, a few at a time; a copy that exists and passes the check is kept.

    Args:
        label: the copies, for a progress bar.
        check_begin: called with the first block of an object, up to 8 MiB; raises OSError or ValueError if the object
            is not of this kind, so that the rest is not fetched.
        check: called with the path of a complete copy; raises the same errors.
    """

    def __init__(
        self, label: str, *, check_begin: Callable[[bytes], object], check: Callable[[Path], object]
    ) -> None:
        super().__init__(label)
        self._check_begin = check_begin
        self._check = check

    def exists(self, file: ObjectCopy) -> bool:
        if file.version.tag is None:  # the server does not identify versions
            return False
        try:
            self._check(file.path)
        except (OSError, ValueError):
            return False
        return True

    def check(self, file: ObjectCopy, path: Path) -> None:
        self._check(path)

    def write(self, file: ObjectCopy, stream: BinaryIO) -> None:
        from aioloader.storage.remote.opening import object_blocks

        folder, nbytes = file.path.parent, file.nbytes
        free = shutil.disk_usage(folder).free
        if nbytes > _MOST_OF_FREE_SPACE * free:
            raise OSError(
                errno.ENOSPC,
                f"a copy of {redact_url(file.url)} takes {nbytes:,} of {free:,} free bytes; set AIOLOADER_CACHE_DIR to "
                "a directory with more space",
                str(folder),
            )
        with closing(object_blocks(file.url)) as blocks:
            for number, block in enumerate(blocks):
                if number == 0:
                    self._check_begin(block)
                stream.write(block)
                self.advance(len(block))


# Share of the record file. The largest entries, with a point for each MCU, have an eighth of their JPEG's bytes.
_MOST_SHARE = 1 / 4
_ALWAYS_ALLOWED_NBYTES = 1 << 20
# A missing object is denied, too, to users who may not list the bucket, and to a signature of another object.
_ABSENT = ("missing", "denied")


def fetch_indexes(urls: Sequence[str], record_nbytes: Sequence[int]) -> list[str | None]:
    """Return the path of the crop index of each remote record file; fetch those whose version is not there yet.

    An index that was made in the cache directory (`aioloader index --crops URL`) comes first.

    Args:
        urls: the record files.
        record_nbytes: their sizes.

    Returns:
        one path for each; None where there is no index.

    Warns:
        CropIndexWarning: an index exists and cannot be fetched or stored, is not a crop index, is damaged, or has more
            than a quarter of the bytes of its record file.
    """
    found: list[str | None] = [path if os.path.exists(path) else None for path in map(record_index, urls)]
    absent = [number for number, path in enumerate(found) if path is None]
    if not absent:
        return found
    from aioloader.storage.remote.client import OPENING_S  # the workers need none of these
    from aioloader.storage.remote.opening import client_and_thread

    places = [beside(urls[number], SUFFIX) for number in absent]
    with client_and_thread() as (client, thread):
        versions, failures = thread.call(partial(client.describe_all, places, OPENING_S))
    for _, failure in sorted(failures.items()):
        if failure.kind not in _ABSENT:
            _warn(failure)
    copies: dict[int, ObjectCopy] = {}
    for place, version in sorted(versions.items()):
        number, url = absent[place], places[place]
        if version.nbytes > max(_ALWAYS_ALLOWED_NBYTES, _MOST_SHARE * record_nbytes[number]):
            sizes = f"{version.nbytes:,} bytes, and its record file only {record_nbytes[number]:,}"
            _warn(CropIndexError(f"it has {sizes}", path=redact_url(url)))
            continue
        copies[number] = ObjectCopy(url, version, Path(fetched_index(urls[number], version)))
    copier = Copier("copies of crop indexes", check_begin=_check_begin, check=_check)
    for (number, copy), error in zip(copies.items(), copier.make(list(copies.values())), strict=True):
        if error is None:
            found[number] = str(copy.path)
        elif isinstance(error, OSError):
            _warn(error)
        else:
            reason = error.reason if isinstance(error, CropIndexError) else str(error)
            _warn(CropIndexError(reason, path=redact_url(copy.url)))
    _remove_others([copy.path for number, copy in copies.items() if found[number] is not None])
    return found


def _check_begin(block: bytes) -> None:
    """Raise LayoutFault unless a file that begins so can be a crop index."""
    read_header(block[:HEADER_NBYTES])


def _check(path: Path) -> None:
    """Raise CropIndexError or OSError unless a file is the complete index of a record file."""
    index = CropIndex(str(path))
    index.close()
    index.check_kind(RECORDS)


def _remove_others(paths: Sequence[Path]) -> None:
    """Remove copies of other versions of indexes; the name of a copy ends with its version."""
    if not paths:
        return
    kept = {path.name.partition("-")[0]: path.name for path in paths}
    with suppress(OSError):
        for other in paths[0].parent.glob(f"*-*{SUFFIX}"):
            if kept.get(other.name.partition("-")[0], other.name) != other.name:
                other.unlink()


def _warn(error: OSError | CropIndexError) -> None:
    warn_caller(f"no crop index is used: {error}", CropIndexWarning)


# Maps that a process keeps; each holds a descriptor.
_MOST_OPEN = 128


class RecordCrops:
    """Crop indexes of record files. Picklable; used from any thread.

    Args:
        indexes: the index of each file; None where there is none.
    """

    def __init__(self, indexes: Sequence[CropIndex | None]) -> None:
        self._indexes = tuple(indexes)
        self._lock = threading.Lock()
        self._open: dict[int, CropIndex] = {}

    def __getstate__(self) -> tuple[CropIndex | None, ...]:
        return self._indexes

    def __setstate__(self, indexes: tuple[CropIndex | None, ...]) -> None:
        self._indexes = indexes
        self._lock = threading.Lock()
        self._open = {}

    def entry(self, extra: Any, file: int | None, offset: int | None) -> memoryview | str:
        """Return the entry of an item, or the reason why there is none, see `CropIndex.lookup`.

        Args:
            extra: not used.
            file: number of the file; None where it is not known.
            offset: offset of the record; None where it is not known.
        """
        if file is None or offset is None:
            return NO_INDEX
        index = self._open.get(file)
        if index is None:
            index = self._indexes[file]
            if index is None:
                return NO_INDEX
            with self._lock:
                while len(self._open) >= _MOST_OPEN:
                    self._open.pop(next(iter(self._open))).close()
                self._open[file] = index
        return index.lookup(offset)

    def find(self, file: int, offset: int) -> memoryview | None:
        """Return the entry of a record; None if there is none.

        Args:
            file: number of the file.
            offset: offset of the record.
        """
        found = self.entry(None, file, offset)
        return None if isinstance(found, str) else found

    def path(self, file: int | None) -> str:
        """Return the path of the index of a file that has one."""
        index = None if file is None else self._indexes[file]
        assert index is not None
        return index.path


class BlockCrops(RecordCrops):
    """Crop indexes of files whose samples are rows of blocks. The keys of an index are numbers of rows of its file.

    Args:
        crops: crop indexes of the files.
        file: int64 (blocks,), number of the file of each block.
        first: int64 (blocks,), number in that file of the first row of each block.
    """

    def __init__(self, crops: RecordCrops, file: IntArray, first: IntArray) -> None:
        super().__init__(crops.__getstate__())
        self._files = file, first

    def __getstate__(self) -> Any:
        return super().__getstate__(), self._files

    def __setstate__(self, state: Any) -> None:
        indexes, self._files = state
        super().__setstate__(indexes)

    def entry(self, extra: Any, file: int | None, offset: int | None) -> memoryview | str:
        """Return the entry of a row, or the reason why there is none, see `CropIndex.lookup`.

        Args:
            extra: not used.
            file: number of the block; None where it is not known.
            offset: row in the block; None where it is not known.
        """
        if file is None or offset is None:
            return NO_INDEX
        files, first = self._files
        return super().entry(extra, int(files[file]), int(first[file]) + offset)

    def path(self, file: int | None) -> str:
        """Return the path of the index of the file of a block."""
        return super().path(None if file is None else int(self._files[0][file]))


class FolderCrops:
    """Crop index of a folder. Picklable; used from any thread.

    Args:
        index: the index.
        root: the folder, or its URL.
    """

    def __init__(self, index: CropIndex, root: str) -> None:
        self._index = index
        self._root = root

    def keys(self, paths: Sequence[str]) -> IntArray:
        """Return the keys of images, uint64 (n,).

        Args:
            paths: the files, or URLs, under the folder.
        """
        return np.array([folder_key(relative_name(self._root, path)) for path in paths], np.uint64)

    def entry(self, extra: Any, file: int | None, offset: int | None) -> memoryview | str:
        """Return the entry of an item, or the reason why there is none, see `CropIndex.lookup`.

        Args:
            extra: the item's extra, with its key as the field "key"; with any other extra, no entry is found.
            file, offset: not used.
        """
        return self._index.lookup(int(extra["key"])) if type(extra) is np.void else NOT_IN_INDEX

    def find(self, key: int) -> memoryview | None:
        """Return the entry of the image with a key; None if there is none."""
        return self._index.find(key)

    def path(self, file: int | None = None) -> str:
        """Return the path of the index, which is the same for all files."""
        return self._index.path


def relative_name(root: str, path: str) -> str:
    """Return the path of an image relative to a folder, with slashes; the whole path if it is elsewhere.

    Args:
        root: the folder, or its URL.
        path: the image, or its URL, that begins with `root`.
    """
    sep = "/" if is_url(root) else os.sep
    prefix = root if root.endswith(sep) else root + sep
    name = path[len(prefix) :] if path.startswith(prefix) else path
    name = name if sep == "/" else name.replace(sep, "/")
    # Names in lists may contain "./"; normalizing every name would take as long as hashing it.
    return posixpath.normpath(name) if "./" in name or "//" in name else name


def open_record_crops(
    option: str | os.PathLike[str] | None,
    files: CropFiles,
    fault_of: Callable[[int, Array], str],
    fetched: Sequence[str | None] = (),
) -> RecordCrops | None:
    """Open the crop indexes of files with many samples.

    Args:
        option: "auto": those that exist at their usual places; None: none; else a file, or a directory of them.
        files: the files.
        fault_of: returns why an index that `option` names is not that of a file, or ""; called with the number of the
            file, and the keys of the index, uint64 (n,).
        fetched: for "auto", where the index of each file is, from `fetch_indexes`; empty: at the usual places.

    Returns:
        None if there are no indexes.

    Raises:
        FileNotFoundError: an index that `option` names does not exist.
        CropIndexError: it is damaged, or is not that of the file.
        ValueError: `option` is one file, and there are several files.

    Warns:
        CropIndexWarning: an index at its usual place cannot be used.
    """
    if option is None:
        return None
    paths = files.paths
    if option == AUTO:
        places = fetched or [files.place(path) for path in paths]
        found = [None if place is None else _usable(place, RECORDS) for place in places]
        return RecordCrops(found) if any(index is not None for index in found) else None
    chosen = os.path.expanduser(os.fspath(option))
    if len(paths) > 1 and not os.path.isdir(chosen):
        _check_exists(chosen)
        raise ValueError(
            f"crop_index={chosen!r} is one file, and there are {len(paths)} record files: pass the directory of their "
            "indexes"
        )
    indexes = []
    for number, path in enumerate(paths):
        index = _existing(files.place(path, chosen), RECORDS)
        fault = fault_of(number, index.tables().keys)
        index.close()  # each open index holds a descriptor, and there may be many
        if fault:
            raise CropIndexError(fault, path=index.path)
        indexes.append(index)
    return RecordCrops(indexes)


def open_folder_crops(
    option: str | os.PathLike[str] | None, root: str, paths: Sequence[str]
) -> FolderCrops | None:
    """Open the crop index of a folder.

    Args:
        option: as for `open_record_crops`.
        root: the folder, or its URL.
        paths: the images, or their URLs.

    Returns:
        None if there is none.

    Raises:
        FileNotFoundError, CropIndexError: as for `open_record_crops`.

    Warns:
        CropIndexWarning: the index at its usual place cannot be used.
    """
    if option is None:
        return None
    files = CropFiles(FOLDER, (root,))
    if option == AUTO:
        index = _usable(files.place(root), FOLDER)
        return None if index is None else FolderCrops(index, root)
    chosen = files.place(root, os.path.expanduser(os.fspath(option)))
    index = _existing(chosen, FOLDER)
    keys = index.tables().keys
    if len(paths) and not any(_contains(keys, folder_key(relative_name(root, path))) for path in paths):
        raise CropIndexError("it has none of the images of this dataset", path=chosen)
    return FolderCrops(index, root)


def _usable(path: str, kind: int) -> CropIndex | None:
    """Open an index that may not exist; one that cannot be used is a warning."""
    try:
        index = CropIndex(path)
        index.check_kind(kind)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, CropIndexError) as error:
        warn_caller(f"no crop index is used: {error}", CropIndexWarning)
        return None
    index.close()  # each open index holds a descriptor, and there may be many
    return index


def _existing(path: str, kind: int) -> CropIndex:
    """Open an index that must exist."""
    _check_exists(path)
    index = CropIndex(path)
    index.check_kind(kind)
    return index


def _contains(keys: Any, key: int) -> bool:
    row = int(np.searchsorted(keys, np.uint64(key)))
    return row < len(keys) and int(keys[row]) == key


def _check_exists(path: str) -> None:
    if not os.path.exists(path):
        raise FileNotFoundError(
            errno.ENOENT, "there is no such crop index (`aioloader index --crops` makes it)", path
        )


class ItemCrops:
    """The crop index of a folder, opened at the first use, and the keys of a dataset's items in it.

    A worker does not know the names of a dataset's files, because there may be millions. So the keys of their entries
    travel with the labels, as a second field of the extras.

    Args:
        option: the dataset's option `crop_index`.
        root: the folder, or its URL.
    """

    def __init__(self, option: str | os.PathLike[str] | None, root: str) -> None:
        self._option = option
        self._root = root
        self._crops: FolderCrops | None = None
        self._keys: IntArray | None = None

    def open(self, paths: Callable[[], Sequence[str]]) -> FolderCrops | None:
        """Return the crop index; None without one. Takes about a microsecond for each item, once.

        Args:
            paths: returns the files of all items, or their URLs; called only where they are needed, because there may
                be millions, and ``dataset[i]`` calls this each time.

        Raises:
            OSError, CropIndexError: see `open_folder_crops`.
        """
        if self._option is not None:
            self._crops = open_folder_crops(self._option, self._root, paths())
            self._option = None
        if self._crops is not None and self._keys is None:
            self._keys = self._crops.keys(paths())
        return self._crops

    def forget_items(self) -> None:
        """Forget the keys, because the dataset has other items now."""
        self._keys = None

    def extras(self, labels: Array, indices: IntArray) -> Array:
        """Return the labels of items, and if there is a crop index that `open` has found, the keys of their entries.

        Args:
            labels: of all items, (n,) or (n, labels).
            indices: int64 (m,), the items.

        Returns:
            (m,) or (m, labels); or (m,) with the fields "label" and "key".
        """
        if self._keys is None:
            return labels[indices]
        extras = np.empty(len(indices), [("label", labels.dtype, labels.shape[1:]), ("key", np.uint64)])
        extras["label"], extras["key"] = labels[indices], self._keys[indices]
        return extras
