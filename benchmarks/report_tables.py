"""Tables of a report in Markdown, read again: for plots, and for the settings that a run kept."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("CaseTable", "contender_title", "read_case_tables", "read_rows", "read_table", "read_versions")

_HEADING = re.compile(r"^## ([a-z0-9-]+): (.+)$", re.MULTILINE)
_NOTE = re.compile(r"^\[(\d+)\] (.+?) *$", re.MULTILINE)
_TABLE = re.compile(r"^\|.*?(?=^(?!\|)|\Z)", re.MULTILINE | re.DOTALL)


class CaseTable(NamedTuple):
    """Table of a case.

    Attributes:
        case: its name.
        title: description of its work.
        unit: the third column: the unit of its figures.
        rows: of each contender, by column.
        notes: below the table, by number.
    """

    case: str
    title: str
    unit: str
    rows: list[dict[str, str]]
    notes: dict[str, str]


def read_case_tables(text: str) -> Iterator[CaseTable]:
    """Yield the cases of a report, each with the first table below its heading."""
    for heading in _HEADING.finditer(text):
        section = text[heading.end() :].partition("\n## ")[0]
        head, *rows = _cells(section)
        if rows:
            found = [dict(zip(head, row, strict=True)) for row in rows]
            yield CaseTable(heading[1], heading[2], head[2], found, dict(_NOTE.findall(section)))


def read_table(text: str, heading: str, case: str) -> CaseTable | None:
    """Return the first table of a section as that of a case; None if there is none."""
    section = text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    head, *rows = _cells(section)
    found = [dict(zip(head, row, strict=True)) for row in rows]
    return CaseTable(case, heading, head[2], found, dict(_NOTE.findall(section))) if rows else None


def read_rows(text: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table of a section, without its head; [] if there is none."""
    return _cells(text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0])[1:]


def read_versions(text: str) -> dict[str, str]:
    """Return the packages of each contender of a report, as text."""
    return {name: packages for name, _, packages in read_rows(text, "Versions")}


def contender_title(cell: str) -> str:
    """Return a contender's title from its cell: without emphasis and the numbers of notes."""
    return re.sub(r" \[\d+\]|\*\*", "", cell)


def _cells(section: str) -> list[list[str]]:
    """Return the first table of a section by rows, the first of which is its head; [[]] if there is none."""
    table = _TABLE.search(section)
    lines = table[0].splitlines() if table else []
    cells = [
        [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines
    ]
    return [cells[0], *cells[2:]] if cells else [[]]
