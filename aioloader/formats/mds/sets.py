"""MDS sets, folders with an index and shards: the files of the shards, and the check of one of them."""

from __future__ import annotations

import errno
import glob
import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioloader.datasets.shards import is_pattern, pinned_paths, record_files
from aioloader.errors import SampleFormatError
from aioloader.formats.mds.index import (
    INDEX_NAME,
    MOST_INDEX_NBYTES,
    LayoutFault,
    MDSColumn,
    MDSShard,
    SampleLayout,
    parse_index,
    parse_table,
    table_nbytes,
)
from aioloader.storage.cache.unpacked import FileCheck
from aioloader.storage.local.descriptors import open_regular
from aioloader.storage.urls import is_url, join, name_of, path_of, redact_url, sibling

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence

    from aioloader.foundation.types import IntArray


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


def check_shard(
    blocks: Iterable[bytes],
    file: ShardFile,
    columns: tuple[MDSColumn, ...],
    tick: Callable[[int], object] | None,
) -> Generator[SampleFormatError, None, int]:
    """Read a shard once, and yield each fault of it; see `aioloader.datasets.shard_dataset.ShardDataset.check_shard`.

    Args:
        blocks: of the shard without compression.
        file: of the shard, for errors.
        columns: of every sample.
        tick: called after each block with the number of bytes so far.
    """
    check, path = FileCheck(file.shard.raw.hashes), redact_url(file.path)
    walk = _Walk(file, SampleLayout(columns))
    for block in blocks:
        check.add(block)
        yield from walk.feed(block)
        if tick is not None:
            tick(check.nbytes)
    try:
        check.require(file.shard.raw.nbytes, path, "the shard")
    except SampleFormatError as error:
        yield error
    else:
        yield from walk.finish()
    return walk.valid


class _Walk:
    """Walk through the samples of a shard that arrives in blocks. Holds little more than a block.

    Args:
        file: of the shard.
        layout: of the samples.

    Attributes:
        valid: number of samples without a fault.
    """

    def __init__(self, file: ShardFile, layout: SampleLayout) -> None:
        self._file = file
        self._path = redact_url(file.path)
        self._layout = layout
        self._offsets: IntArray | None = None
        self._failed = False
        self._row = 0
        self._held = bytearray()
        self._begin = 0  # place of the held bytes in the shard
        self.valid = 0

    def feed(self, block: bytes) -> Iterator[SampleFormatError]:
        """Yield the faults of the samples whose sizes are in the bytes so far."""
        if self._failed:
            return
        self._held += block
        if self._offsets is None:
            if len(self._held) < table_nbytes(self._file.shard.samples):
                return
            try:
                self._offsets = parse_table(self._held, self._file.shard, self._path)
            except SampleFormatError as error:
                self._failed = True
                yield error
                return
        yield from self._samples(self._offsets)

    def finish(self) -> Iterator[SampleFormatError]:
        """Yield the fault of a shard that has ended inside its table."""
        if self._offsets is None and not self._failed:
            try:
                parse_table(self._held, self._file.shard, self._path)
            except SampleFormatError as error:
                yield error

    def _samples(self, offsets: IntArray) -> Iterator[SampleFormatError]:
        last, end = len(offsets) - 1, self._begin + len(self._held)
        while self._row < last:
            low, high = int(offsets[self._row]), int(offsets[self._row + 1])
            if min(high, low + self._layout.head_nbytes) > end:
                break
            try:
                at = low - self._begin
                self._layout.spans(self._held[at : at + self._layout.head_nbytes], high - low)
                self.valid += 1
            except LayoutFault as fault:
                yield SampleFormatError(
                    str(fault),
                    path=self._path,
                    offset=low,
                    key=str(self._row),
                    expected=None if fault.expected is None else f"{fault.expected} bytes",
                    found=high - low,
                )
            self._row += 1
        needed = int(offsets[self._row]) if self._row < last else end
        kept = min(max(0, needed - self._begin), len(self._held))
        del self._held[:kept]
        self._begin += kept
