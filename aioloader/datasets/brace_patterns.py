"""Brace patterns in the names of files: ``train-{000..127}.tar``, ``{a,b}.rec``. Pure.

The rules are those of brace expansion in bash (its manual, section "Brace Expansion"): ``{a,b}`` is each of the
alternatives, ``{1..10}`` and ``{1..10..2}`` are numbers, ``{a..e}`` letters. If a number begins with 0, all of them
have the width of the longer end. Braces nest, and several in one name are combined, the last one fastest. Braces with
neither a comma nor a range, or without a partner, are ordinary characters. There are no escapes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise, product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MOST_NAMES = 100_000
_MOST_LENGTH = 4096
_MOST_DEPTH = 32
_NUMBERS = re.compile(r"(-?\d{1,18})\.\.(-?\d{1,18})(?:\.\.(-?\d{1,18}))?", re.ASCII)
_LETTERS = re.compile(r"([A-Za-z])\.\.([A-Za-z])(?:\.\.(-?\d{1,18}))?", re.ASCII)
_PADDED = re.compile(r"-?0\d")


@dataclass(frozen=True)
class _Range:
    """Numbers or letters between two ends."""

    values: range
    width: int
    letters: bool

    def count(self) -> int:
        return len(self.values)

    def names(self) -> Iterator[str]:
        for value in self.values:
            # The sign is part of the width.
            yield chr(value) if self.letters else f"{value:0{self.width}d}"


@dataclass(frozen=True)
class _Choice:
    """Alternatives."""

    options: Sequence[_Sequence]

    def count(self) -> int:
        return sum(option.count() for option in self.options)

    def names(self) -> Iterator[str]:
        for option in self.options:
            yield from option.names()


@dataclass(frozen=True)
class _Sequence:
    """Parts that follow each other; a str is itself."""

    parts: Sequence[str | _Range | _Choice]

    def count(self) -> int:
        found = 1
        for part in self.parts:
            found *= 1 if isinstance(part, str) else part.count()
        return found

    def names(self) -> Iterator[str]:
        columns = [(part,) if isinstance(part, str) else tuple(part.names()) for part in self.parts]
        return map("".join, product(*columns))


def has_braces(text: str) -> bool:
    """Return whether `expand_braces` returns anything but the text itself."""
    return "{" in text and expand_braces(text) != [text]


def expand_braces(text: str, most: int = MOST_NAMES) -> list[str]:
    """Return the names that a pattern with braces means, in their order; the text itself if it has none.

    Args:
        text: of up to 4,096 characters, if there are braces in it.
        most: names.

    Raises:
        ValueError: there are more names, or the pattern is too long, or is nested too deeply.
    """
    if "{" not in text:
        return [text]
    if len(text) > _MOST_LENGTH:
        raise ValueError(f"a pattern with braces has {len(text):,} characters; {_MOST_LENGTH:,} are allowed")
    pattern = _parse(text, 0, len(text), _partners(text), 0)
    count = pattern.count()
    if count > most:
        raise ValueError(
            f"{text!r} means {count:,} names; {most:,} are allowed: pass several patterns as a list"
        )
    return list(pattern.names())


def _partners(text: str) -> dict[int, int]:
    """Return the place of the closing brace of each opening one that has a partner."""
    found: dict[int, int] = {}
    opened: list[int] = []
    for place, character in enumerate(text):
        if character == "{":
            opened.append(place)
        elif character == "}" and opened:
            found[opened.pop()] = place
    return found


def _parse(text: str, begin: int, end: int, partners: dict[int, int], depth: int) -> _Sequence:
    """Parse a part of a pattern."""
    if depth > _MOST_DEPTH:
        raise ValueError(f"the braces of {text!r} are nested too deeply; {_MOST_DEPTH} levels are allowed")
    parts: list[str | _Range | _Choice] = []
    plain = at = begin
    while at < end:
        close = partners.get(at) if text[at] == "{" else None
        found = None if close is None else _parse_braces(text, at + 1, close, partners, depth)
        if found is None or close is None:
            at += 1
            continue
        parts += [text[plain:at], found]
        plain = at = close + 1
    return _Sequence([*parts, text[plain:end]])


def _parse_braces(
    text: str, begin: int, end: int, partners: dict[int, int], depth: int
) -> _Range | _Choice | None:
    """Parse the text between two braces; None if they are ordinary characters."""
    commas = []
    at = begin
    while at < end:
        if text[at] == ",":
            commas.append(at)
        at = partners.get(at, at) + 1
    if not commas:
        return _parse_range(text[begin:end])
    cuts = [begin - 1, *commas, end]
    return _Choice([_parse(text, low + 1, high, partners, depth + 1) for low, high in pairwise(cuts)])


def _parse_range(text: str) -> _Range | None:
    found = _NUMBERS.fullmatch(text)
    letters = found is None
    if found is None:
        found = _LETTERS.fullmatch(text)
    if found is None:
        return None
    first, last, step = found.groups()
    width = max(len(first), len(last)) if _PADDED.match(first) or _PADDED.match(last) else 0
    low, high = (ord(first), ord(last)) if letters else (int(first), int(last))
    stride = abs(int(step or 1)) or 1
    values = range(low, high + 1, stride) if low <= high else range(low, high - 1, -stride)
    return _Range(values, width, letters)
