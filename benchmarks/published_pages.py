"""Pages with published figures: docs/benchmarks-tables.md as a whole, and the marked parts of the others.

A marked part lies between ``<!-- figures: NAME -->`` and ``<!-- end of figures -->``. NAME is "summary", "missed"
(docs/benchmarks.md), or a key of `benchmarks.published_tables.TABLES`. What the results file does not have
stays as it is.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.charts import draw_page
from benchmarks.figures import plain_tables
from benchmarks.goals import judge_goals, mark_peers
from benchmarks.published_parts import PARTS, PHOTOGRAPHS
from benchmarks.published_results import all_loaders, restore
from benchmarks.published_tables import RAW_AGAIN, TABLES, missed, summary
from benchmarks.report import (
    busy_warning,
    case_lines,
    machine_line,
    settings_note,
    target_lines,
    version_lines,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from benchmarks.published_parts import Part

__all__ = ("ROOT", "TABLES_PAGE", "fill_page", "render_tables", "write_pages")

ROOT = Path(__file__).parent.parent
TABLES_PAGE = ROOT / "docs" / "benchmarks-tables.md"

_HEAD = """\
---
hide: [navigation]
---

# Benchmark tables

All figures behind [Benchmarks](benchmarks.md), which says how they are measured. This command writes the page:

    python -m benchmarks.publish --data FOLDER

**The columns** of the tables of loaders:

| column | meaning |
| --- | --- |
| contender, setting | the loader and its best setting; this project's are in bold |
| images/s, records/s, batches/s | of a whole epoch, after the first batch |
| resize | filter of the resize; "antialiased": it averages over all pixels that a pixel of the result covers |
| of the bare loop | the same as a share of the *bare loop*: one process per core that does only the work, without \
files, order, batches or transport. It decodes whole images, so a loader that decodes less can be faster |
| aioloader is | the rate of the best aioloader setting without a crop index, as a multiple of this contender's |
| with crop index | the same of the best aioloader setting with a crop index |
| first batch | from opening the loader to the first batch, imports excluded, files in the page cache |
| CPU | of all processes together |
| memory | of all processes together, at its peak (proportional set size) |
| data | the stored samples of an epoch |
| lag | the delay of a task that wants to run every millisecond, in the same event loop |
"""
_PART = re.compile(
    r"^<!-- part: (?P<name>[a-z-]+) -->\n(?P<text>.*?)(?=^<!-- part: |\Z)", re.MULTILINE | re.DOTALL
)
_MARKED = re.compile(
    r"(?P<begin><!-- figures: (?P<name>[a-z-]+) -->)\n(?P<text>.*?)(?P<end><!-- end of figures -->)",
    re.DOTALL,
)


def render_tables(before: str, facts: Mapping[str, Any], parts: Mapping[str, Any]) -> str:
    """Return docs/benchmarks-tables.md.

    Args:
        before: the page so far; sections of parts that `parts` does not have are taken from it.
        facts: of the results file.
        parts: of the results file.
    """
    sections = {found["name"]: found["text"].strip() for found in _PART.finditer(before)}
    for name, found in parts.items():
        if name in PARTS:
            sections[name] = "\n".join(_section(PARTS[name], found, facts, parts)).strip()
    return "\n".join(
        [
            _HEAD,
            *_revisions(parts),
            *(f"<!-- part: {name} -->\n\n{sections[name]}\n" for name in PARTS if name in sections),
        ]
    )


def _revisions(parts: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line with the revisions of the code that was measured."""
    found = sorted({part["revision"] for part in parts.values() if part.get("revision")})
    if found:
        yield f"Revision of the code: {', '.join(f'`{each}`' for each in found)}.\n"


