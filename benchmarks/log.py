"""Log of a run: one JSON object per line, written at once, so that an interrupted run can be continued.

Kinds of records. All but "run" and "contender" name a `case`, and an entrant by `name` and `variant`:

    run         the options, and the machine
    contender   `name`, `versions`, `python`
    declined    `reason`: the contender does not take part in this case
    failure     `stage`, `reason`, `log`; `case` and `variant` are null if all of them fail
    prepared    `nbytes`: of the stored samples of an epoch, or null
    sweep       `setting`, `repeat`, and the figures of a short measurement with it
    chosen      `setting`: the best of them
    check       a whole epoch passed the checks
    round       `round`, `setting`, and the measured figures
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


Record = dict[str, Any]


def read_log(path: Path) -> list[Record]:
    """Read all records; an incomplete last line is left out.

    Raises:
        FileNotFoundError: the log does not exist.
        ValueError: a line before the last one is not a JSON object.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    records = []
    for number, line in enumerate(lines, 1):
        try:
            records.append(json.loads(line))
        except ValueError:
            if number < len(lines):
                raise ValueError(f"{path}, line {number}: not a record") from None
    return records


class Log:
    """Log that is being written.

    Args:
        path: the file.
        resume: keep its records except failures, which are tried again.
    """

    def __init__(self, path: Path, resume: bool = False) -> None:
        before = read_log(path) if resume and path.exists() else []
        # A failed sweep's record has a reason in place of a figure.
        kept = [r for r in before if r["kind"] != "failure" and not (r["kind"] == "sweep" and "reason" in r)]
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(path, "w", encoding="utf-8", buffering=1)  # noqa: SIM115 (`close` closes it)
        self.records: list[Record] = []
        for record in kept:
            self._write(record)

    def add(self, kind: str, **facts: Any) -> Record:
        """Write a record."""
        record = {"kind": kind, "time": round(time.time(), 1), **facts}
        self._write(record)
        return record

    def find(self, kind: str, **facts: Any) -> Record | None:
        """Return the last record of this kind with these facts, or None."""
        for record in reversed(self.records):
            if record["kind"] == kind and all(record.get(key) == value for key, value in facts.items()):
                return record
        return None

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, record: Record) -> None:
        self.records.append(record)
        self._file.write(json.dumps(record, default=str) + "\n")
