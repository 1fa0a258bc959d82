"""Binary copy of an index that opens in well under a millisecond at any size, by memory map.

Strategy: the copy is in the user's cache directory ($AIOLOADER_CACHE_DIR, else the platform's own place), one file per
source, named by a hash of the absolute path. It is valid for one size and mtime_ns of that source. A source of up to
1 MiB is also compared by checksum, because a file rewritten within one tick of the clock keeps both; a larger one takes
longer than a tick to write. The copy is written to a temporary file, synced and renamed, so readers see a complete one
or none. Any fault of it (truncated, foreign, unreadable, directory not writable) only means that there is no cache:
the source is parsed again. Indexes with text keys are not cached; a list of str cannot be memory-mapped.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import sys
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from recordio._index_text import IndexLines

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_MAGIC: Final = b"RIOINDEX"
_VERSION: Final = 1
# magic, version, identity keys, lines, source size, source mtime_ns, source checksum, path length
_HEAD: Final = struct.Struct("<8sIIqqqII")
_CHECK: Final = struct.Struct("<I")
_ALIGN: Final = 64
_SMALL_SOURCE_BYTES: Final = 1 << 20
_SAMPLES: Final = 64


class _Signature(NamedTuple):
    """Identity of the source of an index: absolute path, size, mtime in ns, checksum if small."""

    path: str
    size: int
    mtime_ns: int
    checksum: int


def _sign(path: str) -> _Signature:
    """Return the signature of a file as it is now; OSError if it cannot be examined."""
    status = os.stat(path)
    checksum = 0
    if status.st_size <= _SMALL_SOURCE_BYTES:
        with open(path, "rb") as file:
            checksum = zlib.crc32(file.read(_SMALL_SOURCE_BYTES))
    return _Signature(os.path.abspath(path), status.st_size, status.st_mtime_ns, checksum)


def cache_directory() -> Path:
    """Return the directory of cached indexes; it need not exist."""
    if chosen := os.environ.get("AIOLOADER_CACHE_DIR"):
        return Path(chosen)
    if chosen := os.environ.get("XDG_CACHE_HOME"):
        return Path(chosen, "aioloader")
    home = Path(os.path.expanduser("~"))
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", home / "AppData" / "Local"), "aioloader")
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "aioloader"
    return home / ".cache" / "aioloader"


def _cache_file(name: str, kind: str) -> Path:
    digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:32]
    return cache_directory() / "recordio-index" / f"{digest}.{kind}"


class CachedIndex:
    """Binary copy of the index of one source, in its present state.

    Args:
        file: Copy.
        signature: State of the source now.
        path: Local file that is the source; None for an object.
    """

    def __init__(self, file: Path, signature: _Signature, path: str | None = None) -> None:
        self._file = file
        self._signature = signature
        self._path = path

    @classmethod
    def of_file(cls, path: str, kind: str, *, next_to_it: bool = False) -> CachedIndex:
        """Return the copy for a local file.

        Args:
            path: The file.
            kind: Distinguishes parsed text from a scanned record file.
            next_to_it: The copy is next to the file as `NAME.cache`, not in the cache directory.

        Raises:
            OSError: The file cannot be examined.
        """
        file = Path(f"{path}.cache") if next_to_it else _cache_file(os.path.abspath(path), kind)
        return cls(file, _sign(path), path)

    @classmethod
    def of_object(cls, name: str, kind: str, *, size: int, state: str) -> CachedIndex:
        """Return the copy for an object that is not a local file.

        Args:
            name: Name of the object; a URL, or it is taken for a path.
            kind: As for `of_file`.
            size: Bytes of the object.
            state: Text that changes whenever its bytes change.
        """
        whole = name if "://" in name else os.path.abspath(name)
        return cls(_cache_file(whole, kind), _Signature(name, size, 0, zlib.crc32(state.encode())))

    def get(self, make: Callable[[], IndexLines]) -> IndexLines:
        """Return the copy, or make the index and store a copy of it."""
        lines = self.load()
        if lines is None:
            lines = make()
            self.store(lines)
        return lines

    def load(self) -> IndexLines | None:
        """Memory-map the copy; None if there is none that is complete and made from the source's present state."""
        try:
            with open(self._file, "rb") as stream:
                return self._map(stream.fileno(), stream.read(64 * 1024))
        except (OSError, ValueError, struct.error):
            return None

    def _map(self, descriptor: int, head: bytes) -> IndexLines | None:
        fields = _HEAD.unpack_from(head)
        magic, version, identity, lines, size, mtime_ns, checksum, path_length = fields
        path_end = _HEAD.size + path_length
        path = os.fsdecode(head[_HEAD.size : path_end])
        if (
            (magic, version) != (_MAGIC, _VERSION)
            or _Signature(path, size, mtime_ns, checksum) != self._signature
            or lines < 0
        ):
            return None
        begin = _aligned(path_end + _CHECK.size)
        columns = 1 if identity else 2
        if os.fstat(descriptor).st_size != begin + 8 * columns * lines:
            return None
        if lines == 0:
            return IndexLines(np.empty(0, np.int64), np.empty(0, np.int64))
        mapped: NDArray[np.int64] = np.memmap(
            self._file, dtype="<i8", mode="r", offset=begin, shape=(columns, lines)
        )
        # A plain view: everything computed from a memmap would be a memmap too, which takes longer.
        table = mapped.view(np.ndarray)
        (check,) = _CHECK.unpack_from(head, path_end)
        if check != _checksum(head[:path_end], table):
            return None
        return IndexLines(range(lines) if identity else table[1], table[0])

    def store(self, lines: IndexLines) -> None:
        """Write the copy, if that is possible; otherwise there is none, which is not an error."""
        keys = lines.keys
        # A source that changed while it was read must not be remembered in either state.
        if isinstance(keys, list) or (self._path is not None and _sign(self._path) != self._signature):
            return
        count = len(lines.offsets)
        columns = [lines.offsets]
        if not isinstance(keys, range) and not np.array_equal(keys, np.arange(count)):
            columns.append(keys)
        source, *state = self._signature
        path = os.fsencode(source)
        fields = (_MAGIC, _VERSION, len(columns) == 1, count, *state, len(path))
        head = _HEAD.pack(*fields) + path
        table = [np.ascontiguousarray(column, dtype="<i8") for column in columns]
        head += _CHECK.pack(_checksum(head, table))
        head = head.ljust(_aligned(len(head)), b"\0")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=self._file.parent, prefix=self._file.name + ".")
        except OSError:
            return
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.write(head)
                for column in table:
                    stream.write(column.data)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(temporary, self._file)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)


def _aligned(length: int) -> int:
    return -(-length // _ALIGN) * _ALIGN


def _checksum(head: bytes, columns: list[NDArray[np.int64]] | NDArray[np.int64]) -> int:
    """Return a checksum of the head and of lines spread over the table.

    It does not include every line: that would read the whole file and cost more than the map saves. A wrong offset
    that it misses is still detected when the record is read.
    """
    check = zlib.crc32(head)
    for column in columns:
        last = len(column) - 1
        at = [last * step // _SAMPLES for step in range(_SAMPLES + 1)] if last >= 0 else []
        check = zlib.crc32(np.ascontiguousarray(column[at]).tobytes(), check)
    return check
