"""Walk a file and report damage, rebuild an index, copy what is readable to a new file."""

from __future__ import annotations

import contextlib
import errno
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from recordio._file_analysis import FileAnalysis, Key, Problem, read_piece
from recordio._index import Index, index_path_for, scan_records
from recordio._index_text import format_line
from recordio._sources import BlockingSource, in_order, local_path, open_source
from recordio.errors import RepairTargetError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from numpy.typing import NDArray

    Tick = Callable[[int], object] | None

__all__ = ("Problem", "RepairReport", "Report", "build_index", "repair", "verify")

_COPIED_BYTES = 4 << 20
_LINES_AT_ONCE = 1 << 16
_MOST_SHOWN = 8
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _nothing() -> NDArray[np.int64]:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Report:
    """What `verify` found.

    Attributes:
        path: The record file.
        records: Number of sound records.
        problems: Faults in file order; empty if the file is sound.
        size: Bytes in the file.
        index_path: The .idx that was checked with it, or None.
        offsets: int64 (records,), byte offsets of the sound records in file order.
        lengths: int64 (records,), their framed lengths in bytes.
        unlisted: int64 (n,), byte offsets of sound records that the index does not list; empty without an index. They
            are problems too if the index is damaged: a sound one may list only some records.
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
        """True if nothing is wrong with the file or its index."""
        return not self.problems

    def key_at(self, number: int) -> Key | None:
        """Key of a sound record, by its number in the order of the file; None where it cannot be told.

        Without an index it is the number itself where nothing is damaged, and otherwise cannot be told.
        """
        if self.index_path is None:
            return number if self.ok else None
        line = int(self._lines[number])
        return None if line < 0 or self._index is None else self._index.key_at(line)

    def facts(self) -> dict[str, Any]:
        """All of it in values that JSON has."""
        return {
            "path": self.path,
            "ok": self.ok,
            "records": self.records,
            "size": self.size,
            "index": self.index_path,
            "unlisted": self.unlisted.tolist(),
            "problems": [
                {
                    "offset": problem.offset,
                    "length": problem.length,
                    "key": problem.key,
                    "keys": list(problem.keys),
                    "message": problem.message,
                }
                for problem in self.problems
            ],
        }

    def summary(self) -> list[str]:
        """What was found, in one line, and in one more if the index does not list all records."""
        state = "sound" if self.ok else f"{len(self.problems)} problems"
        lines = [f"{self.path}: {self.records} records, {self.size} bytes, {state}"]
        if len(self.unlisted):
            lines.append(
                f"{self.index_path}: does not list {len(self.unlisted)} of them: {_places(self.unlisted)}"
            )
        return lines


@dataclass(frozen=True, slots=True)
class RepairReport(Report):
    """What `repair` found in the source, and where the copy is.

    Attributes:
        destination: The record file written; its index lies beside it.
        destination_index: The .idx written, or None: no key can be told, so there is none.
        keyless: int64 (n,), byte offsets in the source of records whose key cannot be told: they are in the copy, and
            not in its index.
    """

    destination: str = ""
    destination_index: str | None = None
    keyless: NDArray[np.int64] = field(default_factory=_nothing, repr=False, compare=False)

    def facts(self) -> dict[str, Any]:
        """All of it in values that JSON has."""
        return {
            # Without arguments super() does not find its class where a dataclass has slots.
            **Report.facts(self),
            "destination": self.destination,
            "destination_index": self.destination_index,
            "keyless": self.keyless.tolist(),
        }

    def summary(self) -> list[str]:
        """What was found and written, in a few lines."""
        lines = [*Report.summary(self)[:1], f"{self.destination}: {self.records} records written"]
        if self.destination_index is None and len(self.keyless):
            lines.append(
                f"{self.destination}: no key can be told, so there is no .idx; `index` counts them anew"
            )
        elif len(self.keyless):
            lines.append(
                f"{self.destination_index}: {len(self.keyless)} of them are not in it, because their keys cannot be "
                f"told: those from {_places(self.keyless)} of the source"
            )
        return lines


def _places(offsets: NDArray[np.int64]) -> str:
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
        out: The .idx to write, a local file; None: beside the file, which a URL has no place for. It replaces an old
            one in one step.
        tick: Called now and then with the bytes passed so far.

    Returns:
        The index; its `path` is the .idx written.

    Raises:
        RecordFileNotFoundError: there is no such file.
        RepairTargetError: `out` is the record file itself, or a URL.
        CorruptRecordError: the file is damaged; nothing is written.
    """
    target = index_path_for(os.fspath(path)) if out is None else os.fspath(out)
    if _same(target, os.fspath(path)):
        raise RepairTargetError(f"the index would overwrite {os.fspath(path)}; choose another name")
    _check_local(target)
    file = open_source(path)
    try:
        with in_order(file) as ahead:
            index = Index.of(scan_records(ahead, path=file.path, tick=tick), path=target)
    finally:
        file.close()
    _publish({target: [index.format().encode()]})
    return index


