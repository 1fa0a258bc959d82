"""The stages "collate" and "deliver": build the batch from the results of its chunks, as arrays over slab memory that
are leased, and apply the policy for failed samples, because replaced rows are part of the batch.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.errors import BatchShapeError, LoaderError, SampleError
from aioloader.foundation.error_log import add_note, describe, printable
from aioloader.foundation.pytree import builder, flatten, leaf_spec, map_leaves, unflatten
from aioloader.foundation.replacement import replacement_rows
from aioloader.foundation.types import BASE, INDEX, ItemLocation, RowLayout, next_layout_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioloader.abc import SlabMemory
    from aioloader.foundation.types import (
        Array,
        ArraySpec,
        BatchTimeline,
        Chunk,
        ChunkResult,
        Failure,
        IntArray,
    )
    from aioloader.pipeline.context import ItemSource, PipelineContext
    from aioloader.pipeline.memory import BatchMemory
    from aioloader.pipeline.plan import BatchPlan


@dataclass(slots=True)
class Delivery:
    """One batch at the end of the pipeline.

    Attributes:
        consumed: see `BatchPlan.consumed`.
        batch: the batch; None if no sample is left of it, or if it failed.
        samples: number of samples in the batch.
        error: the reason why it failed, or None.
        skipped: samples that were left out or replaced.
        timeline: of the batch; None if there is none.
    """

    consumed: int
    batch: Any = None
    samples: int = 0
    error: BaseException | None = None
    skipped: list[SampleError] = field(default_factory=list)
    timeline: BatchTimeline | None = None


def valid_rows(result: ChunkResult, rows: int) -> list[int]:
    """Return the rows whose samples did not fail."""
    failed = {failure.row for failure in result.failures}
    return [row for row in range(rows) if row not in failed]


def deliver(
    context: PipelineContext,
    plan: BatchPlan,
    result: ChunkResult,
    *,
    arrays: BatchMemory,
    index_table: IntArray,
    replacement: int | None,
    copy: bool,
) -> Delivery:
    """Collate the batch and apply `on_error` to its failed samples.

    Args:
        context: the shared parts.
        plan: the batch.
        result: all its chunks, merged.
        arrays: see `collate`.
        index_table: see `Fetch`.
        replacement: index of the item whose sample is in row 0 because all samples of the batch failed, or None.
        copy: see `collate`.
    """
    rows = arrays.rows
    failures = sorted(result.failures, key=lambda each: each.row)
    errors = _sample_errors(context, plan, index_table, failures)
    if errors and context.on_error == "raise":
        return Delivery(plan.consumed, error=errors[0])
    fill: dict[int, int] = {}
    if errors and context.on_error == "replace":
        if replacement is not None:
            fill = dict.fromkeys(range(1, rows), 0)
        else:
            fill = replacement_rows(rows, valid_rows(result, rows))
            if not fill:
                return Delivery(plan.consumed, error=_irreplaceable(plan, errors[0]), skipped=errors)
        for failure, error in zip(failures, errors, strict=True):
            error.replaced_by = (
                int(index_table[INDEX, fill[failure.row]]) if replacement is None else replacement
            )
    try:
        batch, samples = collate(context, result, arrays, fill, copy=copy)
    except BatchShapeError as error:
        if plan.samples is None:
            row = sorted({*result.written, *result.values, *fill})[error.place]
            error.index = int(index_table[INDEX, fill.get(row, row)])
            add_note(error, f"sample {error.place} has the index {error.index} in the dataset")
        raise
    return Delivery(plan.consumed, batch, samples, skipped=errors)


def deliver_empty(
    context: PipelineContext,
    plan: BatchPlan,
    result: ChunkResult,
    index_table: IntArray,
    copies: Sequence[ChunkResult],
) -> Delivery:
    """Return the empty batch of a plan that has no samples, or whose samples all failed.

    Args:
        context: the shared parts.
        plan: the batch.
        result: the failures.
        index_table: see `Fetch`.
        copies: the batch of a few copies of a sample, and that of twice as many; or none, if no sample could be made.
    """
    errors = _sample_errors(context, plan, index_table, result.failures)
    if not copies:
        return Delivery(plan.consumed, error=_irreplaceable(plan, *errors[:1]), skipped=errors)
    few, twice = (
        made.batch if context.custom_collate else context.collate(list(made.values.values()))
        for made in copies
    )
    return Delivery(plan.consumed, emptied(few, twice), skipped=errors)


def emptied(few: Any, twice: Any) -> Any:
    """Return the batch of no samples, of any batchify function: from few to twice as many it grows as from none to few.

    So a list, an extent of an array or a number that is k greater in the second batch is k less in that of none: arrays
    of a padded batch lose all rows, and the offsets of a ragged one keep their first 0. What does not grow stays.

    Args:
        few: the batch of some copies of one sample.
        twice: the batch of twice as many.

    Raises:
        LoaderError: they have a part of which nothing is known.
    """
    structure, parts = flatten(few, _is_sequence)
    grown = flatten(twice, _is_sequence)[1]
    return unflatten(structure, [_emptied(*pair) for pair in zip(parts, grown, strict=True)])


def _is_sequence(value: Any) -> bool:
    return type(value) in (list, tuple)


def _emptied(few: Any, twice: Any) -> Any:
    if _is_sequence(few):
        if len(few) == len(twice):
            return type(few)(emptied(*pair) for pair in zip(few, twice, strict=True))
        return few[: max(0, 2 * len(few) - len(twice))]
    shape = getattr(few, "shape", None)
    if shape == () or isinstance(few, (int, float)):
        return few if few == twice else 2 * few - twice
    if shape is not None and hasattr(few, "__getitem__"):
        extents = [max(0, 2 * extent - grown) for extent, grown in zip(shape, twice.shape, strict=True)]
        part = few[tuple(map(slice, extents))]
        return part.copy() if isinstance(part, np.ndarray) else part  # it may be in memory that is used again
    if few is None or isinstance(few, (str, bytes, enum.Enum)):
        return few
    raise LoaderError(
        f"even='exact' needs an empty batch here, and a batch of the class {type(few).__name__} cannot be made empty: "
        "let the batchify function return arrays, in tuples, lists, dicts or dataclasses, or choose another `even`"
    )


def _irreplaceable(plan: BatchPlan, cause: SampleError | None = None) -> LoaderError:
    which = f"all samples of this batch of {len(plan.indices)} failed"
    if cause is None:
        which = "this batch has no samples, the layout of an empty batch is that of any sample"
    reason = "all other items that were tried as replacements failed too"
    if plan.samples is not None:
        reason = "an iterable dataset has no other items to replace them"
    error = LoaderError(f"{which}, and {reason}; see loader.errors for the causes")
    error.__cause__ = cause
    return error


def _sample_errors(
    context: PipelineContext, plan: BatchPlan, index_table: IntArray, failures: Sequence[Failure]
) -> list[SampleError]:
    return [_sample_error(context, plan, index_table, failure) for failure in failures]


def _sample_error(
    context: PipelineContext, plan: BatchPlan, index_table: IntArray, failure: Failure
) -> SampleError:
    """Return the error that names a sample, with its cause chained."""
    row, cause = failure.row, failure.error
    items = context.items
    location = _location(items, int(index_table[BASE, row]), cause)
    error = SampleError(
        describe(cause),
        dataset=items.name,
        index=int(index_table[INDEX, row]),
        stage="dataset" if items.own_getitem and failure.stage == "decode" else failure.stage,
        position=plan.position + row,
        key=location.key,
        path=location.path,
        offset=location.offset,
    )
    error.__cause__ = printable(cause)
    return error


def _location(items: ItemSource, index: int, cause: BaseException) -> ItemLocation:
    """Return the location of an item; if the caller's method fails, return an empty one and add a note to the cause."""
    if items.location is None:
        return ItemLocation()
    if not items.own_getitem:
        return items.location(index)
    try:
        found: object = items.location(index)
        if not isinstance(found, ItemLocation):
            raise TypeError(f"it returned {type(found).__name__}, not an aioloader.abc.ItemLocation")
        return found if found.path is None else found._replace(path=str(found.path))
    except Exception as error:
        add_note(cause, f"The dataset's location({index}) failed: {describe(error)}")
        return ItemLocation()


