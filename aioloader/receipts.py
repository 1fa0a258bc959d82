"""Receipts of the samples that an epoch delivered: numbers that are added over ranks and compared with its order.

Rule: a receipt has counts, and a digest of the samples that were delivered or reported as failed: the sum, modulo
2**64, of a hash of each (index, epoch). A sum does not depend on the order and is computed in parts, so the receipts
of all ranks, regardless of the world size, add up to that of the epoch. A sample that is missing or duplicated changes
the sum; two such mistakes cancel out with a probability of 2**-64. Memory does not grow with the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.samplers.epoch_order import mix

if TYPE_CHECKING:
    from aioloader.foundation.types import IntArray

__all__ = ("Receipt", "add_digests", "digest_of")

_MASK_64 = (1 << 64) - 1
# Odd numbers, because the hash of 0 is 0: the first sample of the first epoch would not change the digest.
_OF_INDEX = np.uint64(0x9E3779B97F4A7C15)
_OF_EPOCH = np.uint64(0xC2B2AE3D27D4EB4F)


def digest_of(indices: IntArray, epochs: IntArray) -> int:
    """Return the digest of samples, 0 <= digest < 2**64; the digests of several lots add up modulo 2**64.

    Args:
        indices: int64 (n,), places in the dataset.
        epochs: int64 (n,), the epoch that each is drawn for.
    """
    of_epoch = mix(epochs.astype(np.uint64) + _OF_EPOCH)
    words = mix((indices.astype(np.uint64) + _OF_INDEX) ^ of_epoch)
    return int(words.sum(dtype=np.uint64))


def add_digests(first: int, second: int) -> int:
    """Return the digest of two lots of samples."""
    return (first + second) & _MASK_64


@dataclass(frozen=True)
class Receipt:
    """Counts and digest of the samples of one epoch that one rank delivered, or, added up, several ranks.

    ``sum(receipts)`` adds them up. Send them as JSON: ``dataclasses.asdict(receipt)``, ``Receipt(**entries)``.

    Attributes:
        epoch: number of the epoch.
        start, stop: positions start <= p < stop of the epoch were distributed to all ranks; with a batch sampler,
            batches.
        seen: samples that were delivered, those that only fill up not counted.
        padded: samples that were delivered to fill up the last step of all ranks.
        skipped: samples that failed, and were left out or replaced; `AsyncDataLoader.errors` names them.
        digest: of the samples seen and skipped, 0 <= digest < 2**64; it does not depend on their order.
        carry: where the samples that rollover brought into the epoch begin, as in the state; None if there are none.
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
        """Return the receipt of both together.

        Raises:
            ValueError: they are of different epochs, or rollover brought different samples into these.
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
            seen=self.seen + other.seen,
            padded=self.padded + other.padded,
            skipped=self.skipped + other.skipped,
            digest=add_digests(self.digest, other.digest),
            carry=self.carry,
        )

    def __radd__(self, other: object) -> Receipt:
        """Return the receipt itself for 0, with which ``sum`` begins."""
        return self if other == 0 else NotImplemented
