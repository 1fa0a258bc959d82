"""Record file that new records are appended to: what it has, and how the classes of the new images are numbered.

The new file is a copy of the old one, continued under a partial name, and replaces it when it is complete. So the old
file is valid at any moment, and an interrupted run is resumed like any other.

Journal of packing: a file next to the partial files, locked by the packing process, from which a later one resumes.

The first line identifies the job (arguments, and a digest of all sources). Each further line is a state, written after
everything it describes was synced to disk. An incomplete line was being written when the process ended; it is ignored.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.formats.packed_files import class_names, fields_place
from aioloader.packing.report import PackBusyError
from aioloader.storage.local.descriptors import open_locked
from recordio import Index
from recordio._partial_files import partial_path

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from aioloader.packing.report import Packed
    from aioloader.packing.sources import Source


_VERSION = 3
_ERROR = {"index", "position", "path", "key", "stage", "reason", "by", "cause"}


class Journal:
    """Journal of one packing job; only one process can have it open.

    Args:
        place: path of the journal.
        out: output of the job, for the error message.
        arguments: options that determine the bytes of the result, as JSON values.
        sources: digest of the images.
        resume: use the states of an existing journal; False: ignore them.

    Attributes:
        states: states that an earlier process with the same job wrote, oldest first.
        partial_files: names of files that the earlier process may have left.
        reason: why an existing journal cannot be used, or "".

    Raises:
        PackBusyError: another process has it open.
        OSError: it cannot be opened.
    """

    def __init__(
        self, place: Path, out: str, *, arguments: Mapping[str, Any], sources: str, resume: bool = True
    ) -> None:
        self._place = place
        fd = open_locked(place)
        if fd is None:
            raise PackBusyError(out, _holder(place))
        self._file = os.fdopen(fd, "r+b", buffering=0)
        self._header = {
            "journal": _VERSION,
            "pid": os.getpid(),
            "arguments": json.loads(json.dumps(arguments)),
            "sources": sources,
        }
        lines = _lines(self._file.read())
        self.states: list[dict[str, Any]] = []
        self.partial_files: list[str] = []
        self.reason = ""
        if lines:
            self._compare(lines, resume)

    def _compare(self, lines: list[dict[str, Any]], resume: bool) -> None:
        header, *states = lines
        self.partial_files = [name for name in header.get("partial_files", ()) if isinstance(name, str)]
        if header.get("journal") != _VERSION:
            self.reason = "it was begun by another version of aioloader"
        elif not resume:
            self.reason = "resuming was switched off"
        elif header.get("arguments") != self._header["arguments"]:
            self.reason = f"it was begun with other options ({self._others(header.get('arguments'))})"
        elif header.get("sources") != self._header["sources"]:
            self.reason = "the images have changed since it was begun"
        else:
            # Lines after an invalid one are not trusted either.
            self.states = list(takewhile(_is_state, states))

    def _others(self, found: Any) -> str:
        mine: dict[str, Any] = self._header["arguments"]
        theirs = found if isinstance(found, dict) else {}
        names = [name for name in sorted({*mine, *theirs}) if mine.get(name) != theirs.get(name)]
        return ", ".join(names) or "none"

    def begin(self, partial_files: list[str]) -> None:
        """Rewrite the header and the current states.

        Args:
            partial_files: names of the files that this process may leave.
        """
        lines = [{**self._header, "partial_files": partial_files}, *self.states]
        data = b"".join(_line(line) for line in lines)
        self._file.seek(0)
        self._file.write(data)
        self._file.truncate(len(data))

    def forget(self, reason: str) -> None:
        """Discard the states, because they turned out to be unusable."""
        self.states = []
        self.reason = reason

    def append(self, state: Mapping[str, Any], *, lasting: bool = True) -> None:
        """Append a state; everything it describes must have been synced to disk.

        Args:
            state: the state, as JSON values.
            lasting: sync the journal too, so that the state survives a power failure. A lost state only costs time.
        """
        self._file.write(_line(state))
        if lasting:
            os.fsync(self._file.fileno())

    def remove(self) -> None:
        """Delete the file after packing has ended."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._place)

    def close(self) -> None:
        """Close the file, which releases its lock; repeated calls do nothing."""
        self._file.close()


def begun_arguments(place: Path, *, publishing: bool) -> dict[str, Any]:
    """Return the arguments of an interrupted run; nothing without one.

    Args:
        place: of its journal.
        publishing: only of a run that was about to rename its files.
    """
    try:
        lines = _lines(place.read_bytes())
    except OSError:
        return {}
    arguments = lines[0].get("arguments") if lines else None
    if not isinstance(arguments, dict) or (publishing and not lines[-1].get("publish")):
        return {}
    return arguments


def _is_state(line: dict[str, Any]) -> bool:
    """Return whether a line is a state whose entries all have the expected types."""
    files, counts, errors = (line.get(name) for name in ("files", "counts", "errors"))
    return (
        _is_count(line.get("done"))
        and (line.get("part") is None or isinstance(line["part"], str))
        and (line.get("first") is None or _is_count(line["first"]))
        and isinstance(files, dict)
        and all(name.isdigit() and isinstance(sizes, list) for name, sizes in files.items())
        and all(sizes and all(map(_is_count, sizes)) for sizes in files.values())
        and isinstance(counts, dict)
        and isinstance(errors, list)
        and all(isinstance(error, dict) and error.keys() >= _ERROR for error in errors)
    )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _lines(data: bytes) -> list[dict[str, Any]]:
    """Return the parsed lines up to the first invalid or incomplete one."""
    found: list[dict[str, Any]] = []
    for raw in data.split(b"\n")[:-1]:
        try:
            value = json.loads(raw)
        except ValueError:
            break
        if not isinstance(value, dict):
            break
        found.append(value)
    return found


