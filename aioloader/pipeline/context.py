"""Parts that all epochs of a loader share: the loader chooses them, the stages use them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aioloader.metrics import Metrics
from aioloader.pipeline.memory import Spill

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.abc import ByteSource, Executor, PartialReads, SampleSearch, SlabMemory
    from aioloader.foundation.threads import Threads
    from aioloader.foundation.types import Array, IntArray, ItemLocation, RowLayout, Spans


@dataclass(frozen=True, kw_only=True)
class ItemSource:
    """The dataset as the stages use it.

    Attributes:
        name: its class, for errors.
        length: number of items.
        index_limit: all indices are less; 0: `length`.
        index_map: int64 (length,) index to index of the base dataset, or None where they are equal.
        spans, whole_spans, extras: see `aioloader.abc.ByteDataset`, by base index; None without a byte part.
        location: see `aioloader.datasets.resolve.Resolved`, by base index; None if the dataset has no such method.
        own_getitem: samples are made by the dataset's own ``__getitem__``.
        arrays: the arrays to gather from if a batch needs nothing else, or None.
        single: an item is the row of one array, not a tuple.
        partial: finds the parts of items that need not be read, or None.
        search: finds the items while the first ones are read, or None.
    """

    name: str
    length: int
    index_limit: int = 0
    index_map: IntArray | None = None
    spans: Callable[[IntArray], Spans] | None = None
    whole_spans: Callable[[IntArray], Spans] | None = None
    extras: Callable[[IntArray], Array | None] | None = None
    location: Callable[[int], ItemLocation] | None = None
    own_getitem: bool = False
    arrays: Sequence[Array] | None = None
    single: bool = False
    partial: PartialReads | None = None
    search: SampleSearch | None = None


@dataclass(slots=True)
class Learned:
    """Facts that the batches of a loader have shown so far.

    Attributes:
        layout: of the rows; None until the first sample was made.
        layout_is_late: the sample that would show the layout takes long: batches no longer wait for it, and have their
            samples by value until it is known.
        spill: memory for results without rows.
        sample_s: seconds of a worker for one sample, averaged over the latest batches.
        largest_batch: bytes of slab memory that a batch took, at most.
    """

    layout: RowLayout | None = None
    layout_is_late: bool = False
    spill: Spill = field(default_factory=Spill)
    sample_s: float = 0.0
    largest_batch: int = 0


@dataclass(kw_only=True)
class PipelineContext:
    """Everything that the stages need in addition to the batch.

    Attributes:
        items: the dataset.
        source: reads the bytes, or None.
        executor: makes the samples.
        memory: slab memory for the bytes and the arrays of batches.
        collate: collates samples that have no rows (the default batchify).
        custom_collate: batches are collated by a batchify function in the executor.
        on_error: the policy for a failed sample: "raise" fails its batch, "skip" leaves the sample out, "replace" puts
            another one in its place.
        delivers_empty: a batch without a valid sample is delivered, empty; otherwise there is none.
        prefetch: maximum number of batches in flight.
        in_order: batches are delivered in the order of their plans; otherwise as they are ready.
        threads: make large copies; None: they are made where the batch is, because nothing else runs there.
        stall_timeout: seconds without progress after which the watchdog reports, or None.
        payloads: see `aioloader.abc.ByteSource.copied`; None: all batches are read.
        learned: what earlier batches have shown.
    """

    items: ItemSource
    source: ByteSource | None
    executor: Executor
    memory: SlabMemory
    collate: Callable[[list[Any]], Any]
    custom_collate: bool
    on_error: str
    prefetch: int
    delivers_empty: bool = False
    in_order: bool = True
    metrics: Metrics = field(default_factory=Metrics)
    threads: Threads | None = None
    stall_timeout: float | None = None
    payloads: Callable[[Spans], list[bytes] | None] | None = None
    learned: Learned = field(default_factory=Learned)
