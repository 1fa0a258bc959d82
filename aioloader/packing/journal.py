"""Where a packing stands: a file beside the drafts, locked by the process that packs, from which a later one goes on.

The first line says what is packed (arguments, and a digest of all sources); each further line is a state that was safe
on disk before it was written. A line that is not whole was being written when the process ended, and is none.
"""

from __future__ import annotations

import contextlib
import json
import os
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from aioloader.packing.errors import PackBusyError
from aioloader.packing.lock import open_locked

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ("Journal",)

_VERSION = 1
_ERROR = {"index", "position", "path", "key", "stage", "reason", "by", "cause"}


class Journal:
    """The journal of one packing; only one process has it open.

    Args:
        place: its file.
        out: what is packed into, for the error.
        arguments: what decides over the bytes of the result, as JSON has it.
        sources: digest of what is packed.
        resume: False: whatever it says is not gone on from.

    Attributes:
        states: those of an earlier process that packed the same, first to last.
        drafts: names of files that the earlier process may have left.
        reason: why there is nothing to go on from although there was a journal, or "".

    Raises:
        PackBusyError: another process has it open.
        OSError: it cannot be opened.
    """

    def __init__(
        self, place: Path, out: str, arguments: Mapping[str, Any], sources: str, *, resume: bool = True
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
        self.partial_files = [name for name in header.get("drafts", ()) if isinstance(name, str)]
        if header.get("journal") != _VERSION:
            self.reason = "it was begun by another version of aioloader"
        elif not resume:
            self.reason = "so it was asked for"
        elif header.get("arguments") != self._header["arguments"]:
            self.reason = f"it was begun with other options ({self._others(header.get('arguments'))})"
        elif header.get("sources") != self._header["sources"]:
            self.reason = "the images have changed since it was begun"
        else:
            # What comes after a line that is none is not trusted either.
            self.states = list(takewhile(_is_state, states))

    def _others(self, found: Any) -> str:
        mine: dict[str, Any] = self._header["arguments"]
        theirs = found if isinstance(found, dict) else {}
        names = [name for name in sorted({*mine, *theirs}) if mine.get(name) != theirs.get(name)]
        return ", ".join(names) or "none"

    def begin(self, partial_files: list[str]) -> None:
        """Write the header anew; with the states that were found, or without any if they were forgotten.

        Args:
            drafts: names of the files that this process may leave.
        """
        lines = [{**self._header, "drafts": partial_files}, *self.states]
        data = b"".join(_line(line) for line in lines)
        self._file.seek(0)
        self._file.write(data)
        self._file.truncate(len(data))

    def forget(self, reason: str) -> None:
        """There is nothing to go on from after all."""
        self.states = []
        self.reason = reason

    def append(self, state: Mapping[str, Any], *, lasting: bool = True) -> None:
        """Write a state; all that it says is on disk.

        Args:
            state: as JSON has it.
            lasting: it is to outlive a loss of power. Otherwise it may be lost then, which costs time only.
        """
        self._file.write(_line(state))
        if lasting:
            os.fsync(self._file.fileno())

    def remove(self) -> None:
        """The packing is over: take the file away."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._place)

    def close(self) -> None:
        """Let another process have it; may be called twice."""
        self._file.close()


def _is_state(line: dict[str, Any]) -> bool:
    """Whether a line is a state: whoever reads it may rely on its entries."""
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
    """The whole lines up to the first that is none."""
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
