"""The stage "collate": build the batch from the results of its chunks, as arrays over slab memory that are leased."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.foundation.pytree import builder, flatten, leaf_spec, map_leaves
from aioloader.foundation.types import RowLayout, next_layout_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioloader.abc import SlabMemory
    from aioloader.foundation.types import Array, ArraySpec, Chunk, ChunkResult, Slab
    from aioloader.pipeline.context import PipelineContext


@dataclass(slots=True)
class BatchRows:
    """Arrays of one batch in slab memory: one for each leaf of a sample, with one row for each sample.

    Attributes:
        rows: number of rows.
        layout: of a row; None: there are no arrays, and samples are returned by value.
        slab: contains the arrays and the spill region, or None.
        bases: byte offset in the slab memory of each leaf's array.
        spill: (offset, nbytes) in the slab memory for results that have no row.
        leased: the delivered batch holds the slab now.
        nbytes: that the rows and the spill region are known to need.
        reserves: the spill region is larger than that, because the size of the results is not known.
    """

    rows: int
    layout: RowLayout | None = None
    slab: Slab | None = None
    bases: tuple[int, ...] = ()
    spill: tuple[int, int] = (0, 0)
    leased: bool = False
    nbytes: int = 0
    reserves: bool = False

    def allocate(self, context: PipelineContext) -> bool:
        """Take a slab for the rows and the spill region, if they need one; return False if there is no room."""
        self.layout = None if context.custom_collate else context.layout
        offsets, total = ([], 0) if self.layout is None else self.layout.offsets(self.rows)
        self.bases = (0,) * len(offsets)
        self.nbytes = total + context.spill(self.rows)
        most = max(self.nbytes, total + context.spill_reserve)
        if not most:
            return True
        slab = context.memory.allocate(most, lasting=True, spare=most - self.nbytes)
        if slab is None and most > self.nbytes:
            # Without the reserve large results take the way of small ones.
            most = self.nbytes
            if not most:
                return True
            slab = context.memory.allocate(most, lasting=True)
        if slab is None:
            return False
        self.reserves = most > self.nbytes
        self.place(slab, offsets, total, most)
        return True

    def place(self, slab: Slab, offsets: Sequence[int], total: int, nbytes: int) -> None:
        """Place the arrays at their offsets in a slab, and the spill region behind their `total` bytes, to `nbytes`."""
        self.slab = slab
        self.bases = tuple(slab.offset + offset for offset in offsets)
        self.spill = (slab.offset + total, (nbytes - total) // 64 * 64)

    def drop(self) -> Slab | None:
        """Return the slab, which the caller frees; the arrays are as before `allocate`."""
        slab, self.slab = self.slab, None
        self.layout, self.bases, self.spill, self.reserves = None, (), (0, 0), False
        return slab

    def give_back(self, memory: SlabMemory, roots: Sequence[Array]) -> None:
        """Free the part of the reserve that was not needed. No worker may still write to the slab.

        Args:
            memory: contains the slab.
            roots: the arrays in the spill region that are still needed.
        """
        if self.slab is None or not self.reserves:
            return
        start, end = self.slab.offset, self.spill[0]
        if roots:
            begin = memory.array(start, (1,), np.dtype(np.uint8)).ctypes.data
            end = max(end, *(start + root.ctypes.data - begin + root.nbytes for root in roots))
        memory.shrink(self.slab, end - start)
        self.nbytes = self.slab.nbytes


def may_lease(context: PipelineContext, nbytes: int) -> bool:
    """Return True if the caller may keep `nbytes` more of slab memory: at most half, and never what batches need.

    The slabs that are kept fragment the memory, hence the three times the largest batch.
    """
    memory = context.memory
    leased = memory.leased + nbytes
    return 2 * leased <= memory.limit and leased + 3 * context.largest_batch <= memory.limit


def must_copy(context: PipelineContext, result: ChunkResult, arrays: BatchRows) -> bool:
    """Return True if the batch cannot hold its slab, so that its arrays are copied out.

    It cannot if a worker may still write there, or beyond what the caller may keep.
    """
    slab = arrays.slab
    return result.tainted or (slab is not None and not may_lease(context, slab.nbytes))


def collate(
    context: PipelineContext,
    result: ChunkResult,
    arrays: BatchRows,
    fill: Mapping[int, int],
    *,
    copy: bool,
) -> tuple[Any, int]:
    """Build the batch.

    Args:
        context: the shared parts.
        result: all chunks of the batch, merged.
        arrays: contain the rows that were written; `leased` is set where the batch holds the slab.
        fill: rows of failed samples, and for each the row that is copied into it.
        copy: arrays of the slab are copied out, and no slab is held: see `must_copy`.

    Returns:
        the batch (None if no sample is left), and its number of samples.

    Raises:
        ValueError: the samples cannot be collated.
    """
    layout, slab, rows = arrays.layout, arrays.slab, arrays.rows
    if context.custom_collate:
        if not result.samples:
            return None, 0
        if not result.roots:
            return result.batch, result.samples
        if copy:
            return copied(result.batch), result.samples
        assert slab is not None
        context.memory.lease(slab, result.roots)
        arrays.leased = True
        return result.batch, result.samples

    # While a worker may still write to the rows, they are only read: those that are valid stay as they are.
    if layout is not None and result.values and not result.tainted:
        for row in list(result.values):  # those that the layout was taken from
            write_row(context.memory, arrays, row, result)
    kept = sorted([*result.written, *result.values])
    if not kept:
        return None, 0
    picked = kept
    if fill:
        kept = sorted([*kept, *fill])
        picked = [fill.get(row, row) for row in kept]
    if result.values or layout is None:
        written = [row for row in picked if row not in result.values]
        views = iter(row_samples(context.memory, result, arrays, written)[0] if written else ())
        samples = [result.values[row] if row in result.values else next(views) for row in picked]
        # The default batchify takes views of rows and returns new arrays.
        return context.collate(samples), len(kept)

    leaves: list[Any] = []
    roots: list[Array] = []
    for number, (spec, base) in enumerate(zip(layout.leaves, arrays.bases, strict=True)):
        if spec is None:
            objects = result.objects.get(number, {})
            leaves.append([objects[row] for row in picked])
            continue
        if copy:
            rows_of_slab = _array(context.memory, base, rows, spec)
            leaves.append(rows_of_slab.copy() if not fill and len(kept) == rows else rows_of_slab[picked])
            continue
        root = _array(context.memory, base, len(kept), spec)
        for failed, replacement in fill.items():
            root[failed] = root[replacement]
        if len(kept) < rows:
            root[:] = _array(context.memory, base, rows, spec)[kept]
        roots.append(root)
        leaves.append(root)
    if roots:
        assert slab is not None
        context.memory.lease(slab, roots)
        arrays.leased = True
    return layout.build(leaves), len(kept)


def write_row(memory: SlabMemory, arrays: BatchRows | Chunk, row: int, result: ChunkResult) -> None:
    """Write a sample that was returned by value into its row, if it fits.

    Args:
        memory: contains the arrays.
        arrays: the batch's arrays; they have a layout.
        row: the sample's key in `result.values`; it moves to `result.written` where it was written.
        result: contains the sample.
    """
    layout = arrays.layout
    assert layout is not None
    structure, leaves = flatten(result.values[row])
    if structure != layout.structure or tuple(leaf_spec(leaf) for leaf in leaves) != layout.leaves:
        return
    for number, (leaf, spec, base) in enumerate(zip(leaves, layout.leaves, arrays.bases, strict=True)):
        if spec is None:
            result.objects.setdefault(number, {})[row] = leaf
        else:
            _array(memory, base, arrays.rows, spec)[row] = leaf
    result.written.append(row)
    del result.values[row]


def _array(memory: SlabMemory, base: int, rows: int, spec: ArraySpec) -> Array:
    return memory.array(base, (rows, *[extent or 0 for extent in spec.shape]), spec.dtype)


def copied(value: Any) -> Any:
    """Return a value with copies of its arrays."""
    return map_leaves(lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, value)


def row_samples(
    memory: SlabMemory, result: ChunkResult, arrays: BatchRows, rows: Sequence[int], *, copy: bool = False
) -> tuple[list[Any], list[Array]]:
    """Return the samples that were written to rows, and the arrays that they are views of.

    Args:
        memory: contains the arrays.
        result: says what else the samples contain.
        arrays: the batch's arrays; they have a layout.
        rows: the rows.
        copy: return copies in place of views.
    """
    layout = arrays.layout
    assert layout is not None
    columns: list[Any] = []
    roots: list[Array] = []
    for number, (spec, base) in enumerate(zip(layout.leaves, arrays.bases, strict=True)):
        if spec is None:
            objects = result.objects.get(number, {})
            columns.append([objects[row] for row in rows])
            continue
        root = _array(memory, base, arrays.rows, spec)
        roots.append(root)
        columns.append([root[row].copy() for row in rows] if copy else [root[row] for row in rows])
    samples = [layout.build([column[place] for column in columns]) for place in range(len(rows))]
    return samples, roots


def row_layout(structure: Any, leaves: Sequence[ArraySpec | None]) -> RowLayout:
    """Return a new layout of rows for samples of a structure."""
    return RowLayout(next_layout_number(), structure, tuple(leaves), builder(structure))
