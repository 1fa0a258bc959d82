"""Griffe extension for the reference: converts docstrings from reST's literal blocks, good in `help()`, to Markdown."""

import re
from typing import Any

import griffe


def as_markdown(text: str) -> str:
    """Convert a docstring: drop a literal block's ``::``, and write ``literals`` with one backtick.

    The indented lines of a literal block are code in Markdown too.
    """
    text = re.sub(r"^( *)::\n", r"\1\n", text, flags=re.MULTILINE)
    text = re.sub(r"::$", ":", text, flags=re.MULTILINE)
    text = re.sub(r"``([^`\n]+)``", r"`\1`", text)
    return re.sub(r"^(Returns|Yields):\n(?: +.*\n?)+", _as_prose, text, flags=re.MULTILINE)


def _as_prose(section: re.Match[str]) -> str:
    """Escape the colons of a section: the text before one would be read as a type, but it is a sentence."""
    head, _, sentence = section[0].partition("\n")
    return head + "\n" + re.sub(r":(?=\s)", "&#58;", sentence)


class Docstrings(griffe.Extension):
    """Extension that converts every docstring."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
