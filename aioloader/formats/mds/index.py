"""MDS, the format of MosaicML Streaming: the index of a set, and the layout of a shard and of a sample. Pure.

A set is a folder with an index, index.json, and shards. A shard has a table at its beginning: the number of samples,
then where each sample begins and where the last one ends (uint32, little endian); a copy of the writer's settings
follows, which is not needed, and then the samples. A sample has the sizes (uint32) of those columns whose size varies,
then the data of all columns in the order of the index. Source: the package mosaicml-streaming, version 2 of the format
(`streaming.base.format.mds`); docs/formats.md, "MDS (MosaicML Streaming)".

Every size is compared with that of the bytes before it is used.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from aioloader.errors import SampleFormatError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioloader.foundation.types import IntArray

INDEX_NAME: Final = "index.json"
"""Name of the index in the folder of a set."""

MOST_INDEX_NBYTES: Final = 256 << 20
"""Size of the largest index that is read; that of a set with a hundred thousand shards has about 100 MB."""

CODECS: Final = ("br", "bz2", "gz", "snappy", "zstd")
"""Compressions of shards; also the suffixes of their files."""

_VERSION: Final = 2
_WORD: Final = 4
# Places in a shard are 32-bit numbers.
_MOST_SHARD_NBYTES: Final = (1 << 32) - 1
_MOST_PACKED_NBYTES: Final = 1 << 33
_COUNT: Final = struct.Struct("<I")


class MDSFile(NamedTuple):
    """File of a shard, as the index describes it.

    Attributes:
        name: path in the folder of the set, with slashes; it never leads out of the folder.
        nbytes: its size.
        hashes: name of an algorithm to the hexadecimal digest of the file.
    """

    name: str
    nbytes: int
    hashes: Mapping[str, str]


class MDSShard(NamedTuple):
    """Shard of a set.

    Attributes:
        samples: number of its samples.
        raw: the file without compression.
        packed: the compressed file; None if the set is not compressed.
        codec: one of `CODECS`; None if the set is not compressed.
    """

    samples: int
    raw: MDSFile
    packed: MDSFile | None
    codec: str | None


class MDSColumn(NamedTuple):
    """Column of the samples of a set.

    Attributes:
        name: of the column.
        encoding: of its values, such as "jpeg" or "ndarray:float32:3,4".
        nbytes: size of every value; None if it varies.
    """

    name: str
    encoding: str
    nbytes: int | None


class MDSIndex(NamedTuple):
    """Index of a set.

    Attributes:
        columns: of every sample, in the order of the data.
        shards: in order.
    """

    columns: tuple[MDSColumn, ...]
    shards: tuple[MDSShard, ...]


# -- the index of a set ----------------------------------------------------------------------------------------------


def parse_index(data: bytes, path: str) -> MDSIndex:
    """Parse an index.

    Args:
        data: the file.
        path: of the file, for errors.

    Raises:
        SampleFormatError: it is not an index of version 2 of MDS, or is damaged, or its shards have different columns.
    """
    if len(data) > MOST_INDEX_NBYTES:
        raise SampleFormatError(
            "the index is too large",
            path=path,
            expected=f"{MOST_INDEX_NBYTES} bytes at most",
            found=len(data),
        )
    try:
        described = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise SampleFormatError(f"the index is not JSON: {error}", path=path) from None
    facts = _Facts(described, path, "the index")
    facts.check_version()
    shards: list[MDSShard] = []
    columns: tuple[MDSColumn, ...] = ()
    for number, each in enumerate(facts.items("shards")):
        shard = _Facts(each, path, f"shard {number}")
        shard.check_version()
        shard.check_format()
        own = _columns(shard)
        if shards and own != columns:
            raise SampleFormatError(
                f"shard {number} has other columns than shard 0: open the shards of each kind as a data set, with an "
                "index of its own",
                path=path,
                expected=_named(columns),
                found=_named(own),
            )
        columns = own
        shards.append(_shard(shard))
    return MDSIndex(columns, tuple(shards))


def _named(columns: Sequence[MDSColumn]) -> str:
    return ", ".join(f"{column.name}: {column.encoding}" for column in columns)[:200]


class _Facts:
    """Values of a JSON object, checked.

    Args:
        value: the object.
        path: of the index, for errors.
        where: the object, for errors.
    """

    def __init__(self, value: Any, path: str, where: str) -> None:
        self.path = path
        self.where = where
        if not isinstance(value, dict):
            raise self.fault("", "an object", value)
        self._values: dict[str, Any] = value

    def fault(self, name: str, expected: str, found: Any) -> SampleFormatError:
        """Return the error for a value that is not what it should be."""
        where = f"{name!r} of {self.where}" if name else self.where
        shown = repr(found)
        shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
        return SampleFormatError(f"{where} is wrong", path=self.path, expected=expected, found=shown)

    def check_version(self) -> None:
        """Raise unless the version of the format is the one that is read."""
        version = self._values.get("version")
        if version != _VERSION or type(version) is not int:
            raise SampleFormatError(
                f"{self.where} is of another version of the format; write the set again with mosaicml-streaming",
                path=self.path,
                expected=_VERSION,
                found=repr(version)[:80],
            )

    def check_format(self) -> None:
        """Raise unless the shard is one of MDS: the package writes JSON, CSV, TSV and XSV with the same index."""
        found = self._values.get("format")
        if found != "mds":
            raise SampleFormatError(
                f"{self.where} has another format, and only MDS is read; write the set again with "
                "streaming.MDSWriter",
                path=self.path,
                expected="mds",
                found=repr(found)[:80],
            )

    def has(self, name: str) -> bool:
        """Return whether there is a value that is not null."""
        return self._values.get(name) is not None

    def items(self, name: str) -> list[Any]:
        """Return a list."""
        value = self._values.get(name)
        if not isinstance(value, list):
            raise self.fault(name, "a list", value)
        return value

    def texts(self, name: str) -> list[str]:
        """Return a list of strings."""
        values = self.items(name)
        for value in values:
            if not _is_text(value):
                raise self.fault(name, "a list of names", value)
        return values

    def count(self, name: str, most: int) -> int:
        """Return a whole number from 0 to `most`."""
        value = self._values.get(name)
        if type(value) is not int or not 0 <= value <= most:
            raise self.fault(name, f"a number from 0 to {most}", value)
        return value

    def text(self, name: str) -> str:
        """Return a string that is not empty."""
        value = self._values.get(name)
        if not _is_text(value) or not value:
            raise self.fault(name, "a name", value)
        return str(value)

    def inner(self, name: str) -> _Facts:
        """Return an object in this one."""
        return _Facts(self._values.get(name), self.path, f"{name!r} of {self.where}")

    def optional(self, name: str) -> Any:
        """Return a value, or None."""
        return self._values.get(name)


def _is_text(value: Any) -> bool:
    """Return whether a value is a string that can be encoded: JSON may have halves of surrogate pairs."""
    try:
        return isinstance(value, str) and bool(value.encode() or True)
    except UnicodeEncodeError:
        return False


def _columns(facts: _Facts) -> tuple[MDSColumn, ...]:
    names, encodings = facts.texts("column_names"), facts.texts("column_encodings")
    sizes = facts.items("column_sizes")
    if not len(names) == len(encodings) == len(sizes):
        found = f"{len(names)} names, {len(encodings)} encodings, {len(sizes)} sizes"
        raise facts.fault("column_names", "as many encodings and sizes as names", found)
    if len(set(names)) < len(names):
        raise facts.fault("column_names", "different names", names)
    for size in sizes:
        if size is not None and (type(size) is not int or not 0 <= size <= _MOST_SHARD_NBYTES):
            raise facts.fault("column_sizes", "sizes in bytes, or null", size)
    # A size of 0 means the same as null.
    return tuple(
        MDSColumn(name, encoding, size or None)
        for name, encoding, size in zip(names, encodings, sizes, strict=True)
    )


def _shard(facts: _Facts) -> MDSShard:
    raw = _file(facts.inner("raw_data"), _MOST_SHARD_NBYTES)
    samples = facts.count("samples", _MOST_SHARD_NBYTES)
    if table_nbytes(samples) > raw.nbytes:
        most = f"at most {max(0, raw.nbytes // _WORD - 2)}, which the file has space for"
        raise facts.fault("samples", most, samples)
    codec, packed = None, None
    if facts.optional("compression"):
        codec = facts.text("compression").partition(":")[0]
        if codec not in CODECS:
            raise facts.fault("compression", f"one of {', '.join(CODECS)}", codec)
        packed = _file(facts.inner("zip_data"), _MOST_PACKED_NBYTES)
    elif facts.has("zip_data"):
        raise facts.fault("compression", "the compression of 'zip_data'", None)
    return MDSShard(samples, raw, packed, codec)


def _file(facts: _Facts, most_nbytes: int) -> MDSFile:
    name = facts.text("basename")
    # An index from elsewhere must not name files outside of its folder.
    if "\\" in name or "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise facts.fault("basename", "the name of a file in the folder", name)
    hashes = facts.optional("hashes") or {}
    if not isinstance(hashes, dict) or not all(_is_text(value) for value in hashes.values()):
        raise facts.fault("hashes", "an object of hexadecimal digests", hashes)
    return MDSFile(name, facts.count("bytes", most_nbytes), hashes)


# -- the table of a shard --------------------------------------------------------------------------------------------


def table_nbytes(samples: int) -> int:
    """Return the bytes of the table at the beginning of a shard."""
    return _WORD * (samples + 2)


def parse_table(data: Any, shard: MDSShard, path: str) -> IntArray:
    """Parse the table at the beginning of a shard.

    Args:
        data: the first `table_nbytes` bytes of the shard; fewer if it is shorter.
        shard: what the index says of it.
        path: of the shard, for errors.

    Returns:
        int64 (samples + 1,): where each sample begins, and where the last one ends.

    Raises:
        SampleFormatError: the table does not fit the index or the size of the shard, or is not in order.
    """
    wanted = table_nbytes(shard.samples)
    if len(data) < wanted:
        raise SampleFormatError(
            "the shard ends inside its table",
            path=path,
            offset=0,
            expected=f"{wanted} bytes",
            found=len(data),
        )
    (count,) = _COUNT.unpack_from(data)
    if count != shard.samples:
        raise SampleFormatError(
            "the shard has another number of samples than the index says: it is damaged, or the index is that of "
            "another set",
            path=path,
            offset=0,
            expected=shard.samples,
            found=count,
        )
    offsets = np.frombuffer(data, "<u4", shard.samples + 1, _WORD).astype(np.int64)
    low, high = wanted, shard.raw.nbytes
    wrong = np.flatnonzero((offsets < low) | (offsets > high) | (np.diff(offsets, prepend=low) < 0))
    if len(wrong):
        row = int(wrong[0])
        least = low if row == 0 else max(low, int(offsets[row - 1]))
        raise SampleFormatError(
            f"the table of the shard is damaged: sample {row} begins at a place that cannot be right",
            path=path,
            offset=_WORD * (row + 1),
            key=str(row),
            expected=f"{least} to {high}",
            found=int(offsets[row]),
        )
    return offsets


# -- a sample --------------------------------------------------------------------------------------------------------


class LayoutFault(ValueError):
    """Error raised for bytes that are not a sample of the columns.

    Attributes:
        expected: size that the sample's own numbers add up to, in bytes; None if they are not all there.
    """

    def __init__(self, reason: str, expected: int | None) -> None:
        super().__init__(reason)
        self.expected = expected


@dataclass(frozen=True)
class SampleLayout:
    """Layout of the samples of a set.

    Attributes:
        columns: of every sample, in the order of the data.
    """

    columns: tuple[MDSColumn, ...]

    @cached_property
    def head_nbytes(self) -> int:
        """Return the bytes of the sizes at the beginning of a sample, one for each column whose size varies."""
        return _WORD * sum(column.nbytes is None for column in self.columns)

    def spans(self, data: Any, nbytes: int) -> list[tuple[int, int]]:
        """Return where each column begins and ends in a sample.

        Args:
            data: the sample, or its first `head_nbytes` bytes.
            nbytes: size of the sample.

        Raises:
            LayoutFault: the sizes of the columns do not add up to that of the sample.
        """
        at = self.head_nbytes
        if min(len(data), nbytes) < at:
            raise LayoutFault("the sample ends inside the sizes of its columns", None)
        varying = iter(struct.unpack_from(f"<{at // _WORD}I", data))
        found = []
        for column in self.columns:
            end = at + (next(varying) if column.nbytes is None else column.nbytes)
            found.append((at, end))
            at = end
        if at != nbytes:
            raise LayoutFault("the sizes of the columns do not add up to that of the sample", at)
        return found

    def fixed_span(self, name: str) -> tuple[int, int] | None:
        """Return where a column is in every sample: its offset and its size; None if that varies.

        A negative offset counts from the end of the sample.
        """
        at = next((number for number, column in enumerate(self.columns) if column.name == name), None)
        if at is None:
            return None
        own = self.columns[at].nbytes
        before = [column.nbytes for column in self.columns[:at]]
        after = [column.nbytes for column in self.columns[at + 1 :]]
        if own is None:
            return None
        if None not in before:
            return self.head_nbytes + sum(nbytes or 0 for nbytes in before), own
        if None not in after:
            return -own - sum(nbytes or 0 for nbytes in after), own
        return None