def collate(
    context: PipelineContext,
    result: ChunkResult,
    arrays: BatchMemory,
    fill: Mapping[int, int],
    *,
    copy: bool,
) -> tuple[Any, int]:
    """Build the batch.

    Args:
        context: the shared parts.
        result: all chunks of the batch, merged.
        arrays: contain the rows that were written.
        fill: rows of failed samples, and for each the row that is copied into it.
        copy: arrays of the slab are copied out; otherwise the batch holds the slab.

    Returns:
        the batch (None if no sample is left), and its number of samples.

    Raises:
        ValueError: the samples cannot be collated.
    """
    layout, rows = arrays.layout, arrays.rows
    if context.custom_collate:
        if not result.samples:
            return None, 0
        if not result.roots:
            return result.batch, result.samples
        if copy:
            return copied(result.batch), result.samples
        arrays.lease(result.roots)
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
    samples = len(kept)
    if result.values or layout is None:
        written = [row for row in picked if row not in result.values]
        views = iter(row_samples(context.memory, result, arrays, written)[0] if written else ())
        values = [result.values[row] if row in result.values else next(views) for row in picked]
        # The default batchify takes views of rows and returns new arrays.
        return context.collate(values), samples

    leaves: list[Any] = []
    roots: list[Array] = []
    for number, (spec, base) in enumerate(zip(layout.leaves, arrays.bases, strict=True)):
        if spec is None:
            objects = result.objects.get(number, {})
            leaves.append([objects[row] for row in picked])
            continue
        if copy:
            rows_of_slab = _array(context.memory, base, rows, spec)
            leaves.append(rows_of_slab.copy() if not fill and samples == rows else rows_of_slab[picked])
            continue
        shape: Any = spec.shape  # as in `_array`
        root = context.memory.array(base, (samples, *shape), spec.dtype)
        for failed, replacement in fill.items():
            root[failed] = root[replacement]
        if samples < rows:
            root[:] = _array(context.memory, base, rows, spec)[kept]
        roots.append(root)
        leaves.append(root)
    if roots:
        arrays.lease(roots)
    return layout.build(leaves), samples


def write_row(memory: SlabMemory, arrays: BatchMemory | Chunk, row: int, result: ChunkResult) -> None:
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
    shape: Any = spec.shape  # every extent is known: it is that of a sample
    return memory.array(base, (rows, *shape), spec.dtype)


def copied(value: Any) -> Any:
    """Return a value with copies of its arrays."""
    return map_leaves(lambda leaf: leaf.copy() if isinstance(leaf, np.ndarray) else leaf, value)


def row_samples(
    memory: SlabMemory, result: ChunkResult, arrays: BatchMemory, rows: Sequence[int], *, copy: bool = False
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
