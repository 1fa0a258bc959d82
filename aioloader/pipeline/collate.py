"""Results of a batch's chunks to the batch that is handed out: arrays over the slab, leased to the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.foundation.pytree import flatten, leaf_spec, map_leaves, unflatten

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioloader.foundation.types import Array, ChunkResult, RowLayout
    from aioloader.pipeline.context import PipelineContext

__all__ = ("collate", "write_row")


def collate(
    context: PipelineContext,
    result: ChunkResult,
    layout: RowLayout | None,
    slab: Any,
    bases: tuple[int, ...],
    rows: int,
    fill: Mapping[int, int],
) -> tuple[Any, int, bool]:
    """Make the batch.

    Args:
        context: the parts.
        result: all chunks of the batch, merged.
        layout: the rows' layout, or None if there are none.
        slab: where the rows, or the spilled results, lie; or None.
        bases: place of each leaf's array in the slab memory.
        rows: rows of the arrays.
        fill: rows of failed samples, and for each the row that takes its place.

    Returns:
        the batch (None if no sample is left), its number of samples, and whether it now holds the slab.

    Raises:
        ValueError: the samples cannot be collated.
    """
    # Beyond what the caller may keep, batches are copied out.
    copy = result.tainted or (slab is not None and not context.may_lease(slab.nbytes))
    if context.custom_collate:
        if not result.samples:
            return None, 0, False
        if not result.roots:
            return result.batch, result.samples, False
        if copy:
            return map_leaves(_copy, result.batch), result.samples, False
        context.memory.lease(slab, result.roots)
        return result.batch, result.samples, True

    # While somebody may still write to the rows, they are only read from: those that are sound stay as they are.
    if layout is not None and result.values and not result.tainted:
        for row in list(result.values):  # those that told the layout
            write_row(context.memory, layout, bases, rows, row, result)
    kept = sorted([*result.written, *result.values])
    if not kept:
        return None, 0, False
    picked = kept
    if fill:
        kept = sorted([*kept, *fill])
        picked = [fill.get(row, row) for row in kept]
    if result.values or layout is None:
        samples = [_sample(context, result, layout, bases, rows, row) for row in picked]
        # Views of rows go in, new arrays come out.
        return context.collate(samples), len(kept), False

    leaves: list[Any] = []
    roots: list[Array] = []
    for number, (spec, base) in enumerate(zip(layout.leaves, bases, strict=True)):
        if spec is None:
            objects = result.objects.get(number, {})
            leaves.append([objects[row] for row in picked])
            continue
        shape = tuple(extent or 0 for extent in spec.shape)
        if copy:
            rows_of_slab = context.memory.array(base, (rows, *shape), spec.dtype)
            leaves.append(rows_of_slab.copy() if not fill and len(kept) == rows else rows_of_slab[picked])
            continue
        root = context.memory.array(base, (len(kept), *shape), spec.dtype)
        for failed, stand_in in fill.items():
            root[failed] = root[stand_in]
        if len(kept) < rows:
            root[:] = context.memory.array(base, (rows, *shape), spec.dtype)[kept]
        roots.append(root)
        leaves.append(root)
    if roots:
        context.memory.lease(slab, roots)
    return unflatten(layout.structure, leaves), len(kept), bool(roots)


def write_row(
    memory: Any,
    layout: RowLayout,
    bases: tuple[int, ...],
    rows: int,
    row: int,
    result: ChunkResult,
) -> None:
    """Write a sample that came by value into its row, if it fits.

    Args:
        memory: the slab memory.
        layout, bases, rows: of the batch's arrays, see `Chunk`.
        row: which sample of `result.values`; it is no value any more where it was written.
        result: told of it.
    """
    structure, leaves = flatten(result.values[row])
    if structure != layout.structure or tuple(leaf_spec(leaf) for leaf in leaves) != layout.leaves:
        return
    for number, (leaf, wanted, base) in enumerate(zip(leaves, layout.leaves, bases, strict=True)):
        if wanted is None:
            result.objects.setdefault(number, {})[row] = leaf
        else:
            shape = tuple(extent or 0 for extent in wanted.shape)
            memory.array(base, (rows, *shape), wanted.dtype)[row] = leaf
    result.written.append(row)
    del result.values[row]


def _copy(leaf: Any) -> Any:
    return leaf.copy() if isinstance(leaf, np.ndarray) else leaf


def _sample(
    context: PipelineContext,
    result: ChunkResult,
    layout: RowLayout | None,
    bases: tuple[int, ...],
    rows: int,
    row: int,
) -> Any:
    if row in result.values or layout is None:
        return result.values[row]
    leaves = []
    for number, (spec, base) in enumerate(zip(layout.leaves, bases, strict=True)):
        if spec is None:
            leaves.append(result.objects[number][row])
        else:
            shape = tuple(extent or 0 for extent in spec.shape)
            leaves.append(context.memory.array(base, (rows, *shape), spec.dtype)[row])
    return unflatten(layout.structure, leaves)
