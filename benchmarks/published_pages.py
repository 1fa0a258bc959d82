"""Pages with published figures: docs/benchmarks-tables.md as a whole, and the marked parts of the others.

A marked part lies between ``<!-- figures: NAME -->`` and ``<!-- end of figures -->``. NAME is "summary", "cpu",
"missed" (docs/benchmarks.md), "executors", "resume-proof" (docs/resume.md) or "headline" (README.md). Everything
follows from the results file; a marked part whose figures it does not have stays as it is.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.charts import draw_cases
from benchmarks.figures import plain_tables
from benchmarks.goals import mark_peers
from benchmarks.published_parts import PARTS, PHOTOGRAPHS, RAW_AGAIN
from benchmarks.published_results import all_loaders, restore
from benchmarks.published_tables import judged, marked
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
| CPU | of all processes together, for a sample, while the rate was measured |
| resize | filter of the resize; "antialiased": it averages over all pixels that a pixel of the result covers |
| of the bare loop | the same as a share of the *bare loop*: one process per core that does only the work, without \
files, order, batches or transport. It decodes whole images, so a loader that decodes less can be faster |
| aioloader is | the rate of the best aioloader setting without a crop index, as a multiple of this contender's |
| with crop index | the same of the best aioloader setting with a crop index |
| first batch | from opening the loader to the first batch, imports excluded, files in the page cache |
| memory | of all processes together, at its peak (proportional set size) |
| data | the stored samples of an epoch |
| lag | the delay of a task that wants to run every millisecond, in the same event loop |
"""
_MARKED = re.compile(
    r"(?P<begin><!-- figures: (?P<name>[a-z-]+) -->)\n(?P<text>.*?)(?P<end><!-- end of figures -->)",
    re.DOTALL,
)


def render_tables(facts: Mapping[str, Any], parts: Mapping[str, Any]) -> str:
    """Return docs/benchmarks-tables.md.

    Args:
        facts, parts: of the results file.
    """
    lines = [_HEAD]
    revisions = sorted({part["revision"] for part in parts.values() if part.get("revision")})
    if revisions:
        lines.append(f"Revision of the code: {', '.join(f'`{each}`' for each in revisions)}.\n")
    explained: set[str] = set()
    for name, part in PARTS.items():
        if name in parts:
            section = (
                _run_section(part, parts)
                if part.is_run
                else _section(part, facts, parts[name], part.module not in explained)
            )
            explained.add(part.module)
            lines.append("\n".join(section).strip() + "\n")
    return "\n".join(lines)


def _section(part: Part, facts: Mapping[str, Any], found: Mapping[str, Any], explain: bool) -> Iterator[str]:
    """Yield the lines of a part's section."""
    yield from (f"## {part.title}", "", f"    {part.command}", "")
    if explain:
        yield from (_explanation(part.module), "")
    yield from (f"{machine_line({**facts, 'date': found.get('date')})}.", "")
    yield from plain_tables(found["rows"])


def _explanation(module: str) -> str:
    """Return the docstring of a benchmark without the commands in it."""
    path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraphs = (each for each in text.split("\n\n") if not each.startswith("    "))
    return "\n\n".join(paragraphs)


def _run_section(part: Part, parts: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of a run of loaders.

    Args:
        part: the run.
        parts: all records.
    """
    results = restore(parts[part.name])
    mark_peers(results)
    run = results.run
    yield from (f"## {part.title}", "", f"    {part.command}", "")
    facts = f"{machine_line(run)}; {run.get('data', '')}; medians of {run.get('rounds', '?')} rounds."
    yield from (f"{facts}{settings_note(run)}", "")
    warning = busy_warning(results.rows)
    if warning:
        yield from (f"**{warning}**", "")
    # A case is a section of the first level, unless another part has it.
    newer = restore(parts[PHOTOGRAPHS]).cases if PHOTOGRAPHS in parts and part.name != PHOTOGRAPHS else ()
    for case in results.cases:
        if case not in newer:
            yield from case_lines(results, case, headed=part.name != RAW_AGAIN)
    if part.name == "loaders":
        yield from target_lines(judged(parts)[1])
        yield 'A ratio "times X" is the rate of this project divided by that of X. Some targets have a higher one too.'
        if RAW_AGAIN in parts:
            title = PARTS[RAW_AGAIN].title
            place = re.sub(r"[^a-z -]", "", title.lower()).replace(" ", "-")
            yield f"The figure of {RAW_AGAIN} is that of [{title}](#{place}), which has more rounds."
        yield ""
        yield from version_lines(all_loaders(parts))


def fill_page(text: str, parts: Mapping[str, Any]) -> str:
    """Return a page with its marked parts rewritten.

    Args:
        text: the page.
        parts: of the results file.
    """

    def replaced(found: re.Match[str]) -> str:
        lines = marked(found["name"], parts)
        return found[0] if lines is None else "\n".join([found["begin"], "", *lines, "", found["end"]])

    return _MARKED.sub(replaced, text)


def write_pages(facts: Mapping[str, Any], parts: Mapping[str, Any], root: Path = ROOT) -> list[Path]:
    """Write all pages and the plots.

    Args:
        facts, parts: of the results file.
        root: folder of README.md and docs/.

    Returns:
        the files whose content has changed, without plots.
    """
    if "loaders" in parts:
        draw_cases(all_loaders(parts), root / "docs" / "images" / "benchmarks")
    changed = []
    for path in sorted([root / "README.md", *(root / "docs").rglob("*.md")]):
        text = path.read_text(encoding="utf-8")
        written = render_tables(facts, parts) if path.name == TABLES_PAGE.name else fill_page(text, parts)
        if written != text:
            path.write_text(written, encoding="utf-8")
            changed.append(path)
    return changed
