"""Griffe extension for the reference: docstrings, written for `help()` with reST's literal blocks, as Markdown."""

import re
from typing import Any

import griffe


def as_markdown(text: str) -> str:
    """A literal block's ``::`` goes, its indented lines are code in Markdown too; ``literals`` get one backtick."""
    text = re.sub(r"^( *)::\n", r"\1\n", text, flags=re.MULTILINE)
    text = re.sub(r"::$", ":", text, flags=re.MULTILINE)
    text = re.sub(r"``([^`\n]+)``", r"`\1`", text)
    return re.sub(r"^(Returns|Yields):\n(?: +.*\n?)+", _as_prose, text, flags=re.MULTILINE)


def _as_prose(section: re.Match[str]) -> str:
    """What is returned is told in a sentence: a colon in it parts no type from a description."""
    head, _, told = section[0].partition("\n")
    return head + "\n" + re.sub(r":(?=\s)", "&#58;", told)


class Docstrings(griffe.Extension):
    """Turns every docstring."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """See `griffe.Extension`."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
