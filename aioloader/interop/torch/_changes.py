"""Finding out whether a dataset or a function has changed since the last epoch, without reading all of it."""

from __future__ import annotations

import io
import operator
import os
import zlib
from itertools import chain
from pathlib import PosixPath, PurePosixPath
from typing import TYPE_CHECKING, Any

from aioloader.executors.file_maps import MappedFiles, Pickler
from aioloader.executors.sent_memory import LARGE
from aioloader.interop.torch._sending import can_be_sent, detached

if TYPE_CHECKING:
    import pickle
    from collections.abc import Sequence


# Objects of these classes never change, and neither do tuples of them: of many of them it suffices to compare which
# they are.
_TEXTS = frozenset([str, bytes])
_FIXED = frozenset([*_TEXTS, int, float, complex, bool, type(None), PosixPath, PurePosixPath])
_CONTAINERS = frozenset([list, tuple, set, frozenset, dict])
_MANY = 1000
_READ_WHOLE = 64 << 20
_PAGE = 4096
_ONE_IN = 16


class Changes:
    """Checksums of a dataset and of functions, one for each epoch.

    A checksum sees every change of what worker processes would receive, except in arrays and tensors in memory of
    more than 64 MiB: of these it reads one page (4 KiB) in 16, so that it sees a change of 64 KiB in a row. Memory
    maps of files, and torch's tensors in shared memory, are not read: workers see changes of them at once.

    Long lists, tuples, sets and dicts of texts and numbers, and of tuples of these, are not pickled again, but
    compared with those of the last epoch.
    """

    def __init__(self) -> None:
        self._kept: dict[int, _Kept] = {}
        self._used: dict[int, _Kept] = {}
        self._versions = 0
        self._files: MappedFiles | None = None

    def checksum(self, parts: Sequence[Any]) -> list[tuple[int, ...]]:
        """Return the checksums of parts; that of a part that cannot be pickled is empty."""
        self._files = None
        self._used = {}
        found = [self._of(part) for part in parts]
        self._kept = self._used
        return found

    def checksum_of_program(self, dataset: Any, functions: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return checksums of a dataset and of functions, and the functions in a form that can be sent, if possible."""
        sent = [function if can_be_sent(function) else detached(function) for function in functions]
        found = self.checksum([dataset, *sent])
        if () not in found[1:]:
            return found, sent
        sent = [
            function if known else detached(function) for known, function in zip(found[1:], sent, strict=True)
        ]
        return self.checksum([dataset, *sent]), sent

    def _of(self, part: Any) -> tuple[int, ...]:
        buffers: list[int] = []
        with io.BytesIO() as file:
            try:
                _Pickler(self, file, lambda buffer: buffers.append(self._of_buffer(buffer))).dump(part)
            except Exception:  # pickling a foreign object can raise any exception
                return ()
            with file.getbuffer() as blob:
                return zlib.crc32(blob), len(blob), *buffers

    def _of_buffer(self, buffer: pickle.PickleBuffer) -> int:
        with buffer.raw() as raw:
            if raw.nbytes >= LARGE:
                if self._files is None:
                    self._files = MappedFiles()
                place = self._files.place_of(raw)
                if place is not None and place.shared:
                    return zlib.crc32(repr(place).encode())
            if raw.nbytes <= _READ_WHOLE:
                return zlib.crc32(raw)
            pages = raw.nbytes // _PAGE
            return _checksum_of_pages(raw, pages)

    def version(self, items: Any) -> int | None:
        """Return a number that is another one if the contents of a list or the like have changed; None if unknown."""
        known = self._used.get(id(items)) or self._kept.get(id(items))
        if known is None or known.items is not items or not known.is_same(items):
            copy = _Kept.of(items)
            if copy is None:
                return None
            # A list that was made again may still have the contents of another one.
            known = next((each for each in self._kept.values() if each.is_equal(copy)), None)
            if known is None:
                self._versions += 1
                copy.version = self._versions
            else:
                copy.version = known.version
            known = copy
        self._used[id(items)] = known
        return known.version


class _Pickler(Pickler):
    def __init__(self, changes: Changes, file: io.BytesIO, take: Any) -> None:
        super().__init__(file, take, _inode)
        self._changes = changes

    def persistent_id(self, value: Any) -> Any:
        kind = type(value)
        if kind in _CONTAINERS and len(value) >= _MANY:
            version = self._changes.version(value)
            return None if version is None else (kind.__name__, version)
        return None


def _inode(fd: int) -> int:
    return os.fstat(fd).st_ino


class _Kept:
    """Long container, and what was in it.

    Attributes:
        items: the container.
        version: number of its contents.
    """

    def __init__(self, items: Any, copy: list[Any], kinds: set[type]) -> None:
        self.items = items
        self.version = 0
        self._copy = copy
        self._kinds = kinds

    @classmethod
    def of(cls, items: Any) -> _Kept | None:
        """Return the record of a container; None if what is in it may change."""
        copy = _flat(items)
        kinds = set(map(type, copy))
        inner = kinds - {tuple}
        if tuple in kinds:
            tuples = (each for each in copy if type(each) is tuple)
            inner |= set(map(type, chain.from_iterable(tuples)))
        return cls(items, copy, kinds) if inner <= _FIXED else None

    def is_same(self, items: Any) -> bool:
        """Return whether a container contains the same objects as before."""
        now = _flat(items)
        return len(now) == len(self._copy) and all(map(operator.is_, now, self._copy))

    def is_equal(self, other: _Kept) -> bool:
        """Return whether another container has the same contents: equal objects of the same classes."""
        return (
            type(self.items) is type(other.items)
            and self._kinds == other._kinds
            and len(self._copy) == len(other._copy)
            and self._copy == other._copy
            and _types(self._copy) == _types(other._copy)
        )


def _flat(items: Any) -> list[Any]:
    """Return the elements of a container; keys and values of a dict."""
    return [*items, *items.values()] if type(items) is dict else list(items)


def _types(values: list[Any]) -> list[Any]:
    """Return the classes of values, and of those in tuples: 1, 1.0 and True are equal, but not the same."""
    return [tuple(map(type, each)) if type(each) is tuple else type(each) for each in values]


def _checksum_of_pages(raw: memoryview, pages: int) -> int:
    """Return a checksum of the first page, the last one, and one in 16 of the others."""
    found = zlib.crc32(raw[(pages - 1) * _PAGE :])
    for page in range(0, pages, _ONE_IN):
        found = zlib.crc32(raw[page * _PAGE : (page + 1) * _PAGE], found)
    return found
