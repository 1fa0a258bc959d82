"""Fields of samples: all samples of a batch have one structure, and each of its fields is collated separately."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from aioloader.errors import BatchShapeError
from aioloader.foundation.pytree import LEAF, Structure, flatten, unflatten


def columns_of(
    samples: Sequence[Any], is_leaf: Callable[[Any], bool] | None = None
) -> tuple[Structure, list[list[Any]]]:
    """Return the structure that all samples share, and each of its fields as a list.

    Args:
        samples: at least one.
        is_leaf: returns True for values that are fields although they have parts; None: none is.

    Raises:
        ValueError: there are no samples, or they differ in structure.
    """
    if not len(samples):
        raise ValueError("there are no samples to collate")
    structure, leaves = flatten(samples[0], is_leaf)
    rows = [leaves]
    for place in range(1, len(samples)):
        found, leaves = flatten(samples[place], is_leaf)
        if found != structure:
            found, leaves = flatten(_in_order_of(structure, samples[place]), is_leaf)
        if found != structure:
            raise ValueError(
                f"samples of different structures cannot be collated: sample 0 is {_describe(structure)}, "
                f"sample {place} is {_describe(found)}; for lists of different lengths, make arrays of them in a "
                "transform, and pass batchify_fn=batchify.Pad()"
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


def out_leaves(structure: Structure, out: Any, count: int) -> list[Any]:
    """Return the leaves of `out`, which must have the structure of the batch; `count` times None without one."""
    if out is None:
        return [None] * count
    found, leaves = flatten(out)
    if found != structure:
        raise ValueError(
            f"out must have the batch's structure {_describe(structure)}, got {_describe(found)}"
        )
    return leaves


def collate_by_field(samples: Sequence[Any], out: Any, collate: Callable[[list[Any], Any], Any]) -> Any:
    """Call `collate` with the values of each field and where to write them, and return the results as a sample is."""
    structure, columns = columns_of(samples)
    outs = out_leaves(structure, out, len(columns))
    pairs = zip(columns, outs, strict=True)
    return unflatten(
        structure, collate_each((partial(collate, *pair) for pair in pairs), partial(_fields_of, structure))
    )


def collate_fields(
    samples: Sequence[Any], is_leaf: Callable[[Any], bool], collate: Callable[[list[Any]], Any]
) -> Any:
    """Call `collate` with the values of each field; see `columns_of`. Its results may have parts themselves."""
    structure, columns = columns_of(samples, is_leaf)
    return unflatten(
        structure,
        collate_each((partial(collate, column) for column in columns), partial(_fields_of, structure)),
    )


def collate_each(calls: Iterable[Callable[[], Any]], names: Callable[[], Sequence[str]]) -> list[Any]:
    """Call the function of each field.

    Args:
        calls: collate one field each.
        names: returns the names of the fields; called after an error only.

    Raises:
        BatchShapeError: of a function, with the name of its field.
    """
    results = []
    for number, call in enumerate(calls):
        try:
            results.append(call())
        except BatchShapeError as error:
            raise error.in_field(names()[number]) from None
    return results


def _fields_of(structure: Structure) -> list[str]:
    """Return the path of each leaf of a structure, such as "[1]", "['box']" or ".label"; "" of a single one."""
    if structure is LEAF:
        return [""]
    kind, what, children = structure
    if kind == "dict":
        steps = [f"[{key!r}]" for key in what]
    elif kind in ("tuple", "list"):
        steps = [f"[{place}]" for place in range(len(children))]
    else:
        names = what._fields if kind == "namedtuple" else [each.name for each in dataclasses.fields(what)]
        steps = [f".{name}" for name in names]
    return [step + rest for step, child in zip(steps, children, strict=True) for rest in _fields_of(child)]
