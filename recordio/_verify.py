"""Operations on a whole file: report damage, rebuild an index, copy every readable record to a new file."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from recordio._file_analysis import FileAnalysis, Key, Problem
from recordio._index import Index, index_path_for
from recordio._index_text import format_line
from recordio._partial_files import published
from recordio._sansio import scan_offsets
from recordio._sources import BlockingSource, drive, in_order, local_path, open_source, read_piece
from recordio.errors import RepairTargetError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    Tick = Callable[[int], object] | None

_COPIED_BYTES = 4 << 20
_LINES_AT_ONCE = 1 << 16
_MOST_SHOWN = 8


def _nothing() -> NDArray[np.int64]:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Result of `verify`.

    Attributes:
        path: The record file.
        records: Number of valid records.
        problems: Faults in file order; empty if the file is valid.
        size: Bytes in the file.
        index_path: The .idx that was checked with it, or None.
        offsets: int64 (records,), byte offsets of the valid records in file order.
        lengths: int64 (records,), their framed lengths in bytes.
        unlisted: int64 (n,), byte offsets of valid records that the index does not list; empty without an index. They
            are problems too if the index is damaged: a valid one may list only some records.
    """

    path: str
    records: int
    problems: list[Problem]
    size: int = 0
    index_path: str | None = None
    offsets: NDArray[np.int64] = field(default_factory=_nothing, repr=False, compare=False)
    lengths: NDArray[np.int64] = field(default_factory=_nothing, repr=False, compare=False)
    unlisted: NDArray[np.int64] = field(default_factory=_nothing, repr=False, compare=False)
    _lines: NDArray[np.int64] = field(default_factory=_nothing, repr=False, compare=False)
    _index: Index | None = field(default=None, repr=False, compare=False)

    @property
    def ok(self) -> bool:
        """Return True if the file and its index are valid."""
        return not self.problems

    def key_at(self, number: int) -> Key | None:
        """Return the key of a valid record, by its number in file order; None if it is unknown.

        Without an index it is the number itself if nothing is damaged, and otherwise unknown.
        """
        if self.index_path is None:
            return number if self.ok else None
        line = int(self._lines[number])
        return None if line < 0 or self._index is None else self._index.key_at(line)

    def facts(self) -> dict[str, Any]:
        """Return all of it in types that JSON has."""
        return {
            "path": self.path,
            "ok": self.ok,
            "records": self.records,
            "size": self.size,
            "index": self.index_path,
            "unlisted": self.unlisted.tolist(),
            "problems": [asdict(problem) | {"keys": list(problem.keys)} for problem in self.problems],
        }

    def summary(self) -> list[str]:
        """Return the result in one line, and in one more if the index does not list all records."""
        state = "valid" if self.ok else f"{len(self.problems)} problems"
        lines = [f"{self.path}: {self.records} records, {self.size} bytes, {state}"]
        if len(self.unlisted):
            lines.append(
                f"{self.index_path}: does not list {len(self.unlisted)} of them: "
                f"{_format_offsets(self.unlisted)}"
            )
        return lines


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairReport(Report):
    """Result of `repair`: the faults of the source, and the names of the copy.

    Attributes:
        destination: The record file written; its index is next to it.
        destination_index: The .idx written, or None: no key is known, so there is none.
        keyless: int64 (n,), byte offsets in the source of records whose key is unknown: they are in the copy, and not
            in its index.
    """

    destination: str
    destination_index: str | None
    keyless: NDArray[np.int64] = field(default_factory=_nothing, repr=False, compare=False)

    def facts(self) -> dict[str, Any]:
        """Return all of it in types that JSON has."""
        return {
            # Without arguments super() does not find its class where a dataclass has slots.
            **Report.facts(self),
            "destination": self.destination,
            "destination_index": self.destination_index,
            "keyless": self.keyless.tolist(),
        }

    def summary(self) -> list[str]:
        """Return the result and the names of the copy, in a few lines."""
        lines = [*Report.summary(self)[:1], f"{self.destination}: {self.records} records written"]
        if self.destination_index is None and len(self.keyless):
            lines.append(
                f"{self.destination}: no key is known, so there is no .idx; `index` writes one that numbers the records"
            )
        elif len(self.keyless):
            lines.append(
                f"{self.destination_index}: does not list {len(self.keyless)} of them, because their keys are unknown: "
                f"those from {_format_offsets(self.keyless)} of the source"
            )
        return lines


