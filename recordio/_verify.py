"""Walk a file and report damage, rebuild an index, copy what is readable to a new file."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from recordio._files import LocalFile
from recordio._index import Index, beside
from recordio._survey import Key, Problem, Survey, read_piece
from recordio.errors import RepairTargetError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ("Problem", "RepairReport", "Report", "build_index", "repair", "verify")


@dataclass(frozen=True, slots=True)
class Report:
    """What `verify` found.

    Attributes:
        path: The record file.
        records: Number of sound records.
        problems: Faults in file order; empty if the file is sound.
        size: Bytes in the file.
        index_path: The .idx that was checked with it, or None.
    """

    path: str
    records: int
    problems: list[Problem]
    size: int = 0
    index_path: str | None = None

    @property
    def ok(self) -> bool:
        """True if nothing is wrong with the file or its index."""
        return not self.problems


@dataclass(frozen=True, slots=True)
class RepairReport(Report):
    """What `repair` found in the source, and where the copy is.

    Attributes:
        destination: The record file written; its index lies beside it.
        destination_index: The .idx written.
        new_keys: Keys invented for records that the source's index does not list.
    """

    destination: str = ""
    destination_index: str = ""
    new_keys: list[Key] = field(default_factory=list)


def build_index(path: str | os.PathLike[str], out: str | os.PathLike[str] | None = None) -> Index:
    """Write an .idx for a record file: key 0, 1, 2, ... in file order.

    Args:
        path: The record file.
        out: The .idx to write; None: beside the file. It replaces an old one in one step.

    Raises:
        RecordFileNotFoundError: there is no such file.
        CorruptRecordError: the file is damaged; nothing is written.
    """
    index = Index.scan(path)
    target = beside(os.fspath(path)) if out is None else os.fspath(out)
    _replace(target, [index.format().encode()])
    return index


def verify(path: str | os.PathLike[str], index: str | os.PathLike[str] | None = None) -> Report:
    """Read a whole record file and report every fault.

    Damaged payload bytes cannot be seen: the format has no checksum (docs/format.md, "Damage").

    Args:
        path: The record file.
        index: The .idx to check with it; None: the one beside the file, if there is one.

    Raises:
        RecordFileNotFoundError: there is no such file.
        IndexNotFoundError: the index named does not exist.
    """
    file = LocalFile(path)
    try:
        survey = Survey(file, index)
    finally:
        file.close()
    return Report(file.path, len(survey.found), survey.problems(), survey.size, survey.index_path)


def repair(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    index: str | os.PathLike[str] | None = None,
) -> RepairReport:
    """Copy every readable record to a new file, with an .idx that keeps the original keys.

    The source is only read. The copy appears under its name when it is complete.

    Args:
        src: The damaged record file.
        dst: The record file to write; its .idx goes beside it.
        index: The .idx of the source; None: the one beside it, if there is one. Without one, keys
            are 0, 1, 2, ... in the order of the records kept.

    Raises:
        RecordFileNotFoundError: there is no such source.
        RepairTargetError: the copy, or its index, would overwrite the source or its index.
    """
    file = LocalFile(src)
    target = os.fspath(dst)
    target_index = beside(target)
    source_index = beside(file.path) if index is None else os.fspath(index)
    for new in (target, target_index):
        for old in (file.path, source_index):
            if _same(new, old):
                raise RepairTargetError(f"repair would overwrite {old}; choose another name than {target}")
    try:
        survey = Survey(file, index)
        _replace(target, (read_piece(file, item.offset, item.length) for item in survey.found))
        lines, new_keys = survey.index_lines()
        _replace(target_index, [lines.encode()])
    finally:
        file.close()
    return RepairReport(
        file.path,
        len(survey.found),
        survey.problems(),
        survey.size,
        survey.index_path,
        target,
        target_index,
        new_keys,
    )


def _same(new: str, old: str) -> bool:
    if os.path.exists(new) and os.path.exists(old):
        return os.path.samefile(new, old)
    return os.path.realpath(new) == os.path.realpath(old)


def _replace(path: str, pieces: Iterable[bytes]) -> None:
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
