"""Progress of the caller in an epoch, the receipt of it, and the state to resume from (pure).

A batch is consumed when it is delivered. An iterator receives its epoch number when it is made.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.errors import ResumeError
from aioloader.receipts import Receipt, add_digests, digest_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from aioloader.foundation.types import IntArray
    from aioloader.pipeline.collate import Delivery
    from aioloader.pipeline.plan import BatchPlan

STATE_VERSION = 1
_EPOCHS = 2**62
# More positions than any batches leave over, and few enough to be counted in 64 bits.
_MOST_CARRIED = 2**48
_FOLD_AT = 8192


@dataclass(slots=True, eq=False)
class _Entry:
    """A batch: its plan, whether it was delivered, and how many of its samples and of its padding were left out."""

    plan: BatchPlan
    delivered: bool = False
    failed: int = 0
    padded: int = 0


class EpochCursor:
    """Position in the stream of epochs, and the receipt of what was delivered. For one thread at a time.

    Args:
        epoch: epoch number.
        consumed: stream positions (batches, with a batch sampler) of it that were delivered: `BatchPlan.consumed` of
            the last batch before the first one that the caller does not have.
        carry: the samples that rollover brought into it, or None.
        source_state: state of the source of an iterable dataset, or None.
        taken: batches behind `consumed` that were delivered, each by the position of its end.

    Attributes:
        empty: batches in it that the caller did not get, because all their samples failed.
    """

    def __init__(
        self,
        epoch: int = 0,
        consumed: int = 0,
        carry: Any = None,
        source_state: Any = None,
        taken: Iterable[int] = (),
    ) -> None:
        self.epoch = epoch
        self.consumed = consumed
        self.carry = carry
        self.source_state = source_state
        self.taken = list(taken)
        self._before = frozenset(self.taken)
        self.empty = 0
        self._receipt = Receipt(epoch, consumed, consumed, carry=None if carry is None else list(carry))
        # In the order of their plans, from the first one on that the caller does not have.
        self._planned: deque[_Entry] = deque()
        self._waiting: list[tuple[IntArray, IntArray]] = []  # delivered, not yet in the digest
        self._samples = 0
        self._seen = self._padded = self._skipped = 0

    def begun(self) -> EpochCursor:
        """Return a cursor at the same place, for the epoch that begins there."""
        return EpochCursor(self.epoch, self.consumed, self.carry, self.source_state, self.taken)

    def remember(self, plan: BatchPlan) -> bool:
        """Remember a batch until it is delivered; return False if it was taken before."""
        # Plans may be made in another thread than that of the caller, where the cursor moves.
        entry = _Entry(plan, plan.consumed in self._before)
        self._planned.append(entry)
        return not entry.delivered

    def enter(self, delivery: Delivery) -> BatchPlan:
        """Take note that the caller received a batch, or that none of its samples was left; return its plan."""
        entry = self._planned[0]
        if entry.plan.consumed != delivery.consumed or entry.delivered:
            entry = next(
                each
                for each in list(self._planned)
                if each.plan.consumed == delivery.consumed and not each.delivered
            )
            self.taken.append(delivery.consumed)
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
        if self.taken:
            self.taken = [end for end in self.taken if end > self.consumed]

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


def checked_epoch(epoch: Any) -> int:
    """Return the number of an epoch.

    Raises:
        ValueError: it is not one.
    """
    if isinstance(epoch, bool) or not hasattr(epoch, "__index__") or not 0 <= epoch < _EPOCHS:
        raise ValueError(f"epoch must be a whole number from 0 to {_EPOCHS - 1}, got {epoch!r}")
    return int(epoch)


def write_state(
    cursor: EpochCursor, identity: dict[str, Any], seed: int, cut: Sequence[int]
) -> dict[str, Any]:
    """Return the state to resume from: a JSON object.

    Args:
        cursor: where the caller is.
        identity: the entries that a state must share with the loader: fingerprint, length, unit, order, order_version.
        seed: the loader's seed.
        cut: what decides where batches begin and end: their size, the rank and the world size.
    """
    source = {} if cursor.source_state is None else {"source": cursor.source_state}
    taken = {"taken": sorted(cursor.taken), "cut": cut} if cursor.taken else {}
    return {
        "version": STATE_VERSION,
        **identity,
        "seed": seed,
        "epoch": cursor.epoch,
        "consumed": cursor.consumed,
        "carry": cursor.carry,
        **source,
        **taken,
    }


def read_state(
    state: Any,
    identity: Callable[[], dict[str, Any]],
    extent: Callable[[], int | None],
    cut: Callable[[], list[int]],
    fixed: int | None,
) -> tuple[int, EpochCursor]:
    """Return the seed and the place of a state.

    Args:
        state: a result of `write_state`.
        identity: returns that of `write_state`.
        extent: returns how many positions (batches, with a batch sampler) an epoch has without a carry; None if that
            is not known.
        cut: returns that of `write_state`.
        fixed: the seed, if it cannot be changed any more; else None.

    Raises:
        ResumeError: it is corrupt, or belongs to another dataset or another way of sampling.
    """
    if not isinstance(state, dict):
        raise ResumeError("state", "a dict", type(state).__name__)
    if "version" not in state:
        raise ResumeError("version", STATE_VERSION, None, "it is not a state of a loader")
    for name, expected in {"version": STATE_VERSION, **identity()}.items():
        if state.get(name) != expected:
            raise ResumeError(name, expected, state.get(name), _ADVICE.get(name, ""))
    seed = _number("seed", state.get("seed"), 2**64)
    epoch = _number("epoch", state.get("epoch"), _EPOCHS)
    if "carry" not in state:
        raise ResumeError("carry", "an entry, if only None", None, "the state is corrupt")
    carry = state["carry"]
    carried = 0
    positions = extent()
    if carry is not None:
        carry, carried = _carry(carry, state["unit"], epoch, state["length"], positions)
    most = 2**63 if positions is None else positions + carried + 1
    consumed = _number("consumed", state.get("consumed"), most)
    if fixed is not None and seed != fixed:
        raise ResumeError("seed", fixed, seed, "load the state before the first iteration")
    taken = state.get("taken", [])
    if not isinstance(taken, (list, tuple)) or not all(_is_number(end, consumed + 1, most) for end in taken):
        raise ResumeError("taken", "positions behind the consumed ones", taken, "the state is corrupt")
    if taken and state.get("cut") != cut():
        raise ResumeError(
            "cut",
            cut(),
            state.get("cut"),
            "batches were taken out of order: resume with the same batch size, rank and world size",
        )
    return seed, EpochCursor(epoch, consumed, carry, state.get("source"), taken)


def _number(name: str, value: Any, end: int) -> int:
    if not _is_number(value, 0, end):
        raise ResumeError(name, f"a whole number from 0 to {end - 1}", value, "the state is corrupt")
    return int(value)


def _is_number(value: Any, low: int, end: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value < end


def _carry(carry: Any, unit: str, epoch: int, length: int, extent: int | None) -> tuple[list[Any], int]:
    """Return a valid carry, and the number of positions in it.

    By position it is [epoch, position in it] of the first sample left over; else it is [index, epoch, position in it]
    of each sample.

    Raises:
        ResumeError: the carry is not valid.
    """
    if isinstance(carry, (list, tuple)):
        if unit.startswith("positions") and extent is not None and len(carry) == 2:
            first, place = carry
            if _is_number(first, 0, epoch) and _is_number(place, 0, extent):
                carried = (epoch - first) * extent - place
                if carried < _MOST_CARRIED:
                    return [first, place], carried
        if unit.startswith("samples") and carry:
            left = [list(each) for each in carry if isinstance(each, (list, tuple)) and len(each) == 3]
            if len(left) == len(carry) and all(
                _is_number(index, -length, length)
                and _is_number(of, 0, epoch)
                and _is_number(place, 0, 1 << 62)
                for index, of, place in left
            ):
                return left, len(left)
    raise ResumeError("carry", "samples that an earlier epoch left over", carry, "the state is corrupt")


_ADVICE = {
    "version": "it was written by another version of aioloader",
    "order_version": "the order of samples or their random draws have changed between the two versions of aioloader",
    "fingerprint": "it was written for other data",
    "length": "it was written for another dataset",
    "order": "its sampler produces another order: weights, labels, ratios, a window or a number of samples differ",
    "unit": "it was written by a loader that samples in another way (sampler or batch_sampler)",
}
