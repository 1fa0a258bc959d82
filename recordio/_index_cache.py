"""A binary copy of an index that opens in well under a millisecond at any size, by memory map.

Strategy: the copy lives in the user's cache directory ($AIOLOADER_CACHE_DIR, else the platform's
own place), one file per source, named by a hash of the absolute path. It holds for one size and
mtime_ns of that source. A source of up to 1 MiB is also compared by checksum, because a file
rewritten within one tick of the clock keeps both; a larger one takes longer than a tick to write.
The copy is written to a temporary file, synced and renamed, so readers see a whole one or none.
Whatever is wrong with it (truncated, foreign, unreadable, directory not writable) only means that
there is no cache: the source is parsed again. Indexes with text keys are not cached; a list of str
cannot be memory-mapped.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import sys
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from recordio._index_text import IndexLines

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ("ObjectCopy", "Signature", "cache_directory", "cache_file", "load", "sign", "store")

_MAGIC: Final = b"RIOINDEX"
_VERSION: Final = 1
# magic, version, identity keys, lines, source size, source mtime_ns, source checksum, path length
_HEAD: Final = struct.Struct("<8sIIqqqII")
_CHECK: Final = struct.Struct("<I")
_ALIGN: Final = 64
_SMALL_SOURCE_BYTES: Final = 1 << 20
_SAMPLES: Final = 64


@dataclass(frozen=True, slots=True)
class Signature:
    """What a cached index was made from: absolute path, size, mtime in ns, checksum if small."""

    path: str
    size: int
    mtime_ns: int
    checksum: int


def sign(path: str) -> Signature:
    """Describe a source file as it is now.

    Raises:
        OSError: the file cannot be examined.
    """
    status = os.stat(path)
    checksum = 0
    if status.st_size <= _SMALL_SOURCE_BYTES:
        with open(path, "rb") as file:
            checksum = zlib.crc32(file.read(_SMALL_SOURCE_BYTES))
    return Signature(os.path.abspath(path), status.st_size, status.st_mtime_ns, checksum)


def cache_directory() -> Path:
    """Where cached indexes go; the directory need not exist."""
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


def cache_file(path: str, kind: str) -> Path:
    """The cached copy for a source; `kind` tells parsed text from a scanned record file."""
    whole = path if "://" in path else os.path.abspath(path)
    name = hashlib.sha256(os.fsencode(whole)).hexdigest()[:32]
    return cache_directory() / "recordio-index" / f"{name}.{kind}"


def load(file: Path, signature: Signature) -> IndexLines | None:
    """Memory-map a cached index; None if there is none that is whole and made from this source."""
    try:
        with open(file, "rb") as stream:
            return _map(stream.fileno(), file, stream.read(64 * 1024), signature)
    except (OSError, ValueError, struct.error):
        return None


def _map(descriptor: int, file: Path, head: bytes, signature: Signature) -> IndexLines | None:
    fields = _HEAD.unpack_from(head)
    magic, version, identity, lines, size, mtime_ns, checksum, path_length = fields
    made_from = (size, mtime_ns, checksum)
    path_end = _HEAD.size + path_length
    if (
        (magic, version) != (_MAGIC, _VERSION)
        or made_from != (signature.size, signature.mtime_ns, signature.checksum)
        or head[_HEAD.size : path_end] != os.fsencode(signature.path)
        or lines < 0
    ):
        return None
    begin = _aligned(path_end + _CHECK.size)
    columns = 1 if identity else 2
    if os.fstat(descriptor).st_size != begin + 8 * columns * lines:
        return None
    if lines == 0:
        return IndexLines(np.empty(0, np.int64), np.empty(0, np.int64))
    table: NDArray[np.int64] = np.memmap(file, dtype="<i8", mode="r", offset=begin, shape=(columns, lines))
    (check,) = _CHECK.unpack_from(head, path_end)
    if check != _checksum(head[:path_end], table):
        return None
    # A plain view: subclass arithmetic on a memmap would be carried into everything made from it.
    plain = table.view(np.ndarray)
    keys = range(lines) if identity else plain[1]
    return IndexLines(keys, plain[0])


def store(file: Path, signature: Signature, lines: IndexLines) -> bool:
    """Write a cached index; False if that is not possible here, which is no error."""
    keys = lines.keys
    if isinstance(keys, list):
        return False
    count = len(lines.offsets)
    columns = [lines.offsets]
    if not isinstance(keys, range) and not np.array_equal(keys, np.arange(count)):
        columns.append(keys)
    path = os.fsencode(signature.path)
    head = _HEAD.pack(
        _MAGIC,
        _VERSION,
        len(columns) == 1,
        count,
        signature.size,
        signature.mtime_ns,
        signature.checksum,
        len(path),
    )
    head += path
    table = [np.ascontiguousarray(column, dtype="<i8") for column in columns]
    head += _CHECK.pack(_checksum(head, table))
    head = head.ljust(_aligned(len(head)), b"\0")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=file.parent, prefix=file.name + ".")
    except OSError:
        return False
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(head)
            for column in table:
                stream.write(column.data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, file)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        return False
    return True


class ObjectCopy:
    """The copy of the index of an object that is no file.

    Args:
        name: Of the object.
        kind: As for `cache_file`.
        size: Bytes of the object.
        state: Another text whenever its bytes are others.
    """

    def __init__(self, name: str, kind: str, size: int, state: str) -> None:
        self._file = cache_file(name, kind)
        self._signature = Signature(name, size, 0, zlib.crc32(state.encode()))

    def load(self) -> IndexLines | None:
        """As the function of that name."""
        return load(self._file, self._signature)

    def store(self, lines: IndexLines) -> bool:
        """As the function of that name."""
        return store(self._file, self._signature, lines)


def _aligned(length: int) -> int:
    return -(-length // _ALIGN) * _ALIGN


def _checksum(head: bytes, columns: list[NDArray[np.int64]] | NDArray[np.int64]) -> int:
    """Checksum of the head and of lines spread over the table.

    Not of every line: that would read the whole file and cost more than the map saves. A wrong
    offset that slips through is still caught when the record is read.
    """
    check = zlib.crc32(head)
    for column in columns:
        last = len(column) - 1
        at = [last * step // _SAMPLES for step in range(_SAMPLES + 1)] if last >= 0 else []
        check = zlib.crc32(np.ascontiguousarray(column[at]).tobytes(), check)
    return check
