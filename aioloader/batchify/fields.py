"""Fields of samples: their common structure, and collation of each field on its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from aioloader.foundation.pytree import LEAF, Structure, flatten, unflatten


def check_out(out: Any, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless `out` is an array of a shape."""
    if not isinstance(out, np.ndarray) or out.shape != shape:
        found = out.shape if isinstance(out, np.ndarray) else type(out).__name__
        raise ValueError(f"out must be an array of shape {shape}, got {found}")


def _columns(samples: Sequence[Any]) -> tuple[Structure, list[list[Any]]]:
    """Return the structure that all samples share, and each of its fields as a list."""
    if not len(samples):
        raise ValueError("there are no samples to collate")
    structure, leaves = flatten(samples[0])
    rows = [leaves]
    for place in range(1, len(samples)):
        found, leaves = flatten(samples[place])
        if found != structure:
            found, leaves = flatten(_in_order_of(structure, samples[place]))
        if found != structure:
            raise ValueError(
                f"samples of different structures cannot be collated: sample 0 is {_describe(structure)}, "
                f"sample {place} is {_describe(found)}"
            )
        rows.append(leaves)
    return structure, [list(column) for column in zip(*rows, strict=True)]


def _in_order_of(structure: Structure, value: Any) -> Any:
    """Return `value` with its dicts in the order of the structure's, if they have the same keys."""
    if structure is LEAF:
        return value
    kind, keys, children = structure
    if kind == "dict" and isinstance(value, Mapping) and set(value) == set(keys):
        return {key: _in_order_of(child, value[key]) for key, child in zip(keys, children, strict=True)}
    if kind in ("tuple", "list") and type(value).__name__ == kind and len(value) == len(children):
        return type(value)([_in_order_of(*pair) for pair in zip(children, value, strict=True)])
    return value


def _describe(structure: Structure) -> str:
    """Describe a structure in a few words, such as ``(value, {'box': value})``."""
    if structure is LEAF:
        return "value"
    kind, what, children = structure
    inner = [_describe(child) for child in children]
    if kind == "tuple":
        return f"({', '.join(inner)}{',' if len(inner) == 1 else ''})"
    if kind == "list":
        return f"[{', '.join(inner)}]"
    if kind == "dict":
        return "{" + ", ".join(f"{key!r}: {text}" for key, text in zip(what, inner, strict=True)) + "}"
    return f"{what.__name__}({', '.join(inner)})"


def _out_leaves(structure: Structure, out: Any, count: int) -> list[Any]:
    if out is None:
        return [None] * count
    found, leaves = flatten(out)
    if found != structure:
        raise ValueError(
            f"out must have the batch's structure {_describe(structure)}, got {_describe(found)}"
        )
    return leaves


def by_field(samples: Sequence[Any], out: Any, collate: Callable[[list[Any], Any], Any]) -> Any:
    """Collate each field by `collate`, which takes its values and the array to write into, or None.

    Raises:
        ValueError: the samples or `out` have different structures.
    """
    structure, columns = _columns(samples)
    outs = _out_leaves(structure, out, len(columns))
    return unflatten(structure, [collate(column, to) for column, to in zip(columns, outs, strict=True)])
