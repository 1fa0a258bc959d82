"""Journal of packing: a file next to the partial files, locked by the packing process, from which a later one resumes.

The first line identifies the job (arguments, and a digest of all sources). Each further line is a state, written after
everything it describes was synced to disk. An incomplete line was being written when the process ended; it is ignored.
"""

from __future__ import annotations

import contextlib
import json
import os
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from aioloader.packing.errors import PackBusyError
from aioloader.storage.local.locked_files import open_locked

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_VERSION = 2
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