def _holder(place: Path) -> int | None:
    try:
        lines = _lines(place.read_bytes())
    except OSError:
        return None
    pid = lines[0].get("pid") if lines else None
    return pid if isinstance(pid, int) else None


_COPIED_NBYTES = 64 << 20


@dataclass(frozen=True)
class Existing:
    """Contents of a record file before new records are appended to it.

    Attributes:
        records: number of its records.
        nbytes: its size.
        next_key: the key of the first new record.
        index: hash of its index.
        listed: it has a list.
        classes: names of its classes, by label; empty if they have none.
    """

    records: int
    nbytes: int
    next_key: int
    index: str
    listed: bool
    classes: tuple[str, ...]


def existing(output: Packed, journal: Path, source: Source) -> Existing:
    """Return what the file of an output has.

    Args:
        output: the output.
        journal: of an interrupted run. If that run was about to rename its files, the answer is what it found.
        source: the new images.

    Raises:
        FileNotFoundError: there is no such file, or it has no index.
        ValueError: its index does not fit, has keys that are not numbers, or keys that the source has too.
    """
    begun = begun_arguments(journal, publishing=True).get("append")
    if isinstance(begun, dict):
        return Existing(**{**begun, "classes": tuple(begun["classes"])})
    assert output.idx is not None
    assert output.lst is not None
    if not output.rec.exists():
        raise FileNotFoundError(f"there is no {output.rec} to append to: leave out append (--append)")
    if not output.idx.exists():
        raise FileNotFoundError(
            f"{output.rec} has no index {output.idx.name}, which has its keys: make one with `aioloader repair` or "
            "`python -m aioloader.tools.rec2idx`"
        )
    index = Index.open(output.idx, cache=False)
    nbytes = output.rec.stat().st_size
    index.spans(nbytes)  # raises if it is that of a longer file
    keys: Any = np.asarray(index.keys)
    if keys.dtype.kind not in "iu":
        raise ValueError(
            f"the keys of {output.idx} are not all numbers, so new ones cannot go on from them: pack into another file"
        )
    known = set(keys.tolist())
    for number in range(len(source.items)):
        key = source.items[number].key
        if key is not None and key in known:
            raise ValueError(
                f"{output.rec} has a record with the key {key} already: give the new image another id"
            )
    names = class_names(output.rec)
    return Existing(
        len(index),
        nbytes,
        int(keys.max(initial=-1)) + 1,
        hashlib.sha256(output.idx.read_bytes()).hexdigest()[:16],
        output.lst.exists(),
        tuple(names[label] for label in sorted(names)) if sorted(names) == list(range(len(names))) else (),
    )


def number_classes(source: Source, old: Existing, rec: Path) -> None:
    """Give the classes of new images the labels that they have in the old file, and new classes the labels behind.

    Args:
        source: the new images; changed.
        old: what the file has.
        rec: the file, for errors.

    Raises:
        ValueError: the classes of the two cannot be compared, or the labels of the new ones cannot be changed.
    """
    if not source.classes:
        source.classes = old.classes
        return
    if not old.classes:
        raise ValueError(
            f"the classes of {rec} have no names, so it is not known which labels the new images' classes "
            f"({', '.join(source.classes[:5])}) have there: pack a list of labels and paths"
        )
    merged = (*old.classes, *(name for name in source.classes if name not in old.classes))
    if merged[: len(source.classes)] != source.classes:
        if source.samples is not None:
            raise ValueError(
                f"the labels of the new samples are those of the classes {', '.join(source.classes[:5])}, and those of "
                f"{rec} of {', '.join(old.classes[:5])}: pack the samples into another file"
            )
        labels = [(float(merged.index(name)),) for name in source.classes]
        source.items = [item._replace(labels=labels[int(item.labels[0])]) for item in source.items]
    source.classes = merged


def check_files(output: Packed, *, fields: bool) -> None:
    """Raise if the file has further files that the new records would have to be in, or the other way round.

    Raises:
        ValueError: it has.
    """
    place = fields_place(output.rec)
    if place.exists() != fields:
        has = "has" if place.exists() else "has no"
        raise ValueError(
            f"{output.rec} {has} fields of its samples ({place.name}): pass fields (--fields) when appending if, and "
            "only if, they were passed before"
        )


def continued(output: Packed, old: Existing) -> None:
    """Make an output continue a file; its positions are those of the new images."""
    output.records = output.kept = old.records
    output.next_key = old.next_key
    output.kept_nbytes = old.nbytes
    if not old.listed:
        output.lst = None  # a list of the new records only would be wrong


def copy_old(places: Sequence[Path], nbytes: int) -> None:
    """Copy the old files to their partial names.

    Args:
        places: the files, the record file first.
        nbytes: of the record file.

    Raises:
        OSError: a file cannot be read or written, or the record file has another size now.
    """
    for place in places:
        _copy(place, partial_path(place))
    found = partial_path(places[0]).stat().st_size
    if found != nbytes:
        raise OSError(f"{places[0]} has changed: it had {nbytes} bytes, and now {found}")


def _copy(source: Path, target: Path) -> None:
    """Copy a file; by sharing its blocks where the file system can."""
    if not hasattr(os, "copy_file_range"):
        shutil.copyfile(source, target)
        return
    with open(source, "rb") as old, open(target, "wb") as new:
        try:
            while os.copy_file_range(old.fileno(), new.fileno(), _COPIED_NBYTES):
                pass
        except OSError:
            old.seek(0)
            new.seek(0)
            new.truncate()
            shutil.copyfileobj(old, new, 1 << 20)
