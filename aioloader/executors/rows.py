"""Samples as rows of a batch: what row a value needs, and writing a sample into its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.foundation.pytree import LEAF, flatten
from aioloader.foundation.types import Array, ArraySpec, Chunk, ChunkResult, RowLayout

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("Rows", "leaf_spec")

_ARRAYS = (np.ndarray, np.generic)
_NODES = (tuple, list, Mapping)


def leaf_spec(value: Any) -> ArraySpec | None:
    """The row that a leaf needs; None if it has none (strings, objects)."""
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


def _scalar_type(spec: ArraySpec | None) -> type[np.generic] | None:
    """The numpy scalars that fit a row as they are; None where it takes more than their type to tell."""
    plain = spec is not None and spec.shape == () and spec.dtype.isnative and spec.dtype.kind in "biufc"
    return spec.dtype.type if spec is not None and plain else None


class Rows:
    """The rows of a chunk's samples, in a slab.

    Args:
        memory: the slab region (a writable buffer).
        chunk: says where in it the arrays of its batch begin, and how many rows they have.
        layout: what a row consists of; None: no sample has a row.

    Attributes:
        first: the array of a sample's first leaf, or None: stages that can write there spare a copy.
    """

    __slots__ = ("_arrays", "_layout", "_plain", "_scalars", "first")

    def __init__(self, memory: Any, chunk: Chunk, layout: RowLayout | None) -> None:
        self._layout = layout
        self._arrays: Sequence[Array | None] = ()
        if layout is not None:
            self._plain = ("tuple", None, (LEAF,) * len(layout.leaves))
            self._scalars = [_scalar_type(leaf) for leaf in layout.leaves]
            self._arrays = [
                None
                if leaf is None
                else np.ndarray(
                    (chunk.rows, *[extent or 0 for extent in leaf.shape]), leaf.dtype, memory, base
                )
                for leaf, base in zip(layout.leaves, chunk.bases, strict=True)
            ]
        self.first = self._arrays[0] if self._arrays else None

    def write(self, sample: Any, row: int, out: Array | None, result: ChunkResult) -> bool:
        """Write a sample into its row; False if it does not fit."""
        if (layout := self._layout) is None:
            return False
        leaves: Any
        if type(sample) is tuple and len(sample) == len(layout.leaves) and layout.structure == self._plain:
            leaves = sample  # by far the most common kind; a part that is no leaf has no spec and is refused
        else:
            structure, leaves = flatten(sample)
            if structure != layout.structure:
                return False
        for leaf, spec, scalar in zip(leaves, layout.leaves, self._scalars, strict=True):
            if type(leaf) is scalar or (leaf is out and out is not None):
                continue  # a row fits itself
            if spec is not None and isinstance(leaf, _ARRAYS):
                if leaf.shape != spec.shape or leaf.dtype != spec.dtype:
                    return False
            elif leaf_spec(leaf) != spec or isinstance(leaf, _NODES) or is_dataclass(leaf):
                return False
        for number, (leaf, array) in enumerate(zip(leaves, self._arrays, strict=True)):
            if array is None:
                result.objects.setdefault(number, {})[row] = (
                    leaf.copy() if isinstance(leaf, np.ndarray) else leaf
                )
            elif leaf is not out:
                array[row] = leaf
        result.written.append(row)
        return True
