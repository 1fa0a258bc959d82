"""Names of record files: shards, patterns and lists.

Brace patterns in the names of files: ``train-{000..127}.SUFFIX``, ``{a,b}.SUFFIX``. Pure.

The rules are those of brace expansion in bash (its manual, section "Brace Expansion"): ``{a,b}`` is each of the
alternatives, ``{1..10}`` and ``{1..10..2}`` are numbers, ``{a..e}`` letters. If a number begins with 0, all of them
have the width of the longer end. Braces nest, and several in one name are combined, the last one fastest. Braces with
neither a comma nor a range, or without a partner, are ordinary characters. There are no escapes.
"""

from __future__ import annotations

import glob
import os
import re
from dataclasses import dataclass
from itertools import pairwise, product
from typing import TYPE_CHECKING

from aioloader.storage.urls import can_list, is_hub, is_url, path_of
from recordio import RecordFileNotFoundError

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


def is_pattern(path: str) -> bool:
    """Return True if a path is a pattern (``*``, ``?``, ``[...]``, ``{...}``) and not the name of an existing file.

    Of URLs of HTTP only braces count: ``?`` begins a query there, and a server cannot list its files.

    Raises:
        ValueError: its braces mean too many names; see `expand_braces`.
    """
    if is_url(path):
        return (can_list(path) and glob.has_magic(path)) or has_braces(_split_query(path)[0])
    if not (glob.has_magic(path) or "{" in path) or os.path.exists(path):
        return False
    return glob.has_magic(path) or has_braces(path)


def files_of(path: str) -> list[str]:
    """Return the files of a local data set: itself, or those of a folder at any depth, sorted."""
    if not os.path.isdir(path):
        return [path]
    return sorted(os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names)


def pinned_paths(paths: Sequence[str]) -> Sequence[str]:
    """Return paths; in URLs of the Hugging Face Hub with the commits that their revisions have now.

    Raises:
        OSError: the Hub does not answer, or there is no such data set.
        ValueError: a URL does not name a data set.
    """
    if not any(map(is_hub, paths)):
        return paths
    from aioloader.storage.remote.opening import pin_urls

    return pin_urls(paths)


def pinned_path(path: str) -> str:
    """Return one path, as `pinned_paths` does."""
    return pinned_paths([path])[0]


def record_files(filename: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    """Return the record files that an argument names.

    Args:
        filename: a file or a URL; or a pattern; or several of these, in that order. Braces (`expand_braces`) name
            files in their order, and each of them must exist. ``*``, ``?`` and ``[...]`` match files, which are sorted
            by name; not over HTTP, which lists none. A local file of exactly that name is not taken for a pattern. The
            existence of URLs without ``*``, ``?`` and ``[...]`` is not checked.

    Returns:
        paths and URLs; those of the Hugging Face Hub with commits as revisions.

    Raises:
        FileNotFoundError: there is no such file, or no file matches the pattern.
        OSError: a store cannot be listed, or the Hub does not answer.
        ValueError: the list of files is empty, a pattern means too many files, or a URL is malformed.
    """
    given = [filename] if isinstance(filename, (str, os.PathLike)) else filename
    paths = [name for each in given for name in _expanded(path_of(each))]
    if not paths:
        raise ValueError("the list of files is empty: pass at least one")
    return tuple(name for path in pinned_paths(paths) for name in _matching(path))


def _expanded(path: str) -> list[str]:
    """Expand the braces of a path."""
    if not is_url(path):
        return [path] if "{" not in path or os.path.exists(path) else expand_braces(path)
    text, query = _split_query(path)
    return [name + query for name in expand_braces(text)]


def _split_query(url: str) -> tuple[str, str]:
    """Split a URL of HTTP before its query, whose braces are ordinary characters; other URLs have none."""
    text, mark, query = (url, "", "") if can_list(url) else url.partition("?")
    return text, mark + query


def _matching(path: str) -> Sequence[str]:
    """Return the files that match a path without braces."""
    if is_url(path):
        if not (can_list(path) and glob.has_magic(path)):
            return [path]
        from aioloader.storage.remote.opening import list_matching

        found = list_matching(path)
    elif os.path.exists(path):
        return [path]
    elif not glob.has_magic(path):
        raise RecordFileNotFoundError(f"there is no file {path!r}", path=path)
    else:
        found = glob.glob(path)
    if not found:
        raise RecordFileNotFoundError(f"no file matches the pattern {path!r}", path=path)
    return sorted(found)
