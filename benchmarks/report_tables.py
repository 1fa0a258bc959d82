"""Tables of a report in Markdown, read again: for plots, and for settings that need not be searched again."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

__all__ = (
    "CaseTable",
    "KeptSettings",
    "contender_title",
    "read_case_tables",
    "read_rows",
    "read_table",
    "setting_text",
)

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


def setting_text(setting: Mapping[str, Any]) -> str:
    """Return a setting in one line."""
    return ", ".join(
        f"{key.replace('_', ' ')} {value}" for key, value in setting.items() if value not in (None, False, "")
    )


class KeptSettings:
    """Settings of a report.

    Args:
        path: ``report.md`` of an earlier run, or the page docs/benchmarks-tables.md.

    Raises:
        ValueError: it is not a report.
        OSError: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        text = path.read_text(encoding="utf-8")
        self._packages = {name: _versions(packages) for name, _, packages in read_rows(text, "Versions")}
        self._texts = {
            (table.case, contender_title(row["contender"])): row["setting"]
            for table in read_case_tables(text)
            for row in table.rows
            if row[table.unit][:1].isdigit()
        }
        if not self._texts:
            raise ValueError(f"{path} is not a report of `python -m benchmarks`: it has no figures")

    def find(
        self,
        case: str,
        title: str,
        versions: Mapping[str, str],
        settings: Sequence[Mapping[str, Any]],
    ) -> Mapping[str, Any] | None:
        """Return a contender's setting of the earlier run, if it is still one of its settings.

        Args:
            case: name of the case.
            title: "NAME/VARIANT".
            versions: versions of its packages. Those that the report names must be the same, except this project's own.
            settings: its settings.

        Returns:
            None if it has to be searched: it was not measured, or a package or the settings have changed.
        """
        text = self._texts.get((case, title))
        name = title.partition("/")[0]
        before = self._packages.get(name, {})
        if text is None or any(
            versions.get(package, version) != version for package, version in before.items()
        ):
            return None
        found = [setting for setting in settings if setting_text(setting) == text]
        return found[0] if len(found) == 1 else None


def _versions(packages: str) -> dict[str, str]:
    """Return the version of each package in a text, except this project's."""
    pairs = (package.rpartition(" ") for package in packages.split(", ") if package)
    return {name: version for name, _, version in pairs if name != "aioloader"}
