"""Pages of the site, including the README, and their code blocks."""

from __future__ import annotations

import re
import shlex
import textwrap
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = {
    "README.md": ROOT / "README.md",
    **{path.relative_to(ROOT / "docs").as_posix(): path for path in sorted((ROOT / "docs").rglob("*.md"))},
}
"""Name of a page, without its folder docs/, and its path."""

_FENCE = re.compile(r"^( *)(`{3,})([^\n`]*)\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """Fenced block.

    Attributes:
        page: its page, a key of `PAGES`.
        line: number of its first line of code, from 1.
        language: the first word after the fence's backticks; "" for none.
        info: the rest of that line.
        code: the lines, without the indentation of the fence.
    """

    page: str
    line: int
    language: str
    info: str
    code: str

    @property
    def title(self) -> str:
        """Return the file name of the block; "" if it has none."""
        found = re.search(r'title="([^"]+)"', self.info)
        return found[1] if found else ""

    @property
    def place(self) -> str:
        """Return its place, for messages."""
        return f"{PAGES[self.page].relative_to(ROOT)}:{self.line}"

    @property
    def imports(self) -> set[str]:
        """Return the names of the packages that a Python block imports, at any depth of its lines."""
        found = re.findall(r"^\s*(?:import|from)\s+(\w+)", self.code, re.MULTILINE)
        return set(found)


def blocks(page: str, *languages: str) -> list[Block]:
    """Return the blocks of a page in their order.

    Args:
        page: a key of `PAGES`.
        languages: the wanted languages; none: all.
    """
    text = PAGES[page].read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        language, _, info = match[3].strip().partition(" ")
        if not languages or language in languages:
            line = text.count("\n", 0, match.start()) + 2
            found.append(Block(page, line, language, info, textwrap.dedent(match[4])))
    return found


def commands(block: Block) -> list[list[str]]:
    """Return the commands of a block of shell lines, or of a transcript (lines that begin with ``$``), as words.

    ``a && b`` are two commands; comments are left out.
    """
    lines = block.code.replace("\\\n", " ").splitlines()
    if block.language == "console":
        lines = [line[2:] for line in lines if line.startswith("$ ")]
    found = []
    for line in lines:
        words = shlex.split(line, comments=True)
        while "&&" in words:
            place = words.index("&&")
            found.append(words[:place])
            words = words[place + 1 :]
        if words:
            found.append(words)
    return found
