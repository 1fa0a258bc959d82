"""What a pass delivered, in numbers that are added up over ranks and compared with the epoch.

Rule: a receipt has counts, and a digest of the samples that were delivered or named as failed: the sum, modulo 2**64,
of a hash of each (index, epoch). A sum does not depend on the order and can be taken in parts, so the receipts of all
ranks, of whatever worlds, add up to that of the epoch. A sample that is missing, or comes twice, changes the sum; that
two such mistakes cancel out has a probability of 2**-64. Memory does not grow with the epoch.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.errors import ReceiptError
from aioloader.samplers.permutation import mix

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aioloader.foundation.types import IntArray
    from aioloader.pipeline.context import Delivery
    from aioloader.pipeline.plan import BatchPlan, Order

__all__ = ("DeliveryLog", "Receipt", "compare", "digest_of")

_WORD = (1 << 64) - 1
# Odd numbers, because the hash of 0 is 0: the first sample of the first epoch would leave no trace.
_OF_INDEX = np.uint64(0x9E3779B97F4A7C15)
_OF_EPOCH = np.uint64(0xC2B2AE3D27D4EB4F)
_FOLD_AT = 8192
_COMPARED = 1 << 16


def digest_of(indices: IntArray, epochs: IntArray) -> int:
    """The digest of some samples, 0 <= digest < 2**64; that of several lots is their sum modulo 2**64.

    Args:
        indices: int64 (n,), places in the dataset.
        epochs: int64 (n,), the epoch that each is drawn for.
    """
    of_epoch = mix(epochs.astype(np.uint64) + _OF_EPOCH)
    words = mix((indices.astype(np.uint64) + _OF_INDEX) ^ of_epoch)
    return int(words.sum(dtype=np.uint64))


@dataclass(frozen=True)
class Receipt:
    """What was delivered of one epoch: by one rank, or, added up, by several.

    ``sum(receipts)`` adds them up. They travel as JSON: ``dataclasses.asdict(receipt)``, ``Receipt(**entries)``.

    Attributes:
        epoch: number of the epoch.
        start, stop: positions start <= p < stop of the epoch were dealt out to all ranks; with a batch sampler,
            batches.
        seen: samples that were delivered, those that only fill up not counted.
        padded: samples that were delivered to fill up the last step of all ranks.
        skipped: samples that failed, and were left out or replaced; `AsyncDataLoader.errors` names them.
        digest: of the samples seen and skipped, 0 <= digest < 2**64; the same whatever their order.
        carry: where what rollover brought into the epoch begins, as in the state; None if nothing.
    """

    epoch: int
    start: int
    stop: int
    seen: int = 0
    padded: int = 0
    skipped: int = 0
    digest: int = 0
    carry: Any = None

    def __add__(self, other: object) -> Receipt:
        """Both together.

        Raises:
            ValueError: they are of different epochs, or rollover brought other samples into these.
        """
        if not isinstance(other, Receipt):
            return NotImplemented
        if (self.epoch, self.carry) != (other.epoch, other.carry):
            raise ValueError(
                "only receipts of one epoch can be added up, got "
                f"epoch {self.epoch} (carry {self.carry}) and epoch {other.epoch} (carry {other.carry})"
            )
        return Receipt(
            self.epoch,
            min(self.start, other.start),
            max(self.stop, other.stop),
            self.seen + other.seen,
            self.padded + other.padded,
            self.skipped + other.skipped,
            (self.digest + other.digest) & _WORD,
            self.carry,
        )

    def __radd__(self, other: object) -> Receipt:
        """``sum`` begins with 0."""
        return self if other == 0 else NotImplemented


def compare(receipt: Receipt, order: Order) -> None:
    """Compare a receipt with the order of its epoch, from which its samples must have come, each once.

    Raises:
        ReceiptError: they differ.
    """
    digest = count = 0
    for low in range(receipt.start, receipt.stop, _COMPARED):
        indices, epochs = order.take(low, min(low + _COMPARED, receipt.stop))
        count += len(indices)
        digest = (digest + digest_of(indices, epochs)) & _WORD
    found = receipt.seen + receipt.skipped
    where = f"epoch {receipt.epoch}, positions {receipt.start} to {receipt.stop}"
    if found != count:
        more = f"{count - found} missing" if found < count else f"{found - count} too many"
        raise ReceiptError("samples", count, found, f"{where}: {found} of {count} samples, {more}")
    if receipt.digest != digest:
        reason = f"{where}: {count} samples as there should be, but not the same ones"
        raise ReceiptError("digest", digest, receipt.digest, reason)


class DeliveryLog:
    """The book of one pass, out of which receipts are written. For one thread at a time.

    Args:
        epoch: the epoch.
        start: position at which the pass begins.
        carry: what rollover brought into the epoch.
    """

    def __init__(self, epoch: int, start: int, carry: Any) -> None:
        self._receipt = Receipt(epoch, start, start, carry=None if carry is None else list(carry))
        self._made: deque[BatchPlan] = deque()
        self._waiting: list[tuple[IntArray, IntArray]] = []  # delivered, not yet in the digest
        self._samples = 0
        self._seen = self._padded = self._skipped = 0
        self._stop = start

    def following(self, plans: Iterable[BatchPlan]) -> Iterator[BatchPlan]:
        """The same batches, remembered until they are delivered."""
        for plan in plans:
            self._made.append(plan)
            yield plan

    def remember(self, plan: BatchPlan) -> None:
        """A batch is to be made, and delivered after those before it."""
        self._made.append(plan)

    def enter(self, delivery: Delivery) -> BatchPlan:
        """The next batch was delivered to the caller, or none of its samples was left; gives its plan."""
        plan = self._made.popleft()
        own = len(plan.indices) - plan.padded
        filling = plan.padded
        failed = 0
        for error in delivery.skipped:
            if error.position is not None and error.position - plan.position >= own:
                filling -= 1
            else:
                failed += 1
        self._seen += own - failed
        self._padded += filling
        self._skipped += failed
        self._stop = delivery.consumed
        # One hash of many samples costs little more than one of a few.
        self._waiting.append((plan.indices[:own], plan.epochs[:own]))
        self._samples += own
        if self._samples >= _FOLD_AT:
            self._fold()
        return plan

    def receipt(self) -> Receipt:
        """What was delivered so far."""
        self._fold()
        return replace(
            self._receipt, stop=self._stop, seen=self._seen, padded=self._padded, skipped=self._skipped
        )

    def _fold(self) -> None:
        if self._waiting:
            indices, epochs = (np.concatenate(part) for part in zip(*self._waiting, strict=True))
            digest = (self._receipt.digest + digest_of(indices, epochs)) & _WORD
            self._receipt = replace(self._receipt, digest=digest)
            self._waiting.clear()
            self._samples = 0
