"""Batches of some identities with some images each, for losses that compare images."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.foundation.validation import require, whole_number
from aioloader.samplers.base import SeededSampler
from aioloader.samplers.permutation import mix, permute_each
from aioloader.samplers.streams import ClassStreams, class_labels, epoch_key

if TYPE_CHECKING:
    from aioloader.foundation.types import IntArray

__all__ = ("PKSampler",)

_IDENTITIES, _ITEMS = 0, 1


class PKSampler(SeededSampler):
    """Stretches of p identities with k images each: give it to a loader with ``batch_size=p * k``.

    Rule: a round has all identities in random order, p in a batch; those that do not fill a batch are left out of that
    round. An identity gives other images in each round until it has given as many as can be had k at a time, then
    begins again in another order. One with fewer than k images gives some of them more than once in a batch.

    Args:
        dataset: one that tells its labels, or an array of labels, (n,): the identity of each sample.
        p: identities of a batch, at most as many as there are.
        k: images of each.
        num_batches: of an epoch; None: as many as the samples would fill, at least one.
        seed: see `SeededSampler`.

    Raises:
        TypeError, ValueError: labels cannot be had from it, or a number is not allowed.

    Source: Hermans, Beyer and Leibe, "In defense of the triplet loss for person re-identification", 2017.
    """

    def __init__(
        self, dataset: Any, p: int, k: int, num_batches: int | None = None, seed: int | None = None
    ) -> None:
        super().__init__(seed)
        p, k = whole_number("p", p), whole_number("k", k)
        if num_batches is not None:
            num_batches = whole_number("num_batches", num_batches)
        labels = class_labels(dataset)
        self._streams = ClassStreams(labels)
        require(k >= 1, f"k must be at least 1, got {k}")
        require(
            1 <= p <= len(self._streams),
            f"p must lie between 1 and the number of identities, {len(self._streams)}, got {p}",
        )
        require(
            num_batches is None or num_batches >= 0, f"num_batches must not be negative, got {num_batches}"
        )
        self._p = p
        self._k = k
        self._batches = max(1, len(labels) // (p * k)) if num_batches is None else num_batches

    def indices(self, seed: int, epoch: int, start: int, stop: int) -> IntArray:
        """See `PositionalSampler.indices`."""
        self._check_stretch(start, stop)
        groups, image = np.divmod(np.arange(start, stop, dtype=np.int64), self._k)
        # Rounds of whole batches: an identity stands in a batch once.
        rounds, places = np.divmod(groups, len(self._streams) // self._p * self._p)
        keys = mix(epoch_key(seed, epoch, _IDENTITIES) + rounds.astype(np.uint64))
        identities = permute_each(keys, np.full(len(rounds), len(self._streams), np.int64), places)
        counts = self._streams.counts[identities]
        # Those with k images or more: parts of k of one order, so that no image stands in a batch twice.
        again, part = np.divmod(rounds, np.maximum(counts // self._k, 1))
        enough = counts >= self._k
        item = np.where(enough, part * self._k + image, image % counts)
        again = np.where(enough, again, again * -(-self._k // counts) + image // counts)
        return self._streams.take(epoch_key(seed, epoch, _ITEMS), identities, again, item)

    def __len__(self) -> int:
        return self._batches * self._p * self._k
