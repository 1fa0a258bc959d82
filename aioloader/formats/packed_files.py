"""Files that `aioloader pack` writes next to a record file: its list, fields of samples, and its report.

NAME.lst has a line "id <tab> labels <tab> path" for each record; such lists are also what files are packed from.

NAME.fields.jsonl has a line of JSON for each record, in order; docs/format.md describes it. MXNet and `recordio` do not
read it, and the records do not change. The report names the classes.
"""

from __future__ import annotations

import io
import json
import os
import re
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TextIO

import numpy as np

from aioloader.storage.local.descriptors import open_regular
from aioloader.storage.urls import is_url, redact_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from aioloader.foundation.types import Array


SUFFIX: Final = ".fields.jsonl"
_MOST_LINE_NBYTES: Final = 1 << 28


class FieldsLine(NamedTuple):
    """Line of a file of fields.

    Attributes:
        key: of the record.
        name: of the sample: its file and its key there.
        fields: by name. Bytes are {"base64": TEXT}.
    """

    key: int
    name: str
    fields: dict[str, Any]


def fields_place(rec: Path) -> Path:
    """Return the path of the file of fields of a record file."""
    return rec.with_name(f"{rec.stem}{SUFFIX}")


def fields_line(key: int, name: str, fields: str) -> bytes:
    """Return one line.

    Args:
        key: of the record.
        name: of the sample.
        fields: JSON object.
    """
    return f'{{"key":{key},"name":{json.dumps(name)},"fields":{fields}}}\n'.encode("ascii")


def read_fields(path: Path) -> Iterator[FieldsLine]:
    """Iterate over the lines of a file of fields; one line is in memory at a time.

    Raises:
        OSError: the file cannot be read.
        ValueError: a line is damaged, or longer than 256 MiB.
    """
    with open(path, "rb") as file:
        number = 0
        while raw := file.readline(_MOST_LINE_NBYTES):
            number += 1
            try:
                if not raw.endswith(b"\n"):
                    raise ValueError("it is truncated, or longer than 256 MiB")
                line = json.loads(raw)
                key, name, fields = line["key"], line["name"], line["fields"]
                if not (type(key) is int and isinstance(name, str) and isinstance(fields, dict)):
                    raise ValueError("it has other types")
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise ValueError(f"{path}, line {number} is damaged: {error!r}") from None
            yield FieldsLine(key, name, fields)


PACK_KIND = "aioloader pack"
# Size limit of a report that is read only for the names of its classes.
_MOST_READ_NBYTES = 64 << 20
_MOST_NAMES_TRIED = 8
_MOST_LABEL = 1 << 24


def is_report(place: Path) -> bool:
    """Return whether a file is a report of packing."""
    return _read(place) is not None