def _format_offsets(offsets: NDArray[np.int64]) -> str:
    more = ", ..." if len(offsets) > _MOST_SHOWN else ""
    return "byte " + ", ".join(map(str, offsets[:_MOST_SHOWN].tolist())) + more


def build_index(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    tick: Callable[[int], object] | None = None,
) -> Index:
    """Write an .idx for a record file: key 0, 1, 2, ... in file order.

    Args:
        path: The record file, or its URL (see `register_opener`).
        out: The .idx to write, a local file; None: next to the file, which is not possible for a URL. It replaces an
            old one in one step.
        tick: Called from time to time with the bytes processed so far.

    Returns:
        The index; its `path` is the .idx written.

    Raises:
        RecordFileNotFoundError: There is no such file.
        RepairTargetError: `out` is the record file itself, or a URL.
        CorruptRecordError: The file is damaged; nothing is written.
    """
    target = index_path_for(os.fspath(path)) if out is None else os.fspath(out)
    if _same_file(target, os.fspath(path)):
        raise RepairTargetError(f"the index would overwrite {os.fspath(path)}; choose another name")
    _check_local(target)
    with closing(open_source(path)) as file, in_order(file) as ahead:
        offsets = drive(ahead, scan_offsets(ahead.size(), path=file.path), tick)
    index = Index.of(offsets, path=target)
    with published(target) as (partial,):
        partial.write_bytes(index.format().encode())
    return index


def verify(
    path: str | os.PathLike[str],
    index: str | os.PathLike[str] | None = None,
    *,
    tick: Callable[[int], object] | None = None,
) -> Report:
    """Read a whole record file and report every fault.

    Damaged payload bytes cannot be detected: the format has no checksum (the page File formats, "Damage").

    Args:
        path: The record file, or its URL (see `register_opener`), which is read as a stream.
        index: The .idx to check with it; None: the one next to the file, if there is one.
        tick: Called from time to time with the bytes read so far.

    Raises:
        RecordFileNotFoundError: There is no such file.
        IndexNotFoundError: The index named does not exist.
    """
    with closing(open_source(path)) as file:
        analysis = FileAnalysis(file, _index_of(path, index), index is not None, tick)
    return Report(**_report_fields(file.path, analysis))


def repair(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    index: str | os.PathLike[str] | None = None,
    *,
    tick: Callable[[int], object] | None = None,
) -> RepairReport:
    """Copy every readable record to a new file, with an .idx that keeps the original keys.

    The source is only read. The copy and its index get their names when they are complete. A record whose key is
    unknown, because the index does not list it, is in the copy and not in its .idx. If there is an index and no key at
    all is known, no .idx is written, and an old one next to the copy is deleted.

    Args:
        src: The damaged record file, or its URL (see `register_opener`).
        dst: The record file to write, a local one; its .idx is written next to it.
        index: The .idx of the source; None: the one next to it, if there is one. Without one there are no keys to
            keep: they are 0, 1, 2, ... in the order of the records kept.
        tick: Called from time to time with the bytes processed so far; twice the size of the source in all.

    Raises:
        RecordFileNotFoundError: There is no such source.
        RepairTargetError: The copy, or its index, would overwrite the source or its index, or is a URL.
    """
    target = os.fspath(dst)
    target_index = index_path_for(target)
    source_index = _index_of(src, index)
    _check_local(target)
    for new in (target, target_index):
        for old in (local_path(src) or os.fspath(src), source_index):
            if _same_file(new, old):
                raise RepairTargetError(f"repair would overwrite {old}; choose another name than {target}")
    if _same_file(target, target_index):
        raise RepairTargetError(
            f"{target} is the name of an index; pass the name of the record file, for example with .rec"
        )
    with closing(open_source(src)) as file:
        analysis = FileAnalysis(file, source_index, index is not None, tick)
        if analysis.index is not None:
            keyless = analysis.unlisted()
        else:
            keyless = _nothing() if analysis.index_path is None else analysis.starts
        indexed = len(keyless) < len(analysis.starts) or not len(analysis.starts)
        targets = (target, target_index) if indexed else (target,)
        with published(*targets, remove=(target_index,)) as partials:
            _write(partials[0], _copied_records(file, analysis, tick))
            if indexed:
                _write(partials[1], _index_lines(analysis))
    return RepairReport(
        **_report_fields(file.path, analysis),
        destination=target,
        destination_index=target_index if indexed else None,
        keyless=keyless,
    )