def _section(
    part: Part, found: Mapping[str, Any], facts: Mapping[str, Any], parts: Mapping[str, Any]
) -> Iterator[str]:
    """Yield the lines of a part's section."""
    if part.is_run:
        yield from _run_section(part, found, parts)
        return
    machine = {
        "date": found.get("date"),
        "machine": facts.get("machine", {}),
        "cores": facts.get("cores", ()),
    }
    yield from (f"## {part.title}", "", f"    {part.command}", "")
    yield from (f"{part.note} {machine_line(machine)}.".strip(), "")
    yield from plain_tables(found["rows"])


def _run_section(part: Part, found: Mapping[str, Any], parts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a run of loaders.

    Args:
        part: the run.
        found: its record.
        parts: all records.
    """
    results = restore(found)
    mark_peers(results)
    run = results.run
    yield from (f"## {part.title}", "", f"    {part.command}", "")
    facts = f"{machine_line(run)}; {run.get('data', '')}; medians of {run.get('rounds', '?')} rounds."
    yield from (f"{part.note} {facts}{settings_note(run)}".strip(), "")
    warning = busy_warning(results.rows)
    if warning:
        yield from (f"**{warning}**", "")
    # A case is a section of the first level, from which plots and settings are read, unless another part has it.
    newer = restore(parts[PHOTOGRAPHS]).cases if PHOTOGRAPHS in parts and part.name != PHOTOGRAPHS else ()
    for case in results.cases:
        if case in newer:
            continue
        lines = list(case_lines(results, case))
        yield from lines[2:] if part.name == RAW_AGAIN else lines
    if part.name == "loaders":
        again = parts.get(RAW_AGAIN)
        whole = all_loaders(parts)
        mark_peers(whole)
        yield from target_lines(judge_goals(whole, [restore(again)] if again else ()))
        yield from _targets_notes(again)
        yield from version_lines(whole)


def _targets_notes(again: Mapping[str, Any] | None) -> Iterator[str]:
    yield 'A ratio "times X" is the rate of this project divided by that of X. A few targets have a higher one, too.'
    if again:
        title = PARTS[RAW_AGAIN].title
        place = re.sub(r"[^a-z -]", "", title.lower()).replace(" ", "-")
        yield f"The figure of {RAW_AGAIN} is that of [{title}](#{place}), which has more rounds."
    yield ""


def fill_page(text: str, parts: Mapping[str, Any], tables: str) -> str:
    """Return a page with its marked parts rewritten.

    Args:
        text: the page.
        parts: of the results file.
        tables: docs/benchmarks-tables.md.
    """

    def replaced(found: re.Match[str]) -> str:
        lines = _marked(found["name"], parts, tables)
        return found[0] if lines is None else "\n".join([found["begin"], "", *lines, "", found["end"]])

    return _MARKED.sub(replaced, text)


def _marked(name: str, parts: Mapping[str, Any], tables: str) -> list[str] | None:
    """Return the lines of a marked part; None if the results file does not have their figures."""
    if name == "summary":
        return summary(tables)
    if name == "missed":
        return missed(tables, parts)
    needed, make = TABLES[name]
    return make(parts) if all(part in parts for part in needed) else None


def write_pages(facts: Mapping[str, Any], parts: Mapping[str, Any], root: Path = ROOT) -> list[Path]:
    """Write all pages and the plots.

    Args:
        facts, parts: of the results file; both may be empty.
        root: folder of README.md and docs/.

    Returns:
        the files whose content has changed, without plots.
    """
    page = root / "docs" / TABLES_PAGE.name
    before = page.read_text(encoding="utf-8") if page.exists() else ""
    page.write_text(render_tables(before, facts, parts), encoding="utf-8")
    draw_page(page, root / "docs" / "images" / "benchmarks")
    tables = page.read_text(encoding="utf-8")
    changed = [page] if tables != before else []
    for path in sorted([root / "README.md", *(root / "docs").rglob("*.md")]):
        text = path.read_text(encoding="utf-8")
        filled = fill_page(text, parts, tables)
        if filled != text:
            path.write_text(filled, encoding="utf-8")
            changed.append(path)
    return changed