def _read(place: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(place.read_bytes())
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and value.get("kind") == PACK_KIND else None


def class_names(rec: Path) -> dict[float, str]:
    """Return the names of a record file's classes by label, from the packing report in its folder.

    The result is empty if no report lists the file, or if the report contains no class names. A report whose name does
    not begin like that of the output is not found.
    """
    # OUT.json belongs to OUT.rec, OUT_train.rec, OUT-00000-of-00004.rec and OUT_train-00000-of-00004.rec.
    ends = [len(rec.stem), *(each.start() for each in re.finditer("[-_]", rec.stem))]
    for end in sorted(ends, reverse=True)[:_MOST_NAMES_TRIED]:
        place = rec.with_name(f"{rec.stem[:end]}.json")
        try:
            value = _read(place) if place.is_file() and place.stat().st_size <= _MOST_READ_NBYTES else None
        except OSError:
            continue
        if value is not None and rec.name in [each.get("rec") for each in _objects(value, "files")]:
            return {
                float(each["label"]): each["name"]
                for each in _objects(value, "classes")
                if isinstance(each.get("label"), int) and isinstance(each.get("name"), str)
                if abs(each["label"]) < _MOST_LABEL
            }
    return {}


def _objects(value: dict[str, Any], name: str) -> list[dict[str, Any]]:
    found = value.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


# -- lists -------------------------------------------------------------------------------------------------------------

_LINES_AT_A_TIME = 1 << 12
_EXACT = 1 << 53  # float64 has all whole numbers up to this one


class Entries(NamedTuple):
    """Entries of a list, by column.

    Attributes:
        keys: ids; None: the numbers of the entries, from 1.
        labels: (n,) or (n, labels); or a tuple of numbers for each entry.
        paths: as in the list.
    """

    keys: Sequence[int] | None
    labels: Array | Sequence[tuple[float, ...]]
    paths: Sequence[str]

    def rows(self) -> Iterator[tuple[Any, list[float], str]]:
        """Yield the key, the labels and the path of each entry; a key without an id is a text, as in MXNet."""
        keys = map(str, range(1, len(self.paths) + 1)) if self.keys is None else self.keys
        rows: Sequence[Sequence[float]]
        if isinstance(self.labels, np.ndarray):
            rows = self.labels.reshape(len(self.paths), self.labels[:1].size).tolist()
        else:
            rows = self.labels
        for key, row, path in zip(keys, rows, self.paths, strict=True):
            yield key, list(row), path


def read_list(path: str) -> Entries:
    """Read the entries of a .lst file: id, labels and a path on each line, separated by TABs; blank lines are skipped.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line is malformed; the message names it.
    """
    keys: list[int] = []
    singles: list[float] = []
    several: list[
        tuple[float, ...]
    ] = []  # of all entries, as soon as one chunk of lines is not of the usual kind
    paths: list[str] = []
    number = 0
    with open_text(path) as file:
        # Many lines at a time, because a call for each would take several times as long.
        while lines := list(islice(file, _LINES_AT_A_TIME)):
            try:
                fields = [line.split("\t") for line in lines]
                if set(map(len, fields)) != {3} or "\0" in "".join(lines):
                    raise ValueError("not the usual lines")
                ids = [int(row[0]) for row in fields]
                values = [float(row[1]) for row in fields]
                if max(values) >= _EXACT or min(values) <= -_EXACT:
                    raise ValueError("labels that may not be exact")
                keys += ids
                if several:
                    several += zip(values)
                else:
                    singles += values
                paths += [row[2].strip() for row in fields]
            except ValueError:
                for place, line in enumerate(lines, number + 1):
                    if not line.strip():
                        continue
                    try:
                        key, row, name = parse_line(line)
                    except ValueError as error:
                        raise ValueError(
                            f"{redact_url(path)}, line {place} ({line.strip()[:80]!r}): {error}"
                        ) from None
                    if not several:
                        several = [(value,) for value in singles]
                    keys.append(key)
                    several.append(tuple(row))
                    paths.append(name)
            number += len(lines)
    return Entries(keys, several or np.array(singles), paths)


def open_text(path: str, newline: str | None = None, errors: str = "surrogateescape") -> TextIO:
    """Open a file or an object of text in UTF-8; see `open`."""
    if not is_url(path):
        return open(open_regular(path), encoding="utf-8-sig", errors=errors, newline=newline)
    from aioloader.storage.remote.opening import read_text

    return io.TextIOWrapper(io.BytesIO(read_text(path)), "utf-8-sig", errors, newline)


def parse_line(line: str) -> tuple[int, list[float], str]:
    """Parse one line of a .lst file into id, labels and path.

    Raises:
        ValueError: the line is malformed.
    """
    fields = [field.strip() for field in line.strip("\r\n").split("\t")]
    if len(fields) < 3:
        raise ValueError("expected an id, labels and a path, separated by TABs")
    if "\0" in fields[-1]:
        raise ValueError("a path cannot contain a null character")
    labels = [float(field) for field in fields[1:-1]]
    for label, field in zip(labels, fields[1:], strict=False):
        if abs(label) >= _EXACT and field.lstrip("+-").isdigit() and int(field) != label:
            raise ValueError(f"the label {field[:40]} is too large to be read exactly")
    return int(fields[0]), labels, fields[-1]


def inside_root(path: str, key: object) -> str:
    """Return a path without "..", so that a link in the folder cannot lead out of it.

    Raises:
        ValueError: the path leads out of the root.
    """
    parts = path.replace("\\", "/").split("/") if os.name == "nt" else path.split("/")
    depth = 0
    for part in parts:
        depth += -1 if part == ".." else part not in ("", ".")
        if depth < 0:
            break
    if depth < 0 or os.path.isabs(path) or os.path.splitdrive(path)[0] or "\0" in path:
        raise ValueError(f"the path {path!r} of entry {key!r} leads out of the root folder")
    return os.path.normpath(path) if ".." in parts else path