def _report_fields(path: str, analysis: FileAnalysis) -> dict[str, Any]:
    return {
        "path": path,
        "records": len(analysis.starts),
        "problems": analysis.problems(),
        "size": analysis.size,
        "index_path": analysis.index_path,
        "offsets": analysis.starts,
        "lengths": analysis.lengths,
        "unlisted": analysis.unlisted(),
        "_lines": analysis.lines,
        "_index": analysis.index,
    }


def _write(path: Path, pieces: Iterable[bytes]) -> None:
    with path.open("wb") as file:
        file.writelines(pieces)


def _copied_records(file: BlockingSource, analysis: FileAnalysis, tick: Tick) -> Iterator[bytes]:
    """Yield the valid records; those that follow each other are read together."""
    starts, ends = analysis.starts, analysis.starts + analysis.lengths
    breaks = np.flatnonzero(starts[1:] != ends[:-1]) + 1
    firsts = np.append(0, breaks)[: len(starts)]
    lasts = np.append(breaks, len(starts))[: len(firsts)] - 1
    for begin, end in zip(starts[firsts].tolist(), ends[lasts].tolist(), strict=True):
        for offset in range(begin, end, _COPIED_BYTES):
            piece = read_piece(file, offset, min(_COPIED_BYTES, end - offset))
            yield piece
            if tick is not None:
                tick(analysis.size + offset + len(piece))
    if tick is not None:
        tick(2 * analysis.size)


def _index_lines(analysis: FileAnalysis) -> Iterator[bytes]:
    """Yield the text of the .idx of a copy."""
    offsets = np.cumsum(analysis.lengths) - analysis.lengths
    if analysis.index is None:
        lines, numbers = np.arange(len(offsets)), np.arange(len(offsets))
        key_at: Callable[[int], Key] = int
    else:
        lines, numbers = analysis.copied()
        key_at = analysis.index.key_at
    for low in range(0, len(lines), _LINES_AT_ONCE):
        part = slice(low, low + _LINES_AT_ONCE)
        keys = map(key_at, lines[part].tolist())
        yield "".join(map(format_line, keys, offsets[numbers[part]].tolist())).encode()


def _index_of(path: str | os.PathLike[str], index: str | os.PathLike[str] | None) -> str:
    """Return the .idx of a record file: the one that was named, or the one next to it."""
    if index is not None:
        return os.fspath(index)
    return index_path_for(local_path(path) or os.fspath(path))


def _check_local(target: str) -> None:
    if local_path(target) is None:
        raise RepairTargetError(f"{target} is a URL, and only local files can be written: name a local file")


def _same_file(new: str, old: str) -> bool:
    if os.path.exists(new) and os.path.exists(old):
        return os.path.samefile(new, old)
    return os.path.realpath(new) == os.path.realpath(old)
