"""Reports of packing next to record files, which name the classes."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

_KIND = "aioloader pack"
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
    return value if isinstance(value, dict) and value.get("kind") == _KIND else None


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
