"""The stage "deliver": apply the policy for failed samples, make the delivery of a batch, and log what was delivered.

`deliver` applies the policy and then calls `collate`, because replaced rows are part of the batch. The epoch's runner
hands the deliveries out in order.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

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
from aioloader.pipeline.collate import BatchRows, collate
from aioloader.receipts import Receipt, add_digests, digest_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from aioloader.pipeline.context import ItemSource, PipelineContext
    from aioloader.pipeline.plan import BatchPlan

_FOLD_AT = 8192


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
    arrays: BatchRows,
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


@dataclass(slots=True, eq=False)
class _Entry:
    """A batch: its plan, whether it was delivered, and how many of its samples and of its padding were left out."""

    plan: BatchPlan
    delivered: bool = False
    failed: int = 0
    padded: int = 0


class DeliveryLog:
    """Log of the batches of one epoch, from which receipts are made. For one thread at a time.

    Args:
        epoch: the epoch.
        start: position at which the epoch begins.
        carry: the samples that rollover brought into the epoch.
        taken: `BatchPlan.consumed` of batches behind `start` that the caller has already.

    Attributes:
        consumed: `BatchPlan.consumed` of the last batch before the first one that the caller does not have.
    """

    def __init__(self, epoch: int, start: int, carry: Any, taken: Sequence[int] = ()) -> None:
        self._receipt = Receipt(epoch, start, start, carry=None if carry is None else list(carry))
        # In the order of their plans, from the first one on that the caller does not have.
        self._planned: deque[_Entry] = deque()
        self._waiting: list[tuple[IntArray, IntArray]] = []  # delivered, not yet in the digest
        self._samples = 0
        self._seen = self._padded = self._skipped = 0
        self._taken = set(taken)
        self.consumed = start

    def follow(self, plans: Iterable[BatchPlan]) -> Iterator[BatchPlan]:
        """Iterate over the same batches but those that were taken before, and remember all until they are delivered."""
        for plan in plans:
            # Plans may be made in another thread than that of the caller, where the log advances.
            if plan.consumed in self._taken:
                self._planned.append(_Entry(plan, delivered=True))
            else:
                self.remember(plan)
                yield plan

    def remember(self, plan: BatchPlan) -> None:
        """Add a batch that will be delivered."""
        self._planned.append(_Entry(plan))

    @property
    def taken(self) -> list[int]:
        """Return `BatchPlan.consumed` of the batches that were delivered behind the first one that was not."""
        self._advance()
        delivered = {entry.plan.consumed for entry in list(self._planned) if entry.delivered}
        # Some of those that the caller had before may not be planned yet.
        return sorted(delivered.union(end for end in self._taken if end > self.consumed))

    def enter(self, delivery: Delivery) -> BatchPlan:
        """Log that the caller received a batch, or that none of its samples was left; return its plan."""
        entry = self._planned[0]
        if entry.plan.consumed != delivery.consumed or entry.delivered:
            entry = next(
                each
                for each in list(self._planned)
                if each.plan.consumed == delivery.consumed and not each.delivered
            )
        plan = entry.plan
        own = len(plan.indices) - plan.padded
        for error in delivery.skipped:
            if error.position is not None and error.position - plan.position >= own:
                entry.padded += 1
            else:
                entry.failed += 1
        entry.delivered = True
        self._advance()
        return plan

    def _advance(self) -> None:
        """Take the batches into the receipt that were delivered without a gap."""
        while self._planned and self._planned[0].delivered:
            entry = self._planned.popleft()
            plan = entry.plan
            own = len(plan.indices) - plan.padded
            self._seen += own - entry.failed
            self._padded += plan.padded - entry.padded
            self._skipped += entry.failed
            self.consumed = plan.consumed
            # One hash of many samples costs little more than one of a few.
            self._waiting.append((plan.indices[:own], plan.epochs[:own]))
            self._samples += own
            if self._samples >= _FOLD_AT:
                self._fold()

    def receipt(self) -> Receipt:
        """Return the receipt of the batches delivered so far, up to the first one that is missing."""
        self._advance()
        self._fold()
        return replace(
            self._receipt, stop=self.consumed, seen=self._seen, padded=self._padded, skipped=self._skipped
        )

    def _fold(self) -> None:
        if self._waiting:
            indices, epochs = (np.concatenate(part) for part in zip(*self._waiting, strict=True))
            digest = add_digests(self._receipt.digest, digest_of(indices, epochs))
            self._receipt = replace(self._receipt, digest=digest)
            self._waiting.clear()
            self._samples = 0