def verify(
    path: str | os.PathLike[str],
    index: str | os.PathLike[str] | None = None,
    *,
    tick: Callable[[int], object] | None = None,
) -> Report:
    """Read a whole record file and report every fault.

    Damaged payload bytes cannot be seen: the format has no checksum (docs/format.md, "Damage").

    Args:
        path: The record file, or its URL (see `register_opener`), which is read as a stream.
        index: The .idx to check with it; None: the one beside the file, if there is one.
        tick: Called now and then with the bytes read so far.

    Raises:
        RecordFileNotFoundError: there is no such file.
        IndexNotFoundError: the index named does not exist.
    """
    file = open_source(path)
    try:
        analysis = FileAnalysis(file, _index_of(path, index), index is not None, tick)
    finally:
        file.close()
    return Report(**_found(file.path, analysis))


def repair(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    index: str | os.PathLike[str] | None = None,
    *,
    tick: Callable[[int], object] | None = None,
) -> RepairReport:
    """Copy every readable record to a new file, with an .idx that keeps the original keys.

    The source is only read. The copy and its index appear under their names when they are complete. A record whose key
    cannot be told, because the index does not list it, is in the copy and not in its .idx. Where an index exists and
    no key at all can be told, no .idx is written, and an old one beside the copy is deleted.

    Args:
        src: The damaged record file, or its URL (see `register_opener`).
        dst: The record file to write, a local one; its .idx goes beside it.
        index: The .idx of the source; None: the one beside it, if there is one. Without one there are no keys to keep:
            they are 0, 1, 2, ... in the order of the records kept.
        tick: Called now and then with the bytes done so far; twice the size of the source in all.

    Raises:
        RecordFileNotFoundError: there is no such source.
        RepairTargetError: the copy, or its index, would overwrite the source or its index, or is a URL.
    """
    target = os.fspath(dst)
    target_index = index_path_for(target)
    source_index = _index_of(src, index)
    _check_local(target)
    for new in (target, target_index):
        for old in (local_path(src) or os.fspath(src), source_index):
            if _same(new, old):
                raise RepairTargetError(f"repair would overwrite {old}; choose another name than {target}")
    if _same(target, target_index):
        raise RepairTargetError(
            f"{target} is the name of an index; give the record file, for example with .rec"
        )
    file = open_source(src)
    try:
        analysis = FileAnalysis(file, source_index, index is not None, tick)
        keyless = analysis.unlisted() if analysis.index is not None else analysis.starts
        if analysis.index_path is None:
            keyless = _nothing()
        files: dict[str, Iterable[bytes] | None] = {target: _copy(file, analysis, tick), target_index: None}
        if len(keyless) < len(analysis.starts) or not len(analysis.starts):
            files[target_index] = _index_lines(analysis)
        _publish(files)
    finally:
        file.close()
    return RepairReport(
        **_found(file.path, analysis),
        destination=target,
        destination_index=None if files[target_index] is None else target_index,
        keyless=keyless,
    )


def _found(path: str, analysis: FileAnalysis) -> dict[str, Any]:
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


def _copy(file: BlockingSource, analysis: FileAnalysis, tick: Tick) -> Iterator[bytes]:
    """The sound records; those that follow each other are read together."""
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
    """Text of the .idx of a copy."""
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
    """The .idx of a record file: the one that was named, or the one beside it."""
    if index is not None:
        return os.fspath(index)
    return index_path_for(local_path(path) or os.fspath(path))


def _check_local(target: str) -> None:
    if local_path(target) is None:
        raise RepairTargetError(f"{target} is a URL, and this writes local files: name one")


def _same(new: str, old: str) -> bool:
    if os.path.exists(new) and os.path.exists(old):
        return os.path.samefile(new, old)
    return os.path.realpath(new) == os.path.realpath(old)


def _publish(files: dict[str, Any]) -> None:
    """Write files, all of them or none, and then give them their names; None deletes one."""
    temporary = {path: f"{path}.{os.getpid()}.tmp" for path, pieces in files.items() if pieces is not None}
    try:
        for path, draft in temporary.items():
            with open(draft, "wb") as file:
                for piece in files[path]:
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
        # A reader scans where there is no index; the old one beside the new file would be wrong.
        for path in list(files)[1:]:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        for path, draft in temporary.items():
            os.replace(draft, path)
    except BaseException as error:
        for draft in temporary.values():
            with contextlib.suppress(OSError):
                os.unlink(draft)
        if isinstance(error, OSError) and (error.errno in _NO_ROOM or error.filename in temporary.values()):
            # A full disk names no file.
            path = next(
                (path for path, draft in temporary.items() if draft == error.filename), next(iter(files))
            )
            raise type(error)(error.errno, f"cannot be written: {error.strerror}", path) from error
        raise
