"""References in nested lists, tuples and dicts, and keys and results in the same nesting. Pure."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from types import NoneType
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


def is_row(value: Any) -> bool:
    """Return whether a dict is a row {"bytes": ..., "path": ...}, one reference, and not a dict of references."""
    return (
        isinstance(value, Mapping)
        and value.keys() == {"bytes", "path"}
        and isinstance(value["bytes"], (bytes, bytearray, memoryview, NoneType))
        and isinstance(value["path"], (str, os.PathLike, NoneType))
    )


def flatten_references(value: Any) -> tuple[list[Any], Callable[[Sequence[Any]], Any]]:
    """Return the references in a value, and the function that puts results in their places.

    Args:
        value: a reference, or lists, tuples and dicts of such values. Dicts keep their keys; a row is one reference.

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
    if isinstance(value, Mapping) and not is_row(value):
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


def flatten_keys(refs: Any, keys: Any) -> list[Any]:
    """Return the key of each reference of `flatten_references(refs)`.

    Args:
        refs: references in lists, tuples and dicts.
        keys: in the same nesting; None in place of any part: it has none.

    Raises:
        ValueError: it is another nesting.
    """
    found: list[Any] = []
    _walk_keys(refs, keys, found, "key")
    return found


def _walk_keys(refs: Any, keys: Any, found: list[Any], where: str) -> None:
    if isinstance(refs, Mapping) and not is_row(refs):
        if keys is not None and (not isinstance(keys, Mapping) or keys.keys() != refs.keys()):
            raise ValueError(
                f"{where} must be a dict with the keys of its references, got {_described(keys)}"
            )
        for name, child in refs.items():
            _walk_keys(child, None if keys is None else keys[name], found, f"{where}[{name!r}]")
    elif isinstance(refs, list) or (isinstance(refs, tuple) and not is_item(refs)):
        if keys is not None and (not isinstance(keys, (list, tuple)) or len(keys) != len(refs)):
            wanted = f"a list or tuple of {len(refs)}, as its references are"
            raise ValueError(f"{where} must be {wanted}, got {_described(keys)}")
        for place, child in enumerate(refs):
            _walk_keys(child, None if keys is None else keys[place], found, f"{where}[{place}]")
    else:
        found.append(keys)


def _described(keys: Any) -> str:
    return f"a {type(keys).__name__}" + (
        f" of {len(keys)}" if isinstance(keys, (list, tuple, Mapping)) else ""
    )
