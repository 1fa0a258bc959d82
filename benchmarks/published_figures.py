"""Figures that README and docs/ print: the page and line of each, and the part of the run that measures it.

`find_figures` finds lines by their units. `PRINTED` names the part of each; a line that it does not name is a finding
of ``tests/benchmarks/test_published.py``, so that no figure is outside of the run.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.published_tables import TABLES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ("NOT_OF_THE_RUN", "PRINTED", "Figure", "find_figures", "places_of")

NOT_OF_THE_RUN = {
    "limit": "a limit, a default, a bound that a test checks, or a property of a format or of another library",
    "message": "an example of a message or of an answer",
    "elsewhere": "measured on another machine, by a command that the page names",
}
"""Words in place of a part, for figures that the run does not measure, with their meaning."""

_MARKS = {"summary": "loaders", "missed": "loaders"}
"""Parts of the marks of docs/benchmarks.md; those of other pages are in `published_tables.TABLES`."""

PRINTED: dict[str, tuple[tuple[str, str], ...]] = {
    "README.md": (("records of 1 kB", "loaders"), ("", "photographs")),
    "docs/benchmarks.md": (
        ("^Sixteen cores and a GPU >", "elsewhere"),
        *(
            (f"^Special benchmarks > .*{words}", part)
            for words, part in {
                "formats.md": "photographs",
                "torch.md": "torch-adapter",
                "training-recipes.md": "recipes",
                "images-on-demand.md": "image-service",
                "of-any-shape.md": "ragged",
                "large results": "large-results",
                "of like items": "buckets",
                "within a budget": "fill",
                "packing.md": "packing",
                "viewer.md": "viewing",
                "remote records": "remote",
                "remote files": "remote-formats",
            }.items()
        ),
        ("small images on demand", "small-images"),
        ("cold epoch of remote tars", "remote-formats"),
        (
            "^Benchmarks >|^Plots >|Records of 1 kB|costs 2.1|The first batch|0.22 s with|9.3 s with|Spread|This run|"
            "same cores now",
            "loaders",
        ),
    ),
    "docs/batches-of-any-shape.md": (),
    "docs/caching.md": (("cache_limit=", "limit"),),
    "docs/comparison.md": (("", "loaders"),),
    "docs/crop-index.md": (("^Crop index > which its data", "crop-index"), ("^Crop index >", "loaders")),
    "docs/design.md": (
        ("fills 98.6 % of a budget", "fill"),
        ("holds the event loop for|made in a thread, by numpy", "large-results"),
        ("A chunk costs the loop 0.1|0.1 to 0.2 ms, however", "many-workers"),
        ("A connection is used again", "image-service"),
        ("2.2 ms with 16 at a time", "limit"),
        ("MiB a minute", "soak"),
        ("stop takes 0.88|boxes then take", "crop-index"),
        ("of the bytes in 1.2 requests|as much as some tens of KiB", "remote-crops"),
        ("so that of photographs", "tar-index"),
        ("512 kB|64 kB|45 ms|256 kB|20 MB is one|every 2 ms|4.9 %|switch interval|4 ms of work", "limit"),
        ("waited for, 0.4 s|256 MB the partial|record of 1 kB|waits 5 s for a server", "limit"),
        ("A hop to a thread takes", "internal-costs"),
        ("shared memory 13|1.21 times as long|megabyte of shared memory", "internal-costs"),
        ("one crossing costs|a photograph it takes|Dividing", "internal-costs"),
    ),
    "docs/diagnosis.md": (("Tracing costs|each, at 2.1 kB", "tracing"),),
    "docs/doctor.md": (("batch memory", "limit"),),
    "docs/executors.md": (
        ("^Costs > From the", "loaders"),
        ("a new loader came after", "worker-pool"),
        ("less than 1.5 times|less than 1.5 ms", "limit"),
    ),
    "docs/format.md": (("An index of more than", "limit"),),
    "docs/formats.md": (
        ("50,000 photographs|`tarfile`|remote tar many headers", "tar-index"),
        ("cache_limit|Row groups of", "limit"),
    ),
    "docs/from-torch.md": (("levels?[ .]|longer side", "limit"), ("values", "limit")),
    "docs/images-on-demand.md": (
        ("96 to 99 % full", "fill"),
        ("up to 64 times as many", "limit"),
        ("An image takes about 1.4 kB", "tracing"),
        ("112 x 112", "small-images"),
        ("^Measurements >", "image-service"),
    ),
    "docs/index.md": (("as fast as torch|records of 1 kB", "photographs"),),
    "docs/packing.md": (("--optimize", "packing"), ("JPEGs' size", "crop-index")),
    "docs/remote.md": (
        ("30 s\\), a listing|`timeout`", "limit"),
        ("The copies take about 5 %", "remote-crops"),
        ("When the server was", "remote"),
        ("faults", "remote-faults"),
        (r"\[targets\]", "limit"),
        ("of the bytes in|0.048 of the bytes", "remote-crops"),
        ("Cold epochs", "remote-formats"),
        ("^Measurements >", "remote"),
    ),
    "docs/sampling.md": (("A window of 16,384|average, as in", "windows"),),
    "docs/scaling.md": (
        ("10\\^6 samples", "scale-million"),
        ("1.3 million records", "resume"),
        ("^Workers for one event loop >", "many-workers"),
    ),
    "docs/torch.md": (
        ("1.26 times as|unchanged Pillow script|which made the Pillow script", "torch-adapter"),
    ),
    "docs/training-recipes.md": (),
    "docs/troubleshooting.md": (("has 64 MB in a Docker", "limit"), ("> >", "message")),
    "docs/tutorial-torch.md": (("80 % of the images", "limit"),),
    "docs/viewer.md": (("an index is scanned once for it", "tar-index-million"),),
}
"""For each page (pattern of "HEADING > LINE", part): the first that matches a line counts."""

_NO_PATTERN = "no pattern"

_NUMBER = r"\d[\d,.]*"
_FIGURE = re.compile(
    rf"{_NUMBER} (?:images|records|batches|samples|requests|ranges|sequences|`?get`?)(?:/s| a second| per second)"
    rf"|{_NUMBER}(?: or {_NUMBER}| to {_NUMBER}| and {_NUMBER})? (?:times|µs|us|ms)\b"
    rf"|(?<![\w.]){_NUMBER} (?:MB|kB|GB|s|minutes)(?![\w/])"
    rf"|{_NUMBER} ?%"
    rf"|± {_NUMBER}"
    rf"|{_NUMBER}x(?! \d)\b"
    r"|\b0\.\d+ of (?:a|an|its|that|the|their|those|what)\b"
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
            for line in _lines(page, path.read_text(encoding="utf-8")):
                part = _part_of(line.mark) if line.mark else dict(PRINTED.get(page, ())).get(line.pattern, "")
                yield Figure(page, line.number, part, bool(line.mark), line.text)


def places_of(root: Path, page: str) -> Iterator[tuple[str, str]]:
    """Yield "HEADING > LINE" of a page's lines with figures outside of marked parts, and the pattern that names each.

    Args:
        root: folder of README.md and docs/.
        page: path of the page in it.
    """
    for line in _lines(page, (root / page).read_text(encoding="utf-8")):
        if not line.mark:
            yield line.place, line.pattern


class _Line(NamedTuple):
    """Line with figures.

    Attributes:
        number: from 1.
        mark: name of the marked part of the page that it is in, or "".
        place: "HEADING > LINE".
        pattern: the first of `PRINTED` that matches the place, or `_NO_PATTERN`.
        text: the line.
    """

    number: int
    mark: str
    place: str
    pattern: str
    text: str


def _lines(page: str, text: str) -> Iterator[_Line]:
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
            found = (pattern for pattern, _ in PRINTED.get(page, ()) if re.search(pattern, place))
            yield _Line(number, inside, place, next(found, _NO_PATTERN), line)


def _part_of(mark: str) -> str:
    """Return the part of a marked part of a page."""
    return _MARKS[mark] if mark in _MARKS else TABLES[mark][0][0]
