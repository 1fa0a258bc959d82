"""Reader of the file of one crop index, by a memory map."""

from __future__ import annotations

import mmap
import os
import sys
from bisect import bisect_left
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from aioloader.crop_index.layout import (
    FRAME_NBYTES,
    HEADER_NBYTES,
    KINDS,
    Header,
    LayoutFault,
    check_tables,
    columns_of,
    read_frame,
    read_header,
    read_reasons,
)
from aioloader.errors import CropIndexError
from aioloader.foundation.decodes import NO_INDEX, NOT_IN_INDEX, refused
from aioloader.storage.local.descriptors import open_regular

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aioloader.crop_index.layout import Frame, Tables


_UNKNOWN = "unknown"


class _Stamp(NamedTuple):
    """State of a file: which it is, its size and its time of modification."""

    device: int
    number: int
    nbytes: int
    mtime_ns: int


class _Mapped:
    """Mapped file with checked tables.

    Args:
        memory: map of the whole file.
        header: its header.
    """

    def __init__(self, memory: mmap.mmap, header: Header) -> None:
        self._memory = memory
        self._view = memoryview(memory)
        self._nbytes = len(self._view)
        keys, places, lengths, reasons = columns_of(self._view, header)
        self._keys = _numbers(keys, "<u8")
        self._places = _numbers(places, "<u8")
        self._lengths = _numbers(lengths, "<u4")
        self._refusals = [refused(reason) for reason in (*read_reasons(reasons), _UNKNOWN)]

    def lookup(self, key: int) -> memoryview | str:
        # Reading a map beyond the end of a file that was truncated would end the process; the tables are at its end.
        if self._memory.size() < self._nbytes:
            return NO_INDEX
        keys = self._keys
        row = bisect_left(keys, key)
        if row >= len(keys) or keys[row] != key:
            return NOT_IN_INDEX
        length, at = self._lengths[row], self._places[row]
        if not length:
            number: int = min(at, len(self._refusals) - 1)
            return self._refusals[number]
        if at + length > self._nbytes:
            return NO_INDEX
        return self._view[at : at + length]

    def frame(self, offset: int) -> Frame | None:
        return read_frame(self._view, offset) if offset >= 0 else None

    def tables(self, header: Header) -> Tables:
        if self._memory.size() < self._nbytes:
            raise LayoutFault("it was truncated")
        return check_tables(self._view, header)


def _numbers(view: memoryview, dtype: Literal["<u8", "<u4"]) -> Any:
    """Return a column as a sequence of ints that is fast to index."""
    if sys.byteorder == "little":
        return view.cast("Q" if dtype == "<u8" else "I")
    return np.frombuffer(view, dtype).tolist()


class CropIndex:
    """Crop index of one record file or folder.

    The constructor checks the header and the tables. The file is mapped when an entry is requested first, again in each
    process; a pickled index contains no entries. A file that was replaced since is checked again. Used from any thread.

    Args:
        path: the file.

    Attributes:
        path: as given.
        header: its header.

    Raises:
        CropIndexError: it is not a crop index, or it is damaged.
        OSError: it cannot be read.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._stamp: _Stamp | None = None
        self._mapped: _Mapped | None = None
        self._lost = False  # this process cannot read it any more
        self.header = Header(0)
        self._mapped = self._open()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_mapped": None, "_lost": False}

    def __repr__(self) -> str:
        return f"CropIndex({self.path!r})"

    def __len__(self) -> int:
        """Return the number of images in the index, with those that have no entry."""
        return self.header.images

    def find(self, key: int) -> memoryview | None:
        """Return the entry of an image; None if there is none, or the file cannot be read any more.

        Args:
            key: offset of the image's record, or its `folder_key`.
        """
        found = self.lookup(key)
        return None if isinstance(found, str) else found

    def lookup(self, key: int) -> memoryview | str:
        """Return the entry of an image, or the reason why there is none.

        Args:
            key: as for `find`.

        Returns:
            the entry; or `NO_INDEX` if the file cannot be read any more, `NOT_IN_INDEX`, or the text that `refused`
            returns, all of `aioloader.foundation.decodes`.
        """
        mapped = self._mapped
        if mapped is None:
            if self._lost:
                return NO_INDEX
            try:
                mapped = self._mapped = self._open()
            except (OSError, CropIndexError):
                self._lost = True
                return NO_INDEX
        return mapped.lookup(key)

    def tables(self) -> Tables:
        """Return the tables, which are views of the file.

        Raises:
            CropIndexError, OSError: as for the constructor.
        """
        mapped = self._mapped = self._mapped or self._open()
        try:
            return mapped.tables(self.header)
        except LayoutFault as fault:  # it was changed since it was opened
            raise CropIndexError(str(fault), path=self.path) from None

    def images(self) -> Iterator[tuple[int, int, memoryview | str]]:
        """Yield key, size, and entry or reason of each image; of an image without an entry the size is 0.

        Raises:
            CropIndexError, OSError: as for the constructor.
        """
        tables = self.tables()
        for key, place, length in zip(
            tables.keys.tolist(), tables.places.tolist(), tables.lengths.tolist(), strict=True
        ):
            if not length:
                yield key, 0, _reason(tables.reasons, place)
                continue
            entry = self.find(key)
            if entry is not None:
                yield key, self._nbytes_at(place), entry

    def _nbytes_at(self, place: int) -> int:
        frame = None if self._mapped is None else self._mapped.frame(place - FRAME_NBYTES)
        return 0 if frame is None else frame.nbytes

    def refused(self) -> dict[str, int]:
        """Return the number of images without an entry by reason, the most frequent first.

        Raises:
            CropIndexError, OSError: as for the constructor.
        """
        tables = self.tables()
        numbers, counts = np.unique(tables.places[tables.lengths == 0], return_counts=True)
        found = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
        named = {_reason(tables.reasons, number): count for number, count in found.items()}
        return dict(sorted(named.items(), key=lambda item: -item[1]))

    def close(self) -> None:
        """Forget the map, which is freed when the last entry is; `find` maps the file again."""
        self._mapped = None

    def _open(self) -> _Mapped:
        fd = open_regular(self.path)
        try:
            status = os.fstat(fd)
            if status.st_size < HEADER_NBYTES:
                raise CropIndexError("it is too short for a crop index", path=self.path)
            memory = mmap.mmap(fd, status.st_size, access=mmap.ACCESS_READ)
        finally:
            os.close(fd)
        stamp = _Stamp(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        try:
            header = read_header(memory[:HEADER_NBYTES])
            mapped = _Mapped(memory, header)
            if stamp != self._stamp:
                mapped.tables(header)
        except LayoutFault as fault:
            raise CropIndexError(str(fault), path=self.path) from None
        self.header, self._stamp = header, stamp
        return mapped

    def check_kind(self, kind: int) -> None:
        """Raise CropIndexError unless the index is of this kind, one of `KINDS`."""
        if self.header.kind != kind:
            raise CropIndexError(
                f"it is the index of {KINDS[self.header.kind]}, and {KINDS[kind]} is read", path=self.path
            )


def _reason(reasons: Sequence[str], number: int) -> str:
    return reasons[number] if number < len(reasons) else _UNKNOWN
