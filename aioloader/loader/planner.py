"""Planner of a loader's epochs: its sampler, the plan of each epoch, the progress of the caller, and receipts.

The planner chooses the sampler but computes no order: `aioloader.samplers.epoch_order` computes the order of a shuffled
epoch, or the sampler that the dataset proposes, when `aioloader.pipeline.plan` takes its indices. Nothing here waits,
opens a file of samples or uses executors; finding a dataset's length may read its index.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.datasets.iterable import IterableDataset
from aioloader.datasets.resolve import fingerprint, resolve, shuffle_sampler
from aioloader.errors import NotResumableError, ReceiptError, UnevenStepsWarning
from aioloader.foundation.dealing import steps_of
from aioloader.foundation.stacks import warn_caller
from aioloader.loader.checkpoint import EpochCursor, checked_epoch, read_state, write_state
from aioloader.pipeline.iterable_plan import IterablePlan
from aioloader.pipeline.plan import (
    BatchSchedule,
    ComputedListPlan,
    EpochPlan,
    FoundStream,
    IteratedStream,
    ListPlan,
    Plan,
    PositionalStream,
)
from aioloader.receipts import Receipt, add_digests, digest_of
from aioloader.samplers.basic import (
    BatchSampler,
    RandomSampler,
    SequentialSampler,
    description_fingerprint,
    is_computed,
    is_positional,
    order_fingerprint,
)
from aioloader.samplers.dealt import RankBatchSampler, shard_of, whole_epoch
from aioloader.samplers.epoch_order import ORDER_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioloader.abc import SampleSearch
    from aioloader.foundation.types import IntArray
    from aioloader.loader.options import LoaderOptions

_COMPARED = 1 << 16


def _by_position(options: LoaderOptions) -> LoaderOptions:
    """Return options without a batch sampler that only cuts a computed order: the loader cuts that order itself."""
    batches = options.batch_sampler
    if type(batches) is BatchSampler and is_positional(batches.sampler):
        return replace(
            options,
            batch_sampler=None,
            sampler=batches.sampler,
            batch_size=batches.batch_size,
            last_batch=batches.last_batch,
        )
    return options


def _check_dataset(dataset: object) -> None:
    """Raise if samples cannot be read by index.

    Raises:
        TypeError: they cannot.
    """
    if isinstance(dataset, (str, os.PathLike)):
        raise TypeError(
            f"a {type(dataset).__name__} is not a dataset: pass aioloader.open_dataset({dataset!r}), or use "
            f"aioloader.images({dataset!r}), which returns a loader"
        )
    if hasattr(dataset, "__aiter__") or inspect.isasyncgenfunction(dataset):
        raise TypeError(
            "to load from an async iterable, pass the loader aioloader.IterableDataset(...) of it"
        )
    if isinstance(dataset, type):
        raise TypeError(
            f"the dataset is the class {dataset.__name__}: pass an object of it, {dataset.__name__}(...)"
        )
    if isinstance(dataset, Iterator) and not hasattr(dataset, "__getitem__"):
        raise TypeError(
            f"a {type(dataset).__name__} can be iterated once, and a loader reads its dataset in every epoch: pass "
            "aioloader.IterableDataset(function) of the function that returns it, or aioloader.SimpleDataset(list(...))"
        )
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise TypeError(
            f"a dataset needs __len__ and __getitem__, but {type(dataset).__name__} lacks one of them; "
            + (
                "pass aioloader.IterableDataset(...) of what can only be iterated"
                if hasattr(dataset, "__iter__")
                else "wrap a list of items in aioloader.SimpleDataset"
            )
        )


def _check_stream(dataset: IterableDataset, options: LoaderOptions) -> None:
    """Raise if an option needs samples that have an index.

    Raises:
        ValueError: there is such an option.
    """
    for name, given, instead in (
        ("shuffle", options.shuffle, "mix them in the source"),
        ("sampler", options.sampler is not None, "yield them in that order"),
        ("batch_sampler", options.batch_sampler is not None, "pass batch_size"),
        (
            "shard",
            options.shard is not None and not dataset.takes_shard,
            "give the function that is its source a parameter shard, or open a separate source in each rank",
        ),
        (
            "even='exact'",
            options.even == "exact",
            "no rank knows how many samples the others have; leave it out",
        ),
        ("in_order=False", not options.in_order, "leave it out"),
    ):
        if given:
            raise ValueError(
                f"{name} needs a dataset whose samples have indices, and those of an IterableDataset have none: "
                f"{instead}"
            )


def _parts(
    receipt: Receipt, stream: PositionalStream | IteratedStream | FoundStream
) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield the indices and epochs of the positions of a receipt."""
    for low in range(receipt.start, receipt.stop, _COMPARED):
        indices, epochs, _ = stream.take(low, min(low + _COMPARED, receipt.stop))
        yield indices, epochs


