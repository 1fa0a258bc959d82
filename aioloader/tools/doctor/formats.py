"""Formats of data sets that can be read here, by the packages that are installed. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioloader.formats.base import Requirement, formats

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def requirements() -> tuple[Requirement, ...]:
    """Return the packages that formats need."""
    return (
        *(each for format in formats() for each in format.requirements),
        Requirement("URLs", "obstore", "remote"),
    )


def format_rows(packages: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
    """Yield the lines of the report about formats: name and text.

    Args:
        packages: versions of packages by name, None for one that is not installed.
    """
    present = [
        f"{each.what} ({each.package} {packages[each.package]})"
        for each in requirements()
        if packages.get(each.package)
    ]
    yield "formats", ", ".join((*(each.name for each in formats() if each.extra is None), *present))
    absent: dict[str, list[str]] = {}
    for each in requirements():
        if not packages.get(each.package):
            absent.setdefault(each.extra, []).append(each.what)
    if absent:
        yield (
            "not readable",
            "; ".join(
                f"{', '.join(names)}: pip install 'aioloader[{extra}]'" for extra, names in absent.items()
            ),
        )
