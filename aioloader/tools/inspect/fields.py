"""Files of fields next to record files (`aioloader pack --fields`)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from aioloader.packing.fields_file import fields_place, read_fields
from aioloader.storage.urls import is_url

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_LINES = 100_000


def examine_fields(rec: str, count: int, key_at: Callable[[int], object]) -> tuple[Counter[str], list[str]]:
    """Count the fields in the file of fields of a local record file; of a long file, those in its first 100,000 lines.

    Args:
        rec: the record file, or its URL, whose file of fields is not read.
        count: number of records.
        key_at: returns the key of a record by its number.

    Returns:
        the number of records by the name of a field, empty without a file; and descriptions of damage.
    """
    names: Counter[str] = Counter()
    place = fields_place(Path(rec))
    if is_url(rec) or not place.is_file():
        return names, []
    number = 0
    try:
        for number, line in enumerate(read_fields(place), 1):
            if number > count or line.key != key_at(number - 1):
                return names, [
                    f"{place}, line {number}: the key {line.key} is not that of record {number - 1}"
                ]
            names.update(list(line.fields))
            if number == _MOST_LINES:
                return names, []
    except (OSError, ValueError) as error:
        return names, [str(error)]
    if number < count:
        return names, [f"{place} has {number:,} lines, and its record file has {count:,} records"]
    return names, []