def _batch_parts(receipt: Receipt, batches: Iterable[Any]) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield the indices and epochs of the batches of a receipt."""
    for batch in islice(batches, receipt.start, receipt.stop):
        indices = np.asarray(batch, np.int64)
        yield indices, np.full(len(indices), receipt.epoch, np.int64)


def _compare(receipt: Receipt, parts: Iterable[tuple[IntArray, IntArray]], unit: str) -> None:
    """Compare a receipt with the samples of its epoch, which must contain each of them once.

    Args:
        receipt: of all ranks.
        parts: (indices, epochs) of the samples.
        unit: what the receipt counts from its start to its stop.

    Raises:
        ReceiptError: they differ.
    """
    digest = count = 0
    for indices, epochs in parts:
        count += len(indices)
        digest = add_digests(digest, digest_of(indices, epochs))
    found = receipt.seen + receipt.skipped
    where = f"epoch {receipt.epoch}, {unit} {receipt.start} to {receipt.stop}"
    if found != count:
        more = f"{count - found} missing" if found < count else f"{found - count} too many"
        raise ReceiptError("samples", count, found, f"{where}: {found} of {count} samples, {more}")
    if receipt.digest != digest:
        reason = f"{where}: the number of samples, {count}, is right, but not all are the right ones"
        raise ReceiptError("digest", digest, receipt.digest, reason)


class EpochPlanner:
    """Planner of the epochs of one loader.

    Args:
        dataset: see `AsyncDataLoader`.
        options: checked options.

    Attributes:
        options: the same; a batch sampler that only cuts a computed order is replaced by that order.
        schedule: how positions become batches; not with a batch sampler.
        streams: samples come from an `IterableDataset`.
        exact: the ranks share every step as it is, so that a batch of one of them may be empty.
        carried: (epoch, samples that rollover brings into it), of an `IterableDataset`.
        seed: the seed of the order and of all random numbers; that of a state that was loaded.
        next: where the next epoch begins.
        current: where the caller is in the epoch under way; None if there is none.

    Raises:
        TypeError: the dataset is not one.
        ValueError: an option cannot be combined with it.
    """

    def __init__(self, dataset: Any, options: LoaderOptions) -> None:  # the caller's dataset, of any class
        self.streams = isinstance(dataset, IterableDataset)
        if self.streams:
            _check_stream(dataset, options)
        else:
            _check_dataset(dataset)
        self._dataset = dataset
        self.options = options = _by_position(options)
        self._computed = is_computed(options.batch_sampler)
        self.carried: tuple[int, Sequence[Any]] = (-1, ())
        self._warned = False
        self._search: SampleSearch | None = None
        self.seed = int.from_bytes(os.urandom(8), "little") if options.seed is None else int(options.seed)
        self.next = EpochCursor()
        self.current: EpochCursor | None = None
        self._rank, self._world = rank, world = options.rank_and_world
        self.exact = options.even == "exact" and world > 1
        if options.batch_sampler is None:
            assert options.batch_size is not None
            self.schedule = BatchSchedule(
                int(options.batch_size),
                options.last_batch or "keep",
                rank=rank,
                world=world,
                even=options.even,
            )

    # Finding a dataset's length may read its index: these are computed at their first use.

    @cached_property
    def length(self) -> int:
        """Return the number of items of the dataset."""
        if self.streams:
            raise TypeError(
                "the number of samples of an IterableDataset is not known, so its loader has no length"
            )
        return len(self._dataset)

    def begin_search(self) -> SampleSearch | None:
        """Begin to find the samples while the first ones are read; None if all have to be known before."""
        options = self.options
        if self.streams or options.sampler is not None or options.batch_sampler is not None:
            return None
        if options.progress or options.on_error == "replace" or self.exact:
            return None  # they depend on the number of samples
        resolved = resolve(self._dataset)
        if resolved.base_kind == "bytes" and resolved.remap is None:
            # The first epoch may have begun: it opens the loader.
            shuffled = (self.seed, (self.current or self.next).epoch) if options.shuffle else None
            self._search = resolved.base.search_samples(options.timeout, shuffled)
        return self._search

    @property
    def index_limit(self) -> int:
        """Return a number that is more than all indices of the sampler; not with a batch sampler of the caller's."""
        resolved = resolve(self._dataset)
        if self.options.shuffle and resolved.base_kind == "bytes" and resolved.remap is None:
            limit: int = resolved.base.index_limit
            return limit
        return self.length

    @cached_property
    def sampler(self) -> Any:
        """Return the sampler; not with a batch sampler."""
        if self.options.sampler is not None:
            return self.options.sampler
        if not self.options.shuffle:
            return SequentialSampler(self.length)
        proposed = shuffle_sampler(self._dataset)
        return RandomSampler(self.length) if proposed is None else proposed

    @cached_property
    def _positional(self) -> bool:
        return is_positional(self.sampler)

    @cached_property
    def _batches(self) -> Any:
        """Return the batch sampler, whose batches are this rank's if it computes them; None without one."""
        batches = self.options.batch_sampler
        if self._world > 1 and self._computed:
            return RankBatchSampler(batches, self._rank, self._world, self.options.even)
        return batches

    def _identity(self) -> dict[str, Any]:
        length: int | None = None
        order: str | None = None
        if self.streams:
            unit = fingerprint = "iterable"
        else:
            unit, length, fingerprint = "batches", self.length, self._fingerprint
            batches = self.options.batch_sampler
            if self._computed:
                unit = f"batches of {type(batches).__name__}"
                order = description_fingerprint(batches.description())
            elif batches is None:
                order = self._order_fingerprint if self._positional else None
                unit = f"{'positions' if self._positional else 'samples'} of {type(self.sampler).__name__}"
        return {
            "order_version": ORDER_VERSION,
            "unit": unit,
            "length": length,
            "fingerprint": fingerprint,
            "order": order,
        }

    @cached_property
    def _order_fingerprint(self) -> str:
        return order_fingerprint(self.sampler)

    def _cut(self) -> list[int]:
        batches = self.options.batch_sampler
        if batches is not None:
            return [self._rank, self._world] if self._world > 1 else list(shard_of(batches))
        schedule = self.schedule
        return [schedule.batch_size, schedule.rank, schedule.world]

    def _extent(self) -> int | None:
        if self.streams or self._computed:
            return None  # not known without computing all batches
        sampler = self.sampler if self.options.batch_sampler is None else self.options.batch_sampler
        return len(sampler) if hasattr(sampler, "__len__") else None

    @cached_property
    def _fingerprint(self) -> str:
        return fingerprint(self._dataset)

    def __len__(self) -> int:
        if self.streams:
            return self.length
        consumed = self.next.consumed  # of an epoch that is to be resumed
        taken = len(self.next.taken)
        batches = self._batches
        if self._computed:
            return int(batches.count(self.seed, self.next.epoch, consumed)) - taken
        if batches is not None:
            return steps_of(max(0, len(batches) - consumed), self._world, self.options.even) - taken
        carried = 0
        carry = self.next.carry
        if self._positional:
            if carry is not None:
                epoch = self.next.epoch
                carried = PositionalStream(self.sampler, 0, epoch, tuple(carry)).length - len(self.sampler)
        elif carry is not None:
            carried = len(carry)
        return self.schedule.steps(max(0, len(self.sampler) + carried - consumed)) - taken

    def samples_left(self, consumed: int) -> int | None:
        """Return the number of samples of this rank behind those that were consumed; None if it is not known."""
        if self.streams or self.options.batch_sampler is not None or not hasattr(self.sampler, "__len__"):
            return None
        return -(-max(0, len(self.sampler) - consumed) // self.schedule.world)

    # -- epochs ---------------------------------------------------------------------------------------------------

    def begin(self) -> EpochCursor:
        """Begin an epoch and return its cursor. If it is left early, its carry is dropped and the next one follows."""
        self.current = self.next.begun()
        self.next = EpochCursor(self.current.epoch + 1)
        return self.current

    def finish(self, cursor: EpochCursor, plan: Plan) -> None:
        """Record that an epoch was exhausted, and what rollover brings into the next one."""
        if self.current is cursor:
            self.current = None
            if self.next.epoch == cursor.epoch + 1:
                self.next = EpochCursor(self.next.epoch, carry=plan.carry())
        self.carried = (cursor.epoch + 1, plan.left_over)

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next epoch; if it is the next one anyway, nothing changes."""
        if checked_epoch(epoch) != self.next.epoch:
            self.next = EpochCursor(int(epoch))
        self.current = None

    def plan(self, cursor: EpochCursor) -> Plan:
        """Return the batches of an epoch that starts at a cursor."""
        options = self.options
        if self.streams:
            epoch, carried = self.carried
            self.carried = (-1, ())
            return IterablePlan(
                self._dataset.bound(self._rank, self._world, self.seed),
                self.schedule,
                epoch=cursor.epoch,
                start=cursor.consumed,
                state=cursor.source_state,
                carried=carried if epoch == cursor.epoch else None,
            )
        if self._computed:
            return ComputedListPlan(self._batches, self.seed, cursor.epoch, cursor.consumed)
        if options.batch_sampler is not None:
            return ListPlan(
                options.batch_sampler,
                cursor.epoch,
                cursor.consumed,
                rank=self._rank,
                world=self._world,
                even=options.even,
            )
        return EpochPlan(self._stream(cursor), self.schedule, cursor.consumed)

    def _stream(self, cursor: EpochCursor) -> PositionalStream | IteratedStream | FoundStream:
        if self._search is not None and not self._search.complete and cursor.carry is None:
            return FoundStream(self._search, self.seed, cursor.epoch)
        if self._positional:
            carry = None if cursor.carry is None else tuple(cursor.carry)
            return PositionalStream(self.sampler, self.seed, cursor.epoch, carry)
        return IteratedStream(self.sampler, cursor.epoch, cursor.carry, whole=self.schedule.world > 1)

    # -- state -----------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return the state; see `AsyncDataLoader.state_dict`."""
        if self.streams:
            self._dataset.check_resumable()
            if self.schedule.last_batch == "rollover":
                raise NotResumableError(
                    "with last_batch='rollover' an epoch over an IterableDataset cannot be resumed: the samples "
                    "carried over would have to be part of the state"
                )
        elif self.current is not None and self.current.empty and self._cut()[-1] > 1:
            self._warn_of_steps(self.current.empty)
        return write_state(self.current or self.next, self._identity(), self.seed, self._cut())

    def _warn_of_steps(self, empty: int) -> None:
        if self._warned:
            return
        self._warned = True
        warn_caller(
            f"of {empty} batch{'es' * (empty > 1)} of this epoch all samples failed, and on_error='skip' left "
            f"{'them' if empty > 1 else 'it'} out: after as many batches this rank is further than the others, so "
            "that their states differ. Resume from states that were saved at the end of an epoch, or pass "
            "on_error='replace', which keeps all ranks at the same step",
            UnevenStepsWarning,
        )

    def load(self, state: dict[str, Any], fixed: bool) -> None:
        """Load a state; see `AsyncDataLoader.load_state_dict`.

        Args:
            state: the state.
            fixed: the seed cannot be changed any more.
        """
        if self.streams:
            self._dataset.check_resumable()
        seed = self.seed if fixed else None
        self.seed, self.next = read_state(state, self._identity, self._extent, self._cut, seed)
        self.current = None

    def check_receipt(self, receipt: Receipt) -> None:
        """Compare a receipt with the order; see `AsyncDataLoader.check_receipt`."""
        if self.streams:
            raise TypeError(
                "the samples of an IterableDataset cannot be computed again, so its receipts cannot be checked"
            )
        batches = self.options.batch_sampler
        if self._computed:
            whole = whole_epoch(batches, self.seed, receipt.epoch)
            _compare(receipt, _batch_parts(receipt, whole), "batches")
        elif isinstance(batches, Sequence):
            _compare(receipt, _batch_parts(receipt, batches), "batches")
        elif batches is None and self._positional:
            stream = self._stream(EpochCursor(receipt.epoch, 0, receipt.carry))
            _compare(receipt, _parts(receipt, stream), "positions")
        else:
            name = "sampler" if batches is None else "batch_sampler"
            raise TypeError(
                f"the order of the {name} cannot be computed again: only receipts of a computed order can be checked, "
                "such as that of a sampler of aioloader.samplers"
            )
