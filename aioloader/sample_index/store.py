"""Places of sample indexes, and reading and writing them.

An index is searched next to its shard (``NAME.samples``, written by ``aioloader index``), then in the user's cache
directory. A copy that is damaged, or is that of another state of the shard, is ignored: the shard is scanned again. A
file is written to a temporary name, synced and renamed, so that readers see a complete one or none.

An index is read into memory and not mapped: reading a map behind the end of a file that another program truncates kills
the process, and the checksum has to read all of it anyway.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import zlib
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aioloader.sample_index.layout import IndexFault, SampleIndex, ShardState, pack_index, unpack_index
from aioloader.storage.local.descriptors import open_regular, read_into
from aioloader.storage.urls import cache_name, is_url
from recordio._index_cache import cache_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.storage.remote.transport import Version

SUFFIX: Final = ".samples"
# A shard of this size or less is identified by its bytes, too: one that is rewritten within a tick of the clock keeps
# its time of modification, and perhaps its size. Writing a larger one takes longer than a tick.
_SMALL_SHARD_NBYTES: Final = 1 << 20
# An index takes at most some 40 bytes for each sample and its key again; a sample has 12 bytes or more.
_MOST_SHARE: Final = 16
_LEAST_LIMIT_NBYTES: Final = 1 << 20


def shard_state(path: str, version: Version | None = None) -> ShardState | None:
    """Return the present state of a shard; None for an object whose server does not identify its version.

    Args:
        path: the shard, or its URL.
        version: of the object if `path` is a URL.

    Raises:
        OSError: the file cannot be read.
    """
    if version is not None:
        return None if version.tag is None else ShardState(version.nbytes, version.tag)
    descriptor = open_regular(path)
    try:
        status = os.fstat(descriptor)
        state = str(status.st_mtime_ns)
        if status.st_size <= _SMALL_SHARD_NBYTES:
            data = bytearray(status.st_size)
            state += f"-{zlib.crc32(memoryview(data)[: read_into(descriptor, memoryview(data), 0)]):08x}"
    finally:
        os.close(descriptor)
    return ShardState(status.st_size, state)


def index_beside(path: str) -> str:
    """Return the path of the index next to a local shard."""
    return path + SUFFIX


def cached_index(path: str) -> str:
    """Return the path of the index of a shard in the user's cache directory.

    Args:
        path: the shard, or its URL; without the signature of a URL, which changes.
    """
    name = cache_name(path) if is_url(path) else os.path.abspath(path)
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return str(cache_directory() / "sample-index" / f"{digest}{SUFFIX}")


def open_index(path: str, version: Version | None, kind: str, make: Callable[[], SampleIndex]) -> SampleIndex:
    """Return the index of a shard: the one that is kept, or a new one, which is kept in the user's cache directory.

    Args:
        path: the shard, or its URL.
        version: of the object if `path` is a URL.
        kind: of the index; one of another kind is ignored.
        make: scans the shard; its errors are raised.

    Raises:
        OSError: the shard cannot be read.
    """
    before = shard_state(path, version)
    kept = load_index(path, before, kind)
    if kept is not None:
        return kept
    index = make()
    # An index of a shard that changed while it was scanned is not kept.
    if before is not None and (version is not None or shard_state(path) == before):
        with contextlib.suppress(OSError):
            write_index(cached_index(path), index, before)
    return index


def load_index(
    path: str, state: ShardState | None, kind: str, places: Sequence[str] = ()
) -> SampleIndex | None:
    """Return the index that is kept for the present state of a shard; None if there is none that can be used.

    Args:
        path: the shard, or its URL.
        state: of the shard.
        kind: of the index.
        places: where it is searched; empty: at the usual places.
    """
    if state is None:
        return None
    for place in places or _places(path):
        index = _fitting(place, state, kind)
        if index is not None:
            return index
    return None


class IndexState(Enum):
    """State of the index of a shard."""

    BESIDE = "next to the shard"
    CACHED = "in the cache directory"
    STALE = "of another state of the shard, of another kind or damaged"
    MISSING = "none"


def index_state(path: str, version: Version | None, kind: str) -> IndexState:
    """Return where the index of a shard is that `open_index` uses; if it uses none, why.

    Args:
        path, version, kind: as for `open_index`.

    Raises:
        OSError: the shard cannot be read.
    """
    state = shard_state(path, version)
    for place in _places(path):
        if state is not None and _fitting(place, state, kind) is not None:
            return IndexState.CACHED if place == cached_index(path) else IndexState.BESIDE
    return IndexState.STALE if any(map(os.path.exists, _places(path))) else IndexState.MISSING


def _places(path: str) -> list[str]:
    return [cached_index(path)] if is_url(path) else [index_beside(path), cached_index(path)]


def _fitting(place: str, state: ShardState, kind: str) -> SampleIndex | None:
    """Return the index at a place; None if there is none, or it is damaged, of another kind or of another state."""
    try:
        index, described = unpack_index(_read(place, index_limit(state.nbytes)))
    except (OSError, IndexFault):
        return None
    return index if index.kind == kind and described == state else None


def write_index(place: str, index: SampleIndex, state: ShardState) -> None:
    """Write an index; its folder is made if it does not exist.

    Args:
        place: path of the file.
        index: of a shard.
        state: of the shard.

    Raises:
        OSError: the file cannot be written.
    """
    target = Path(place)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.partial")
    try:
        with open(temporary, "xb") as stream:
            stream.write(pack_index(index, state))
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def index_limit(nbytes: int) -> int:
    """Return the size of the largest file that is taken for the index of a shard of `nbytes` bytes."""
    return _LEAST_LIMIT_NBYTES + _MOST_SHARE * nbytes


def _read(place: str, limit: int) -> memoryview:
    """Return the bytes of a file.

    Raises:
        OSError: it cannot be read.
        IndexFault: it has more than `limit` bytes.
    """
    descriptor = open_regular(place)
    try:
        nbytes = os.fstat(descriptor).st_size
        if nbytes > limit:
            raise IndexFault(f"it has {nbytes} bytes, and the index of this shard has {limit} at most")
        data = memoryview(bytearray(nbytes))
        return data[: read_into(descriptor, data, 0)].toreadonly()
    finally:
        os.close(descriptor)
