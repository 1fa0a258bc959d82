"""Samples as trees: tuples, lists, dicts, named tuples and dataclasses are flattened by field and rebuilt.

A structure is a plain nested tuple, so that two samples can be compared with ``==``:
``None`` is a leaf; every other node is ``(kind, type or keys, children)``.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from aioloader.foundation.types import ArraySpec

Structure: TypeAlias = Any

LEAF: Structure = None


def flatten(value: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[Structure, list[Any]]:
    """Flatten a sample.

    Args:
        value: the sample.
        is_leaf: returns True for a value that stays whole although it has parts; None: none does.

    Returns:
        its structure, and its leaves from left to right (dicts in their own order).
    """
    leaves: list[Any] = []
    return _flatten(value, leaves, is_leaf), leaves


def _flatten(value: Any, leaves: list[Any], is_leaf: Callable[[Any], bool] | None) -> Structure:
    if is_leaf is not None and is_leaf(value):
        leaves.append(value)
        return LEAF
    cls = type(value)
    if cls is tuple or cls is list:
        return (cls.__name__, None, tuple([_flatten(child, leaves, is_leaf) for child in value]))
    if isinstance(value, Mapping):
        keys = tuple(value)
        return ("dict", keys, tuple([_flatten(value[key], leaves, is_leaf) for key in keys]))
    if isinstance(value, tuple) and hasattr(value, "_fields"):  # a named tuple
        return ("namedtuple", cls, tuple([_flatten(child, leaves, is_leaf) for child in value]))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        parts = [getattr(value, each.name) for each in fields]
        return ("dataclass", cls, tuple([_flatten(part, leaves, is_leaf) for part in parts]))
    leaves.append(value)
    return LEAF


def builder(structure: Structure) -> Callable[[Sequence[Any]], Any]:
    """Return the function that puts leaves into a structure, for structures that are rebuilt many times."""
    if structure is not LEAF and structure[0] in ("tuple", "list") and set(structure[2]) <= {LEAF}:
        return tuple if structure[0] == "tuple" else list
    return functools.partial(unflatten, structure)


def unflatten(structure: Structure, leaves: Sequence[Any]) -> Any:
    """Put leaves into a structure; the inverse of `flatten`. Mappings come back as dicts."""
    return _unflatten(structure, iter(leaves))


def _unflatten(structure: Structure, leaves: Iterator[Any]) -> Any:
    if structure is LEAF:
        return next(leaves)
    kind, what, children = structure
    values = [_unflatten(child, leaves) for child in children]
    if kind == "tuple":
        return tuple(values)
    if kind == "list":
        return values
    if kind == "dict":
        return dict(zip(what, values, strict=True))
    if kind == "namedtuple":
        return what._make(values)
    # A batch need not satisfy the checks that __init__ and __post_init__ make for a single sample.
    made = object.__new__(what)
    for field, value in zip(dataclasses.fields(what), values, strict=True):
        object.__setattr__(made, field.name, value)
    return made


def map_leaves(fn: Callable[[Any], Any], value: Any) -> Any:
    """Return the same structure with `fn` applied to every leaf."""
    structure, leaves = flatten(value)
    return unflatten(structure, [fn(leaf) for leaf in leaves])


def leaf_spec(value: Any) -> ArraySpec | None:
    """Return the spec of the row that a leaf needs; None if it has no fixed row (strings, objects)."""
    if isinstance(value, np.ndarray):
        return None if value.dtype.hasobject else ArraySpec(value.shape, value.dtype)
    if isinstance(value, np.character):
        return None  # text, as str and bytes are
    if isinstance(value, np.generic):
        return None if value.dtype.hasobject else ArraySpec((), value.dtype)
    if isinstance(value, (bool, int, float, complex)):
        dtype = np.asarray(value).dtype
        return None if dtype.hasobject else ArraySpec((), dtype)
    if hasattr(value, "__array__"):
        return leaf_spec(np.asarray(value))
    return None
