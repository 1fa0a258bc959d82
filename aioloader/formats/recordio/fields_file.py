"""File with other fields of the samples of a record file, NAME.fields.jsonl: a line of JSON for each record, in order.

docs/format.md describes it. MXNet and `recordio` do not read it, and the records do not change.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

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
