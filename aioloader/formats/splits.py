"""Splits of a data set (train, test, ...) in the names of files and folders. Pure."""

from __future__ import annotations

import glob
import os
import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SPLITS = frozenset(
    (
        "train",
        "training",
        "trainval",
        "test",
        "testing",
        "val",
        "valid",
        "validation",
        "dev",
        "eval",
        "evaluation",
    )
)
_NOT_LETTERS = re.compile(r"[^a-z]+")


def split_of(name: str) -> str:
    """Return the word for a split ("train", "test", ...) in the name of a file or folder; "" without one."""
    return next((word for word in _NOT_LETTERS.split(name.lower()) if word in _SPLITS), "")


def by_split(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the names of files by their split, sorted."""
    found: dict[str, list[str]] = {}
    for name in sorted(names):
        found.setdefault(split_of(name), []).append(name)
    return found


def of_several_splits(names: Iterable[str]) -> bool:
    """Return True if the names of folders contain at least two different words for splits."""
    return len(set(map(split_of, names)) - {""}) > 1


def pattern_for(names: Sequence[str], others: Iterable[str]) -> str:
    """Return a pattern that matches these names and none of the others; the first name if there is none.

    Args:
        names: at least one.
        others: names in the same folder, these or others.
    """
    if len(names) == 1:
        return names[0]
    begin = glob.escape(_common_begin(names).rstrip("0123456789"))
    end = _common_begin([name[::-1] for name in names])[::-1].lstrip("0123456789")
    rest = set(others) - set(names)
    for pattern in (f"{begin}*{os.path.splitext(names[0])[1]}", f"{begin}*{glob.escape(end)}"):
        fits = all(fnmatchcase(name, pattern) for name in names)
        if fits and not any(fnmatchcase(name, pattern) for name in rest):
            return pattern
    return names[0]


def _common_begin(names: Sequence[str]) -> str:
    low, high = min(names), max(names)
    same = next((place for place, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))
    return low[:same]
