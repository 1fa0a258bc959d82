"""Map from the key of a record to its byte offset.

It is parsed from the text of an .idx file, or made by scanning the heads of the .rec itself, and kept as a binary copy
in the user's cache directory so that the second opening takes no time (`_index_cache`). Parsing is in `_index_text`,
scanning in `_sansio`; both are pure, this module adds the files.
"""

from __future__ import annotations

import os
import warnings
from contextlib import closing
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from recordio._files import LocalFile
from recordio._index_cache import CachedIndex
from recordio._index_text import (
    MAX_INDEX_BYTES,
    NO_OFFSET,
    IndexLines,
    check_index_size,
    format_line,
    integer_key,
    parse_damaged_text,
    parse_index_digits,
    parse_index_text,
)
from recordio._sansio import read_index_text, scan_offsets
from recordio._sources import BlockingSource, RangeSource, drive, in_order, open_source, target_name
from recordio.errors import CorruptIndexError, DuplicateKeyWarning, IndexNotFoundError, RecordKeyError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

CacheChoice: TypeAlias = bool | Literal["beside"]

_REBUILD = "rebuild the index with `python -m recordio index FILE`"


def index_path_for(rec_path: str) -> str:
    """Return the .idx path or URL of a record file: the same name with the suffix .idx, and the same query."""
    path, mark, query = rec_path, "", ""
    if rec_path.startswith(("http://", "https://")):
        path, mark, query = rec_path.partition("?")
    return os.path.splitext(path)[0] + ".idx" + mark + query


def index_not_found(path: str) -> IndexNotFoundError:
    """Return the error for an index that does not exist."""
    return IndexNotFoundError(
        "no such index; leave index=None to scan the records instead, or make one "
        "with `python -m recordio index`",
        path=target_name(path),
    )


def read_text(source: BlockingSource) -> bytes:
    """Read the text of an index, all bytes of its source.

    Raises:
        CorruptIndexError: It is larger than any index may be.
    """
    return drive(source, read_index_text(source.size(), path=source.path))


