"""Classes in equal numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.foundation.validation import require, whole_number
from aioloader.samplers.base import SeededSampler
from aioloader.samplers.permutation import mix, permute_each
from aioloader.samplers.streams import ClassStreams, class_labels, epoch_key

if TYPE_CHECKING:
    from aioloader.foundation.types import IntArray

__all__ = ("ClassBalancedSampler",)

_CLASSES, _ITEMS = 0, 1


class ClassBalancedSampler(SeededSampler):
    """Each class equally often, whatever its size.

    Rule: an epoch is a row of rounds, and a round has each class once, in random order. A class gives its items one
    after the other in random order, and begins again, in another order, when it has given all. So the items of a small
    class come often, and those of a large one not all in one epoch.

    Args:
        labels: the label of each sample, (n,) of anything that can be sorted; or a dataset that tells them.
        num_samples: indices of an epoch; None: as many as there are samples.
        seed: see `SeededSampler`.

    Raises:
        TypeError, ValueError: labels cannot be had from it, or a number is not allowed.
    """

    def __init__(self, labels: Any, num_samples: int | None = None, seed: int | None = None) -> None:
        super().__init__(seed)
        found = class_labels(labels)
        self._length = len(found) if num_samples is None else whole_number("num_samples", num_samples)
        require(self._length >= 0, f"num_samples must not be negative, got {num_samples}")
        self._streams = ClassStreams(found)

    def indices(self, seed: int, epoch: int, start: int, stop: int) -> IntArray:
        """See `PositionalSampler.indices`."""
        self._check_stretch(start, stop)
        number = len(self._streams)
        rounds, places = np.divmod(np.arange(start, stop, dtype=np.int64), number)
        keys = mix(epoch_key(seed, epoch, _CLASSES) + rounds.astype(np.uint64))
        classes = permute_each(keys, np.full(len(rounds), number, np.int64), places)
        again, item = np.divmod(rounds, self._streams.counts[classes])
        return self._streams.take(epoch_key(seed, epoch, _ITEMS), classes, again, item)

    def __len__(self) -> int:
        return self._length
