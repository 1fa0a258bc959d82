"""References in nested lists, tuples and dicts, and results in the same nesting. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aioloader.errors import ImageReferenceError

# Lists of strangers may be nested deeper than the interpreter's stack.
_MOST_LEVELS = 100


def is_item(value: Any) -> bool:
    """Return whether a tuple is (dataset, index), which is one reference, and not a tuple of references."""
    if type(value) is not tuple or len(value) != 2 or isinstance(value[1], bool):
        return False
    dataset, index = value
    plain = isinstance(dataset, (str, bytes, bytearray, memoryview, list, tuple, dict))
    return not plain and hasattr(type(index), "__index__") and hasattr(type(dataset), "__getitem__")


def flatten_references(value: Any) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
    """Return the references in a value, and the function that puts results in their places.

    Args:
        value: a reference, or lists, tuples and dicts of such values. Dicts keep their keys.

    Raises:
        ImageReferenceError: they are nested more than 100 levels deep, or contain themselves.
    """
    found: list[Any] = []
    build = _walk(value, found, 0)
    return found, build


def _walk(value: Any, found: list[Any], level: int) -> Callable[[Sequence[Any]], Any]:
    if level > _MOST_LEVELS:
        raise ImageReferenceError(
            f"a {type(value).__name__} of references", f"they are nested more than {_MOST_LEVELS} levels deep"
        )
    if isinstance(value, Mapping):
        builders = {key: _walk(child, found, level + 1) for key, child in value.items()}
        return lambda results: {key: build(results) for key, build in builders.items()}
    if isinstance(value, list) or (isinstance(value, tuple) and not is_item(value)):
        parts = [_walk(child, found, level + 1) for child in value]
        if isinstance(value, list):
            return lambda results: [build(results) for build in parts]
        return lambda results: tuple(build(results) for build in parts)
    place = len(found)
    found.append(value)
    return lambda results: results[place]
