"""Hook of mkdocs: the first page of the site is README.md, its links turned to the site's own pages."""

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Give the text of README.md for index.md, and every other page as it is."""
    if page.file.src_uri != "index.md":
        return markdown
    text = (ROOT / "README.md").read_text(encoding="utf-8").replace("](docs/", "](")
    # What is not on the site is named without a link.
    return re.sub(r"\[([^\]]+)\]\((?:CONTRIBUTING\.md|SECURITY\.md|LICENSE)\)", r"\1", text)
