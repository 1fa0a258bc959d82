"""Files that memory of this process is mapped from: found in the system's table, whichever library made the map.

Only Linux has the table. Elsewhere nothing is found, and memory is copied.
"""

from __future__ import annotations

import bisect
import mmap
import os
from typing import NamedTuple

import numpy as np

_PAGE = mmap.PAGESIZE


class FilePlace(NamedTuple):
    """Place in a file.

    Attributes:
        path: the file.
        offset, nbytes: the part of it.
        shared: what is written to the memory goes to the file, and is seen by all processes.
        writable: the memory can be written to.
    """

    path: str
    offset: int
    nbytes: int
    shared: bool
    writable: bool


class _Map(NamedTuple):
    start: int
    stop: int
    access: str
    offset: int
    file: tuple[str, str]  # device and inode
    path: str


def _maps() -> list[_Map]:
    """Return the maps of files, by address."""
    found = []
    try:
        with open("/proc/self/maps", errors="surrogateescape") as table:
            for line in table:
                words = line.split(maxsplit=5)
                if len(words) == 6 and words[5].startswith("/"):
                    start, stop = (int(word, 16) for word in words[0].split("-"))
                    path = words[5].rstrip("\n")
                    found.append(_Map(start, stop, words[1], int(words[2], 16), (words[3], words[4]), path))
    except OSError:
        return []
    return found


class MappedFiles:
    """Maps of files as they are when this object is made."""

    def __init__(self) -> None:
        self._maps = _maps()
        self._starts = [each.start for each in self._maps]
        self._same: dict[tuple[str, tuple[str, str]], bool] = {}

    def place_of(self, memory: memoryview) -> FilePlace | None:
        """Return the place in a file that memory is mapped from; None if it is from elsewhere, or differs from it.

        Memory of a private map, whose writes do not reach the file, differs once it was written to.

        Args:
            memory: contiguous bytes.
        """
        address, nbytes = np.frombuffer(memory, np.uint8).ctypes.data, memory.nbytes
        at = bisect.bisect(self._starts, address) - 1
        if at < 0 or not nbytes or address >= self._maps[at].stop:
            return None
        first = self._maps[at]
        while self._maps[at].stop < address + nbytes:  # a map may be several, of different access
            if at + 1 == len(self._maps):
                return None
            last, at = self._maps[at], at + 1
            following = self._maps[at]
            if (
                (following.start, following.file, following.access) != (last.stop, last.file, last.access)
                or following.offset != last.offset + last.stop - last.start
            ):  # fmt: skip
                return None
        place = FilePlace(
            first.path,
            first.offset + address - first.start,
            nbytes,
            first.access[3] == "s",
            first.access[1] == "w",
        )
        if not self._is_file(first, place):
            return None
        return None if not place.shared and _written(first.start, self._maps[at].stop) else place

    def _is_file(self, found: _Map, place: FilePlace) -> bool:
        """Return whether the path still leads to the file, which is as long as the map."""
        try:
            if os.stat(place.path).st_size < place.offset + place.nbytes:
                return False
        except (OSError, ValueError):
            return False
        key = found.path, found.file
        if key not in self._same:
            self._same[key] = _file_at(found.path) == found.file
        return self._same[key]


def _file_at(path: str) -> tuple[str, str] | None:
    """Return device and inode of a file as the table of maps has them, which may differ from those of `os.stat`."""
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 1, access=mmap.ACCESS_READ) as probe:
            address = np.frombuffer(probe, np.uint8).ctypes.data
            return next((each.file for each in _maps() if each.start <= address < each.stop), None)
    except (OSError, ValueError, BufferError):
        return None


def _written(start: int, stop: int) -> bool:
    """Return whether pages of private maps were written to, from the start of one to the end of one."""
    inside = False
    try:
        with open("/proc/self/smaps", errors="surrogateescape") as table:
            for line in table:
                head = line.split(maxsplit=1)[0]
                if "-" in head and not head.endswith(":"):
                    low, high = (int(word, 16) for word in head.split("-"))
                    if low >= stop:
                        return False
                    inside = start <= low and high <= stop
                elif inside and head == "Anonymous:" and int(line.split()[1]):
                    return True
    except (OSError, ValueError):
        return True
    return False
