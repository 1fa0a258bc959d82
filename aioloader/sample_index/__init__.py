"""Side-car indexes of the samples of shards: their places, and reading and writing them.

A shard is scanned once; its index is kept next to it or in the user's cache directory, for one state of the shard.

An index is searched next to its shard (``NAME.samples``, written by ``aioloader index``), then in the user's cache
directory. A copy that is damaged, or is that of another state of the shard, is ignored: the shard is scanned again. A
file is written to a temporary name, synced and renamed, so that readers see a complete one or none.

An index is read into memory and not mapped: reading a map behind the end of a file that another program truncates kills
the process, and the checksum has to read all of it anyway.

The file has named arrays and the state of the shard that they describe: a fixed head (magic, version, length and CRC-32
of the description, CRC-32 of the arrays), the description (JSON) and the arrays, each at a multiple of 64 bytes;
docs/format.md describes it. Sizes and offsets are compared with the size of the file before they are followed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import struct
import threading
import zlib
from enum import Enum
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from aioloader.observability.progress import ProgressBar
from aioloader.storage.local.descriptors import open_regular, read_into
from aioloader.storage.urls import cache_name, is_url
from recordio._index_cache import cache_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aioloader.foundation.types import Array
    from aioloader.storage.remote.transport import Version


MAGIC: Final = b"ALsampls"
VERSION: Final = 1
_HEAD: Final = struct.Struct("<8sIIII")
_ALIGN: Final = 64
_DTYPES: Final = frozenset(["|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f4", "<f8"])
_MOST_DESCRIPTION_NBYTES: Final = 1 << 20
_MOST_ARRAYS: Final = 64
_MOST_DIMENSIONS: Final = 8
_MOST_ELEMENTS: Final = 1 << 48


class IndexFault(ValueError):
    """Error raised for bytes that are not a sample index, or a damaged one; its text is the fault."""


class ShardState(NamedTuple):
    """State of a shard; an index is valid for one state only.

    Attributes:
        nbytes: size of the shard.
        state: text that changes whenever its bytes change.
    """

    nbytes: int
    state: str


class SampleIndex(NamedTuple):
    """Index of the samples of one shard.

    Attributes:
        kind: format of the shard and version of its arrays, such as "tar-4".
        arrays: name to array, of integers or floats, with one dimension or more.
    """

    kind: str
    arrays: Mapping[str, Array]


def pack_index(index: SampleIndex, shard: ShardState) -> bytes:
    """Return the file of an index.

    Args:
        index: at most 64 arrays.
        shard: the state of the shard that it describes.

    Raises:
        TypeError: an array is neither one of integers nor one of floats of 4 or 8 bytes.
    """
    columns = []
    parts: list[bytes] = []
    at = 0
    for name, array in index.arrays.items():
        data = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        if data.dtype.str not in _DTYPES:
            raise TypeError(f"the array {name!r} of a sample index has the dtype {array.dtype}")
        columns.append([name, data.dtype.str, list(data.shape), at])
        nbytes = _padded(data.nbytes)
        parts.append(data.tobytes().ljust(nbytes, b"\0"))
        at += nbytes
    body = b"".join(parts)
    description = json.dumps(
        {"kind": index.kind, "nbytes": shard.nbytes, "state": shard.state, "arrays": columns}
    ).encode()
    description = description.ljust(_padded(_HEAD.size + len(description)) - _HEAD.size)
    head = _HEAD.pack(MAGIC, VERSION, len(description), zlib.crc32(description), zlib.crc32(body))
    return head + description + body


def unpack_index(data: memoryview) -> tuple[SampleIndex, ShardState]:
    """Parse the file of an index.

    Args:
        data: the whole file; the arrays are views of it.

    Raises:
        IndexFault: it is not an index of this version, or it is damaged.
    """
    if len(data) < _HEAD.size or bytes(data[:8]) != MAGIC:
        raise IndexFault("it is not a sample index")
    _, version, length, description_crc, body_crc = _HEAD.unpack_from(data)
    if version != VERSION:
        raise IndexFault(f"it has version {version} of the layout, and this is version {VERSION}")
    begin = _HEAD.size + length
    if length > _MOST_DESCRIPTION_NBYTES or begin > len(data):
        raise IndexFault("its head is damaged")
    text = bytes(data[_HEAD.size : begin])
    if zlib.crc32(text) != description_crc:
        raise IndexFault("its description is damaged")
    body = data[begin:]
    if zlib.crc32(body) != body_crc:
        raise IndexFault("its arrays are damaged")
    try:
        description = json.loads(text)
        columns = description["arrays"]
        if len(columns) > _MOST_ARRAYS:
            raise IndexFault(f"it has {len(columns)} arrays")
        arrays = {str(name): _array(body, dtype, shape, at) for name, dtype, shape, at in columns}
        index = SampleIndex(str(description["kind"]), arrays)
        return index, ShardState(int(description["nbytes"]), str(description["state"]))
    except IndexFault:
        raise
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
        raise IndexFault(f"its description is damaged: {error}") from None


def _array(body: memoryview, dtype: Any, shape: Any, at: Any) -> Array:
    """Return one array as a view of the body; raise ValueError or TypeError if it is not in it."""
    if dtype not in _DTYPES:
        raise ValueError(f"dtype {dtype}")
    if type(shape) is not list or not 1 <= len(shape) <= _MOST_DIMENSIONS:
        raise ValueError(f"shape {shape}")
    kind: np.dtype[Any] = np.dtype(dtype)
    count = extents = 1
    for extent in shape:
        if type(extent) is not int or extent < 0:
            raise ValueError(f"shape {shape}")
        count *= extent
        extents *= max(extent, 1)
    if type(at) is not int or at < 0 or at + count * kind.itemsize > len(body) or extents > _MOST_ELEMENTS:
        raise ValueError(f"an array ends behind the file, at {at}")
    array: Array = np.frombuffer(body, kind, count, at).reshape(shape)
    return array


def _padded(nbytes: int) -> int:
    return -(-nbytes // _ALIGN) * _ALIGN


_SOON_S = 2.0


class ScanProgress:
    """Progress bar of the scans of several shards, as a context manager. Used from several threads.

    The bar appears when the scans have taken two seconds.

    Args:
        label: the work, in a word or two.
        total: returns the number of bytes of all shards; called when the bar appears.
    """

    def __init__(self, label: str, total: Callable[[], int]) -> None:
        self._label = label
        self._total = total
        self._due = monotonic() + _SOON_S
        self._lock = threading.Lock()
        self._reached: dict[str, int] = {}
        self._sum = 0
        self._bar: ProgressBar | None = None
        self._closed = False

    def __enter__(self) -> ScanProgress:
        return self

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._closed = True
            if self._bar is not None:
                self._bar.close()

    def update(self, path: str, reached: int) -> None:
        """Set the number of bytes of a shard whose samples are known."""
        with self._lock:
            if self._closed:
                return
            self._sum += reached - self._reached.get(path, 0)
            self._reached[path] = reached
            if self._bar is not None:
                self._bar.update(self._sum >> 20)
            elif monotonic() >= self._due:
                self._bar = ProgressBar(self._label, max(1, self._total() >> 20), unit="MiB")
                self._bar.update(self._sum >> 20)


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
