"""The parts that all epochs of a loader share: chosen by the loader, used by the stations."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aioloader.errors import SampleError
from aioloader.foundation.pytree import flatten, leaf_spec
from aioloader.foundation.types import Array, IntArray, ItemLocation, RowLayout, Spans
from aioloader.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.observability.timeline import BatchTimeline

__all__ = ("Delivery", "ItemSource", "PipelineContext")

_layout_numbers = itertools.count(1)
# A chunk should be long against its own cost (about 0.2 ms) and short against a batch.
_CHUNK_TARGET_S = 0.045
_CHUNK_START = 16
_SPLIT_S = 0.03


@dataclass(frozen=True)
class ItemSource:
    """The dataset as the core sees it.

    Attributes:
        name: its class, for errors.
        length: number of items.
        remap: int64 (length,) index to base index, or None where they are the same.
        spans, extras, facts: see `aioloader.abc.ByteDataset`, by base index; None without a byte part.
        arrays: the arrays to gather from where that is all there is to do, or None.
        single: whether an item is one array's row itself, not a tuple.
    """

    name: str
    length: int
    remap: IntArray | None
    spans: Callable[[IntArray], Spans] | None = None
    extras: Callable[[IntArray], Array | None] | None = None
    facts: Callable[[int], ItemLocation] | None = None
    arrays: Sequence[Array] | None = None
    single: bool = False

    def base(self, indices: IntArray) -> IntArray:
        """Base indices of items; checked.

        Raises:
            IndexError: an index lies outside of the dataset.
        """
        if len(indices) and not -self.length <= indices.min() <= indices.max() < self.length:
            bad = indices[(indices < -self.length) | (indices >= self.length)][0]
            raise IndexError(
                f"the sampler gave index {bad}, but {self.name} has {self.length} items: "
                "make the sampler from this dataset"
            )
        if len(indices) and indices.min() < 0:
            indices = indices % self.length
        return indices if self.remap is None else self.remap[indices]


@dataclass
class PipelineContext:
    """Everything that the stations need besides the batch at hand.

    Attributes:
        items: the dataset.
        source: where bytes come from, or None.
        executor: where samples are made.
        memory: `aioloader.executors.shared_memory.SlabMemory`.
        collate: collates samples that have no rows (the default batchify).
        custom_collate: batches are collated by a batchify function in the executor.
        on_error: what a failed sample does: "raise" fails its batch, "skip" leaves it out, "replace" puts another one
            in its place.
        prefetch: batches on their way at a time.
        layout: of the rows; None until the first sample was made.
        spill_per_sample: bytes that results without rows took, at most.
        sample_s: seconds that a sample takes a worker, lately.
        largest_batch: bytes of slab memory that a batch took, at most.
        stall_timeout: seconds without progress after which an epoch says where it stands, or None.
    """

    items: ItemSource
    source: Any
    executor: Any
    memory: Any
    collate: Callable[[list[Any]], Any]
    custom_collate: bool
    on_error: str
    prefetch: int
    metrics: Metrics = field(default_factory=Metrics)
    layout: RowLayout | None = None
    spill_per_sample: int = 0
    sample_s: float = 0.0
    largest_batch: int = 0
    stall_timeout: float | None = None

    def may_lease(self, nbytes: int) -> bool:
        """Whether the caller may keep `nbytes` more of slab memory: half of it, and never what batches need.

        What is kept cuts the rest into pieces, hence three times the largest batch.
        """
        leased: int = self.memory.leased + nbytes
        limit: int = self.memory.limit
        return 2 * leased <= limit and leased + 3 * self.largest_batch <= limit

    def learn(self, sample: Any) -> None:
        """Take the row layout from the first sample that was made."""
        structure, leaves = flatten(sample)
        specs = tuple(leaf_spec(leaf) for leaf in leaves)
        self.layout = RowLayout(next(_layout_numbers), structure, specs)

    def chunk_size(self, samples: int) -> int:
        """How many samples of a batch go to a worker at a time."""
        # A batch of little work is not worth being split: several batches are on their way anyway.
        parts = self.executor.workers if samples * self.sample_s > _SPLIT_S or not self.sample_s else 1
        share: int = -(-samples // parts)
        wanted = int(_CHUNK_TARGET_S / self.sample_s) if self.sample_s else _CHUNK_START
        return max(1, min(wanted, share))

    def sample_error(
        self, index: int, base: int, position: int, stage: str, cause: BaseException
    ) -> SampleError:
        """The error that names a sample, with its cause chained."""
        facts = ItemLocation()
        if self.items.facts is not None:
            facts = self.items.facts(base)
        try:
            text = str(cause)
        except Exception as trouble:  # its own text fails
            text = f"(no text: {type(trouble).__name__})"
        reason = f"{type(cause).__name__}: {text}" if text else type(cause).__name__
        error = SampleError(
            reason,
            dataset=self.items.name,
            index=index,
            stage=stage,
            position=position,
            key=facts.key,
            path=facts.path,
            offset=facts.offset,
        )
        error.__cause__ = cause
        return error


@dataclass(slots=True)
class Delivery:
    """One batch at the end of its way.

    Attributes:
        consumed: see `BatchPlan.consumed`.
        batch: the batch; None if no sample is left of it, or if it failed.
        error: why it failed, or None.
        skipped: samples that were left out or replaced.
        samples: how many samples the batch holds.
        padded: how many of them only fill it up.
        timeline: the batch's way here; None where there was none.
    """

    consumed: int
    batch: Any = None
    error: BaseException | None = None
    skipped: list[SampleError] = field(default_factory=list)
    samples: int = 0
    padded: int = 0
    timeline: BatchTimeline | None = None
