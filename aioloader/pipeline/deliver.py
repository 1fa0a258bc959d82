"""The stage "deliver": apply the policy for failed samples, and make the delivery of a batch.

`deliver` applies the policy and then calls `collate`, because replaced rows are part of the batch. The epoch's runner
hands the deliveries out in order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aioloader.errors import BatchShapeError, LoaderError, SampleError
from aioloader.foundation.error_log import add_note, describe, printable
from aioloader.foundation.replacement import replacement_rows
from aioloader.foundation.types import (
    BASE,
    INDEX,
    BatchTimeline,
    ChunkResult,
    Failure,
    IntArray,
    ItemLocation,
)
from aioloader.pipeline.collate import collate

if TYPE_CHECKING:
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
    errors = [_sample_error(context, plan, index_table, failure) for failure in failures]
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


def _irreplaceable(plan: BatchPlan, cause: SampleError) -> LoaderError:
    reason = "all other items that were tried as replacements failed too"
    if plan.samples is not None:
        reason = "an iterable dataset has no other items to replace them"
    error = LoaderError(
        f"all samples of this batch of {len(plan.indices)} failed, and {reason}; see loader.errors for the causes"
    )
    error.__cause__ = cause
    return error


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
