"""Sampler that mixes several sets in a given proportion."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.foundation.validation import require
from aioloader.samplers.base import SeededSampler, epoch_length
from aioloader.samplers.permutation import epoch_key, mix, permute_rounds

if TYPE_CHECKING:
    import numpy.typing as npt

    from aioloader.foundation.types import IntArray

# Uses of an epoch's key.
_SLOTS, _ITEMS = 0, 1
_STRETCH = 1000


class MixingSampler(SeededSampler):
    """Indices into concatenated sets, in the proportion of the ratios.

    Rule: each block of 1,000 positions has each set's share of it, rounded so that together they are 1,000 (largest
    remainders), in random order. A set yields its items in random order, and begins again, in another order, after the
    last.

    Args:
        sets: the length of each set, or the sets.
        ratios: a number for each, none negative; they need not add up to 1.
        num_samples: indices of an epoch; None: the total length of the sets.
        seed: see `SeededSampler`.

    Raises:
        ValueError: a number is not allowed, an empty set has a share, or a share is too small for 1 in 1,000.
    """

    def __init__(
        self,
        sets: Sequence[Any],
        ratios: Sequence[float],
        num_samples: int | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(seed)
        lengths = [len(each) if isinstance(each, Sized) else int(each) for each in sets]
        shares: npt.NDArray[np.float64] = np.array(ratios, np.float64)
        require(
            len(lengths) > 0 and shares.shape == (len(lengths),),
            f"pass a ratio for each set, got {len(lengths)} sets and {len(shares)} ratios",
        )
        require(
            bool(np.isfinite(shares).all() and (shares >= 0).all() and shares.any()),
            f"ratios must not be negative, and not all 0, got {list(ratios)}",
        )
        self._quotas = largest_remainders(shares, _STRETCH)
        require(
            all(
                length > 0 or not quota for length, quota in zip(lengths, self._quotas.tolist(), strict=True)
            ),
            f"a set without samples cannot have a share: lengths {lengths}, ratios {list(ratios)}",
        )
        require(
            bool((self._quotas[shares > 0] > 0).all()),
            f"a set with less than one of {_STRETCH} samples would never be drawn: ratios {list(ratios)}",
        )
        self._lengths: IntArray = np.maximum(np.array(lengths, np.int64), 1)
        self._starts: IntArray = np.cumsum(lengths, dtype=np.int64) - np.array(lengths, np.int64)
        self._length = epoch_length(num_samples, sum(lengths))
        self._ends: IntArray = np.cumsum(self._quotas)

    def indices(self, seed: int, epoch: int, start: int, stop: int) -> IntArray:
        self._check_stretch(start, stop)
        stretch, place = np.divmod(np.arange(start, stop, dtype=np.int64), _STRETCH)
        slot = permute_rounds(epoch_key(seed, epoch, _SLOTS), stretch, _STRETCH, place)
        which = np.searchsorted(self._ends, slot, side="right")
        # The slots of a set within a block are numbered, so the number of its items before is known without counting.
        drawn = stretch * self._quotas[which] + slot - (self._ends[which] - self._quotas[which])
        again, item = np.divmod(drawn, self._lengths[which])
        keys = mix(epoch_key(seed, epoch, _ITEMS) ^ mix(which.astype(np.uint64)))
        result: IntArray = self._starts[which] + permute_rounds(keys, again, self._lengths[which], item)
        return result


def largest_remainders(shares: npt.NDArray[np.float64], total: int) -> IntArray:
    """Return integers that add up to `total`, as near as possible in proportion to shares; int64 (n,). Pure."""
    scaled = shares / shares.max()  # tiny shares would make the factor overflow
    exact = scaled * (total / scaled.sum())
    quotas: IntArray = np.floor(exact).astype(np.int64)
    missing = total - int(quotas.sum())
    quotas[np.argsort(quotas - exact, kind="stable")[:missing]] += 1
    return quotas
