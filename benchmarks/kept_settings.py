"""Settings that an earlier run found to be the best, from its report, so that they need not be searched again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.report_tables import contender_title, read_case_tables, read_versions
from benchmarks.text_format import setting_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ("KeptSettings",)


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
        self._packages = {name: _versions(packages) for name, packages in read_versions(text).items()}
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
        found = [setting for setting in settings if setting_text(dict(setting)) == text]
        return found[0] if len(found) == 1 else None


def _versions(packages: str) -> dict[str, str]:
    """Return the version of each package in a text, except this project's."""
    pairs = (package.rpartition(" ") for package in packages.split(", ") if package)
    return {name: version for name, _, version in pairs if name != "aioloader"}
