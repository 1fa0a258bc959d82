"""Figures that README and docs/ print: the page and line of each, and the part of the run that measures it.

`find_figures` finds lines by their units. `PRINTED` names the part of each; a line that it does not name is a finding
of ``tests/benchmarks/test_published.py``, so that no figure is outside of the run.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ("NOT_OF_THE_RUN", "PRINTED", "Figure", "find_figures")

NOT_OF_THE_RUN = {
    "limit": "a limit, a default or a property of a format",
    "example": "output of an example on some machine",
    "design": "a reason for a decision, measured once",
    "once": "measured once by hand; no command repeats it",
}
"""Words in place of a part, for figures that the run does not measure."""

PRINTED: dict[str, tuple[tuple[str, str], ...]] = {}
"""For each page (pattern of "HEADING > LINE", part): the first that matches a line counts."""

_NUMBER = r"\d[\d,.]*"
_FIGURE = re.compile(
    rf"{_NUMBER} (?:images|records|batches|samples|requests|ranges|sequences|`?get`?)(?:/s| a second| per second)"
    rf"|{_NUMBER}(?: or {_NUMBER}| to {_NUMBER}| and {_NUMBER})? (?:times|µs|us|ms)\b"
    rf"|(?<![\w.]){_NUMBER} (?:MB|kB|GB|s|minutes)(?![\w/])"
    rf"|{_NUMBER} ?%"
    rf"|{_NUMBER}x(?! \d)\b"
    rf"|{_NUMBER} \({_NUMBER} to {_NUMBER}\)"
    r"|^\|(?: [^|]*\|)*? \d+\.\d+ \|"
)
_CODE = re.compile(r"^(?P<fence> *```+).*?^(?P=fence) *$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"<!-- (?:figures: (?P<name>[a-z-]+)|(?P<end>end of figures)) -->")


class Figure(NamedTuple):
    """Line of a page that prints figures.

    Attributes:
        page: its path, as "docs/viewer.md".
        line: number of the line, from 1.
        part: the part of the run, a key of `NOT_OF_THE_RUN`, or "" if `PRINTED` does not name it.
        marked: the line is in a marked part of the page, which the run writes.
        text: the line.
    """

    page: str
    line: int
    part: str
    marked: bool
    text: str

    @property
    def by_hand(self) -> bool:
        """Return whether the line is revised by hand after a run."""
        return not self.marked and self.part not in NOT_OF_THE_RUN

    def __str__(self) -> str:
        how = "" if not self.by_hand else " by hand"
        return f"{self.page}:{self.line}: {self.part or '?'}{how}: {self.text.strip()[:100]}"


def find_figures(root: Path) -> Iterator[Figure]:
    """Yield the lines with figures of README.md and docs/, without those of code blocks and of the tables' page."""
    for path in sorted([root / "README.md", *(root / "docs").rglob("*.md")]):
        page = path.relative_to(root).as_posix()
        if page != "docs/benchmarks-tables.md":
            yield from _figures(page, path.read_text(encoding="utf-8"))


def _figures(page: str, text: str) -> Iterator[Figure]:
    text = _CODE.sub(lambda found: "\n" * found[0].count("\n"), text)
    heading, inside = "", ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("#"):
            heading = line.lstrip("# ")
        mark = _MARK.search(line)
        if mark:
            inside = mark["name"] or ""
        if _FIGURE.search(line):
            place = f"{heading} > {line}"
            part = next(
                (part for pattern, part in PRINTED.get(page, ()) if re.search(pattern, place)), inside
            )
            yield Figure(page, number, part, bool(inside), line)
