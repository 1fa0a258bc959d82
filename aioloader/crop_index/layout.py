"""Layout of the file of a crop index, and the keys of images. Pure.

The file has a header, frames and tables; docs/format.md describes it. A frame is an entry, or the reason why an image
has none, and can be recognised without the tables, so that an interrupted writer loses nothing. The tables find the
frame of a key.

Rule: the header and the tables have a CRC-32; the entries have their own, which are checked when they are used. Sizes
and offsets are compared with the size of the file before they are followed.

Places of crop indexes: next to a record file, in the root of a folder, or in the user's cache directory for URLs.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import zlib
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from aioloader.storage.urls import beside, cache_name, is_url, name_of
from recordio._index_cache import cache_directory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import Array
    from aioloader.storage.remote.transport import Version


MAGIC: Final = b"ALcrops\0"
VERSION: Final = 1

RECORDS: Final = 1
"""Kind of an index of a record file: keys are the offsets of records."""
FOLDER: Final = 2
"""Kind of an index of a folder: keys are those of `folder_key`."""
KINDS: Final = {RECORDS: "a record file", FOLDER: "a folder"}

ENTRY: Final = 1
"""Kind of a frame whose body is an entry."""
REFUSAL: Final = 2
"""Kind of a frame whose body is the reason why the image has no entry, in UTF-8."""

_FIELDS: Final = struct.Struct("<8sIIQQQQIII")
_CRC: Final = struct.Struct("<I")
HEADER_NBYTES: Final = _FIELDS.size + _CRC.size
_FRAME: Final = struct.Struct("<QQII")
_FRAME_END: Final = struct.Struct("<II")
FRAME_NBYTES: Final = _FRAME.size + _FRAME_END.size
_ALIGN: Final = 8
_ROW_NBYTES: Final = 8 + 8 + 4
MOST_BODY_NBYTES: Final = 1 << 30
"""Largest body of a frame in bytes."""


class Header(NamedTuple):
    """Header of the file of a crop index.

    Attributes:
        kind: `RECORDS` or `FOLDER`.
        images: number of images, with those that have no entry.
        tables_at: offset of the tables; 0 while the file is being written.
        jpeg_nbytes: size of all images that have an entry.
        source: number that identifies the state of the record file; 0 for a folder.
        reasons_nbytes: size of the list of reasons.
        tables_crc: CRC-32 of the tables.
    """

    kind: int
    images: int = 0
    tables_at: int = 0
    jpeg_nbytes: int = 0
    source: int = 0
    reasons_nbytes: int = 0
    tables_crc: int = 0

    @property
    def tables_nbytes(self) -> int:
        """Return the size of the tables, the list of reasons included."""
        return _ROW_NBYTES * self.images + self.reasons_nbytes

    def packed(self) -> bytes:
        """Return the header as it is stored."""
        kind, *others = self
        fields = _FIELDS.pack(MAGIC, VERSION, kind, *others, 0)
        return fields + _CRC.pack(zlib.crc32(fields))


class LayoutFault(ValueError):
    """Error raised for bytes that are not a crop index, or a damaged one; its text is the fault."""


def read_header(data: Any) -> Header:
    """Parse a header.

    Args:
        data: the first bytes of the file.

    Raises:
        LayoutFault: it is not a header of this version.
    """
    if len(data) < HEADER_NBYTES or bytes(data[:8]) != MAGIC:
        raise LayoutFault("it is not a crop index")
    (crc,) = _CRC.unpack_from(data, _FIELDS.size)
    _, version, kind, *fields, _ = _FIELDS.unpack_from(data)
    if version != VERSION:
        raise LayoutFault(f"it has version {version} of the layout, and this is version {VERSION}")
    if zlib.crc32(data[: _FIELDS.size]) != crc or kind not in KINDS:
        raise LayoutFault("its header is damaged")
    return Header(kind, *fields)


class Tables(NamedTuple):
    """Tables of a crop index.

    Attributes:
        keys: uint64 (n,), keys of the images, ascending.
        places: uint64 (n,), offset of the entry of each; of an image without an entry, the number of the reason.
        lengths: uint32 (n,), size of the entry in bytes; 0 for an image without one.
        reasons: the reasons why images have no entry.
    """

    keys: Array
    places: Array
    lengths: Array
    reasons: Sequence[str]

    def packed(self) -> bytes:
        """Return the tables as they are stored."""
        columns = ((self.keys, "<u8"), (self.places, "<u8"), (self.lengths, "<u4"))
        parts = [np.ascontiguousarray(column, dtype).tobytes() for column, dtype in columns]
        return b"".join([*parts, reasons_text(self.reasons)])


def reasons_text(reasons: Sequence[str]) -> bytes:
    """Return a list of reasons as it is stored."""
    return json.dumps(list(reasons)).encode()


def columns_of(view: memoryview, header: Header) -> tuple[memoryview, memoryview, memoryview, memoryview]:
    """Return the bytes of keys, places, lengths and reasons.

    Args:
        view: the whole file.
        header: its header.

    Raises:
        LayoutFault: the file does not have the size that the header says.
    """
    if not header.tables_at:
        raise LayoutFault("it is incomplete")
    if header.tables_at < HEADER_NBYTES or header.tables_at + header.tables_nbytes != len(view):
        raise LayoutFault(
            f"it has {len(view)} bytes, but its header says another size: it is truncated, or damaged"
        )
    places_at = header.tables_at + 8 * header.images
    lengths_at = places_at + 8 * header.images
    reasons_at = lengths_at + 4 * header.images
    return (
        view[header.tables_at : places_at],
        view[places_at:lengths_at],
        view[lengths_at:reasons_at],
        view[reasons_at:],
    )


def check_tables(view: memoryview, header: Header) -> Tables:
    """Read the tables of a whole file, with their checksum.

    Returns:
        The tables; views of the file.

    Raises:
        LayoutFault: they are damaged.
    """
    keys, places, lengths, reasons = columns_of(view, header)
    if zlib.crc32(view[header.tables_at :]) != header.tables_crc:
        raise LayoutFault("its tables are damaged")
    return Tables(
        np.frombuffer(keys, "<u8"),
        np.frombuffer(places, "<u8"),
        np.frombuffer(lengths, "<u4"),
        read_reasons(reasons),
    )


def read_reasons(text: memoryview) -> list[str]:
    """Parse the list of reasons.

    Args:
        text: as stored.

    Raises:
        LayoutFault: it is damaged.
    """
    try:
        reasons = json.loads(bytes(text))
    except (ValueError, RecursionError):  # brackets in brackets, thousands deep
        reasons = None
    if not isinstance(reasons, list) or not all(isinstance(reason, str) for reason in reasons):
        raise LayoutFault("its list of reasons is damaged")
    return reasons


class Frame(NamedTuple):
    """Frame in a file.

    Attributes:
        key: key of the image.
        nbytes: size of the image.
        kind: `ENTRY` or `REFUSAL`.
        at: offset of the body.
        length: size of the body.
    """

    key: int
    nbytes: int
    kind: int
    at: int
    length: int

    @property
    def end(self) -> int:
        """Return the offset of the next frame."""
        return padded(self.at + self.length)


def padded(offset: int) -> int:
    """Return the next multiple of 8."""
    return -(-offset // _ALIGN) * _ALIGN


def pack_frame(key: int, nbytes: int, kind: int, body: Any) -> bytes:
    """Return a frame as it is stored; see `Frame`."""
    head = _FRAME.pack(key, nbytes, kind, len(body))
    crc = zlib.crc32(body, zlib.crc32(head))
    rest = bytes(-(FRAME_NBYTES + len(body)) % _ALIGN)
    return b"".join((head, _FRAME_END.pack(crc, 0), body, rest))


def read_frame(view: memoryview, offset: int) -> Frame | None:
    """Return the frame at an offset; None if there is no intact one.

    Args:
        view: the file from its beginning, or a part of it.
        offset: in `view`.
    """
    if offset + FRAME_NBYTES > len(view):
        return None
    key, nbytes, kind, length = _FRAME.unpack_from(view, offset)
    crc, _ = _FRAME_END.unpack_from(view, offset + _FRAME.size)
    at = offset + FRAME_NBYTES
    if kind not in (ENTRY, REFUSAL) or length > MOST_BODY_NBYTES or padded(at + length) > len(view):
        return None
    head = zlib.crc32(view[offset : offset + _FRAME.size])
    return Frame(key, nbytes, kind, at, length) if zlib.crc32(view[at : at + length], head) == crc else None


def folder_key(name: str) -> int:
    """Return the key of an image of a folder.

    Args:
        name: its path relative to the folder, with slashes.
    """
    digest = blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


SUFFIX = ".crops"
FOLDER_FILE = "images.crops"
"""Name of the index of a folder, in its root."""


def record_index(path: str) -> str:
    """Return where the index of a record file is.

    Args:
        path: the record file, or its URL.
    """
    return _cached(path) if is_url(path) else beside(path, SUFFIX)


def shard_index(path: str) -> str:
    """Return where the index of a shard of another format is.

    The whole name is kept: shards of several formats, or with numbers as suffixes, may differ in their suffixes only.

    Args:
        path: the shard, or its URL.
    """
    return _cached(path) if is_url(path) else path + SUFFIX


def folder_index(root: str) -> str:
    """Return where the index of a folder is.

    Args:
        root: the folder, or its URL.
    """
    return _cached(root) if is_url(root) else os.path.join(root, FOLDER_FILE)


class CropFiles(NamedTuple):
    """Files of a dataset that have crop indexes.

    Attributes:
        kind: `RECORDS` or `FOLDER`.
        paths: the files, or the only folder; or their URLs.
        field: name of the images in the samples of shards; None for record files and folders.
        replaces_suffix: the suffix of the index of a file takes the place of the suffix of the file; see `shard_index`.
    """

    kind: int
    paths: Sequence[str]
    field: str | None = None
    replaces_suffix: bool = False

    def place(self, path: str, chosen: str | None = None) -> str:
        """Return where the index of one of the paths is.

        Args:
            path: one of the paths.
            chosen: by the caller: a file, or a directory that contains the index under its usual name.
        """
        is_folder = self.kind == FOLDER
        usual = folder_index if is_folder else record_index if self.replaces_suffix else shard_index
        if chosen is None:
            return usual(path)
        if not os.path.isdir(chosen):
            return chosen
        return os.path.join(chosen, os.path.basename(usual(name_of(path))))


def fetched_index(url: str, version: Version) -> str:
    """Return where the copy of the index is that lies next to a remote record file.

    Args:
        url: the record file.
        version: of the index.
    """
    return _cached(url, f"-{file_number(url, version):016x}")


def _cached(url: str, version: str = "") -> str:
    # Without the signature of a URL, which changes.
    digest = hashlib.sha256(cache_name(url).rstrip("/").encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return str(cache_directory() / "crop-index" / f"{digest}{version}{SUFFIX}")


def is_index_file(name: str) -> bool:
    """Return whether a file in the root of a folder is its index, or one that is being written."""
    return name in (FOLDER_FILE, f"{FOLDER_FILE}.partial")


def file_number(path: str, version: Version | None = None, *, field: str | None = None) -> int:
    """Return a number that identifies the present state of a file, by its size and its time of modification.

    Args:
        path: the file, or its URL.
        version: version of the object if `path` is a URL.
        field: name of the images in the samples of a shard; None for a record file.

    Returns:
        0 < number < 2**64.

    Raises:
        OSError: there is no such file.
    """
    if version is None:
        status = os.stat(path)
        facts = f"{status.st_size} {status.st_mtime_ns}"
    else:
        facts = f"{version.nbytes} {version.tag}"
    if field is not None:
        facts += f" {field}"
    return int.from_bytes(hashlib.blake2b(facts.encode(), digest_size=8).digest(), "little") or 1
