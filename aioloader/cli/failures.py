"""Lines about images that could not be read or decoded."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioloader.errors import SampleError


def failure_line(error: SampleError, path: str) -> str:
    """Return a line with the place of a failed image, and the reason.

    Args:
        error: its error.
        path: the data set, for an error without a path.
    """
    place = error.path or path
    if error.offset is not None:
        key = "no key" if error.key is None else f"key {error.key!r}"
        place += f": byte {error.offset}, {key}"
    elif error.key is not None:
        place += f": key {error.key!r}"
    return f"{place}: {_without_place(error.reason, error.path)}"


def _without_place(reason: str, path: str | None) -> str:
    """Return the type of an error and its text without the place at its beginning: "PATH: " or "PATH, byte 7: "."""
    kind, _, text = reason.partition(": ")
    if not path or not text.startswith((f"{path}: ", f"{path}, byte ")):
        return reason
    return f"{kind}: {text[len(path) :].partition(': ')[2]}"