class Index:
    """Keys and byte offsets of the records of one file, in the order of the .idx lines.

    Make one with `open`, `scan`, `parse` or `of`. An index is a value: it can be pickled and shared by threads.

    Attributes:
        path: The .idx file, or the .rec file if the index was made by scanning; None if in memory.
        offsets: int64 array of byte offsets in line order; do not write to it.
        faults: Errors of lines that cannot be read, by line, counted from 0. Only an index opened with
            `tolerant=True` can have some. Their offset is -1, and no look-up finds them.
    """

    def __init__(
        self,
        lines: IndexLines,
        *,
        path: str | None = None,
        faults: Mapping[int, CorruptIndexError] | None = None,
    ) -> None:
        self.path = path
        self.faults: Mapping[int, CorruptIndexError] = faults or {}
        self.offsets: NDArray[np.int64] = lines.offsets
        self._keys = lines.keys
        self._sorted: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
        self._by_text: dict[str, int] | None = None

    @classmethod
    def open(
        cls, idx_path: str | os.PathLike[str], *, cache: CacheChoice = True, tolerant: bool = False
    ) -> Index:
        """Read an .idx file.

        Args:
            idx_path: The file, or its URL (see `register_opener`).
            cache: True keeps a binary copy in the user's cache directory ($AIOLOADER_CACHE_DIR, else
                $XDG_CACHE_HOME/aioloader, else the platform's own); `"beside"` keeps it next to the .idx as
                `<name>.idx.cache`; False neither reads nor writes one.
            tolerant: Lines that cannot be read are recorded in `faults`, and the others read.

        Raises:
            IndexNotFoundError: There is no such file.
            CorruptIndexError: A line is malformed (tolerant: more than half of all lines), or the file has more than
                4 GiB.
        """
        name = os.fspath(idx_path)
        try:
            with closing(open_source(name)) as source:
                try:
                    return cls(_through_cache(source, "idx", cache, lambda: _parse(source)), path=source.path)
                except CorruptIndexError:
                    if not tolerant or source.size() > MAX_INDEX_BYTES:
                        raise
                    lines, faults = parse_damaged_text(read_text(source), path=source.path)
                    return cls(lines, path=source.path, faults=faults)
        except FileNotFoundError as error:
            raise index_not_found(name) from error

    @classmethod
    def scan(cls, rec_path: str | os.PathLike[str] | RangeSource, *, cache: CacheChoice = True) -> Index:
        """Make an index from the record file itself, by its heads; keys are 0, 1, 2, ...

        Args:
            rec_path: The .rec file, its URL, or an object with `read_ranges`.
            cache: As for `open`. An object has a copy only if it has a method `state`, see `RangeSource`.

        Raises:
            RecordFileNotFoundError: There is no such file.
            CorruptRecordError: The file is damaged; `repair` makes a readable copy.
        """
        with closing(open_source(rec_path)) as source:
            return scan_source(source, cache=cache)

    @classmethod
    def parse(cls, text: bytes, *, path: str | None = None) -> Index:
        """Make an index from the text of an .idx file; `path` is named in errors."""
        return cls(parse_index_text(text, path=path), path=path)

    @classmethod
    def of(cls, offsets: NDArray[np.int64], *, path: str | None = None) -> Index:
        """Make an index from byte offsets alone; keys are 0, 1, 2, ..."""
        return cls(IndexLines.counted(offsets), path=path)

    @property
    def keys(self) -> NDArray[np.int64] | list[str]:
        """Return the keys in line order: int64 array, or list of str if any key is not an integer."""
        if isinstance(self._keys, range):
            self._keys = np.arange(len(self._keys), dtype=np.int64)
            self._sorted = (self._keys, self._keys)
        return self._keys

    def __len__(self) -> int:
        return len(self.offsets)

    def __repr__(self) -> str:
        return f"Index({len(self)} records, path={self.path!r})"

    def format(self) -> str:
        """Return the text of the .idx file, one line `key TAB offset` per record; without the lines in `faults`."""
        if self.faults:
            valid = (line for line in range(len(self)) if line not in self.faults)
            return "".join(format_line(self.key_at(line), int(self.offsets[line])) for line in valid)
        keys = self._keys if isinstance(self._keys, list | range) else self._keys.tolist()
        return "".join(map(format_line, keys, self.offsets.tolist()))

    def key_at(self, position: int) -> int | str:
        """Return the key of a line, counted from 0; for a line in `faults`, the part of its text that can be read."""
        if position in self.faults:
            fault = self.faults[position]
            found = fault.found if isinstance(fault.found, bytes) else b""
            text = found if fault.key is None else str(fault.key).encode()
            number = None if isinstance(self._keys, list) else integer_key(text)
            return text.decode("utf-8", "replace") if number is None else number
        key = self._keys[position]
        return key if isinstance(key, str) else int(key)

    def position(self, key: int | str | np.integer[Any]) -> int:
        """Return the line of a key, counted from 0; the last one if several lines have it.

        Warns:
            DuplicateKeyWarning: Once per index, if several lines have the same key.

        Raises:
            RecordKeyError: No line has this key. Text and numbers are different keys.
        """
        found = -1
        if isinstance(self._keys, range):
            found = int(key) if _is_integer(key) and 0 <= int(key) < len(self._keys) else -1
        elif isinstance(self._keys, list):
            found = self._text_positions().get(key, -1) if isinstance(key, str) else -1
        elif _is_integer(key):
            ordered, lines = self._sorted_keys()
            at = int(np.searchsorted(ordered, int(key), side="right")) - 1
            if at >= 0 and ordered[at] == key:
                found = int(lines[at])
        if found < 0:
            kind = "text" if isinstance(self._keys, list) else "integers"
            raise RecordKeyError(
                f"no record has the key {key!r} (this index has {len(self)} keys, {kind})",
                key=key,
                path=self.path,
            )
        return found

    def spans(self, file_size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the range of the file in which each record is.

        Args:
            file_size: Bytes in the record file; an upper bound if they are not known.

        Returns:
            `(offsets, lengths)`, int64, in bytes and line order. A length extends to the next larger offset in the
            index, or to the end of the file, and so is an upper bound of the framed record: with an index of only
            some records it can be far larger than the record.

        Raises:
            CorruptIndexError: An offset is negative, not a multiple of 4, the marker 2**64 - 1 of old builds, or not
                inside the file.
        """
        offsets = self.offsets
        if len(offsets) == 0:
            return offsets, np.empty(0, dtype=np.int64)
        if offsets.min() < 0 or offsets.max() >= file_size or (offsets & 3).any():
            raise self._misplaced(file_size)
        steps = np.diff(offsets)
        if (steps > 0).all():
            return offsets, np.append(steps, np.int64(file_size) - offsets[-1])
        distinct = np.unique(offsets)
        if len(distinct) < len(offsets):
            self.warn_repeated()
        ends = np.append(distinct[1:], np.int64(file_size))
        return offsets, ends[np.searchsorted(distinct, offsets)] - offsets

    def _misplaced(self, file_size: int) -> CorruptIndexError:
        offsets = self.offsets
        wrong = (offsets < 0) | (offsets >= file_size) | ((offsets & 3) != 0)
        line = int(np.flatnonzero(wrong)[0])
        return misplaced_error(
            int(offsets[line]), file_size, path=self.path, line=line, key=self.key_at(line)
        )

    def repeated(self) -> NDArray[np.int64]:
        """Return the lines that repeat one before them, key and offset, counted from 0; int64 (n,), ascending."""
        steps = np.diff(self.offsets)
        if isinstance(self._keys, range) or (steps > 0).all():
            return np.empty(0, dtype=np.int64)
        keys = self._keys
        if isinstance(keys, list):
            numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
            keys = np.array([numbers[key] for key in keys], dtype=np.int64)
        order = np.lexsort((keys, self.offsets))
        again = (np.diff(keys[order]) == 0) & (np.diff(self.offsets[order]) == 0)
        lines: NDArray[np.int64] = np.sort(order[1:][again])
        return lines[~np.isin(lines, list(self.faults))] if self.faults else lines

    def _sorted_keys(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        if self._sorted is None:
            keys = np.asarray(self._keys, dtype=np.int64)
            lines = np.argsort(keys, kind="stable")
            if self.faults:
                lines = lines[~np.isin(lines, list(self.faults))]
            ordered = keys[lines]
            self._sorted = (ordered, lines)
            again = np.flatnonzero(ordered[1:] == ordered[:-1])
            if again.size:
                self._warn_duplicates(int(ordered[again[0]]), again.size)
        return self._sorted

    def _text_positions(self) -> dict[str, int]:
        if self._by_text is None:
            assert isinstance(self._keys, list)
            valid = [(key, line) for line, key in enumerate(self._keys) if line not in self.faults]
            last = self._by_text = dict(valid)
            if len(last) < len(valid):
                first = next(key for key, line in valid if last[key] != line)
                self._warn_duplicates(first, len(valid) - len(last))
        return self._by_text

    def warn_repeated(self) -> None:
        """Issue a warning if lines repeat one before them, because their records are read more than once.

        Warns:
            DuplicateKeyWarning: there are such lines.
        """
        lines = self.repeated()
        if len(lines):
            line = int(lines[0])
            warnings.warn(
                f"{self.path or 'index'}: {len(lines)} lines repeat a line before them, so their records are read more "
                f"than once (the first is line {line + 1}, key {self.key_at(line)!r}); delete these lines, or "
                "`repair` writes a copy without them",
                DuplicateKeyWarning,
                stacklevel=4,
            )

    def _warn_duplicates(self, key: int | str, count: int) -> None:
        warnings.warn(
            f"{self.path or 'index'}: {count} lines repeat a key (the first is {key!r}); look-ups "
            "by key find the last line, read by position to reach all",
            DuplicateKeyWarning,
            stacklevel=4,
        )

    def __getstate__(self) -> dict[str, Any]:
        # A memory map cannot be pickled as a map.
        keys = np.array(self._keys) if isinstance(self._keys, np.ndarray) else self._keys
        lines = IndexLines(keys, np.array(self.offsets))
        return {"path": self.path, "lines": lines, "faults": dict(self.faults)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Index.__init__(self, state["lines"], path=state["path"], faults=state["faults"])


def misplaced_error(
    offset: int, file_size: int, *, path: str | None, line: int | None, key: int | str
) -> CorruptIndexError:
    """Return the error for an offset at which no record can begin.

    Args:
        offset: Of the line.
        file_size: Bytes in the record file.
        path: The .idx.
        line: Number of the line, counted from 0; None if it is unknown.
        key: Its key.
    """
    if offset == NO_OFFSET:
        what = "the offset is 2**64 - 1, which old builds wrote when they lost the position"
    elif offset < 0:
        what = "the offset is negative"
    elif offset >= file_size:
        what = (
            f"the offset is outside the record file of {file_size} bytes; "
            "the index belongs to another file, or the file was cut"
        )
    else:
        what = "the offset is not a multiple of 4, so no record can begin there"
    return CorruptIndexError(
        f"{what}; {_REBUILD}",
        path=path,
        line=None if line is None else line + 1,
        key=key,
        offset=offset,
        found=2**64 - 1 if offset == NO_OFFSET else offset,
    )


def _is_integer(key: object) -> bool:
    return isinstance(key, int | np.integer) and not isinstance(key, bool)


def scan_source(source: BlockingSource, *, cache: CacheChoice = True) -> Index:
    """Make an index as `Index.scan` does, from a source that is open and stays open."""

    def scan() -> IndexLines:
        with in_order(source) as ahead:
            return IndexLines.counted(drive(ahead, scan_offsets(ahead.size(), path=source.path)))

    return Index(_through_cache(source, "scan", cache, scan), path=source.path)


def _parse(source: BlockingSource) -> IndexLines:
    if isinstance(source, LocalFile):
        # Most files are parsed as they are read, block by block, without their text as a whole.
        with open(source.path, "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            check_index_size(size, path=source.path)
            if (lines := parse_index_digits(file.readinto, size)) is not None:
                return lines
    return parse_index_text(read_text(source), path=source.path)


def _through_cache(
    source: BlockingSource, kind: str, cache: CacheChoice, make: Callable[[], IndexLines]
) -> IndexLines:
    """Return the cached index of a source, or make it and store a copy, where the choice and the source allow one."""
    if isinstance(source, LocalFile):
        if cache is not False:
            return CachedIndex.of_file(source.path, kind, next_to_it=cache == "beside").get(make)
    elif cache is True and (state := source.state()) is not None:
        return CachedIndex.of_object(source.path, kind, size=source.size(), state=state).get(make)
    return make()
